"""What runs beside a server, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from aiohttp import web

CANCEL_AGAIN_S: Final = 0.5


def beside(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> Callable[[web.Application], AsyncIterator[None]]:
    """For `cleanup_ctx`: a task that runs as long as the application lives, and is cancelled then."""

    async def lives(_app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(run(), name=name)
        yield
        while not task.done():  # the client of NATS may turn one cancellation into a timeout of its own
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return lives
