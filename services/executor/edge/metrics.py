"""The executor's metrics: its calls, how long they took, and the VMs by state."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.executor.core.call_errors import Failure
from services.executor.core.calls import Outcome, Phase
from services.executor.core.executor import ExecutorCore
from services.executor.edge.circuit_breaker import Endpoint
from services.executor.edge.drift import KINDS, Disagreements
from services.executor.opennebula.client_pool import METHODS
from services.runtime.families import OWNER, Label, Table

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
UNSEEN: Final = "unseen"  # OpenNebula has not shown it yet
POLLS: Final = ("host.info", "vm.info", "vmpool.info", "vmpool.infoset", "hostpool.info", "hostpool.monitoring")
_METHOD: Final = Label.of("method", (*METHODS.values(), *POLLS))

TABLE: Final = Table("executor")
CALLS: Final = TABLE.counter(
    "phoenix_opennebula_calls_total",
    "Calls to OpenNebula; failed: a poll",
    _METHOD,
    Label.of("outcome", (*Outcome, "failed")),
)
CALL_S: Final = TABLE.histogram("phoenix_opennebula_call_seconds", "Duration of one call", _SECONDS, _METHOD)
FAILURES: Final = TABLE.counter(
    "phoenix_opennebula_failures_total", "Calls that failed, by kind of failure", Label.of("kind", Failure)
)
IN_FLIGHT: Final = TABLE.gauge("phoenix_opennebula_calls_in_flight", "Calls in flight, polls included")
DOWN_SINCE: Final = TABLE.gauge(
    "phoenix_opennebula_down_since_timestamp_seconds",
    "Time since which OpenNebula has given no valid answer; 0: it answers",
)
PAUSED_SINCE: Final = TABLE.gauge(
    "phoenix_starts_paused_since_timestamp_seconds",
    "Since when starts of VMs fail on most hosts and are paused; 0: they are not",
)
HINDERED: Final = TABLE.gauge("phoenix_opennebula_hindered", "Kinds of refusal that all VMs meet now")
EVENTS: Final = TABLE.counter(
    "phoenix_opennebula_events_total",
    "Events of OpenNebula: of a VM or host, foreign (not ours), malformed; missed: a change that no event reported",
    Label.of("kind", ("vm", "host", "foreign", "malformed", "missed")),
)
TRUSTED: Final = TABLE.gauge("phoenix_opennebula_events_trusted", "1 while polling relies on the event stream")
DISAGREE: Final = TABLE.gauge(
    "phoenix_opennebula_disagreements",
    "Where OpenNebula and the journal differ; stray: a VM of ours that the journal does not know, missing: a VM that the "
    "journal has open and OpenNebula does not have, elsewhere: it is on another host, host_missing: a host that it has no "
    "more, hidden: a VM that belongs to another owner now, locked: one that is to end and that a person has locked",
    Label.of("kind", KINDS),
)
DISAGREE_S: Final = TABLE.gauge(
    "phoenix_opennebula_disagreement_seconds",
    "Time since this leader first saw the oldest of them; 0: there is none",
    Label.of("kind", KINDS),
)
VMS: Final = TABLE.gauge(
    "phoenix_vms", "Open VMs by the state that OpenNebula last reported", Label.of("state", (*Phase, UNSEEN))
)
VMS_WANTED: Final = TABLE.gauge("phoenix_vms_wanted", "Ranks of live attempts that have no VM yet")
VMS_WAITING: Final = TABLE.gauge("phoenix_vms_waiting", "VMs that have completed a job and wait for another one")
VMS_DOOMED: Final = TABLE.gauge("phoenix_vms_doomed", "Open VMs that must end")
TERMINATION_S: Final = TABLE.histogram(
    "phoenix_vm_termination_seconds",
    "From the first terminate of a VM until an answer of OpenNebula that lacks it: the hypervisor's part of a reclaim",
    _SECONDS,
)
HOSTS_IGNORED: Final = TABLE.gauge("phoenix_hosts_ignored", "Hosts of OpenNebula whose names are not valid")
CORES_BUSY: Final = TABLE.gauge(
    "phoenix_cores_busy",
    "Cores of hosts that are really busy, by OpenNebula's monitoring of hosts, regardless of the cause; by the host's holder",
    OWNER,
)
MEMORY_BUSY: Final = TABLE.gauge("phoenix_memory_busy_bytes", "Memory of hosts that is really in use, likewise", OWNER)


class ExecutorMetrics(Collector):
    """`in_flight`: calls on their way now, polls included."""

    def __init__(
        self, registry: CollectorRegistry, core: ExecutorCore, endpoint: Endpoint, in_flight: Callable[[], int]
    ) -> None:
        self._core, self._endpoint, self._in_flight = core, endpoint, in_flight
        self._calls, self._seconds = CALLS.live(registry), CALL_S.live(registry)
        self._endings, self._events = TERMINATION_S.live(registry), EVENTS.live(registry)
        self.events_trusted = False
        self._disagreements = Disagreements(core)
        self._terminating: dict[str, float] = {}  # VM -> when its first terminate was sent
        registry.register(self)

    def called(self, method: str, outcome: str, seconds: float) -> None:
        self._calls.labels(method, outcome).inc()
        self._seconds.labels(method).observe(seconds)

    def heard(self, kind: str, count: int = 1) -> None:
        self._events.labels(kind).inc(count)

    def terminating(self, key: str, at: float) -> None:
        """A terminate of VM `key` is sent; `at`: monotonic seconds."""
        self._terminating.setdefault(key, at)

    def gone(self, key: str, at: float) -> None:
        """OpenNebula has this VM no more."""
        sent = self._terminating.pop(key, None)
        if sent is not None:
            self._endings.observe(max(0.0, at - sent))

    def looked(self) -> None:
        """A whole pool has been observed."""
        self._disagreements.look(time.monotonic())

    def _waiting(self) -> int:
        return sum(map(len, self._core.custody.index.parked.values()))

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        vm_reconciler, ledger = self._core.vm_reconciler, self._core.ledger
        phases = Tally(
            observed.phase.value if observed.phase else UNSEEN for observed in vm_reconciler.observed_vms.values()
        )
        states, failed = VMS.family(), FAILURES.family()
        for phase in sorted(phases):
            states.add_metric([phase], phases[phase])
        for kind in Failure:
            failed.add_metric([kind.value], self._endpoint.counts[kind])
        yield from (states, failed)
        yield from self._differences()
        yield from self._busy()
        for family, value in (
            (VMS_WANTED, len(ledger.wants)),
            (VMS_WAITING, self._waiting()),
            (VMS_DOOMED, len(ledger.state.doomed)),
            (IN_FLIGHT, self._in_flight()),
            (DOWN_SINCE, self._endpoint.down_since),
            (PAUSED_SINCE, ledger.state.paused.since if ledger.state.paused is not None else 0.0),
            (HINDERED, len(self._endpoint.hindered())),
            (TRUSTED, self.events_trusted),
            (HOSTS_IGNORED, len(self._core.host_reconciler.ignored)),
        ):
            yield family.of(value)

    def _differences(self) -> Iterator[Metric]:
        counts, ages = DISAGREE.family(), DISAGREE_S.family()
        for kind, (count, age_s) in self._disagreements.told(time.monotonic()).items():
            counts.add_metric([kind], count)
            ages.add_metric([kind], age_s)
        yield from (counts, ages)

    def _busy(self) -> Iterator[Metric]:
        """By holder, of hosts of which there is a sample."""
        cores: Tally[str] = Tally()
        memory: Tally[str] = Tally()
        known = self._core.host_reconciler.health.known
        for name, host in self._core.custody.state.hosts.items():
            seen = known.get(name)
            if host.state in ("free", "held") and seen is not None and seen.used_cpu is not None:
                holder = (host.dept or "") if host.state == "held" else ""
                cores[holder] += seen.used_cpu
                memory[holder] += seen.used_memory_kb << 10
        busy, used = CORES_BUSY.family(), MEMORY_BUSY.family()
        for holder in sorted(cores):
            busy.add_metric([holder], cores[holder] / 100)
            used.add_metric([holder], memory[holder])
        yield from (busy, used)
