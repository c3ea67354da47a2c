"""The HTTP server that every door stands on: who is slow, who is too many, and that nothing of what was sent is logged."""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import math
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from aiohttp import web

from services.runtime.callers.peers import Peers
from services.runtime.config.tables import Http
from services.runtime.http import body, server
from services.runtime.http.answers import problem_response
from services.runtime.http.body import BodyRefused, read_body
from services.runtime.http.guard import Guard, network_of
from services.runtime.http.server import Site, is_known
from services.runtime.log import Form, configure, get_log
from tests.support.problems import checked
from tests.support.until import DEADLINE_S, until
from tests.unit.frame_source import PRODUCT, ROOT, sources

SECRET = "s3cr3t-of-somebody"
GET = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"
SOON_S = 0.05  # a limit of time that a test waits for
QUICK = Http(header_timeout_s=SOON_S)


class Made:
    """A server of the tests, and what its handlers wait for."""

    def __init__(self, guard: Guard) -> None:
        self.guard, self.port = guard, 0
        self.go_on, self.began, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(self, _request: web.Request) -> web.Response:
        self.began.set()
        await self.go_on.wait()
        return web.Response(text="waited")

    async def take(self, request: web.Request) -> web.Response:
        self.began.set()
        try:
            return web.Response(text=str(len(await read_body(request, 1 << 20))))
        except BodyRefused as refused:
            return problem_response(request, refused.problem())

    async def flood(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            for _ in range(4096):
                await answer.write(b"x" * 65_536)
        finally:
            self.ended.set()
        return answer

    async def fail(self, request: web.Request) -> web.Response:
        raise ValueError(f"cannot read {request.headers.get('Authorization')}")

    async def quick(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            is_known(request)
        return web.Response()

    async def open(self, host: str = "127.0.0.1") -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get("/wait", self.wait), web.post("/take", self.take), web.get("/flood", self.flood)])
        app.add_routes([web.get("/fail", self.fail), web.get("/quick", self.quick)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await Site(runner, host, 0, self.guard).start()
        self.port = runner.addresses[0][1]
        return runner

    async def connect(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))

    async def ask(self, data: bytes, address: str = "127.0.0.1") -> bytes:
        """All that comes until the server closes."""
        reader, writer = await self.connect(address)
        writer.write(data)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


Make = Callable[[Guard], Awaitable[Made]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    runners = []

    async def made(guard: Guard) -> Made:
        found = Made(guard)
        runners.append(await found.open())
        return found

    yield made
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Form], io.StringIO]]:
    """Everything that the process logs, in one form or the other."""
    kept = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in ("phoenix", "")}
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    stream = io.StringIO()

    def begin(form: Form) -> io.StringIO:
        monkeypatch.setattr(sys, "stderr", stream)  # now: between set-up and test it is somebody else's
        configure("debug", form)
        return stream

    yield begin
    for name, (handlers, level) in kept.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).setLevel(level)
    logging.getLogger("phoenix").propagate = True
    logging.captureWarnings(False)


# ---------------------------------------------------------------------------------------------------------------- slowness


@pytest.mark.parametrize(
    "sent", [b"", b"GET /wait HT", GET[:-2] % b"/wait", b"GET /wait HTTP/1.1\r\nHost: x\r\nA: b\r\n"]
)
async def test_half_a_request_is_closed(make: Make, sent: bytes) -> None:
    made = await make(Guard(get_log(), QUICK))
    assert await made.ask(sent) == b""
    assert made.guard.counts.closed["header"] == 1
    await until(lambda: made.guard.counts.open == 0, "the connection is forgotten")


async def test_a_header_that_drips_is_closed_all_the_same(make: Make) -> None:
    made = await make(Guard(get_log(), QUICK))
    reader, writer = await made.connect()
    writer.write(b"GET /wait HTTP/1.1\r\n")
    ended = asyncio.create_task(reader.read())
    while not ended.done():
        writer.write(b"A: b\r\n")
        await asyncio.wait({ended}, timeout=SOON_S / 10)
    assert made.guard.counts.closed["header"] == 1
    writer.close()


async def test_a_long_answer_takes_as_long_as_it_takes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", SOON_S)
    made = await make(Guard(get_log(), QUICK))
    answer = asyncio.create_task(made.ask(GET % b"/wait"))
    await made.began.wait()
    assert await made.ask(b"GET") == b""  # so long have they waited
    made.go_on.set()
    assert (await answer).endswith(b"waited")  # and an idle connection is closed in the end: `ask` reads until then
    assert made.guard.counts.closed["header"] == 1


async def test_a_body_keeps_a_rate(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "GRACE_S", SOON_S)
    monkeypatch.setattr(server, "LINGER_S", SOON_S)
    made = await make(Guard(get_log()))
    head = b"POST /take HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    slow = await made.ask(head % 9 + b"12")
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert b"2 bytes" in slow
    assert made.guard.counts.closed["body"] == 1
    monkeypatch.setattr(body, "RATE_MIN", 1)
    reader, writer = await made.connect()
    writer.write(head % 240 + b"x" * 120)  # two minutes more are its own now
    assert (await made.ask(head % 2)).startswith(b"HTTP/1.1 408 ")
    writer.write(b"x" * 120)
    assert (await reader.read()).endswith(b"240")
    writer.close()


async def test_who_takes_no_answer_is_closed_and_who_is_slow_is_not(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_S", SOON_S)
    made = await make(Guard(get_log()))
    with socket.create_connection(("127.0.0.1", made.port)) as silent:
        silent.sendall(GET % b"/flood")
        await made.ended.wait()
    assert made.guard.counts.closed["unread"] == 1
    made.ended.clear()
    unread_s = 40 * SOON_S  # a busy machine's pauses are shorter
    monkeypatch.setattr(server, "UNREAD_S", unread_s)
    reader, writer = await made.connect()
    writer.write(GET % b"/flood")
    begun = time.monotonic()
    while time.monotonic() - begun < 1.5 * unread_s:
        await reader.read(1 << 17)
        await asyncio.wait({asyncio.ensure_future(made.ended.wait())}, timeout=SOON_S / 2)
    assert made.guard.counts.closed["unread"] == 1
    writer.close()


# ---------------------------------------------------------------------------------------------------------------- too many


async def test_one_client_closes_the_door_for_nobody_else(make: Make, lines: Callable[[Form], io.StringIO]) -> None:
    said = lines("text")
    made = await make(Guard(get_log(), Http(connections_max=50, connections_per_address_max=20)))
    held = [await made.connect() for _ in range(100)]
    await until(lambda: sum(made.guard.counts.refused.values()) == 80, "who is too many is refused")
    full = await held[-1][0].read()
    assert full.startswith(b"HTTP/1.1 503 ")
    head, _, told = full.partition(b"\r\n\r\n")
    assert (
        checked(503, dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:]), told).code == "unavailable"
    )
    assert made.guard.counts.refused == {"address": 80, "all": 0}
    made.go_on.set()
    closing = GET.replace(b"Host: x", b"Host: x\r\nConnection: close")
    assert (await made.ask(closing % b"/wait", "127.0.0.2")).endswith(b"waited")
    others = [await made.connect(f"127.0.0.{n}") for n in range(3, 43)]
    await until(lambda: made.guard.counts.refused["all"] == 10, "there is a limit for all together")
    assert len(said.getvalue().splitlines()) == 1
    for _, writer in (*held, *others):
        writer.close()
    await until(lambda: made.guard.counts.open == 0, "all are forgotten")
    assert (await made.ask(closing % b"/wait")).endswith(b"waited")


def test_a_proxy_speaks_for_many() -> None:
    guard = Guard(get_log(), Http(connections_max=5, connections_per_address_max=2), peers=Peers(["10.0.0.5"]))
    assert [guard.enter("10.0.0.9") for _ in range(3)] == [True, True, False]
    assert [guard.enter("10.0.0.5") for _ in range(4)] == [True, True, True, False]
    guard.leave("10.0.0.9")
    assert guard.enter("10.0.0.9")
    assert (guard.counts.open, guard.counts.refused) == (5, {"all": 1, "address": 1})


@pytest.mark.parametrize(
    ("peer", "counts_as"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(peer: str, counts_as: str) -> None:
    assert network_of(peer) == counts_as


def test_a_process_without_files_says_so_now_and_then(lines: Callable[[Form], io.StringIO]) -> None:
    said, now = lines("text"), [0.0]
    guard = Guard(get_log(), now=lambda: now[0])
    loop = asyncio.new_event_loop()
    with socket.socket() as listening:
        full = {"message": "socket.accept() out of system resource", "socket": listening}
        for _ in range(1000):
            guard.loop_failed(loop, {**full, "exception": OSError(errno.EMFILE, "Too many open files")})
        now[0] = 11.0
        guard.loop_failed(loop, {**full, "exception": OSError(errno.EMFILE, "Too many open files")})
    guard.loop_failed(loop, {"message": "Task exception was never retrieved", "exception": ValueError(SECRET)})
    loop.close()
    told = said.getvalue().splitlines()
    assert guard.counts.accept_errors == 1001
    assert all(" connection not accepted error=EMFILE " in line for line in told[:2])
    assert told[1].endswith("left_out=999")
    assert len(told) == 3
    assert SECRET not in said.getvalue()


def test_every_listener_is_guarded() -> None:
    bare = [str(path) for path in sources(*PRODUCT) if ".TCPSite(" in (ROOT / path).read_text()]
    assert bare == []


# ----------------------------------------------------------------------------------------------------- nothing is repeated

BEARER = f"Authorization: Bearer {SECRET}".encode()
HEAD = b"POST /take HTTP/1.1\r\nHost: x\r\n"
MALFORMED = {
    "CRLF at its end": HEAD + BEARER + b"\r\r\n\r\n",
    "CR within": HEAD + BEARER + b"\rX: y\r\n\r\n",
    "NUL": HEAD + BEARER + b"\0\r\n\r\n",
    "folded": HEAD + b"Authorization: Bearer\r\n " + SECRET.encode() + b"\r\n\r\n",
    "no colon": HEAD + SECRET.encode() + b"\r\n\r\n",
    "a space before the colon": HEAD + b"Authorization : Bearer " + SECRET.encode() + b"\r\n\r\n",
    "a bad name": HEAD + b"Autho\xffrization: Bearer " + SECRET.encode() + b"\r\n\r\n",
    "too long": HEAD + BEARER + b"x" * 9000 + b"\r\n\r\n",
    "too many": HEAD + (BEARER + b"\r\n") * 200 + b"\r\n",
    "a long line": b"GET /?" + SECRET.encode() + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad path": b"GET //[" + SECRET.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad method": SECRET.encode() + b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad version": HEAD.replace(b"HTTP/1.1", b"HTTP/9.9" + SECRET.encode()) + b"\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n" + BEARER + b"\r\n\r\n",
    "a bad length": HEAD + b"Content-Length: " + SECRET.encode() + b"\r\n\r\n",
    "a bad coding": HEAD + b"Transfer-Encoding: " + SECRET.encode() + b"\r\n\r\n",
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + SECRET.encode() + b"\r\n\r\n",
    "a chunk too short": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n" + SECRET.encode() + b"\r\n\r\n",
    "no gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 18\r\n\r\n" + SECRET.encode(),
    "TLS": b"\x16\x03\x01" + SECRET.encode() + b"\r\n\r\n",
    "a bad cookie": HEAD + b"Cookie: phoenix_session=" + SECRET.encode() + b"\x01; \xff==;,\r\n\r\n",
    "a failing handler": b"GET /fail HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + BEARER + b"\r\n\r\n",
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
async def test_what_was_sent_is_neither_logged_nor_sent_back(
    make: Make, lines: Callable[[Form], io.StringIO], sent: bytes, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_S", SOON_S)
    monkeypatch.setattr(server, "LINGER_S", SOON_S)
    said = lines(form)
    made = await make(Guard(get_log(), QUICK))
    answer = await made.ask(sent)
    assert SECRET.encode() not in answer
    assert SECRET not in said.getvalue()
    if answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 5", b"HTTP/1.0 400", b"HTTP/1.0 5")):
        head, _, told = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        checked(int(head.split()[1]), headers, told)


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes = b"") -> bytes:
    """The headers of an answer without a body."""
    writer.write(b"GET /quick HTTP/1.1\r\nHost: x\r\n%b\r\n" % token)
    async with asyncio.timeout(DEADLINE_S):
        return await reader.readuntil(b"\r\n\r\n")


async def test_who_shows_no_token_holds_a_connection_for_a_while_only_however_often_it_asks(make: Make) -> None:
    now = [0.0]
    made = await make(Guard(get_log(), now=lambda: now[0], anonymous_s=100.0))
    reader, writer = await made.connect()
    for now[0] in (0.0, 60.0, 99.0):
        assert b"Connection: close" not in await answered(reader, writer)
    now[0] = 100.0
    assert b"Connection: close" in await answered(reader, writer)
    assert await reader.read() == b""
    writer.close()


async def test_whose_token_is_accepted_now_and_then_keeps_its_connection(make: Make) -> None:
    now, token = [0.0], b"Authorization: Bearer x\r\n"
    made = await make(Guard(get_log(), now=lambda: now[0], anonymous_s=100.0))
    reader, writer = await made.connect()
    for now[0] in (0.0, 90.0, 180.0, 500.0):
        assert b"Connection: close" not in await answered(reader, writer, token)
    now[0] = 599.0
    assert b"Connection: close" not in await answered(reader, writer)
    now[0] = 600.0
    assert b"Connection: close" in await answered(reader, writer)
    writer.close()


async def test_the_public_is_not_asked_for_tokens(make: Make) -> None:
    now = [0.0]
    made = await make(Guard(get_log(), now=lambda: now[0], anonymous_s=math.inf))
    reader, writer = await made.connect()
    for now[0] in (0.0, 1e9):
        assert b"Connection: close" not in await answered(reader, writer)
    writer.close()
