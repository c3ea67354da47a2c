"""Who waits in HAProxy, who is turned away, and what becomes of those whose clients have gone: with the built-in program."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from phoenix.balance.feed import Listed
from phoenix.haproxy.keeper import Keeper
from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.table import Table
from tests.support.haproxy import Haproxy, front
from tests.support.haproxy_site import DEADLINE_S, ROOT, WEBAPP, end
from tests.support.ports import free_port
from tests.support.until import until

CONNECTIONS = 2
MINUTE = "/?cpu_ms=60000"  # longer than a test


class Site:
    """HAProxy, and one instance that may have `CONNECTIONS` requests at a time."""

    def __init__(self, directory: Path) -> None:
        self.haproxy = Haproxy(front(directory, slots=1, queue_s=60), directory)
        self.keeper = Keeper(self.haproxy.api, Table(), Counts())

    async def serve(self, port: int, table: Table) -> None:
        one = Listed(
            unit="web.1",
            attempt=1,
            address=f"127.0.0.1:{port}",
            state="running",
            health_path="/healthz",
            connections=CONNECTIONS,
        )
        table.audited([one], asked_at=0.0, now=0.0)
        self.keeper = Keeper(self.haproxy.api, table, Counts())

        async def serves() -> bool:
            seen = await self.keeper.look()
            slot = seen.reading.slots[0] if seen is not None else None
            return slot is not None and slot.serves and slot.limit == CONNECTIONS

        await until(serves)

    async def open(self) -> tuple[int, int]:
        """Requests that are worked on, and that wait."""
        reading = await self.haproxy.api.read()
        return reading.slots[0].sessions, reading.counters.queued

    async def until_open(self, worked_on: int, waiting: int) -> None:
        async def are() -> bool:
            return await self.open() == (worked_on, waiting)

        await until(are)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site, port = Site(tmp_path), free_port()
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(WEBAPP)), env={"PHOENIX_PORT": str(port)}, stderr=DEVNULL, cwd=ROOT
    )
    await site.haproxy.start()
    try:
        await site.serve(port, Table())
        yield site
    finally:
        await site.haproxy.kill()
        await end(program)


async def ask(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status


async def test_what_would_not_be_served_in_time_is_answered_503_at_once(site: Site) -> None:
    many = CONNECTIONS * (1 + site.haproxy.front.waiting_each)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for one in range(1, CONNECTIONS + 1):
            clients = [asyncio.create_task(ask(session, site.haproxy.url + MINUTE))]
            await site.until_open(one, 0)
        clients += [asyncio.create_task(ask(session, site.haproxy.url + MINUTE)) for _ in range(many - CONNECTIONS)]
        await site.until_open(CONNECTIONS, many - CONNECTIONS)
        clients.append(asyncio.create_task(ask(session, site.haproxy.url + MINUTE)))  # the last who may wait
        await site.until_open(CONNECTIONS, many - CONNECTIONS + 1)
        async with asyncio.timeout(DEADLINE_S), session.get(site.haproxy.url + MINUTE) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
        assert not any(client.done() for client in clients)


async def test_nothing_is_worked_on_that_nobody_waits_for(site: Site) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [asyncio.create_task(ask(session, site.haproxy.url + MINUTE)) for _ in range(CONNECTIONS + 2)]
        await site.until_open(CONNECTIONS, 2)
        for client in clients:
            client.cancel()
        await site.until_open(0, 0)
        async with asyncio.timeout(DEADLINE_S):
            assert await ask(session, site.haproxy.url + "/?cpu_ms=0") == 200
        reading = await site.haproxy.api.read()
        assert (reading.slots[0].errors, reading.counters.errors) == (0, 0)  # it counts as no error
