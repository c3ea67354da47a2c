"""What it costs a scheduler to say when a job would start, and what its decisions feel of it.

    python -m benchmarks.whatif [--hosts 1000] [--queue 10000] [--orders easy fcfs …]

A thousand full hosts and a queue as in `benchmarks.decisions`; asked is for a job of one host and four variants of it.  COPY is
what the loop pays; ANSWER the time until it is there; DECISION a decision (a job is submitted, nothing has room) on the loop,
the median and the longest without and with a question under way in its thread.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import msgspec

from benchmarks.cloud import table
from benchmarks.decisions import DEPT, Bench
from phoenix.policies import names
from schemas import facts as f
from schemas.config import BatchPolicy
from services.scheduler.lookahead.looks import Looks
from services.scheduler.lookahead.start_estimate import copied
from services.scheduler.lookahead.whatif import WhatIf

DECISIONS = 50


def decide(bench: Bench) -> float:
    """Seconds of one decision after a submission."""
    bench.one_more()
    began = time.perf_counter()
    bench.core.decide(bench.now)
    return time.perf_counter() - began


async def measure(bench: Bench) -> list[float]:
    began = time.perf_counter()
    copied(bench.core)
    copy_s = time.perf_counter() - began
    alone = [decide(bench) for _ in range(DECISIONS)]
    job = f.JobSubmitted(job="1", dept=DEPT, user="u01", name="x", payload="", cores=4, walltime_s=7200.0)
    shorter = [msgspec.structs.replace(job, walltime_s=7200.0 / part) for part in (2, 4, 8)]
    data = msgspec.json.encode({"jobs": [job, *shorter, msgspec.structs.replace(job, best_effort=True)]})
    began = time.perf_counter()
    asked = asyncio.create_task(WhatIf(DEPT, Looks()).answer(bench.core, data, bench.now))
    beside = []
    while not asked.done():
        await asyncio.sleep(0.001)
        beside.append(decide(bench))
    await asked
    answer_s = time.perf_counter() - began
    return [copy_s, answer_s, statistics.median(alone), max(alone), statistics.median(beside), max(beside)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--queue", type=int, default=10_000)
    parser.add_argument("--orders", nargs="+", choices=names("order"), default=["fcfs", "easy", "conservative"])
    asked = parser.parse_args()
    rows: list[list[object]] = [["order", "copy s", "answer s", "decision s", "longest", "beside: s", "longest"]]
    for order in asked.orders:
        bench = Bench(asked.hosts, BatchPolicy(order=order))
        bench.fill()
        bench.wait(asked.queue)
        rows.append([order, *(f"{value:.4f}" for value in asyncio.run(measure(bench)))])
    table(rows)


if __name__ == "__main__":
    main()
