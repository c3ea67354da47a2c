"""The agent's metrics: HAProxy's slots by state, commands sent to it, signals and reports."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from phoenix.haproxy.reconciler import Command, Plan
from phoenix.haproxy.slots import Reading, Slot
from schemas.signals import SIGNALS
from services.runtime.families import Label, Table

STATES = ("free", "serving", "down", "draining")
WORDS = ("drained", "unready", "ready")

TABLE: Final = Table("agent of HAProxy")
UP: Final = TABLE.gauge("phoenix_haproxy_up", "1 if HAProxy answers on its socket")
INSTANCES: Final = TABLE.gauge("phoenix_haproxy_instances", "Instances that the department has, draining ones included")
WAITING: Final = TABLE.gauge("phoenix_haproxy_waiting", "Instances that have no slot because all are taken")
UNCHECKED: Final = TABLE.gauge("phoenix_haproxy_unchecked", "Slots without health checks, which get nothing")
UNUSABLE: Final = TABLE.gauge("phoenix_haproxy_unusable", "Instances whose address or health path HAProxy cannot use")
AUDIT_AGE: Final = TABLE.gauge("phoenix_haproxy_audit_age_seconds", "Time since admission last listed the instances")
UTILISATION: Final = TABLE.gauge("phoenix_haproxy_utilisation_ratio", "Of the instances; 1: all are busy")
SLOTS: Final = TABLE.gauge("phoenix_haproxy_slots", "Slots by state", Label.of("state", STATES))
SESSIONS: Final = TABLE.gauge("phoenix_haproxy_sessions", "Requests open")
QUEUE: Final = TABLE.gauge("phoenix_haproxy_queue", "Requests that wait for an instance")
COMMANDS: Final = TABLE.counter(
    "phoenix_haproxy_commands_total",
    "Commands sent to HAProxy, by kind and result",
    Label.of("kind", (command.__name__ for command in get_args(Command))),
    Label.of("outcome", ("done", "refused", "lost")),
)
SIGNALS_SENT: Final = TABLE.counter("phoenix_haproxy_signals_total", "Signals published", Label.of("kind", SIGNALS))
REPORTS: Final = TABLE.counter(
    "phoenix_haproxy_reports_total", "Reports on instances sent to admission", Label.of("kind", WORDS)
)
LOOKS_FAILED: Final = TABLE.counter("phoenix_haproxy_looks_failed_total", "Reads that HAProxy did not answer")
PROCESSES: Final = TABLE.counter("phoenix_haproxy_processes_total", "HAProxy processes seen")


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
    """Families are made on a scrape."""

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
    for family, value in (
        (UP, sight.reading is not None),
        (INSTANCES, sight.wanted),
        (WAITING, len(sight.plan.waiting)),
        (UNCHECKED, len(sight.plan.unchecked)),
        (UNUSABLE, sight.unusable),
        (AUDIT_AGE, age),
    ):
        yield family.of(value)
    if sight.utilisation is not None:
        yield UTILISATION.of(sight.utilisation)


def _of_slots(reading: Reading) -> Iterator[Metric]:
    tally = Tally(_state(slot) for slot in reading.slots)
    slots = SLOTS.family()
    for state in STATES:
        slots.add_metric([state], tally[state])
    yield slots
    counters = reading.counters
    yield SESSIONS.of(sum(slot.sessions for slot in reading.slots))
    queue = counters.queued + sum(slot.queued for slot in reading.slots)
    yield QUEUE.of(queue)


def _state(slot: Slot) -> str:
    if slot.ordered == "ready":
        return "serving" if slot.is_up else "down"
    return "free" if slot.ordered == "maint" else "draining"


def _counters(counts: Counts) -> Iterator[Metric]:
    commands = COMMANDS.family()
    for (kind, outcome), count in sorted(counts.commands.items()):
        commands.add_metric([kind, outcome], count)
    yield commands
    for declared, tally in ((SIGNALS_SENT, counts.signals), (REPORTS, counts.reports)):
        family = declared.family()
        for kind, count in sorted(tally.items()):
            family.add_metric([kind], count)
        yield family
    yield LOOKS_FAILED.of(counts.looks_failed)
    yield PROCESSES.of(counts.processes)
