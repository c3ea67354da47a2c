"""A time on the wire: RFC 3339, in UTC, to the millisecond (facts of the journal have UTC seconds; their reasons do not).

Rules
  1. A time that comes in (in a request, a signal, a query over NATS, a parameter of a read) is read by `received` alone: a
     date, a `T`, a time of day and an offset, whichever; nothing else, and no number.  In a struct it is an `AskedTime`, which
     `wrong_time` checks where the struct is decoded.  A request's is also from 1970 to 9999 (`is_possible`).
  2. A time that is sent is a `TimeText`, which `exact` writes; `not_before` and `not_after` write a bound, so that one who
     sends it back keeps it; `nearest` writes one whatever the number is.  A reader of an answer has it as a `Time`.
  3. Between them are UTC seconds.
"""

from __future__ import annotations

import re
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
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DAY_TIME: Final = "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?"
_form: Final = re.compile(f"{_DATE}[Tt](?!24){_DAY_TIME}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])")

Time: TypeAlias = Annotated[datetime, Meta(tz=True, examples=[EXAMPLE])]
TimeText: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, examples=[EXAMPLE])]
AskedTime: TypeAlias = Annotated[TimeText, Meta(extra={"words": WORDS, "kind": WORDS})]


def received(text: object) -> float:
    """UTC seconds of an RFC 3339 time with an offset (rule 1).  Raises ValueError for anything else."""
    if not isinstance(text, str) or not _form.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    return (datetime.fromisoformat(text.upper()) - _EPOCH).total_seconds()


def received_if(text: str | None) -> float | None:
    """As `received`; None stays None."""
    return None if text is None else received(text)


def wrong_time(message: msgspec.Struct, *fields: str) -> tuple[str, str] | None:
    """The first of these fields that has something else than a time or null, and the sentence on what is wanted."""
    for field in fields:
        try:
            received_if(getattr(message, field))
        except ValueError:
            return field, f"{field}: {WORDS} is wanted"
    return None


def is_possible(instant: float) -> bool:
    """Whether the year of these UTC seconds is one from 1970 to 9999: an offset may lead beyond."""
    return 0.0 <= instant <= UTC_S_MAX


def nearest(instant: float) -> TimeText:
    """UTC seconds as text, of any number: one that no date has is the first or the last second that is possible."""
    return exact(min(max(0.0, instant), UTC_S_MAX))


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
