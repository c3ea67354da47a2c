"""Runs that differ in their seeds: means, and differences of variants seed by seed."""

from __future__ import annotations

import math

import pytest

from phoenix.simulate.report import Run, run_of
from phoenix.simulate.summary import Seeded, mean_of, render_summary, student_975, summary
from phoenix.simulate.workload import JobRecord, Outcome


def run(policy: str, nodes: int, done: int, each_s: float = 100.0) -> Run:
    jobs = [
        JobRecord(
            number=n,
            department="hpc",
            user="ann",
            submit_s=0.0,
            run_s=each_s,
            nodes=1,
            cores=1,
            start_s=0.0,
            end_s=each_s,
            end="completed",
        )
        for n in range(1, done + 1)
    ]
    outcome = Outcome(label="", hosts=nodes, window_s=1000.0, host_cores=1, jobs=jobs)
    return run_of(outcome, configuration="dynamic", policy=policy)


def test_mean_and_deviation_are_those_of_a_sample() -> None:
    found = mean_of([2.0, 4.0, None, 9.0])
    assert found is not None
    assert (found.count, found.mean, found.sd) == (3, 5.0, math.sqrt((9 + 1 + 16) / 2))
    assert mean_of([None]) is None
    one = mean_of([3.0])
    assert one is not None
    assert one.sd is None


def test_students_t_is_that_of_the_tables_also_beyond_ours() -> None:
    assert [student_975(n) for n in (1, 2, 10, 30)] == [12.7062, 4.3027, 2.2281, 2.0423]
    assert [student_975(n) for n in (31, 40, 60, 120)] == pytest.approx([2.0395, 2.0211, 2.0003, 1.9799], abs=1e-4)


def test_a_variant_is_compared_with_the_first_one_seed_by_seed() -> None:
    runs = [Seeded(seed, run("a", 8, done)) for seed, done in ((1, 10), (2, 50), (3, 90))]
    runs += [Seeded(seed, run("b", 8, done)) for seed, done in ((1, 11), (2, 52), (3, 93))]
    runs += [Seeded(1, run("b", 9, 4)), Seeded(4, run("b", 8, 1000))]
    first, second, other = summary(runs)
    assert (first.policy, first.seeds, first.compared_with, first.differences) == ("a", 3, None, {})
    assert first.means["completed"].sd == 40.0
    difference = second.differences["completed"]
    assert (second.compared_with, difference.pairs, difference.mean) == ("a", 3, 2.0), "seed 4 has no partner"
    assert difference.low == pytest.approx(2 - 4.3027 / math.sqrt(3))
    assert difference.high == pytest.approx(2 + 4.3027 / math.sqrt(3))
    assert (other.nodes, other.compared_with) == (9, None), "the first variant has no such size"


def test_a_seed_without_a_value_is_not_compared() -> None:
    runs = [Seeded(1, run("a", 8, 1)), Seeded(2, run("a", 8, 0)), Seeded(1, run("b", 8, 1)), Seeded(2, run("b", 8, 1))]
    difference = summary(runs)[1].differences["mean_turnaround_s"]
    assert (difference.pairs, difference.low) == (1, None)


def test_the_summary_is_told_with_units_and_signs() -> None:
    runs = [Seeded(seed, run("a", 8, 10 + seed, 100.0)) for seed in (1, 2)]
    runs += [Seeded(seed, run("b", 8, 9 + seed, 90.0)) for seed in (1, 2)]
    told = render_summary(summary(runs)).splitlines()
    assert told[0] == "Over seeds: mean ± standard deviation"
    assert told[2].split("  ")[0] == "a"
    assert "11.50 ± 0.71" in told[2]
    assert "100 s ± 0 s" in told[2]
    assert told[5] == "Difference to a, seed by seed: mean, and its 95 % interval"
    assert "-1.00 [-1.00, -1.00]" in told[7]
    assert "-10 s [-10 s, -10 s]" in told[7]
