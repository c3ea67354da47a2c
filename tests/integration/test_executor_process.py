"""The executor as a process: killed in the middle of its work again and again, it neither loses nor doubles a VM."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from schemas import facts as f
from services.executor.core.executor import ExecutorCore
from services.runtime.config.text import dump_toml
from services.runtime.service import Service
from tests.support import forked
from tests.support.executor_stage import FAST, Stage, config_adopted, stage
from tests.support.forked import Forked
from tests.support.nats import NatsServer, running_server
from tests.support.shells import Running
from tests.support.until import until

KILLS, JOBS = 5, 12
END_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


class Processes:
    """Executors on a stage, one after another, watched by a follower."""

    def __init__(self, scene: Stage, directory: Path) -> None:
        self.scene = scene
        self.config = directory / "cloud.toml"
        adopted = config_adopted(FAST).config
        self.config.write_text(dump_toml(msgspec.structs.replace(scene.config, cloud=adopted)))
        self.running: Forked | None = None
        self.number = 0

    def start(self, *, reaped: bool = True) -> None:
        before = f"e{self.number}" if reaped and self.number else ""
        self.number += 1
        words = ["--config", str(self.config), "--instance", f"e{self.number}", "--reaped", before]
        self.running = forked.start("services.executor", words)

    async def end(self, how: signal.Signals) -> int:
        assert self.running is not None
        self.running.send_signal(how)
        process, self.running = self.running, None
        return await asyncio.to_thread(process.wait, END_S)


@pytest.fixture
async def processes(server: NatsServer, tmp_path: Path) -> AsyncIterator[Processes]:
    async with stage(server, tmp_path, hosts=4, cores=64) as scene:
        follower = Service(None, ExecutorCore, scene.config, instance="m1", name="monitor")
        scene.executor = Running(follower)
        await scene.executor.caught_up()
        await scene.write("provisioner", config_adopted(FAST))
        made = Processes(scene, tmp_path)
        try:
            yield made
        finally:
            if made.running is not None:
                await made.end(signal.SIGKILL)
            await scene.executor.stop()


async def test_killed_at_any_moment_it_neither_loses_nor_doubles_a_vm(processes: Processes) -> None:
    scene, chance = processes.scene, random.Random(7)
    processes.start()
    await scene.until(lambda: len(scene.custody.index.by_state["free"]) == 4, "hosts are free")
    hosts = sorted(scene.custody.state.hosts)
    await scene.grant(*hosts)
    units = [str(n + 1) for n in range(KILLS * JOBS)]
    for unit in units:
        await scene.submit(unit)
    for kill in range(KILLS):
        allocated = len(scene.one.store.vms)
        for unit in units[kill * JOBS : (kill + 1) * JOBS]:
            await scene.place(unit, chance.choice(hosts))
        enough = allocated + chance.randrange(1, JOBS)  # somewhere in the middle of its work
        await until(lambda: len(scene.one.store.vms) >= enough, "some VMs are allocated")  # noqa: B023
        await processes.end(signal.SIGKILL)
        processes.start()
    await scene.until(lambda: all(scene.started(unit) == 1 for unit in units), "every job runs")
    open_vms = {vm.vm for vm in scene.custody.state.vms.values()}
    await scene.until(lambda: set(scene.alive()) == open_vms, "nothing else is left")
    every = [*scene.one.store.vms.values(), *scene.one.store.final_vms.values()]
    ran = [vm.user_template.get("PHOENIX_ID") for vm in every if vm.history]
    assert len(ran) == len(set(ran)) == len(units), "each rank ran exactly once"


async def test_sigterm_ends_it_in_order_and_the_journal_says_so(processes: Processes) -> None:
    scene = processes.scene
    processes.start()
    await scene.until(lambda: len(scene.custody.index.by_state["free"]) == 4, "hosts are free")
    assert await processes.end(signal.SIGTERM) == 0
    await scene.until(lambda: scene.custody.state.leaders["executor"].stopped, "leader.stopped")
    facts = [type(fact) for fact in await scene.journal() if isinstance(fact, f.LeaderStarted | f.LeaderStopped)]
    assert facts == [f.LeaderStarted, f.LeaderStopped]


async def test_a_login_that_is_not_there_is_said_in_one_line(
    processes: Processes, capfd: pytest.CaptureFixture[str]
) -> None:
    processes.scene.config.opennebula.auth_file.unlink()
    processes.start()
    assert processes.running is not None
    assert await asyncio.to_thread(processes.running.wait, END_S) == 2
    processes.running = None
    assert "it should hold OpenNebula's login" in capfd.readouterr().err
