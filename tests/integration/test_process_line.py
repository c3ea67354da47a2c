"""Who waits at the embedded load balancer, who is turned away, and what becomes of those whose clients have gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from phoenix.local.balancer.line import LINE_PER_PLACE
from tests.support.balancer_site import DEADLINE_S, Site, serve_once
from tests.support.until import until


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, stack)


class Desk:
    """A foreign instance that works on what it has begun until it is ordered to end it."""

    def __init__(self) -> None:
        self.begun = self.broken_off = 0
        self.end = asyncio.Event()

    async def work(self, _request: web.Request) -> web.StreamResponse:
        self.begun += 1
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return web.Response(text="done")


async def asked(site: Site, count: int) -> list[asyncio.Task[int]]:
    """This many clients, whose requests have all reached the balancer."""
    before = await heard(site)
    clients = [asyncio.create_task(site.get("/work")) for _ in range(count)]

    async def are_heard() -> bool:
        return await heard(site) == before + count

    await until(are_heard)
    return clients


async def heard(site: Site) -> int:
    """Requests that an instance works on, or that wait."""
    status = await site.status()
    return int(status["queued"]) + sum(one["open_requests"] for one in status["instances"])


async def test_an_instance_has_so_many_at_a_time_and_the_rest_waits_at_the_balancer(site: Site) -> None:
    await site.start(wait_s=60, connections=2)
    desk = Desk()
    unit = await serve_once(site, desk.work, connections=0)  # a door that does not say it: what the balancer began with
    await site.until_in_service(unit)
    clients = await asked(site, 5)
    status = await site.status()
    assert (status["instances"][0]["open_requests"], status["queued"], desk.begun) == (2, 3, 2)
    site.listed[0]["connections"] = 4  # the department changes it while it runs

    async def are_four() -> bool:
        return desk.begun == 4

    await until(are_four)
    assert (await site.status())["queued"] == 1
    desk.end.set()
    assert await asyncio.gather(*clients) == [200] * 5


async def test_what_will_not_be_served_in_time_is_answered_503_at_once(site: Site) -> None:
    await site.start(wait_s=60, connections=1)
    desk = Desk()
    unit = await serve_once(site, desk.work, connections=1)
    await site.until_in_service(unit)
    clients = await asked(site, 1 + LINE_PER_PLACE)
    async with site.session.get(site.url + "/work") as answer:
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
    assert not any(client.done() for client in clients)
    assert (await site.status())["refused"] == 1
    desk.end.set()
    assert await asyncio.gather(*clients) == [200] * (1 + LINE_PER_PLACE)


async def test_nothing_is_worked_on_that_nobody_waits_for(site: Site) -> None:
    await site.start(wait_s=60, connections=1)
    desk = Desk()
    unit = await serve_once(site, desk.work, connections=1)
    await site.until_in_service(unit)
    under_way, *waiting = [client for _ in range(4) for client in await asked(site, 1)]
    for client in waiting[:2]:
        client.cancel()

    async def have_left() -> bool:
        return bool((await site.status())["queued"] == 1)

    await until(have_left)
    under_way.cancel()

    async def is_the_last_ones() -> bool:
        return (await site.status())["gone"] == 3 and desk.begun == 2

    await until(is_the_last_ones)
    assert desk.broken_off == 1  # what was under way; the two that waited were never begun
    desk.end.set()
    assert await waiting[2] == 200


async def test_the_built_in_program_works_off_nothing_that_nobody_waits_for(site: Site) -> None:
    await site.start(connections=4)
    unit, _ = await site.instance()
    await site.until_in_service(unit)
    before = await heard(site)
    clients = [asyncio.create_task(site.get("/?cpu_ms=60000")) for _ in range(4)]

    async def are_heard() -> bool:
        return await heard(site) == before + 4

    await until(are_heard)
    for client in clients:
        client.cancel()
    assert await asyncio.wait_for(site.get("/?cpu_ms=0"), DEADLINE_S) == 200
