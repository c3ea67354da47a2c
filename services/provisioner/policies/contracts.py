"""Quotas within contracts: nobody may keep more of another's hosts than that one has agreed to lend.

Rules
  1. The targets are those of `phoenix.targets`, as long as they are a flow from lenders to borrowers within the contracts
     (`schemas.loans`).  Without a limit they always are: then nothing is other.
  2. Else what departments need comes first: web demand and guarantees, then batch, beside them.  The maximum of who is beyond
     is lowered to what it may have, and the needs are worked out again: what it may not have is for the others, by the same
     rules.  Web departments are served by priority, then batch by name.  If web is beyond only because batch holds what it
     could borrow, batch has so many fewer: hosts that nobody may borrow do not count.
  3. What is left is added then, as far as contracts let it: by name, first to those who need more, then to those whose it
     would be without contracts, then to anybody.  So no idle host stays with its owner while somebody could borrow it.
  4. A maximum is never lowered below a department's own hosts, so a guarantee is never cut.
  5. Hosts that no contract lets anybody use stay where they are granted to nobody: their owner has them at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import msgspec

from schemas.loans import Limit, fit, split
from services.provisioner.policies.phoenix import Claim, targets

NEEDS: Final = 4  # levels of `targets` at which somebody needs the host


def targets_within(claims: list[Claim], usable: int, first: str, own: Mapping[str, int], most: Limit) -> dict[str, int]:
    """As `targets`; `own`: each department's own hosts; `most`: what lenders lend borrowers."""
    order = [c.name for c in sorted(claims, key=lambda c: (not c.web, -c.priority if c.web else 0, c.name))]

    def beyond(quota: Mapping[str, int]) -> dict[str, int]:
        excess, spare = split(own, quota, usable)
        return fit({n: excess[n] for n in order if n in excess}, spare, most)[1]

    wished = targets(claims, usable, first)
    if not beyond(wished):
        return wished
    needed, levels, stranded = list(claims), 0, 0
    while True:  # ends: each round but one lowers a maximum or takes hosts out
        quota = targets(needed, usable - stranded, first, levels)
        unmet = beyond(quota)
        web = sum(unmet.get(c.name, 0) for c in needed if c.web)
        if not unmet and levels:
            break
        if not unmet:  # web has that for certain
            levels, needed = NEEDS, [_with(c, quota[c.name]) if c.web else c for c in needed]
        elif levels and web and stranded < usable:
            stranded += web
        else:
            needed = [
                msgspec.structs.replace(c, maximum=quota[c.name] - unmet[c.name]) if c.name in unmet else c
                for c in needed
            ]
    needs = {c.name: wished[c.name] if c.web else min(c.demand, c.maximum) for c in claims}
    for most_of in (needs, wished, {c.name: c.maximum for c in claims if not c.web}):
        for name in (n for n in order if n in most_of):
            left = usable - sum(quota.values())
            more = range(1, min(most_of[name] - quota[name], left) + 1)  # who may have some may have fewer
            quota[name] += bisect_left(more, True, key=lambda n: bool(beyond({**quota, name: quota[name] + n})))
    return quota


def _with(claim: Claim, hosts: int) -> Claim:
    return msgspec.structs.replace(claim, guarantee=hosts, maximum=hosts)
