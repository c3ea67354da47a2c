"""Jobs a second from submit to completed: trivial jobs, a VM each, on 128 one-core slots, with both hypervisors.

    python -m benchmarks.throughput [--jobs 2000] [--hypervisor dummy|process|both] [--json]

Measured on such a machine: Slurm 22.05 completes 33 (default) to 60 (tuned) a second, HyperQueue 146.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import orjson

from benchmarks.cloud import Cpu, cloud, connect, table, tell

REQUEST_S = 60.0
DONE_S = 600.0


async def complete(status: dict[str, Any], jobs: int) -> tuple[float, float]:
    """Seconds from the first submission until all are acknowledged, and until all are completed (by their events)."""
    nc = await connect(status, "alice")
    done, left = asyncio.Event(), jobs

    async def on_report(msg: Any) -> None:
        nonlocal left
        event = orjson.loads(msg.data)
        assert event["fact"]["exit"] == 0, event
        left -= 1
        if left == 0:
            done.set()

    await nc.subscribe("phoenix.event.hpc.attempt.reported", cb=on_report)
    await nc.flush()
    began = time.perf_counter()

    async def submit(number: int) -> None:
        body = orjson.dumps({"name": "true", "script": "#!/bin/sh\ntrue\n", "memory_mb": 64, "request": f"j{number}"})
        answer = await nc.request("phoenix.request.hpc.alice.job.submit", body, timeout=REQUEST_S)
        assert "type" not in orjson.loads(answer.data), answer.data

    for first in range(0, jobs, 64):
        await asyncio.gather(*(submit(n) for n in range(first, min(jobs, first + 64))))
    acknowledged = time.perf_counter() - began
    await asyncio.wait_for(done.wait(), DONE_S)
    completed = time.perf_counter() - began
    await nc.close()
    return acknowledged, completed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--hypervisor", choices=["dummy", "process", "both"], default="both")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    kinds = ["dummy", "process"] if given.hypervisor == "both" else [given.hypervisor]
    rows: list[list[object]] = [
        ["hypervisor", "jobs", "all acknowledged s", "all completed s", "jobs/s", "÷ Slurm tuned (60)"]
    ]
    figures, used_s = {}, {}
    for kind in kinds:
        with cloud("--hosts", "128", "--cores", "1", "--hypervisor", kind) as status:
            cpu = Cpu(status)
            acknowledged, completed = asyncio.run(complete(status, given.jobs))
            used_s[kind] = cpu.used_s()
        rate = figures[f"{kind}: jobs/s"] = given.jobs / completed
        rows.append([kind, given.jobs, acknowledged, completed, rate, rate / 60])
    if given.json:
        tell(figures, used_s, given.jobs)
        return
    for kind, used in used_s.items():
        print(f"CPU seconds ({kind}):", ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items()))
    table(rows)


if __name__ == "__main__":
    main()
