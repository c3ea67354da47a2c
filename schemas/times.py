"""A time on the wire: RFC 3339, in UTC, to the millisecond (facts of the journal have UTC seconds).

Rules
  1. A time that is received is a `Time`: it has an offset, whichever.  One without, or a number, is refused by the type; one
     before 1970 or after 9999 by `is_possible`.
  2. A time that is sent is a `TimeText`, which `exact` writes; `not_before` and `not_after` write a bound, so that one who
     sends it back keeps it.
  3. Between them are UTC seconds: `utc_s`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from schemas.units import UTC_S_MAX, seconds
from schemas.units import exact as exact

EXAMPLE: Final = "2026-11-26T16:00:00.000Z"
WORDS: Final = f"an RFC 3339 time with an offset, such as {EXAMPLE},"
MILLISECOND_S: Final = 0.001
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Time: TypeAlias = Annotated[datetime, Meta(tz=True, examples=[EXAMPLE])]
TimeText: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, examples=[EXAMPLE])]


def utc_s(time: datetime) -> float:
    """UTC seconds."""
    return time.timestamp()


def is_possible(time: datetime) -> bool:
    """Whether its year in UTC is one from 1970 to 9999: an offset may lead beyond."""
    return 0.0 <= (time - _EPOCH).total_seconds() <= UTC_S_MAX


def not_before(instant: float) -> TimeText:
    """UTC seconds as text; a fraction of a millisecond is rounded up."""
    text = exact(instant)
    return text if (seconds(text) or 0.0) >= instant else exact(instant + MILLISECOND_S)


def not_after(instant: float) -> TimeText:
    """UTC seconds as text; a fraction of a millisecond is rounded down."""
    text = exact(instant)
    return text if (seconds(text) or 0.0) <= instant else exact(instant - MILLISECOND_S)


def as_sent(message: msgspec.Struct) -> Any:
    """An example of a message, with its times as the cloud writes them."""
    return _written(msgspec.to_builtins(message, builtin_types=(datetime,)))


def _written(part: Any) -> Any:
    if isinstance(part, datetime):
        return exact(part.timestamp())
    if isinstance(part, dict):
        return {key: _written(value) for key, value in part.items()}
    return [_written(one) for one in part] if isinstance(part, list | tuple) else part
