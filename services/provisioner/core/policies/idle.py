"""What a web department wants only if it is idle: given where no batch department has to end anything for it.

Theory of operation
  The quotas are worked out without it, then with more hosts demanded: the most with which the others keep what they
  use.  It is a function of levels as the targets are.  It is stable by itself: on what a web department has been given no job
  runs, so the batch departments need no more than what is left, however many jobs wait.

Rules
  1. No batch department's quota is lowered below the hosts on which its jobs run, nor any lower if it is below already; no
     other web department's at all.  Guarantees and contracts hold as ever: `divide` knows them.
  2. Several web departments are served by priority, then by name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.provisioner.core.policies.phoenix import Claim

Divide = Callable[[list[Claim]], dict[str, int]]


def with_idle(
    claims: Sequence[Claim], busy: Mapping[str, int], quota: dict[str, int], divide: Divide
) -> dict[str, int]:
    """`quota`, and what is wanted beside it if it is idle.  `busy`: batch department -> hosts on which its jobs run."""
    claims = list(claims)
    for claim in sorted((c for c in claims if c.if_idle), key=lambda c: (-c.priority, c.name)):  # unique last key: name
        claims = _served(claims, claim, _least(claims, busy, quota), divide)
        quota = divide(claims)
    return quota


def _served(claims: list[Claim], claim: Claim, least: Mapping[str, int], divide: Divide) -> list[Claim]:
    """The claims with as much of what `claim` wants as leaves the others their `least`."""

    def given(count: int) -> list[Claim]:
        return [c if c is not claim else msgspec.structs.replace(c, demand=c.demand + count) for c in claims]

    def too_many(count: int) -> bool:
        found = divide(given(count))
        return any(found[name] < hosts for name, hosts in least.items())

    return given(bisect_right(range(1, claim.if_idle + 1), False, key=too_many))


def _least(claims: Sequence[Claim], busy: Mapping[str, int], quota: Mapping[str, int]) -> dict[str, int]:
    """Rule 1: what each keeps."""
    return {c.name: quota[c.name] if c.web else min(quota[c.name], busy.get(c.name, 0)) for c in claims}
