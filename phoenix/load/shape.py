"""From a table of a real load to a curve: the same shape, in less time and at a rate that this machine carries.

The table is the simulator's (`phoenix.simulate.web_csv`): CSV, a first column of times, a column `requests`.

Rules
  1. Each row becomes one step; time is compressed evenly, so every row keeps its share of the run.
  2. Rates are scaled evenly: the busiest row has `peak` requests a second, or each row `scale` times its own rate in the table.
     Only the shape is the table's then; how steep a rise is grows with the compression.
  3. A part of the table (`since`, `until`) is whole rows: those that begin in it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from phoenix.load.curve import Curve, LoadError
from phoenix.simulate import web_csv


def read(
    path: Path,
    *,
    seconds: float | None,
    peak: float | None = None,
    scale: float | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Curve:
    """The curve of a table.  `seconds`: the whole run (None: as long as the table); `since`, `until`: dates, or seconds as the
    table has them.  LoadError, or InputError with file and line."""
    series = web_csv.read(path, column="requests")
    origin = web_csv.origin(path)
    first = -float("inf") if since is None else moment(since) - origin
    last = float("inf") if until is None else moment(until) - origin
    rows = [
        (start, end, count / (end - start))
        for start, end, count in zip(series.starts, series.ends(), series.values, strict=True)
        if first <= start < last
    ]
    if not rows:
        raise LoadError(f"{path}: no row of the table begins between {since or 'its begin'} and {until or 'its end'}")
    begin, length = rows[0][0], rows[-1][1] - rows[0][0]
    pace = (seconds or length) / length
    factor = _factor(path, max(rate for _, _, rate in rows), peak, scale)
    return Curve(
        tuple((start - begin) * pace for start, _, _ in rows),
        tuple(rate * factor for _, _, rate in rows),
        length * pace,
    )


def _factor(path: Path, most: float, peak: float | None, scale: float | None) -> float:
    if (peak is None) == (scale is None):
        raise LoadError("say either the rate of the busiest row, or by how much all rates are scaled")
    if scale is not None:
        return scale
    if not most:
        raise LoadError(f"{path}: all rows have 0 requests; there is no shape to play")
    return (peak or 0.0) / most


def moment(text: str) -> float:
    """Seconds as `web_csv` counts them: a number, or a date with or without offset.  LoadError says what would be right."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise LoadError(f"{text!r} is neither seconds nor a date like 1998-06-15T11:00") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
