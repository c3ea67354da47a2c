"""Asking a program whether it is well, as its guest and the embedded load balancer do, and what it answered in words."""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from services.runtime.log import message_of

# of an answer: its status says all, and its connection can be used again when it has been read
BODY_MAX: Final = 64 << 10


async def problem(session: aiohttp.ClientSession, address: str, path: str | None, within_s: float) -> str:
    """Why `path` at `address` (HOST:PORT) does not answer 2xx, where there is no path why it takes no connection; empty if it
    does."""
    asked = f"/{path.lstrip('/')}" if path else "its port"
    try:
        async with asyncio.timeout(within_s):
            if not path:
                host, _, port = address.rpartition(":")
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                writer.close()
                return ""
            async with session.get(f"http://{address}{asked}", allow_redirects=False, auto_decompress=False) as answer:
                await _read(answer)
                return "" if 200 <= answer.status < 300 else f"{asked} answered HTTP {answer.status}"
    except TimeoutError:
        return f"{asked}: no answer within {within_s:g} s"
    except ConnectionRefusedError:
        return f"{asked}: connection refused"
    except aiohttp.ClientConnectorError as error:
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return f"{asked}: {'connection refused' if refused else message_of(error.os_error)}"
    except (OSError, ValueError, aiohttp.ClientError) as error:
        return f"{asked}: {message_of(error)}"


async def _read(answer: aiohttp.ClientResponse) -> None:
    """To its end, unless that is far: a server may answer without end, as fast as the machine can."""
    left = BODY_MAX
    while left > 0 and (piece := await answer.content.read(left)):
        left -= len(piece)
    if left <= 0:
        answer.close()
