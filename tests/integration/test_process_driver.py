"""The process hypervisor runs real processes: scripts, their output, their end, and nothing left of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phoenix.local.opennebula.driver import VmSpec
from phoenix.local.process.driver import ProcessDriver
from phoenix.local.process.zygote import owned_pids
from tests.support.guest_door import HOST, GuestDoor, Life

DEADLINE_S = 20.0
ISOLATIONS = ["none"] if os.geteuid() else ["uid+cgroup", "uid", "none"]


class Hypervisor:
    """A started driver with the door its guests call."""

    def __init__(self, driver: ProcessDriver, door: GuestDoor) -> None:
        self.driver = driver
        self.door = door
        self.ended: dict[int, str] = {}
        self._news = asyncio.Event()

    def note_end(self, vm_id: int, why: str) -> None:
        self.ended[vm_id] = why
        self._news.set()

    async def boot(self, unit: str, **wishes: object) -> VmSpec:
        vm = self.door.vm(unit, **wishes)  # type: ignore[arg-type]
        await self.driver.boot(vm, HOST)
        return vm

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


@pytest.fixture(params=ISOLATIONS)
async def hypervisor(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hypervisor]:
    driver = ProcessDriver(tmp_path / "data", core_share=0.05, grace_s=0.3, isolate=request.param)
    async with GuestDoor() as door:
        it = Hypervisor(driver, door)
        await driver.start(it.note_end)
        try:
            yield it
        finally:
            nursery = driver._spawner.pid
            await driver.close()
            assert nursery is not None
            assert not Path(f"/proc/{nursery}").exists()


async def test_a_script_runs_and_everything_it_did_is_reported(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add(
        "17",
        script="#!/bin/sh\necho hello $1 $PHOENIX_JOB_ID $SLURM_JOB_ID; echo oops >&2; cat data/in.txt > out/x.txt; exit 3",
        argv=["world"],
        inputs=[{"name": "data/in.txt", "size": 5}, {"name": "out/.keep", "size": 0}],
        keep=["out/*.txt", "../../*"],
    )
    life.inputs = {"data/in.txt": b"12345", "out/.keep": b""}
    await hypervisor.until_ended(await hypervisor.boot("17"))
    assert life.text() == "hello world 17 17\n"
    assert life.text("stderr") == "oops\n"
    assert life.files == {"out/x.txt": b"12345"}
    assert life.began == [None]
    assert life.report is not None
    assert life.report["exit"] == 3
    assert life.report["signal"] is None
    assert life.report["cpu_seconds"] >= 0
