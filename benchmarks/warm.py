"""From submission to completion with and without warm VMs, on our OpenNebula as it is and at the pace of a real `oned`.

    python -m benchmarks.warm [--jobs 200] [--every 0.05] [--hypervisor dummy|process]

A first lot of jobs, one for each slot, finds no VM anywhere, and boots its own; with warm VMs they stay.  Then the jobs that
are measured: all at once (`all s`, `jobs/s`), and one every `--every` seconds (`p50` … of submission to completion, by events,
in ms).  *VMs started* are those of both.  What does not depend on OpenNebula's pace is as fast with `--pace` as without.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, Final

import orjson
from nats.aio.client import Client

from benchmarks.cloud import cloud, connect, percentile, table
from phoenix.local import stack_config

REQUEST_S: Final = 60.0
DONE_S: Final = 300.0
SLOTS: Final = 64  # hosts of one core
WARM: Final = '[department.batch.warm]\nidle_s = 300\nshare = "user"\n'
SCRIPT: Final = '#!/bin/sh\n[ "$1" = 0 ] || sleep "$1"\n'
FIRST_S: Final = 4  # the first lot's jobs last until all of them run: at 35 launches a second in 2 s


class Clock:
    """When each job was submitted and when it had completed, in seconds."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self._submitted: dict[str, float] = {}
        self._completed: dict[str, float] = {}
        self.vms: dict[int, None] = {}  # that were ever given a job
        self._news = asyncio.Condition()

    async def open(self) -> None:
        async def note(msg: Any) -> None:
            fact = orjson.loads(msg.data)["fact"]
            assert fact["exit"] == 0, fact
            self._completed.setdefault(fact["unit"], time.perf_counter())
            async with self._news:
                self._news.notify_all()

        async def count(msg: Any) -> None:
            self.vms[orjson.loads(msg.data)["fact"]["vm"]] = None

        await self._nc.subscribe("phoenix.event.hpc.vm.allocated", cb=count)
        await self._nc.subscribe("phoenix.event.hpc.attempt.reported", cb=note)
        await self._nc.flush()

    async def submit(self, request: str, seconds: int = 0) -> str:
        """The job's id; it runs for so long."""
        began = time.perf_counter()
        job = {"name": "short", "script": SCRIPT, "argv": [str(seconds)], "memory_mb": 64, "request": request}
        body = orjson.dumps({**job, "environment": {"PHOENIX_DUMMY_RUNTIME_S": str(seconds)}})
        answer = await self._nc.request("phoenix.request.hpc.alice.job.submit", body, timeout=REQUEST_S)
        told = orjson.loads(answer.data)
        assert "type" not in told, told
        self._submitted[told["job"]] = began
        return str(told["job"])

    async def completed(self, jobs: list[str]) -> list[float]:
        """Seconds from submission to completion of each."""
        async with asyncio.timeout(DONE_S), self._news:
            await self._news.wait_for(lambda: all(job in self._completed for job in jobs))
        return [self._completed[job] - self._submitted[job] for job in jobs]


async def measure(status: dict[str, Any], jobs: int, every_s: float) -> tuple[float, list[float], int]:
    """Seconds for all at once, and of each that comes by itself; how many VMs were started for them."""
    nc = await connect(status, "alice")
    clock = Clock(nc)
    await clock.open()
    await clock.completed(list(await asyncio.gather(*(clock.submit(f"first-{n}", FIRST_S) for n in range(SLOTS)))))
    before, began = len(clock.vms), time.perf_counter()
    lot = await asyncio.gather(*(clock.submit(f"lot-{n}") for n in range(jobs)))
    await clock.completed(list(lot))
    all_s = time.perf_counter() - began
    waiting = []
    for n in range(jobs):
        waiting.append(asyncio.create_task(clock.submit(f"each-{n}")))
        await asyncio.sleep(every_s)
    took = await clock.completed([await task for task in waiting])
    await nc.close()
    return all_s, took, len(clock.vms) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--every", type=float, default=0.05, metavar="S")
    parser.add_argument("--hypervisor", choices=["dummy", "process"], default="dummy")
    given = parser.parse_args()
    text = stack_config.DEFAULT.read_text()
    head = 'kind = "batch"\n'
    rows: list[list[object]] = [["OpenNebula", "VMs", "all s", "jobs/s", "p50 ms", "p95 ms", "p99 ms", "VMs started"]]
    for pace in ([], ["--pace"]):
        for warm in ("", WARM):
            options = ["--hosts", str(SLOTS + 1), "--cores", "1", "--hypervisor", given.hypervisor, *pace]
            with cloud(*options, config=text.replace(head, head + warm)) as status:
                all_s, took, started = asyncio.run(measure(status, given.jobs, given.every))
            shares = [percentile(took, share) * 1000 for share in (0.5, 0.95, 0.99)]
            which = "as a real oned" if pace else "embedded"
            rows.append([which, "warm" if warm else "a new one each", all_s, given.jobs / all_s, *shares, started])
    table(rows)


if __name__ == "__main__":
    main()
