"""Instances that speak bad HTTP, or without end: the embedded load balancer goes on, and its other instances serve."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import aiohttp
import pytest
import pytest_asyncio

from benchmarks.cloud import memory_mb
from tests.support.balancer_site import Site
from tests.support.until import DEADLINE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GROWS_MB = 100.0  # a second of an answer without end is a gigabyte
LOOKS = 3  # health checks of it
ATTEMPTS = itertools.count(1)
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        found = Site(tmp_path_factory.mktemp("instances"), stack)
        await found.start(health_interval_s=0.2)
        unit, _ = await found.instance()
        await found.until_in_service(unit)
        yield found


async def hostile(site: Site, stack: AsyncExitStack, page: Answer, health: Answer | None = None) -> list[bytes]:
    """An instance that answers so; returns the first lines of what it is asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(head.partition(b"\r\n")[0])
                if b" /healthz " in asked[-1] and health is None:
                    writer.write(WELL)
                else:
                    await (page if health is None or b" /healthz " not in asked[-1] else health)(writer)
                    break
        writer.close()

    attempt = next(ATTEMPTS)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    site.listed.append(
        {"unit": "web.odd", "attempt": attempt, "address": address, "state": "running", "connections": 8}
    )
    await site.event("attempt.began", unit="web.odd", attempt=attempt, addresses=[address])

    async def gone() -> None:
        site.unlist("web.odd")
        await site.event("attempt.closed", unit="web.odd", attempt=attempt)
        server.close()

        async def forgotten() -> bool:
            return all(one["unit"] != "web.odd" for one in (await site.status())["instances"])

        await until(forgotten, "it is forgotten")

    stack.push_async_callback(gone)
    return asked


def says(data: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return answer


def endless(head: bytes, piece: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return answer


BOMB = gzip.compress(bytes(1 << 26), 9)
ENDLESS = {
    "body": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (1 << 20)),
    "long body": endless(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * (1 << 20)),
    "chunks": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"),
    "one chunk's extension": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * (1 << 20)),
    "trailers": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n" * (1 << 16)),
    "headers": endless(b"HTTP/1.1 200 OK\r\n", b"X: x\r\n" * (1 << 16)),
    "one header": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * (1 << 20)),
    "first line": endless(b"HTTP/1.1 200 ", b"x" * (1 << 20)),
    "continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * (1 << 14)),
    "compressed": endless(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
                          b"%x\r\n" % len(BOMB) + BOMB + b"\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDLESS)
async def test_a_health_check_without_end_takes_no_memory_and_keeps_nobody_else_waiting(site: Site, what: str) -> None:
    before = memory_mb(site.balancer.pid)
    async with AsyncExitStack() as stack:
        asked = await hostile(site, stack, says(WELL), ENDLESS[what])
        most = before

        def looked() -> bool:
            nonlocal most
            most = max(most, memory_mb(site.balancer.pid))
            return len(asked) >= LOOKS

        await until(looked, "it was asked often enough")
        assert {await site.get() for _ in range(10)} == {200}
    assert most - before < GROWS_MB
    assert site.balancer.returncode is None


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_answer_without_end_takes_no_memory_and_keeps_nobody_else_waiting(site: Site, what: str) -> None:
    before = most = memory_mb(site.balancer.pid)
    async with AsyncExitStack() as stack:
        asked = await hostile(site, stack, ENDLESS[what])
        await site.until_in_service("web.1", "web.odd")
        patient: list[asyncio.StreamWriter] = []
        while sum(b" /healthz " not in line for line in asked) < LOOKS:  # clients that ask, and read nothing of it
            host, _, port = site.url.removeprefix("http://").partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            patient.append(writer)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await writer.drain()
            assert await site.status()
            most = max(most, memory_mb(site.balancer.pid))
        for _ in range(20):
            most = max(most, memory_mb(site.balancer.pid))
            assert await site.status()
    assert most - before < GROWS_MB
    assert site.balancer.returncode is None


BAD = (
    b"",
    b"\r\n\r\n",
    b"\x00" * 1000,
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 000 Odd\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX\xff: \xff\xfe\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nX: \xff\xfe\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 200 \xff\xfe\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, x\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nConnection: \xff, X-Y\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nx",
    b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nabcde",
    b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    b"HTTP/1.1 302 Away\r\nLocation: http://other.host:1/\xff\r\nContent-Length: 0\r\n\r\n",
    b"SSH-2.0-x\r\n",
    b"\x16\x03\x01\x02\x00",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Type: \xff;charset=\xff\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nSet-Cookie: \xff=\x01; expires=x\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
    b"HTTP/1.1 200 OK\r\n X: folded\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + WELL,
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + WELL,
    b"HTTP/1.1 200 a\rb\r\nContent-Length: 0\r\n\r\n",
)


def looked_at(asked: list[bytes]) -> bool:
    return len(asked) >= LOOKS


async def status_of(site: Site) -> int:
    """0 where the answer is broken off, or none that a client can read."""
    try:
        async with asyncio.timeout(DEADLINE_S), site.session.get(site.url + "/", auto_decompress=False) as answer:
            await answer.read()
            return answer.status
    except aiohttp.ClientError:
        return 0


async def test_bad_http_is_an_error_of_that_request_or_check_alone(site: Site) -> None:
    wrong: list[object] = []
    for data in BAD:
        async with AsyncExitStack() as stack:
            asked = await hostile(site, stack, says(data), says(data))
            await until(partial(looked_at, asked), "it was checked")
            told = [await status_of(site) for _ in range(3)]
            if "web.odd" not in await site.in_service() and told != [200] * 3:
                wrong.append((data, "others do not serve", told))
        async with AsyncExitStack() as stack:
            asked, told = await hostile(site, stack, says(data)), []
            await site.until_in_service("web.1", "web.odd")
            while all(b" /healthz " in line for line in asked):
                told.append(await status_of(site))
            if 500 in told:
                wrong.append((data, "an error of the balancer", told))
    assert wrong == []
    assert site.balancer.returncode is None
