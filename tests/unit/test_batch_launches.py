"""Attempts that ended before they began: no fault of the job's (`services.scheduler.core.batch.launches`)."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.reasons import Reason
from services.admission.core.admission import AdmissionCore
from services.domain.text import sentence, short
from services.monitor.core.monitor import MonitorCore
from services.scheduler.core.batch.launches import FAILURES_MAX, PROVEN_MIN, SLOT_WAIT_MAX_S, WAIT_FIRST_S, WAIT_MAX_S
from services.scheduler.core.batch.state import Again
from services.scheduler.lookahead.why import why
from tests.support.scheduling import closed, cluster, core
from tests.support.world import World

WORDS = "deploy refused: [one.vm.deploy] Cannot get datastore [100]."
ONCE_MORE = 30  # far more often than any budget of requeues or faults


def fail_start(world: World, job: str, words: str = WORDS) -> tuple[str, ...]:
    """OpenNebula starts no VM of the job's attempt, which is placed; returns where."""
    unit = world.unit(job)
    hosts = unit.hosts
    vm = len(world.journal)
    allocated = f.VmAllocated(unit=job, attempt=unit.attempt, rank=0, vm=vm, host=hosts[0])
    world.write("executor", allocated, f.VmEnded(unit=job, attempt=unit.attempt, rank=0, why=words))
    world.settle()
    return hosts


def wait(world: World, job: str) -> float:
    """Until the job is placed again; returns how long that took."""
    began = world.now
    world.advance(core(world).view.jobs.launches.waiting.get(job, world.now) - world.now)
    assert world.unit(job).state == "open"
    return round(world.now - began, 3)


def again(world: World, job: str) -> Again:
    return core(world).state.again[job]


def others_begin(world: World, hosts: int) -> None:
    """A small job begins on each of the first so many hosts."""
    for _ in range(hosts):
        job = world.submit(cores=1)
        world.settle()
        world.start_vms(job)
        world.begin(job)


def test_it_waits_longer_each_time_and_is_never_killed_for_it() -> None:
    world = cluster(4, requeues_max=2)
    job = world.submit()
    world.settle()
    waits = []
    for _ in range(ONCE_MORE):
        fail_start(world, job)
        waits.append(wait(world, job))
    assert waits[:6] == [0.0, WAIT_FIRST_S, 2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == WAIT_MAX_S
    assert (again(world, job).requeues, again(world, job).faults) == (0, 0)
    assert {x.disposal for x in world.facts(f.AttemptClosed)} == {Disposal.REQUEUE}


@pytest.mark.parametrize("how", ["vm", "boot", "host"])
def test_whatever_ended_it_before_it_began_uses_up_no_requeue(how: str) -> None:
    world = cluster(3, requeues_max=0, boot_timeout_s=60)
    job = world.submit()
    world.settle()
    if how == "vm":
        fail_start(world, job)
    elif how == "boot":
        world.start_vms(job)
        world.now += 60
    else:
        world.lose(world.unit(job).hosts[0])
    world.settle()
    assert (world.states()[job], world.unit(job).attempt) == ("open", 2)


def test_each_next_attempt_is_on_another_host_and_then_where_it_failed_longest_ago() -> None:
    world = cluster(4)
    job = world.submit()
    world.settle()
    hosts = []
    for _ in range(6):
        hosts += fail_start(world, job)
        wait(world, job)
    assert hosts == ["h1", "h2", "h3", "h4", "h1", "h2"]


def test_it_keeps_its_place_and_while_it_waits_the_others_go_on() -> None:
    world = cluster(1, cores=1)
    first = world.submit()
    world.settle()
    second, third = world.submit(), world.submit()
    fail_start(world, first)
    assert world.unit(second).state == "open"
    world.report(second)
    world.settle()
    assert (world.unit(first).state, world.unit(third).state) == ("open", "pending")
    fail_start(world, first)
    assert (world.unit(first).state, world.unit(third).state) == ("pending", "open")
    reason = why(core(world), first, world.now)[0]
    assert (type(reason), because.fields(reason)["failed"], because.fields(reason)["hosts"]) == (
        because.StartFailed,
        2,
        ["h1"],
    )
    assert sentence(reason) == (
        f"its last 2 starts failed, on h1: its VM did not start: {WORDS[:-1]}; it is tried again in 1s"
    )


def test_an_attempt_that_began_ends_the_count() -> None:
    world = cluster(2)
    job = world.submit()
    world.settle()
    fail_start(world, job)
    fail_start(world, job)
    wait(world, job)
    world.start_vms(job)
    world.begin(job)
    assert (again(world, job).launches, again(world, job).failed_on) == (0, {})
    world.end_vm(job)
    world.settle()
    assert (again(world, job).launches, again(world, job).faults) == (0, 1)


def test_while_starts_are_paused_none_is_counted_and_then_nobody_waits_any_longer() -> None:
    world = cluster(2)
    waiting, job = world.submit(), world.submit()
    world.settle()
    for _ in range(4):
        fail_start(world, waiting)
        if world.unit(waiting).state != "open":
            wait(world, waiting)
    fail_start(world, waiting)
    assert world.unit(waiting).state == "pending"
    world.write("executor", f.StartsPaused(since=world.now, failed=3, tried=3, why="no datastore"))
    for _ in range(ONCE_MORE):
        fail_start(world, job)
    assert again(world, job).launches == 0
    assert "since they fail on most hosts" not in sentence(why(core(world), job, world.now)[0])
    assert "because they fail on most hosts (no datastore)" in sentence(why(core(world), job, world.now)[0])
    world.write("executor", f.StartsResumed(why="a start succeeded"))
    world.settle()
    assert world.unit(waiting).state == "open"


def sick(world: World, proven: int) -> str:
    """A job that starts nowhere, on as many hosts as it is tried; on `proven` of them others begin meanwhile."""
    job = world.submit(cores=1)
    world.settle()
    for number in range(FAILURES_MAX - 1):
        [host] = fail_start(world, job)
        if number < proven:
            core(world).view.jobs.launches.began("9999", (host,))
        wait(world, job)
    return job


def test_what_starts_nowhere_though_others_do_is_held_and_says_so_to_everybody() -> None:
    world = cluster(6)
    world.seat("admission", AdmissionCore)
    monitor = world.seat("monitor", MonitorCore)
    job = world.submit(cores=1)
    world.settle()
    for _ in range(FAILURES_MAX - 1):
        fail_start(world, job)
        wait(world, job)
    others_begin(world, 20)  # on all hosts
    fail_start(world, job)
    world.settle()
    assert world.unit(job).held
    [held] = world.facts(f.JobHeld)
    assert held.user == ""
    assert short(held.reason) == "starts failed, held"
    told: Reason = why(core(world), job, world.now)[0]
    assert type(told) is because.Held
    for reason in (told, held.reason, monitor.core.reason(monitor.custody.state.units[job])):
        assert sentence(reason).startswith(
            f"it is held: {FAILURES_MAX} starts in a row failed on hosts where other jobs start"
        )
        assert WORDS[:-1] in sentence(reason)
    world.advance(2 * WAIT_MAX_S)
    assert world.unit(job).state == "pending"
    world.write("admission", f.JobResumed(job=job, user="alice"))
    world.settle()
    assert world.unit(job).state == "open", "released, it is tried anew, at once"
    assert again(world, job).launches == 0


def test_whoever_waits_is_no_demand_until_then() -> None:
    world = cluster(2, held=1, cores=1)
    first = world.submit()
    world.settle()
    fail_start(world, first)
    second = world.submit()
    fail_start(world, first)
    assert (world.unit(first).state, world.unit(second).state) == ("pending", "open")
    assert world.custody.state.demands["hpc"] == 1
    world.advance(WAIT_FIRST_S)
    assert world.custody.state.demands["hpc"] == 2


def test_a_year_of_failed_starts_is_no_more_than_the_longest_wait() -> None:
    world = cluster(1)
    world.strict = False
    job = world.submit()
    world.settle()
    fail_start(world, job)
    again(world, job).launches = 100_000
    fail_start(world, job)
    assert wait(world, job) == WAIT_MAX_S


def test_a_lease_whose_time_runs_waits_for_seconds() -> None:
    world = cluster(2)
    lease = f.Lease(kind="advance", start_at=world.now)
    job = world.submit(lease=lease)
    world.settle()
    waits = []
    for _ in range(8):
        fail_start(world, job)
        waits.append(wait(world, job))
    assert waits == [0.0, 1.0, 2.0, 4.0, *[SLOT_WAIT_MAX_S] * 4]


def test_without_proof_nobody_is_held() -> None:
    world = cluster(8)
    job = world.submit()
    world.settle()
    for _ in range(ONCE_MORE):
        fail_start(world, job)
        wait(world, job)
    assert not any(fact.hold for fact in world.facts(f.AttemptClosed))


def test_the_proof_is_on_several_hosts() -> None:
    for proven, hold in ((PROVEN_MIN - 1, False), (PROVEN_MIN, True)):
        world = cluster(8)
        world.strict = False  # the proof is made by hand
        job = sick(world, proven)
        fail_start(world, job)
        assert world.facts(f.AttemptClosed)[-1].hold is hold


def test_one_that_waits_for_its_vms_too_long_says_nothing_against_its_job() -> None:
    world = cluster(3, boot_timeout_s=60)
    job = world.submit()
    world.settle()
    for _ in range(FAILURES_MAX + 1):
        world.write(
            "executor", f.VmRefused(unit=job, attempt=world.unit(job).attempt, rank=0, failure="quota", why="no")
        )
        world.now += 5 * 60
        world.settle()
    last = world.facts(f.AttemptClosed)[-1]
    assert (again(world, job).launches, again(world, job).requeues, last.hold) == (0, 0, False)
    assert sentence(last.why) == "its VMs did not start within 60 s; OpenNebula refused it a VM (quota): no"


def test_one_that_ran_counts_as_ever_and_quotes_too() -> None:
    world = cluster(2)
    job = world.submit()
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.end_vm(job, why="powered off")
    assert closed(world) == {job: (Disposal.REQUEUE, because.EndedVm)}
    world.settle()
    assert sentence(world.facts(f.AttemptClosed)[-1].why) == "its VM ended without a report (powered off)"
    assert (again(world, job).launches, again(world, job).faults) == (0, 1)
