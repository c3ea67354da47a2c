"""An HTTP server that answers its connections by a script, one after the other, and keeps what each of them has asked.

    async with scripted(answer(200, b"{}"), closes, silent) as server: …

Connections behind the end of the script are refused by being closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Asked:
    """What one connection has sent."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Scripted:
    def __init__(self, script: tuple[Script, ...], tls: ssl.SSLContext | None = None) -> None:
        self._script = list(script)
        self.tls = tls
        self.asked: list[Asked] = []
        self.served: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.served.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            self.served.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            asked = Asked(head[:-4], b"")
            asked.body = await reader.readexactly(int(asked.headers.get("content-length", 0)))
            self.asked.append(asked)
            if self._script:
                await self._script.pop(0)(writer)


@contextlib.asynccontextmanager
async def scripted(*script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    made = Scripted(script, tls)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in list(made.served):
            task.cancel()
        await asyncio.gather(*made.served, return_exceptions=True)


def answer(status: int, body: bytes | dict[str, Any], **headers: str) -> Script:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()

    return write


def refuses(status: int, code: str, **headers: str) -> Script:
    problem = {"type": f"urn:phoenix:problem:{code}", "title": "No", "status": status, "detail": f"it is {code}"}
    return answer(status, {**problem, "code": code, "field": None}, **headers)


def streams(*chunks: bytes, then: Script | None = None) -> Script:
    """A stream of these chunks, which breaks off after them, or does `then`."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
        if then is not None:
            await then(writer)

    return write


async def closes(_writer: asyncio.StreamWriter) -> None:
    """The request has arrived, and no answer comes."""


async def silent(_writer: asyncio.StreamWriter) -> None:
    """As long as the test lives."""
    await asyncio.Event().wait()
