"""What the meter tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.scheduler.meter import Meter


class Counts(Collector):
    """Signals taken and dropped, and how old the last ones are."""

    def __init__(self, meter: Meter, now: Callable[[], float]) -> None:
        self.meter, self.now = meter, now

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> list[Any]:
        gate, dept, now = self.meter.gate, self.meter.department, self.now()
        label = ["department", "signal"]
        taken = CounterMetricFamily("phoenix_signals_taken", "Signals that counted, by name", labels=label)
        for name, count in sorted(gate.taken.items()):
            taken.add_metric([dept, name], count)
        dropped = CounterMetricFamily(
            "phoenix_signals_dropped", "Signals that did not, by name and reason", labels=[*label, "reason"]
        )
        for (name, reason), count in sorted(gate.dropped.items()):
            dropped.add_metric([dept, name, str(reason)], count)
        age = GaugeMetricFamily(
            "phoenix_signal_age_seconds", "Since the end of what the last signal measured, by name", labels=label
        )
        for name, last in sorted(self.meter.last.items()):
            age.add_metric([dept, name], max(0.0, now - last.at))
        return [taken, dropped, age]
