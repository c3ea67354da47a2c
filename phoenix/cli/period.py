"""Times of the past, as people write them: 24h, 7d, 2026-11-21, 2026-11-21T08:00 (UTC)."""

from __future__ import annotations

import argparse

from phoenix.cli import units
from phoenix.cli.errors import usage as mistyped


def add_since(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="WHEN", help="24h, 7d, or a date: 2026-11-21, 2026-11-21T08:00 (UTC)")


def add_span(parser: argparse.ArgumentParser) -> None:
    add_since(parser)
    parser.add_argument("--until", metavar="WHEN", help="likewise (default: now)")


def instant(option: str, text: str, now: float) -> float:
    """UTC seconds of a span before now, or of a date.  CliError says what would be right."""
    try:
        if "-" not in text:
            return _ago(text, now)
        return units.date_s(text)
    except units.TooLongError as error:
        raise mistyped(f"{option}: {error}") from None
    except ValueError:
        raise mistyped(
            f"{option}: {text!r} is no time", "write 24h, 7d, or a date such as 2026-11-21 or 2026-11-21T08:00"
        ) from None


def span(since: str | None, until: str | None, now: float) -> tuple[float | None, float | None]:
    """Both ends, in the order of time, of a period that has begun.  Raises CliError."""
    first, last = (
        None if text is None else instant(name, text, now) for name, text in (("--since", since), ("--until", until))
    )
    if first is not None and first > now:
        raise mistyped(f"--since {since} is to come", "it lies in the future: there is no data yet")
    if first is not None and last is not None and last <= first:
        raise mistyped("--until is not after --since")
    return first, last


def _ago(text: str, now: float) -> float:
    if text[-1:] not in ("s", "m", "h", "d"):  # a bare number would be minutes, which is never meant here
        raise ValueError(text)
    return now - units.parse_time_s(text)
