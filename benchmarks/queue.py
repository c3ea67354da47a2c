"""`phoenix queue` with 10,000 pending jobs, as a whole process (squeue: 0.08 s), and each service's memory at that size.

python -m benchmarks.queue [--jobs 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any

import orjson

from benchmarks.cloud import PHOENIX, cloud, connect, memory_mb, table

RUNS = 11
BATCH = 128


async def fill(status: dict[str, Any], jobs: int) -> None:
    nc = await connect(status, "alice")

    async def submit(number: int) -> None:
        body = orjson.dumps(
            {"name": f"job-{number}", "script": "#!/bin/sh\ntrue\n", "held": number % 2 == 0, "nodes": 4}
        )
        answer = await nc.request("phoenix.request.hpc.alice.job.submit", body, timeout=60.0)
        assert "type" not in orjson.loads(answer.data), answer.data

    for first in range(0, jobs, BATCH):
        await asyncio.gather(*(submit(n) for n in range(first, min(jobs, first + BATCH))))
    await nc.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    with cloud("--hosts", "4", "--hypervisor", "dummy") as status:
        subprocess.run(
            [*PHOENIX, "hosts", "cordon", "host000", "--reason", "bench", "--data", status["data"]], check=True
        )
        asyncio.run(fill(status, jobs))
        command, times = [*PHOENIX, "queue", "--data", status["data"]], []
        for _ in range(RUNS):
            began = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - began)
        lines = done.stdout.count(b"\n")
        bare = []
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            bare.append(time.perf_counter() - began)
        rows: list[list[object]] = [["what", "median s", "min s"]]
        rows.append([f"phoenix queue ({lines} lines)", statistics.median(times), min(times)])
        rows.append(["python -c pass", statistics.median(bare), min(bare)])
        table(rows)
        print()
        table([["process", "memory MiB"], *([p["name"], memory_mb(p["pid"])] for p in status["processes"])])


if __name__ == "__main__":
    main()
