"""From CPU signal to host granted, over many spikes with many dummy hosts, the reclaim of running jobs included.

    python -m benchmarks.spike [--spikes 200] [--hosts 1000] [--json]

Every host runs a job.  A spike is one signal above the threshold with a window that it completes; the department then wants
one instance more, on one host.  Start: the publish of the signal that completes the window, which is the last one before the
claim (`demand.changed`); end: the last valid `host.granted` of the claim.  Hypervisor time: from the executor's terminate call
until the poll that lacks the VM, as its metrics have it.  The steps between are told by the events' own times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
import urllib.request
from typing import Any

import orjson

from benchmarks.cloud import Cpu, cloud, connect, percentile, table, tell
from schemas.problems import is_problem
from schemas.units import seconds

CONFIG = """
[cloud]
name = "spike"
[policy]
notice_s = 0.3
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "web"
kind = "web"
[department.web]
rule = "threshold"
window_s = 0.2
instances_min = 1
instances_max = {most}
signal_timeout_s = 3600.0
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "wendy"
department = "web"
role = "manager"
[[user]]
name = "web-balancer"
department = "web"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""
SETTLE_S = 180.0
INTERVAL_S = 0.1
QUIET = 4  # signals between two spikes: longer than the window


STEPS = ("demand.changed", "host.released", "host.cleared", "host.granted")


HYPERVISOR, DIFFERENCE = "(hypervisor)", "granted − hypervisor"


class Watch:
    """Sees events: the newest time of each step, and the grants to the web department."""

    def __init__(self) -> None:
        self.granted: asyncio.Queue[float] = asyncio.Queue()
        self.at: dict[str, float] = {}
        self.running = 0
        self.grew = asyncio.Event()

    async def on_event(self, msg: Any) -> None:
        event = orjson.loads(msg.data)
        kind, dept = event["kind"], event["department"]
        if kind == "attempt.began" and dept == "hpc":
            self.running += 1
            self.grew.set()
        if kind in STEPS and not (kind in ("demand.changed", "host.granted") and dept != "web"):
            self.at[kind] = seconds(event["at"]) or 0.0
        if kind == "host.granted" and dept == "web":
            await self.granted.put(self.at[kind])


async def fill(nc: Any, watch: Watch, hosts: int, cores: int) -> None:
    """One whole-host job on every host that batch holds."""
    for first in range(0, hosts, 100):
        bodies = [
            orjson.dumps(
                {
                    "name": "fill",
                    "script": "#!/bin/sh\n",
                    "cpus_per_task": cores,
                    "environment": {"PHOENIX_DUMMY_RUNTIME_S": "3600"},
                    "walltime_s": 7200.0,
                    "request": f"f{n}",
                }
            )
            for n in range(first, min(hosts, first + 100))
        ]
        answers = await asyncio.gather(
            *(nc.request("phoenix.request.hpc.alice.job.submit", b, timeout=60.0) for b in bodies)
        )
        assert not any(is_problem(a.data) for a in answers)
    async with asyncio.timeout(SETTLE_S):
        while watch.running < hosts - 2:  # two hosts may be web's or on their way
            watch.grew.clear()
            await watch.grew.wait()
    print(f"{watch.running} jobs run on {hosts} hosts")


async def spikes(
    status: dict[str, Any], count: int, hosts: int, cores: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds by step, from the signal to each of `STEPS`; CPU seconds by process, once the cluster is full."""
    watch = Watch()
    operator = await connect(status, "oscar")
    await operator.subscribe("phoenix.event.>", cb=watch.on_event)
    await operator.flush()
    alice, balancer = await connect(status, "alice"), await connect(status, "web-balancer")
    await fill(alice, watch, hosts, cores)
    while not watch.granted.empty():
        watch.granted.get_nowait()
    found: dict[str, list[float]] = {step: [] for step in (*STEPS, HYPERVISOR, DIFFERENCE)}
    before, cpu = terminations(status), Cpu(status)
    for _ in range(count):
        start = await spike(balancer, watch)
        for step in STEPS:
            found[step].append(watch.at[step] - start)
        after = terminations(status)
        found[HYPERVISOR].append(after - before)
        found[DIFFERENCE].append(found["host.granted"][-1] - (after - before))
        before = after
    used_s = cpu.used_s()
    for nc in (operator, alice, balancer):
        await nc.close()
    return found, used_s


def terminations(status: dict[str, Any]) -> float:
    """Seconds that the executor's VMs took to end, in all; a spike ends exactly one.  NaN: an executor that does not say it."""
    with urllib.request.urlopen(status["metrics"]["executor"]) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.split()[1] for line in lines if line.startswith("phoenix_vm_termination_seconds_sum"))
    return float(next(found, "nan"))


async def spike(nc: Any, watch: Watch) -> float:
    """High signals until a host is granted, then a quiet one; returns when the signal that completed the window was sent."""
    sent: list[float] = []
    while watch.granted.empty():
        sent.append(await publish(nc, 0.95))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_peek(watch), INTERVAL_S)
    watch.granted.get_nowait()
    for _ in range(QUIET):
        await publish(nc, 0.5)
        await asyncio.sleep(INTERVAL_S)
    return max(s for s in sent if s <= watch.at["demand.changed"])


async def _peek(watch: Watch) -> None:
    at = await watch.granted.get()
    watch.granted.put_nowait(at)


async def publish(nc: Any, utilisation: float) -> float:
    """When it was sent, which the signal does not say: how it would has changed, and another commit's cloud reads it too."""
    at = time.time()
    body = {
        "v": 1,
        "utilisation": utilisation,
        "instances": 1,
        "interval_s": INTERVAL_S,
        "source": "web-balancer",
    }
    await nc.publish("phoenix.signal.web.web-balancer.cpu", orjson.dumps(body))
    await nc.flush()
    return at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spikes", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    options = ("--hosts", str(given.hosts), "--cores", "4", "--hypervisor", "dummy")
    with cloud(*options, config=CONFIG.format(most=given.hosts)) as status:
        found, used_s = asyncio.run(spikes(status, given.spikes, given.hosts, 4))
    if given.json:
        figures = {f"to {step}: ms": 1000 * percentile(found[step], 0.5) for step in (*STEPS, HYPERVISOR)}
        tell(figures, {"spike": used_s}, given.spikes)
        return
    rows: list[list[object]] = [["from the signal to", "p50 s", "p99 s", "max s"]]
    for step in (*STEPS, HYPERVISOR, DIFFERENCE):
        rows.append([step, percentile(found[step], 0.5), percentile(found[step], 0.99), max(found[step])])
    table(rows)


if __name__ == "__main__":
    main()
