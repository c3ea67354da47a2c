"""A plain simulator of the rules of the experiment `phoenix-cloud`: the yardstick for speed, and an oracle for tests.

    python -m benchmarks.reference --jobs LOG.swf --web REQUESTS.csv [--json]

It shares no line with the product: no facts, no cores, no hosts, only counts of nodes.  What it says was written from the
paper (III-D) and from the rules below, so a wrong reading of them would have to be made twice to go unseen.

Rules
  1. A job needs ceil(processors / 8) nodes and runs as long as it did, at least 1 s; processors: field 5, else 8.
  2. In each minute the web department needs max(1, ceil(64 * requests / most requests)) nodes, and gets them at once.
  3. At one instant: ends, then demand, then submissions in the order of the log, then one pass of first fit over the queue.
  4. Victims: fewest nodes, then shortest running, then job number; whole jobs until enough is free, none is added back.
  5. A victim is gone (`kill`), or enters the queue again at its end and runs from the start (`requeue`).
  6. Completed is what has ended by the end of the window; turnaround is end minus submission, over completed jobs.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

WINDOW_S = 14 * 86400
PROCESSORS_PER_NODE = 8
WEB_MOST = 64  # nodes at the busiest minute
STATIC = 144  # nodes for batch alone, beside WEB_MOST for web
DYNAMIC = (200, 190, 180, 170, 160, 150)
NEVER = math.inf
Mode = Literal["kill", "requeue"]


class Job(NamedTuple):
    number: int
    submit_s: float
    run_s: float
    nodes: int


class Running(NamedTuple):
    job: Job
    start_s: float


class Result(NamedTuple):
    completed: int
    killed: int
    requeued: int
    unfinished: int
    mean_turnaround_s: float


class Batch:
    """`free` falls below 0 when the web department takes nodes that run jobs; `reclaim` then makes room."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.queue: list[Job] = []
        self.running: dict[int, Running] = {}
        self.ends: list[
            tuple[float, int, float]
        ] = []  # end, job, start; what was reclaimed stays in it and is passed over
        self.killed = self.requeued = 0
        self.turnarounds: list[float] = []

    def end(self, now: float) -> None:
        while self.ends and self.ends[0][0] == now:
            _, number, start_s = heapq.heappop(self.ends)
            run = self.running.get(number)
            if run is not None and run.start_s == start_s:
                del self.running[number]
                self.free += run.job.nodes
                self.turnarounds.append(now - run.job.submit_s)

    def reclaim(self, now: float, mode: Mode) -> None:
        if self.free >= 0:
            return
        order = sorted(self.running.values(), key=lambda r: (r.job.nodes, now - r.start_s, r.job.number))
        for run in order:
            if self.free >= 0:
                return
            del self.running[run.job.number]
            self.free += run.job.nodes
            if mode == "kill":
                self.killed += 1
            else:
                self.requeued += 1
                self.queue.append(run.job)

    def first_fit(self, now: float) -> None:
        if self.free <= 0:
            return
        waiting = []
        for job in self.queue:
            if job.nodes <= self.free:
                self.free -= job.nodes
                self.running[job.number] = Running(job, now)
                heapq.heappush(self.ends, (now + job.run_s, job.number, now))
            else:
                waiting.append(job)
        self.queue = waiting

    def result(self) -> Result:
        done = self.turnarounds
        mean = math.fsum(done) / len(done) if done else math.nan
        return Result(len(done), self.killed, self.requeued, len(self.queue) + len(self.running), mean)


def run(
    jobs: Sequence[Job], demand: Sequence[int], nodes: int, mode: Mode = "kill", window_s: float = WINDOW_S
) -> Result:
    """`demand`: nodes that web needs, for each minute; () for a batch department with `nodes` of its own.  `jobs` in the order
    of the log, by submission."""
    batch, last = Batch(nodes), 0
    changes = [(60.0 * m, n) for m, n in enumerate(demand) if not m or n != demand[m - 1]]
    changes.append((NEVER, 0))
    submitted = changed = 0
    while True:
        now = min(batch.ends[0][0] if batch.ends else NEVER, changes[changed][0])
        if submitted < len(jobs):
            now = min(now, jobs[submitted].submit_s)
        if now > window_s:
            return batch.result()
        batch.end(now)
        if changes[changed][0] == now:
            batch.free += last - changes[changed][1]
            last = changes[changed][1]
            changed += 1
            batch.reclaim(now, mode)
        while submitted < len(jobs) and jobs[submitted].submit_s == now:
            batch.queue.append(jobs[submitted])
            submitted += 1
        batch.first_fit(now)


def sweep(jobs: Sequence[Job], demand: Sequence[int]) -> dict[tuple[str, int, Mode | None], Result]:
    """The 13 runs: (configuration, nodes in all, what happens to victims)."""
    found: dict[tuple[str, int, Mode | None], Result] = {("static", STATIC + WEB_MOST, None): run(jobs, (), STATIC)}
    modes: tuple[Mode, ...] = ("kill", "requeue")
    for nodes in DYNAMIC:
        for mode in modes:
            found["dynamic", nodes, mode] = run(jobs, demand, nodes, mode)
    return found


def read_jobs(path: Path) -> list[Job]:
    """Rule 1."""
    found = []
    for line in path.read_text().splitlines():
        fields = line.split()
        if fields and not line.startswith(";"):
            processors = int(fields[4]) if int(fields[4]) > 0 else int(fields[7])
            nodes = -(-processors // PROCESSORS_PER_NODE)
            found.append(Job(int(fields[0]), float(fields[1]), max(1.0, float(fields[3])), nodes))
    return found


def read_demand(path: Path) -> list[int]:
    """Rule 2."""
    with path.open() as stream:
        requests = [int(row["requests"]) for row in csv.DictReader(stream)]
    most = max(requests, default=1)
    return [max(1, math.ceil(WEB_MOST * r / most)) for r in requests]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--web", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.perf_counter()
    runs = [
        {"configuration": configuration, "nodes": nodes, "on_reclaim": mode, **result._asdict()}
        for (configuration, nodes, mode), result in sweep(read_jobs(given.jobs), read_demand(given.web)).items()
    ]
    run_s = time.perf_counter() - began
    if given.json:
        print(json.dumps({"runs": runs, "run_s": run_s}))
        return
    for told in runs:
        print("  ".join(f"{key} {value}" for key, value in told.items()))
    print(f"{run_s:.3f} s")


if __name__ == "__main__":
    main()
