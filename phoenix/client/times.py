"""Times of answers and requests: the only place of the library that knows how the wire writes them.

Rules
  1. An answer's time is a `Time`: RFC 3339 text with an offset.  The facts of events, as JSON, have UTC seconds.
  2. A call takes a `datetime` or UTC seconds.  A `datetime` without an offset is refused: it could be any hour.
  3. The query of a read and the body of a request have RFC 3339 text (`written`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

from phoenix.client.errors import Invalid

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]


def written(at: datetime | float | None, field: str) -> str | None:
    """RFC 3339 text; None stays None.  Raises `Invalid` by rule 2, and for anything else; `field`: of the request, or the
    parameter."""
    if at is None:
        return None
    found = at if isinstance(at, datetime) else _of_seconds(at, field)
    if found.tzinfo is None:
        raise _wrong(field, "a time without an offset; give it one: datetime(…, tzinfo=UTC)")
    return found.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _of_seconds(at: float, field: str) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise _wrong(
            field, f"{str(at)[:40]!r} is no datetime and no UTC seconds; of text: datetime.fromisoformat(…)"
        ) from None


def _wrong(field: str, words: str) -> Invalid:
    wrong = Invalid(f"{field}: {words}")
    wrong.field = field
    return wrong
