"""Levels of service: how long claims and reclaims took, why attempts ended, how short web was."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from schemas import facts as f
from schemas import reasons as because
from services.monitor.core.monitor import MonitorCore
from services.monitor.core.service_levels import BOUNDS_S, Shortage, Times
from services.monitor.metrics.collect import ReadModel
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from tests.support.closing import closing
from tests.support.world import World, batch, cloud, web
from tests.unit.test_custody_rules import Step, host
from tests.unit.test_monitor_core import ADOPTED, Desk

HOSTS: list[Step] = [step for name in ("h1", "h2") for step in host(name)]


def demand(hosts: int, instances: int | None = None) -> Step:
    return ("scheduler.web", f.DemandChanged(dept="web", hosts=hosts, instances=instances))


def quota(dept: str, hosts: int) -> Step:
    return ("provisioner", f.QuotaChanged(dept=dept, hosts=hosts, by=0.0))


def granted(host: str, dept: str) -> Step:
    return ("provisioner", f.HostGranted(host=host, dept=dept))


def instance(number: int, host: str) -> list[Step]:
    unit = f"web.{number}"
    return [
        ("scheduler.web", f.UnitPlaced(unit=unit, attempt=1, hosts=(host,), cores=1, memory_mb=1)),
        ("executor", f.VmAllocated(unit=unit, attempt=1, rank=0, vm=number, host=host)),
        ("executor", f.VmStarted(unit=unit, attempt=1, rank=0)),
        ("admission", f.AttemptBegan(unit=unit, attempt=1, addresses=("x:1",))),
    ]


def counts(times: Times) -> dict[str, float]:
    """Only where it grows."""
    found, before = {}, 0.0
    for bound, count in times.cumulated():
        if count > before:
            found[bound], before = count, count
    return found


@pytest.fixture
def desk() -> Desk:
    """Two hosts, held by hpc; each step takes a second."""
    here = Desk().play(ADOPTED, *HOSTS)
    return here.play(quota("hpc", 2), granted("h1", "hpc"), granted("h2", "hpc"))


def test_a_claim_is_timed_from_the_demand_to_the_grant_that_meets_it(desk: Desk) -> None:
    desk.play(demand(1, 1), quota("hpc", 1))
    assert desk.core.state.levels.claims == {}
    desk.play(
        ("scheduler.hpc", f.HostReleased(host="h2")), ("executor", f.HostCleared(host="h2")), granted("h2", "web")
    )
    assert counts(desk.core.state.levels.claims["web"]) == {"5.0": 1}  # four seconds: four steps
    desk.play(demand(2), demand(1))
    assert desk.core.state.levels.claims["web"].sum_s == 4.0 + 1.0, "a claim that is withdrawn is over as well"


def test_a_reclaim_is_timed_from_the_quota_to_the_clear_host(desk: Desk) -> None:
    desk.play(quota("hpc", 1), ("scheduler.hpc", f.HostReleased(host="h2")), ("executor", f.HostCleared(host="h2")))
    found = desk.core.state.levels
    assert counts(found.reclaims["hpc"]) == {"2.0": 1}
    assert found.asked == {}
    assert found.leaving == {}


def test_a_host_that_is_seized_counts_from_the_same_moment(desk: Desk) -> None:
    desk.play(quota("hpc", 1), demand(1), ("provisioner", f.HostSeized(host="h2", dept="hpc")))
    desk.play(("executor", f.HostCleared(host="h2")))
    assert desk.core.state.levels.reclaims["hpc"].sum_s == 3.0


def test_a_host_that_was_given_back_unasked_is_no_reclaim(desk: Desk) -> None:
    desk.play(("scheduler.hpc", f.HostReleased(host="h2")), ("executor", f.HostCleared(host="h2")))
    assert desk.core.state.levels.reclaims == {}


def test_a_host_that_is_lost_on_the_way_is_forgotten(desk: Desk) -> None:
    desk.play(quota("hpc", 1), ("scheduler.hpc", f.HostReleased(host="h2")))
    desk.play(("executor", f.HostLost(host="h2", reason="x")), ("executor", f.HostCleared(host="h2")))
    assert desk.core.state.levels.reclaims == {}


def test_shortfall_counts_instances_that_are_wanted_and_not_in_service() -> None:
    desk = Desk().play(ADOPTED, *HOSTS, quota("web", 2), granted("h1", "web"), granted("h2", "web"))
    desk.play(demand(2, 2))
    begun = desk.custody.state.at
    desk.play(*instance(1, "h1"))  # in service after four seconds: two short until then
    desk.play(*instance(2, "h2"))  # four more seconds: one short
    short = desk.core.state.levels.short["web"]
    assert desk.custody.state.at == begun + 8
    assert short.until(begun + 100) == 2 * 4 + 1 * 4
    drains = f.InstanceDraining(unit="web.1", attempt=1, until=1000.0, reason=because.ScaleDown())
    desk.play(("scheduler.web", drains))
    assert short.until(desk.custody.state.at + 10) == 12 + 10, "who drains does not count"


def test_an_instance_whose_host_is_lost_is_missing_at_once() -> None:
    desk = Desk().play(ADOPTED, *HOSTS, quota("web", 1), granted("h1", "web"), demand(1, 1), *instance(1, "h1"))
    lost = desk.custody.state.at + 1
    before = desk.core.state.levels.short["web"].until(lost)
    desk.play(("executor", f.HostLost(host="h1", reason="x")))
    assert desk.core.state.levels.short["web"].until(lost + 10) == before + 10


def test_a_department_that_is_closed_claims_nothing_and_is_short_of_nothing(desk: Desk) -> None:
    desk.play(quota("hpc", 1), demand(2, 2))
    begun, levels = desk.custody.state.at, desk.core.state.levels
    assert (desk.core.state.open_claims.keys(), desk.core.state.instances) == ({"web"}, {"web": 2})
    desk.play(*closing(desk.core.custody, "web", "hpc"))
    assert (levels.claimed, levels.asked, levels.claims, desk.core.state.open_claims) == ({}, {}, {}, {})
    assert desk.core.state.instances == {}
    assert levels.short["web"].until(begun + 100) == 4.0, "two instances, for two seconds"


def test_why_attempts_ended_is_counted_by_what_became_of_them() -> None:
    desk = Desk().play(ADOPTED, *HOSTS, quota("web", 2), granted("h1", "web"), *instance(1, "h1"))
    closed = f.AttemptClosed(unit="web.1", attempt=1, disposal=f.Disposal.STOPPED, why=because.Drained())
    desk.play(("scheduler.web", closed))
    assert desk.core.state.levels.ended == {"web": {"drained": {"stopped": 1}}}


def test_what_is_folded_survives_a_snapshot(desk: Desk) -> None:
    desk.play(demand(1, 1), quota("hpc", 1))
    before = desk.core.dump()
    desk.core.load(before)
    assert desk.core.dump() == before
    desk.play(
        ("scheduler.hpc", f.HostReleased(host="h2")), ("executor", f.HostCleared(host="h2")), granted("h2", "web")
    )
    assert counts(desk.core.state.levels.claims["web"]) == {"5.0": 1}


def test_prometheus_reads_histograms_that_hold_everything(desk: Desk) -> None:
    desk.play(demand(1, 1), quota("hpc", 1))
    desk.play(
        ("scheduler.hpc", f.HostReleased(host="h2")), ("executor", f.HostCleared(host="h2")), granted("h2", "web")
    )
    registry = CollectorRegistry()
    registry.register(ReadModel(desk.core, desk.views, clock=lambda: desk.custody.state.at))
    text = generate_latest(registry).decode()
    assert 'phoenix_claim_seconds_bucket{department="web",le="2.0"} 0.0' in text
    assert 'phoenix_claim_seconds_bucket{department="web",le="+Inf"} 1.0' in text
    assert 'phoenix_claim_seconds_sum{department="web"} 4.0' in text
    assert 'phoenix_reclaim_seconds_count{department="hpc"} 1.0' in text
    assert 'phoenix_web_shortfall_instance_seconds_total{department="web"}' in text


@pytest.mark.parametrize("seconds", [0.0, *BOUNDS_S, 1e9])
def test_each_time_falls_into_the_first_bucket_that_holds_it(seconds: float) -> None:
    times = Times()
    times.add(seconds)
    first = next(bound for bound, count in times.cumulated() if count)
    assert seconds <= float(first)
    assert all(float(bound) < seconds for bound, count in times.cumulated() if not count)


def test_a_clock_behind_the_journal_takes_nothing_back() -> None:
    assert Shortage(since=10.0, wanted=2, serving=1, seconds=5.0).until(9.0) == 5.0


def test_nobody_is_asked_for_a_cordoned_host_that_keeps_its_jobs() -> None:
    """Not when it is cordoned, nor while web takes another one: PhoenixHostNotReturned does not fire for it."""
    world = World(cloud(batch("hpc"), web("web")))
    world.hosts(2)
    world.seat("provisioner", ProvisionerCore)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.executor()
    monitor = world.seat("monitor", MonitorCore).core
    world.settle()
    job = world.submit(walltime_s=9999.0, exclusive=True)
    world.settle()
    world.begin(job)
    (name,) = world.unit(job).hosts
    world.cordon(name)
    world.advance(600.0)
    assert (monitor.custody.held("hpc"), monitor.state.levels.asked) == (2, {})
    world.write("scheduler.web", f.DemandChanged(dept="web", hosts=2))
    world.advance(600.0)
    assert (monitor.custody.held("hpc"), monitor.custody.held("web")) == (1, 1)
    assert (monitor.state.levels.asked, monitor.state.levels.leaving) == ({}, {})
    assert world.unit(job).live
