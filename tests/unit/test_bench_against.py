"""`make bench AGAINST=…`: its arithmetic, its turns, and what it makes of what benchmarks and commits say."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import against, cloud
from benchmarks.against import BENCHMARKS, TODAY, Bench, BenchError, Benchmark, Compared, Run, Side, compare

HERE, THERE = Side(TODAY, Path("/here")), Side("0123456789ab", Path("/there"))


def test_each_pair_has_its_ratio_and_the_median_of_them_counts_not_that_of_all_runs() -> None:
    one = compare([100, 50, 90], [200, 50, 60])  # a machine that was busy in the second pair
    assert one == Compared(today=90, other=60, ratio=1.0, least=0.5, most=1.5)


def test_without_another_commit_there_is_no_ratio_and_none_of_nothing() -> None:
    assert compare([3, 1, 2], []) == Compared(today=2)
    assert compare([3, 1], [0, 0]) == Compared(today=2, other=0)
    assert compare([3, 1], [0, 2]).ratio == 0.5


def test_what_the_other_commit_lacks_stands_without_a_ratio_and_what_today_lacks_is_left_out() -> None:
    found = against.compared([{"a": 1, "new": 2}, {"a": 3, "new": 2}], [{"a": 1, "old": 5}, {"a": 1, "new": 5}])
    assert found == {"a": Compared(2, 1, 2, 1, 3), "new": Compared(2)}


def test_every_second_pair_begins_with_the_other_commit() -> None:
    assert against.turns(3, [HERE, THERE]) == [[HERE, THERE], [THERE, HERE], [HERE, THERE]]
    assert against.turns(2, [HERE]) == [[HERE], [HERE]]


def test_the_line_of_a_benchmark_of_the_cloud_is_read_as_it_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    cloud.tell({"jobs/s": 80.0, "lacking": math.nan}, {"dummy": {"executor": 0.5, "nats": 0.25}}, 100)
    run = against.read_told("a word before\n" + capsys.readouterr().out)
    assert run == Run({"jobs/s": 80.0}, {"dummy": {"executor": 5.0, "nats": 2.5}})
    assert against.with_sum(run.cpu_ms["dummy"])["all"] == 7.5


def test_the_table_of_fold_is_read_with_blanks_in_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    cloud.table([["what", "seconds", "facts/s"], ["provisioner: load it", 0.5, ""], ["x: fold 9 facts", 1e-5, 3.0]])
    expected = {"provisioner: load it: CPU s": 0.5, "x: fold 9 facts: CPU s": 1e-5}
    assert against.read_fold(capsys.readouterr().out).figures == expected


def test_decisions_are_read_by_order_case_and_victims_without_what_cannot_be_had() -> None:
    told = (
        '{"hosts": 9, "orders": {"easy": {"20": {"nothing": 0.2, "held back": null}}}, "victims": {"all": {"10": 3}}}'
    )
    assert against.read_decisions(told).figures == {"easy, nothing: ms": 0.2, "all, 10 victims: ms": 3}


def test_cpu_is_of_a_process_with_all_that_it_has_started_alive_or_gone() -> None:
    before = cloud.cpu_below(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.1: pass\n"
    subprocess.run([sys.executable, "-c", burn], check=True)
    waiting = "print(flush=True)\nimport sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", burn + waiting], stdin=-1, stdout=subprocess.PIPE) as alive:
        assert alive.stdout is not None
        alive.stdout.readline()
        assert cloud.cpu_below(os.getpid()) - before >= 0.15
    assert cloud.cpu_seconds(alive.pid) == 0.0


# ----------------------------------------------------------------------------------------------------- another commit


class Scripted(Side):
    """Answers each benchmark without running it; those in `fails` end in an error."""

    def __init__(self, name: str, *fails: str) -> None:
        super().__init__(name, Path(*fails))

    def run(self, benchmark: Benchmark, options: str) -> Run:
        if benchmark.name in self.tree.parts:
            raise BenchError("unrecognized arguments: --at-once")
        return Run({"jobs/s": 8.0 if self.name == TODAY else 10.0}, {"dummy": {"nats": 2.0}})


def test_a_benchmark_that_the_other_commit_cannot_run_is_left_out_with_its_last_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = Bench([Scripted(TODAY), Scripted("0123456789ab", "decisions")], quick=True)
    bench.go(2)
    against.show(bench)
    told = capsys.readouterr().out
    assert "0123456789ab cannot run it, and is left out: unrecognized arguments: --at-once" in told
    assert told.count("jobs/s  8      10            0.80   0.80 to 0.80") == len(BENCHMARKS) - 1
    assert "CPU ms a job (dummy)" in told
    assert len(bench.load) == 4 * len(BENCHMARKS) - 1  # it is not tried twice


def test_a_benchmark_that_fails_here_ends_everything_and_says_so() -> None:
    with pytest.raises(BenchError, match="spike fails here: unrecognized arguments"):
        Bench([Scripted(TODAY, "spike")], quick=True).go(1)


def test_todays_benchmark_runs_the_other_cloud_and_the_others_own_one_its_core() -> None:
    submit, fold = BENCHMARKS[0], BENCHMARKS[-1]
    assert THERE.command(submit, "--json") == [sys.executable, "-m", "benchmarks.submit", "--json"]
    assert THERE.command(fold, "") == ["/there/.venv/bin/python", "-c", against.BY_CPU, "benchmarks.fold"]


def test_an_unknown_commit_is_refused_with_what_would_be_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setattr(against, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["against", "--pairs", "1", "no-such-one"])
    with pytest.raises(SystemExit, match="bench: 'no-such-one' is no commit of this repository: AGAINST takes"):
        against.main()
    monkeypatch.setattr(sys, "argv", ["against", "--pairs", "0"])
    with pytest.raises(SystemExit):
        against.main()
    assert "--pairs is at least 1" in capfd.readouterr().err


def test_a_run_that_takes_too_long_ends_what_it_has_started(tmp_path: Path) -> None:
    """Killed at once it left its cloud behind, which then took CPU from the runs that followed."""
    script = "trap 'echo ended > end; exit 1' INT; while :; do sleep 0.05; done"
    with pytest.raises(BenchError, match="has not ended after 2 s"):
        against.output_of(["sh", "-c", script], tmp_path, 2.0)
    assert (tmp_path / "end").read_text() == "ended\n"
