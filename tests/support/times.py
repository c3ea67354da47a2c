"""Times of messages, for tests that count in UTC seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def time_at(instant: float) -> datetime:
    """UTC seconds as a decoded message has them."""
    return datetime.fromtimestamp(instant, UTC)
