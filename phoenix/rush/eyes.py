"""What is looked at during a run, and cannot be read from the journal afterwards: which instances the load balancer
sends to, and how busy the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Final

import aiohttp

from phoenix.haproxy.runtime_api import GoneError, RuntimeApi
from phoenix.haproxy.slots import AnswerError
from phoenix.rush.recording import Machine, Seen
from phoenix.rush.site import WEB, Site

LOOK_S: Final = 0.02  # how exactly "in service" is known
MACHINE_S: Final = 1.0
SLOTS: Final = "phoenix"  # how the names of HAProxy's servers begin that the agent keeps


class Eyes:
    """Looks until it is cancelled."""

    def __init__(self, site: Site) -> None:
        self.seen: list[Seen] = []
        self.machine: list[Machine] = []
        self._site = site

    async def look(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_at_instances())
            group.create_task(self._look_at_machine())

    @property
    def serving(self) -> tuple[str, ...]:
        return self.seen[-1].addresses if self.seen else ()

    async def _look_at_instances(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, GoneError, AnswerError):
                found = await in_service(self._site)
                if not self.seen or found != self.seen[-1].addresses:
                    self.seen.append(Seen(time.time(), found))
            await asyncio.sleep(LOOK_S)

    async def _look_at_machine(self) -> None:
        used, total = machine_cpu()
        while True:
            await asyncio.sleep(MACHINE_S)
            used_before, total_before = used, total
            used, total = machine_cpu()
            if total > total_before:
                self.machine.append(Machine(time.time(), (used - used_before) / (total - total_before)))


async def in_service(site: Site) -> tuple[str, ...]:
    """The instances that the load balancer sends to now, as it says itself."""
    if site.balancer == "haproxy":
        socket = site.data / "run" / f"balancer.{WEB}.sock"
        slots = (await RuntimeApi(socket, WEB, SLOTS, f"balancer.{WEB}.map").read()).slots
        return tuple(sorted(f"{host}:{port}" for host, port in (slot.address for slot in slots if slot.serves)))
    async with site.session.get(f"{site.balancer_url}/_balancer/status") as answer:
        told = await answer.json(content_type=None)
    return tuple(sorted(one["address"] for one in told["instances"] if one["state"] == "in service"))


def machine_cpu() -> tuple[float, float]:
    """(used, all) CPU time of the machine since its start, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))  # idle, and waiting for a disk


def process_wait_s(pid: int) -> float:
    """Seconds that the threads of a process were ready to run and had no CPU, 0 if it is gone."""
    found = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            found += int(file.read_text().split()[1])
    return found / 1e9


def process_cpu_s(pid: int) -> float:
    """CPU seconds of a process, 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
