"""Counters that grow by the clock never fall, also when what ends them is of an earlier moment than the last scrape."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from schemas import facts as f
from services.monitor.metrics.collect import ReadModel
from tests.unit.test_custody_rules import Step, closed, granted, host, job, placed
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk

RUNS: list[Step] = [*granted(), job(), placed(), BEGAN]
GRANTED: Step = ("provisioner", f.HostGranted(host="h1", dept="web"))
LOST: Step = ("executor", f.HostLost(host="h1", reason="x"))


def wanted(instances: int) -> Step:
    return ("scheduler.web", f.DemandChanged(dept="web", hosts=0, instances=instances))


@pytest.mark.parametrize(
    ("name", "department", "begins", "ends"),
    [
        ("used_core_seconds", "hpc", RUNS, closed()),
        ("held_host_seconds", "hpc", RUNS, LOST),
        ("lent_host_seconds", "hpc", host("h1"), LOST),
        ("borrowed_host_seconds", "web", [*host("h1"), GRANTED], LOST),
        ("web_shortfall_instance_seconds", "web", [wanted(2)], wanted(0)),
    ],
)
def test_a_counter_does_not_fall_when_what_it_counts_ends(
    name: str, department: str, begins: list[Step], ends: Step
) -> None:
    desk = Desk().play(ADOPTED, *begins)
    now = desk.custody.state.at + 3600.0  # the clock by which it is told is ahead of the journal's, by far
    registry = CollectorRegistry()
    registry.register(ReadModel(desk.core, desk.views, clock=lambda: now))

    def told() -> float:
        value = registry.get_sample_value(f"phoenix_{name}_total", {"department": department})
        assert value is not None
        return value

    assert told() > 3000.0
    now += 100.0
    running = told()
    assert running > 3100.0
    desk.play(ends)
    assert told() == running
    now += 1000.0
    assert told() == running, "it has ended"
