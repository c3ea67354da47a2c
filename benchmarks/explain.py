"""What it costs a scheduler to say why jobs wait, and for how long its loop is held up by that.

    python -m benchmarks.explain [--hosts 1000] [--queue 10000] [--orders easy conservative …] [--repeats 5]

A thousand full hosts and a queue as in `benchmarks.decisions`.  Asked is for one job far back (`phoenix why`): IN ONE PIECE as
the core says it when nothing else is to be done, ANSWER and PAUSE as the service answers: the time until it is there, and the
longest that the loop was held up.  Then for everybody at once, as the monitor asks every two seconds: EVERYBODY, PAUSE.  And
the copy on which starts are foreseen.  Seconds of CPU of the loop's thread, medians of the repeats.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.cloud import table
from benchmarks.decisions import Bench
from phoenix.policies import names
from schemas.config import BatchPolicy
from services.runtime.main import GC_THRESHOLDS
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.reasons import Look
from services.scheduler.lookahead.start_estimate import copied
from services.scheduler.lookahead.why import why

PLACE = 0.9  # of the queue: who is asked for


async def beside(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """How long the work took, and the longest that the loop was held up by it."""
    pauses: list[float] = []

    async def beat() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            pauses.append(now - last)
            last = now

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    began = time.thread_time()
    await work()
    took_s = time.thread_time() - began
    await asyncio.sleep(0)
    beating.cancel()
    return took_s, max(pauses)


async def once(bench: Bench) -> list[float]:
    core, now = bench.core, bench.now
    waiting = core.view.jobs.queue.in_order()
    unit = waiting[int(len(waiting) * PLACE)].unit

    async def one() -> None:
        last = LastPass()
        await last.reach(core, unit, now)
        why(core, unit, now, last)

    async def everybody() -> None:
        await Look(core, now).told()

    gc.collect()
    began = time.thread_time()
    why(core, unit, now)
    whole_s = time.thread_time() - began
    found = [whole_s, *await beside(one), *await beside(everybody)]
    began = time.thread_time()
    copied(core)
    return [*found, time.thread_time() - began]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--queue", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--orders", nargs="+", choices=names("order"), default=["fcfs", "easy", "conservative", "leases"]
    )
    asked = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLDS)  # as the services have it
    rows: list[list[object]] = [["order", "in one piece s", "answer s", "pause", "everybody s", "pause", "copy s"]]
    for order in asked.orders:
        bench = Bench(asked.hosts, BatchPolicy(order=order))
        bench.fill()
        bench.wait(asked.queue)
        asyncio.run(once(bench))  # what is made when first asked for
        found = [asyncio.run(once(bench)) for _ in range(asked.repeats)]
        rows.append([order, *(f"{statistics.median(some):.4f}" for some in zip(*found, strict=True))])
    table(rows)


if __name__ == "__main__":
    main()
