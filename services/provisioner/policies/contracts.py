"""Quotas within contracts: nobody may keep more of another's hosts than that one has agreed to lend.

Rules
  1. The targets are those of `phoenix.targets`, as long as they are a flow from lenders to borrowers within the contracts
     (`schemas.loans`).  Without a limit they always are: then nothing is other.
  2. Else what departments need comes first: web demand and guarantees, then batch, beside them.  The maximum of who is beyond
     is lowered to what it may have, and the needs are worked out again: what it may not have is for the others, by the same
     rules.  Web departments are served by priority, then batch by name; those of one priority share by weight what they may
     borrow.  If web is beyond only because batch holds what it could borrow, batch has so many fewer: hosts that nobody may
     borrow do not count.
  3. What is left is added then, as far as contracts let it: to web as in rule 2, to batch by name, first to those who need
     more, then to those whose it would be without contracts, then to anybody.  So no idle host stays with its owner while
     somebody could borrow it.
  4. A maximum is never lowered below a department's own hosts, so a guarantee is never cut.
  5. Hosts that no contract lets anybody use stay where they are granted to nobody: their owner has them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.fair import Part, fill_within
from schemas.loans import Limit, fit, split
from services.provisioner.policies.phoenix import Claim, targets, web_ranks

NEEDS: Final = 4  # levels of `targets` at which somebody needs the host


def targets_within(claims: list[Claim], usable: int, first: str, own: Mapping[str, int], most: Limit) -> dict[str, int]:
    """As `targets`; `own`: each department's own hosts; `most`: what lenders lend borrowers."""
    within = _Within(claims, usable, own, most)
    wished = targets(claims, usable, first)
    if not within.beyond(wished):
        return wished
    needed, levels, stranded = list(claims), 0, 0
    while True:  # ends: each round but one lowers a maximum or takes hosts out
        quota = targets(needed, usable - stranded, first, levels)
        unmet = within.beyond(quota)
        web = sum(unmet.get(c.name, 0) for c in needed if c.web)
        if not unmet and levels:
            break
        if not unmet:  # web has that for certain
            levels, needed = NEEDS, [_with(c, quota[c.name]) if c.web else c for c in needed]
        elif levels and web and stranded < usable:
            stranded += web
        else:
            lower = {name: quota[name] - hosts for name, hosts in unmet.items()}
            if web:
                lower = within.lowered(quota, unmet)
            needed = [msgspec.structs.replace(c, maximum=lower[c.name]) if c.name in lower else c for c in needed]
    needs = {c.name: wished[c.name] if c.web else min(c.demand, c.maximum) for c in claims}
    for most_of in (needs, wished, {c.name: c.maximum for c in claims if not c.web}):
        for rank in within.ranks:
            mine = {c.name for c in rank}
            quota |= within.raised(rank, {n: hosts for n, hosts in quota.items() if n not in mine}, quota, most_of)
    return quota


class _Within:
    """What contracts let departments have."""

    def __init__(self, claims: list[Claim], usable: int, own: Mapping[str, int], most: Limit) -> None:
        self.usable, self.own, self.most = usable, own, most
        batch = sorted((c for c in claims if not c.web), key=lambda c: c.name)
        self.ranks = [*web_ranks(claims), *([c] for c in batch)]  # who is served before whom
        self.order = [c.name for rank in self.ranks for c in rank]

    def beyond(self, quota: Mapping[str, int]) -> dict[str, int]:
        """Department -> the hosts of its quota that nobody may lend it."""
        excess, spare = split(self.own, quota, self.usable)
        return fit({n: excess[n] for n in self.order if n in excess}, spare, self.most)[1]

    def raised(
        self, rank: list[Claim], others: Mapping[str, int], quota: Mapping[str, int], most: Mapping[str, int]
    ) -> dict[str, int]:
        """What those of `rank` have, each from its `quota` up to `most`, by weight, beside what `others` have."""
        parts = [Part(c.name, c.weight, quota[c.name], most[c.name], c.had) for c in rank if c.name in most]
        left = self.usable - sum(others.values()) - sum(quota[c.name] for c in rank)
        return fill_within(parts, left, lambda given: not self.beyond({**others, **given}))

    def lowered(self, quota: Mapping[str, int], unmet: Mapping[str, int]) -> dict[str, int]:
        """Maxima of the web departments of the highest priority that is beyond: their parts of what they may borrow."""
        number = next(n for n, rank in enumerate(self.ranks) if any(c.name in unmet for c in rank))
        rank, before = self.ranks[number], [c.name for rank in self.ranks[:number] for c in rank]
        own = {name: min(hosts, self.own.get(name, 0)) for name, hosts in quota.items()}  # these nobody may borrow
        others = {**own, **{name: quota[name] for name in before}}
        given = self.raised(rank, {n: others[n] for n in others if n not in {c.name for c in rank}}, own, quota)
        return {name: hosts for name, hosts in given.items() if hosts < quota[name]}


def _with(claim: Claim, hosts: int) -> Claim:
    return msgspec.structs.replace(claim, guarantee=hosts, maximum=hosts)
