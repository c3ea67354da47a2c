"""What guests of instances report of their use (`POST usage`), handed on to their department as measures.  Nothing is kept.

Theory of operation
  A measure is a level at a moment, wanted by load balancers and the monitor within a second, and by nobody later: so it is no
  fact, and costs no disk.  What came since the last message to a department goes out in one, `INTERVAL_S` after it at the
  earliest; so a department of a thousand instances costs four messages a second, and one of one instance one.

Rules
  1. Of an instance the last word counts; a guest that speaks more often than `INTERVAL_S` is not heard, and counted.
  2. Bounded: `PENDING_MAX` instances in one message, `SPOKE_MAX` remembered.  What exceeds it is dropped, and counted.
  3. A broker that is away loses measures, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec
import nats.errors
from aiohttp import web
from prometheus_client import CollectorRegistry

from schemas import subjects
from schemas.measures import Measured, Measures, Usage
from services.admission.metrics import MEASURES

INTERVAL_S: Final = 0.25  # four times as often as guests report
PENDING_MAX: Final = 5_000  # about 120 bytes each; a message has 1 MiB at most
SPOKE_MAX: Final = 20_000  # instances whose last word's time is remembered, the longest silent is forgotten first
NAME: Final = "instances"

Publish = Callable[[str, bytes], Awaitable[None]]


class Usages:
    """`publish`: the broker's; `clock`: monotonic seconds."""

    def __init__(self, publish: Publish, clock: Callable[[], float], registry: CollectorRegistry) -> None:
        self._publish, self._clock = publish, clock
        self._spoke: dict[tuple[str, int, int], float] = {}
        self._pending: dict[str, dict[tuple[str, int, int], Measured]] = {}
        self._news = asyncio.Event()
        self._counted = MEASURES.live(registry)

    def hear(self, dept: str, key: tuple[str, int, int], usage: Usage, at: float) -> None:
        """`key`: unit, attempt, rank; `at`: UTC seconds."""
        now = self._clock()
        pending = self._pending.setdefault(dept, {})
        if now - self._spoke.get(key, float("-inf")) < INTERVAL_S:
            self._counted.labels("too_often").inc()
            return
        if key not in pending and len(pending) >= PENDING_MAX:
            self._counted.labels("too_many").inc()
            return
        self._spoke.pop(key, None)
        self._spoke[key] = now
        if len(self._spoke) > SPOKE_MAX:
            del self._spoke[next(iter(self._spoke))]
        unit, attempt, rank = key
        pending[key] = Measured(
            unit=unit,
            attempt=attempt,
            rank=rank,
            at=at,
            utilisation=usage.utilisation,
            interval_s=usage.interval_s,
            memory_mb=usage.memory_mb,
        )
        self._counted.labels("taken").inc()
        self._news.set()

    async def publishing(self, _app: web.Application) -> AsyncIterator[None]:
        """Hand on, as long as the application lives."""
        task = asyncio.create_task(self._run(), name="measures")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.publish()
            await asyncio.sleep(INTERVAL_S)

    async def publish(self) -> None:
        """One message to each department of which there is news."""
        pending, self._pending = self._pending, {}
        for dept, found in pending.items():
            if not found:
                continue
            try:
                data = msgspec.json.encode(Measures(instances=tuple(found.values())))
                await self._publish(subjects.measure(dept, NAME), data)
            except (nats.errors.Error, OSError):
                self._counted.labels("lost").inc(len(found))
