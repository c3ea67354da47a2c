"""Prometheus is told what hosts there are, who holds them, and how much of them is in use."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from schemas import facts as f
from services.monitor.metrics.collect import ReadModel
from tests.unit.test_custody_rules import granted, host, job, placed
from tests.unit.test_monitor_core import ADOPTED, Desk


def registry(desk: Desk) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(ReadModel(desk.core, desk.views, clock=lambda: desk.custody.state.at))
    return found


def of(desk: Desk, name: str, department: str = "hpc", **labels: str) -> float | None:
    return registry(desk).get_sample_value(f"phoenix_{name}", {"department": department, **labels})


def test_hosts_are_counted_by_state_and_holder_and_what_there_is_none_of_is_0() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), *host("h2"), *host("h3"))
    desk.play(("executor", f.HostLost(host="h3", reason="x")))
    assert of(desk, "hosts", state="held") == 1
    assert of(desk, "hosts", "web", state="held") == 0
    assert [of(desk, "hosts", "", state=state) for state in ("free", "lost", "draining", "absent")] == [1, 1, 0, 0]


def test_what_is_usable_and_allocated_is_that_of_hosts_in_hand() -> None:
    desk = Desk().play(
        ADOPTED, *granted("h1", cores=4, memory_mb=1000), *host("h2"), job(), placed(cores=3, memory_mb=5)
    )
    assert (of(desk, "cores_usable"), of(desk, "cores_usable", "")) == (4, 4)
    assert (of(desk, "cores_allocated"), of(desk, "memory_allocated_bytes")) == (3, 5 << 20)


def test_who_has_a_host_alone_has_all_of_it() -> None:
    desk = Desk().play(ADOPTED, *granted("h1", cores=4, memory_mb=1000), job(), placed(exclusive=True))
    assert (of(desk, "cores_allocated"), of(desk, "memory_allocated_bytes")) == (4, 1000 << 20)


def test_a_host_is_idle_that_could_be_used_and_is_not() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), job())
    assert of(desk, "hosts_idle") == 1
    desk.play(placed())
    assert of(desk, "hosts_idle") == 0
    desk.play(*granted("h2"), ("admission", f.HostCordoned(host="h2", reason="r", user="root")))
    assert of(desk, "hosts_idle") == 0
    assert registry(desk).get_sample_value("phoenix_hosts_cordoned") == 1


def test_hosts_in_quarantine_are_counted_by_reasons_that_are_known() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), *granted("h2"))
    for name, reason in (("h1", "disabled"), ("h2", "of the year 2040")):
        desk.play(("executor", f.HostQuarantined(host=name, reason=reason, until=1e9)))
    found = registry(desk)
    for reason, count in (("disabled", 1), ("other", 1), ("monitored late", 0)):
        assert found.get_sample_value("phoenix_hosts_quarantined", {"reason": reason}) == count
    assert of(desk, "hosts_idle") == 0
