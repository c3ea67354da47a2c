"""Every order with every order of victims (`phoenix simulate policies`): windows, the cloud they meet, and what is told."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from phoenix.cli.__main__ import main
from phoenix.simulate import swf
from phoenix.simulate.workload import LogJob, WebInput
from phoenix_papers.policies import experiment as policies
from phoenix_papers.policies import rules
from services.scheduler.core.policies import registry

DAY_S = 86400.0
HOSTS = 40
DEMAND = WebInput(demand=((0.0, 5), (DAY_S, 20), (2 * DAY_S, 3), (8 * DAY_S, 12)))


def log(days: int, *, nodes: int = 6, processors: int = 64) -> swf.Log:
    """A job every two hours, some of them wide, none of them long."""
    jobs = tuple(
        LogJob(
            number=n + 1,
            submit_s=7200.0 * n,
            run_s=600.0 + 1800 * (n % 7),
            processors=1 + 5 * (n % 3 == 0) * (nodes - 1),
            requested_s=4 * 3600.0,
            user=f"u{n % 5}",
        )
        for n in range(12 * days)
    )
    return swf.Log(path=Path("made.swf"), jobs=jobs, header={"MaxProcs": str(processors), "MaxNodes": str(processors)})


def test_windows_are_the_middle_fortnight_and_offer_the_same_load() -> None:
    first, second = rules.windows("made", log(30), DEMAND, HOSTS, load=0.5)
    assert (first.begin_s, second.begin_s) == (8 * DAY_S, 15 * DAY_S)
    for window in (first, second):
        assert len(window.works) == 84
        offered = math.fsum(work.run_s * work.nodes for work in window.works) / window.span_s
        assert offered == pytest.approx(0.5 * (HOSTS - rules.WEB_MEAN))
        assert all(0 <= work.submit_s < window.span_s for work in window.works)
        assert all(work.walltime_s >= work.run_s and work.exclusive for work in window.works)


def test_a_log_of_a_fortnight_is_taken_whole() -> None:
    assert sum(len(window.works) for window in rules.windows("made", log(14), DEMAND, HOSTS, load=0.5)) == 168


def test_web_demand_begins_with_the_window_and_ends_with_it() -> None:
    assert rules.cut(DEMAND, 0.0, 1.5 * DAY_S).demand == ((0.0, 5), (DAY_S, 20), (1.5 * DAY_S, 1))
    assert rules.cut(DEMAND, 7 * DAY_S, 2 * DAY_S).demand == ((0.0, 3), (DAY_S, 12), (2 * DAY_S, 1))


def test_every_order_and_every_order_of_victims_of_the_configuration_is_compared() -> None:
    assert {*registry.ORDERS, "multi-factor"} == set(rules.orders())
    assert set(registry.VICTIMS) == set(rules.victims())


@pytest.mark.parametrize("order", rules.orders())
def test_all_jobs_complete_whatever_the_order_and_the_same_run_gives_the_same_numbers(order: str) -> None:
    window = rules.windows("made", log(14), DEMAND, HOSTS, load=0.9)[0]
    runs = [rules.made(window, HOSTS, order, "least-work-lost") for _ in range(2)]
    assert runs[0].submitted == 84
    assert runs[0].refused == 0
    assert 0 < runs[0].completed <= 84
    assert runs[0].preempted > 0  # else victims do not matter
    assert runs[0].lost_node_s > 0
    assert 0 < runs[0].utilisation < 1
    assert runs[0].mean_bounded_slowdown >= 1
    assert runs[0].decisions > 84
    numbers = [{f: getattr(run, f) for f in run.__struct_fields__ if f != "decision_us"} for run in runs]
    assert numbers[0] == numbers[1]


def told(order: str, victims: str, window: int, turnaround_s: float, lost_node_s: float) -> rules.Run:
    return rules.Run(
        log="made",
        window=window,
        hosts=HOSTS,
        order=order,
        victims=victims,
        submitted=9,
        refused=0,
        completed=9,
        mean_turnaround_s=turnaround_s,
        mean_bounded_slowdown=turnaround_s / 100,
        utilisation=0.5,
        lost_node_s=lost_node_s,
        preempted=3,
        preempted_jobs=3,
        decisions=20,
        decision_us=100.0,
    )


def test_agreement_counts_runs_and_windows_that_are_better_than_the_default() -> None:
    spared = "smallest-shortest-spared"
    runs = [
        *(told("first-fit", spared, n, 1000.0, 50.0) for n in (1, 2)),
        *(told("easy", spared, n, at, 50.0) for n, at in ((1, 900.0), (2, 1100.0))),
        *(told("first-fit", "youngest-first", n, 1000.0, 40.0) for n in (1, 2)),
    ]
    by_order, by_victims = policies.agreement(runs)
    assert by_order.splitlines()[2].split() == ["easy", *2 * ["1", "of", "2,", "1", "of", "2", "windows"]]
    assert "2 of 2, 2 of 2 windows  0 of 2, 0 of 2 windows" in by_victims


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    swf.write(tmp_path / "made.swf", log(14).jobs)
    rows = "".join(f"{60 * n},{100 + 50 * (n % 11)}\n" for n in range(200))
    (tmp_path / "web.csv").write_text(f"time,requests\n{rows}")
    return ["--jobs", str(tmp_path / "made.swf"), "--web", str(tmp_path / "web.csv"), "--hosts", "70"]


def test_the_command_tells_a_table_for_each_log_and_a_document(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--orders", "fcfs", "first-fit", "--victims", "youngest-first"]
    assert main(["simulate", "policies", *files, *chosen, "--plots", str(tmp_path / "plots")]) == 0
    out = capsys.readouterr().out
    assert "made.swf: window 1: 84 jobs from day 0" in out
    assert [line.split()[0] for line in out.splitlines() if "youngest-first" in line] == ["fcfs", "first-fit"]
    assert (tmp_path / "plots" / "policies.svg").is_file()
    assert main(["simulate", "policies", *files, *chosen, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["window"] for each in document["windows"]] == [1, 2]
    assert len(document["runs"]) == 4
    assert all(run["completed"] for run in document["runs"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--orders", "best-fit"], "--orders best-fit: not known"),
        (["--victims", "oldest"], "--victims oldest: not known"),
        (["--hosts", "64"], "web alone wants 64"),
        (["--load", "0"], "--load 0"),
    ],
)
def test_mistakes_are_told_before_anything_is_simulated(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "policies", *given]) == 2
    assert said in capsys.readouterr().err


def test_without_the_public_logs_a_generated_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_TRACES", str(tmp_path))
    windows, notes = policies.read([], None, rules.HOSTS, rules.LOAD)
    assert [(window.log, window.number) for window in windows] == [("generated", 1), ("generated", 2)]
    assert any("stand in" in note for note in notes)
    assert len(notes) == 6  # four logs, the web load, and what stands in
