"""Phoenix policy: how many hosts each department may keep.  One pure total function of levels.

Theory of operation (PROTOCOL.md "levels, not counts"; Phoenix Cloud paper, II-B and III-C)
  Nothing in flight is counted: a draining host is a usable host, a reclaim is the difference between held and quota, and two
  claims at once are one evaluation.  All numbers are hosts.

Rules
  1. Guarantees first.  A web department's counts as far as it demands it.  A batch department's is kept from web always, so
     that batch never loses it to a spike; among batch departments it counts as far as it is demanded: an idle guaranteed host
     works for another's job until its owner wants it back.  If guarantees exceed the cluster: web by priority, then batch
     by name.
  2. Then web demand by priority (higher first, ties by name), up to each department's maximum.
  3. The rest to batch: what each needs, by weight.  An occupied host is never taken from one batch department for another's
     weight, an idle one is as soon as the other's demand is unmet (otherwise its wide job would wait for ever).  Where idle
     hosts lie in pieces, none of which any department can use, one department is served `first` (whose turn it is: `core`).
     A lender with a contract is served before weights count, up to its own hosts (`own`): what it has lent and is free, or
     overdue (not counted as `occupied` then), comes back to it, unless it is another one's turn.
  4. What nobody demands stays where it is; what nobody holds goes to batch by weight, within maxima.
  5. Ties by department name.  The quotas never add up to more than the usable hosts.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

UNLIMITED = 1 << 30


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one department: levels, in hosts.  `occupied`: held hosts with a live attempt."""

    name: str
    web: bool
    demand: int
    held: int = 0
    occupied: int = 0
    weight: float = 1.0
    priority: int = 0
    guarantee: int = 0
    maximum: int = UNLIMITED
    own: int = 0  # of a lender with a contract; 0: rule 3 knows weights alone


def targets(claims: list[Claim], usable: int, first: str = "", levels: int = 6) -> dict[str, int]:
    """Hosts that each department may keep, of `usable` ones in all.  `first`: the batch department whose need is met before the
    others' (rule 3).  `levels`: of those at which batch departments share: without any they have
    their guarantees, with four nobody has what nobody needs (rule 4)."""
    quota = {c.name: 0 for c in claims}
    web = sorted((c for c in claims if c.web), key=lambda c: (-c.priority, c.name))  # unique last key: name
    batch = sorted((c for c in claims if not c.web), key=lambda c: c.name)
    rest = usable
    for claim in web:
        quota[claim.name] = min(claim.guarantee, claim.maximum, claim.demand, rest)
        rest -= quota[claim.name]
    kept = min(rest, sum(min(c.guarantee, c.maximum) for c in batch))  # from web, for batch as a whole
    rest -= kept
    for claim in web:
        more = min(max(0, min(claim.demand, claim.maximum) - quota[claim.name]), rest)
        quota[claim.name] += more
        rest -= more
    _share(batch, quota, rest + kept, first, levels)
    return quota


def _share(batch: list[Claim], quota: dict[str, int], rest: int, first: str, count: int) -> None:
    """Divide `rest` among the batch departments, level after level; each level is filled by weight."""
    for claim in batch:
        quota[claim.name] = min(claim.guarantee, claim.maximum, claim.demand, rest)
        rest -= quota[claim.name]
    levels: tuple[Callable[[Claim], int], ...] = (
        lambda c: min(c.occupied, c.maximum),  # nobody loses an occupied host to a weight
        # A turn goes before what is somebody's own: of two that have some each, neither would ever have enough for a wide job.
        lambda c: min(max(c.demand if c.name == first else 0, c.occupied), c.maximum),
        lambda c: min(max(min(c.own, c.demand), c.occupied), c.maximum),  # what was lent comes back to its owner
        lambda c: min(max(c.demand, c.occupied), c.maximum),
        lambda c: min(max(c.demand, c.held), c.maximum),  # what nobody demands stays where it is
        lambda c: c.maximum,
    )
    for level in levels[:count]:
        rest = _fill([(c, level(c)) for c in batch], quota, rest)


def _fill(caps: list[tuple[Claim, int]], quota: dict[str, int], rest: int) -> int:
    """Raise quotas towards their caps so that quota/weight stays as even as it can; returns what is left."""
    while rest > 0:
        open_ = [(c, cap) for c, cap in caps if quota[c.name] < cap]
        if not open_:
            break
        if len(open_) == 1:  # the common case, without the loop
            claim, cap = open_[0]
            given = min(rest, cap - quota[claim.name])
            quota[claim.name] += given
            rest -= given
            continue
        neediest = min(open_, key=lambda x: ((quota[x[0].name] + 1) / x[0].weight, x[0].name))[0]
        quota[neediest.name] += 1
        rest -= 1
    return rest
