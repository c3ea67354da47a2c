"""Trials of a search: kept as they finish, gone on with, refused where they are another search's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.cli.errors import CliError
from phoenix.search import trials
from phoenix.search.evaluate import Job, evaluate
from phoenix.search.trials import Head, Trial, Trials
from phoenix.simulate.sweep import Interrupted

ROOT = Path(__file__).resolve().parents[2]
HEAD = Head(search="a test", parts={"space": "abc", "goal": "min x"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trials.jsonl"


def squared(job: Job) -> dict[str, int]:
    return {"y": job.point["x"] ** 2}


def ran(path: Path, count: int, workers: int = 1) -> list[Trial]:
    with trials.opened(path, HEAD) as found:
        evaluate(found, [Job({"x": x}) for x in range(count)], squared, title="test", workers=workers)
        return list(found.rows)


# -------------------------------------------------------------------------------------------------------------- the file


def test_what_is_in_the_file_is_not_run_again(path: Path) -> None:
    assert [row.result["y"] for row in ran(path, 3)] == [0, 1, 4]
    before = path.read_bytes()
    heard: list[int] = []
    with trials.opened(path, HEAD) as found:
        jobs = [Job({"x": 1}), Job({"x": 5}), Job({"x": 1}, on="a log")]
        assert evaluate(found, jobs, squared, lambda row: heard.append(row.number), title="test", workers=1) == 2
    assert heard == [2, 4, 5]  # what was known is told of as well
    assert path.read_bytes().startswith(before)
    assert trials.read(path) == (HEAD, found.rows)


def test_a_torn_last_line_is_dropped_and_said(path: Path) -> None:
    ran(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with trials.opened(path, HEAD) as found:
        assert len(found.rows) == 2
        assert "its last line is torn" in found.notes[0]
    assert [row.result["y"] for row in ran(path, 3)] == [0, 1, 4]
    assert len(trials.read(path)[1]) == 3


def test_trials_of_another_search_are_refused_with_what_differs(path: Path) -> None:
    ran(path, 2)
    before = path.read_bytes()
    other = Head(search="a test", parts={"space": "abc", "goal": "min y"})
    with pytest.raises(CliError, match="goal: min x there, min y here") as caught, trials.opened(path, other):
        pass
    assert "space" not in caught.value.message
    with (
        pytest.raises(CliError, match="not of something else"),
        trials.opened(path, Head(search="something else", parts={})),
    ):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"hello\n", "line 1"), (b'{"search":"a test","parts":{},"format":9}\n', "format 9")],
)
def test_another_file_is_not_written_to(path: Path, content: bytes, told: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CliError, match=told), trials.opened(path, HEAD):
        pass
    assert path.read_bytes() == content


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(path: Path) -> None:
    ran(path, 3)
    lines = path.read_bytes().splitlines()
    lines[2] = b'{"number": 2'
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(CliError, match=r"trials\.jsonl:3: no trial"), trials.opened(path, HEAD):
        pass


def test_one_process_writes_at_a_time(path: Path) -> None:
    with (
        trials.opened(path, HEAD),
        pytest.raises(CliError, match="another search is writing"),
        trials.opened(path, HEAD),
    ):
        pass


def test_a_worker_that_is_left_does_not_hold_the_file(path: Path) -> None:
    (awaited, end), (begun, told) = os.pipe(), os.pipe()
    with trials.opened(path, HEAD):
        worker = os.fork()
        if worker == 0:
            os.close(end)
            os.write(told, b"x")
            os.read(awaited, 1)  # until its parent has closed the other end
            os._exit(0)
        os.read(begun, 1)
    with trials.opened(path, HEAD) as found:
        assert found.rows == []
    for fd in (end, awaited, begun, told):
        os.close(fd)
    os.waitpid(worker, 0)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be opened: Is a directory"), trials.opened(tmp_path, HEAD):
        pass


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert trials.digest({"a": 1, "b": 2}) == trials.digest({"b": 2, "a": 1}) != trials.digest({"a": 1})


# ------------------------------------------------------------------------------------------------------------ evaluation


def test_several_workers_make_the_same_trials(path: Path) -> None:
    assert {row.result["y"] for row in ran(path, 12, workers=2)} == {n * n for n in range(12)}


def test_the_next_job_may_follow_from_what_was_told(path: Path) -> None:
    heard: list[Trial] = []

    def jobs() -> Iterator[Job]:
        while len(heard) < 4:
            yield Job({"x": heard[-1].result["y"] + 1 if heard else 1})

    with trials.opened(path, HEAD) as found:
        evaluate(found, jobs(), squared, heard.append, title="test", workers=1)
    assert [row.result["y"] for row in heard] == [1, 4, 25, 676]


def test_nothing_is_begun_when_time_is_over(path: Path) -> None:
    seconds = iter([0.0, 1.0, 59.0, 61.0])
    with trials.opened(path, HEAD) as found:
        jobs = [Job({"x": x}) for x in range(9)]
        assert evaluate(found, jobs, squared, title="t", for_s=60.0, workers=1, clock=lambda: next(seconds)) == 2


def test_ctrl_c_says_what_is_kept(path: Path) -> None:
    def pressed(job: Job) -> dict[str, int]:
        if job.point["x"] == 2:
            raise KeyboardInterrupt
        return squared(job)

    with trials.opened(path, HEAD) as found, pytest.raises(Interrupted, match=r"2 trials were finished, .*has 2"):
        evaluate(found, [Job({"x": x}) for x in range(5)], pressed, title="test", workers=1)
    assert len(ran(path, 5)) == 5


def test_a_trial_that_raises_is_named(path: Path) -> None:
    with trials.opened(path, HEAD) as found, pytest.raises(KeyError) as caught:
        evaluate(found, [Job({"z": 1}, on="a log")], squared, title="test", workers=1)
    assert caught.value.__notes__ == ["in trial {'z': 1} a log"]


KILLED = """
import sys
from pathlib import Path
from phoenix.search import trials
from phoenix.search.evaluate import Job, evaluate
def told(row):
    print(row.number, flush=True)
    if row.number == 3:
        sys.stdin.read()  # until it is killed
with trials.opened(Path(sys.argv[1]), trials.Head(search="a test", parts={"space": "abc", "goal": "min x"})) as found:
    evaluate(found, [Job({"x": x}) for x in range(9)], lambda job: {"y": job.point["x"] ** 2}, told, title="t", workers=2)
"""


def test_a_process_that_is_killed_loses_no_finished_trial(path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        assert [process.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        os.kill(process.pid, signal.SIGKILL)
    kept = trials.read(path)[1]
    assert len(kept) == 3
    rows = ran(path, 9)
    assert rows[:3] == kept
    assert sorted(row.result["y"] for row in rows) == [n * n for n in range(9)]


def test_rows_are_known_by_point_and_by_what_they_ran_on(path: Path) -> None:
    with trials.opened(path, HEAD) as found:
        found.add({"a": 1, "b": 2}, {}, on="x")
        assert isinstance(found, Trials)
        assert found.known({"b": 2, "a": 1}, "x") is not None
        assert found.known({"b": 2, "a": 1}) is None
