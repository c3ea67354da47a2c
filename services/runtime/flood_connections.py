"""Connections for what may come in floods: nothing else of the service waits behind it, as the journal's acknowledgements
and the broker's pings have another one.  Of what departments send each has its own, so that none waits behind another's.

Theory of operation
  What a message costs before anybody has looked at it, its way through the client library, is a fifth of what can be afforded.
  So a department's line is read at READ_PER_S at most: more than a service can serve.  What is sent faster fills the line and
  then the broker's buffer for it; the broker then slows down the sender, or the line is stale after some seconds and is made
  again, without what was on it.  All of that concerns that department alone.

Rules
  1. A connection that is closed for good ends the process, as the service's own does.
  2. Others have their turn after YIELD_EVERY messages (`Pace`): the library reads and hands on all that has come without a
     pause, and the service's heartbeats, pings and answers would wait for the last one.
  3. A department's line on which requests are refused for being too many is read more slowly: to read what is not served costs
     others as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from services.runtime.broker.client import Client
from services.runtime.broker.connect import Watch, connect, service_key
from services.runtime.service import Service
from services.runtime.token_bucket import Bucket

YIELD_EVERY: Final = 16  # a millisecond's work
READ_PER_S: Final = 2_000.0  # three times what admission grants in a second; reading them takes 5 % of a core
READ_BURST: Final = 4_000.0
REFUSED_S: Final = 0.002  # so of those that are refused 500 a second are read: that takes 4 % of a core
CLOSE_S: Final = 2.0
Heard = Callable[[Msg], Awaitable[None]]


class Pace:
    """Rule 2.  `per_s`: the rate, with at most `burst` at once after a pause."""

    def __init__(self, per_s: float = float("inf"), burst: float = float("inf")) -> None:
        self._bucket = Bucket(per_s, burst, 0.0) if per_s < float("inf") else None
        self._wait_s = YIELD_EVERY / per_s
        self._since = 0  # others had their turn
        self._refused = 0  # since then

    def refused(self) -> None:
        """Rule 3."""
        self._refused += 1

    async def one_more(self) -> None:
        self._since += 1
        if self._since < YIELD_EVERY:
            return
        self._since = 0
        await asyncio.sleep(0)
        wait_s, self._refused = self._refused * REFUSED_S, 0
        if self._bucket is not None and not self._bucket.take(time.monotonic(), YIELD_EVERY):
            wait_s += self._wait_s
        if wait_s:
            await asyncio.sleep(wait_s)


class Line:
    """`what` comes on it: a part of the connection's name."""

    def __init__(self, service: Service, what: str) -> None:
        self._service, self._what = service, what
        self._closing = False
        self.subscribed: dict[str, Subscription] = {}
        self.client: Client

    async def open(self) -> Client:
        service = self._service
        inbox, seed_file = service_key(service.config, service.name)
        self.client = await connect(
            service.config.nats.url,
            name=f"{service.name}/{service.instance}/{self._what}",
            inbox=inbox,
            log=service.log,
            seed_file=seed_file,
            watch=Watch(on_closed=self._closed),
        )
        return self.client

    def _closed(self) -> None:
        if not self._closing:
            self._service.fail(f"the connection to NATS for {self._what} was closed permanently")

    async def hear(self, subjects: Iterable[str], heard: Heard) -> None:
        """These subjects from now on, and no others."""
        wanted = dict.fromkeys(subjects)
        for subject in [one for one in self.subscribed if one not in wanted]:
            await self.subscribed.pop(subject).unsubscribe()
        for subject in wanted:
            if subject not in self.subscribed:
                self.subscribed[subject] = await self.client.subscribe(subject, cb=heard)
        await self.client.flush()

    async def close(self) -> None:
        self._closing = True
        if hasattr(self, "client"):
            await asyncio.wait({asyncio.create_task(self.client.close())}, timeout=CLOSE_S)


class Lines:
    """A line for each department, on which `heard` hears what its people send, and says whether it was refused for being too
    much.  `subjects`: by department, as they are now."""

    def __init__(
        self,
        service: Service,
        what: str,
        subjects: Callable[[], Mapping[str, Iterable[str]]],
        heard: Callable[[Msg], Awaitable[bool]],
    ) -> None:
        self._service, self._what, self._subjects, self._heard = service, what, subjects, heard
        self._lines: dict[str, Line] = {}
        self._paces: dict[str, Pace] = {}
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._adopt()
        self._following = self._service.spawn(self._what, self._follow())

    def changed(self) -> None:
        """The subjects may be others."""
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._adopt()

    async def _adopt(self) -> None:
        wanted = self._subjects()
        for department in [one for one in self._lines if one not in wanted]:
            await self._lines.pop(department).close()
            self._paces.pop(department, None)
        new = [one for one in wanted if one not in self._lines]
        self._lines.update(zip(new, await asyncio.gather(*map(self._line, new)), strict=True))
        for department, subjects in wanted.items():
            await self._lines[department].hear(subjects, self._hears(self._paces[department]))

    def _hears(self, pace: Pace) -> Heard:
        async def heard(msg: Msg) -> None:
            if await self._heard(msg):
                pace.refused()

        return heard

    async def _line(self, department: str) -> Line:
        line = Line(self._service, f"{self._what} of {department}")
        pace = self._paces[department] = Pace(READ_PER_S, READ_BURST)
        try:
            (await line.open()).read_one = pace.one_more
        except BaseException:
            await line.close()
            raise
        return line

    def hears(self, subject: str) -> bool:
        return any(subject in line.subscribed for line in self._lines.values())

    async def close(self) -> None:
        """Nothing more is heard; answers are still sent."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
        for line in self._lines.values():
            await line.hear((), self._hears(Pace()))

    async def end(self) -> None:
        for line in self._lines.values():
            await line.close()
