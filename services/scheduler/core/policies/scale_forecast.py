"""A forecast floor: at least as many instances as were busy at this time of day on the last days, with a margin.

Days resemble each other, so a ramp that comes each morning can be met before it comes.  The seasonal naive method (Hyndman and
Athanasopoulos, *Forecasting*, 2021, 5.2) with a season of a day and the mean of several.  A floor only: the rule still follows
what comes, and a forecast that is too low costs nothing, one that is too high costs instances.

Rules
  1. Time is cut into buckets of a quarter of an hour.  Each remembers for how long it was observed, and the busy instances in
     it: utilisation times instances in service.  At most 7 days of buckets: older ones are forgotten.
  2. An observation that began before the number in service last changed is dropped: it speaks of two numbers.
  3. Above BUSY_MAX an instance's utilisation counts as that: a backlog is counted again and again while it waits.  Not where
     requests are counted.
  4. The forecast of a bucket is the mean of the same bucket of the last `forecast_days` days, as far as they were observed for
     MEASURED_MIN_S, times 1 + `forecast_margin`; the floor keeps it at the rule's target (or threshold).
  5. The floor is that of now or that of `forecast_ahead_s` later, whichever is more: so what the next quarter needs has booted.
  6. The load of the last days does not depend on the floor, so a forecast does not confirm itself.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from schemas.config import WebPolicy
from services.domain.core import NEVER
from services.scheduler.core.policies.scale import Heard, level

BUCKET_S: Final = 900.0
A_DAY: Final = 96  # buckets
DAYS_MAX: Final = 7
KEPT: Final = DAYS_MAX * A_DAY + 1  # and the one that fills
MEASURED_MIN_S: Final = BUCKET_S / 4
BUSY_MAX: Final = 2.0
_ROUNDING: Final = 1e-6  # seconds, or instances: 3 · 0.8 / 0.8 is 3


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    number: int  # quarters of an hour since the epoch
    seconds: float  # observed
    busy_s: float  # instance-seconds


def follow(past: list[Bucket], heard: Heard) -> list[Bucket]:
    """Rules 1 to 3.  By its middle an observation belongs to one bucket; one that comes late is dropped."""
    sample = heard.sample
    seconds = sample.end - sample.start
    number = _number((sample.start + sample.end) / 2)
    if seconds <= 0 or sample.start < heard.since - _ROUNDING or (past and number < past[-1].number):
        return past
    busy_s = seconds * heard.serving * min(sample.utilisation, math.inf if heard.counted else BUSY_MAX)
    if past and past[-1].number == number:
        last = past[-1]
        return [*past[:-1], Bucket(number, last.seconds + seconds, last.busy_s + busy_s)]
    oldest = bisect_left(past, number - KEPT + 1, key=lambda bucket: bucket.number)
    return [*past[oldest:], Bucket(number, seconds, busy_s)]


def floor(past: Sequence[Bucket], now: float, policy: WebPolicy) -> tuple[int, int]:
    """Rules 4 and 5: instances, and how many days they were foreseen from; 0 without any."""
    if not policy.forecast_days:
        return 0, 0
    found = (0, 0)
    for number in (_number(now), _number(now + policy.forecast_ahead_s)):
        means = _means(past, number, policy.forecast_days)
        if means:
            busy = math.fsum(means) / len(means) * (1.0 + policy.forecast_margin)
            found = max(found, (math.ceil(busy / level(policy) - _ROUNDING), len(means)))
    return found


def _means(past: Sequence[Bucket], number: int, days: int) -> list[float]:
    """Busy instances at this time of each of the last days."""
    found = []
    for day in range(1, days + 1):
        place = bisect_left(past, number - day * A_DAY, key=lambda bucket: bucket.number)
        if place < len(past) and past[place].number == number - day * A_DAY:
            bucket = past[place]
            if bucket.seconds >= MEASURED_MIN_S:
                found.append(bucket.busy_s / bucket.seconds)
    return found


def wake_at(now: float, policy: WebPolicy) -> float:
    """When the floor may be another one."""
    if not policy.forecast_days:
        return NEVER
    here = (_number(now) + 1) * BUCKET_S
    ahead = (_number(now + policy.forecast_ahead_s) + 1) * BUCKET_S - policy.forecast_ahead_s
    return min(here, ahead)


def _number(at: float) -> int:
    return int((at + _ROUNDING) // BUCKET_S)
