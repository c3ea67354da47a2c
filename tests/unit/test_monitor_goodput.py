"""What became of core-seconds, each ending by hand.  That good, bad and open are what was used says `check()`, each time."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.monitor.core.monitor import MonitorCore
from tests.support.closing import close
from tests.unit.test_usage import Office, checkpoint, running


def monitor(office: Office) -> MonitorCore:
    core = office.world.seats["monitor"].core
    assert isinstance(core, MonitorCore)
    assert core.check() == []
    return core


def judged(office: Office, dept: str = "hpc") -> tuple[int, dict[str, int], int]:
    """Core-seconds: good, bad by cause, open of attempts that are over."""
    goodput = monitor(office).accounting.goodput
    bad = {cause: amount // 1000 for cause, amount in goodput.state.bad.get(dept, {}).items()}
    return goodput.state.good.get(dept, 0) // 1000, bad, goodput.unjudged().get(dept, 0) // 1000


@pytest.mark.parametrize(
    ("exit", "expected"), [(0, (40, {}, 0)), (3, (0, {"failed": 40}, 0))], ids=["completed", "failed"]
)
def test_a_job_that_ends_by_itself(exit: int, expected: tuple[int, dict[str, int], int]) -> None:
    office = Office()
    office.world.report(running(office), exit)
    assert judged(office) == expected


@pytest.mark.parametrize(
    ("disposal", "code", "cause"),
    [
        (Disposal.TIMEOUT, because.Walltime, "timeout"),
        (Disposal.CANCELLED, because.Cancelled, "cancelled"),
        (Disposal.FAILED, because.BootTimeout, "failed"),
        (Disposal.KILL, because.Reclaimed, "preempted"),
        (Disposal.KILL, because.Preempted, "preempted"),
        (Disposal.KILL, because.LostHost, "fault"),
        (Disposal.KILL, because.LeaseEnded, "killed"),
    ],
)
def test_a_job_that_is_ended(disposal: Disposal, code: because.Kind, cause: str) -> None:
    office = Office()
    office.close(running(office), disposal, code)
    assert judged(office) == (0, {cause: 40}, 0)


@pytest.mark.parametrize(
    ("code", "cause"), [(because.Reclaimed, "preempted"), (because.LostHost, "fault"), (because.Walltime, "fault")]
)
def test_whatever_it_is_run_again_for_has_a_cause(code: because.Kind, cause: str) -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE, code)
    office.place(job, "h1")
    assert judged(office) == (0, {cause: 40}, 0)


def test_what_is_thrown_away_counts_when_the_next_attempt_is_over_before_it_began() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    office.place(job, "h1", begin=False)
    office.world.now += 1
    office.close(job, Disposal.SUSPEND)
    assert judged(office) == (0, {"preempted": 40}, 4)


def test_what_could_not_be_saved_is_thrown_away() -> None:
    office = Office()
    job = running(office)
    office.world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=7, host="h1"))
    office.close(job, Disposal.SUSPEND)
    office.world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    assert judged(office) == (0, {}, 40), "a late report may save it yet"
    office.place(job, "h1")
    assert judged(office) == (0, {"fault": 40}, 0)


def test_what_is_thrown_away_counts_when_the_next_attempt_begins() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    assert judged(office) == (0, {}, 40), "a late report may save it yet"
    office.place(job, "h1", begin=False)
    assert judged(office) == (0, {}, 40)
    office.world.begin(job)
    assert judged(office) == (0, {"preempted": 40}, 0)
    office.world.now += 5
    office.world.report(job)
    assert judged(office) == (20, {"preempted": 40}, 0)


def test_a_late_success_makes_all_of_it_good() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    office.world.report(job)
    assert judged(office) == (40, {}, 0)


def test_a_checkpoint_keeps_what_came_before_and_a_start_is_thrown_away_with_the_rest() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    job = office.world.submit()
    office.place(job, "h1", begin=False)
    office.world.now += 2  # its start: 8 core-seconds
    office.world.begin(job)
    office.world.now += 10
    checkpoint(office, job, 1)
    office.world.now += 3
    office.close(job, Disposal.REQUEUE)
    office.place(job, "h1")
    assert judged(office) == (0, {"preempted": 20}, 40)
    office.world.now += 1
    office.world.report(job)
    assert judged(office) == (44, {"preempted": 20}, 0)


def test_a_checkpoint_in_the_grace_time_saves_it_before_it_is_counted() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.REQUEUE)
    checkpoint(office, job, 1)
    office.place(job, "h1")
    assert judged(office) == (0, {}, 40)


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_cannot_be_saved_after_a_checkpoint_in_the_grace_time_has_started_for_nothing(when: str) -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    job = office.world.submit()
    office.place(job, "h1", begin=False)
    office.world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=7, host="h1"))
    office.world.now += 2  # its start: 8 core-seconds
    office.world.begin(job)
    office.world.now += 10
    office.close(job, Disposal.SUSPEND)
    if when == "before":
        checkpoint(office, job, 1)
    office.world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    if when == "after":
        checkpoint(office, job, 1)
    office.place(job, "h1")
    assert judged(office) == (0, {"fault": 8}, 40), "it is started again, and goes on from the checkpoint"


def test_what_was_suspended_is_open_until_its_job_is_over() -> None:
    office = Office()
    job = running(office)
    office.close(job, Disposal.SUSPEND)
    office.place(job, "h1")
    office.world.now += 5
    assert judged(office) == (0, {}, 40)
    office.world.report(job)
    assert judged(office) == (60, {}, 0)


def test_an_attempt_that_fails_by_itself_and_is_run_again() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    job = office.world.submit(retries=1)
    office.place(job, "h1")
    office.world.now += 10
    office.world.report(job, 1)
    office.place(job, "h1")
    assert judged(office) == (0, {"retried": 40}, 0)


def test_what_a_job_left_behind_that_is_cancelled_while_it_waits() -> None:
    office = Office()
    job = running(office)
    checkpoint(office, job, 1)
    office.close(job, Disposal.REQUEUE)
    office.world.cancel(job)
    assert judged(office) == (0, {"cancelled": 40}, 0)


@pytest.mark.parametrize(
    ("begins", "code", "expected"),
    [
        (True, because.ScaleDown, (10, {}, 0)),
        (True, because.LostHost, (10, {}, 0)),
        (False, because.BootTimeout, (0, {"fault": 10}, 0)),
        (False, because.ScaleDown, (0, {"stopped": 10}, 0)),
    ],
)
def test_an_instance_counts_if_it_came_into_service(
    begins: bool, code: because.Kind, expected: tuple[int, dict[str, int], int]
) -> None:
    office = Office()
    office.world.grant("web", "h1")
    placed = f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=64)
    office.world.write("scheduler.web", placed)
    if begins:
        office.world.begin("web.1", "x:1")
    office.world.now += 10
    closed = f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=code())
    office.world.write("scheduler.web", closed)
    assert judged(office, "web") == expected


def test_a_department_that_is_closed_leaves_nothing_open() -> None:
    office = Office()
    waiting = running(office)
    office.close(waiting, Disposal.REQUEUE)
    again = office.world.submit()
    office.place(again, "h1")
    office.world.now += 5
    close(office.world, "hpc")
    assert judged(office) == (0, {"preempted": 40, "cancelled": 20}, 0)
