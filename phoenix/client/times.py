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
    found = datetime.fromtimestamp(_seconds(at, field), UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(at: datetime | float, field: str) -> float:
    if isinstance(at, datetime) and at.tzinfo is not None:
        return at.timestamp()
    if isinstance(at, int | float):
        return float(at)
    if isinstance(at, datetime):
        wrong = Invalid(f"{field}: a time without an offset; give it one: datetime(…, tzinfo=UTC)")
    else:
        wrong = Invalid(f"{field}: {str(at)[:40]!r} is no datetime; of text: datetime.fromisoformat(…)")
    wrong.field = field
    raise wrong
