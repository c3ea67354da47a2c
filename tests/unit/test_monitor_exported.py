"""What Prometheus is told of claims, reclaims, moves, instances and work is what the read model knows: each number by hand."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from schemas import facts as f
from schemas.facts import Disposal, Lease
from services.monitor.core.monitor import MonitorCore
from services.monitor.metrics.collect import ReadModel
from services.monitor.views.views import Views
from tests.unit.test_custody_rules import Step, granted, host, job, placed
from tests.unit.test_monitor_core import ADOPTED, Desk
from tests.unit.test_usage import Office, running


def told(core: MonitorCore, name: str, now: float, department: str = "hpc", **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(ReadModel(core, Views(core), clock=lambda: now))
    labels = labels if "from" in labels or "reason" in labels else {"department": department, **labels}
    return registry.get_sample_value(f"phoenix_{name}", labels)


def demand(hosts: int) -> Step:
    return ("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=hosts))


def quota(hosts: int) -> Step:
    return ("provisioner", f.QuotaChanged(dept="hpc", hosts=hosts, by=0.0))


def test_a_claim_is_open_since_its_demand_and_lacks_hosts() -> None:
    desk = Desk().play(ADOPTED, *host("h1"), demand(2))
    at = desk.custody.state.at
    assert told(desk.core, "claim_open_seconds", at + 7, "web") == 7
    assert (told(desk.core, "claims_open", at, "web"), told(desk.core, "claim_hosts", at, "web")) == (1, 2)
    desk.play(demand(0))
    assert told(desk.core, "claim_open_seconds", at + 7, "web") == 0


def test_a_reclaim_counts_who_is_held_and_who_is_on_the_way_and_is_as_old_as_the_first() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), *granted("h2"), quota(1))
    asked = desk.custody.state.at
    desk.play(("scheduler.hpc", f.HostReleased(host="h2")), quota(0))
    assert told(desk.core, "reclaim_hosts", asked) == 2
    assert told(desk.core, "reclaim_open_seconds", asked + 9) == 9
    assert [told(desk.core, "hosts_taken_back_total", asked, how=how) for how in ("noticed", "seized")] == [1, 0]
    desk.play(("provisioner", f.HostSeized(host="h1", dept="hpc")))
    assert [told(desk.core, "hosts_taken_back_total", asked, how=how) for how in ("noticed", "seized")] == [1, 1]
    desk.play(("executor", f.HostCleared(host="h1")), ("executor", f.HostCleared(host="h2")))
    assert (told(desk.core, "reclaim_hosts", asked + 9), told(desk.core, "reclaim_open_seconds", asked + 9)) == (0, 0)


def test_moves_from_and_to_departments_that_are_configured_no_more_are_not_shown() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"))
    desk.core.state.tallies.moves["gone"] = {"hpc": 3}
    desk.core.state.tallies.moves[""]["gone"] = 2
    moves = (("", "hpc"), ("gone", "hpc"), ("", "gone"))
    found = [told(desk.core, "host_moves_total", 9.0, **{"from": a, "to": b}) for a, b in moves]
    assert found == [1, None, None]


def test_an_instance_is_held_when_it_is_placed_runs_when_it_has_begun_and_is_neither_when_its_host_is_lost() -> None:
    desk = Desk().play(ADOPTED, *granted("h1", dept="web"))
    at = desk.custody.state.at

    def shown() -> tuple[float | None, float | None]:
        return told(desk.core, "web_instances_held", at, "web"), told(desk.core, "web_instances_running", at, "web")

    desk.play(("scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1)))
    assert shown() == (1, 0)
    desk.play(("admission", f.AttemptBegan(unit="web.1", attempt=1, addresses=("x:1",))))
    assert shown() == (1, 1)
    desk.play(("executor", f.HostLost(host="h1", reason="x")))
    assert shown() == (0, 0)


def test_an_instance_that_is_not_ready_does_not_serve_and_the_department_is_short_of_it() -> None:
    desk = Desk().play(ADOPTED, *granted("h1", dept="web"))
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1)))
    desk.play(("scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1)))
    desk.play(("admission", f.AttemptBegan(unit="web.1", attempt=1, addresses=("x:1",))))
    names = ("web_instances_serving", "web_instances_not_ready", "web_shortfall_seconds")

    def shown(later_s: float = 0.0) -> list[float | None]:
        return [told(desk.core, name, desk.custody.state.at + later_s, "web") for name in names]

    assert shown(7.0) == [1, 0, 0]
    word = {"unit": "web.1", "attempt": 1}
    desk.play(("admission", f.InstanceReported(**word, state="unready", by="guest", why="/healthz answered HTTP 500")))
    desk.play(("admission", f.InstanceReported(**word, state="unready", user="balancer", why="HTTP 500")))
    since = desk.custody.state.at - desk.core.state.levels.short["web"].short_at  # the guest's word
    assert shown(5.0) == [0, 1, since + 5.0]
    desk.play(("admission", f.InstanceReported(**word, state="ready", user="balancer")))
    assert shown()[:2] == [0, 1]
    desk.play(("admission", f.InstanceReported(**word, state="ready", by="guest")))
    assert shown(7.0) == [1, 0, 0]
    desk.play(("admission", f.InstanceReported(**word, state="unready", by="guest")))
    desk.play(("executor", f.HostLost(host="h1", reason="x")))
    assert (desk.core.state.levels.unready, shown()[:2]) == ({}, [0, 0])


def test_a_quarantine_that_has_passed_is_none() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"))
    desk.play(("executor", f.HostQuarantined(host="h1", reason="disabled", until=1000.0)))
    assert told(desk.core, "hosts_quarantined", 999.0, reason="disabled") == 1
    assert told(desk.core, "hosts_quarantined", 1000.0, reason="disabled") == 0


def test_a_lease_waits_from_its_time_slot_on() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), job(lease=Lease(kind="advance", start_at=8.0)))
    while desk.custody.state.at < 19.0:
        desk.play(quota(1))
    desk.play(placed())
    assert told(desk.core, "queue_wait_seconds_sum", 20.0) == desk.custody.state.at - 8.0


@pytest.mark.parametrize("late", [False, True])
def test_used_is_good_bad_and_open_and_what_a_late_success_saves_stays_lost_as_a_counter(late: bool) -> None:
    office = Office()
    unit = running(office)
    core, now = office.world.seats["monitor"].core, office.world.now
    assert isinstance(core, MonitorCore)
    assert told(core, "open_core_seconds", now) == 40
    office.close(unit, Disposal.REQUEUE)
    if late:
        office.world.report(unit)
    else:
        office.place(unit, "h1")
    assert told(core, "lost_core_seconds_total", now) == 40
    assert told(core, "goodput_core_seconds_total", now) == (40 if late else 0)
    assert told(core, "badput_core_seconds_total", now, cause="preempted") == (0 if late else 40)
    assert told(core, "open_core_seconds", now) == 0
    assert told(core, "used_core_seconds_total", now) == 40
