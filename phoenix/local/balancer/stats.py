"""What the balancer counts, for `/_balancer/status` (JSON) and `/_balancer/metrics` (Prometheus)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, generate_latest

from phoenix.balance.utilisation import Reading
from phoenix.local.balancer.line import Line
from phoenix.local.balancer.pool import Instance, Pool
from services.runtime.families import Table

# From an idle instance's answer (a millisecond) to a request that sat out a scale-up.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

TABLE: Final = Table("embedded load balancer")
SERVED: Final = TABLE.counter("phoenix_balancer_served_total", "Requests answered by an instance")
FAILED: Final = TABLE.counter("phoenix_balancer_failed_total", "Requests that an instance failed to answer (502, 504)")
REFUSED: Final = TABLE.counter(
    "phoenix_balancer_refused_total", "Requests for which no instance had a free slot in time (503)"
)
GONE: Final = TABLE.counter("phoenix_balancer_gone_total", "Requests whose client disconnected before the answer")
RETRIED: Final = TABLE.counter("phoenix_balancer_retried_total", "Requests sent to a second instance")
SIGNALS: Final = TABLE.counter("phoenix_balancer_signals_total", "Utilisation signals published")
REPORTS: Final = TABLE.counter(
    "phoenix_balancer_reports_total", "Instances reported as drained, not ready or ready again"
)
QUEUED: Final = TABLE.gauge("phoenix_balancer_queued", "Requests that wait for an instance")
INSTANCES: Final = TABLE.gauge("phoenix_balancer_instances", "Instances in service")
LATENCY: Final = TABLE.histogram("phoenix_balancer_latency_seconds", "From request to answer", BUCKETS_S)
UTILISATION: Final = TABLE.gauge("phoenix_balancer_utilisation_ratio", "Of the instances; 1: all are busy")


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests that came in; those that were answered, and the seconds that these took together; errors of ours,
    and those of them that no instance had room for."""

    came: int
    answered: int
    seconds: float
    errors: int
    refused: int

    def since(self, before: Flow) -> Flow:
        return Flow(
            came=self.came - before.came,
            answered=self.answered - before.answered,
            seconds=self.seconds - before.seconds,
            errors=self.errors - before.errors,
            refused=self.refused - before.refused,
        )


class Stats:
    """Counters of one balancer."""

    def __init__(self, pool: Pool, line: Line) -> None:
        self._pool = pool
        self._line = line
        self.registry = CollectorRegistry()
        self.served, self.failed = SERVED.live(self.registry), FAILED.live(self.registry)
        self.refused, self.retried = REFUSED.live(self.registry), RETRIED.live(self.registry)
        self.gone = GONE.live(self.registry)
        self.signals, self.reports = SIGNALS.live(self.registry), REPORTS.live(self.registry)
        self.queued, self.in_service = QUEUED.live(self.registry), INSTANCES.live(self.registry)
        self.in_service.set_function(lambda: len(pool.in_service()))
        self.latency, self.utilisation = LATENCY.live(self.registry), UTILISATION.live(self.registry)
        self.reading: Reading | None = None
        self._came = self._answered = 0
        self._seconds = 0.0

    def measured(self, reading: Reading | None) -> None:
        self.reading = reading
        self.utilisation.set(reading.utilisation if reading else 0.0)

    def came(self) -> None:
        """A request has come in.  It is counted at once: those that wait for an answer are what an overload consists of."""
        self._came += 1

    def answered(self, seconds: float) -> None:
        """A request has had its answer, whatever it was."""
        self.latency.observe(seconds)
        self._answered += 1
        self._seconds += seconds

    def flow(self) -> Flow:
        """Since the process began."""
        refused = _value(self.refused)
        return Flow(self._came, self._answered, self._seconds, _value(self.failed) + refused, refused)

    def metrics(self) -> bytes:
        self.queued.set(len(self._line))
        return generate_latest(self.registry)

    def status(self) -> dict[str, Any]:
        """For people and tests; the histogram is cumulative, as Prometheus has it."""
        return {
            "served": _value(self.served),
            "failed": _value(self.failed),
            "refused": _value(self.refused),
            "retried": _value(self.retried),
            "signals": _value(self.signals),
            "reports": _value(self.reports),
            "gone": _value(self.gone),
            "queued": len(self._line),
            "utilisation": self.reading.utilisation if self.reading else None,
            "instances": [_shown(instance) for instance in self._pool.all()],
            "latency": self._histogram(),
        }

    def _histogram(self) -> dict[str, Any]:
        buckets: dict[str, int] = {}
        other: dict[str, float] = {"count": 0.0, "sum_s": 0.0}
        for sample in next(iter(self.latency.collect())).samples:
            if sample.name.endswith("_bucket"):
                buckets[sample.labels["le"]] = int(sample.value)
            elif sample.name.endswith("_count"):
                other["count"] = sample.value
            elif sample.name.endswith("_sum"):
                other["sum_s"] = sample.value
        return {**other, "buckets_s": buckets}


def _value(counter: Counter) -> int:
    return int(next(s.value for s in next(iter(counter.collect())).samples if s.name.endswith("_total")))


def _shown(instance: Instance) -> dict[str, Any]:
    return {
        "unit": instance.unit,
        "attempt": instance.attempt,
        "address": instance.address,
        "state": instance.state,
        "open_requests": instance.open_requests,
        "served": instance.served,
        "failed": instance.failed,
    }
