"""Two replicas, a broker and a network that fail at random, then heal: what was confirmed is in the journal, once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from schemas.facts import Fact, JobSubmitted, LeaderStarted
from services.domain.custody.meta import Meta
from services.domain.exits import Exit
from services.domain.refusal import Refused
from services.runtime.rebuild import replay
from tests.integration.test_runtime_bytes import configure
from tests.support.nats import NatsServer, running_server
from tests.support.proxy import Proxy
from tests.support.shells import LOG, Running, World, world
from tests.support.toy import ToyCore, job, next_job, state_digest
from tests.support.until import until

FAULTS = 14
EXIT_MAX_S = 40.0  # main.EXIT_S and a machine that is busy; the thread hangs for longer


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with world(server, lease_ttl_s=0.6) as made:
        yield made


class Replica:
    """A supervised service behind its own network: started again whenever it ends."""

    def __init__(self, here: World, proxy: Proxy, name: str) -> None:
        self.here, self.proxy, self.name = here, proxy, name
        self.lives = 0
        self.running = self.begin()

    def begin(self) -> Running:
        self.lives += 1
        config = self.here.config
        nats = msgspec.structs.replace(config.nats, url=self.proxy.url)
        config = msgspec.structs.replace(config, nats=nats)
        return self.here.start(f"{self.name}.{self.lives}", config=config, reaped=[f"{self.name}.{self.lives - 1}"])

    async def supervise(self) -> None:
        while True:
            assert await self.running.task != Exit.OK, "it was not asked to stop"
            self.running = self.begin()


async def ask(replicas: list[Replica], confirmed: dict[str, int]) -> None:
    """Submit for ever, to the leader; remember what was confirmed."""
    while True:
        leader = next((r.running.service for r in replicas if r.running.service.is_leader), None)
        if leader is None:
            await asyncio.sleep(0.01)
            continue
        try:
            outcome = await leader.propose(next_job(leader.custody))
        except Refused:
            continue
        for fact, meta in outcome.facts:
            assert meta.void is None
            assert isinstance(fact, JobSubmitted)
            assert fact.job not in confirmed
            confirmed[fact.job] = outcome.position


async def strike(here: World, proxies: list[Proxy], chance: random.Random) -> None:
    kind = chance.choice(["mute", "cut", "heal", "heal", "broker", "kill", "pause"])
    proxy = chance.choice(proxies)
    if kind in ("mute", "cut", "heal"):
        getattr(proxy, kind)()
    elif kind == "pause":
        here.server.pause()
        await asyncio.sleep(chance.random())
        here.server.resume()
    else:
        await asyncio.to_thread(here.server.kill if kind == "kill" else here.server.stop)
        await asyncio.to_thread(here.server.start)
    await asyncio.sleep(chance.random() * 0.8)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_confirmed_is_in_the_journal_once_for_everybody(here: World, seed: int) -> None:
    chance = random.Random(seed)
    confirmed: dict[str, int] = {}
    async with Proxy(here.server.port) as one, Proxy(here.server.port) as two:
        follower = await here.start("m1", writer=None, name="monitor").caught_up()
        replicas = [Replica(here, one, "a"), Replica(here, two, "b")]
        tasks = [asyncio.create_task(r.supervise()) for r in replicas]
        tasks.append(asyncio.create_task(ask(replicas, confirmed)))
        try:
            for _ in range(FAULTS):
                await strike(here, [one, two], chance)
            one.heal()
            two.heal()
            before = len(confirmed)
            await until(lambda: len(confirmed) > before + 20, "healed: requests are confirmed again")
            for task in tasks:
                assert not task.done(), task.exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await here.end()  # while the network still carries it
    await check_journal(here, confirmed)
    assert before > 0
    assert state_digest(follower.fold) == state_digest(await replay(here.admin, here.js, None, ToyCore, LOG))


async def check_journal(here: World, confirmed: dict[str, int]) -> None:
    submitted: dict[str, int] = {}
    epochs: list[int] = []

    class Recorder(ToyCore):
        def apply(self, fact: Fact, meta: Meta) -> None:
            super().apply(fact, meta)
            if isinstance(fact, JobSubmitted) and meta.void is None:
                assert fact.job not in submitted
                submitted[fact.job] = meta.position
            if isinstance(fact, LeaderStarted):
                epochs.append(fact.epoch)

    fold = await replay(here.admin, here.js, None, Recorder, LOG)
    assert {number: submitted.get(number) for number in confirmed} == confirmed
    assert epochs == list(range(1, len(epochs) + 1))
    assert fold.garbage == 0


def launch(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=output, stderr=output)


async def test_a_deposed_process_ends_though_a_thread_of_it_hangs(server: NatsServer, tmp_path: Path) -> None:
    async with world(server) as here:
        await depose_with_hung_thread(here, tmp_path)


async def depose_with_hung_thread(here: World, tmp_path: Path) -> None:
    file = configure(here, tmp_path)
    program = (
        "import asyncio, sys, time\n"
        "from services.runtime import main\n"
        "from tests.support import toy\n"
        "class Hung(toy.Submitter):\n"
        "    async def lead(self):\n"
        "        await super().lead()\n"
        "        self.service.spawn('hung', asyncio.to_thread(time.sleep, 60))\n"
        "toy.Submitter = Hung\n"
        "sys.exit(main.run('admission', toy._build))\n"
    )
    command = [sys.executable, "-c", program, "--config", str(file), "--instance", "i1"]
    process = launch(command, tmp_path / "log")
    try:
        await until((tmp_path / "states").exists, "it leads and writes")
        await here.write(job(10_000), writer="admission", id="intruder")
        assert await asyncio.to_thread(process.wait, EXIT_MAX_S) == Exit.DEPOSED
    finally:
        process.kill()
