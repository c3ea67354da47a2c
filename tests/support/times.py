"""Times of messages, for tests that count in UTC seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def time_at(instant: float) -> str:
    """UTC seconds as a message may have them: to the microsecond."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="microseconds")
