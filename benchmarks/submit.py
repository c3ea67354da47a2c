"""Jobs a second from submit to durable acknowledgement: one client, and eight.

    python -m benchmarks.submit [--jobs 2000] [--at-once 1000] [--json]

Then the acceptance test of the SVMSched thesis: 1,000 requests at once, from the first sent to the last acknowledged.  The
thesis tells 8 s for as many (R. Chakode 2012, 7.2.2; printed as 8 us a task).

Each submission is one NATS request that is answered after its fact came back through the journal.  Jobs are held, so that
nothing but submission is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import orjson

from benchmarks.cloud import Cpu, cloud, connect, table, tell

REQUEST_S = 30.0
THESIS_S = 8.0


async def submit(status: dict[str, Any], jobs: int, name: str) -> None:
    nc = await connect(status, "alice")
    for number in range(jobs):
        body = {"name": name, "script": "#!/bin/sh\ntrue\n", "held": True, "request": f"{name}-{number}"}
        answer = await nc.request("phoenix.request.hpc.alice.job.submit", orjson.dumps(body), timeout=REQUEST_S)
        reply = orjson.loads(answer.data)
        assert "type" not in reply, reply
    await nc.close()


async def measure(status: dict[str, Any], clients: int, jobs: int) -> float:
    """Jobs a second."""
    began = time.perf_counter()
    await asyncio.gather(*(submit(status, jobs // clients, f"c{clients}-{i}") for i in range(clients)))
    return jobs / (time.perf_counter() - began)


async def at_once(status: dict[str, Any], count: int) -> float:
    """Seconds until all of them are acknowledged."""
    nc = await connect(status, "alice")

    async def one(number: int) -> None:
        body = {"name": "flood", "script": "#!/bin/sh\ntrue\n", "held": True, "request": f"flood-{number}"}
        answer = await nc.request("phoenix.request.hpc.alice.job.submit", orjson.dumps(body), timeout=REQUEST_S)
        reply = orjson.loads(answer.data)
        assert "type" not in reply, reply

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    took_s = time.perf_counter() - began
    await nc.close()
    return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    jobs = given.jobs
    rows: list[list[object]] = [["clients", "jobs/s", "Slurm 22.05 (measured on such a machine)", "ratio"]]
    figures = {}
    with cloud("--hosts", "4", "--hypervisor", "dummy") as status:
        cpu = Cpu(status)
        for clients, slurm in ((1, 195), (8, 487)):
            rate = figures[f"{clients} at a time: jobs/s"] = asyncio.run(measure(status, clients, jobs))
            rows.append([clients, rate, slurm, rate / slurm])
        flood_s = figures[f"{given.at_once} at once: s"] = asyncio.run(at_once(status, given.at_once))
        used_s = cpu.used_s()
    if given.json:
        tell(figures, {"submission": used_s}, 2 * jobs + given.at_once)
        return
    table(rows)
    print()
    held = "kept" if flood_s <= THESIS_S else "missed"
    table([["at once", "s", "thesis s", "acceptance"], [given.at_once, flood_s, THESIS_S, held]])


if __name__ == "__main__":
    main()
