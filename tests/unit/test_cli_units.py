"""Times and sizes as people type them: Slurm's forms and plain units, and what is said about those that are neither."""

from __future__ import annotations

import pytest

from phoenix.cli import units

TIMES = [
    ("90", 90 * 60),  # a bare number is minutes, as with sbatch
    ("1:30", 90),
    ("2:00:00", 7200),
    ("1-12", 36 * 3600),
    ("1-12:30", 36 * 3600 + 1800),
    ("1-12:30:15", 36 * 3600 + 1815),
    ("0:00:01", 1),
    ("90s", 90),
    ("15m", 900),
    ("2h", 7200),
    ("1d", 86400),
    ("1h30m", 5400),
    ("0.5h", 1800),
    (" 10 ", 600),
]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_time(text: str, seconds: float) -> None:
    assert units.parse_time_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1-", "2x", "1h30", "1.5", "--", "1:-2"])
def test_what_is_no_time_is_said_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="write minutes, M:SS, H:MM:SS"):
        units.parse_time_s(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:99", 159), ("1:60", 120), ("1:60:00", 7200), ("0:00:60", 60), ("1-0:60", 90_000), ("1-0:00:60", 86_460)],
)
def test_minutes_and_seconds_behind_a_colon_are_below_sixty(text: str, seconds: int) -> None:
    with pytest.raises(ValueError, match=f"{text}' is no time: .* at most 59: write {seconds}s, or M:SS, H:MM:SS"):
        units.parse_time_s(text)


def test_what_is_before_the_first_colon_has_no_such_bound() -> None:
    found = [units.parse_time_s(text) for text in ("90:59", "30:59:59", "1-30:59")]
    assert found == [90 * 60 + 59, 30 * 3600 + 3599, 54 * 3600 + 3540]


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [
        ("512", 512),
        ("512M", 512),
        ("4G", 4096),
        ("4g", 4096),
        ("1T", 1 << 20),
        ("1024K", 1),
        ("1K", 1),
        ("1.5G", 1536),
        ("2GB", 2048),
        ("0", 0),
        ("0.001K", 1),
    ],
)
def test_memory(text: str, mebibytes: int) -> None:
    assert units.parse_memory_mb(text) == mebibytes


@pytest.mark.parametrize("text", ["", "much", "4X", "-1", "4 G B"])
def test_what_is_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match="amount of memory"):
        units.parse_memory_mb(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (59.9, "59s"), (185, "3m05s"), (7620, "2h07m"), (4 * 86400 + 3 * 3600, "4d03h")]
)
def test_span(seconds: float, text: str) -> None:
    assert units.span(seconds) == text


def test_instants_are_utc() -> None:
    assert units.iso(0) == "1970-01-01T00:00:00Z"
    assert units.iso("2026-02-03T04:05:06.789Z") == "2026-02-03T04:05:06.789Z"
    assert units.iso(None) is None
    assert units.seconds("1970-01-01T00:01:00.500Z") == 60.5
    assert units.seconds(None) is None
