"""Hours of the week: when a window is open, until when, and what changes next."""

from __future__ import annotations

import pytest

from services.domain.scaling import Unreadable
from services.domain.windows import NEVER, WEEK_S, Calendar, calendar, read

HOUR_S, DAY_S = 3600.0, 86_400.0
MONDAY_S = 4 * DAY_S  # 5 January 1970, 00:00 UTC


def open_at(at: float, *entries: str, zone: str = "UTC") -> tuple[str, float] | None:
    found = Calendar(entries, zone).open_at(at)
    return None if found is None else (found[0].text, found[1])


@pytest.mark.parametrize("week", [-1, 0, 1, 2800])
def test_a_window_holds_from_its_begin_on_and_not_at_its_end(week: int) -> None:
    base, entry = MONDAY_S + week * WEEK_S, "Mon 08:00-18:00"
    begin, end = base + 8 * HOUR_S, base + 18 * HOUR_S
    told = [open_at(at, entry) for at in (begin - 1, begin, end - 1, end)]
    assert told == [None, (entry, end), (entry, end), None]
    edges = [Calendar((entry,), "UTC").next_edge(at) for at in (begin - 1, begin, end - 1, end)]
    assert edges == [begin, end, end, begin + WEEK_S]


def test_past_midnight_and_past_the_week() -> None:
    entry = "Sun 22:00-06:00"
    assert open_at(MONDAY_S + 5 * HOUR_S, entry) == (entry, MONDAY_S + 6 * HOUR_S)
    assert open_at(MONDAY_S - HOUR_S, entry) == (entry, MONDAY_S + 6 * HOUR_S)
    assert open_at(MONDAY_S + 6 * HOUR_S, entry) is None


def test_the_clocks_of_a_zone_are_ahead() -> None:
    entry = "Mon 08:00-18:00"
    for zone, shift_s in (("UTC+02:00", -2 * HOUR_S), ("UTC-02:00", 2 * HOUR_S), ("not a zone", 0.0)):
        begin = MONDAY_S + 8 * HOUR_S + shift_s
        assert [open_at(at, entry, zone=zone) is None for at in (begin - 1, begin)] == [True, False]


def test_of_two_that_are_open_the_first_counts_and_what_cannot_be_read_is_left_out() -> None:
    entries = ("nonsense", "Mon-Tue 00:00-24:00 guarantee 1", "Tue 00:00-12:00 maximum 2", "Wed 00:00-24:00")
    assert [window.text for window in Calendar(entries, "UTC").windows] == [entries[1], entries[1], *entries[2:]]
    assert open_at(MONDAY_S + DAY_S, *entries) == (entries[1], MONDAY_S + 2 * DAY_S)
    assert Calendar(entries, "UTC").next_edge(MONDAY_S + DAY_S) == MONDAY_S + DAY_S + 12 * HOUR_S
    assert open_at(MONDAY_S + 3 * DAY_S, *entries) is None
    assert (Calendar((), "UTC").next_edge(0.0), Calendar(("nonsense",), "UTC").open_at(0.0)) == (NEVER, None)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Mon 08:00-18:00", (None, None)),
        ("Mon 08:00-18:00 guarantee 6", (6, None)),
        ("Mon 08:00-18:00 maximum 8", (None, 8)),
        (" Mon  08:00-18:00  guarantee 0  maximum 999999 ", (0, 999_999)),
    ],
)
def test_what_a_department_may_keep_then(text: str, numbers: tuple[int | None, int | None]) -> None:
    (window,) = read(text)
    assert (window.begin, window.end, window.guarantee, window.maximum, window.text) == (
        480,
        1080,
        *numbers,
        text.strip(),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mon",
        "Mon 08:00-18:00 guarantee",
        "Mon 08:00-18:00 maximum 8 guarantee 6",
        "Mon 08:00-18:00 maximum 1234567",
    ],
)
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)


def test_a_calendar_is_read_once() -> None:
    assert calendar(("Mon 08:00-18:00",), "UTC") is calendar(("Mon 08:00-18:00",), "UTC")
