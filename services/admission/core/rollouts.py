"""Which release a web department is to run, as admission knows it: folded from requests and their outcomes.

Rules
  1. Wanted is the newest one requested; where that was given up, the one gone back to.  Release 0 is what the configuration
     says.
  2. The program of an instance does not change with the configuration: one of release 0 that has begun is as it was, though the
     configuration says something else since.  What load balancers need of it is remembered (`lasting`).
  3. What was complete is remembered in that order, the newest COMPLETE_MAX; what was given up is not complete any more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import WebPolicy
from schemas.releases import Release

COMPLETE_MAX: Final = 10  # half of what custody keeps the content of (RELEASES_KEPT)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    release: int = 0
    complete: tuple[int, ...] = ()


def configured(policy: WebPolicy) -> Release:
    """Release 0."""
    return Release(
        image=policy.image,
        command=policy.command,
        environment=policy.environment,
        secrets=policy.secrets,
        health_path=policy.health_path,
    )


def lasting(content: Release) -> Release:
    """Where an instance is asked for its health, and whether it runs a command: small, whatever else is in the content."""
    return Release(health_path=content.health_path, command=content.command[:1])


def follow(before: Wanted, fact: f.ReleaseRequested | f.ReleaseChanged) -> Wanted:
    if isinstance(fact, f.ReleaseRequested):
        return Wanted(release=fact.release, complete=before.complete)
    rest = tuple(number for number in before.complete if number != fact.release)
    if fact.state == "complete":
        return Wanted(release=before.release, complete=(*rest, fact.release)[-COMPLETE_MAX:])
    if fact.state == "rolled_back":
        # A request that came meanwhile is wanted all the same.
        return Wanted(release=fact.back_to if before.release == fact.release else before.release, complete=rest)
    return before
