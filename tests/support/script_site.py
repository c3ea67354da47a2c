"""An admission with an OpenNebula whose VMs run deploy/opennebula/phoenix-guest (`script_guest`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyone

from phoenix.local.opennebula.server import OpenNebula as Server
from phoenix.local.opennebula.testing import running_server
from schemas import facts as f
from schemas.size import Size
from services.domain.capabilities import Hypervisor
from services.executor.core.calls import Allocate
from services.executor.opennebula.client import OpenNebula
from services.executor.opennebula.template import Templates
from tests.support.admission_house import CLOUD_ID, House, house
from tests.support.script_guest import ACCOUNT, ScriptDriver
from tests.support.until import until


class Site:
    """A house with an OpenNebula whose VMs run the script."""

    def __init__(self, here: House, one: Server, driver: ScriptDriver) -> None:
        self.here, self.one, self.driver = here, one, driver

    async def submit(self, script: str, **asked: Any) -> str:
        answer = await self.here.ask("ann", "job.submit", {"script": script, **asked})
        assert "type" not in answer, answer
        job: str = answer["job"]
        return job

    async def boot(
        self, unit: str, *, attempt: int = 1, rank: int = 0, hypervisor: Hypervisor = "kvm", **context: str
    ) -> int:
        """What the executor does: allocate on hold, with its own template, and deploy."""
        site = {"CONTEXT": {**({"GUEST_USER": ACCOUNT} if ACCOUNT else {}), **context}}
        key = self.here.broker.config.guest_key_file.read_bytes().strip()
        call = Allocate(unit, attempt, rank, "host000", Size(1, 64), f"{unit}/{attempt}/{rank}")
        template = Templates(key, self.here.url, site, hypervisor).of(CLOUD_ID, call)

        def run() -> int:
            client = OpenNebula(self.one.url, self.one.session, 5.0, 5.0)
            vm = client.allocate(template)
            client.deploy(vm, 0)
            client.close()
            return vm

        return await asyncio.to_thread(run)

    async def run(
        self, script: str, *, context: dict[str, str] | None = None, hypervisor: Hypervisor = "kvm", **asked: Any
    ) -> tuple[str, int]:
        job = await self.submit(script, **asked)
        await self.here.place(job)
        return job, await self.boot(job, hypervisor=hypervisor, **(context or {}))

    async def off(self, vm: int) -> str:
        """Wait until the VM has powered off; returns what the script said on the console."""
        await until(lambda: vm in self.driver.said, f"VM {vm} powers off")
        return self.driver.said[vm]

    async def terminate(self, vm: int) -> None:
        await self.act("terminate", vm)

    async def act(self, action: str, vm: int) -> None:
        one = pyone.OneServer(self.one.url, session=self.one.session)
        await asyncio.to_thread(one.vm.action, action, vm)

    async def began(self, unit: str) -> None:
        await until(lambda: self.here.service.custody.state.units[unit].began_at is not None, f"{unit} has begun")

    async def printed(self, job: str, text: str) -> None:
        async def arrived() -> bool:
            return await self.output(job) == text

        await until(arrived)

    async def output(self, job: str, stream: str = "stdout") -> str:
        return (await self.get(f"/v1/jobs/{job}/output?stream={stream}")).decode()

    async def get(self, path: str, user: str = "ann") -> bytes:
        async with self.here.session.get(f"{self.here.url}{path}", headers=self.here.headers(user)) as answer:
            content = await answer.read()
            assert answer.status == 200, content
            return content

    async def report_of(self, job: str) -> f.AttemptReported:
        (found,) = [x for x in await self.here.journaled(f.AttemptReported) if x.unit == job]
        assert isinstance(found, f.AttemptReported)
        return found


@contextlib.asynccontextmanager
async def script_site(directory: Path) -> AsyncIterator[Site]:
    async with house(directory) as here:
        driver = ScriptDriver()
        async with running_server(4, driver, cores=64, memory_mb=65536) as one:
            yield Site(here, one, driver)
