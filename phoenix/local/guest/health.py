"""Whether an instance's program is well, as its guest finds by asking its health path once a second.

Rules
  1. Until the first good answer it is asked again and again: users wait for it.  What it answered last is known meanwhile.
  2. Afterwards it is not ready after FAILURES_MAX failures in a row, as load balancers have it: one at its CPU limit may be
     late.  One good answer makes it ready again.
"""

from __future__ import annotations

import asyncio
from typing import Final

import aiohttp

from phoenix.local.health import problem

START_INTERVAL_S: Final = 0.02
INTERVAL_S: Final = 1.0
TRY_S: Final = 2.0
FAILURES_MAX: Final = 2


class Health:
    """`path`: None where a connection is enough."""

    def __init__(self, session: aiohttp.ClientSession, port: int, path: str | None) -> None:
        self._session, self._address, self._path = session, f"127.0.0.1:{port}", path
        self.ready = False
        self.answer = "it has not answered yet"
        self._failures = 0

    async def start(self) -> None:
        """Rule 1."""
        while True:
            if await self._ask():
                return
            await asyncio.sleep(START_INTERVAL_S)

    async def watch(self) -> None:
        """Rule 2, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self._ask()

    async def _ask(self) -> bool:
        why = await problem(self._session, self._address, self._path, TRY_S)
        self._failures = self._failures + 1 if why else 0
        if not why or self._failures >= FAILURES_MAX:
            self.ready, self.answer = not why, why
        return not why
