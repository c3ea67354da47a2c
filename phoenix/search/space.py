"""The space of a search: TOML in, `Space` out, validated as a whole, before anything is simulated.

    [fixed]                                                       what every point has
    hpc.on_reclaim = "suspend"
    [axis]                                                        what is searched
    cluster.hosts = { from = 140, to = 200, step = 10 }
    hpc.order = ["easy", "shortest-first", "multi-factor"]
    hpc.multi_factor.weight_size = { from = -20000, to = 1000, when = { hpc.order = "multi-factor" } }
    hpc.short_s = { choices = [60, 600], when = { hpc.order = "svmsched" } }

What it decides: which points there are.  What names and values mean is decided by the caller (`Legal`); nothing here
knows a policy.

Rules
  1. An axis is a list of choices, or a range: from, to, both of them values, and perhaps a step.  A range whose numbers are
     all whole has whole numbers; `log` draws small numbers as often as large ones, and has no step.
  2. An axis with `when` counts only at points where the axes named there, which stand above it, have one of those values.
     Elsewhere the point does not have it.
  3. A point is a table from axes to values, in the order of the axes.  Its identity (`key`) does not depend on that order.
  4. Every problem is reported at once, each with file, line, key, the value found, and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from phoenix.simulate.vary import flat
from services.runtime.config.file import ConfigError, document_of, text_of
from services.runtime.config.form import Form, Lines, Path_, Problem, suggestion

Point: TypeAlias = dict[str, Any]
Number: TypeAlias = int | float
Legal: TypeAlias = Callable[[str, Any, Mapping[str, Any]], str | None]
"""Of a name, a value, and what is set beside it: what would be right, as a clause; None if it is right."""

AXES_MAX: Final = 64
VALUES_MAX: Final = 10_000  # of one axis; more is a step that was forgotten
POINTS_MAX: Final = 100_000  # of a grid: days of simulating
DEPTH: Final = 6  # of dotted names
SPELLING: Final = (
    "a list of choices, or { from = 1, to = 10, step = 1 }; with conditions { choices = [1, 2], when = … }"
)


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """One name that is searched.  Either `choices`, or a range from `low` to `high` (rule 1)."""

    name: str
    choices: tuple[Any, ...] = ()
    low: Number = 0
    high: Number = 0
    step: Number | None = None
    log: bool = False
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def whole(self) -> bool:
        """True of a range of whole numbers."""
        return not self.choices and all(isinstance(n, int) for n in (self.low, self.high, self.step or 1))

    @property
    def count(self) -> int | None:
        """How many values there are; None: a range without a step."""
        if self.choices:
            return len(self.choices)
        step = self.step or (1 if self.whole and not self.log else None)
        return None if step is None else int((self.high - self.low) / step + 1e-9) + 1

    def values(self) -> Iterator[Any]:
        """All of them, one after the other; of a range without a step both ends."""
        if self.choices or self.count is None:
            return iter(self.choices or (self.low, self.high))
        return (_stepped(self, n) for n in range(self.count))

    def counts_at(self, point: Mapping[str, Any]) -> bool:
        """Rule 2."""
        return all(name in point and point[name] in values for name, values in self.when)


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can be searched."""

    fixed: dict[str, Any]
    axes: tuple[Axis, ...]

    def with_fixed(self, point: Point) -> Point:
        """Everything that is set at a point."""
        return {**self.fixed, **point}


def key(point: Mapping[str, Any]) -> str:
    """Rule 3: JSON with its keys sorted."""
    return msgspec.json.encode(point, order="sorted").decode()


# ----------------------------------------------------------------------------------------------------------------- points


def grid(space: Space) -> Iterator[Point]:
    """Every point, the last axis fastest.  Of a range without a step both ends: `read` with `gridded` refuses those."""
    return _extended({}, space.axes)


def _extended(point: Point, axes: tuple[Axis, ...]) -> Iterator[Point]:
    if not axes:
        yield point
        return
    axis, *rest = axes
    if not axis.counts_at(point):
        yield from _extended(point, tuple(rest))
        return
    for value in axis.values():
        yield from _extended({**point, axis.name: value}, tuple(rest))


def size(space: Space, most: int = POINTS_MAX) -> int | None:
    """How many points there are, counted up to `most` + 1; None: there is a range without a step."""
    if any(axis.count is None for axis in space.axes):
        return None
    return sum(1 for _ in islice(grid(space), most + 1))


def sample(space: Space, random: Random, given: Mapping[str, Any] | None = None) -> Point:
    """One point, each value of each axis as likely as any other, but for those that are given."""
    point: Point = {}
    for axis in space.axes:
        if axis.counts_at(point):
            drawn = _drawn(axis, random)
            point[axis.name] = (given or {}).get(axis.name, drawn)
    return point


def _drawn(axis: Axis, random: Random) -> Any:
    if axis.choices:
        return axis.choices[random.randrange(len(axis.choices))]
    if axis.log:
        found = math.exp(random.uniform(math.log(axis.low), math.log(axis.high)))
        return min(max(round(found), axis.low), axis.high) if axis.whole else found
    if axis.count is not None:
        return _stepped(axis, random.randrange(axis.count))
    return random.uniform(axis.low, axis.high)


def _stepped(axis: Axis, n: int) -> Number:
    found = axis.low + n * (axis.step or 1)
    return found if axis.whole else round(found, 12)  # 0.3, and not 0.1 + 0.1 + 0.1


# ---------------------------------------------------------------------------------------------------------------- the file


class _RangeTable(msgspec.Struct, frozen=True, kw_only=True, rename={"low": "from", "high": "to"}):
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: Any = None
    when: Any = None


_KEYS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(_RangeTable))


def load(path: Path, legal: Legal, *, gridded: bool = False) -> Space:
    """Read and validate a space.  `gridded`: it is for a grid, so every axis has its values, and they make no more than
    POINTS_MAX points.  Raises `ConfigError`, which lists every problem."""
    return loads(text_of(path), legal, path.name, gridded=gridded)


def loads(text: str, legal: Legal, name: str = "space.toml", *, gridded: bool = False) -> Space:
    """Validate the text of a space; `name`: what messages call it."""
    document = document_of(text, name)
    reader = _Reader(legal, gridded)
    space = reader.read(document)
    if reader.form.problems:
        raise ConfigError(reader.form.problems, name, Lines(text))
    return space


class _Reader:
    def __init__(self, legal: Legal, gridded: bool) -> None:
        self.form = Form(Path())
        self.legal, self.gridded = legal, gridded
        self.axes: dict[str, Axis] = {}
        self.whole: dict[str, Axis] = {}  # those that are in order
        self._told: set[tuple[Path_, str]] = set()

    def read(self, document: Mapping[str, Any]) -> Space:
        self.form.unknown_keys(document, ("fixed", "axis"), ())
        fixed = dict(flat(self._table(document, "fixed"), DEPTH))
        for place, (name, value) in enumerate(fixed.items()):
            self._judge(_place("fixed", name), name, value, dict(list(fixed.items())[:place]))
        for name, raw in flat(self._table(document, "axis"), DEPTH, whole=lambda table: not _KEYS.isdisjoint(table)):
            self._read_axis(name, raw, fixed)
        self._judge_axes(fixed)
        axes = tuple(self.axes.values())
        space = Space(fixed=fixed, axes=axes)
        if not document.get("axis"):
            self.form.report(("axis",), f"should have at least one name, and its values: {SPELLING}")
        if len(axes) > AXES_MAX:
            self.form.report(("axis",), f"should be at most {AXES_MAX} axes", len(axes))
        if self.gridded and not self.form.problems and (size(space) or 0) > POINTS_MAX:
            right = f"should be at most {POINTS_MAX:,} points: take larger steps, fewer choices or fewer axes"
            self.form.report(("axis",), right, f"{len(axes)} axes")
        return space

    def _table(self, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        raw = document.get(name, {})
        if isinstance(raw, Mapping):
            return raw
        self.form.report((name,), "should be a table", raw)
        return {}

    def _read_axis(self, name: str, raw: Any, fixed: Mapping[str, Any]) -> None:
        path, before = _place("axis", name), len(self.form.problems)
        if name in fixed:
            self.form.report(path, "should be fixed, or an axis: [fixed] has it as well", raw)
        table = raw if isinstance(raw, Mapping) else {"choices": raw}
        given = self.form.table(_RangeTable, table, path)
        when = self._conditions(path, given.when)
        axis = Axis(name=name, when=when, **self._values(path, table, given))
        self.axes[name] = axis  # also a wrong one: others may name it in a condition
        if len(self.form.problems) == before:
            self.whole[name] = axis

    def _judge_axes(self, fixed: Mapping[str, Any]) -> None:
        """Every value of every axis, beside what makes the axis count, and what counts because of the value."""
        for axis in self.whole.values():
            for value in _extremes(axis):
                beside = {**fixed, **self._beside(axis)}
                point = {**beside, axis.name: value}
                following = [other for other in self.whole.values() if axis.name in dict(other.when)]
                beside |= {other.name: next(other.values()) for other in following if other.counts_at(point)}
                self._judge(_place("axis", axis.name), axis.name, value, beside)

    def _beside(self, axis: Axis) -> Point:
        """What makes the axis count: the first value of each condition, and what makes that one count."""
        found: Point = {}
        for name, values in axis.when:
            found |= {**self._beside(self.axes[name]), name: values[0]}
        return found

    def _judge(self, path: Path_, name: str, value: Any, beside: Mapping[str, Any]) -> None:
        right = self.legal(name, value, beside)
        if right is not None and (path, right) not in self._told:
            self._told.add((path, right))
            self.form.report(path, right, value)

    def _values(self, path: Path_, raw: Mapping[str, Any], given: _RangeTable) -> dict[str, Any]:
        """Fields of `Axis`; of what is wrong none."""
        if given.choices is not None:
            extra = sorted(_KEYS.intersection(raw) - {"choices", "when"})
            if extra:
                self.form.report((*path, extra[0]), "should not be here beside choices", raw[extra[0]])
            return {"choices": self._choices(path, given.choices)}
        missing = [name for name in ("from", "to") if name not in raw]
        if missing:
            self.form.report((*path, missing[0]), f"should be a number: an axis is {SPELLING}")
        if missing or given.low is None or given.high is None:
            return {}
        numbers = {name: raw[word] for name, word in (("low", "from"), ("high", "to"), ("step", "step")) if word in raw}
        return {**numbers, "log": given.log} if self._is_range(path, raw, given) else {}

    def _choices(self, path: Path_, raw: Any) -> tuple[Any, ...]:
        if not isinstance(raw, list) or not raw:
            right = "should be at least one choice" if raw == [] else f"should be {SPELLING}"
            self.form.report(path, right, "[]" if raw == [] else raw)
            return ()
        keys = [key({"": value}) for value in raw]
        twice = [value for n, value in enumerate(raw) if keys[n] in keys[:n]]
        if twice:
            self.form.report(path, "should be different choices: this one is there twice", twice[0])
        if len(raw) > VALUES_MAX:
            self.form.report(path, f"should be at most {VALUES_MAX:,} choices", f"{len(raw):,} choices")
        return tuple(raw)

    def _is_range(self, path: Path_, raw: Mapping[str, Any], given: _RangeTable) -> bool:
        low, high, step = given.low or 0.0, given.high or 0.0, given.step
        right, where = "", "from"
        if not math.isfinite(low) or not math.isfinite(high) or (step is not None and not math.isfinite(step)):
            right = "should be a number, as to and step"
        elif low > high:
            right = f"should be at most to, which is {high:g}: the range is empty"
        elif given.log and low <= 0:
            right = "should be above 0: a range with log is one of powers"
        elif given.log and step is not None:
            right, where = "should not be here beside log; for certain powers list them: [1, 10, 100]", "step"
        elif step is not None and step <= 0:
            right, where = "should be above 0: this one never comes to an end", "step"
        elif step is not None and (high - low) / step >= VALUES_MAX:
            right, where = f"should make at most {VALUES_MAX:,} values: take a larger one", "step"
        elif self.gridded and _endless(given):
            right, where = "should be here: every point of a grid is simulated", "step"
        if not right:
            return True
        self.form.report((*path, where), right, *([raw[where]] if where in raw else []))
        return False

    def _conditions(self, path: Path_, raw: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        if raw is None:
            return ()
        if not isinstance(raw, Mapping) or not raw:
            self.form.report((*path, "when"), 'should be a table: when = { hpc.order = ["easy"] }', raw)
            return ()
        found = []
        for name, values in flat(raw, DEPTH):
            place = (*path, "when", *name.split("."))
            values = values if isinstance(values, list) else [values]
            if name not in self.axes:
                hint = suggestion(name, self.axes) or f"; there are: {', '.join(self.axes) or 'none'}"
                self.form.report(place, f"should be an axis that stands above{hint}", name)
                continue
            found.append((name, tuple(values)))
            self._check_reached(place, self.axes[name], values)
        return tuple(found)

    def _check_reached(self, path: Path_, axis: Axis, values: list[Any]) -> None:
        """A condition that no point can meet is a mistyped one."""
        known = list(islice(axis.values(), VALUES_MAX)) if axis.count is not None else []
        for value in values or [None]:
            if known and value not in known:
                hint = suggestion(str(value), map(str, known)) or f"; there are: {', '.join(map(str, known[:8]))}"
                self.form.report(path, f"should be a value of {axis.name}{hint}", "[]" if value is None else value)


def _place(table: str, name: str) -> Path_:
    return (table, *name.split("."))


def _endless(given: _RangeTable) -> bool:
    """Of a range: has it no step, and needs one?"""
    whole = all(n is not None and n.is_integer() for n in (given.low, given.high))
    return given.step is None and (given.log or not whole)


def _extremes(axis: Axis) -> list[Any]:
    """Values that tell whether all are legal: all choices; both ends of a range, and what lies between two of them."""
    return list(axis.choices) or [*islice(axis.values(), 2), axis.high]


__all__ = [
    "Axis",
    "ConfigError",
    "Legal",
    "Point",
    "Problem",
    "Space",
    "grid",
    "key",
    "load",
    "loads",
    "sample",
    "size",
]
