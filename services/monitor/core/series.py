"""Hosts by holder, and how busy web was, over time: series of bounded length, folded from the journal.

Theory of operation
  A level (hosts of an owner, utilisation of a department) holds from one fact to the next.  Each has a gauge: the level, and
  its integral since the beginning.  A point of a series is the mean of a step, the difference of two integrals: the area below
  a curve is exact at every resolution (of owners: host-seconds), and a short spike is lower in a long step, never gone.
  Steps end at whole multiples of their length, so two folds of one journal have the same points.

Rules
  1. Three resolutions (`STEPS`): an hour of 5 s, a day of minutes, two weeks of 10 minutes.  Older points are forgotten; what
     is older is in the history.
  2. All are whole numbers: thousandths, over milliseconds.
  3. A balancer's report counts until the next one, for `SIGNAL_S` at most: a silent one is not idle.  A step in which
     nothing was reported has no value.
  4. A column is forgotten when nothing is left in it: a department that was removed costs nothing after two weeks.
  5. A read between two facts gets the steps that are over by the clock; the fold is not changed by it.
  6. Series begin with the first host, not with the journal: the first point is the mean of the part of its step that has hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from schemas import facts as f
from services.domain.custody.meta import Meta
from services.monitor.core import service_levels

STEPS: Final = ((5_000, 720), (60_000, 1_440), (600_000, 2_016))  # (milliseconds, points)
SIGNAL_S: Final = 10.0  # as the web scheduler: silence that holds the number of instances (docs/reference/signals.md)
POINTS_MAX: Final = 2_016  # of an answer
SCALE: Final = 1000
MEASURES: Final = ("utilisation", "requests_per_s", "wanted", "serving")  # of a web department
OWNERSHIP: Final = frozenset(  # what changes whose a host is
    {f.HostGranted, f.HostReleased, f.HostSeized, f.HostCleared, f.HostLost, f.HostRemoved, f.ConfigAdopted}
)
_FOREVER: Final = 1 << 62
_HEARD: Final = ("utilisation", "requests_per_s")  # rule 3


class Gauge(msgspec.Struct, array_like=True):
    """`level` counts from `since` to `until`; `area` and `known` are its integral and its time before."""

    level: int
    since: int
    until: int = _FOREVER
    area: int = 0
    known: int = 0

    def at(self, now: int) -> tuple[int, int]:
        """Integral and time for which it was known, until `now`."""
        length = max(0, min(now, self.until) - self.since)
        return self.area + self.level * length, self.known + length

    def turn(self, level: int, now: int, until: int = _FOREVER) -> None:
        self.area, self.known = self.at(now)
        self.level, self.since, self.until = level, now, until


class Tier(msgspec.Struct, kw_only=True):
    """One resolution: columns of equal length, the newest point last; `end` (ms) is where that one ends.  `marks`: of each
    gauge, integral and time at `end`."""

    step: int
    most: int
    end: int = 0
    columns: dict[str, list[int | None]] = {}
    marks: dict[str, tuple[int, int]] = {}
    length: int = 0


class State(msgspec.Struct, kw_only=True):
    gauges: dict[str, Gauge] = {}  # "owner/hpc", "utilisation/web", …
    tiers: list[Tier] = msgspec.field(default_factory=lambda: [Tier(step=step, most=most) for step, most in STEPS])
    began: int | None = None  # rule 6
    due: int = 0  # when the next step of any resolution ends


class Point(NamedTuple):
    """Means of one step that ended at `at` (UTC seconds)."""

    at: float
    values: dict[str, float | None]


class Series:
    def __init__(self, state: State, levels: service_levels.State) -> None:
        self.state, self.levels = state, levels

    def apply(self, fact: f.Fact, meta: Meta, owners: Mapping[str, int]) -> None:
        """After everything else has been folded; of valid facts alone.  `owners`: hosts by owner, as they are now."""
        now = round(meta.at * 1000)
        if now >= self.state.due and (self.state.began is not None or any(owners.values())):  # rule 6
            _close(self.state, now)
        if type(fact) in OWNERSHIP:
            self._owners(owners, now)
        elif isinstance(fact, f.LoadObserved) and fact.end > fact.start:
            until = now + round(SIGNAL_S * 1000)
            for name, value in (("utilisation", fact.utilisation), ("requests_per_s", fact.requests_per_s)):
                if value is not None:
                    self._turn(f"{name}/{fact.dept}", round(value * SCALE), now, until)
        if meta.broken or type(fact) in service_levels.INSTANCES:
            self._instances(now)

    def _owners(self, owners: Mapping[str, int], now: int) -> None:
        for key, gauge in self.state.gauges.items():
            if gauge.level and key.startswith("owner/") and key.removeprefix("owner/") not in owners:
                gauge.turn(0, now)
        for name, count in owners.items():
            self._turn(f"owner/{name}", count * SCALE, now)

    def _instances(self, now: int) -> None:
        for dept, short in self.levels.short.items():
            self._turn(f"wanted/{dept}", short.wanted * SCALE, now)
            self._turn(f"serving/{dept}", short.serving * SCALE, now)

    def _turn(self, key: str, level: int, now: int, until: int = _FOREVER) -> None:
        gauge = self.state.gauges.get(key)
        if gauge is None:
            self.state.gauges[key] = Gauge(level, now, until)
        elif gauge.level != level or until != _FOREVER:
            gauge.turn(level, now, until)

    def check(self) -> list[str]:
        return [
            f"series {key} of {tier.step} ms has {len(column)} points, not {tier.length}"
            for tier in self.state.tiers
            for key, column in tier.columns.items()
            if len(column) != tier.length or tier.length > tier.most
        ]

    # ------------------------------------------------------------------------------------------------------------ asking

    def timeline(self, since: float, points: int, now: float) -> dict[str, Any]:
        """From `since` (UTC seconds) to `now`, in the finest resolution that reaches so far back, at most `points` points."""
        from_, to = round(since * 1000), round(now * 1000)
        chosen = next((i for i, (step, most) in enumerate(STEPS) if from_ >= to - step * most), len(STEPS) - 1)
        tier = self._as_of(chosen, to)
        first = tier.end - tier.step * (tier.length - 1)  # where the oldest point ends
        begin = min(tier.length, max(0, (from_ - first) // tier.step + 1))
        wide = max(1, -(-(tier.length - begin) // max(1, min(points, POINTS_MAX))))
        groups = _groups(first // tier.step - 1, begin, tier.length, wide)
        found = {key: [_mean(column[a:b]) for a, b in groups] for key, column in tier.columns.items()}
        return {
            "step_s": tier.step * wide / 1000,
            "at": [(first + (b - 1) * tier.step) / 1000 for _, b in groups],
            **_named(found, len(groups)),
        }

    def newest(self, now: float) -> Point:
        """The last step of the finest resolution that is over."""
        tier = self._as_of(0, round(now * 1000))
        return Point(tier.end / 1000, {key: _scaled(column[-1]) for key, column in tier.columns.items()})

    def _as_of(self, index: int, now: int) -> Tier:
        """Rule 5."""
        kept = self.state.tiers[index]
        if kept.length and now < kept.end + kept.step:
            return kept
        columns = {key: list(column) for key, column in kept.columns.items()}
        copy = msgspec.structs.replace(kept, columns=columns, marks=dict(kept.marks))
        if self.state.began is not None:
            _advance(copy, self.state, now)
        return copy


def of_point(point: Point, step_s: float) -> dict[str, Any]:
    """As an event of the stream has it: like a timeline of one point."""
    named = _named({key: [value] for key, value in point.values.items()}, 1)
    owners = {name: column[0] for name, column in named["owners"].items()}
    load = {dept: {name: column[0] for name, column in of.items()} for dept, of in named["load"].items()}
    return {"at": point.at, "step_s": step_s, "owners": owners, "load": load}


def _close(state: State, now: int) -> None:
    """Steps that are over by `now` get their points."""
    for tier in state.tiers:
        if state.began is None:
            tier.end = now // tier.step * tier.step
            tier.marks = {key: gauge.at(now) for key, gauge in state.gauges.items()}  # what was before does not count
        _advance(tier, state, now)
    state.began = now if state.began is None else state.began
    state.due = min(tier.end + tier.step for tier in state.tiers)
    _forget(state)


def _forget(state: State) -> None:
    """Rule 4: gauges that have shown nothing for as long as anything is kept."""
    kept, told = {key for tier in state.tiers for key in tier.columns}, state.tiers[-1].end
    for key, gauge in list(state.gauges.items()):
        if key not in kept and gauge.since <= told and (not gauge.level or gauge.until <= told):
            del state.gauges[key]
            for tier in state.tiers:
                tier.marks.pop(key, None)


def _advance(tier: Tier, state: State, now: int) -> None:
    last = now // tier.step * tier.step
    missing = (last - tier.end) // tier.step
    if missing > tier.most:  # nothing was written for longer than is kept: what is older would be forgotten at once
        tier.end = last - tier.step * tier.most
        tier.marks = {key: gauge.at(tier.end) for key, gauge in state.gauges.items()}
    while tier.end < last:
        tier.end += tier.step
        _point(tier, state)
    over = tier.length - tier.most
    if over > 0:
        for column in tier.columns.values():
            del column[:over]
        tier.length = tier.most


def _point(tier: Tier, state: State) -> None:
    for key, gauge in state.gauges.items():
        area, known = gauge.at(tier.end)
        area_before, known_before = tier.marks.get(key, (0, 0))
        tier.marks[key] = (area, known)
        length = known - known_before if _is_heard(key) else min(tier.step, tier.end - (state.began or 0))
        value = round((area - area_before) / length) if length else None
        column = tier.columns.get(key)
        if column is not None:
            column.append(value)
        elif value != _nothing(key):
            tier.columns[key] = [*[_nothing(key)] * tier.length, value]
    tier.length += 1
    for key, column in list(tier.columns.items()):
        nothing = _nothing(key)
        if column[-1] == nothing and all(value == nothing for value in column[-tier.most :]):
            del tier.columns[key]  # rule 4


def _is_heard(key: str) -> bool:
    return key.partition("/")[0] in _HEARD


def _nothing(key: str) -> int | None:
    """What a column has where it has no point: unknown, or none."""
    return None if _is_heard(key) else 0


def _groups(offset: int, begin: int, end: int, wide: int) -> list[tuple[int, int]]:
    """Points [begin, end) in groups of `wide`, cut where their times are whole multiples: a group does not change its points
    as time passes.  `offset`: steps before point 0."""
    cuts = [i for i in range(begin, end) if i == begin or (i + offset) % wide == 0]
    return list(zip(cuts, [*cuts[1:], end], strict=True)) if cuts else []


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _scaled(round(sum(known) / len(known))) if known else None


def _scaled(value: int | None) -> float | None:
    return None if value is None else value / SCALE


def _named(found: Mapping[str, list[float | None]], length: int) -> dict[str, Any]:
    """Columns by owner, and by department and measure."""
    owners: dict[str, list[float | None]] = {}
    load: dict[str, dict[str, list[float | None]]] = {}
    for key in sorted(found):
        measure, _, name = key.partition("/")
        if measure == "owner":
            owners[name] = found[key]
        else:
            of = load.setdefault(name, {one: [None if one in _HEARD else 0.0] * length for one in MEASURES})
            of[measure] = found[key]
    return {"owners": owners, "load": load}
