"""What schedulers export beside their shell: what the meter took, dropped and counted, and which plug-ins are loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from prometheus_client.registry import Collector

from schemas.signal_drops import Drop
from schemas.signals import SIGNALS
from services.runtime.families import DEPARTMENT, Label, Names, Table
from services.scheduler.meter.meter import Meter

_SIGNAL: Final = Label.of("signal", SIGNALS)

WEB: Final = Table("scheduler of a web department")
TAKEN: Final = WEB.counter("phoenix_signals_taken_total", "Signals that counted, by name", DEPARTMENT, _SIGNAL)
DROPPED: Final = WEB.counter(
    "phoenix_signals_dropped_total",
    "Signals that did not, by name and reason",
    DEPARTMENT,
    _SIGNAL,
    Label.of("reason", Drop),
)
AGE: Final = WEB.gauge(
    "phoenix_signal_age_seconds", "Since the end of what the last signal measured, by name", DEPARTMENT, _SIGNAL
)
_RELEASE: Final = Label.of("release", ("wanted", "other"))
ANSWERS: Final = WEB.counter(
    "phoenix_web_answers_total",
    "Requests that instances answered, by their load balancers' word: of the release that all are to run, and of others",
    DEPARTMENT,
    _RELEASE,
)
ERRORS: Final = WEB.counter(
    "phoenix_web_errors_total", "Those of them that were answered with 5xx, or broken off", DEPARTMENT, _RELEASE
)

EVERY: Final = Table("every scheduler")
PLUGIN: Final = EVERY.info(
    "phoenix_policy_plugin_info",
    "Policies of plug-ins that this process has loaded",
    Label.of("kind", ("order", "victims", "scaling")),
    Label("name", Names.PLUGINS),
    Label("package", Names.PLUGINS),
    Label("version", Names.PLUGINS),
)


class Counts(Collector):
    """Signals taken and dropped, how old the last ones are, and what instances answered."""

    def __init__(self, meter: Meter, now: Callable[[], float]) -> None:
        self.meter, self.now = meter, now

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> list[Any]:
        gate, dept, now = self.meter.gate, self.meter.department, self.now()
        taken, dropped, age = TAKEN.family(), DROPPED.family(), AGE.family()
        for name, count in sorted(gate.taken.items()):
            taken.add_metric([dept, name], count)
        for (name, reason), count in sorted(gate.dropped.items()):
            dropped.add_metric([dept, name, str(reason)], count)
        for name, last in sorted(self.meter.last.items()):
            age.add_metric([dept, name], max(0.0, now - last.at))
        answers, errors = ANSWERS.family(), ERRORS.family()
        for is_wanted, (answered, failed) in self.meter.answers.counted.items():
            of = "wanted" if is_wanted else "other"
            answers.add_metric([dept, of], answered)
            errors.add_metric([dept, of], failed)
        return [taken, dropped, age, answers, errors]
