"""Probes: is each instance healthy?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import aiohttp

from phoenix.local.balancer.pool import Instance, Pool
from phoenix.local.health import problem

PROBE_TIMEOUT_S = 2.0  # an instance at its CPU limit stands still for most of each 0.1 s, several times in a row


class Prober:
    """Probes every instance each interval; `changed` is called when one comes into or goes out of service.

    `path`: of instances whose own is not known yet; None or empty: a connection is enough.
    """

    def __init__(self, pool: Pool, path: str | None, interval_s: float, changed: Callable[[], None]) -> None:
        self._pool = pool
        self.path = path
        self._interval_s = interval_s
        self._changed = changed
        self._news = asyncio.Event()
        self._busy: set[tuple[str, int, int]] = set()

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Probe until cancelled. A slow instance delays no other, and is not asked again before it has answered. One that has
        just begun is asked at once, not after an interval (`look`)."""
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                self._news.clear()
                everyone = time.monotonic() >= due
                for instance in self._pool.all():
                    if instance.key not in self._busy and (everyone or instance.is_new):
                        self._busy.add(instance.key)
                        group.create_task(self._probe(session, instance))
                due = time.monotonic() + self._interval_s if everyone else due
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - time.monotonic())):
                        await self._news.wait()

    def look(self) -> None:
        """There may be a new instance."""
        self._news.set()

    async def _probe(self, session: aiohttp.ClientSession, instance: Instance) -> None:
        before = instance.in_service
        path = self.path if instance.health_path is None else instance.health_path
        try:
            why = await problem(session, instance.address, path, PROBE_TIMEOUT_S)
        finally:
            self._busy.discard(instance.key)
        if why:
            self._pool.missed(instance, why)
        else:
            self._pool.answered(instance)
        if instance.in_service != before:
            self._changed()
