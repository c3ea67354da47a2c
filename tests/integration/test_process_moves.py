"""A counter in a VM of the process hypervisor under the embedded OpenNebula: stopped, moved and ended over XML-RPC."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pyone
import pytest

from phoenix.local.opennebula.states import Lcm, VmState
from phoenix.local.opennebula.testing import running_server
from phoenix.local.process import processes
from phoenix.local.process.driver import ProcessDriver
from tests.support.guest_door import HOST, GuestDoor, Life
from tests.support.hypervisor import ISOLATIONS, OTHER, exists, started
from tests.support.until import until

pytestmark = pytest.mark.timeout(60)
COUNTER = """#!/bin/sh
n=0; echo $$ > pid; while [ ! -e stop ]; do n=$((n+1)); echo $n > new; mv new count; sleep 0.01; done
echo "counted to $n"; cat count
"""


class Site:
    """The embedded OpenNebula with one VM in it, whose job counts."""

    def __init__(self, one: pyone.OneServer, driver: ProcessDriver, door: GuestDoor) -> None:
        self.one, self.driver, self.door = one, driver, door
        self.life: Life
        self.vm = -1

    async def start(self) -> None:
        self.life = self.door.add("1", script=COUNTER)
        spec = self.door.vm("1")
        context = ", ".join(f'{name} = "{value}"' for name, value in spec.context.items())
        template = f'NAME="a"\nCPU="2"\nMEMORY="128"\nCONTEXT = [ {context} ]'
        self.vm = await asyncio.to_thread(self.one.vm.allocate, template, True)
        await self.call("deploy", self.vm, 0)
        await self.door.until(lambda: self.life.began)
        await until(lambda: self.count() > 2)

    async def call(self, method: str, *arguments: object) -> None:
        await asyncio.to_thread(getattr(self.one.vm, method), *arguments)

    async def reaches(self, state: VmState, lcm: Lcm = Lcm.LCM_INIT) -> None:
        async with asyncio.timeout(30):
            while await self.state() != (state, lcm):  # noqa: ASYNC110  (OpenNebula is asked, as any client would)
                await asyncio.sleep(0.01)

    async def state(self) -> tuple[int, int]:
        found = await asyncio.to_thread(self.one.vm.info, self.vm)
        return found.STATE, found.LCM_STATE

    async def host(self) -> str:
        found = await asyncio.to_thread(self.one.vm.info, self.vm)
        return str(found.HISTORY_RECORDS.HISTORY[-1].HOSTNAME)

    async def used(self, host: int) -> int:
        return int((await asyncio.to_thread(self.one.host.info, host)).HOST_SHARE.CPU_USAGE)

    @property
    def room(self) -> Path:
        return Path(self.driver._vms[self.vm].machine.room.path)

    def count(self) -> int:
        try:
            return int((self.room / "work" / "count").read_text() or 0)
        except FileNotFoundError:
            return 0

    def pid(self) -> int:
        return int((self.room / "work" / "pid").read_text())

    def end(self) -> None:
        (self.room / "work" / "stop").touch()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    isolate = "none" if os.geteuid() else "uid+cgroup"
    driver = ProcessDriver(tmp_path / "data", core_share=0.5, isolate=isolate)
    async with GuestDoor() as door, running_server(driver=driver, hosts=2) as server:
        found = Site(pyone.OneServer(server.url, session=server.session), driver, door)
        await found.start()
        yield found


async def test_a_counter_goes_on_where_it_stopped_on_another_host(site: Site) -> None:
    pid = site.pid()
    await site.call("action", "stop", site.vm)
    await site.reaches(VmState.STOPPED)
    assert await site.used(0) == 0  # its host is free for others, its room is gone
    assert not site.room.exists()
    stowed = site.room.parent.parent / "stowed" / str(site.vm) / "work" / "count"
    stopped_at = int(stowed.read_text())
    await site.call("deploy", site.vm, 1)
    await site.reaches(VmState.ACTIVE, Lcm.RUNNING)
    assert await site.host() == "host001"
    assert (await site.used(0), await site.used(1)) == (0, 200)
    assert site.pid() == pid
    await until(lambda: site.count() > stopped_at)
    site.end()
    await site.door.until(lambda: site.life.report)
    told = site.life.text().split()
    assert told[:2] == ["counted", "to"]
    assert int(told[2]) > stopped_at
    assert told[2] == told[3]
    assert site.life.began == [None]


async def test_while_it_is_stopped_nothing_of_it_runs(site: Site) -> None:
    pid = site.pid()
    await site.call("action", "stop", site.vm)
    await site.reaches(VmState.STOPPED)
    ticks, requests = _ticks(pid), site.life.requests
    await asyncio.sleep(0.3)  # thirty steps of the counter
    assert (_ticks(pid), site.life.requests) == (ticks, requests)


async def test_a_stopped_vm_that_is_terminated_leaves_nothing(site: Site) -> None:
    pid, room = site.pid(), site.room
    await site.call("action", "stop", site.vm)
    await site.reaches(VmState.STOPPED)
    await site.call("action", "terminate-hard", site.vm)
    await site.reaches(VmState.DONE)
    assert not exists(f"/proc/{pid}")
    assert [*room.parent.iterdir(), *(room.parent.parent / "stowed").iterdir()] == []
    assert site.life.report is None


@pytest.mark.parametrize("live", [True, False])
async def test_it_moves_and_goes_on_counting(site: Site, live: bool) -> None:
    pid, before = site.pid(), site.count()
    await site.call("migrate", site.vm, 1, live, False, -1, 0)
    await site.reaches(VmState.ACTIVE, Lcm.RUNNING)
    assert await site.host() == "host001"
    assert (await site.used(0), await site.used(1)) == (0, 200)
    await until(lambda: site.count() > before)
    assert site.pid() == pid
    site.end()
    await site.door.until(lambda: site.life.report)


def _ticks(pid: int) -> int:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def test_a_vm_that_is_saved_while_its_script_is_being_started_runs_it_when_it_is_back(tmp_path: Path) -> None:
    """A room that leaves under a script that is not there yet would make the job fail: with 126, as if that were its own."""
    async with started(tmp_path / "data", ISOLATIONS[0]) as hypervisor:
        driver, nursery = hypervisor.driver, hypervisor.driver._spawner.pid
        assert nursery is not None
        life = hypervisor.door.add("1", script="#!/bin/sh\necho ran\n")
        vm = hypervisor.door.vm("1")

        async def leave() -> None:
            await driver.save(vm, HOST)
            await driver.stow(vm, HOST)

        os.kill(nursery, signal.SIGSTOP)
        await driver.boot(vm, HOST)
        guest = driver._vms[vm.vm_id].guest
        await until(lambda: guest.output, "nothing is being started")
        leaving = asyncio.ensure_future(leave())
        await asyncio.wait({leaving}, timeout=0.2)  # a save that does not wait for the start is over by now
        os.kill(nursery, signal.SIGCONT)
        await leaving
        await until(
            lambda: guest.process and processes.state(guest.process.pid) in "TX", "it neither stands still nor is over"
        )
        await driver.fetch(vm, OTHER)
        await driver.restore(vm, OTHER)
        assert await hypervisor.until_ended(vm) == ["reported"]
        assert life.report is not None
        assert (life.report["exit"], life.text(), life.text("stderr")) == (0, "ran\n", "")
