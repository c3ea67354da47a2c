"""Simulated jobs that checkpoint: every second can be worked out on paper."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoenix.simulate.checkpointing import Habit, Life
from phoenix.simulate.explain import render, story
from phoenix.simulate.layout import lay_out
from phoenix.simulate.metrics import measure
from phoenix.simulate.workload import LogJob, Outcome
from schemas.config import BatchPolicy, Department, OnReclaim
from tests.unit.test_simulate_engine import batch, cloud, job, lived, times, web


def one(on_reclaim: OnReclaim = "requeue", **habit: float) -> Outcome:
    """A job of 100 s on both hosts; web takes one from 50 to 80."""
    work = msgspec.structs.replace(job(1, 0.0, 100.0, 2), **habit)
    scenario = cloud(batch(on_reclaim=on_reclaim), web(), hosts=2, jobs={"hpc": (work,)}, demand=((50.0, 1), (80.0, 0)))
    return lived(scenario)


def test_a_requeued_job_goes_on_from_its_last_checkpoint() -> None:
    (record,) = one(checkpoint_s=20.0).jobs
    # Saved at 20 and 40; 50 is lost from 40. From 80 on 60 s are left, saved at 100 and 120.
    assert times(record) == (0, 80, 140, "completed")
    assert (record.preempted, record.lost_node_s, record.ran_node_s) == (1, 20, 220)
    assert (record.checkpoints, record.checkpoint_node_s) == (4, 0)


def test_saving_takes_its_time_and_a_checkpoint_that_is_not_whole_saves_nothing() -> None:
    (record,) = one(checkpoint_s=20.0, checkpoint_cost_s=6.0).jobs
    # Whole at 26; the next one would be at 52. From 80 on 80 s are left, with three checkpoints: 98 s.
    assert times(record) == (0, 80, 178, "completed")
    assert (record.lost_node_s, record.ran_node_s) == (48, 296)
    assert (record.checkpoints, record.checkpoint_node_s) == (4, 48)
    assert record.ran_node_s == record.run_s * record.nodes + record.lost_node_s + record.checkpoint_node_s


def test_who_is_killed_has_saved_nothing() -> None:
    outcome = one("kill", checkpoint_s=20.0, checkpoint_cost_s=1.0)
    (record,) = outcome.jobs
    assert (record.end, record.lost_node_s, record.checkpoint_node_s) == ("killed", 100, 0)
    assert measure(outcome).total.useful_utilisation == 0


def test_a_suspended_job_saves_as_if_it_had_not_been() -> None:
    (record,) = one("suspend", checkpoint_s=30.0, checkpoint_cost_s=3.0).jobs
    assert times(record) == (0, 80, 139, "completed")  # 109 s in all
    assert (record.lost_node_s, record.checkpoints) == (0, 3)


def test_metrics_tell_what_saving_cost() -> None:
    total = measure(one(checkpoint_s=20.0, checkpoint_cost_s=6.0)).total
    assert (total.checkpoints, total.checkpoint_node_s, total.preemption_lost_node_s) == (4, 48, 48)
    assert total.useful_utilisation == pytest.approx(200 / (2 * 178))


def test_least_work_lost_takes_the_long_job_that_has_just_saved() -> None:
    def ended_first(**habit: float) -> int:
        department = Department(name="hpc", kind="batch", batch=BatchPolicy(victims="least-work-lost"))
        long, short = job(1, 0.0, 1000.0), job(2, 95.0, 500.0)
        works = (msgspec.structs.replace(long, **habit), short)
        outcome = lived(cloud(department, web(), hosts=2, jobs={"hpc": works}, demand=((105.0, 1), (120.0, 0))))
        (victim,) = [record.number for record in outcome.jobs if record.preempted]
        return victim

    assert ended_first() == 2  # 10 s of work are less than 105
    assert ended_first(checkpoint_s=100.0) == 1  # … but 5 are less than 10


def test_the_story_of_a_job_that_checkpoints() -> None:
    work = msgspec.structs.replace(job(1, 0.0, 4000.0, 2), checkpoint_s=600.0)
    scenario = cloud(batch(), web(), hosts=2, jobs={"hpc": (work,)}, demand=((3000.0, 1), (3100.0, 0)))
    assert "run from its last checkpoint" in render(story(scenario, 1)).replace("\n", " ").replace("  ", "")


def test_the_limit_grows_by_what_saving_takes() -> None:
    log = [LogJob(number=1, submit_s=0.0, run_s=100.0, processors=1, requested_s=150.0)]
    (work,) = lay_out(log, cores_per_host=1, checkpoint_s=30.0, checkpoint_cost_s=5.0)
    assert (work.walltime_s, work.checkpoint_s, work.checkpoint_cost_s) == (165.0, 30.0, 5.0)


@settings(max_examples=200, deadline=None)
@given(
    work_s=st.floats(1, 1e5),
    every_s=st.floats(1, 1e5),
    cost_s=st.floats(0, 1e3),
    cuts=st.lists(st.integers(0, 20), max_size=6),
)
def test_no_work_is_saved_that_was_not_done(work_s: float, every_s: float, cost_s: float, cuts: list[int]) -> None:
    life = Life(work_s, Habit(every_s, cost_s))
    left: list[Any] = [work_s]
    for cut in cuts:
        while life.next_s is not None and life.done < cut:
            assert life.next_s <= life.length_s
            life.done += 1
        life = life.cut_short()
        left.append(life.work_s)
    assert left == sorted(left, reverse=True)
    assert life.work_s > 0
