"""What the executor tells Prometheus: its calls, how long they took, and the VMs by state."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.executor.core import ExecutorCore
from services.executor.endpoint import Endpoint
from services.executor.outcomes import Failure

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class ExecutorMetrics(Collector):
    """`in_flight`: calls on their way now, polls included."""

    def __init__(
        self, registry: CollectorRegistry, core: ExecutorCore, endpoint: Endpoint, in_flight: Callable[[], int]
    ) -> None:
        self._core, self._endpoint, self._in_flight = core, endpoint, in_flight
        self._calls = Counter(
            "phoenix_opennebula_calls", "Calls to OpenNebula", ["method", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "phoenix_opennebula_call_seconds", "Duration of one call", ["method"], registry=registry, buckets=_SECONDS
        )
        self._endings = Histogram(
            "phoenix_vm_termination_seconds",
            "From the first terminate of a VM until an answer of OpenNebula that lacks it: the hypervisor's part of a reclaim",
            registry=registry,
            buckets=_SECONDS,
        )
        self._events = Counter(
            "phoenix_opennebula_events",
            "Events of OpenNebula: of a VM or host, foreign (not ours), malformed; missed: a change of which none told",
            ["kind"],
            registry=registry,
        )
        self.events_trusted = False
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

    def _waiting(self) -> int:
        return sum(map(len, self._core.custody.index.parked.values()))

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        fleet, ledger = self._core.fleet, self._core.ledger
        phases = Tally(track.phase.value if track.phase else "unseen" for track in fleet.tracks.values())
        states = GaugeMetricFamily("phoenix_vms", "Open VMs by what OpenNebula said of them last", labels=["state"])
        for phase in sorted(phases):
            states.add_metric([phase], phases[phase])
        yield states
        failed = CounterMetricFamily(
            "phoenix_opennebula_failures", "Calls that failed, by what went wrong", labels=["kind"]
        )
        for kind in Failure:
            failed.add_metric([kind.value], self._endpoint.counts[kind])
        yield failed
        for name, text, value in (
            ("phoenix_vms_wanted", "Ranks of live attempts that have no VM yet", len(ledger.wants)),
            ("phoenix_vms_waiting", "VMs that have completed a job and wait for another one", self._waiting()),
            ("phoenix_vms_doomed", "Open VMs that must end", len(ledger.state.doomed)),
            ("phoenix_vms_strays", "VMs of ours that the journal does not know", len(fleet.strays)),
            ("phoenix_opennebula_calls_in_flight", "Calls in flight, polls included", self._in_flight()),
            (
                "phoenix_opennebula_down_since_seconds",
                "Since when OpenNebula gives no answer that is one (UTC); 0: it does",
                self._endpoint.down_since,
            ),
            ("phoenix_opennebula_hindered", "Kinds of refusal that all VMs meet now", len(self._endpoint.hindered())),
            ("phoenix_opennebula_events_trusted", "1 while polling relies on the event stream", self.events_trusted),
            ("phoenix_hosts_ignored", "Hosts whose names cannot be used", len(self._core.desk.ignored)),
        ):
            yield GaugeMetricFamily(name, text, value=float(value))
