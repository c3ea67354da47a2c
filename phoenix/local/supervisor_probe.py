"""Is it up?  Small questions to children over the loopback, each with a deadline.

A probe answers True or False and never raises: a child that cannot answer is not up, whatever the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

PROBE_S: Final = 2.0
HEAD_MAX_BYTES: Final = 64 << 10
Probe = Callable[[], Awaitable[bool]]


async def http_get(host: str, port: int, path: str, timeout_s: float = PROBE_S, token: str = "") -> tuple[int, bytes]:
    """Status and body; asked in HTTP/1.0, which is answered in one piece.  OSError, TimeoutError or ValueError: no answer."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port, limit=HEAD_MAX_BYTES)
        try:
            bearer = f"Authorization: Bearer {token}\r\n" if token else ""
            writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\n{bearer}\r\n".encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split(None, 2)[1]), await reader.read()
        finally:
            writer.close()


def http(host: str, port: int, path: str) -> Probe:
    """Up when `path` answers with success."""

    async def probe() -> bool:
        try:
            status, _ = await http_get(host, port, path)
        except (OSError, TimeoutError, ValueError, IndexError, EOFError):
            return False
        return 200 <= status < 300

    return probe


def answers(host: str, port: int) -> Probe:
    """Up when it answers in HTTP, whatever: a connection alone says nothing where the supervisor holds the socket."""

    async def probe() -> bool:
        try:
            await http_get(host, port, "/")
        except (OSError, TimeoutError, ValueError, IndexError, EOFError):
            return False
        return True

    return probe


class Leads:
    """For a service: up when it has folded the journal to its end and leads, as the only replica of an embedded cloud does.
    `ailing`: the last report of something that needs attention."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.ailing: list[str] = []

    async def __call__(self) -> bool:
        self.ailing = []
        try:
            status, body = await http_get(self._host, self._port, "/healthz")
            content = orjson.loads(body)
        except (OSError, TimeoutError, ValueError, IndexError, EOFError):
            return False
        self.ailing = [str(sentence) for sentence in content.get("ailing", ())]
        return status == 200 and bool(content.get("leader"))


def every(*probes: Probe) -> Probe:
    """Up when all of them say so."""

    async def probe() -> bool:
        return all([await one() for one in probes])

    return probe


def listens(host: str, port: int, greeting: bytes = b"") -> Probe:
    """Up when it accepts connections and, if asked for, greets as it should."""

    async def probe() -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    return not greeting or (await reader.readexactly(len(greeting))) == greeting
                finally:
                    writer.close()
        except (OSError, TimeoutError, EOFError):
            return False

    return probe
