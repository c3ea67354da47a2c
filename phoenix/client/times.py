"""Times of answers and requests: the only place of the library that knows how the wire writes them.

Rules
  1. An answer's time is a `Time`: RFC 3339 text with an offset, or UTC seconds since 1970 (`answers.read` converts either).
  2. A request's time is a `datetime` or UTC seconds.  A `datetime` without an offset is refused: it could be any hour.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

from phoenix.client.errors import Invalid

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]


def sent(at: datetime | float, field: str) -> float:
    """UTC seconds, as requests have them.  Raises `Invalid` by rule 2; `field`: of the request."""
    if not isinstance(at, datetime):
        return float(at)
    if at.tzinfo is None:
        wrong = Invalid(f"{field}: a time without an offset; give it one: datetime(…, tzinfo=UTC)")
        wrong.field = field
        raise wrong
    return at.timestamp()


def sent_or_none(at: datetime | float | None, field: str) -> float | None:
    """The same; None stays None."""
    return None if at is None else sent(at, field)
