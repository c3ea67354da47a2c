"""Phoenix policy: how many hosts each department may keep.  One pure total function of levels.

Theory of operation (PROTOCOL.md "levels, not counts"; Phoenix Cloud paper, II-B and III-C)
  Nothing in flight is counted: a draining host is a usable host, a reclaim is the difference between held and quota, and two
  claims at once are one evaluation.  All numbers are hosts.

Rules
  1. Guarantees first.  A web department's counts as far as it demands it.  A batch department's is kept from web always, so
     that batch never loses it to a spike; among batch departments it counts as far as it is demanded: an idle guaranteed host
     works for another's job until its owner wants it back.  If guarantees exceed the cluster: web by priority, then batch.
  2. Then web demand by priority, up to each department's maximum: a higher one is served before a lower one has anything
     beyond its guarantee.
  3. What is short among equals (web departments of one priority, batch departments) is divided by weight, guarantees and all
     counted: weighted max-min (`max_min`).  Of two web departments to which one host is due alike, the one keeps it whose
     quota has it, so that what is divided once stays so until a level changes; then by name.
  4. The rest to batch: what each needs, by weight.  An occupied host is never taken from one batch department for another's
     weight, an idle one is as soon as the other's demand is unmet (otherwise its wide job would wait for ever).  Where idle
     hosts lie in pieces, none of which any department can use, one department is served `first` (whose turn it is: `core`).
     A lender with a contract is served before weights count, up to its own hosts (`own`): what it has lent and is free, or
     overdue (not counted as `occupied` then), comes back to it, unless it is another one's turn.
  5. Hosts without demand stay where they are; free hosts go to batch by weight, within maxima.
  6. The quotas never add up to more than the usable hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from services.domain.sharing.max_min import Part, fill

UNLIMITED = 1 << 30
# Divides hosts among parts, beside what others have by now (department -> hosts).
Deal = Callable[[Sequence[Part], int, dict[str, int]], dict[str, int]]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one department: levels, in hosts.  `occupied`: held hosts with a live attempt."""

    name: str
    web: bool
    demand: int
    if_idle: int = 0  # of a web department: this many more, but idle hosts only (`idle`)
    held: int = 0
    had: int = 0  # of a web department: its quota so far (rule 3)
    occupied: int = 0
    weight: float = 1.0
    priority: int = 0
    guarantee: int = 0
    maximum: int = UNLIMITED
    own: int = 0  # of a lender with a contract; 0: rule 4 knows weights alone


def freely(parts: Sequence[Part], count: int, _others: dict[str, int]) -> dict[str, int]:
    """Rule 3, where no contract binds."""
    return fill(parts, count)


def targets(claims: Sequence[Claim], usable: int, first: str = "", deal: Deal = freely) -> dict[str, int]:
    """Hosts that each department may keep, of `usable` ones in all.  `first`: the batch department whose need is met before the
    others' (rule 4).  `deal`: how a level is filled; `contracts` has a narrower one."""
    quota = {c.name: 0 for c in claims}
    web, batch = web_ranks(claims), [c for c in claims if not c.web]
    rest = usable
    for rank in web:
        rest = _pour(rank, quota, rest, lambda c: min(c.guarantee, c.maximum, c.demand), deal)
    kept = min(rest, sum(min(c.guarantee, c.maximum) for c in batch))  # from web, for batch as a whole
    rest -= kept
    for rank in web:
        rest = _pour(rank, quota, rest, lambda c: min(c.demand, c.maximum), deal)
    _share(batch, quota, rest + kept, first, deal)
    return quota


def web_ranks(claims: Sequence[Claim]) -> list[list[Claim]]:
    """The web departments, those of one priority together, the highest first."""
    ranks: dict[int, list[Claim]] = {}
    for claim in claims:
        if claim.web:
            ranks.setdefault(claim.priority, []).append(claim)
    return [ranks[priority] for priority in sorted(ranks, reverse=True)]


def _share(batch: list[Claim], quota: dict[str, int], rest: int, first: str, deal: Deal) -> None:
    """Divide `rest` among the batch departments, level after level; each level is filled by weight."""
    levels: tuple[Callable[[Claim], int], ...] = (
        lambda c: min(c.guarantee, c.maximum, c.demand),
        lambda c: min(c.occupied, c.maximum),  # no department loses an occupied host to a weight
        # A turn goes before own hosts: of two departments with some each, neither would ever have enough for a wide job.
        lambda c: min(max(c.demand if c.name == first else 0, c.occupied), c.maximum),
        lambda c: min(max(min(c.own, c.demand), c.occupied), c.maximum),  # what was lent comes back to its owner
        lambda c: min(max(c.demand, c.occupied), c.maximum),
        lambda c: min(max(c.demand, c.held), c.maximum),  # hosts without demand stay where they are
        lambda c: c.maximum,
    )
    for level in levels:
        rest = _pour(batch, quota, rest, level, deal)


def _pour(claims: list[Claim], quota: dict[str, int], rest: int, cap: Callable[[Claim], int], deal: Deal) -> int:
    """Raise quotas towards their caps, by weight (rule 3); returns what is left."""
    if rest <= 0:
        return rest
    parts = [Part(c.name, c.weight, quota[c.name], cap(c), c.had) for c in claims]
    given = deal(parts, rest, quota)
    rest -= sum(given[p.name] - p.least for p in parts)
    quota.update(given)
    return rest
