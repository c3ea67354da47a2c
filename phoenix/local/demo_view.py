"""What one sees while the demo plays: on a terminal the screen of `phoenix top` with the web load, else a line now and then."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp

from phoenix.cli import events, top
from phoenix.local.demo_load import Jobs, Web

EVERY_S: Final = 0.5
LINE_EVERY_S: Final = 3.0
Get = Callable[[str], Awaitable[Any]]


class Show:
    """Draws until it is cancelled."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._lines: list[str] = []

    async def run(self, get: Get, web: Web, jobs: Jobs, day_s: float) -> None:
        self._start = time.monotonic()
        if sys.stdout.isatty():
            await self._draw(get, web, jobs, day_s)
        else:
            await self._write(get, web, jobs, day_s)

    async def _draw(self, get: Get, web: Web, jobs: Jobs, day_s: float) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        with Live(screen=False, auto_refresh=False, transient=True) as live:
            while True:
                try:
                    picture = await self._picture(get)
                    live.update(Group(Text(self._headline(web, jobs, day_s), style="bold"), picture), refresh=True)
                except (aiohttp.ClientError, TimeoutError):
                    live.update(Text("the cloud does not answer just now"), refresh=True)
                await asyncio.sleep(EVERY_S)

    async def _picture(self, get: Get) -> Any:
        overview, queue = await get("/v1/overview"), await get("/v1/queue?department=hpc&limit=48")
        await self._read_events(get)
        return top.screen(overview["hosts"], overview["departments"], queue, self._lines)

    async def _read_events(self, get: Get) -> None:
        newest = await get(f"/v1/events?limit={top.EVENTS_SHOWN}&omit={events.QUIET}")
        self._lines = [events.render(event) for event in newest]

    async def _write(self, get: Get, web: Web, jobs: Jobs, day_s: float) -> None:
        while True:
            try:
                overview = await get("/v1/overview")
                print(f"{self._headline(web, jobs, day_s)}  {_owners(overview)}", flush=True)
            except (aiohttp.ClientError, TimeoutError):
                print("the cloud does not answer just now", flush=True)
            await asyncio.sleep(LINE_EVERY_S)

    def _headline(self, web: Web, jobs: Jobs, day_s: float) -> str:
        at = min(day_s, time.monotonic() - self._start)
        load = f"{web.people} people on the web, {web.served} requests served, {web.failed} failed"
        return f"{at:4.0f} s of {day_s:.0f}  {load}; {len(jobs.submitted)} jobs submitted"


def _owners(overview: dict[str, Any]) -> str:
    return "hosts: " + ", ".join(f"{name} {count}" for name, count in sorted((overview.get("owners") or {}).items()))
