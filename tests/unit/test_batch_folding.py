"""The views of a batch core after each fact: those of a core that has just been loaded, and nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas.config import Balance, Warm
from tests.support.scheduling import able, cluster, core, placed, running
from tests.support.world import batch
from tests.unit.test_batch_views import adopt, at_rest, described, refused


def test_a_host_that_has_rested_is_taken_in_with_the_next_fact_whatever_it_says() -> None:
    for late_s in (0.0, 5.0):
        world = cluster(1)
        world.strict = False
        world.rest("h1", 60.0)
        job = world.submit()
        world.settle()
        world.now += 60.0 + late_s
        world.write("executor", f.HostObserved(host="h1", cpu=0.1, memory=0.1))
        assert core(world).view.room.resting == {}
        assert core(world).check() == []
        assert [*placed(world)] == [job]


def test_a_void_placement_changes_nothing() -> None:
    world = at_rest()
    before = dict(core(world).view.open)
    void = f.UnitPlaced(unit="2", attempt=1, hosts=("h3",), cores=1, memory_mb=256)
    world.write("scheduler.hpc", void)
    assert [fact for fact, _ in world.voids] == [void]
    assert core(world).view.open == before
    assert core(world).check() == []


def test_constraints_are_in_order_whichever_job_came_first() -> None:
    world = cluster(2)
    described(world, "h1", labels={"GPU": "yes", "ARM": "yes"})
    for name in ("gpu=yes", "arm=yes"):
        world.submit(constraint=name, nodes=2)
    world.settle()
    assert core(world).view.room.constraints == world.seats["scheduler.hpc"].twin().core.view.room.constraints
    assert core(world).check() == []


def test_a_new_constraint_is_one_of_the_room_and_the_forecast_is_made_anew() -> None:
    world = cluster(2, order="easy")
    described(world, "h1", labels={"GPU": "yes"})
    core(world).view.foresee()
    world.submit(constraint="gpu=yes", nodes=2)
    assert core(world).view.room.constraints == ("gpu=yes",)
    assert core(world).check() == []


def test_where_jobs_have_constraints_another_departments_host_is_still_no_news() -> None:
    world = at_rest()
    world.submit(nodes=9, constraint="gpu=yes")
    world.settle()
    assert core(world).rests_until_woken()
    world.grant("bio", "h3")
    assert core(world).rests_until_woken()


def test_what_was_observed_of_a_host_says_nothing_once_a_machine_is_moved_there_or_away() -> None:
    world = cluster(3, balance=Balance(enabled=True))
    world.strict = False
    world.write("executor", *[f.HostObserved(host=name, cpu=0.4, memory=0.1) for name in ("h1", "h2", "h3")])
    job = world.submit()
    placed_there = f.UnitPlaced(unit=job, attempt=1, hosts=("h1",), cores=1, memory_mb=256, moved_from=("h2",))
    world.write("scheduler.hpc", placed_there)
    assert core(world).state.used == {"h3": 0.4}


@pytest.mark.parametrize(
    ("policy", "rests"),
    [({}, True), ({"balance": Balance(enabled=True)}, False), ({"order": "easy"}, False)],
    ids=["first-fit", "balanced", "foreseen"],
)
def test_that_an_attempt_has_begun_is_news_where_jobs_move_or_ends_are_foreseen(
    policy: dict[str, Any], rests: bool
) -> None:
    world = cluster(2, **policy)
    world.strict = False
    world.submit()
    world.submit(nodes=2, cores=4)
    world.settle()
    world.start_vms("1")
    world.settle()
    assert core(world).rests_until_woken()
    world.begin("1")
    assert core(world).rests_until_woken() is rests
    assert core(world).check() == []


def test_a_beginning_is_foreseen_from_then_on() -> None:
    world = cluster(2, order="easy")
    world.strict = False
    job = world.submit()
    world.settle()
    world.start_vms(job)
    core(world).view.foresee()
    world.now += 50.0
    world.begin(job)
    assert core(world).view.foresee().endings[0].since == world.now


def test_what_another_departments_machines_do_is_not_remembered() -> None:
    world = at_rest()
    world.write("provisioner", f.QuotaChanged(dept="bio", hosts=1, by=world.now + 1.0))
    world.write("provisioner", f.HostGranted(host="h3", dept="bio"))
    job = world.submit("bio")
    world.write("scheduler.bio", f.UnitPlaced(unit=job, attempt=1, hosts=("h3",), cores=1, memory_mb=256))
    assert world.unit(job).live
    world.write("executor", f.VmRefused(unit=job, attempt=1, rank=0, failure="quota", why="no"))
    assert core(world).state.refused == {}
    world.start_vms(job)
    world.end_vm(job)
    assert core(world).state.refused == {}


def test_of_an_attempt_whose_host_is_lost_no_refusal_is_told() -> None:
    world = cluster(1)
    world.strict = False
    world.submit()
    world.settle()
    world.lose("h1")
    assert refused(world) is None


def test_limits_are_those_of_the_new_configuration() -> None:
    world = cluster(1, boot_timeout_s=1e6)
    world.submit()
    world.settle()
    adopt(world, batch("hpc", boot_timeout_s=10.0))
    assert core(world).view.limits.next_due() == world.now + 50.0


def test_a_department_with_jobs_that_wait_and_none_that_runs_wants_nothing_once_it_is_closed() -> None:
    world = cluster(1, held=0)
    world.strict = False
    world.submit()
    world.settle()
    assert core(world).rests_until_woken()
    world.write("admission", f.DepartmentClosed(dept="hpc"))
    assert not core(world).rests_until_woken()


def test_a_machine_that_is_gone_when_its_job_has_ended_waits_for_nobody() -> None:
    world = cluster(1, warm=Warm(idle_s=60.0))
    world.strict = False
    job = running(world)
    world.end_vm(job)
    world.report(job)
    assert core(world).state.warm == {}


def test_what_could_not_be_saved_ends_a_rest() -> None:
    world = able(2)
    world.strict = False
    job = running(world, on_reclaim="suspend", after_s=5.0)
    world.quota("hpc", 0)
    world.settle()
    assert world.unit(job).suspended
    assert core(world).rests_until_woken()
    world.end_vm(job, why="it could not be saved")
    assert not core(world).rests_until_woken()
