"""Hours of the week at which something holds: "Mon-Fri 08:00-18:00", with what a department may then keep.

    windows of a department    "Mon-Fri 08:00-18:00 guarantee 6 maximum 8"     either number may be left out
    windows of a contract      "daily 20:00-06:00"
    windows_zone               "UTC", "UTC+02:00"

Rules
  1. A window holds from its begin on; at its end it does not any more.  What is open is a function of the time alone.
  2. If two are open the first of the list counts (the checks of a file refuse two of one department that overlap).
  3. Times are of one offset the whole year, for the reason told in `domain.scaling`.
  4. What cannot be read is left out: the checks of the file have refused it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from services.domain.scaling import WEEK_MIN, ZONE_ANY_H, Unreadable, hours, offset_s

NEVER: Final = float("inf")
WEEK_S: Final = WEEK_MIN * 60
_MONDAY_S: Final = 3 * 86_400  # the epoch was a Thursday: its week had begun so long before
_WINDOW: Final = re.compile(r"(\S+\s+\S+?)(?:\s+guarantee\s+(\d{1,6}))?(?:\s+maximum\s+(\d{1,6}))?")
_KEPT: Final = 256  # calendars that are kept read: a configuration has few, and a test run not many more


class Window(NamedTuple):
    """From minute `begin` to minute `end` of the week, which begins on Monday; `end` may be in the week after.  `text`: as
    written."""

    begin: int
    end: int
    guarantee: int | None
    maximum: int | None
    text: str


def read(text: str) -> list[Window]:
    """One entry: a window for each of its days.  Raises `Unreadable`."""
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise Unreadable('should be such as "Mon-Fri 08:00-18:00 guarantee 6 maximum 8"')
    numbers = tuple(None if number is None else int(number) for number in match.groups()[1:])
    return [Window(begin, end, numbers[0], numbers[1], text.strip()) for begin, end in hours(match[1])]


class Calendar:
    """The windows of one list."""

    def __init__(self, entries: tuple[str, ...], zone: str) -> None:
        self.windows: list[Window] = []
        for entry in entries:
            try:
                self.windows += read(entry)
            except Unreadable:  # rule 4
                continue
        try:
            self._shift_s = offset_s(zone, ZONE_ANY_H) + _MONDAY_S
        except Unreadable:
            self._shift_s = _MONDAY_S

    def open_at(self, at: float) -> tuple[Window, float] | None:
        """The window that is open at `at` (UTC seconds), and when it closes; rule 2."""
        for window in self.windows:
            end = self.begin(window, at) + (window.end - window.begin) * 60
            if at < end:
                return window, end
        return None

    def next_edge(self, at: float) -> float:
        """When after `at` a window next opens or closes; `NEVER` if there is none."""
        edges = [NEVER]
        for window in self.windows:
            begin = self.begin(window, at)
            end = begin + (window.end - window.begin) * 60
            edges += [end] if at < end else []
            edges.append(begin + WEEK_S)
        return min(edges)

    def begin(self, window: Window, at: float) -> float:
        """The last time, until `at`, at which it opened: a whole number of seconds, so that comparisons are exact."""
        first = window.begin * 60 - self._shift_s
        return float(first + (at - first) // WEEK_S * WEEK_S)


@lru_cache(maxsize=_KEPT)
def calendar(entries: tuple[str, ...], zone: str) -> Calendar:
    return Calendar(entries, zone)
