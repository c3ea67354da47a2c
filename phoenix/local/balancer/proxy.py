"""The proxy: a client's request to an instance and its answer back.

1. A request goes to the instance with the fewest open ones. If none has room it waits in the line, which is bounded in
   number and time (`line`); what will not be served in time is answered 503 with Retry-After, at once.
2. A second instance is tried once: when connecting failed (nothing was sent, so any method may be repeated), or when an
   idempotent request was lost before its answer began. A request that is not idempotent and of which a byte may have
   gone out is never repeated. (For idempotent requests aiohttp itself also asks again when a kept connection turns
   out to be closed.) So what is not idempotent gets a connection of its own: a kept one that the instance has just
   closed would cost the client a 502 without a cause. So has HEAD: an instance that answers it with a body, as
   some programs do, would answer the next request of that connection with it, and be out of service for that.
3. A body up to `BODY_BUFFERED_MAX` is read first, so that it can be sent again; a longer one is streamed, and is then
   repeated only if connecting failed before any of it was read.
4. Hop-by-hop headers stay on their hop (RFC 9110, 7.6.1). Connection upgrades are not passed on (501).
5. A failed connection takes the instance out of service at once.
6. A client that goes takes its request along: out of the line, and from the instance, whose connection is closed, so that
   no work is done for a client that has gone (`handler_cancellation` of the server).
7. What is asked for is a path of the instance, whatever else stands in the request's first line: another server's name there
   leads nowhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from phoenix.balance.utilisation import Key
from phoenix.local.balancer.line import Line
from phoenix.local.balancer.pool import Instance, Pool
from phoenix.local.balancer.stats import Stats
from phoenix.local.connecting import connector

IDEMPOTENT = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"}
HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
BODY_BUFFERED_MAX = 64 << 10
CHUNK_BYTES = 64 << 10
RETRY_AFTER_S = 1
CONNECT_S = 1.0
KEEPALIVE_S = 30.0
REQUEST_S = 120.0  # between two pieces of an answer


class _LostError(Exception):
    """The instance did not answer; `sent` tells whether it may have got part of the request."""

    def __init__(self, sent: bool, timed_out: bool) -> None:
        super().__init__()
        self.sent = sent
        self.timed_out = timed_out


class Proxy:
    """Passes requests on."""

    def __init__(self, pool: Pool, line: Line, stats: Stats) -> None:
        self._pool = pool
        self._line = line
        self._stats = stats
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._tasks: dict[Key, set[asyncio.Task[object]]] = {}

    async def start(self) -> None:
        self._kept = _session(connector(keepalive_timeout=KEEPALIVE_S))
        self._fresh = _session(connector(force_close=True))

    async def close(self) -> None:
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request."""
        if "upgrade" in request.headers.get("Connection", "").lower():
            return web.Response(status=501, text="connections cannot be upgraded here\n")
        if not request.rel_url.raw_path.startswith("/"):
            return web.Response(status=400, text="a path is wanted\n")
        began = time.monotonic()
        self._stats.came()
        try:
            answer = await self._attempts(request)
        except asyncio.CancelledError:
            gone = request.transport is None  # else the instance was abandoned
            (self._stats.gone if gone else self._stats.failed).inc()
            raise
        self._stats.answered(time.monotonic() - began)
        return answer

    async def _attempts(self, request: web.Request) -> web.StreamResponse:
        body = await _small_body(request)
        timed_out = False
        for attempt in range(2):
            instance = await self._line.enter(again=bool(attempt))
            if instance is None:
                self._stats.refused.inc()
                headers = {"Retry-After": str(RETRY_AFTER_S)}
                return web.Response(status=503, headers=headers, text="no instance has a free slot for this request\n")
            if attempt:
                self._stats.retried.inc()
            try:
                return await self._pass_on(request, body, instance)
            except _LostError as error:
                instance.failed += 1
                if error.sent:
                    instance.count(error=True)
                if not error.timed_out:
                    self._pool.eject(instance)
                timed_out = error.timed_out
                if error.sent and (request.method not in IDEMPOTENT or body is None or error.timed_out):
                    break
        self._stats.failed.inc()
        return web.Response(status=504 if timed_out else 502, text="the instance did not answer\n")

    async def _pass_on(self, request: web.Request, body: bytes | None, instance: Instance) -> web.StreamResponse:
        """One try with one instance, whose place is given back. Raises `_LostError` if no answer began."""
        task = asyncio.current_task()
        assert task is not None
        tasks = self._tasks.setdefault(instance.key, set())
        tasks.add(task)
        began, lost = time.monotonic(), False
        try:
            answer = await self._ask(request, body, instance)
            try:
                return await self._relay(request, answer, instance)
            finally:
                answer.close()  # gives the connection back if the answer was read to its end
        except _LostError:
            lost = True
            raise
        finally:
            self._line.leave(instance, None if lost else time.monotonic() - began)
            tasks.discard(task)
            if not tasks:
                self._tasks.pop(instance.key, None)

    def abandon(self, instance: Instance) -> None:
        """Break off what an instance still serves: its time to drain is over."""
        for task in self._tasks.get(instance.key, ()):
            task.cancel()

    async def _ask(self, request: web.Request, body: bytes | None, instance: Instance) -> aiohttp.ClientResponse:
        session = self._kept if request.method in IDEMPOTENT and request.method != "HEAD" else self._fresh
        assert session is not None
        stream = _Stream(request) if body is None else None
        try:
            return await session.request(
                request.method,
                URL(f"http://{instance.address}{_target(request)}", encoded=True),
                headers=_request_headers(request),
                data=stream.read() if stream is not None else body or None,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorError as error:
            raise _LostError(sent=stream is not None and stream.touched, timed_out=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            late = isinstance(error, TimeoutError) and not connecting
            raise _LostError(sent=not connecting, timed_out=late) from error

    async def _relay(
        self, request: web.Request, answer: aiohttp.ClientResponse, instance: Instance
    ) -> web.StreamResponse:
        """Once its head is sent there is no second try, and a break is passed on as a break.  Raises `_LostError` before."""
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        response.headers.extend(_kept(answer.headers))
        length = answer.headers.get("Content-Length")
        if length is not None:
            response.content_length = int(length)
        elif request.method != "HEAD" and answer.status not in (204, 304):
            response.enable_chunked_encoding()
        try:
            await response.prepare(request)
        except ValueError as error:  # its headers are none that a client may be sent
            raise _LostError(sent=True, timed_out=False) from error
        instance.count(error=answer.status >= 500)
        try:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                await response.write(chunk)
            await response.write_eof()
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            if request.transport is not None and not request.transport.is_closing():
                instance.failed += 1
                instance.errors += answer.status < 500
                self._stats.failed.inc()
                request.transport.abort()
            return response
        instance.served += 1
        self._stats.served.inc()
        return response


def _session(instances: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=instances,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=REQUEST_S),
        auto_decompress=False,
        trust_env=False,
    )


class _Stream:
    """A long body, passed on as it comes."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.touched = False

    async def read(self) -> AsyncIterator[bytes]:
        self.touched = True
        async for chunk in self._request.content.iter_chunked(CHUNK_BYTES):
            yield chunk


async def _small_body(request: web.Request) -> bytes | None:
    """The body if it is known to be small, None if it must be streamed."""
    if not request.body_exists:
        return b""
    if request.content_length is not None and request.content_length <= BODY_BUFFERED_MAX:
        return await request.content.readexactly(request.content_length)
    return None


def _target(request: web.Request) -> str:
    """Rule 7: path and query as they were sent; of a whole URL (RFC 9112, 3.2.2) what is behind the server's name."""
    if request.raw_path.startswith("/"):
        return request.raw_path
    return request.rel_url.raw_path_qs


def _request_headers(request: web.Request) -> CIMultiDict[str]:
    headers = _kept(request.headers)
    peer = request.remote or ""
    before = request.headers.get("X-Forwarded-For")
    headers["X-Forwarded-For"] = f"{before}, {peer}" if before else peer
    headers["X-Forwarded-Proto"] = request.scheme
    headers["X-Forwarded-Host"] = request.host
    headers["Host"] = request.host
    if request.content_length is not None and request.body_exists:
        headers["Content-Length"] = str(request.content_length)
    return headers


def _kept(source: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers that go beyond this hop; the length is set by who sends the body."""
    named = {name.strip().lower() for value in source.getall("Connection", []) for name in value.split(",")}
    dropped = HOP_BY_HOP | named | {"content-length", "host"}
    return CIMultiDict((name, value) for name, value in source.items() if name.lower() not in dropped)
