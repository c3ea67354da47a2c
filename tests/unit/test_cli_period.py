"""`--since` and `--until`: instants as dates or spans before now, and periods that have begun."""

from __future__ import annotations

import pytest

from phoenix.cli import period
from phoenix.cli.errors import CliError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 1e9 - 86_400),
        ("1d12h", 1e9 - 129_600),
        ("2001-09-09", 999_993_600.0),
        ("2001-09-09T01:00", 999_997_200.0),
        ("2001-09-09T01:00+02:00", 999_990_000.0),
    ],
)
def test_instants_are_spans_before_now_or_dates(text: str, seconds: float) -> None:
    assert period.instant("--since", text, 1e9) == seconds


@pytest.mark.parametrize("text", ["24", "yesterday", "2001-13-01", "", "1:30"])
def test_what_is_no_instant_is_said_so(text: str) -> None:
    with pytest.raises(CliError, match="is no time"):
        period.instant("--since", text, 1e9)


def test_a_span_that_is_too_long_is_said_so() -> None:
    with pytest.raises(CliError, match="--since: '99999999d' is too long: at most 100000d"):
        period.instant("--since", "99999999d", 1e9)


def test_a_period_has_begun_and_its_ends_are_in_order() -> None:
    assert period.span("24h", None, 1e9) == (1e9 - 86_400.0, None)
    with pytest.raises(CliError, match="--since 2002-01-01 is to come"):
        period.span("2002-01-01", None, 1e9)
    with pytest.raises(CliError, match="--until is not after --since"):
        period.span("1h", "2h", 1e9)
