"""Texts of a web department's configuration, read alike by the cores and by the checks of the file.

    schedule         "Mon-Fri 08:00-18:00 at least 6"       a floor by the clock
    schedule_zone    "UTC", "UTC+02:00"                     what its times are
    up_limits, …     "4 in 60s", "100% in 60s"              instances, or per cent of them, in a period

Rules
  1. What cannot be read raises `Unreadable` with a clause that says what would be right.
  2. Times are of one offset from UTC, the whole year: what a zone's summer time does differs between machines and years, and
     a core must decide the same everywhere.
  3. A span that ends before it begins continues past midnight; its days are those on which it begins.  24:00 is the end of a
day."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN: Final = 24 * 60
WEEK_MIN: Final = 7 * DAY_MIN
PERIOD_MAX_S: Final = 1800.0  # as in Kubernetes; what happened before it need not be remembered
PERCENT_MAX: Final = 1000  # eleven times as many at once is no limit
INSTANCES_MAX: Final = 1_000_000  # as of `instances_max`

ZONE_MAX_H: Final = 14  # no clock on Earth is further from UTC
# the simulator's, whose time 0 is a Monday: it moves zones by three days (`phoenix.simulate.week`)
ZONE_ANY_H: Final = 99

_HOURS: Final = re.compile(r"([A-Za-z,-]+)\s+(\d\d?):(\d\d)-(\d\d?):(\d\d)")
_SCHEDULE: Final = re.compile(r"(\S+\s+\S+)\s+at least\s+(\d{1,7})")
_ZONE: Final = re.compile(r"UTC(?:([+-])(\d\d):(\d\d))?")
_LIMIT: Final = re.compile(r"(\d{1,7})(%?) in (\d{1,5})s")


class Unreadable(ValueError):
    """`str()` says what would be right."""


class Span(NamedTuple):
    """`floor` instances at least from minute `begin` to minute `end` of the week, which begins on Monday; `end` may be in the
    week after."""

    begin: int
    end: int
    floor: int


class Limit(NamedTuple):
    """At most `amount` instances, or per cent of what there was, in `period_s`."""

    amount: int
    percent: bool
    period_s: float


def spans(text: str) -> list[Span]:
    """One entry of `schedule`: a span for each of its days."""
    match = _SCHEDULE.fullmatch(text.strip())
    if match is None:
        raise Unreadable('should be such as "Mon-Fri 08:00-18:00 at least 6"')
    return [Span(begin, end, int(match[2])) for begin, end in hours(match[1])]


def hours(text: str) -> list[tuple[int, int]]:
    """Such as "Mon-Fri 08:00-18:00": begin and end, in minutes of the week, for each of its days."""
    match = _HOURS.fullmatch(text.strip())
    if match is None:
        raise Unreadable('should be such as "Mon-Fri 08:00-18:00"')
    begin, end = _minute(match[2], match[3]), _minute(match[4], match[5])
    if begin in (DAY_MIN, end):
        raise Unreadable("should begin before it ends; the whole day is 00:00-24:00")
    if end < begin:  # rule 3
        end += DAY_MIN
    return [(day * DAY_MIN + begin, day * DAY_MIN + end) for day in _days(match[1])]


def _minute(hour: str, minute: str) -> int:
    found = int(hour) * 60 + int(minute)
    if int(minute) > 59 or found > DAY_MIN:
        raise Unreadable(f"should have times from 00:00 to 24:00, not {hour}:{minute}")
    return found


def _days(text: str) -> list[int]:
    """`daily`, or days and ranges of days: `Mon-Fri,Sun`; `Sat-Mon` is three days."""
    if text.lower() == "daily":
        return list(range(7))
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.partition("-")
        begin, end = _day(first), _day(last if dash else first)
        found.update(dict.fromkeys((begin + i) % 7 for i in range((end - begin) % 7 + 1)))
    return sorted(found)


def _day(text: str) -> int:
    if text.lower() not in DAYS:
        raise Unreadable(f'should have days out of Mon, Tue, Wed, Thu, Fri, Sat, Sun, or daily, not "{text}"')
    return DAYS.index(text.lower())


def offset_s(text: str, hours_max: int = ZONE_MAX_H) -> int:
    """Of `schedule_zone`: seconds by which its clocks are ahead of UTC, at most `ZONE_MAX_H` hours."""
    match = _ZONE.fullmatch(text.strip())
    minutes = int(match[2]) * 60 + int(match[3]) if match and match[1] else 0
    if match is None or minutes > hours_max * 60 or (match[1] and int(match[3]) > 59):
        raise Unreadable('should be "UTC" or an offset such as "UTC+02:00", at most 14 hours; summer time is not known')
    return (-minutes if match[1] == "-" else minutes) * 60


def limit(text: str) -> Limit:
    """One entry of `up_limits` or `down_limits`."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise Unreadable('should be such as "4 in 60s" (instances) or "10% in 60s"')
    found = Limit(int(match[1]), bool(match[2]), float(match[3]))
    if not 0 < found.period_s <= PERIOD_MAX_S:
        raise Unreadable(f"should have a period of 1 to {PERIOD_MAX_S:g} seconds")
    most = PERCENT_MAX if found.percent else INSTANCES_MAX
    if not 0 < found.amount <= most:
        raise Unreadable(f"should be from 1 to {most}{' %' if found.percent else ' instances'}")
    return found
