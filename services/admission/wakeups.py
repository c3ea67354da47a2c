"""Waiters by name: a long poll's wait, ended by the next event, or by its time."""

from __future__ import annotations

import asyncio


class News:
    """Nothing is stored for names without waiters."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def tell(self, name: str) -> None:
        """Something happened to `name`."""
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(None)

    async def wait(self, name: str, timeout_s: float) -> None:
        """Return when `tell` is called for `name`, or after `timeout_s`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, []).append(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            waiting = self._waiting.get(name)
            if waiting is not None and future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[name]
