"""Prometheus is told what waits, why, and how long."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from schemas import facts as f
from schemas import reasons as because
from services.monitor.metrics import families
from services.monitor.metrics.collect import ReadModel
from tests.unit.test_custody_rules import closed, granted, job, placed
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk


def value(desk: Desk, name: str, now: float | None = None, **labels: str) -> float | None:
    registry = CollectorRegistry()
    at = desk.custody.state.at if now is None else now
    registry.register(ReadModel(desk.core, desk.views, clock=lambda: at))
    return registry.get_sample_value(name, {"department": "hpc", **labels})


def test_a_queue_is_counted_by_reason_and_its_oldest_is_known() -> None:
    desk = Desk().play(ADOPTED, *granted(), job("1"), job("2"), ("admission", f.JobHeld(job="1", user="a")), job("3"))
    at = desk.custody.state.at  # of job 3
    assert value(desk, "phoenix_queue_jobs", reason="queue") == 2
    assert value(desk, "phoenix_queue_jobs", reason="held") == 1
    assert value(desk, "phoenix_queue_oldest_seconds", at + 10, reason="queue") == 12.0
    assert value(desk, "phoenix_queue_oldest_seconds", at + 10, reason="held") == 13.0
    assert value(desk, "phoenix_queue_oldest_seconds", reason="dependency") == 0.0
    assert value(desk, "phoenix_jobs", state="pending") == 2


def test_what_those_ask_for_that_wait_for_hosts_is_added_up_in_each_dimension() -> None:
    names = ("cores_waiting", "memory_waiting_bytes", "gpus_waiting")
    asked = {"nodes": 2, "cores": 3, "memory_mb": 5, "gpus": 4}
    desk = Desk().play(ADOPTED, *granted(), job("1", **asked), job("2", **asked), job("3", cores=1, memory_mb=7))

    def found(department: str = "hpc") -> list[float | None]:
        return [value(desk, f"phoenix_{name}", department=department) for name in names]

    assert found() == [13, 27 << 20, 16]
    desk.play(("admission", f.JobHeld(job="2", user="a")))
    assert found() == [7, 17 << 20, 8], "no host would help who is held"
    desk.play(placed("3", cores=1, memory_mb=7))
    assert found() == [6, 10 << 20, 8]
    desk.play(("admission", f.JobCancelled(job="1", user="a")))
    assert found() == [0, 0, 0]
    assert found("web") == [None, None, None]


def test_who_waits_again_waits_since_its_last_attempt_ended() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)
    assert value(desk, "phoenix_queue_jobs", reason="queue") == 0
    assert value(desk, "phoenix_jobs", state="running") == 1
    desk.play(closed())
    assert value(desk, "phoenix_queue_oldest_seconds", desk.custody.state.at + 5, reason="queue") == 5.0


def test_a_queue_that_has_emptied_is_shown_as_empty() -> None:
    desk = Desk().play(ADOPTED, job())
    assert value(desk, "phoenix_queue_jobs", reason="queue") == 1
    desk.play(("admission", f.JobCancelled(job="1", user="a")))
    assert value(desk, "phoenix_queue_jobs", reason="queue") == 0
    assert value(desk, "phoenix_job_outcomes_total", outcome="cancelled") == 1


@pytest.mark.parametrize("kind", [kind for kind in because.REASONS if kind is not because.Newer])
def test_whoever_waits_is_counted_whatever_its_scheduler_says(kind: because.Kind) -> None:
    desk = Desk().play(ADOPTED, job("1"), job("2"), ("admission", f.JobHeld(job="2", user="a")))
    desk.views.told = lambda _department, _unit: kind()
    since = desk.custody.state.at - 2
    shown = kind().code if kind().code in families.WAITS else "other"
    told = {str(reason): value(desk, "phoenix_queue_jobs", reason=reason) for reason in families.WAITS}
    assert {reason: count for reason, count in told.items() if count} == Counter(["held", shown])
    assert value(desk, "phoenix_queue_oldest_seconds", since + 9, reason=shown) == 9.0


def test_alerts_of_queues_leave_out_whom_no_host_would_help_and_nobody_else() -> None:
    rules = (Path(__file__).parents[2] / "deploy" / "prometheus" / "rules" / "batch.yml").read_text()
    assert re.findall(r'reason!~"([^"]*)"', rules) == ["|".join(families.FOR_ELSE)] * 2
    assert set(families.FOR_HOSTS).isdisjoint(families.FOR_ELSE)
