"""The experiment `phoenix-cloud` on the product's cores, against a plain simulator of the same rules that shares no code.

Random small clouds and generated inputs of the paper's size are compared always; the paper's own where the public traces are.
"""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest

from benchmarks import reference
from phoenix.simulate import traces, web_csv
from phoenix.simulate.engine import run
from phoenix.simulate.report import Run, run_of
from phoenix.simulate.verify import verify
from phoenix.simulate.workload import Outcome, Series, WebInput, Work
from phoenix.tune.goals import HOSTS
from phoenix_papers.phoenix_cloud import experiment as phoenix_cloud
from phoenix_papers.phoenix_cloud import inputs as phoenix_cloud_inputs
from phoenix_papers.phoenix_cloud import rules as phoenix_cloud_rules
from phoenix_papers.phoenix_cloud.bench import Cloud

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 25
NODES = 12


def _small(seed: int) -> tuple[tuple[Work, ...], list[int]]:
    """Jobs that often begin, end and are submitted in the same second, and a demand that moves every minute or so."""
    chance = random.Random(seed)
    submit_s, works = 0.0, []
    for number in range(1, 60):
        submit_s += chance.choice((0, 0, 30, 60, 90, 240))
        run_s = float(chance.choice((1, 30, 60, 120, 600, 1800)))
        works.append(Work(number=number, submit_s=submit_s, run_s=run_s, nodes=chance.randint(1, 7), exclusive=True))
    demand = [chance.choice((1, 1, 2, 3, 5, 9)) for _ in range(120)]
    return tuple(works), demand


def _told(outcome: Outcome) -> tuple[int, int, int, int]:
    ends = [job.end for job in outcome.jobs]
    requeued = sum(job.preempted for job in outcome.jobs if job.end != "killed")
    return ends.count("completed"), ends.count("killed"), requeued, ends.count("unfinished")


def _turnaround(outcome: Outcome) -> float:
    done = [job.end_s - job.submit_s for job in outcome.jobs if job.end == "completed" and job.end_s is not None]
    return sum(done) / len(done)


@pytest.mark.parametrize("reading", phoenix_cloud_rules.READINGS)
def test_the_cores_do_what_the_rules_say(reading: reference.Mode) -> None:
    """Every decision of 25 small clouds, in its effect: who completes, when, who is killed or requeued."""
    preempted = 0
    for seed in range(SEEDS):
        works, demand = _small(seed)
        jobs = [reference.Job(w.number, w.submit_s, w.run_s, w.nodes) for w in works]
        steps = tuple((60.0 * minute, wanted) for minute, wanted in enumerate(demand))
        expected = reference.run(jobs, demand, NODES, reading, phoenix_cloud_rules.WINDOW_S)
        outcome = run(phoenix_cloud_rules.dynamic(NODES, reading, works, WebInput(demand=steps)))
        assert _told(outcome) == (expected.completed, expected.killed, expected.requeued, expected.unfinished), seed
        assert _turnaround(outcome) == pytest.approx(expected.mean_turnaround_s, abs=1e-6), seed
        assert all(serving == wanted for _, wanted, serving in outcome.web[0].levels), seed
        preempted += sum(job.preempted for job in outcome.jobs)
    assert preempted > SEEDS  # else the seeds show nothing


def _reference_jobs(works: tuple[Work, ...]) -> list[reference.Job]:
    return [reference.Job(w.number, w.submit_s, w.run_s, w.nodes) for w in works]


@pytest.mark.traces(traces.SDSC_BLUE, traces.WORLD_CUP)
def test_the_papers_runs_are_those_of_a_plain_simulator() -> None:
    _compare_the_papers_runs()


@pytest.mark.long
def test_the_papers_runs_on_generated_inputs_are_those_of_a_plain_simulator() -> None:
    _compare_the_papers_runs()


def _compare_the_papers_runs() -> None:
    """The runs that say most: static, and the smallest size with both readings.  `benchmarks.simulate` compares all 13."""
    inputs = phoenix_cloud_inputs.read(None, None)
    works = phoenix_cloud_rules.lay_out(inputs.jobs)
    demand = _minutes(inputs.demand)
    chosen = [s for s in phoenix_cloud.scenarios(works, inputs.demand) if s[0].hosts in (150, 208)]
    assert [label for _, label, _ in chosen] == ["static", "dynamic", "dynamic"]
    for scenario, configuration, reading in chosen:
        if configuration == "static":
            expected = reference.run(_reference_jobs(works), (), phoenix_cloud_rules.BATCH_NODES)
        else:
            mode: reference.Mode = "kill" if reading == "kill" else "requeue"
            expected = reference.run(_reference_jobs(works), demand, scenario.hosts, mode)
        outcome = run(scenario)
        assert _told(outcome) == (expected.completed, expected.killed, expected.requeued, expected.unfinished)
        assert _turnaround(outcome) == pytest.approx(expected.mean_turnaround_s, abs=1e-6)
        assert outcome.void == 0


def _minutes(given: WebInput) -> list[int]:
    """The level of each minute, from its changes."""
    found: list[int] = []
    for at, wanted in given.demand:
        found += found[-1:] * (round(at / 60) - len(found))
        found.append(wanted)
    return found


def test_a_run_replays_through_separate_folds_to_the_same_bytes_and_twice_the_same() -> None:
    works, demand = _small(7)
    steps = tuple((60.0 * minute, wanted) for minute, wanted in enumerate(demand))
    scenario = phoenix_cloud_rules.dynamic(NODES, "requeue", works, WebInput(demand=steps))
    first, second = run(scenario), run(scenario)
    assert (first.jobs, first.web, first.held) == (second.jobs, second.web, second.held)
    assert verify(scenario, first) == []


def test_verify_sees_a_difference() -> None:
    works, demand = _small(8)
    scenario = phoenix_cloud_rules.dynamic(NODES, "kill", works, WebInput(demand=((0.0, 1), (60.0, demand[3]))))
    told = run(scenario)
    told.jobs[0].preempted += 1
    assert verify(scenario, told) != []


def test_demand_follows_the_rule_of_the_paper() -> None:
    series = Series(unit="requests", starts=(0.0, 60.0, 120.0, 180.0), values=(1.0, 100.0, 50.0, 51.0))
    assert web_csv.demand(series, 64) == ((0.0, 1), (60.0, 64), (120.0, 32), (180.0, 33))


def test_the_claim_is_judged_by_both_benefits() -> None:
    works, demand = _small(3)
    steps = tuple((60.0 * minute, wanted) for minute, wanted in enumerate(demand))
    row = run_of(
        run(phoenix_cloud_rules.dynamic(NODES, "kill", works, WebInput(demand=steps))), configuration="dynamic"
    )

    def with_(configuration: str, nodes: int, reading: str | None, completed: int, mean_s: float) -> Run:
        changed = {"configuration": configuration, "nodes": nodes, "on_reclaim": reading, "completed": completed}
        return Run(
            **{field: getattr(row, field) for field in Run.__struct_fields__} | changed | {"mean_turnaround_s": mean_s}
        )

    runs = [
        with_("static", 208, None, 100, 50.0),
        with_("dynamic", 160, "kill", 99, 40.0),
        with_("dynamic", 160, "requeue", 101, 49.0),
        with_("dynamic", 150, "kill", 101, 51.0),
        with_("dynamic", 150, "requeue", 100, 49.0),
    ]
    kill, requeue = phoenix_cloud.judged(runs)
    assert (kill["holds"], kill["both_at"], kill["more_jobs_complete_at"]) == (False, [], [150])
    assert (requeue["holds"], requeue["both_at"], requeue["smallest_with_both"]) == (True, [160], 160)
    assert [claim["holds"] for claim in phoenix_cloud.judged(runs, ("the jobs",))] == [None, None]


@pytest.mark.long
@pytest.mark.traces(traces.SDSC_BLUE, traces.WORLD_CUP)
def test_the_named_example_keeps_both_benefits_at_150_nodes() -> None:
    """docs/explanation/experiments.md, "Below the paper"."""
    settings = tomllib.loads((ROOT / "docs" / "examples" / "small-jobs-first.toml").read_text())["department"]["batch"]
    bench = Cloud(phoenix_cloud_inputs.read(None, None))
    values = {f"hpc.{name}": value for name, value in settings.items()} | {HOSTS: 150}
    mine, static = bench.run(values, "", []), bench.reference("", [])
    assert (mine["hpc.completed"], static["hpc.completed"]) == (2658, 2656)
    assert mine["hpc.mean_turnaround_s"] == pytest.approx(2533.047, abs=1e-3)
    assert static["hpc.mean_turnaround_s"] == pytest.approx(2688.982, abs=1e-3)
    assert mine["hpc.preemption_lost_node_s"] == 0
