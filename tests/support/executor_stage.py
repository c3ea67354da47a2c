"""A stage for the executor: a real broker, an embedded OpenNebula, the executor's service, and a pen for all other writers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec

from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.server import OpenNebula as Server
from phoenix.local.opennebula.settings import Settings as OneSettings
from phoenix.local.opennebula.testing import running_server as running_opennebula
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, Capability, CloudConfig, Department, Policy, Warm, WebPolicy
from schemas.facts import Fact
from services.domain.capabilities import ALL
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.executor.core.executor import ExecutorCore
from services.executor.edge.executor import ExecutorEdge
from services.executor.opennebula.client import OpenNebula
from services.runtime.config.tables import Config, Data, Http
from services.runtime.config.tables import OpenNebula as OneConfig
from services.runtime.service import Service
from tests.support.nats import NatsServer
from tests.support.one_proxy import OneProxy
from tests.support.ports import free_port
from tests.support.shells import Running, World, drop_streams, world
from tests.support.until import DEADLINE_S, until

CLOUD = "c10d"
COLD = Warm()
HPC = Department(name="hpc", kind="batch", batch=BatchPolicy())
WEB = Department(name="web", kind="web", web=WebPolicy())
WHY = because.Cancelled()


def config_adopted(policy: Policy, warm: Warm = COLD, capabilities: tuple[Capability, ...] = ALL) -> f.ConfigAdopted:
    """`warm`: of `hpc`; `capabilities`: of the cloud's hypervisor."""
    hpc = msgspec.structs.replace(HPC, batch=BatchPolicy(warm=warm))
    cloud = CloudConfig(name="c", departments=(hpc, WEB), policy=policy, capabilities=capabilities)
    return f.ConfigAdopted(cloud=CLOUD, custody_rules=RULES, config=cloud)


class Stage:
    """`custody` is the executor's own fold: what it knows."""

    def __init__(self, here: World, one: Server, driver: DummyDriver, config: Config) -> None:
        self.here, self.one, self.driver, self.config = here, one, driver, config
        self.proxy = OneProxy(one.port)  # in the way where `stage(proxied=True)`
        self.executor: Running
        self._ids = 0

    @property
    def service(self) -> Service:
        return self.executor.service

    @property
    def custody(self) -> Custody:
        return self.service.custody

    @property
    def core(self) -> ExecutorCore:
        assert isinstance(self.service.core, ExecutorCore)
        return self.service.core

    def start(self, instance: str = "e1", reaped: tuple[str, ...] = ()) -> Running:
        self.executor = self.here.start(
            instance,
            config=self.config,
            core=ExecutorCore,
            writer="executor",
            edges=[ExecutorEdge()],
            reaped=reaped,
        )
        return self.executor

    async def until(self, true: Callable[[], Any], what: str) -> None:
        await until(lambda: self.executor.task.done() or true(), what)
        assert not self.executor.task.done(), f"the executor ended with {self.executor.task.result()}: {what}"
        assert check(self.custody) == []
        assert self.core.check() == []

    async def write(self, writer: str, *facts: Fact) -> None:
        """One envelope, folded by the executor when this returns."""
        self._ids += 1
        position = await self.here.write(*facts, writer=writer, id=f"{writer}-{self._ids}")
        if hasattr(self, "executor") and not self.executor.task.done():
            await self.service.wait_for(position, DEADLINE_S)

    # ---------------------------------------------------------------------------------------------------- what others do

    async def open(self, hosts: int, policy: Policy, warm: Warm = COLD) -> None:
        """Configuration, an executor that leads, and all hosts free."""
        await self.write("provisioner", config_adopted(policy, warm))
        self.start()
        await self.executor.leads()
        await self.until(lambda: len(self.custody.index.by_state["free"]) == hosts, "all hosts are free")

    async def grant(self, *hosts: str, dept: str = "hpc") -> None:
        await self.write("provisioner", *(f.HostGranted(host=h, dept=dept) for h in hosts))

    async def submit(self, job: str, nodes: int = 1) -> None:
        fact = f.JobSubmitted(job=job, dept="hpc", user="ann", name="j", payload="p", walltime_s=60.0, nodes=nodes)
        await self.write("admission", fact)

    async def place(self, unit: str, *hosts: str, attempt: int = 1, cores: int = 1, memory_mb: int = 64) -> None:
        fact = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=memory_mb)
        await self.write("scheduler.hpc", fact)

    async def close_attempt(self, unit: str, attempt: int = 1, disposal: f.Disposal = f.Disposal.REQUEUE) -> None:
        await self.write("scheduler.hpc", f.AttemptClosed(unit=unit, attempt=attempt, disposal=disposal, why=WHY))

    async def report(self, unit: str, attempt: int = 1) -> None:
        await self.write("admission", f.AttemptReported(unit=unit, attempt=attempt, exit=0))

    async def running(self, unit: str, *hosts: str, attempt: int = 1) -> None:
        """A job that runs on these hosts."""
        if unit not in self.custody.state.units:
            await self.submit(unit, len(hosts))
        await self.place(unit, *hosts, attempt=attempt)
        await self.until(lambda: self.started(unit, attempt) == len(hosts), f"{unit}/{attempt} runs")

    # ------------------------------------------------------------------------------------------------------ what is seen

    def started(self, unit: str, attempt: int = 1) -> int:
        vms = self.custody.state.vms.values()
        return sum(1 for v in vms if (v.unit, v.attempt) == (unit, attempt) and v.started_at is not None)

    def host(self, name: str) -> str:
        return self.custody.state.hosts[name].state

    def client(self) -> OpenNebula:
        """Another client's connection to OpenNebula; use it in a thread."""
        return OpenNebula(self.one.url, self.one.session, 5.0, 5.0)

    async def ask(self, work: Callable[[OpenNebula], Any]) -> Any:
        async with asyncio.timeout(30):
            return await asyncio.to_thread(work, self.client())

    def alive(self) -> list[int]:
        """VMs that are not DONE in OpenNebula."""
        return sorted(self.one.store.vms)

    async def journal(self) -> list[Fact]:
        """Every valid fact in the journal so far."""
        seen: list[Fact] = []
        from services.runtime.rebuild import replay
        from tests.support.shells import LOG

        class Recorder(ExecutorCore):
            def apply(self, fact: Fact, meta: Any) -> None:
                super().apply(fact, meta)
                if meta.void is None:
                    seen.append(fact)

        fold = await replay(self.here.admin, self.here.js, None, Recorder, LOG)
        assert fold.core.dump() == self.core.dump()
        assert fold.custody.dump() == self.custody.dump()
        return seen


# With FAST a test waits for one of these to pass; with SLOW it shows that none is waited for.
SLOW = Policy(grace_s=60.0, kill_s=120.0, stuck_s=180.0, save_s=240.0)
FAST = Policy(grace_s=0.3, kill_s=1.0, stuck_s=1.5, save_s=0.8)


@contextlib.asynccontextmanager
async def stage(
    server: NatsServer,
    directory: Path,
    *,
    hosts: int = 3,
    cores: int = 4,
    poll_s: float = 0.2,
    lease_ttl_s: float = 1.0,
    events: bool = False,
    proxied: bool = False,
    concurrency: int = 8,
) -> AsyncIterator[Stage]:
    driver, settings = DummyDriver(), OneSettings(events_port=free_port() if events else None)
    async with (
        running_opennebula(hosts, driver, True, cores=cores, memory_mb=4096, settings=settings) as one,
        world(server, lease_ttl_s=lease_ttl_s) as here,
    ):
        auth, key = directory / "one_auth", directory / "guest.key"
        auth.write_text(one.session + "\n")
        key.write_bytes(b"a key of the guests")
        stream = f"tcp://127.0.0.1:{one.events.port}" if events else ""
        config = msgspec.structs.replace(
            here.config,
            opennebula=OneConfig(
                endpoint=one.url,
                events=stream,
                auth_file=auth,
                poll_s=poll_s,
                timeout_s=5.0,
                concurrency=concurrency,
            ),
            data=Data(directory=directory, guest_key_file=key),
            http=Http(listen="127.0.0.1:7480", url="http://127.0.0.1:7480"),
        )
        made = Stage(here, one, driver, config)
        if proxied:
            await made.proxy.listen()
            made.config = msgspec.structs.replace(
                config, opennebula=msgspec.structs.replace(config.opennebula, endpoint=made.proxy.url)
            )
        try:
            yield made
        finally:
            made.proxy.heal()
            await here.end()
            if proxied:
                await made.proxy.__aexit__()
            await drop_streams(here.js, here.server)
