"""Service levels as limits on metrics: `"hpc.mean_wait_s" = "<= 1h"`.

What it decides: whether a run keeps a level.  The names are those of `metrics` (`docs/reference/simulator-metrics.md`), found
by the name of the department; nothing is measured here.

Rules
  1. `<department>.<metric>`; the department `total` is all batch departments together, `cloud` the whole.
  2. Of a distribution the statistic comes first: `mean_wait_s`, `p95_turnaround_s`, `max_bounded_slowdown`.
  3. A metric that has no value (no job completed) keeps no level.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from phoenix.cli.units import parse_time_s
from phoenix.simulate.metrics import TOTAL, BatchMetrics, Distribution, HeldMetrics, Metrics, WebMetrics
from services.runtime.config.form import suggestion

CLOUD: Final = "cloud"
STATISTICS: Final = tuple(name for name in Distribution.__struct_fields__ if name != "count")
_SPREAD: Final = ("turnaround_s", "wait_s", "bounded_slowdown")
_CLOUD_METRICS: Final = ("held_utilisation", "hosts_moved", "hosts_moved_per_hour", "window_s")
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_LIMIT: Final = re.compile(r"\s*(<=|>=|<|>)\s*(\S+)\s*\Z")
RIGHT: Final = 'should be a limit: "<= 3600", ">= 0.8", or of a time "<= 1h"'


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One service level."""

    department: str
    metric: str
    compare: str  # a key of `_COMPARE`
    bound: float
    word: str = ""  # the bound as it stands in the file

    @property
    def asked(self) -> str:
        """As the person wrote it: `hpc.p95_wait_s <= 2h`."""
        return f"{self.name} {self.compare} {self.word or f'{self.bound:g}'}"

    @property
    def name(self) -> str:
        return f"{self.department}.{self.metric}"

    def __str__(self) -> str:
        return f"{self.name} {self.compare} {self.bound:g}"

    def holds(self, metrics: Metrics) -> bool:
        """Rule 3."""
        return self.holds_of(value_of(metrics, self.department, self.metric))

    def holds_of(self, value: float | None) -> bool:
        """The same of the metric's value."""
        return value is not None and _COMPARE[self.compare](value, self.bound)


def _numbers(cls: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(cls):
        if field.name == "department":
            continue
        if field.name in _SPREAD:
            yield from (f"{statistic}_{field.name}" for statistic in STATISTICS)
        else:
            yield field.name


_HELD: Final = tuple(_numbers(HeldMetrics))
_OF_KIND: Final[dict[str, tuple[str, ...]]] = {
    "batch": (*_numbers(BatchMetrics), *_HELD),
    "web": (*_numbers(WebMetrics), *_HELD),
}


def known(kinds: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Metrics that can be limited, by department; `kinds`: name to `batch` or `web`."""
    return {
        **{name: _OF_KIND[kind] for name, kind in kinds.items()},
        TOTAL: tuple(_numbers(BatchMetrics)),
        CLOUD: _CLOUD_METRICS,
    }


def unknown(name: str, known: Mapping[str, Sequence[str]]) -> str | None:
    """What is wrong with a metric's name, as a clause; None if there is such a metric.  `known`: of `known`."""
    department, _, metric = name.partition(".")
    if department not in known:
        return f"should be DEPARTMENT.METRIC{suggestion(department, known) or '; known here: ' + ', '.join(known)}"
    if metric not in known[department]:
        hint = suggestion(metric, known[department]) or f"; known: {', '.join(known[department])}"
        return f"there is no such metric{hint}"
    return None


def parse(name: str, text: object) -> Limit | None:
    """A limit from its name and its text, both as in the file; None if the text is none (`RIGHT` says what would be)."""
    department, _, metric = name.partition(".")
    found = _LIMIT.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        bound = float(found[2])
    except ValueError:
        if not metric.endswith("_s"):
            return None
        try:
            bound = parse_time_s(found[2])
        except ValueError:
            return None
    if not math.isfinite(bound):
        return None
    return Limit(department=department, metric=metric, compare=found[1], bound=bound, word=found[2])


def value_of(metrics: Metrics, department: str, metric: str) -> float | None:
    """The value in these metrics; None if there is none."""
    if department == CLOUD:
        return float(getattr(metrics, metric))
    places: list[Any] = [metrics.total] if department == TOTAL else [*metrics.batch, *metrics.web, *metrics.held]
    for place in places:
        if place.department != department:
            continue
        statistic, _, spread = metric.partition("_")
        if spread in _SPREAD and statistic in STATISTICS and hasattr(place, spread):
            return getattr(getattr(place, spread), statistic)  # type: ignore[no-any-return]
        if hasattr(place, metric):
            value = getattr(place, metric)
            return None if value is None else float(value)
    return 0.0 if metric in _HELD else None  # a department that held nothing has no row
