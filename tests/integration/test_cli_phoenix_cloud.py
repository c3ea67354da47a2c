"""`phoenix simulate phoenix-cloud` as a person runs it, on files of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phoenix.cli.__main__ import main
from phoenix.simulate.workload import LogJob, Series
from phoenix_papers.phoenix_cloud import inputs

FIELDS = {
    "configuration",
    "nodes",
    "on_reclaim",
    "completed",
    "killed",
    "requeued",
    "unfinished",
    "mean_turnaround_s",
    "wall_s",
}
MINUTES = [3, 3, 9, 30, 90, 100, 80, 30, 9, 3]  # requests; 100 of them want 64 nodes


def _swf(count: int) -> str:
    """Jobs of 8 to 800 processors, one a minute."""
    lines = ["; MaxNodes: 144", "; MaxProcs: 1152"]
    for number in range(1, count + 1):
        processors, run_s = 8 * (1 + number * 37 % 100), 60 + number * 97 % 600
        lines.append(f"{number} {60 * number} -1 {run_s} {processors} -1 -1 {processors} -1 -1 1 7 -1 -1 -1 -1 -1 -1")
    return "\n".join([*lines, "this line is no job", ""])


@pytest.fixture
def own_files(tmp_path: Path) -> list[str]:
    (tmp_path / "own.swf").write_text(_swf(40))
    rows = [f"1998-06-07 00:{minute:02}:00,{requests}" for minute, requests in enumerate(MINUTES)]
    (tmp_path / "own.csv").write_text("\n".join(["minute_gmt,requests", *rows, ""]))
    return ["--jobs", str(tmp_path / "own.swf"), "--web", str(tmp_path / "own.csv")]


def _phoenix(*words: str) -> int:
    return main(["simulate", "phoenix-cloud", "--workers", "1", *words])


def test_the_document_has_the_thirteen_runs(own_files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _phoenix(*own_files, "--json", "--verify") == 0
    out, err = capsys.readouterr()
    told: dict[str, Any] = json.loads(out)
    found = [(run["configuration"], run["nodes"], run["on_reclaim"]) for run in told["runs"]]
    shared = [
        ("dynamic", nodes, reading) for nodes in (200, 190, 180, 170, 160, 150) for reading in ("kill", "requeue")
    ]
    assert found == [("static", 208, None), *shared]
    assert all(set(run) >= FIELDS for run in told["runs"])
    assert all(run["completed"] + run["killed"] + run["unfinished"] == 40 for run in told["runs"])
    assert any(run["killed"] for run in told["runs"])
    assert any(run["requeued"] for run in told["runs"])
    assert [(claim["reading"], type(claim["holds"])) for claim in told["claims"]] == [("kill", bool), ("requeue", bool)]
    assert told["inputs"]["stand_ins"] == []
    assert told["inputs"]["jobs"] == "own.swf"
    assert "own.swf:43" in err  # the line that is no job is named


def test_table_plots_and_jobs(own_files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, jobs = tmp_path / "figures", tmp_path / "jobs.csv"
    assert _phoenix(*own_files, "--plots", str(figures), "--jobs-csv", str(jobs)) == 0
    out = capsys.readouterr().out
    assert "160 requeue" in out
    assert "The paper's claim: at 160 nodes (76.9" in out
    assert {path.suffix for path in figures.iterdir()} == {".svg", ".png"}
    assert len(list(figures.iterdir())) == 6
    assert len(jobs.read_text().splitlines()) == 1 + 13 * 40


def test_a_jobs_story(own_files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _phoenix(*own_files, "--explain", "3", "--run", "150 kill") == 0
    assert "job 3 of hpc in run 150 kill" in capsys.readouterr().out
    assert _phoenix(*own_files, "--explain", "3", "--run", "151 kill") == 2
    assert _phoenix(*own_files, "--explain", "999") == 2


@pytest.mark.long
def test_without_the_public_traces_generated_ones_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHOENIX_TRACES", str(tmp_path))
    assert _phoenix("--explain", "1", "--json") == 0
    out, err = capsys.readouterr()
    assert f"are not there (looked in {tmp_path}; " in err
    assert "a modelled web load stand in (seed 1)" in err
    assert json.loads(out)["job"] == 1


def test_of_inputs_that_stand_in_there_is_no_verdict_on_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHOENIX_TRACES", str(tmp_path / "nothing"))
    jobs = [LogJob(number=number, submit_s=60.0 * number, run_s=300.0, processors=80) for number in range(1, 9)]
    starts = tuple(60.0 * minute for minute in range(len(MINUTES)))
    web = Series(unit="requests", starts=starts, values=tuple(map(float, MINUTES)))
    monkeypatch.setattr(inputs, "generated_jobs", lambda: jobs)
    monkeypatch.setattr(inputs, "generated_web", lambda: web)
    assert _phoenix() == 0
    out = capsys.readouterr().out
    said = "No verdict on that: the jobs and the web load were generated.  With these inputs:\n  kill     more jobs complete at"
    assert said in out
    assert "hold" not in out.partition("The paper's claim")[2]
    assert _phoenix("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [claim["holds"] for claim in told["claims"]] == [None, None]
    assert told["inputs"]["stand_ins"] == ["the jobs", "the web load"]


def test_one_file_of_ones_own_leaves_the_other_input_a_stand_in(
    own_files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHOENIX_TRACES", str(tmp_path / "nothing"))
    jobs, web = Path(own_files[1]), Path(own_files[3])
    assert inputs.read(jobs, None).stand_ins == ("the web load",)
    assert inputs.read(None, web).stand_ins == ("the jobs",)
    assert inputs.read(jobs, web).stand_ins == ()


def test_a_file_that_is_no_log_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.swf").write_text("; nothing\n")
    assert _phoenix("--jobs", str(tmp_path / "empty.swf")) == 2
    assert "empty.swf" in capsys.readouterr().err
    assert _phoenix("--jobs", str(tmp_path / "none.swf")) == 2
    assert "none.swf" in capsys.readouterr().err
