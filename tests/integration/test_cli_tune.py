"""`phoenix tune` as a person runs it, on small files: searched, interrupted, gone on with, judged elsewhere, and refused."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import pytest

from phoenix.cli.__main__ import main
from phoenix.search import trials
from phoenix.search.trials import Trial
from tests.support.tuning import GOAL, POINTS, SITE, SPACE, written
from tests.support.until import until

ROOT = Path(__file__).resolve().parents[2]


def rows(directory: Path) -> list[Trial]:
    return [row for row in trials.read(directory / "trials.jsonl")[1] if not row.on]


def searched(words: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main([*words, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_small_space_is_searched_whole_and_the_front_is_what_nothing_beats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*written(tmp_path), *GOAL]
    found = searched(words, capsys)
    assert len(rows(tmp_path)) == found["trials"] == POINTS
    assert found["chosen"] == f"all of the {POINTS} points of the space"
    assert [size["hosts"] for size in found["sizes"]] == [110, 150]
    for size in found["sizes"]:
        mine = [row.result for row in rows(tmp_path) if row.point["cluster.hosts"] == size["hosts"]]
        fewest = min(each["hpc.mean_turnaround_s"] for each in mine)
        assert size["front"][0]["result"]["hpc.mean_turnaround_s"] == fewest
        assert size["as_it_is"]["tuned"]["hpc.completed"] <= max(each["hpc.completed"] for each in mine)
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "as it is" in out
    assert "P99-SLOWDOWN" in out
    assert "static" in out


def test_the_same_command_runs_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*written(tmp_path), *GOAL, "--trials", "9"]
    first = searched(words, capsys)
    written_then = (tmp_path / "trials.jsonl").read_bytes()
    assert searched(words, capsys) == first
    assert (tmp_path / "trials.jsonl").read_bytes() == written_then
    assert searched([*words[:-1], "12"], capsys)["trials"] == 12
    assert (tmp_path / "trials.jsonl").read_bytes().startswith(written_then)


@pytest.mark.long
async def test_a_search_that_is_killed_loses_no_finished_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*written(tmp_path), *GOAL]
    path = tmp_path / "trials.jsonl"
    command = [sys.executable, "-m", "phoenix.cli", *words, "--workers", "2"]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=DEVNULL, stderr=DEVNULL)
    await until(lambda: path.exists() and path.read_bytes().count(b"\n") > 6, "six trials")
    process.kill()
    await process.wait()
    before = rows(tmp_path)
    assert len(before) >= 4
    assert searched(words, capsys)["trials"] == POINTS
    assert rows(tmp_path)[: len(before)] == before
    assert len({json.dumps(row.point, sort_keys=True) for row in rows(tmp_path)}) == POINTS


def test_the_best_are_judged_on_what_they_were_not_tuned_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*written(tmp_path), *GOAL, "hpc.mean_turnaround_s < 5h", "--trials", "10"]
    log = str(tmp_path / "other.swf")
    found = searched(words, capsys, "--holdout", log, "--plot", str(tmp_path / "figures"))
    for size in found["sizes"]:
        best = size["front"][0]
        assert set(best["held_out"]) == {"other.swf 1", "other.swf 2"}
        assert best["verdict"] in ("generalises", "in part", "luck", "no gain")
        assert best["limits_kept_in"] == "2 of 2"
        assert {gain["aim"] for gain in best["gains"]} == {"min hpc.mean_turnaround_s", "max hpc.completed"}
    assert sorted(each.name for each in (tmp_path / "figures").iterdir()) == ["frontier.png", "frontier.svg"]
    assert main([*words, "--holdout", log]) == 0
    out = capsys.readouterr().out
    assert "Held out: other.swf 1, other.swf 2." in out
    assert "VERDICT" in out


@pytest.mark.long
def test_another_world_is_tuned_on_and_not_held_out_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*written(tmp_path, "[axis]\ncluster.hosts = [200]\n"), *GOAL, "--on", "generated 2"]
    found = searched(words, capsys, "--holdout", "seeds=2")
    assert found["held_out"] == []
    assert found["sizes"][0]["front"][0]["result"]["hpc.completed"] > 60  # the log that the files name has no more jobs
    assert "generated 2, " in trials.read(tmp_path / "trials.jsonl")[0].parts["inputs"]


def test_an_experiment_file_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    (tmp_path / "space.toml").write_text('[axis]\nhpc.order = ["easy", "shortest-first"]\n')
    out = ["--space", str(tmp_path / "space.toml"), "--out", str(tmp_path / "t.jsonl"), "--plot", str(tmp_path)]
    words = [
        "tune",
        "--experiment",
        str(tmp_path / "site.toml"),
        *out,
        "--goal",
        "min hpc.mean_wait_s",
        "--workers",
        "1",
    ]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [size["hosts"] for size in found["sizes"]] == [None]
    assert (tmp_path / "frontier.svg").exists()


def test_no_trial_that_keeps_the_limits_is_said_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*written(tmp_path), *GOAL, "hpc.completed > static", "hpc.killed > 1000", "--trials", "3"]
    assert main(words) == 1
    assert "No trial keeps every limit at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--goal", "min hpc.mean_wiat_s"], "did you mean"),
        (["--goal", "hpc.completed > 3"], "nothing is to be small or large"),
        ([*GOAL, "--experiment", "phoenix-clod"], "should be phoenix-cloud, or an experiment file"),
        ([*GOAL, "--holdout", "ktth"], "--holdout ktth: should be"),
        ([*GOAL, "--on", "nowhere"], "--on 'nowhere': there is no such world"),
        ([*GOAL, "--trials", "0"], "'0' is not a number above 0"),
        ([*GOAL, "--for", "soon"], "'soon' is no time"),
        ([*GOAL, "--plot", "own.swf/x"], "is a file"),
        ([*GOAL, "--out", "."], "that is a directory"),
        ([*GOAL, "--out", "own.csv"], "this is no file of trials"),
        ([*GOAL, "--jobs", "space.toml"], "space.toml"),
    ],
)
def test_what_is_odd_is_refused_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: list[str], told: str
) -> None:
    words = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*words, *more]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "trials.jsonl").exists()


def test_a_space_with_a_mistake_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = written(tmp_path, SPACE.replace('"easy"', '"esay"').replace("from = -20000", "from = 30000"))
    assert main([*words, *GOAL]) == 2
    err = capsys.readouterr().err
    assert 'space.toml:4: axis.hpc.order: "esay"' in err
    assert 'did you mean "easy"?' in err
    assert "space.toml:6: axis.hpc.multi_factor.weight_size.from: 30000: should be at most to" in err


def test_trials_of_another_goal_are_refused_with_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = written(tmp_path)
    assert main([*words, "--goal", "max hpc.completed", "--trials", "2"]) == 0
    assert main([*words, *GOAL, "--trials", "2"]) == 2
    assert "goal: max hpc.completed there, min hpc.mean_turnaround_s; max hpc.completed here" in capsys.readouterr().err
