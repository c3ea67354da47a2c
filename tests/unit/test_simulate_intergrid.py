"""`phoenix simulate intergrid`: with preemption every slot begins on time, without it some do not."""

from __future__ import annotations

import argparse
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from phoenix.simulate import engine, traces
from phoenix.simulate.intervals import interval
from phoenix.simulate.variates import Variates
from phoenix.simulate.workload import LogJob
from phoenix_papers.intergrid import experiment as intergrid
from phoenix_papers.intergrid import rules
from phoenix_papers.intergrid.rules import Run
from schemas import facts as f
from schemas.facts import Disposal
from services.domain.custody.meta import Meta


@cache
def requests() -> tuple[LogJob, ...]:
    """Sixty like the log's."""
    chance = Variates(1, "requests").uniform
    found = []
    for number in range(rules.EXTERNAL):
        run_s = math.floor(30 * (50_000 / 30) ** chance())
        processors = (8, 32, 64, 256, 1024)[math.floor(5 * chance())]
        submit_s = rules.LOG_BEGINS_S + 400 * number
        found.append(LogJob(number=number + 1, submit_s=submit_s, run_s=run_s, processors=processors))
    return tuple(found)


@cache
def runs() -> list[Run]:
    return intergrid.simulated(requests(), range(1, 11), workers=2)


def test_with_preemption_every_local_lease_begins_on_time_and_without_some_do_not() -> None:
    all_are_on_time_with_preemption_alone(runs())


@pytest.mark.long
@pytest.mark.traces(intergrid.LOG)
def test_with_preemption_every_local_lease_begins_on_time_with_the_papers_log_as_well() -> None:
    log = traces.find(intergrid.LOG)
    assert log is not None
    all_are_on_time_with_preemption_alone(intergrid.simulated(rules.externals(log), range(1, 31), workers=2))


def all_are_on_time_with_preemption_alone(found: list[Run]) -> None:
    for run in found:
        if run.policy == "none":
            assert run.local_on_time < 13, run
            assert run.overhead_s == 0
        else:
            assert run.local_on_time == 13, run
            assert run.overhead_s > 0


def test_a_lease_begins_on_time_though_a_job_on_its_hosts_began_late() -> None:
    """Seed 27 of the generated requests: job 47 is placed while machines are being saved beside it, begins 152 s later, and is
    still there when the slot of lease 60 begins.  It began 51.2 s late."""
    (run,) = intergrid.simulated(requests(), (27,), ("cp",), workers=1)
    assert run.local_on_time == 13, run


def test_the_policies_differ_and_alpha_0_and_1_are_the_simple_ones() -> None:
    assert len({run.overhead_s for run in runs() if run.seed == 1}) == 4
    ends = intergrid.simulated(requests(), (1, 2), ("cp",), (0.0, 1.0), workers=1)
    known = {(run.policy, run.seed): run for run in runs()}
    for run in ends:
        simple = known["mwt" if run.alpha == 0 else "mov", run.seed]
        assert (run.overhead_s, run.mean_wait_s) == (simple.overhead_s, simple.mean_wait_s)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leases_are_table_i_and_sixty_requests_and_fit_the_cluster(seed: int) -> None:
    works = rules.works(requests(), seed)
    local, external = [w for w in works if w.start_s], [w for w in works if not w.start_s]
    assert (len(local), len(external)) == (13, 60)
    assert [w.number for w in works] == list(range(1, 74))
    assert [w.nodes * w.cores for w in local] == [row.nodes for row in rules.TABLE_I]
    assert [w.nodes * w.memory_mb for w in local] == [row.nodes * row.memory_mb for row in rules.TABLE_I]
    assert all(w.start_s == w.submit_s + 900 for w in local)
    assert all(w.nodes <= 4 and w.cores <= 4 and w.memory_mb <= rules.HOST_MB for w in works)
    assert all(w.best_effort and w.walltime_s >= w.run_s for w in external)
    assert works == rules.works(requests(), seed)
    assert works != rules.works(requests(), seed + 1)


def test_overhead_is_what_suspending_and_resuming_took() -> None:
    """By the facts: who was suspended for how much memory, and how long each took from its placement to its guests' call."""
    scenario = rules.scenario(requests(), "cp", 0.31, 1)
    memory_mb: dict[str, int] = {}
    placed_at: dict[str, float] = {}
    told = {"suspending": 0.0, "resuming": 0.0}
    saved: dict[str, None] = {}

    def watch(fact: f.Fact, meta: Meta) -> None:
        if isinstance(fact, f.UnitPlaced):
            memory_mb[fact.unit] = fact.memory_mb * len(fact.hosts)
            placed_at[fact.unit] = meta.at
        elif isinstance(fact, f.AttemptClosed) and fact.disposal is Disposal.SUSPEND:
            told["suspending"] += memory_mb[fact.unit] / rules.RATE_MB_PER_S
            saved[fact.unit] = None
        elif isinstance(fact, f.AttemptBegan) and fact.unit in saved:
            told["resuming"] += memory_mb[fact.unit] / rules.RATE_MB_PER_S
            assert meta.at - placed_at[fact.unit] >= memory_mb[fact.unit] / rules.RATE_MB_PER_S - 1e-6

    outcome = engine.run(scenario, watch=watch)
    assert outcome.suspending_s == pytest.approx(told["suspending"])
    assert outcome.resuming_s == pytest.approx(told["resuming"])
    assert outcome.suspending_s > 0 < outcome.resuming_s


def test_what_differences_say() -> None:
    assert intergrid.told_of([1.0, 2.0, 3.0, 2.0]) == "holds"
    assert intergrid.told_of([-1.0, -2.0, -3.0, -2.0]) == "does not hold"
    assert intergrid.told_of([1.0, -2.0, 3.0, -1.0]) == "no difference that these seeds show"
    assert intergrid.told_of([1.0]) == "holds in this run"
    assert interval([10.0, 14.0]) == "12 ± 25"


def test_the_document_holds_every_run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(rules, "externals", lambda _log: requests())
    monkeypatch.setattr(intergrid, "ALPHAS", (0.0, 0.31, 1.0))
    given: dict[str, Any] = {"seeds": 2, "alphas": 1, "log": tmp_path, "workers": 1, "plots": None}
    given |= {"sweep": None, "trials": None, "for_s": None, "map": None}
    assert intergrid.run(argparse.Namespace(**given, json=True)) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["policy"], run["alpha"], run["seed"]) for run in found] == [
        ("none", None, 1), ("none", None, 2), ("mwt", 0.0, 1), ("mwt", 0.0, 2), ("mov", 1.0, 1), ("mov", 1.0, 2),
        ("cp", 0.31, 1), ("cp", 0.31, 2), ("cp", 0.0, 1), ("cp", 1.0, 1),
    ]  # fmt: skip
    assert {"overhead_s", "mean_wait_s", "makespan_s", "local_on_time"} <= set(found[0])
    assert intergrid.run(argparse.Namespace(**(given | {"plots": tmp_path}), json=False)) == 0
    text = capsys.readouterr().out
    assert "wait: mwt ≤ cp" in text
    assert "overhead: cp ≤ mwt" in text
    assert text.endswith(f"{intergrid.LEGEND}\nThe log: {tmp_path}\n")
    assert all(head in intergrid.LEGEND for head in text.splitlines()[0].replace("PAPER:", "").split()[1:])
    assert {file.name for file in tmp_path.iterdir()} == {"alpha.svg", "alpha.png"}
