"""Jobs a second from submit to durable acknowledgement: one client, and eight.

    python -m benchmarks.submit [--jobs 2000]

Each submission is one NATS request that is answered after its fact came back through the journal.  Jobs are held, so that
nothing but submission is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import orjson

from benchmarks.cloud import cloud, connect, table

REQUEST_S = 30.0


async def submit(status: dict[str, Any], jobs: int, name: str) -> None:
    nc = await connect(status, "alice")
    for number in range(jobs):
        body = {"name": name, "script": "#!/bin/sh\ntrue\n", "held": True, "request": f"{name}-{number}"}
        answer = await nc.request("phoenix.request.hpc.alice.job.submit", orjson.dumps(body), timeout=REQUEST_S)
        reply = orjson.loads(answer.data)
        assert reply["ok"], reply
    await nc.close()


async def measure(status: dict[str, Any], clients: int, jobs: int) -> float:
    """Jobs a second."""
    began = time.perf_counter()
    await asyncio.gather(*(submit(status, jobs // clients, f"c{clients}-{i}") for i in range(clients)))
    return jobs / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    jobs = parser.parse_args().jobs
    rows: list[list[object]] = [["clients", "jobs/s", "Slurm 22.05 (measured on such a machine)", "ratio"]]
    with cloud("--hosts", "4", "--hypervisor", "dummy") as status:
        for clients, slurm in ((1, 195), (8, 487)):
            rate = asyncio.run(measure(status, clients, jobs))
            rows.append([clients, rate, slurm, rate / slurm])
    table(rows)


if __name__ == "__main__":
    main()
