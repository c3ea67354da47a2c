"""Times, counts and lists as people read them: instants in UTC, ISO 8601, as `2026-02-03T04:05:06Z`; durations as `2h07m`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

UTC_S_MAX: Final = 253_402_300_799.0  # the end of the year 9999: what can be written as a date


def count(number: int, noun: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def iso(instant: object) -> str | None:
    """UTC seconds as ISO 8601; text that already is one, and None, pass."""
    if isinstance(instant, str):
        return instant
    if not isinstance(instant, int | float):
        return None
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact(instant: float) -> str:
    """UTC seconds to the millisecond, as answers have times: ``2026-02-03T04:05:06.789Z``."""
    whole, _, milliseconds = f"{instant:.3f}".partition(".")
    return f"{_second(int(whole))}.{milliseconds}Z" if instant >= 0.0 else _before_1970(instant)


# Events and rows of one moment share it; the calendar costs more than the rest of an event's time.
@lru_cache(maxsize=256)
def _second(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _before_1970(instant: float) -> str:
    """Milliseconds count backwards there."""
    return datetime.fromtimestamp(round(instant, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(instant: object) -> float | None:
    """UTC seconds of an ISO 8601 text, or of a number.  A text without an offset is in UTC."""
    if isinstance(instant, int | float):
        return float(instant)
    if not isinstance(instant, str) or not instant:
        return None
    known = datetime.fromisoformat(instant)
    return (known if known.tzinfo else known.replace(tzinfo=UTC)).timestamp()


def span(seconds: float) -> str:
    """A duration as `12s`, `3m05s`, `2h07m`, `4d03h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def some(names: Sequence[object], most: int) -> str:
    """`h1, h2 and 3 more`: at most `most` of them by name."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
