"""Is it up?  Small questions to children over the loopback, each with a deadline.

A probe answers True or False and never raises: a child that cannot answer is not up, whatever the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

PROBE_S: Final = 2.0
ANSWER_MAX_BYTES: Final = 8 << 20
Probe = Callable[[], Awaitable[bool]]


async def http_get(host: str, port: int, path: str, timeout_s: float = PROBE_S, token: str = "") -> tuple[int, bytes]:
    """Status and body.  OSError, TimeoutError or ValueError if there is no answer."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_MAX_BYTES)
        try:
            bearer = f"Authorization: Bearer {token}\r\n" if token else ""
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n{bearer}\r\n".encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split(None, 2)[1]), await reader.read(ANSWER_MAX_BYTES)
        finally:
            writer.close()


def http(host: str, port: int, *paths: str) -> Probe:
    """Up when the first of `paths` that exists answers with success."""

    async def probe() -> bool:
        try:
            for path in paths:
                status, _ = await http_get(host, port, path)
                if status != 404:
                    return 200 <= status < 300
        except (OSError, TimeoutError, ValueError, IndexError, EOFError):
            return False
        return False

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


def port_file(path: Path, then: Callable[[int], Probe]) -> Probe:
    """For a child that chooses its port: up when it has written it down and answers there."""

    async def probe() -> bool:
        try:
            port = int(path.read_text())  # noqa: ASYNC240  # a few bytes of a local file
        except (OSError, ValueError):
            return False
        return await then(port)()

    return probe
