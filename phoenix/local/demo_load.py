"""The work of the demo's day: a stream of real small jobs, and people who use the web service through its load balancer.

Jobs
  Scripts of one line that compute a little and wait a little, as many real jobs do; each prints a last line by which it is
  known to have run to its end.

People
  Each asks, waits for the whole answer, thinks, and asks again.  Their number follows the day's curve.  Overload so makes them
  wait longer, as it does with people; a request that fails is counted and never repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import aiohttp

THINK_S: Final = 0.25
CPU_MS: Final = 5.0  # of each request: a tenth of a real core, what an instance has here, serves twenty a second
PATIENCE_S: Final = 20.0  # a request that takes longer has failed
RAMP_S: Final = 0.1  # how often the number of people is adjusted
JOB_PAUSE_S: Final = 0.4  # between two submissions
JOB_SECONDS: Final = (2.0, 9.0)
SEED: Final = 20250706  # the same day every time


@dataclass(slots=True)
class Web:
    """What people have asked and got."""

    served: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    people: int = 0
    first_failure: str = ""


@dataclass(slots=True)
class Jobs:
    submitted: list[str] = field(default_factory=list)


def people_at(part: float, most: int) -> int:
    """How many people are there; `part`: of the day, 0 to 1.  Quiet, a steep morning, a plateau, a steep evening, quiet."""
    curve = ((0.0, 0.04), (0.15, 0.04), (0.35, 1.0), (0.55, 1.0), (0.70, 0.04), (1.0, 0.04))
    for (start, low), (end, high) in pairwise(curve):
        if start <= part <= end:
            return max(1, round(most * (low + (high - low) * (part - start) / (end - start))))
    return 1


class People:
    """Those who use the web service.  `day_s`: length of the day; `url`: the load balancer."""

    def __init__(self, url: str, day_s: float, most: int) -> None:
        self.seen = Web()
        self._url = f"{url}/?cpu_ms={CPU_MS:g}"
        self._day_s = day_s
        self._most = most
        self._leave: list[asyncio.Event] = []

    async def live(self) -> None:
        """The whole day; returns when the last of them has got the last answer."""
        start = time.monotonic()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as group:
            while (part := (time.monotonic() - start) / self._day_s) < 1:
                self._adjust(people_at(part, self._most), lambda gone: group.create_task(self._person(session, gone)))
                await asyncio.sleep(RAMP_S)
            self._adjust(0, lambda _gone: None)

    def _adjust(self, wanted: int, come: Callable[[asyncio.Event], Any]) -> None:
        while len(self._leave) < wanted:
            self._leave.append(asyncio.Event())
            come(self._leave[-1])
        while len(self._leave) > wanted:
            self._leave.pop().set()
        self.seen.people = wanted

    async def _person(self, session: aiohttp.ClientSession, gone: asyncio.Event) -> None:
        while not gone.is_set():
            await self._ask(session)
            try:
                await asyncio.wait_for(gone.wait(), THINK_S)
            except TimeoutError:
                continue

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        asked = time.monotonic()
        try:
            async with session.get(self._url) as answer:
                await answer.read()
                problem = "" if answer.status == 200 else f"HTTP status {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = repr(error)
        self.seen.slowest_s = max(self.seen.slowest_s, time.monotonic() - asked)
        if problem:
            self.seen.failed += 1
            self.seen.first_failure = self.seen.first_failure or problem
        else:
            self.seen.served += 1


class Researchers:
    """Those who submit jobs.  `submit` sends one request and returns the job's id."""

    def __init__(self, submit: Callable[[dict[str, Any]], Any], day_s: float) -> None:
        self.seen = Jobs()
        self._submit = submit
        self._day_s = day_s
        self._dice = random.Random(SEED)  # noqa: S311  # a repeatable day, not a secret

    async def live(self) -> None:
        """Submit until a fifth of the day is left: what was preempted is to finish within it."""
        end = time.monotonic() + self._day_s * 0.8
        number = 0
        while time.monotonic() < end:
            number += 1
            self.seen.submitted.append(await self._submit(self._job(number)))
            await asyncio.sleep(JOB_PAUSE_S)

    def _job(self, number: int) -> dict[str, Any]:
        seconds = self._dice.uniform(*JOB_SECONDS)
        nodes = 2 if number % 9 == 0 else 1
        script = f"#!/bin/sh\nhead -c 200000 /dev/zero | cksum\nsleep {seconds:.2f}\necho finished $PHOENIX_JOB_ID\n"
        return {
            "request": f"demo-{number}",
            "name": f"study-{number:03d}",
            "script": script,
            "tasks": 2 * nodes,
            "nodes": nodes,
            "walltime_s": 60.0,
        }
