"""Suspending victims: the batch core's part of it, where the cloud says that it can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy
from schemas.facts import Disposal
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.text import sentence
from services.runtime.config.checks import check_cloud
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.shape import Place, Shape
from services.scheduler.lookahead.why import why
from tests.support.scheduling import able, closed, core, placed, running
from tests.support.world import World, batch, cloud

VICTIMS = "smallest-shortest-spared"


def closing(world: World) -> f.AttemptClosed:
    found = [fact for fact in core(world).decide(world.now) if isinstance(fact, f.AttemptClosed)]
    assert len(found) == 1
    return found[0]


def back(world: World, *, grant: bool = True) -> list[str]:
    """The hosts that were given back are clear, and granted again."""
    drained = list(world.custody.index.by_state["draining"])
    for vm in [vm for vm in world.custody.state.vms.values() if vm.host in drained]:
        world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=f.SUSPENDED))
    for host in drained:
        world.write("executor", f.HostCleared(host=host))
    if grant:
        world.grant("hpc", *drained)
    return drained


@pytest.mark.parametrize(("wish", "more"), [("suspend", {}), ("migrate", {"asked": "migrate", "instead": "suspend"})])
def test_who_wishes_it_is_suspended_where_that_can_be_done(wish: Any, more: dict[str, Any]) -> None:
    world = able(1)
    job = running(world, on_reclaim=wish, after_s=7)
    world.quota("hpc", 0)
    fact = closing(world)
    assert fact.disposal is Disposal.SUSPEND
    assert fact.why == because.Reclaimed(hosts=1, running_s=7.0, victims=VICTIMS, **more)
    world.settle()
    assert (world.unit(job).state, world.unit(job).suspended) == ("pending", True)


def test_where_it_cannot_be_done_the_job_is_requeued_and_told_so() -> None:
    world = World(cloud(batch("hpc", on_reclaim="suspend")))
    names = world.hosts(1)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    running(world, after_s=7)
    world.quota("hpc", 0)
    fact = closing(world)
    assert fact.disposal is Disposal.REQUEUE
    assert because.fields(fact.why) == {
        "hosts": 1,
        "running_s": 7.0,
        "victims": VICTIMS,
        "asked": "suspend",
        "instead": "requeue",
    }


def test_who_has_not_begun_has_nothing_to_save() -> None:
    world = able(1, on_reclaim="suspend")
    job = world.submit(cores=4)
    world.settle()
    world.quota("hpc", 0)
    assert closed(world) == {job: (Disposal.REQUEUE, because.Reclaimed)}


@pytest.mark.parametrize("how", ["seized", "lost"])
def test_whose_host_was_taken_cannot_be_saved_any_more(how: str) -> None:
    world = able(1, on_reclaim="suspend")
    job = running(world, after_s=7)
    if how == "lost":
        world.lose("h1")
    else:
        world.seats["scheduler.hpc"].paused = True
        world.quota("hpc", 0)
        world.write("provisioner", f.HostSeized(host="h1", dept="hpc"))
        world.seats["scheduler.hpc"].paused = False
    world.settle()
    assert (world.unit(job).state, world.unit(job).suspended) == ("pending", False)


def test_a_suspended_job_keeps_its_place_and_at_the_end_a_requeued_one_does_not() -> None:
    world = able(2, requeue_place="end")
    saved = running(world, on_reclaim="suspend", after_s=1)
    requeued = running(world, on_reclaim="requeue", after_s=1)
    waiting = world.submit(cores=4)
    world.quota("hpc", 0)
    world.settle()
    assert [place.unit for place in core(world).view.jobs.queue.in_order()] == [saved, waiting, requeued]


def test_the_walltime_goes_on_where_it_stopped() -> None:
    world = able(1, on_reclaim="suspend")
    job = running(world, walltime_s=100.0, after_s=60)
    world.quota("hpc", 0)
    world.settle()
    world.now += 500  # waiting is free
    back(world)
    assert core(world).view.jobs.length_s(job) == 40
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += 39
    assert because.fields(why(core(world), job, world.now)[0])["seconds"] == 99
    assert closed(world) == {}
    world.now += 1
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


def test_who_is_suspended_twice_has_used_both_times_and_begins_anew_with_none() -> None:
    world = able(1, on_reclaim="suspend")
    job = running(world, walltime_s=100.0, after_s=10)
    for ran_s in (20, 0):  # the second time its guests have not begun, and yet nothing is lost
        world.quota("hpc", 0)
        world.settle()
        back(world)
        world.settle()
        world.start_vms(job)
        if ran_s:
            world.begin(job)
            world.now += ran_s
    world.quota("hpc", 0)
    world.settle()
    assert world.unit(job).suspended
    assert core(world).view.jobs.used_s(job) == 30
    reason = why(core(world), job, world.now)[-1]
    assert because.fields(reason) == {"unit": job, "preempted": 3, "failed": 0, "saved_s": 30}
    back(world)
    world.settle()
    world.lose("h1")
    world.settle()
    assert core(world).view.jobs.length_s(job) == 100


def test_suspensions_are_no_requeues() -> None:
    world = able(1, on_reclaim="suspend", requeues_max=0)
    job = running(world, after_s=1)
    world.quota("hpc", 0)
    world.settle()
    assert world.unit(job).state == "pending"


def test_least_work_lost_takes_who_can_be_saved() -> None:
    world = able(2, victims="least-work-lost")
    saved = running(world, on_reclaim="suspend", after_s=100)
    running(world, on_reclaim="requeue", after_s=1)
    world.quota("hpc", 1)
    assert closed(world) == {saved: (Disposal.SUSPEND, because.Reclaimed)}


def test_suspended_ones_of_several_lanes_are_in_the_order_of_now() -> None:
    queue = Queue(lambda _: 1.0)
    for number, cores in ((1, 1), (2, 2), (3, 1)):
        queue.add(Place(0, number, str(number)), Shape(1, Size(cores, 1), False), 0)
        queue.suspended[str(number)] = ("h1",)
    queue.rank_again(lambda places: [-place.entered for place in places])
    queue.add(Place(-9, 4, "4"), Shape(1, Size(1, 1), False), 0)  # puts one of the lanes in order
    assert [place.unit for place in queue.suspended_in_order()] == ["3", "2", "1"]


def test_backfill_counts_on_what_is_left_of_a_suspended_jobs_time() -> None:
    world = able(2, order="easy")
    job = running(world, walltime_s=100.0, on_reclaim="suspend", after_s=60)
    world.quota("hpc", 0)
    world.settle()
    first, second = back(world, grant=False)
    world.submit(nodes=2, cores=4, priority=5, held=True)
    world.submit(cores=4, walltime_s=50.0, priority=9)
    other, wide = "3", "2"
    world.grant("hpc", first)
    world.settle()
    world.write("admission", f.JobResumed(job=wide, user="ann"))
    world.grant("hpc", second)
    assert list(placed(world)) == [job]  # its 40 s end before the 50 s are over; 100 s would not
    assert (world.unit(other).state, world.unit(wide).state) == ("open", "pending")


def test_a_configuration_may_ask_for_what_the_cloud_can_do() -> None:
    config = cloud(batch("hpc", on_reclaim="suspend"))
    assert [problem.key for problem in check_cloud(config)] == ["department.batch.on_reclaim"]
    assert check_cloud(msgspec.structs.replace(config, capabilities=ALL)) == []
    assert BatchPolicy().on_reclaim == "requeue"


@pytest.mark.parametrize("when", ["before it is placed again", "after"])
def test_a_suspension_that_failed_is_a_requeue_and_spends_no_retry(when: str) -> None:
    hosts = 2 if when == "after" else 1
    world = able(hosts, on_reclaim="suspend")
    job = running(world, walltime_s=100.0, retries=1, after_s=30)
    world.drain("h1")
    world.settle()
    if when == "after":
        assert (world.unit(job).state, world.unit(job).resumes) == ("open", True)
    world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    again = core(world).state.again[job]
    if when == "after":
        assert closed(world) == {job: (Disposal.REQUEUE, because.NotSaved)}
        world.settle()
    assert world.voids == []
    assert (again.requeues, again.faults, again.used_s) == (1, 0, 0.0)
    assert core(world).view.jobs.length_s(job) == 100  # it has all of its time again
    assert world.unit(job).failures == 0
    assert not world.unit(job).resumes


@pytest.mark.parametrize("place", ["keep", "end"])
def test_what_could_not_be_saved_waits_in_its_place_and_is_told_so(place: str) -> None:
    world = able(1, on_reclaim="suspend", requeue_place=place)
    job = running(world, after_s=30)
    world.quota("hpc", 0)
    world.settle()
    other = world.submit(cores=4)
    assert [place.unit for place in core(world).view.jobs.queue.in_order()] == [job, other]
    world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    in_order = [each.unit for each in core(world).view.jobs.queue.in_order()]
    assert in_order == ([job, other] if place == "keep" else [other, job])
    reason = why(core(world), job, world.now)[-1]
    assert (type(reason), because.fields(reason)["preempted"]) == (because.NotSaved, 1)
    assert "what it had saved was lost" in sentence(reason)


def test_who_can_never_be_saved_is_killed_in_the_end() -> None:
    world = able(1, on_reclaim="suspend", requeues_max=1)
    job = running(world, after_s=30)
    ends = []
    for _ in range(3):
        world.quota("hpc", 0)
        world.settle()
        ends.append(world.unit(job).final or world.unit(job).state)
        if world.unit(job).state == "final":
            break
        attempt = world.unit(job).attempt
        world.write("executor", f.VmEnded(unit=job, attempt=attempt, rank=0, why="it could not be saved"))
        back(world)
        world.settle()
        world.start_vms(job)
        world.begin(job)
        world.now += 30
    assert ends == ["pending", "pending", "killed"]


def test_a_move_that_failed_is_told_as_one_preemption() -> None:
    world = able(2, on_reclaim="suspend")
    job = running(world, after_s=30)
    world.drain("h1")
    world.settle()
    world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    world.settle()
    again = core(world).state.again[job]
    assert (again.requeues, again.suspends) == (1, 0)
