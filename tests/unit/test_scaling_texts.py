"""How schedules, zones and limits are written: what is read, and what is refused, up to the last value that is right."""

from __future__ import annotations

import pytest

from services.domain.scaling import DAY_MIN, ZONE_ANY_H, Limit, Span, Unreadable, hours, limit, offset_s, spans


def days(*numbers: int, begin: int = 480, end: int = 1080) -> list[tuple[int, int]]:
    return [(day * DAY_MIN + begin, day * DAY_MIN + end) for day in numbers]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Mon 08:00-18:00", days(0)),
        ("  mon   8:00-18:00 ", days(0)),
        ("Mon-Fri 08:00-18:00", days(0, 1, 2, 3, 4)),
        ("Sat-Mon 08:00-18:00", days(0, 5, 6)),
        ("Sun,Mon,Sun 08:00-18:00", days(0, 6)),
        ("Mon-Tue,Fri-Fri 08:00-18:00", days(0, 1, 4)),
        ("Tue-Mon 08:00-18:00", days(*range(7))),
        ("daily 08:00-18:00", days(*range(7))),
        ("Daily 00:00-24:00", days(*range(7), begin=0, end=DAY_MIN)),
        ("Sun 22:00-06:00", days(6, begin=22 * 60, end=DAY_MIN + 6 * 60)),  # past midnight, and past the week
        ("Mon 00:59-23:59", days(0, begin=59, end=DAY_MIN - 1)),
        ("Mon 18:00-00:00", days(0, begin=18 * 60, end=DAY_MIN)),
        ("Mon 18:00-24:00", days(0, begin=18 * 60, end=DAY_MIN)),
    ],
)
def test_hours_of_the_week(text: str, found: list[tuple[int, int]]) -> None:
    assert hours(text) == found
    assert spans(f"{text.strip()} at least 6") == [Span(begin, end, 6) for begin, end in found]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should be such as"),
        ("Mon", "should be such as"),
        ("Mon 08:00", "should be such as"),
        ("Mon 08:00-18:00 at least", "should be such as"),
        ("Mon 08:60-18:00", "not 08:60"),
        ("Mon 08:00-24:01", "not 24:01"),
        ("Mon 08:00-25:00", "not 25:00"),
        ("Mon 08:00-08:00", "should begin before it ends"),
        ("Mon 24:00-06:00", "should begin before it ends"),
        ("Mo 08:00-18:00", 'not "Mo"'),
        ("Mon- 08:00-18:00", 'not ""'),
        ("Mon,,Tue 08:00-18:00", 'not ""'),
        ("daily,Mon 08:00-18:00", 'not "daily"'),
    ],
)
def test_hours_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        hours(text)


def test_a_schedule_says_how_many() -> None:
    assert spans("Mon 00:00-24:00 at least 0") == [Span(0, DAY_MIN, 0)]
    for text in ("Mon 08:00-18:00", "Mon 08:00-18:00 at least x", "Mon 08:00-18:00 at least 12345678"):
        with pytest.raises(Unreadable, match="at least 6"):
            spans(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UTC", 0), (" UTC ", 0), ("UTC+00:00", 0), ("UTC+02:00", 7200), ("UTC-02:30", -9000), ("UTC+00:59", 3540),
        ("UTC+14:00", 50_400), ("UTC-14:00", -50_400),
    ],
)  # fmt: skip
def test_zones(text: str, seconds: int) -> None:
    assert offset_s(text) == seconds


@pytest.mark.parametrize("text", ["", "utc", "CET", "UTC+2", "UTC+14:01", "UTC-15:00", "UTC+01:60", "UTC+01:99"])
def test_zones_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Unreadable, match="an offset such as"):
        offset_s(text)


def test_the_simulators_zones_are_days_away() -> None:
    assert offset_s("UTC+99:00", ZONE_ANY_H) == 99 * 3600
    with pytest.raises(Unreadable):
        offset_s("UTC+99:01", ZONE_ANY_H)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4 in 60s", Limit(4, False, 60.0)),
        (" 100% in 60s ", Limit(100, True, 60.0)),
        ("1 in 1s", Limit(1, False, 1.0)),
        ("1000000 in 1800s", Limit(1_000_000, False, 1800.0)),
        ("1000% in 1800s", Limit(1000, True, 1800.0)),
    ],
)
def test_limits(text: str, found: Limit) -> None:
    assert limit(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "should be such as"), ("4", "should be such as"), ("4 in 60", "should be such as"),
        ("4 in 0s", "a period of 1 to 1800 seconds"), ("4 in 1801s", "a period of 1 to 1800 seconds"),
        ("0 in 60s", "from 1 to 1000000 instances"), ("1000001 in 60s", "from 1 to 1000000 instances"),
        ("0% in 60s", "from 1 to 1000 %"), ("1001% in 60s", "from 1 to 1000 %"),
    ],
)  # fmt: skip
def test_limits_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        limit(text)
