"""Where a test may be left out, and how that is reported: the last line of the test output counts it under its own words.

The only place where a test may be skipped (tests/unit/test_frame_layout.py): such a run cannot be taken for a whole one.
"""

from __future__ import annotations

from typing import Final, NoReturn

import pytest

SIGN: Final = "this test is "


def leave_out(words: str) -> NoReturn:
    """`words` follow the count: "skipped as haproxy is missing"."""
    pytest.skip(SIGN + words)


def status_of_left_out(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What a test that was left out is counted as; None for every other report."""
    reason = str(report.longrepr[2]) if report.skipped and isinstance(report.longrepr, tuple) else ""
    _, sign, words = reason.rpartition(SIGN)
    return (words, "s", words.upper()) if sign else None
