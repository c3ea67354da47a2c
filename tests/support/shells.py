"""Services under test: started in this process on a real broker, observed with deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from schemas.envelope import Envelope, encode
from schemas.facts import Fact
from schemas.subjects import journal
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Config
from services.runtime.log import get_log
from services.runtime.rebuild import replay
from services.runtime.service import Service
from tests.support.nats import NatsServer
from tests.support.toy import ToyCore, toy_config
from tests.support.until import DEADLINE_S, until

LOG = get_log(service="test")


class Running:
    """A service and the task that runs it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.task = asyncio.create_task(service.run())

    async def leads(self) -> Service:
        await until(lambda: self.service.is_leader or self.task.done(), "leads")
        assert not self.task.done(), f"ended with {self.task.result()}"
        return self.service

    async def caught_up(self) -> Service:
        await until(lambda: self.service.caught_up or self.task.done(), "caught up")
        assert not self.task.done(), f"ended with {self.task.result()}"
        return self.service

    async def code(self) -> int:
        """The exit code, once it has ended by itself."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.task

    async def stop(self) -> int:
        self.service.stop()
        return await self.code()


class World:
    """A broker with Phoenix's streams, an admin's connection, and the services started on it."""

    def __init__(self, server: NatsServer, admin: Client, config: Config) -> None:
        self.server, self.admin, self.config = server, admin, config
        self.js = admin.jetstream(timeout=10)
        self._running: list[Running] = []

    def start(
        self, instance: str = "a1", *, config: Config | None = None, core: Any = ToyCore, **options: Any
    ) -> Running:
        """Start an admission on the toy core; `options` as of `Service`."""
        writer = options.pop("writer", "admission")
        running = Running(Service(writer, core, config or self.config, instance=instance, **options))
        self._running.append(running)
        return running

    async def publish(self, data: bytes, writer: str = "admission", **headers: str) -> int:
        """Put bytes on a journal subject, as a client with too many rights would."""
        return (await self.js.publish(journal(writer), data, headers=headers or None)).seq

    async def write(self, *facts: Fact, writer: str = "provisioner", at: float | None = None, id: str = "x") -> int:
        """One envelope of another writer."""
        when = time.time() if at is None else at
        envelope = Envelope(id=id, writer=writer, epoch=1, at=when, facts=facts)
        return await self.publish(encode(envelope), writer)

    async def replayed(self, core: Any = ToyCore, archive: Path | None = None) -> tuple[bytes, bytes]:
        """Custody and core bytes of a full replay."""
        fold = await replay(self.admin, self.js, None, core, LOG, archive=archive)
        return fold.custody.dump(), fold.core.dump()

    async def end(self) -> None:
        for running in self._running:
            if not running.task.done():
                running.service.stop()
        for running in self._running:
            running.task.cancel() if self.server.process is None else None
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await running.code()


@contextlib.asynccontextmanager
async def world(server: NatsServer, **settings: Any) -> AsyncIterator[World]:
    """`settings`: as of `toy_config`."""
    config = toy_config(server.url, server.directory, **settings)
    admin = await nats.connect(server.url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    await ensure_streams(admin.jetstream(timeout=30), config)
    here = World(server, admin, config)
    try:
        yield here
    finally:
        await here.end()
        await admin.close()


@contextlib.asynccontextmanager
async def clean_world(server: NatsServer) -> AsyncIterator[World]:
    """On a broker that others use after it: its services end before its streams go."""
    async with world(server) as made:
        try:
            yield made
        finally:
            await made.end()
            await drop_streams(made.js, server)


async def drop_streams(js: JetStreamContext, server: NatsServer, *names: str) -> None:
    """Those streams, or all, for good.  The broker answers before the files are gone, and who creates a stream of the same name
    meanwhile is refused, or finds the old messages in it.  With the last one it removes their directory, some time later: a
    stream that is created then may lose it, so something else stays in it."""
    names = names or tuple(stream.config.name or "" for stream in await js.streams_info())
    if not names:
        return
    kept = server.store / "jetstream" / "$G" / "streams"
    (kept / ".keep").touch()
    for name in names:
        await js.delete_stream(name)
    gone = {hidden + name for name in names for hidden in ("", ".")}
    await until(lambda: not gone & _names(kept), f"{kept} is without {', '.join(names)}")


def _names(directory: Path) -> set[str]:
    """What is in it; the broker removes it with the last stream."""
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()
