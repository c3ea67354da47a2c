"""Bodies of requests: whole, within a limit of size, at a rate that a line may have and an attack has not.

Rules
  1. A body has `GRACE_S`, and a second more for each `RATE_MIN` bytes that have come: a large upload over a slow line is taken,
     one byte now and then is not.
  2. No more is held than was allowed; what is announced too large is not read at all.
  3. The bytes of an authenticated caller count to its part of the space (`body_budget`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from schemas.problems import Problem, problem
from services.runtime.http.body_budget import HELD, Full
from services.runtime.http.guard import BODY
from services.runtime.http.server import Connection

GRACE_S: Final = 20.0  # for what is small, over a line that loses packets
RATE_MIN: Final = 128 << 10  # bytes a second: 1 Mbit/s, the upload of a slow DSL line

NO_BODY: Final = 400  # it is not what its headers say


class BodyRefused(Exception):
    """`status`: 400 (NO_BODY), 408, 413 or 429."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message

    def problem(self) -> Problem:
        """As the caller reads it."""
        return problem("invalid" if self.status == NO_BODY else "limit", self.message, status=self.status)


async def read_body(request: web.Request, max_bytes: int) -> bytes:
    """The whole body.  Raises `BodyRefused`; ConnectionError if the peer has gone."""
    if request.content_length is not None and request.content_length > max_bytes:
        raise BodyRefused(413, f"the body has {request.content_length} bytes; at most {max_bytes} are taken")
    if not request.body_exists:
        return b""
    found, held = bytearray(), HELD.get()
    try:
        async with asyncio.timeout(GRACE_S) as limit:
            begun = asyncio.get_running_loop().time()
            async for chunk in request.content.iter_any():
                if held is not None:
                    held.take(len(chunk))
                found += chunk
                if len(found) > max_bytes:
                    raise BodyRefused(413, f"the body has more than {max_bytes} bytes")
                limit.reschedule(begun + GRACE_S + len(found) / RATE_MIN)
    except TimeoutError:
        _count_slow(request)
        slow = (
            f"the body came too slowly: {len(found)} bytes; {GRACE_S:g} s and {RATE_MIN >> 10} KiB a second are allowed"
        )
        raise BodyRefused(408, slow) from None
    except Full as error:
        raise BodyRefused(429, str(error)) from None
    except (web.RequestPayloadError, ValueError):  # its text may quote the body
        raise BodyRefused(NO_BODY, "the body is not what its headers say: its length, chunks or compression") from None
    return bytes(found)


def _count_slow(request: web.Request) -> None:
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.guard.too_slow(BODY, connection.peer)
