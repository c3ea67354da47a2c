"""Jobs of several nodes start together or not at all, and booting has a budget of its own."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.scheduler.core.batch.faults import FAULTS_MAX
from services.scheduler.core.batch.launches import WAIT_FIRST_S
from services.scheduler.core.state.limits import START_PATIENCE
from services.scheduler.lookahead.why import why
from tests.support.scheduling import able, closed, cluster, core, placed, running
from tests.support.world import World

BOOT_S = 60.0


def gang(world: World, nodes: int = 2, **fields: float | str) -> str:
    job = world.submit(nodes=nodes, cores=4, **fields)
    world.settle()
    return job


def test_a_gang_is_placed_as_a_whole_or_waits() -> None:
    world = cluster(3, held=1)
    job = gang(world, 3)
    assert world.states() == {job: "pending"}
    world.grant("hpc", "h2")
    assert placed(world) == {}
    world.grant("hpc", "h3")
    assert placed(world) == {job: ("h1", "h2", "h3")}


def test_a_node_that_is_gone_before_the_others_are_up_ends_the_attempt_as_a_whole() -> None:
    world = cluster(3)
    job = gang(world, 3)
    world.start_vms(job)
    world.end_vm(job, rank=1)
    assert closed(world) == {job: (Disposal.REQUEUE, because.EndedVm)}
    assert not world.custody.live(job, 1)  # so X4 ends the other two
    assert world.voids == []


def test_the_guests_of_all_nodes_have_the_same_budget_from_the_start_of_the_last_machine() -> None:
    world = cluster(2)
    job = gang(world, retries=0)
    first, second = (f.VmAllocated(unit=job, attempt=1, rank=rank, vm=rank, host=f"h{rank + 1}") for rank in range(2))
    world.write("executor", first, f.VmStarted(unit=job, attempt=1, rank=0))
    world.now += 3 * BOOT_S  # OpenNebula is slow with the second one: that is no boot yet
    assert closed(world) == {}
    world.write("executor", second, f.VmStarted(unit=job, attempt=1, rank=1))
    world.now += BOOT_S - 1
    assert closed(world) == {}
    world.now += 1
    assert closed(world) == {job: (Disposal.REQUEUE, because.BootTimeout)}


def test_booting_is_no_run_time() -> None:
    world = cluster(2)
    job = gang(world, walltime_s=10.0)
    world.now += 30
    world.start_vms(job)
    world.now += BOOT_S - 1
    assert closed(world) == {}
    world.begin(job)
    world.now += 9
    assert closed(world) == {}
    world.now += 1
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


@pytest.mark.parametrize("how", ["boot", "ended"])
def test_what_did_not_come_up_is_tried_elsewhere_where_there_are_equal_hosts(how: str) -> None:
    world = cluster(5)
    job = gang(world)
    assert world.unit(job).hosts == ("h1", "h2")
    world.start_vms(job)
    if how == "boot":
        world.now += BOOT_S
    else:
        world.end_vm(job)
    world.settle()
    assert (world.unit(job).attempt, world.unit(job).hosts) == (2, ("h3", "h4"))
    world.start_vms(job)
    world.now += BOOT_S
    world.advance(WAIT_FIRST_S)
    assert world.unit(job).hosts == ("h5", "h1")  # a new one first, then where it failed longest ago


def test_with_no_other_host_it_is_tried_on_the_same_ones() -> None:
    world = cluster(2)
    job = gang(world)
    world.start_vms(job)
    world.end_vm(job)
    world.settle()
    assert (world.unit(job).attempt, world.unit(job).hosts) == (2, ("h1", "h2"))


def test_faults_of_machines_that_ran_have_a_budget_and_spend_no_retry() -> None:
    world = cluster(4)
    job = gang(world, retries=1)
    for _ in range(FAULTS_MAX):
        world.start_vms(job)
        world.begin(job)
        world.end_vm(job)
        world.settle()
    assert (world.unit(job).attempt, world.unit(job).failures) == (FAULTS_MAX + 1, 0)
    assert type(why(core(world), job, world.now)[0]) is because.Starting
    world.start_vms(job)
    world.begin(job)
    world.end_vm(job)
    assert closed(world) == {job: (Disposal.KILL, because.EndedVm)}


def test_who_goes_on_with_saved_machines_has_time_for_saving_beside() -> None:
    world = able(1, on_reclaim="suspend", save_s=100.0)
    job = running(world, after_s=5)
    world.quota("hpc", 0)
    world.decide(world.seats["scheduler.hpc"])
    world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why=f.SUSPENDED))
    world.write("executor", f.HostCleared(host="h1"))
    world.grant("hpc", "h1")
    world.settle()
    assert world.unit(job).resumes
    world.now += START_PATIENCE * BOOT_S + 199
    assert closed(world) == {}
    world.now += 1
    assert closed(world) == {job: (Disposal.REQUEUE, because.BootTimeout)}
