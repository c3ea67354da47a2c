"""What got slower: the benchmarks of today and of another commit, in turn on one machine.

    make bench [AGAINST=<commit>] [PAIRS=5] [QUICK=1]
    python -m benchmarks.against [COMMIT] [--pairs 5] [--quick]

Absolute figures are the machine's mood: the same commit has completed 204 trivial jobs a second in one sitting and 99 in
another.  So each benchmark is run with both commits close together, in pairs, and what is printed is the median of the pairs'
ratios with the smallest and the largest.  CPU a job by process is steadier than time, and says where it goes.

The other commit is checked out in build/bench/<commit> with an environment of its own, and stays there for the next time.

Rules
  1. Every second pair begins with the other commit, so that neither always comes after the other.
  2. What runs a cloud (submit, throughput, spike) is today's benchmark with either cloud: the same load from the same program.
  3. What calls a core (decisions, fold) is each commit's own benchmark, as cores and modules have changed, by the CPU's clock.
  4. What the other commit cannot run is left out, with its last word; a figure that it lacks is named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.cloud import table

ROOT: Final = Path(__file__).resolve().parents[1]
PAIRS: Final = 5  # fewer, and one busy moment of the machine is in the median
END_S: Final = 90.0  # to end a cloud: `cloud.cloud` gives it a minute
RUN_S: Final = 300.0  # ten times what a run takes on an idle machine
GIT_S: Final = 60.0  # a checkout of a thousand files
BUILD_S: Final = 600.0  # pip and the network
TODAY: Final = "today"

# A benchmark that asks for the time gets the CPU's: on a shared machine the wall's says who else was busy.
BY_CPU: Final = (
    "import runpy, sys, time; time.perf_counter = time.process_time; sys.argv = sys.argv[1:]; sys.path.insert(0, '.'); "
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


class BenchError(Exception):
    """The comparison cannot be made; the message says why, and what would be right."""


@dataclass
class Run:
    """One run of one benchmark: figures by name, and milliseconds of CPU a unit of work, by load and process."""

    figures: dict[str, float]
    cpu_ms: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A module of `benchmarks` and what it is run with.  `own`: each commit's own one is run (rule 3)."""

    name: str
    options: str
    quick: str
    read: Callable[[str], Run]
    own: bool = False


@dataclass(frozen=True)
class Side:
    """One of the two commits."""

    name: str
    tree: Path

    def command(self, benchmark: Benchmark, options: str) -> list[str]:
        module = [f"benchmarks.{benchmark.name}", *options.split()]
        if benchmark.own:
            return [f"{self.tree}/.venv/bin/python", "-c", BY_CPU, *module]
        return [sys.executable, "-m", *module]

    def run(self, benchmark: Benchmark, options: str) -> Run:
        """BenchError if it does not come to its end."""
        environment = {name: value for name, value in os.environ.items() if name not in ("BENCH_TREE", "PYTHONPATH")}
        if self.tree != ROOT and not benchmark.own:
            environment["BENCH_TREE"] = str(self.tree)
        where = self.tree if benchmark.own else ROOT
        command = self.command(benchmark, options)
        return benchmark.read(output_of(command, where, RUN_S, environment))


# ---------------------------------------------------------------------------------------------------- reading what they say


def last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def read_told(output: str) -> Run:
    """What `benchmarks.cloud.tell` has printed."""
    told = json.loads(last_line(output))
    return Run(told["figures"], told["cpu_ms"])


def read_decisions(output: str) -> Run:
    """The JSON of `benchmarks.decisions`: milliseconds by order, queue and case; None is a case that cannot be had."""
    told = json.loads(last_line(output))
    figures = {
        f"{order}, {case}: ms": took
        for order, by_queue in told["orders"].items()
        for by_case in by_queue.values()
        for case, took in by_case.items()
        if took is not None
    }
    victims = {
        f"{name}, {notice} victims: ms": took for name, by in told["victims"].items() for notice, took in by.items()
    }
    return Run(figures | victims)


def read_fold(output: str) -> Run:
    """The table of `benchmarks.fold`: columns are two blanks apart, and the second is in seconds."""
    rows = [re.split(r" {2,}", line.strip()) for line in output.splitlines() if line.strip()]
    return Run({f"{row[0]}: CPU s": float(row[1]) for row in rows[1:]})


BENCHMARKS: Final = (
    Benchmark("submit", "--jobs 300 --at-once 500 --json", "--jobs 40 --at-once 40 --json", read_told),
    Benchmark("throughput", "--jobs 400 --json", "--jobs 30 --hypervisor dummy --json", read_told),
    Benchmark("spike", "--spikes 8 --hosts 50 --json", "--spikes 2 --hosts 10 --json", read_told),
    Benchmark(
        "decisions",
        "--hosts 200 --queue 1000 --orders first-fit easy --repeats 5 --json",
        "--hosts 10 --queue 20 --orders first-fit --repeats 1 --json",
        read_decisions,
        own=True,
    ),
    Benchmark("fold", "--facts 20000", "--facts 1000", read_fold, own=True),
)


# ----------------------------------------------------------------------------------------------------------- the comparison


@dataclass(frozen=True)
class Compared:
    """One figure over all pairs: medians of both sides; of the ratios today ÷ other the median, smallest and largest."""

    today: float
    other: float | None = None
    ratio: float | None = None
    least: float | None = None
    most: float | None = None


def compare(today: Sequence[float], other: Sequence[float]) -> Compared:
    """`other` is empty if there is none, or it lacks the figure; else the n-th of both are a pair.  A pair with a 0 has no
    ratio."""
    if not other:
        return Compared(statistics.median(today))
    ratios = [a / b for a, b in zip(today, other, strict=True) if b]
    medians = statistics.median(today), statistics.median(other)
    return Compared(*medians, statistics.median(ratios), min(ratios), max(ratios)) if ratios else Compared(*medians)


def compared(runs: Sequence[dict[str, float]], others: Sequence[dict[str, float]]) -> dict[str, Compared]:
    """By name, of everything that each run of today tells; what only some runs of the other tell counts as lacking."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    lacking = {name for name in names if any(name not in run for run in others)}
    return {
        name: compare([run[name] for run in runs], [] if name in lacking else [run[name] for run in others])
        for name in names
    }


def turns(pairs: int, sides: Sequence[Side]) -> list[Sequence[Side]]:
    """Rule 1."""
    return [sides if pair % 2 == 0 else sides[::-1] for pair in range(pairs)]


class Bench:
    """Runs everything, and keeps what came of it."""

    def __init__(self, sides: Sequence[Side], quick: bool) -> None:
        self.sides, self.quick = sides, quick
        self.runs: dict[tuple[str, str], list[Run]] = {(s.name, b.name): [] for s in sides for b in BENCHMARKS}
        self.left_out: dict[str, str] = {}  # benchmark -> why the other commit has no part in it
        self.load: list[float] = []

    def go(self, pairs: int) -> None:
        for number, sides in enumerate(turns(pairs, self.sides), 1):
            for benchmark in BENCHMARKS:
                for side in sides:
                    self._one(number, pairs, benchmark, side)

    def _one(self, number: int, pairs: int, benchmark: Benchmark, side: Side) -> None:
        if side.name != TODAY and benchmark.name in self.left_out:
            return
        self.load.append(os.getloadavg()[0])
        print(f"{number}/{pairs} {benchmark.name}, {side.name} (load {self.load[-1]:.1f})", file=sys.stderr, flush=True)
        try:
            run = side.run(benchmark, benchmark.quick if self.quick else benchmark.options)
        except BenchError as error:
            if side.name == TODAY:
                raise BenchError(f"{benchmark.name} fails here: {error}") from error
            self.left_out[benchmark.name] = str(error)
            return
        self.runs[side.name, benchmark.name].append(run)

    def of(self, benchmark: Benchmark) -> tuple[list[Run], list[Run]]:
        """The runs of today, and those of the other commit: as many, or none."""
        other = [] if benchmark.name in self.left_out else self.runs.get((self.sides[-1].name, benchmark.name), [])
        return self.runs[TODAY, benchmark.name], other if len(self.sides) > 1 else []


# ------------------------------------------------------------------------------------------------------------- the other one


def output_of(command: Sequence[str], where: Path, deadline_s: float, environment: dict[str, str] | None = None) -> str:
    """What a program prints.  BenchError with its last word if it fails.  One that takes too long is interrupted, so that it
    ends the cloud that it has started, and killed only if it does not."""
    with subprocess.Popen(
        command,
        cwd=where,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            told, complaint = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired as error:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise BenchError(f"{' '.join(command)} has not ended after {deadline_s:g} s") from error
        except BaseException:  # Ctrl-C goes to it as well
            process.wait(END_S)
            raise
    if process.returncode:
        raise BenchError(last_line(complaint) or f"{' '.join(command)} ended with {process.returncode}, in silence")
    return told


def git(*arguments: str) -> str:
    return output_of(["git", *arguments], ROOT, GIT_S).strip()


def commit_of(name: str) -> str:
    """The first twelve digits of a commit's number."""
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")[:12]
    except BenchError as error:
        raise BenchError(f"{name!r} is no commit of this repository: AGAINST takes what `git log` shows") from error


def built(commit: str) -> Path:
    """Its checkout with an environment, made if it is not there from the last time."""
    tree = ROOT / "build" / "bench" / commit
    python, ready = tree / ".venv/bin/python", tree / ".venv/.ready"
    if ready.exists():
        return tree
    print(f"setting up {tree.relative_to(ROOT)} (once)", file=sys.stderr, flush=True)
    git("worktree", "prune")
    if not (tree / "pyproject.toml").exists():
        git("worktree", "add", "--detach", "--force", str(tree), commit)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", "."]
    compiled = [str(python), "-m", "compileall", "-q", "services", "schemas", "phoenix"]
    for command in ([sys.executable, "-m", "venv", str(tree / ".venv")], pip, compiled):
        try:
            output_of(command, tree, BUILD_S)
        except BenchError as error:
            raise BenchError(f"{commit} cannot be built: {error}") from error
    ready.touch()
    return tree


# ----------------------------------------------------------------------------------------------------------------- telling


def show(bench: Bench) -> None:
    other = bench.sides[1].name if len(bench.sides) > 1 else None
    for benchmark in BENCHMARKS:
        today, others = bench.of(benchmark)
        print(f"{benchmark.name} ({benchmark.quick if bench.quick else benchmark.options})")
        if benchmark.name in bench.left_out:
            print(f"  {other} cannot run it, and is left out: {bench.left_out[benchmark.name]}")
        found = compared([run.figures for run in today], [run.figures for run in others])
        _rows("figure", found, other if others else None)
        for load in today[0].cpu_ms:
            by = compared([with_sum(r.cpu_ms[load]) for r in today], [with_sum(r.cpu_ms[load]) for r in others])
            _rows(f"CPU ms a {UNITS.get(load, f'job ({load})')}", by, other if others else None)
        print()
    few = "" if other is None else "ratio: today ÷ other, median of the pairs (smallest to largest).  "
    loads = f"{min(bench.load):.1f} to {max(bench.load):.1f}, median {statistics.median(bench.load):.1f}"
    print(f"{few}Load average of the machine: {loads}; {os.cpu_count()} cores.")


UNITS: Final = {"spike": "spike", "submission": "submission"}  # all others are kinds of machines that run jobs


def with_sum(cpu_ms: dict[str, float]) -> dict[str, float]:
    return cpu_ms | {"all": sum(cpu_ms.values())}


def _rows(head: str, found: dict[str, Compared], other: str | None) -> None:
    if other is None:
        table([[head, TODAY], *([name, one.today] for name, one in found.items())])
        return
    rows: list[list[object]] = [[head, TODAY, other, "ratio", "spread"]]
    for name, one in found.items():
        if one.ratio is None:
            rows.append([name, one.today, "lacks it" if one.other is None else one.other, "", ""])
        else:
            rows.append([name, one.today, one.other, f"{one.ratio:.2f}", f"{one.least:.2f} to {one.most:.2f}"])
    table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="the other one; without it, today's figures alone")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--quick", action="store_true", help="seconds a run: whether it works, not how fast")
    given = parser.parse_args()
    if given.pairs < 1:
        parser.error("--pairs is at least 1")
    # A shell's job in the background ignores it, and so would what is interrupted here (`output_of`).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sides = [Side(TODAY, ROOT)]
        if given.commit:
            commit = commit_of(given.commit)
            sides.append(Side(commit, built(commit)))
        bench, began = Bench(sides, given.quick), time.monotonic()
        bench.go(given.pairs)
    except BenchError as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    changed = ", with changes that are not committed" if git("status", "--porcelain", "--untracked-files=no") else ""
    against = f" against {sides[1].name}" if given.commit else ""
    print(
        f"{TODAY} is {commit_of('HEAD')}{changed}{against}; pairs: {given.pairs}, in {time.monotonic() - began:.0f} s\n"
    )
    show(bench)


if __name__ == "__main__":
    main()
