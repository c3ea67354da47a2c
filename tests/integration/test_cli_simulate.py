"""`phoenix simulate` as a person runs it: table, JSON, CSV, plots, a job's story, the smallest cluster, mistakes, Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phoenix.cli.__main__ import main
from phoenix.cli.completion import candidates
from phoenix.simulate import outputs
from phoenix.simulate.engine import run
from phoenix.simulate.report import JOB_COLUMNS
from phoenix.simulate.sweep import Interrupted
from phoenix.simulate.workload import Outcome, Scenario
from tests.integration.up_cloud import until

DEADLINE_S = 90.0
EXPERIMENT = """
[experiment]
window = "2h"
[cluster]
sizes = [5, 6]
[[department]]
name = "hpc"
kind = "batch"
jobs = { log = "small.swf", walltime = "unlimited" }
[[department]]
name = "web"
kind = "web"
demand = { csv = "web.csv" }
[[vary]]
name = "requeue"
[[vary]]
name = "kill"
set = { hpc.on_reclaim = "kill" }
[goal]
hpc.killed = "<= 0"
hpc.max_turnaround_s = "<= 25m"
"""
# Job 1 holds 3 hosts from 0 to 1200, job 2 one from 60; at 300 web wants 3 hosts: job 2 makes room, and runs again from 900.
SWF = """; UnixStartTime: 1000000000
1 0 -1 1200 3 -1 -1 3 -1 -1 1 u1 -1 -1 -1 -1 -1 -1
2 60 -1 600 1 -1 -1 1 -1 -1 1 u2 -1 -1 -1 -1 -1 -1
3 120 -1 60 4 -1 -1 4 -1 -1 1 u1 -1 -1 -1 -1 -1 -1
"""
CSV = "time,instances\n0,1\n300,2\n900,1\n"


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    (tmp_path / "small.swf").write_text(SWF)
    (tmp_path / "web.csv").write_text(CSV)
    (tmp_path / "site.toml").write_text(EXPERIMENT)
    return str(tmp_path / "site.toml")


def phoenix(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["simulate", *words]) == code
    taken = capsys.readouterr()
    return taken.out if code == 0 else taken.out + taken.err


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(phoenix(capsys, *words, "--json"))
    return found


# -------------------------------------------------------------------------------------------------------------------- runs


def test_a_table_has_a_row_for_each_run_and_says_where_the_goal_holds(
    experiment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = phoenix(capsys, experiment)
    rows = [line for line in text.splitlines() if line.startswith(("requeue ", "kill "))]
    assert [" ".join(row.split()[:3]) for row in rows] == ["requeue 5 5", "requeue 6 6", "kill 5 5", "kill 6 6"]
    assert "hpc.killed <= 0 holds in: requeue 5, requeue 6, kill 6" in text
    assert "hpc.max_turnaround_s <= 25m holds in: " in text
    assert "All of the goal holds in: requeue 5, requeue 6, kill 6" in text


SEEDED = """
[experiment]
window = "6h"
seeds = [1, 2]
[cluster]
sizes = [4, 6]
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 40, processors = 4, load = 0.9 }
[[vary]]
name = "first-fit"
[[vary]]
name = "fcfs"
set = { hpc.order = "fcfs" }
[goal]
hpc.mean_wait_s = "<= 10d"
hpc.unfinished = "< 0"
"""


def test_several_seeds_are_summed_up_and_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "seeds.toml").write_text(SEEDED)
    text = phoenix(capsys, str(tmp_path / "seeds.toml"))
    assert "Over seeds: mean ± standard deviation" in text
    assert "Difference to first-fit, seed by seed: mean, and its 95 % interval" in text
    goal = text[text.index("The goal, and in how many of 2 seeds each level holds:") :].splitlines()
    assert goal[1].split() == ["VARIANT", "NODES", "hpc.mean_wait_s", "<=", "10d", "hpc.unfinished", "<", "0", "ALL"]
    assert " ".join(goal[2].split()) == "first-fit 4 all 0 of 2 0 of 2"
    found = as_json(capsys, str(tmp_path / "seeds.toml"))
    rows = {(row["policy"], row["nodes"]): row for row in found["summary"]}
    assert list(rows) == [("first-fit", 4), ("first-fit", 6), ("fcfs", 4), ("fcfs", 6)]
    waits = {
        (run["policy"], run["seed"]): run["metrics"]["total"]["wait_s"]["mean"]
        for run in found["runs"]
        if run["nodes"] == 4
    }
    mean = sum(waits["fcfs", seed] - waits["first-fit", seed] for seed in (1, 2)) / 2
    difference = rows["fcfs", 4]["differences"]["mean_wait_s"]
    assert difference["mean"] == pytest.approx(mean)
    assert difference["low"] < mean < difference["high"]


def test_ctrl_c_leaves_the_table_of_what_was_finished(
    experiment: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def interrupted(scenario: Scenario) -> Outcome:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(scenario.label)
        return run(scenario)

    monkeypatch.setattr(outputs.engine, "run", interrupted)
    text = phoenix(capsys, experiment, "--workers", "1", code=130)
    assert [line.split()[0:2] for line in text.splitlines()[1:3]] == [["requeue", "5"], ["requeue", "6"]]
    assert "interrupted: 2 of 4 runs were finished (requeue 5, requeue 6)" in text
    made.clear()
    problem, sentence = phoenix(capsys, experiment, "--workers", "1", "--json", code=130).splitlines()[:2]
    assert json.loads(problem)["detail"].startswith("interrupted: 2 of 4 runs were finished")
    assert sentence.startswith("phoenix: interrupted")


def test_ctrl_c_while_it_draws_costs_nothing_that_was_simulated(
    experiment: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_args: object) -> None:
        raise Interrupted("interrupted: none of 9 runs was finished")

    monkeypatch.setattr(outputs, "plot", interrupted)
    text = phoenix(capsys, experiment, "--plots", str(tmp_path), code=130)
    assert text.startswith("RUN ")
    assert text.count("holds in: requeue 5, requeue 6, kill 6") == 2


def test_json_has_every_metric_of_every_run_in_a_stable_order(
    experiment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = as_json(capsys, experiment), as_json(capsys, experiment, "--workers", "1")
    for found in (first, second):
        for each in found["runs"]:
            each["wall_s"] = each["cpu_s"] = 0
    assert first == second
    assert list(first) == ["format", "experiment", "file", "window_s", "notes", "runs"]
    runs = {run["label"]: run for run in first["runs"]}
    assert list(runs) == ["requeue 5", "requeue 6", "kill 5", "kill 6"]
    assert (runs["requeue 5"]["completed"], runs["requeue 5"]["requeued"], runs["requeue 5"]["killed"]) == (3, 1, 0)
    assert (runs["kill 5"]["completed"], runs["kill 5"]["killed"], runs["kill 5"]["policy"]) == (2, 1, "kill")
    assert runs["requeue 5"]["goal"][0] == {"limit": "hpc.killed <= 0", "value": 0.0, "holds": True}
    assert runs["requeue 5"]["metrics"]["web"][0]["department"] == "web"


def test_a_run_is_verified_by_replaying_its_facts(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "verified: 4 runs" in phoenix(capsys, experiment, "--verify")
    assert {run["verified"] for run in as_json(capsys, experiment, "--verify")["runs"]} == {True}


def test_a_replay_that_differs_is_told_and_fails(
    experiment: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(scenario: Scenario) -> Outcome:
        outcome = run(scenario)
        outcome.jobs[0].end_s = 1.0
        return outcome

    monkeypatch.setattr(outputs.engine, "run", forged)
    text = phoenix(capsys, experiment, "--verify", "--run", "kill 5", code=1)
    assert "kill 5: the same scenario has another outcome now" in text


def test_every_job_of_every_run_is_in_the_csv(
    experiment: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    phoenix(capsys, experiment, "--jobs-csv", str(tmp_path / "jobs.csv"))
    with (tmp_path / "jobs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == JOB_COLUMNS
    assert [(row["label"], row["number"]) for row in rows[:4]] == [
        ("requeue 5", "1"),
        ("requeue 5", "2"),
        ("requeue 5", "3"),
        ("requeue 6", "1"),
    ]
    assert len(rows) == 12


def test_plots_are_svg_and_png(experiment: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    phoenix(capsys, experiment, "--plots", str(tmp_path / "figures"), "--run", "requeue 5")
    made = sorted(path.name for path in (tmp_path / "figures").iterdir())
    stems = ("site-distributions", "site-hosts-requeue-5", "site-web")
    assert made == [f"{stem}.{form}" for stem in stems for form in ("png", "svg")]
    assert all(b"<svg" in path.read_bytes()[:1000] for path in (tmp_path / "figures").glob("*.svg"))


# ------------------------------------------------------------------------------------------------------------------- story


def test_a_job_s_story_tells_what_became_of_it_and_why(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = phoenix(capsys, experiment, "--explain", "2", "--run", "requeue 5")
    told = as_json(capsys, experiment, "--explain", "2", "--run", "requeue 5")
    whats = [(event["what"], event["at_s"], event["since_submission_s"]) for event in told["events"]]
    assert whats[:4] == [("submitted", 60, 0), ("placed", 60, 0), ("preempted", 300, 240), ("waits", 300, 240)]
    assert whats[-2:] == [("placed", 900, 840), ("completed", 1500, 1440)]
    assert "Preempted for web demand (web wants 2 instances and has 1)" in text
    assert "it goes back into the queue" in text
    assert "2001-09-09 01:47:40" in text  # the log's time 0, and 60 s
    assert told["events"][2]["reason"]["code"] == "reclaimed"


def test_a_killed_job_s_story_ends_with_that(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = as_json(capsys, experiment, "--explain", "2", "--run", "kill 5")
    assert [event["what"] for event in told["events"]] == ["submitted", "placed", "preempted"]
    assert "it is killed" in told["events"][-1]["told"]


def test_a_job_that_waits_says_for_what(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = phoenix(capsys, experiment, "--explain", "3", "--run", "requeue 5")
    assert "Waits: it needs 4 whole, empty hosts" in text
    assert "Still waits: it needs 4 whole, empty hosts" in text
    told = as_json(capsys, experiment, "--explain", "3", "--run", "requeue 5")
    whats = [(event["what"], event["at_s"]) for event in told["events"]]
    assert whats == [("submitted", 120), ("waits", 120), ("waits", 1200), ("placed", 1500), ("completed", 1560)]


def test_a_story_needs_one_run_and_a_job_that_exists(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'requeue 5', 'requeue 6', 'kill 5', 'kill 6'" in phoenix(capsys, experiment, "--explain", "2", code=2)
    assert "3 jobs, 1 to 3" in phoenix(capsys, experiment, "--explain", "9", "--run", "kill 5", code=2)
    assert "did you mean 'kill 5'?" in phoenix(capsys, experiment, "--explain", "2", "--run", "kil 5", code=2)
    Path(experiment).write_text(EXPERIMENT.replace('"2h"', '"1m"'))
    late = phoenix(capsys, experiment, "--explain", "3", "--run", "kill 5", code=2)
    assert "job 3 is not simulated: it is submitted at 120 s, and the window ends at 60 s" in late


def test_memory_that_no_log_asks_for_is_not_told(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = phoenix(capsys, experiment, "--explain", "3", "--run", "requeue 5")
    assert "it needs 4 whole, empty hosts with 1 core each; 0 of the 4 hosts that the department holds" in text
    Path(experiment).with_name("small.swf").write_text(SWF.replace("60 4 -1 -1 4 -1 -1", "60 4 -1 -1 4 -1 2048"))
    text = phoenix(capsys, experiment, "--explain", "3", "--run", "requeue 5")
    assert (
        "it needs 4 whole, empty hosts with 1 core and 2 MiB each; 0 of the 4 hosts that the department holds have free"
        in text
    )


def test_a_story_is_wrapped_beside_its_times_in_a_terminal(
    experiment: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = phoenix(capsys, experiment, "--explain", "3", "--run", "requeue 5").splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[4].startswith(" " * 33 + "core each; ")


# ---------------------------------------------------------------------------------------------------------------- smallest


def test_the_smallest_cluster_that_keeps_the_goal(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {answer["policy"]: answer for answer in as_json(capsys, experiment, "--smallest")["answers"]}
    assert {policy: answer["smallest"] for policy, answer in answers.items()} == {"requeue": 5, "kill": 6}
    for answer in answers.values():
        tried = {each["hosts"]: each["holds"] for each in answer["tried"]}
        assert tried[answer["smallest"]] is True
        assert not any(holds for hosts, holds in tried.items() if hosts < answer["smallest"])
        assert answer["floor"] == 4
    text = phoenix(capsys, experiment, "--smallest")
    assert "6 hosts is the smallest cluster found that keeps the goal (kill)" in text


def test_a_goal_that_no_cluster_keeps_is_an_answer_too(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(experiment).write_text(EXPERIMENT.replace("<= 25m", "<= 10m"))
    text = phoenix(capsys, experiment, "--smallest", code=1)
    assert "no cluster keeps the goal" in text
    assert "More hosts would only be idle" in text


def test_the_answer_says_what_its_rows_are_and_which_level_is_out_of_reach(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "seeds.toml").write_text(SEEDED.replace('[[vary]]\nname = "first-fit"\n', ""))
    text = phoenix(capsys, str(tmp_path / "seeds.toml"), "--smallest", code=1)
    assert "The goal: hpc.mean_wait_s <= 10d, hpc.unfinished < 0." in text
    assert "A row tells the worst of 2 seeds" in text
    assert "hpc.unfinished < 0 is kept at none of them." in text
    assert "hpc.mean_wait_s <= 10d is kept at none" not in text


# ---------------------------------------------------------------------------------------------------------------- mistakes


def test_mistakes_are_told_in_sentences_with_exit_code_2(
    experiment: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "did you mean 'phoenix-cloud'?" in phoenix(capsys, "phoenix-clod", code=2)
    assert "there is no such file" in phoenix(capsys, str(tmp_path / "no.toml"), code=2)
    assert f"name a file in it: {experiment}" in phoenix(capsys, str(tmp_path), code=2)
    assert f"did you mean {experiment}?" in phoenix(capsys, experiment.removesuffix(".toml"), code=2)
    assert "did you mean --smallest?" in phoenix(capsys, experiment, "--smalest", code=2)
    assert "--plots does nothing beside --smallest" in phoenix(capsys, experiment, "--smallest", "--plots", "x", code=2)
    (tmp_path / "small.swf").write_text("nothing\n")
    assert "small.swf:1" in phoenix(capsys, experiment, code=2)
    Path(experiment).write_text(EXPERIMENT.replace("sizes", "sises").replace("kind", "kinds"))
    text = phoenix(capsys, experiment, code=2)
    assert "cluster.sises" in text
    assert "department.kinds" in text


def test_plots_that_cannot_be_written_are_told_as_such_by_workers_too(experiment: str, tmp_path: Path) -> None:
    (tmp_path / "figures" / "site-web.svg").mkdir(parents=True)
    words = [sys.executable, "-m", "phoenix.cli", "simulate", experiment, "--plots", str(tmp_path / "figures")]
    told = subprocess.run([*words, "--workers", "2"], capture_output=True, text=True, timeout=200, check=False)
    assert told.returncode == 1
    assert "site-web.svg cannot be written: Is a directory" in told.stderr
    assert "Traceback" not in told.stderr


def test_where_output_goes_is_looked_at_before_anything_is_simulated(
    experiment: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_scenario: Scenario) -> Outcome:
        raise AssertionError("nothing is to be simulated")

    monkeypatch.setattr(outputs.engine, "run", never)
    (tmp_path / "taken").write_text("a file", encoding="utf-8")
    text = phoenix(capsys, experiment, "--plots", str(tmp_path / "taken"), code=2)
    assert "taken is a file" in text
    assert "name a directory" in text
    assert "that is a directory" in phoenix(capsys, experiment, "--jobs-csv", str(tmp_path), code=2)
    for words in ([experiment], ["phoenix-cloud"]):
        text = phoenix(capsys, *words, "--jobs-csv", str(tmp_path / "nonexist" / "x.csv"), code=2)
        assert f"there is no directory {tmp_path / 'nonexist'}" in text
    assert not (tmp_path / "nonexist").exists()


def test_a_full_disk_behind_stdout_is_told_without_a_trace(experiment: str) -> None:
    words = [sys.executable, "-m", "phoenix.cli", "simulate", experiment, "--json"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        told = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    assert told.returncode == 1
    assert told.stderr.endswith("phoenix: the output cannot be written: No space left on device\n")
    assert "Traceback" not in told.stderr


def test_completion_offers_built_in_experiments_and_options() -> None:
    assert {"phoenix-cloud", "phoenix-autoscale", "--explain", "--smallest"} <= set(candidates(["simulate"]))
    assert "--plots" in candidates(["simulate", "site.toml"])
    assert "--checkpoints" in candidates(["simulate", "phoenix-cloud"])
    assert "--checkpoints" not in candidates(["simulate", "--plots", "phoenix-cloud"])


def test_a_built_in_experiment_has_options_of_its_own_wherever_its_name_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["phoenix-autoscale", "--capacity", "x"], ["--capacity", "x", "phoenix-autoscale"]):
        assert "argument --capacity" in phoenix(capsys, *words, code=2)


# ------------------------------------------------------------------------------------------------------------------ Ctrl-C


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if Path(f"/proc/{pid}").exists() else ""
    return [int(word) for word in text.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


LONG = """
[experiment]
seeds = [1, 2, 3, 4]
[cluster]
hosts = 64
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 40000, processors = 64, load = 0.9 }
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_ends_every_worker_at_once_and_no_worker_outlives_its_parent(
    tmp_path: Path, how: signal.Signals
) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "phoenix.cli", "simulate", str(tmp_path / "long.toml"), "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    try:
        workers = until(lambda: found if len(found := children(process.pid)) == 2 else None, "two workers")
        if how is signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does it
        else:
            process.kill()
        out, err = process.communicate(timeout=DEADLINE_S)
        until(lambda: not any(alive(worker) for worker in workers), "the end of the workers")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert out == ""
    if how is signal.SIGINT:
        assert process.returncode == 130
        assert err.strip() == "phoenix: interrupted: none of 4 runs was finished"
