"""How long reads of the monitor take in a cloud where 100,000 jobs wait, are cancelled, and have been.

    python -m benchmarks.reads [--jobs 100000] [--seconds 20] [--json]

A real nats-server, the monitor as its own process, and a journal of jobs that nobody starts.  Readers ask again
and again, one for each of: the first rows of the queue, all of it in short, a page of the history, one job, its story, a
page of events, the departments.  Three phases: the jobs wait; they are cancelled, as fast as the journal takes it; all are
over.  Beside an array of 10,000 tasks of which one asks again and again, the last phase tells what others wait for that.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.busy_day import BATCH, CORES, BusyDay
from benchmarks.cloud import percentile, table, tell
from benchmarks.monitoring import Bench, Watchers
from schemas import facts as f
from services.runtime.broker import credentials

HOSTS: Final = 8
ELEMENTS: Final = 10_000
AT_ONCE: Final = 32  # appends that wait for their acknowledgement
PAUSE_S: Final = 0.1
READS: Final = {
    "queue, 50 rows": "/v1/queue?limit=50",
    "queue, 10,000 lines": "/v1/queue?form=lines&limit=10000",
    "jobs, 50 rows": "/v1/jobs?limit=50",
    "one job": "/v1/jobs/{job}",
    "its story": "/v1/story/{job}",
    "events, 100": "/v1/events?limit=100",
    "departments": "/v1/departments",
}


class Reader:
    """`took`: seconds by phase and read."""

    def __init__(self, bench: Bench, session: aiohttp.ClientSession, job: str) -> None:
        token = credentials.token_file(bench.config, "oscar").read_text().strip()
        self._session, self._url, self._job = session, bench.config.monitor.url, job
        self._headers = {"Authorization": f"Bearer {token}"}
        self.took: dict[tuple[str, str], list[float]] = defaultdict(list)

    async def ask(self, path: str) -> int:
        async with self._session.get(self._url + path.format(job=self._job), headers=self._headers) as answer:
            await answer.read()
            return answer.status

    async def run(self, phase: str) -> None:
        """Until it is cancelled."""
        await asyncio.gather(*(self._repeat(phase, what, path) for what, path in READS.items()))

    async def _repeat(self, phase: str, what: str, path: str) -> None:
        while True:
            began = time.perf_counter()
            try:
                await self.ask(path)
            finally:
                self.took[phase, what].append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_S)

    @asynccontextmanager
    async def during(self, phase: str) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run(phase))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def write(bench: Bench, facts: list[f.Fact]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(part: list[f.Fact]) -> None:
        async with slots:
            await bench.append(("admission", tuple(part)))

    parts = [facts[at : at + BATCH] for at in range(0, len(facts), BATCH)]
    await one(parts[0])
    await asyncio.gather(*map(one, parts[1:]))


async def beside_an_array(reader: Reader, bench: Bench, job: str, seconds: float) -> None:
    array = str(int(job) + 1)
    told = f.JobSubmitted(
        job=array, dept="hpc", user="u1", name="big", payload="p" * 64, walltime_s=60.0, array=tuple(range(ELEMENTS))
    )
    await bench.append(("admission", (told,)))
    await asyncio.sleep(2.0)

    async def flood() -> None:
        while True:
            began = time.perf_counter()
            await reader.ask(f"/v1/jobs/{array}")
            reader.took["an array is asked for", "the array"].append(time.perf_counter() - began)
            await asyncio.sleep(0.1)

    flooding = asyncio.create_task(flood())
    async with reader.during("an array is asked for"):
        await asyncio.sleep(seconds)
    flooding.cancel()


async def measure(jobs: int, seconds: float, directory: Path) -> dict[tuple[str, str], list[float]]:
    bench = Bench(directory, profile=False)
    try:
        await bench.open()
        day = BusyDay(HOSTS, HOSTS * CORES, 0)
        for decision in day.begin():
            await bench.append(decision)
        bench.watch()
        last = str(HOSTS * CORES + jobs)
        async with aiohttp.ClientSession() as session:
            watchers, reader = Watchers(bench, session), Reader(bench, session, last)
            while True:
                with suppress(aiohttp.ClientError):
                    await watchers.far(bench.written)
                    break
                await asyncio.sleep(0.1)
            async with reader.during("they come"):
                await write(bench, [day._submitted() for _ in range(jobs)])
                await watchers.far(bench.written)
            async with reader.during("they wait"):
                await asyncio.sleep(seconds)
            began = time.perf_counter()
            async with reader.during("they are cancelled"):
                await write(bench, [f.JobCancelled(job=job, user="u1") for job in day.waiting])
                await watchers.far(bench.written)
            print(f"cancelled in {time.perf_counter() - began:.1f} s", flush=True)
            async with reader.during("they are over"):
                await asyncio.sleep(seconds)
            await beside_an_array(reader, bench, last, seconds)
        return dict(reader.took)
    finally:
        await bench.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase that is not bound by the journal")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as directory:
        took = asyncio.run(measure(args.jobs, args.seconds, Path(directory)))
    if args.json:
        tell({f"{what}, {phase}: p99 ms": 1000 * percentile(some, 0.99) for (phase, what), some in took.items()}, {}, 1)
        return
    rows: list[list[object]] = [["phase", "read", "times", "p50 ms", "p99 ms", "most ms"]]
    for (phase, what), some in took.items():
        rows.append([phase, what, len(some), *(1000 * percentile(some, share) for share in (0.5, 0.99, 1.0))])
    table(rows)


if __name__ == "__main__":
    main()
