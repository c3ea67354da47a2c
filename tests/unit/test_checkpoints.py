"""Checkpoints in the cores: what counts, what is lost, who is the victim, what people are told."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Quality
from schemas.facts import Disposal
from services.admission.commands import compose
from services.domain import text as sentences
from services.domain.custody.checkpoints import counts
from services.domain.custody.state import Unit
from services.domain.refusal import Refused
from services.scheduler.core.batch import reclaim
from services.scheduler.core.batch.preemption import candidates
from services.scheduler.core.policies.victims import Candidate
from services.scheduler.lookahead import why as batch_why
from tests.support.admission import fold
from tests.support.closing import left_out
from tests.support.scheduling import closed, cluster, core, running
from tests.support.world import World


def says(world: World, unit: str, attempt: int = 1, **fields: Any) -> None:
    world.write("admission", f.CheckpointReported(unit=unit, attempt=attempt, **fields))


def candidate(world: World, unit: str) -> Candidate:
    it = core(world)
    hosts = reclaim.loads(world.custody, "hpc", {})
    book = it.view.jobs
    found = candidates(
        world.custody,
        hosts,
        world.now,
        book.used_s,
        it.view.dispositions.saved,
        lambda name: book.job(name).best_effort,
        it.view.dispositions.kept_s,
    )
    return found[unit]


@pytest.mark.parametrize(
    ("unit", "attempt", "expected"),
    [
        (Unit(id="1", dept="hpc", state="open", attempt=2), 2, True),
        (Unit(id="1", dept="hpc", state="pending", attempt=2), 2, True),
        (Unit(id="1", dept="hpc", state="open", attempt=2), 1, True),  # the second one has not begun
        (Unit(id="1", dept="hpc", state="open", attempt=2, began_at=5.0), 1, False),
        (Unit(id="1", dept="hpc", state="pending", attempt=2), 1, False),
        (Unit(id="1", dept="hpc", state="open", attempt=3), 1, False),
        (Unit(id="1", dept="hpc", state="open", attempt=2), 3, False),
        (Unit(id="1", dept="hpc", state="pending", attempt=0), 0, False),
        (Unit(id="1", dept="hpc", state="final", attempt=2), 2, False),
        (Unit(id="web.1", dept="web", state="open", attempt=1), 1, False),
        (None, 1, False),
    ],
)
def test_what_counts(unit: Unit | None, attempt: int, expected: bool) -> None:
    assert counts(unit, attempt) is expected


def test_only_what_came_after_the_last_checkpoint_would_be_lost() -> None:
    world = cluster(1)
    job = running(world, after_s=100)
    assert candidate(world, job)[2:4] == (100.0, 100.0)
    says(world, job)
    world.now += 30
    assert candidate(world, job)[2:4] == (130.0, 30.0)
    says(world, job)
    assert candidate(world, job)[2:4] == (130.0, 0.0)


def test_the_next_attempt_has_its_own_work_to_lose() -> None:
    world = cluster(1)
    job = running(world, after_s=100)
    says(world, job)
    world.now += 10
    world.quota("hpc", 0)
    world.settle()
    assert (world.unit(job).state, world.unit(job).attempt) == ("pending", 1)
    world.end_vm(job)
    world.write("executor", f.HostCleared(host="h1"))
    world.grant("hpc", "h1")
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += 40
    assert candidate(world, job)[2:4] == (40.0, 40.0)
    says(world, job, attempt=1)  # too late
    assert candidate(world, job)[2:4] == (40.0, 40.0)
    says(world, job, attempt=2)
    world.now += 5
    assert candidate(world, job)[2:4] == (45.0, 5.0)
    assert core(world).state.checkpoints[job].saved_s == 140.0  # 100 of the first attempt, 40 of the second


def test_what_is_saved_in_the_grace_time_is_all_that_it_ran() -> None:
    world = cluster(1)
    job = running(world, after_s=100)
    world.quota("hpc", 0)
    world.settle()
    world.now += 3
    says(world, job)  # its first one; the attempt was closed 3 s ago
    assert core(world).state.checkpoints[job].saved_s == 100.0
    world.end_vm(job)
    world.write("executor", f.HostCleared(host="h1"))
    world.grant("hpc", "h1")
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += 7
    assert candidate(world, job)[2:4] == (7.0, 7.0)


def test_who_would_be_killed_keeps_nothing() -> None:
    world = cluster(2)
    kept, killed = running(world), running(world, on_reclaim="kill")
    world.now += 50
    says(world, kept)
    says(world, killed)
    assert (candidate(world, kept).lost_s, candidate(world, killed).lost_s) == (0.0, 50.0)


def test_who_was_requeued_too_often_keeps_nothing() -> None:
    world = cluster(1, requeues_max=0)
    job = running(world, after_s=50)
    says(world, job)
    assert candidate(world, job).lost_s == 50.0
    world.quota("hpc", 0)
    assert closed(world) == {job: (Disposal.KILL, because.Reclaimed)}


def test_least_work_lost_ends_the_long_job_that_has_saved_its_work() -> None:
    for saves in (False, True):
        world = cluster(2, victims="least-work-lost")
        long = running(world, after_s=1000)
        short = running(world, after_s=60)
        if saves:
            says(world, long)
            world.now += 1
        world.quota("hpc", 1)
        assert list(closed(world)) == [long if saves else short]
        world.settle()
        reason = next(x.why for x in world.facts(f.AttemptClosed))
        assert because.fields(reason).get("lost_s") == (1.0 if saves else None)


def test_a_checkpoint_leaves_with_its_unit() -> None:
    world = cluster(1)
    job = running(world, after_s=5)
    says(world, job)
    world.report(job)
    assert core(world).state.checkpoints == {}
    says(world, job)
    assert core(world).state.checkpoints == {}


def test_people_are_told() -> None:
    world = cluster(1)
    job = running(world, after_s=100)
    says(world, job, percent=40.0)
    world.now += 20
    (reason,) = batch_why.why(core(world), job, world.now)
    assert sentences.sentence(reason).endswith("; its checkpoint of 20s ago keeps 1m40s of its work (40 % of it)")
    world.quota("hpc", 0)
    world.settle()
    told = [sentences.sentence(reason) for reason in batch_why.why(core(world), job, world.now)]
    assert told[-1].startswith(
        "it was preempted once, last because its host had to be returned; its checkpoint of 20s ago"
    )


# --------------------------------------------------------------------------------------------------------------- admission


def fact(unit: str, attempt: int = 1, **fields: Any) -> f.CheckpointReported:
    return f.CheckpointReported(unit=unit, attempt=attempt, **fields)


def test_admission_takes_it_of_the_latest_attempt_until_the_next_one_begins() -> None:
    world = fold()
    job = world.submit()
    with pytest.raises(Refused):
        compose.checkpoint(world.core, fact(job), 0.0, ())
    world.place(job, "h1")
    assert compose.checkpoint(world.core, fact(job), 0.0, ()) == [fact(job)]
    world.close(job, Disposal.REQUEUE)
    assert compose.checkpoint(world.core, fact(job), 0.0, ()) == [fact(job)]
    world.put(fact(job, payload="a", request="r"))
    world.place(job, "h1", attempt=2)
    assert compose.checkpoint(world.core, fact(job), 0.0, ()) == [fact(job)]
    world.put(f.AttemptBegan(unit=job, attempt=2))
    with pytest.raises(Refused, match="gone"):
        compose.checkpoint(world.core, fact(job), 0.0, ())
    world.put(fact(job, payload="late"))
    known = world.core.checkpoint(job)
    assert known is not None
    assert (known.attempt, known.payload, known.request) == (1, "a", "r")
    world.put(f.AttemptReported(unit=job, attempt=2, exit=0))
    assert world.core.checkpoint(job) is None


def test_a_repeated_call_is_no_second_fact_and_a_running_attempt_says_it_now_and_then() -> None:
    world = fold(checkpoint_interval_s=10)
    job = world.submit()
    world.place(job, "h1")
    world.put(fact(job, request="r"))
    known = world.core.checkpoint(job)
    assert known is not None
    assert compose.checkpoint(world.core, fact(job, request="r"), known.at + 1, ()) == []
    with pytest.raises(Refused, match=r"counts in 9\.0 s") as refused:
        compose.checkpoint(world.core, fact(job, request="s"), known.at + 1, ())
    assert refused.value.code == "limit"
    assert compose.checkpoint(world.core, fact(job, request="s"), known.at + 10, ()) == [fact(job, request="s")]
    with pytest.raises(Refused) as refused:
        compose.checkpoint(world.core, fact(job, request="s"), known.at + 10, [fact(job)])
    assert refused.value.code == "unavailable"
    world.close(job, Disposal.REQUEUE)  # in the grace time there may be no other chance
    assert compose.checkpoint(world.core, fact(job, request="s"), known.at + 1, ()) == [fact(job, request="s")]


def test_the_checkpoints_of_a_closed_department_are_forgotten() -> None:
    world = fold()
    job = world.submit(array="1-2")
    world.place(f"{job}_1", "h1")
    world.put(fact(f"{job}_1"))
    world.put(left_out(world.custody, "hpc"), f.DepartmentClosed(dept="hpc"))
    assert world.core.checkpoint(f"{job}_1") is None


def test_a_reason_for_each_victim() -> None:
    victim = Candidate("1", 1, 50.0, 20.0)
    params = {"hosts": 2, "running_s": 50.0, "victims": "fewest-cores"}
    assert reclaim.why_victim(victim, 2, 30.0, "fewest-cores") == because.Reclaimed(**params, lost_s=20.0)
    assert reclaim.why_victim(victim, 2, 0.0, "fewest-cores") == because.Reclaimed(**params)


def test_an_order_of_victims_sees_cores_whose_the_job_is_and_what_is_left_of_its_time() -> None:
    world = cluster(2, quality={"urgent": Quality(priority=50)})
    job = running(world, nodes=2, cores=3, after_s=20, user="bob", priority=7, quality="urgent", walltime_s=100.0)
    it = core(world)
    found = it.view.preemption.on_notice(reclaim.loads(world.custody, "hpc", {}), world.now)[job]
    assert (found.nodes, found.cores, found.user, found.priority) == (2, 6, "bob", 57)  # as in the queue
    assert (found.running_s, found.left_s) == (20.0, 80.0)


def test_a_job_that_has_its_next_place_already_saves_all_that_it_ran() -> None:
    """It is moved from a cordoned host to an idle one: the next attempt is placed while the script still has its grace."""
    world = cluster(2, held=1)
    job = running(world, after_s=100)
    world.quota("hpc", 0)
    world.settle()
    world.grant("hpc", "h2")
    world.settle()
    assert (world.unit(job).state, world.unit(job).attempt) == ("open", 2)
    world.now += 3
    says(world, job, attempt=1)
    assert core(world).state.checkpoints[job].saved_s == 100.0
    assert candidate(world, job).lost_s == 0.0
    world.start_vms(job)
    world.begin(job)
    world.now += 7
    says(world, job, attempt=1)  # too late
    assert candidate(world, job)[2:4] == (7.0, 7.0)
    says(world, job, attempt=2)
    assert core(world).state.checkpoints[job].saved_s == 107.0
