"""Declarations of metrics: once, for the collector, for docs/reference/metrics.md, and for the tests that bound them.

Theory of operation
  Each program has one `Table` of its families: name, type, labels, and a sentence.  A collector makes a family of a declaration
  and adds samples (`family`), or yields one number (`of`); what is counted where it happens is an instrument (`live`).  So the
  document can be written without a cloud, and matches a scrape.

Rules
  1. Names: `phoenix_`, what it is, its base unit (`_seconds`, `_bytes`, `_ratio`, `_cores`); counters end in `_total`, points
     in time in `_timestamp_seconds`.
  2. A label's values are listed, or are names that the configuration bounds (`Names`).  Never a job, a host, a text; a user
     only where a caller must learn of it.
  3. The sentence names what is counted, and what 0 or 1 mean where that is not plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

import prometheus_client
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter began: one unused series more for each


class Names(StrEnum):
    """What bounds the values of a label that are names."""

    DEPARTMENTS = "departments of the configuration"
    OWNERS = "departments of the configuration; empty: none"
    USERS = "users of the configuration"
    REASONS = "codes of schemas/reasons.py, of which few close an attempt"
    PLUGINS = "policies of plug-ins that are installed there"


@dataclass(frozen=True, slots=True)
class Label:
    """`values`: all that there can be, or what bounds them."""

    name: str
    values: tuple[str, ...] | Names

    @classmethod
    def of(cls, name: str, values: Iterable[str]) -> Label:
        return cls(name, tuple(dict.fromkeys(str(value) for value in values)))


DEPARTMENT: Final = Label("department", Names.DEPARTMENTS)
OWNER: Final = Label("department", Names.OWNERS)


@dataclass(frozen=True, slots=True)
class _Family:
    """`name`: as Prometheus shows it, of a histogram without `_bucket`."""

    kind: ClassVar[str]
    name: str
    text: str
    labels: tuple[Label, ...] = ()

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]


@dataclass(frozen=True, slots=True)
class Gauge(_Family):
    kind: ClassVar[str] = "gauge"

    def family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.text, labels=self.label_names)

    def of(self, value: float) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.text, value=float(value))

    def live(self, registry: CollectorRegistry) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(self.name, self.text, self.label_names, registry=registry)


@dataclass(frozen=True, slots=True)
class Counter(_Family):
    kind: ClassVar[str] = "counter"

    def family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.text, labels=self.label_names)

    def of(self, value: float) -> CounterMetricFamily:
        return CounterMetricFamily(self.name, self.text, value=float(value))

    def live(self, registry: CollectorRegistry | None) -> prometheus_client.Counter:
        return prometheus_client.Counter(self.name, self.text, self.label_names, registry=registry)


@dataclass(frozen=True, slots=True)
class Histogram(_Family):
    """`bounds`: upper bounds of its buckets, but the last one, which has none."""

    kind: ClassVar[str] = "histogram"
    bounds: tuple[float, ...] = ()

    def family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self.name, self.text, labels=self.label_names)

    def live(self, registry: CollectorRegistry) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            self.name, self.text, self.label_names, registry=registry, buckets=self.bounds
        )


@dataclass(frozen=True, slots=True)
class Info(_Family):
    """Always 1: its labels say something."""

    kind: ClassVar[str] = "info"

    def family(self) -> InfoMetricFamily:
        return InfoMetricFamily(self.name.removesuffix("_info"), self.text)


Family: TypeAlias = Gauge | Counter | Histogram | Info


@dataclass(slots=True)
class Table:
    """All families of one program.  `process`: who exports them, for people."""

    process: str
    families: list[Family] = field(default_factory=list)

    def gauge(self, name: str, text: str, *labels: Label) -> Gauge:
        found = Gauge(name, text, labels)
        self.families.append(found)
        return found

    def counter(self, name: str, text: str, *labels: Label) -> Counter:
        found = Counter(name, text, labels)
        self.families.append(found)
        return found

    def histogram(self, name: str, text: str, bounds: Sequence[float], *labels: Label) -> Histogram:
        found = Histogram(name, text, labels, tuple(bounds))
        self.families.append(found)
        return found

    def info(self, name: str, text: str, *labels: Label) -> Info:
        found = Info(name, text, labels)
        self.families.append(found)
        return found
