"""The process hypervisor alone: its driver, with a door that its guests call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from phoenix.local.driver import HostSpec, VmSpec
from phoenix.local.process.driver import DISK_MB, ProcessDriver
from tests.support.guest_door import HOST, GuestDoor, Life

DEADLINE_S = 20.0
OTHER = HostSpec(1, "host1", 4, 8192)
ISOLATIONS = ["none"] if os.geteuid() else ["uid+cgroup", "uid", "none"]


def exists(path: str) -> bool:
    return os.path.exists(path)


class Hypervisor:
    """A started driver with the door its guests call."""

    def __init__(self, driver: ProcessDriver, door: GuestDoor) -> None:
        self.driver = driver
        self.door = door
        self.ended: dict[int, str] = {}
        self.booted: list[VmSpec] = []
        self._news = asyncio.Event()

    def note_end(self, vm_id: int, why: str) -> None:
        self.ended[vm_id] = why
        self._news.set()

    async def boot(self, unit: str, **wishes: object) -> VmSpec:
        vm = self.door.vm(unit, **wishes)  # type: ignore[arg-type]
        self.booted.append(vm)
        await self.driver.boot(vm, HOST)
        return vm

    async def clear(self) -> None:
        """Nothing is left of its VMs."""
        while self.booted:
            await self.driver.clean(self.booted.pop(), HOST)
        assert self.driver._vms == {}
        self.door.lives.clear()

    async def until_ended(self, *vms: VmSpec) -> list[str]:
        async with asyncio.timeout(DEADLINE_S):
            while any(vm.vm_id not in self.ended for vm in vms):
                self._news.clear()
                await self._news.wait()
        return [self.ended[vm.vm_id] for vm in vms]

    async def run(self, unit: str, script: str, **boot: object) -> Life:
        life = self.door.add(unit, script=script, **boot)  # type: ignore[arg-type]
        await self.until_ended(await self.boot(unit))
        return life


@asynccontextmanager
async def started(
    data: Path, isolate: str, core_share: float = 0.5, grace_s: float = 5.0, disk_mb: int = DISK_MB
) -> AsyncIterator[Hypervisor]:
    driver = ProcessDriver(data, core_share=core_share, grace_s=grace_s, isolate=isolate, disk_mb=disk_mb)
    async with GuestDoor() as door:
        it = Hypervisor(driver, door)
        await driver.start(it.note_end)
        try:
            yield it
        finally:
            nursery = driver._spawner.pid
            await driver.close()
            assert nursery is not None
            assert not exists(f"/proc/{nursery}")
