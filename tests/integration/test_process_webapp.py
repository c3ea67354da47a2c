"""The default web instance: real CPU time, honest health, its own limit, and an end that loses no request."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from phoenix.local.webapp.program import QUEUE_MAX
from tests.support.ports import free_port

WEBAPP = Path(__file__).resolve().parents[2] / "phoenix" / "local" / "webapp" / "program.py"
DEADLINE_S = 30.0
Start = Callable[..., Awaitable[tuple[Process, str]]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def start_one(**environment: str) -> tuple[Process, str]:
            port = free_port()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(WEBAPP), env={"PHOENIX_PORT": str(port), **environment}, stderr=PIPE
            )
            stack.push_async_callback(end, process)
            await until_healthy(f"http://127.0.0.1:{port}")
            return process, f"http://127.0.0.1:{port}"

        yield start_one


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def until_healthy(url: str) -> None:
    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as session:
        while True:
            try:
                await session.get(url + "/healthz")
                return
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


async def used(session: aiohttp.ClientSession, url: str) -> float:
    async with session.get(url + "/healthz") as answer:
        assert answer.status == 200
        return float(answer.headers["Phoenix-Cpu-Seconds"])


async def test_a_request_burns_what_it_says_over_one_kept_connection(start: Start) -> None:
    _, url = await start(WORK_CPU_MS="10")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        before = await used(session, url)
        for path in ("/", "/?cpu_ms=20", "/?cpu_ms=0"):
            async with session.get(url + path) as answer:
                assert answer.status == 200
        burnt = await used(session, url) - before
    assert 0.03 <= burnt < 0.06


async def test_its_own_limit_holds_while_health_stays_prompt(start: Start) -> None:
    _, url = await start(PHOENIX_SELF_LIMIT="1", PHOENIX_CORES="2", PHOENIX_CORE_SHARE="0.05")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        work = [asyncio.ensure_future(session.get(url + "/?cpu_ms=50")) for _ in range(10)]
        began, before, after, waits = time.monotonic(), await used(session, url), 0.0, list[float]()
        while time.monotonic() - began < 1.0 or (after - before < 0.05 and time.monotonic() - began < DEADLINE_S):
            asked = time.monotonic()
            after = await used(session, url)
            waits.append(time.monotonic() - asked)
            await asyncio.sleep(0.02)
        share = (after - before) / (time.monotonic() - began)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    assert after - before >= 0.05, "it works: on a busy machine later"
    assert share < 0.16
    assert sorted(waits)[len(waits) // 2] < 0.25, "an answer that waited for the work would always be late"


async def test_term_answers_what_was_asked_and_exits_0(start: Start) -> None:
    process, url = await start()
    async with aiohttp.ClientSession() as session:
        work = [asyncio.ensure_future(session.get(url + "/?cpu_ms=100")) for _ in range(3)]
        while await used(session, url) < 0.02:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        idle = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        process.send_signal(signal.SIGTERM)
        assert [answer.status for answer in await asyncio.gather(*work)] == [200] * 3
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 0
        assert await idle[0].read() == b""
        idle[1].close()


async def asks(url: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def test_a_request_whose_client_has_gone_is_not_worked_on(start: Start) -> None:
    _, url = await start()
    clients = [await asks(url, "/?cpu_ms=60000") for _ in range(3)]  # a minute each: longer than the deadline
    async with aiohttp.ClientSession() as session:
        while await used(session, url) < 0.1:  # noqa: ASYNC110  # the first is under way
            await asyncio.sleep(0.01)
        for _, writer in clients:
            writer.close()
        async with asyncio.timeout(DEADLINE_S), session.get(url + "/?cpu_ms=0") as answer:
            assert answer.status == 200


async def test_what_its_queue_has_no_room_for_is_answered_503_at_once(start: Start) -> None:
    _, url = await start()
    clients = [await asks(url, "/?cpu_ms=60000") for _ in range(QUEUE_MAX + 1)]
    lines = [asyncio.create_task(reader.readline()) for reader, _ in clients]
    async with asyncio.timeout(DEADLINE_S):
        answered, waiting = await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
    assert [(await line).split()[1] for line in answered] == [b"503"]
    for line in waiting:
        line.cancel()
    for _, writer in clients:
        writer.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /?cpu_ms=x HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /?cpu_ms=99999999 HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST /?cpu_ms=0 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"200"),
        (b"GET /" + b"x" * 20000, b"400"),
    ],
)
async def test_what_it_answers(start: Start, request_: bytes, status: bytes) -> None:
    _, url = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request_)
    async with asyncio.timeout(DEADLINE_S):
        assert (await reader.readline()).split()[1] == status
    writer.close()


async def test_a_wrong_environment_is_explained() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(WEBAPP), env={"PHOENIX_PORT": "http"}, stderr=PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 2
    assert b"must be numbers" in errors
