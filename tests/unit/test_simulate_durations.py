"""Durations of one column: in one unit, so that they can be compared."""

from __future__ import annotations

import pytest

from phoenix.simulate.tables import durations


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ([412.0, 9_999.0], ["412 s", "9,999 s"]),
        ([412.0, 10_000.0, None], ["0.11 h", "2.78 h", "-"]),
        ([36_000.0, 0.0, 12_000.0], ["10.00 h", "0.00 h", "3.33 h"]),
        ([12.4, 36_000.0], ["12 s", "36,000 s"]),  # in hours the first one would be nothing
        ([0.5, 20.0], ["0.5 s", "20 s"]),
        ([None, 0.0], ["-", "0 s"]),
        ([], []),
    ],
)
def test_a_column_has_one_unit(seconds: list[float | None], shown: list[str]) -> None:
    assert durations(seconds) == shown
