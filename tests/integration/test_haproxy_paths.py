"""What a release or the configuration changes at run time: health paths and limits of a real HAProxy's servers, which is not
reloaded for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from phoenix.balance.feed import Listed
from phoenix.haproxy import check
from phoenix.haproxy.keeper import Keeper
from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.settings import Settings
from phoenix.haproxy.table import Table
from phoenix.haproxy.watch import NO_MAP, Watch
from tests.support.haproxy import Haproxy, front
from tests.support.haproxy_site import Site
from tests.support.ports import free_port
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ODD = "/up/~x.y_z-1?a=1&b=%20%2F,c:@+"  # every kind of character that a health path may hold


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cloud(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        site_ = Site(tmp_path_factory.mktemp("site"), stack)
        await site_.start()
        await site_.begin("web.1")
        await site_.until_serving("web.1")
        yield site_


async def test_a_release_with_another_health_path_takes_the_place_of_one_and_goes_back_without_a_reload(
    cloud: Site,
) -> None:
    pid = await cloud.haproxy.pid()
    async with cloud.load():
        for number in (10, 12):
            await cloud.begin(f"web.{number}", health_path="/up")
            await cloud.until_serving("web.1", f"web.{number}")  # two releases, two paths
            await cloud.begin(f"web.{number + 1}")
            await cloud.until_serving("web.1", f"web.{number}", f"web.{number + 1}")
            await cloud.retire(f"web.{number}")
            await cloud.retire(f"web.{number + 1}")
    assert await cloud.haproxy.pid() == pid
    assert not [report for report in cloud.reports if report["state"] == "unready"]


async def test_what_an_instance_is_asked_for_is_known_while_it_boots_also_if_the_door_is_away_afterwards(
    cloud: Site,
) -> None:
    port = free_port()
    said = {"unit": "web.15", "attempt": 1, "state": "starting", "address": None, "cores": 1, "health_path": "/up"}
    cloud.listed["web.15"] = said
    await cloud.event("unit.placed", unit="web.15", attempt=1, hosts=["h"], cores=1, memory_mb=1)
    lists = cloud.lists

    async def has_been_asked_for_twice() -> bool:  # one may have been on its way
        return cloud.lists >= lists + 2

    await until(has_been_asked_for_twice)
    cloud.lists_silent = True
    await cloud.begin("web.15", port=port, health_path="/up")
    await cloud.until_serving("web.15")
    cloud.lists_silent = False
    await cloud.retire("web.15")


@pytest.mark.long
async def test_a_haproxy_that_starts_anew_is_told_the_paths_before_anything_is_checked(cloud: Site) -> None:
    await cloud.begin("web.20", health_path="/up")
    await cloud.until_serving("web.20")
    await cloud.haproxy.kill()
    cloud.reports.clear()
    await cloud.haproxy.start()
    assert await cloud.haproxy.api.paths() is not None
    async with cloud.load():
        await cloud.until_serving("web.1", "web.20")
        await cloud.retire("web.20")
    assert not [report for report in cloud.reports if report["state"] == "unready"]


async def test_a_reload_keeps_the_paths_and_a_map_that_has_lost_them_is_filled(cloud: Site) -> None:
    await cloud.begin("web.30", health_path="/up")
    await cloud.until_serving("web.30")
    before = await cloud.haproxy.api.paths()
    assert before
    cloud.agent.send_signal(signal.SIGSTOP)
    async with cloud.load():
        await cloud.haproxy.reload(cloud.config)
        assert await cloud.haproxy.api.paths() == before
        cloud.agent.send_signal(signal.SIGCONT)
        assert not (await cloud.haproxy.api.ask(f"clear map {cloud.haproxy.front.health_map}")).strip()

        async def is_filled() -> bool:
            slot = await cloud.slot_of("web.30")
            return slot is not None and slot.path == "/up" and slot.serves

        await until(is_filled)
        await cloud.retire("web.30")


@pytest.mark.long
async def test_how_many_requests_an_instance_has_at_once_follows_what_the_door_says(cloud: Site) -> None:
    pid = await cloud.haproxy.pid()
    async with cloud.load():
        for limit in (4, 700):
            cloud.listed["web.1"]["connections"] = limit

            async def is_so(limit: int = limit) -> bool:
                slot = await cloud.slot_of("web.1")
                return slot is not None and slot.limit == limit

            await until(is_so)
    assert await cloud.haproxy.pid() == pid


async def test_check_names_a_configuration_without_the_map(
    cloud: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    socket, other = str(cloud.haproxy.front.socket), str(tmp_path / "other.map")
    settings = Settings(department="web", user="lb", nats_url=cloud.broker.url, socket=socket, health_map=other)
    assert await check.run(settings) == 2
    [wrong] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
    assert f"backend web has no map {other} of health paths: `http-check send" in wrong


async def test_each_server_is_asked_for_its_own_path_as_it_is(tmp_path: Path) -> None:
    asked: dict[int, set[str]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
        asked.setdefault(writer.get_extra_info("sockname")[1], set()).add(path)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    expected, listed = {}, []
    async with AsyncExitStack() as stack:
        for number, path in enumerate((ODD, "/" + "x" * 1023, "/healthz")):
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            expected[port] = {path}
            listed.append(told(f"web.{number}", port, path))
        haproxy = Haproxy(front(tmp_path), tmp_path)
        await haproxy.start()
        stack.push_async_callback(haproxy.kill)
        table = Table()
        table.audited(listed, asked_at=0.0, now=0.0)
        keeper = Keeper(haproxy.api, table, Counts())

        async def all_serve() -> bool:
            seen = await keeper.look()
            return seen is not None and sum(slot.serves for slot in seen.reading.slots) == 3

        await until(all_serve)
        assert asked == expected


async def test_with_an_older_configuration_a_release_with_another_path_is_told_why_it_does_not_serve(
    tmp_path: Path,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_right = b" /up " in await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {'200 OK' if is_right else '404 No'}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        stack.callback(server.close)
        haproxy = Haproxy(front(tmp_path), tmp_path)
        await haproxy.start(health_path="/healthz")
        stack.push_async_callback(haproxy.kill)
        table, counts, watch = Table(), Counts(), Watch(0.0)
        table.audited([told("web.1", server.sockets[0].getsockname()[1], "/up")], asked_at=0.0, now=0.0)
        keeper = Keeper(haproxy.api, table, counts)

        async def reported() -> str | None:
            seen = await keeper.look()
            assert seen is not None
            reports = watch.look(table.all(), seen.plan, seen.reading)
            return next((report.why for report in reports if report.state == "unready"), None)

        why: str = await until(reported)
        assert why.startswith(f"{NO_MAP}, the release's is /up; health check: HTTP 404")
        assert {outcome for _, outcome in counts.commands} == {"done"}


def told(unit: str, port: int, path: str) -> Listed:
    return Listed(unit=unit, attempt=1, state="running", address=f"127.0.0.1:{port}", health_path=path)
