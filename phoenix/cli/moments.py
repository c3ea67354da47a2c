"""Times that people write for "since when": a span before now, or a date."""

from __future__ import annotations

from datetime import UTC, datetime

from phoenix.cli import units
from phoenix.cli.errors import usage


def instant(text: str, now: float) -> float:
    """UTC seconds.  CliError says what would be right."""
    try:
        if "-" not in text:
            if text[-1:] not in ("s", "m", "h", "d"):  # a bare number would be minutes: nobody means that here
                raise ValueError(text)
            return now - units.parse_time_s(text)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        raise usage(f"{text!r} is no time", "write 24h, 7d, or a date such as 2026-11-21 or 2026-11-21T08:00") from None
