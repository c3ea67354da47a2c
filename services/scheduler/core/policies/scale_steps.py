"""Step limits: at most this many instances more, or fewer, in a period, as the scaling policies of the Kubernetes autoscaler.

Rules
  1. "4 in 60s": in no period of 60 s are there more than 4 steps of one instance in this direction.  What went the other way
     meanwhile gives nothing back (Kubernetes counts the difference): so a number that goes to and fro is limited too.
  2. "50% in 60s": half of the number when the period began, but at least one.
  3. Several limits of one direction: the strictest holds.  (Kubernetes takes the laxest unless configured otherwise.)
  4. All changes count, a person's and a floor's too; what is limited is the rule's number alone: a floor is a promise.
  5. Remembered are the changes of PERIOD_MAX_S, at most CHANGES_MAX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from services.domain.scaling import PERIOD_MAX_S, Limit, Unreadable, limit

CHANGES_MAX: Final = 1000  # more than one in two seconds for half an hour: what limits allow is far less


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The number rose by `by` (negative: fell)."""

    at: float
    by: int


def limits(texts: Sequence[str]) -> list[Limit]:
    """What cannot be read is left out: the file's checks have refused it."""
    found = []
    for text in texts:
        try:
            found.append(limit(text))
        except Unreadable:
            continue
    return found


def follow(changes: list[Change], at: float, by: int) -> list[Change]:
    """Rule 5."""
    kept = [change for change in changes if change.at > at - PERIOD_MAX_S]
    return [*kept[1 - CHANGES_MAX :], Change(at, by)]


def allowed(changes: Sequence[Change], current: int, wanted: int, limits: Sequence[Limit], now: float) -> int:
    """The number nearest to `wanted` that `limits`, those of its direction, allow."""
    way = 1 if wanted > current else -1
    step = min([abs(wanted - current), *(_left(changes, current, way, limit, now) for limit in limits)])
    return current + way * max(0, step)


def next_free(changes: Sequence[Change], limits: Sequence[Limit], now: float) -> float:
    """When the next change that counts now counts no more; infinite if there is none."""
    ends = (change.at + limit.period_s for limit in limits for change in changes)
    return min((at for at in ends if at > now), default=math.inf)


def _left(changes: Sequence[Change], current: int, way: int, limit: Limit, now: float) -> int:
    """Rules 1 and 2: instances that the period has left."""
    recent = [change.by for change in changes if change.at + limit.period_s > now]
    begun = current - sum(recent)
    most = max(1, -(-begun * limit.amount // 100)) if limit.percent else limit.amount
    return most - sum(by * way for by in recent if by * way > 0)
