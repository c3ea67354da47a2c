"""What is lost when saving or moving a job fails: counted once, as the failure of a machine."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from tests.unit.test_usage import Office, running


@pytest.mark.parametrize("late_success", [False, True])
def test_what_could_not_be_saved_is_lost_once_and_to_a_failure(late_success: bool) -> None:
    office = Office()
    job = running(office)
    office.world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=7, host="h1"))
    office.close(job, Disposal.SUSPEND)
    assert (office.of()["lost_core_s"], office.of()["failed_core_s"]) == (0.0, 0.0)
    office.world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    assert (office.of()["lost_core_s"], office.of()["failed_core_s"]) == (0.0, 40.0)
    if late_success:
        office.world.write("admission", f.AttemptReported(unit=job, attempt=1, exit=0))
        assert office.of()["failed_core_s"] == 0.0
        return
    office.place(job, "h1")
    office.world.now += 5
    office.close(job, Disposal.REQUEUE)
    assert (office.of()["lost_core_s"], office.of()["failed_core_s"]) == (20.0, 40.0)


def test_what_could_not_be_saved_of_a_job_that_was_cancelled_is_no_loss() -> None:
    office = Office()
    job = running(office)
    office.world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=7, host="h1"))
    office.close(job, Disposal.SUSPEND)
    office.world.cancel(job)
    office.world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    assert (office.of()["ended"], office.of()["failed_core_s"]) == ({"cancelled": 1}, 0.0)


def test_a_move_that_failed_loses_what_ran_before() -> None:
    office = Office()
    job = running(office)
    office.world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=7, host="h1"))
    office.world.grant("hpc", "h2")
    office.close(job, Disposal.MIGRATE)
    office.place(job, "h2", begin=False)
    office.world.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="it could not be saved"))
    office.close(job, Disposal.REQUEUE, because.NotSaved)
    assert (office.of()["lost_core_s"], office.of()["failed_core_s"]) == (0.0, 40.0)
