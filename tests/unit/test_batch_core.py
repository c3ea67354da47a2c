"""The batch core: what starts and where, what waits for what, time limits, configuration."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.custody.rules import RULES
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.faults import FAULTS_MAX
from services.scheduler.core.state.limits import PATIENCE_S, REPORT_S, START_PATIENCE
from tests.support.entered import entered
from tests.support.scheduling import closed, cluster, core, decide, placed, wait_for
from tests.support.world import World, batch, cloud

FILES_MAX = 10

# --------------------------------------------------------------------------------------------------------------- placement


def test_one_node_jobs_fill_the_fullest_host_first() -> None:
    world = cluster()
    jobs = [world.submit(cores=2) for _ in range(3)]
    assert placed(world) == {jobs[0]: ("h1",), jobs[1]: ("h1",), jobs[2]: ("h2",)}


def test_a_job_of_one_node_enters_few_files_where_nothing_else_is_configured() -> None:
    """From `decide` to its placement: whatever a department does not use costs the reader of this path nothing."""
    world = cluster(4, held=4)
    world.settle()
    world.submit()
    scheduler = core(world)
    facts, files = entered(lambda: scheduler.decide(world.now))
    assert [type(fact) for fact in facts] == [f.UnitPlaced, f.DemandChanged]
    assert len(files) <= FILES_MAX, files


def test_a_wide_job_gets_different_hosts() -> None:
    world = cluster()
    job = world.submit(nodes=3, cores=1)
    assert placed(world) == {job: ("h1", "h2", "h3")}


def test_an_exclusive_job_gets_an_empty_host_and_keeps_it_alone() -> None:
    world = cluster(2)
    first, alone, third = world.submit(cores=1), world.submit(cores=1, exclusive=True), world.submit(cores=1)
    assert placed(world) == {first: ("h1",), alone: ("h2",), third: ("h1",)}
    world.settle()
    assert placed(world) == {}


def test_memory_counts_as_cores_do() -> None:
    world = cluster(1)
    big, other = world.submit(memory_mb=8000), world.submit(memory_mb=200)
    assert placed(world) == {big: ("h1",)}
    assert other in core(world).view.jobs.queue.where


def test_nothing_is_placed_on_hosts_that_are_not_held_or_cordoned_or_in_quarantine() -> None:
    world = cluster(3, held=2)
    world.cordon("h1")
    world.write("executor", f.HostQuarantined(host="h2", reason="start failures", until=world.now + 30))
    job = world.submit()
    assert placed(world) == {}
    assert core(world).wake_at() == world.now + 30
    world.advance(29.9)
    assert world.states() == {job: "pending"}
    world.advance(0.2)
    assert world.unit(job).hosts == ("h2",)


def test_a_quarantine_that_has_passed_does_not_wake_for_ever() -> None:
    world = cluster(1)
    world.write("executor", f.HostQuarantined(host="h1", reason="x", until=world.now + 5))
    world.submit(cores=99)
    world.settle()
    world.now += 6
    assert decide(world) == []
    assert core(world).wake_at() == float("inf")


def test_higher_priority_goes_first_then_order_of_entry() -> None:
    world = cluster(1, cores=1)
    low, high, high_too = world.submit(), world.submit(priority=5), world.submit(priority=5)
    order = []
    for _ in range(3):
        world.settle()
        order.append(next(unit for unit, state in world.states().items() if state == "open"))
        world.report(order[-1])
    assert order == [high, high_too, low]


@pytest.mark.parametrize(("order", "starts"), [("fcfs", []), ("first-fit", ["3"])])
def test_first_fit_passes_over_what_does_not_fit_and_fcfs_does_not(order: str, starts: list[str]) -> None:
    world = cluster(1, order=order)
    world.submit(cores=3)
    world.settle()
    wide, narrow = world.submit(cores=2), world.submit(cores=1)
    assert (wide, narrow) == ("2", "3")
    assert list(placed(world)) == starts


def test_the_reason_of_a_placement_names_who_was_passed_over() -> None:
    world = cluster(1)
    head, wide, narrow = world.submit(cores=2), world.submit(cores=4), world.submit(cores=2)
    reasons = {fact.unit: fact.reason for fact in decide(world) if isinstance(fact, f.UnitPlaced)}
    assert type(reasons[head]) is because.HeadOfQueue  # type: ignore[union-attr]
    assert type(reasons[narrow]) is because.FirstFit  # type: ignore[union-attr]
    assert because.fields(reasons[narrow]) == {"passed_over": wide}  # type: ignore[union-attr]


def test_in_strict_order_the_next_one_starts_when_the_head_is_cancelled() -> None:
    world = cluster(1, order="fcfs")
    wide, narrow = world.submit(nodes=2), world.submit()
    world.settle()
    assert world.states() == {wide: "pending", narrow: "pending"}
    world.cancel(wide)
    world.settle()
    assert world.states() == {wide: "cancelled", narrow: "open"}


def test_held_jobs_wait_and_keep_their_place() -> None:
    world = cluster(1, cores=1)
    held, other = world.submit(held=True), world.submit()
    assert list(placed(world)) == [other]
    world.write("admission", f.JobResumed(job=held, user="ann"))
    assert list(placed(world)) == [held]
    world.write("admission", f.JobHeld(job=held, user="ann"))
    assert list(placed(world)) == [other]


def test_an_array_is_as_many_units_and_its_throttle_holds() -> None:
    world = cluster(2)
    job = world.submit(array=(0, 2, 5, 9), throttle=2)
    after = world.submit()
    assert list(placed(world)) == [f"{job}_0", f"{job}_2", after]
    world.settle()
    world.report(f"{job}_2")
    assert list(placed(world)) == [f"{job}_5"]


def test_a_throttled_array_does_not_stop_strict_order() -> None:
    world = cluster(2, order="fcfs")
    job, other = world.submit(array=(1, 2), throttle=1), world.submit()
    assert list(placed(world)) == [f"{job}_1", other]


# ------------------------------------------------------------------------------------------------------------ dependencies


@pytest.mark.parametrize(
    ("condition", "exit", "starts"),
    [
        ("afterok", 0, True),
        ("afterok", 1, False),
        ("afternotok", 0, False),
        ("afternotok", 1, True),
        ("afterany", 0, True),
        ("afterany", 1, True),
    ],
)
def test_a_dependency_on_a_job_that_ends(condition: str, exit: int, starts: bool) -> None:
    world = cluster()
    first = world.submit()
    second = world.submit(after=wait_for(first, condition))
    world.settle()
    assert world.states() == {first: "open", second: "pending"}
    world.report(first, exit)
    late = world.submit(after=wait_for(first, condition))  # the job has ended already
    world.settle()
    assert world.states()[second] == world.states()[late] == ("open" if starts else "pending")


def test_after_is_met_when_the_job_has_begun_or_ended() -> None:
    world = cluster()
    first, gone = world.submit(), world.submit()
    world.settle()
    second = world.submit(after=(*wait_for(first, "after"), *wait_for(gone, "after")))
    world.begin(first)
    assert placed(world) == {}
    world.cancel(gone)
    world.settle()
    assert world.states()[second] == "open"


def test_a_dependency_on_an_array_waits_for_all_elements_and_one_on_an_element_for_that() -> None:
    world = cluster()
    array = world.submit(array=(1, 2))
    whole = world.submit(after=wait_for(array))
    element = world.submit(after=wait_for(f"{array}_2"))
    world.settle()
    world.report(f"{array}_2")
    world.settle()
    assert (world.states()[whole], world.states()[element]) == ("pending", "open")
    world.report(f"{array}_1")
    world.settle()
    assert world.states()[whole] == "open"


def test_how_a_job_ended_is_forgotten_after_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.scheduler.core.batch.jobs.ENDED_MAX", 1)
    world = cluster()
    old, new = world.submit(), world.submit()
    world.settle()
    for job in (old, new):
        world.report(job)
    jobs = {
        (job, condition): world.submit(after=wait_for(job, condition))
        for job in (old, new)
        for condition in ("afterok", "afterany")
    }
    assert set(placed(world)) == {jobs[new, "afterok"], jobs[new, "afterany"], jobs[old, "afterany"]}


def test_a_met_dependency_is_not_asked_again_after_a_requeue() -> None:
    world = cluster(1)
    first = world.submit()
    world.settle()
    second = world.submit(after=wait_for(first, "after"))
    world.begin(first)
    world.settle()
    world.quota("hpc", 0)
    world.settle()
    assert set(core(world).view.jobs.queue.where) == {first, second}


# ------------------------------------------------------------------------------------------------------------- time limits


def test_a_walltime_waits_until_a_report_of_that_moment_would_be_in() -> None:
    """Admission hangs: the job may have ended, and its guest finds nobody to tell."""
    world = cluster()
    job = world.submit(walltime_s=10)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    ends_at = world.now + 10
    core(world).view.limits.heard_until = 0.0
    world.now = ends_at + 1
    assert closed(world) == {}
    assert core(world).view.limits.awaits_reports(world.now)
    assert world.now < core(world).wake_at() <= ends_at + PATIENCE_S, "nothing to do until somebody is heard"
    core(world).view.limits.heard_until = ends_at - 0.1
    assert closed(world) == {}
    core(world).view.limits.heard_since, core(world).view.limits.heard_until = world.now, world.now + 1.0  # it is back
    assert closed(world) == {}
    assert core(world).wake_at() == world.now + REPORT_S
    world.now += REPORT_S
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


@pytest.mark.parametrize("alive_since", [-5.0, 0.0, 7.0])
def test_a_walltime_ends_in_its_moment_while_admission_is_alive(alive_since: float) -> None:
    """Before the job began, since then, or for as long as a report may take."""
    world = cluster()
    job = world.submit(walltime_s=10)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    limits, ends_at = core(world).view.limits, world.now + 10
    limits.heard_since = world.now + alive_since
    world.now = ends_at - 0.1
    limits.heard_until = world.now + 1.0
    assert closed(world) == {}
    assert core(world).wake_at() == ends_at
    world.now = ends_at
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


def test_admission_is_looked_at_before_a_walltime_passes_and_not_for_other_limits() -> None:
    world = cluster(boot_timeout_s=60)
    job = world.submit(walltime_s=10)
    world.settle()
    limits = core(world).view.limits
    assert not limits.ends_by(world.now + 9999)  # it boots
    world.start_vms(job)
    world.begin(job)
    assert limits.began_at == world.now
    assert [limits.ends_by(world.now + seconds) for seconds in (9.9, 10.0)] == [False, True]


def test_a_walltime_does_not_wait_for_ever() -> None:
    world = cluster()
    job = world.submit(walltime_s=10)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    core(world).view.limits.heard_until = 0.0
    world.now += 10 + PATIENCE_S - 0.1
    assert closed(world) == {}
    world.now += 0.1
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


def test_who_waits_for_a_report_holds_up_no_other_limit() -> None:
    world = cluster(boot_timeout_s=60)
    job, booting = world.submit(walltime_s=10), world.submit(walltime_s=500)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.start_vms(booting)
    core(world).view.limits.heard_until = 0.0
    world.now += 60
    assert closed(world) == {booting: (Disposal.REQUEUE, because.BootTimeout)}


def test_walltime_counts_from_the_beginning_not_from_the_placement() -> None:
    world = cluster()
    job = world.submit(walltime_s=10)
    world.settle()
    world.now += 20
    world.start_vms(job)
    world.begin(job)
    world.now += 9.9
    assert closed(world) == {}
    assert core(world).wake_at() == pytest.approx(world.now + 0.1)
    world.now += 0.1
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}
    world.settle()
    assert world.states() == {job: "timeout"}


def test_the_boot_budget_counts_from_the_start_of_the_last_vm() -> None:
    world = cluster(boot_timeout_s=60)
    job = world.submit()
    world.settle()
    world.now += 100
    world.start_vms(job)
    world.now += 59
    assert closed(world) == {}
    world.now += 1
    assert closed(world) == {job: (Disposal.REQUEUE, because.BootTimeout)}
    world.settle()
    assert core(world).state.again[job].launches == 1


def test_an_attempt_whose_vms_never_start_goes_back_and_it_is_not_the_jobs_fault() -> None:
    world = cluster(boot_timeout_s=60)
    job = world.submit()
    world.settle()
    world.now += 60 * START_PATIENCE
    assert closed(world) == {job: (Disposal.REQUEUE, because.BootTimeout)}
    world.settle()
    again = core(world).state.again[job]
    assert (again.requeues, again.faults, again.launches) == (0, 0, 0)


def test_a_job_whose_vm_always_ends_without_a_word_is_started_a_bounded_number_of_times() -> None:
    world = cluster()
    job = world.submit()
    for _ in range(FAULTS_MAX + 1):
        world.settle()
        world.start_vms(job)
        world.begin(job)
        world.end_vm(job)
    world.settle()
    assert world.states() == {job: "killed"}
    why = world.facts(f.AttemptClosed)[-1].why
    assert (type(why), because.fields(why)["requeues"]) == (because.EndedVm, FAULTS_MAX)


# ----------------------------------------------------------------------------------------------------- configuration, end


def test_without_configuration_nothing_is_decided() -> None:
    world = World()
    world.hosts(1)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", "h1")
    world.submit()
    assert decide(world) == []


def test_a_department_that_is_not_configured_any_more_gives_back_and_places_nothing() -> None:
    world = cluster(2)
    world.submit()
    world.settle()
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud()))
    world.quota("hpc", 0)
    world.settle()
    assert world.custody.held("hpc") == 0
    assert world.custody.state.demands["hpc"] == 0
    world.write("admission", f.DepartmentClosed(dept="hpc"))
    world.settle()
    assert world.states() == {"1": "cancelled"}
    assert core(world).state.jobs == {}


def test_a_changed_boot_budget_holds_for_attempts_under_way() -> None:
    world = cluster(boot_timeout_s=60)
    job = world.submit()
    world.settle()
    world.start_vms(job)
    config = cloud(batch("hpc", boot_timeout_s=5))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    world.now += 5
    assert closed(world) == {job: (Disposal.REQUEUE, because.BootTimeout)}


def test_other_departments_jobs_are_none_of_its_business() -> None:
    world = cluster()
    world.submit("other")
    assert decide(world) == []


def test_a_whole_day_with_stand_ins_outside() -> None:
    world = cluster(3)
    world.executor()
    world.guests(boot_s=1, run_s=60)
    jobs = [world.submit(nodes=n) for n in (1, 2, 3, 1, 2, 1)]
    world.advance(30)
    world.quota("hpc", 1)
    world.advance(60)
    world.grant("hpc", *sorted(world.custody.index.by_state["free"]))
    world.advance(600)
    assert world.states() == dict.fromkeys(jobs, "completed")
    assert world.voids == []
