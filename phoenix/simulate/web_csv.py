"""Web load and web demand from a table: CSV with a header, a row for each interval.

The first column is when the interval begins: a date with time (`2026-07-01 13:05`, ISO 8601, with or without an offset), or
seconds.  One of the columns is `instances`, `requests` or `utilisation`; utilisation is of the column `instances` beside it, or
of a number that the caller knows.  Other columns are not looked at.

It decides what a table means, never how many instances a department gets.  It must never mend a table in silence: whatever
makes a row doubtful is an InputError with file, line and column.

  1. Time 0 is the first row's begin.  Times rise.  Without offset they are taken as they are, each day with 24 hours.
  2. Requests and utilisation belong to an interval, so rows have equal distances: a longer one means that a row is missing.
     Instances are a level that holds until the next row: their distances are free.
  3. Requests are a count in the interval; utilisation is 0 to 1, somewhat more where requests waited; instances are 0 or more.
  4. Demand of requests: the interval with most requests needs `peak` instances, others in proportion, at least one (Phoenix
     Cloud, §III-D).  Demand of utilisation: as many instances as would have been at the threshold, at least one.
  5. Both are computed exactly: numbers as they are written in the table, no rounding before the last step.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from phoenix.simulate.text_input import InputError, lines
from phoenix.simulate.workload import Series, Unit

Level = TypeVar("Level", int, float)
UNITS: Final[tuple[Unit, ...]] = ("instances", "requests", "utilisation")
SPELLINGS: Final = {"utilization": "utilisation"}
UTILISATION_MAX: Final = 2.0  # a queue may show as more than 1; at 2 it is more likely per cent
INSTANCES_MAX: Final = 1e6  # no department has that many, and no simulated cluster could hold them
REQUESTS_MAX: Final = 1e15  # counts stay exact in a float below this
LIMITS: Final = {"instances": INSTANCES_MAX, "requests": REQUESTS_MAX, "utilisation": UTILISATION_MAX}
THRESHOLD: Final = Fraction(8, 10)  # the 80 % of Phoenix Cloud's rule (§III-C)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NAIVE: Final = datetime(1970, 1, 1)  # rule 1: without offset as it is
CLOCK: Final = 1e-6  # seconds; two distances nearer than this are equal


def read(path: Path | str, *, column: Unit | None = None, measured_on: float | None = None) -> Series:
    """Read a table.  `column`: which one, if it has several; `measured_on`: instances that utilisation was measured on, if no
    column tells.  Raises InputError with file, line and column."""
    return _Table(Path(path), column, measured_on).read()


def origin(path: Path | str) -> float:
    """What the first column says of the first row: seconds, a date as UTC seconds.  Raises InputError as `read` does."""
    table = _Table(Path(path), None, None)
    cells = table.cells()
    header, first = next(cells, None), next(cells, None)
    if header is None or first is None:
        raise InputError("there is no row below the header", table.path, 2)
    table.names = header[1]
    return table.time(first[0], first[1][0].strip())[0]


class _Row(msgspec.Struct, frozen=True):
    line: int
    begin: float
    aware: bool | None  # None: seconds; False: a date without offset
    value: float
    instances: float


class _Table:
    def __init__(self, path: Path, column: Unit | None, measured_on: float | None) -> None:
        self.path, self.asked, self.measured_on = path, column, measured_on
        self.names: list[str] = []
        self.index: dict[str, int] = {}  # where each of UNITS stands

    def read(self) -> Series:
        cells = self.cells()
        header = next(cells, None)
        if header is None:
            raise InputError("the file is empty; its first line must name the columns", self.path, 1)
        self.names = [name.strip().lower() for name in header[1]]
        self.names = [SPELLINGS.get(name, name) for name in self.names]
        unit = self.unit(header[0])
        self.index = {name: self.names.index(name, 1) for name in UNITS if name in self.names[1:]}
        rows = [self.row(line, values, unit) for line, values in cells]
        self.check_times(rows, unit)
        return Series(
            unit=unit,
            starts=tuple(row.begin - rows[0].begin for row in rows),
            values=tuple(row.value for row in rows),
            instances=tuple(row.instances for row in rows) if unit == "utilisation" else (),
        )

    def cells(self) -> Iterator[tuple[int, list[str]]]:
        """Each line that is not blank with its number, split; quoted cells do not go over several lines."""
        number = 0
        for block in lines(self.path):
            for raw in block:
                number += 1
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
                    cells = next(csv.reader([text], strict=True), []) if '"' in text else text.split(",")
                except UnicodeDecodeError:
                    raise InputError("this is no UTF-8 text", self.path, number) from None
                except csv.Error as error:
                    raise InputError(f"this is no CSV: {error}", self.path, number) from None
                if text and (cells[0] or any(cell.strip() for cell in cells)):
                    yield number, cells

    def error(self, line: int, name: str, what: str) -> InputError:
        return InputError(f"column {name}: {what}", self.path, line)

    # ------------------------------------------------------------------------------------------------------------ header

    def unit(self, line: int) -> Unit:
        """Which column is meant."""
        found = [unit for unit in UNITS if unit in self.names[1:]]
        if len(self.names) < 2:
            hint = "; columns are separated by commas" if any(sign in self.names[0] for sign in ";\t") else ""
            raise InputError(f"only one column; after the time comes one of {', '.join(UNITS)}{hint}", self.path, line)
        if repeated := [unit for unit in found if self.names.count(unit) > 1]:
            raise InputError(f"two columns are called {repeated[0]}", self.path, line)
        if self.asked is not None:
            found = [unit for unit in found if unit == self.asked]
        elif "utilisation" in found and "requests" not in found:
            found = ["utilisation"]  # instances are what it was measured on
        if not found:
            wanted = self.asked or "one of " + ", ".join(UNITS)
            raise InputError(f"no column is called {wanted}; there are: {', '.join(self.names)}", self.path, line)
        if len(found) > 1:
            raise InputError(
                f"columns {' and '.join(found)} both tell the load: say which one is meant", self.path, line
            )
        self.check_measured_on(found[0], line)
        return found[0]

    def check_measured_on(self, unit: Unit, line: int) -> None:
        if unit != "utilisation" or "instances" in self.names[1:]:
            return
        if self.measured_on is None:
            raise InputError(
                "utilisation of how many instances? add a column instances, or give the number", self.path, line
            )
        if not 0 < self.measured_on <= INSTANCES_MAX:
            raise InputError(f"utilisation cannot have been measured on {self.measured_on:g} instances")

    # -------------------------------------------------------------------------------------------------------------- rows

    def row(self, line: int, cells: list[str], unit: Unit) -> _Row:
        if len(cells) != len(self.names):
            raise InputError(f"{len(cells)} columns, where the header has {len(self.names)}", self.path, line)
        begin, aware = self.time(line, cells[0].strip())
        instances = 0.0
        if unit == "utilisation":
            instances = self.measured_on or 0.0
            if "instances" in self.index:
                instances = self.value(line, cells, "instances")
        return _Row(line, begin, aware, self.value(line, cells, unit), instances)

    def value(self, line: int, cells: list[str], name: Unit) -> float:
        text = cells[self.index[name]].strip()
        try:
            value = float(text)
        except ValueError:
            raise self.error(line, name, f"{text!r} is not a number" if text else "is empty") from None
        if not 0 <= value <= LIMITS[name]:  # not a number is neither
            hint = "; write 0.85 for 85 %" if name == "utilisation" and value > 1 else ""
            raise self.error(line, name, f"{text} is not within 0 to {LIMITS[name]:g}{hint}")
        return value

    def time(self, line: int, text: str) -> tuple[float, bool | None]:
        if text[4:5] == "-":
            return self.date(line, text)
        try:
            seconds = float(text)
        except ValueError:
            return self.date(line, text)
        if not math.isfinite(seconds):
            raise self.error(line, self.names[0], f"{text!r} is no time")
        return seconds, None

    def date(self, line: int, text: str) -> tuple[float, bool | None]:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            what = f"{text!r} is neither seconds nor a date like 2026-07-01 13:05" if text else "is empty"
            raise self.error(line, self.names[0], what) from None
        return (at - (EPOCH if at.tzinfo else EPOCH_NAIVE)).total_seconds(), at.tzinfo is not None

    # ------------------------------------------------------------------------------------------------------------- times

    def check_times(self, rows: list[_Row], unit: Unit) -> None:
        if not rows:
            raise InputError("there is no row below the header", self.path, 2)
        if len(rows) == 1 and unit != "instances":
            raise InputError("one row alone does not tell how long its interval is", self.path, rows[0].line)
        usual_s = rows[1].begin - rows[0].begin if len(rows) > 1 else 0.0
        for before, row in pairwise(rows):
            if row.aware != before.aware:
                raise self.error(
                    row.line, self.names[0], "written in another way than the row above (seconds, date, offset)"
                )
            step_s = row.begin - before.begin
            if step_s <= 0:
                how = "the same time as" if step_s == 0 else f"{-step_s:g} s before"
                hint = (
                    "; clocks that were set back need an offset: 2026-10-25T02:00+01:00" if row.aware is False else ""
                )
                raise self.error(row.line, self.names[0], f"{how} the row above; times must rise{hint}")
            if unit != "instances" and abs(step_s - usual_s) > CLOCK:
                what = f"{step_s:g} s after the row above, where the first two are {usual_s:g} s apart"
                raise self.error(row.line, self.names[0], f"{what}; is a row missing?")


# --------------------------------------------------------------------------------------------------------- what it comes to


def demand(series: Series, peak: int = 0, *, threshold: float | Fraction = THRESHOLD) -> tuple[tuple[float, int], ...]:
    """Instances asked for from each time on; only where they change.  `peak`: instances for the most requests; `threshold`: the
    utilisation that instances are to have."""
    if series.unit == "instances":
        wanted = [math.ceil(value) for value in series.values]
    elif series.unit == "requests":
        wanted = _of_requests(series.values, peak)
    else:
        limit = _exact(threshold)
        if not 0 < limit <= 1:
            raise InputError(f"the threshold of utilisation must be above 0 and at most 1, not {threshold}")
        pairs = zip(series.values, series.instances, strict=True)
        wanted = [max(1, math.ceil(_exact(value) * _exact(on) / limit)) for value, on in pairs]
    return _changes(series.starts, wanted)


def load(series: Series, capacity: float = 0.0) -> tuple[tuple[float, float], ...]:
    """Instances that the work keeps busy from each time on; only where they change.  `capacity`: requests a second that one
    instance serves.  Raises InputError for a table of instances: how busy they were it does not tell."""
    if series.unit == "instances":
        raise InputError("a column of instances is a demand, not a load; a load needs requests or utilisation")
    if series.unit == "utilisation":
        busy = [value * on for value, on in zip(series.values, series.instances, strict=True)]
    else:
        if not 0 < capacity < math.inf:
            raise InputError(f"the requests a second that one instance serves must be above 0, not {capacity:g}")
        rows = zip(series.values, series.starts, series.ends(), strict=True)
        busy = [value / (end - start) / capacity for value, start, end in rows]
    return _changes(series.starts, busy)


def _of_requests(values: tuple[float, ...], peak: int) -> list[int]:
    if peak < 1:
        raise InputError(f"the instances that the most requests need must be at least 1, not {peak}")
    most = max(values, default=0.0)
    if most == 0:
        return [1] * len(values)
    if all(value % 1 == 0 for value in values):
        return [max(1, -(-peak * int(value) // int(most))) for value in values]
    return [max(1, math.ceil(peak * _exact(value) / _exact(most))) for value in values]


def _exact(value: float | Fraction) -> Fraction:
    """The number that a person wrote: 0.56 is 56/100, not the nearest float."""
    return value if isinstance(value, Fraction) else Fraction(repr(value))


def _changes(starts: tuple[float, ...], levels: Sequence[Level]) -> tuple[tuple[float, Level], ...]:
    """Each level with its begin, without those that equal the one before."""
    kept = [i for i, level in enumerate(levels) if i == 0 or level != levels[i - 1]]
    return tuple((starts[i], levels[i]) for i in kept)
