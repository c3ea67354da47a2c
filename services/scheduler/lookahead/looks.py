"""Looks ahead beside the scheduler's own work (`foresee`), for queries when jobs start (`starts`) or would (`whatif`).

Rules
  1. The loop pays for one copy of the core, made in between two facts (12 ms with 10,000 jobs waiting); a thread for the rest.
     What is computed from the copy reflects nothing that comes later.
  2. One look at a time, and after it as long a pause as it took (at most `PAUSE_MAX_S`): however many ask, and however often,
     questions have about half of a core, and the loop pays for no more copies than that.
  3. A query that finds it busy waits; more than `WAITING_MAX` are refused, not queued: each look may take seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.start_estimate import Copied, copied

WAITING_MAX: Final = 8
PAUSE_MAX_S: Final = 2.0  # a look and a pause, and the next one is answered in the time that the monitor waits for

T = TypeVar("T")


class Busy(Exception):
    """More are asking than can be answered in time."""


class Looks:
    """Of one department's scheduler.  `clock`, `rest`: what time it is, and how a pause is made."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, rest: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._turn, self._clock, self._rest = asyncio.Lock(), clock, rest
        self._waiting = 0
        self._rest_until = 0.0

    async def ahead(self, core: BatchCore, work: Callable[[Copied], T]) -> T:
        """`work` in a thread, with a copy of the core.  Raises `Busy`, and what `work` raises."""
        if self._waiting >= WAITING_MAX:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn:
                await self._rest(max(0.0, self._rest_until - self._clock()))
                return await self._look(core, work)
        finally:
            self._waiting -= 1

    async def _look(self, core: BatchCore, work: Callable[[Copied], T]) -> T:
        began = self._clock()
        try:
            return await asyncio.to_thread(work, copied(core))
        finally:
            ended = self._clock()
            self._rest_until = ended + min(PAUSE_MAX_S, ended - began)
