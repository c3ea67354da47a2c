"""What the agent tells Prometheus: HAProxy's slots by state, what was told to it, signals and reports."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from phoenix.haproxy.reconciler import Plan
from phoenix.haproxy.slots import Reading, Slot

STATES = ("free", "serving", "down", "draining")


@dataclass
class Counts:
    """What the agent has counted since its start."""

    commands: Tally[tuple[str, str]] = field(default_factory=Tally)  # kind, outcome
    looks_failed: int = 0
    processes: int = 0  # of HAProxy, that were seen
    signals: Tally[str] = field(default_factory=Tally)
    reports: Tally[str] = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen last; no reading if HAProxy does not answer.  `audited_at`: monotonic."""

    reading: Reading | None
    plan: Plan
    wanted: int
    unusable: int
    utilisation: float | None
    audited_at: float | None


class AgentMetrics(Collector):
    """Families are made when somebody asks."""

    def __init__(self, counts: Counts, sight: Callable[[], Sight]) -> None:
        self.registry = CollectorRegistry()
        self._counts, self._sight = counts, sight
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        sight = self._sight()
        yield from _gauges(sight)
        if sight.reading is not None:
            yield from _of_slots(sight.reading)
        yield from _counters(self._counts)


def _gauges(sight: Sight) -> Iterator[Metric]:
    age = time.monotonic() - sight.audited_at if sight.audited_at is not None else float("inf")
    for name, text, value in (
        ("phoenix_haproxy_up", "1 if HAProxy answers on its socket", sight.reading is not None),
        ("phoenix_haproxy_instances", "Instances that the department has, draining ones included", sight.wanted),
        ("phoenix_haproxy_waiting", "Instances that have no slot because all are taken", len(sight.plan.waiting)),
        ("phoenix_haproxy_unchecked", "Slots without health checks, which get nothing", len(sight.plan.unchecked)),
        ("phoenix_haproxy_unusable", "Instances whose address is none that a server can have", sight.unusable),
        ("phoenix_haproxy_audit_age_seconds", "Since the door listed the instances last", age),
    ):
        yield GaugeMetricFamily(name, text, value=float(value))
    if sight.utilisation is not None:
        yield GaugeMetricFamily("phoenix_haproxy_utilisation", "Of the instances, 1.0 is all busy", sight.utilisation)


def _of_slots(reading: Reading) -> Iterator[Metric]:
    tally = Tally(_state(slot) for slot in reading.slots)
    slots = GaugeMetricFamily("phoenix_haproxy_slots", "Slots by what they do", labels=["state"])
    for state in STATES:
        slots.add_metric([state], tally[state])
    yield slots
    counters = reading.counters
    yield GaugeMetricFamily("phoenix_haproxy_sessions", "Requests open", sum(slot.sessions for slot in reading.slots))
    queue = counters.queued + sum(slot.queued for slot in reading.slots)
    yield GaugeMetricFamily("phoenix_haproxy_queue", "Requests that wait for an instance", queue)


def _state(slot: Slot) -> str:
    if slot.ordered == "ready":
        return "serving" if slot.is_up else "down"
    return "free" if slot.ordered == "maint" else "draining"


def _counters(counts: Counts) -> Iterator[Metric]:
    commands = CounterMetricFamily("phoenix_haproxy_commands", "Told to HAProxy", labels=["kind", "outcome"])
    for (kind, outcome), count in sorted(counts.commands.items()):
        commands.add_metric([kind, outcome], count)
    yield commands
    for name, text, tally in (
        ("phoenix_haproxy_signals", "Signals published", counts.signals),
        ("phoenix_haproxy_reports", "Words on instances to the door", counts.reports),
    ):
        family = CounterMetricFamily(name, text, labels=["kind"])
        for kind, count in sorted(tally.items()):
            family.add_metric([kind], count)
        yield family
    yield CounterMetricFamily("phoenix_haproxy_looks_failed", "Looks that HAProxy did not answer", counts.looks_failed)
    yield CounterMetricFamily("phoenix_haproxy_processes", "Processes of HAProxy seen", counts.processes)
