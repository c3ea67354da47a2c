"""The line: which request has a place at an instance, which waits for one, and which is turned away at once.

Theory of operation. An instance has as many places as requests may be open there (`Instance.connections`). What is beyond
waits here, where it goes to the first instance that has room, a new one above all, and where it costs nothing when its
client has gone. Each place turns over once in the time that a request keeps it; so a request with k before it has one after
about k · (that time) / (places). A request that would not have one in time is refused at once, and comes back.

1. First come, first served. One that an instance has failed goes first: it has waited already, and is never turned away.
2. The line is bounded by number, `LINE_PER_PLACE` for each place of the instances in service, and by time: no request waits
   longer than `wait_s`, and none joins that would wait for `JOIN_SHARE` of it: what is reckoned with is a mean of what was.
3. A line that has not been empty for `RUSH_S` is no rush any more, for which instances are being started, but an overload,
   and a long line would only make all wait: no request joins that would wait longer than `OVERLOAD_WAIT_S` (after CoDel:
   Nichols and Jacobson, 2012).
4. With no instance in service the time is unknown: at most `LINE_MAX` wait then.
5. A place that becomes free is the next one's in the same step: an instance never has more requests than places.
6. A cancelled request leaves the line, and gives back a place that it was given at that moment.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from phoenix.local.balancer.pool import Instance, Pool

LINE_PER_PLACE: Final = 15  # the last one waits for fifteen others at its place, 6 s at the built-in program
LINE_MAX: Final = 512  # requests; each holds a client's connection
WAIT_S: Final = 8.0  # clients often give up after ten seconds, and the work is still to be done
JOIN_SHARE: Final = 0.75  # places may turn over more slowly than they did, by a third: who has joined is served even so
RUSH_S: Final = 20.0  # twice what the default rule needs to meet two and a half times what one instance can do
OVERLOAD_WAIT_S: Final = 2.0
KEPT_WEIGHT: Final = 1 / 8  # of one request in the mean time that a place is kept: a second or two of one instance


class Line:
    """Of one balancer."""

    def __init__(self, pool: Pool, wait_s: float = WAIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._wait_s = wait_s
        self._clock = clock
        self._waiting: OrderedDict[asyncio.Future[Instance], None] = OrderedDict()
        self._kept_s = 0.0
        self._began = 0.0  # when a request came last and found none waiting

    def __len__(self) -> int:
        return len(self._waiting)

    async def enter(self, *, again: bool = False) -> Instance | None:
        """A place at an instance, to be given back by `leave`; None: there is none in time.  `again`: rule 1."""
        instance = None if self._waiting and not again else self._take()
        if instance is not None or not (again or self._has_room()):
            return instance
        return await self._wait(again)

    def leave(self, instance: Instance, kept_s: float | None) -> None:
        """Give a place back. `kept_s`: for how long it was kept; None: no request was worked on."""
        instance.open_requests -= 1
        if kept_s is not None:
            self._kept_s += (kept_s - self._kept_s) * KEPT_WEIGHT
        self.move()

    def move(self) -> None:
        """Rule 5; also when instances have changed."""
        while self._waiting and (instance := self._take()) is not None:
            self._waiting.popitem(last=False)[0].set_result(instance)

    def _take(self) -> Instance | None:
        instance = self._pool.choose()
        if instance is not None:
            instance.open_requests += 1
        return instance

    def _has_room(self) -> bool:
        """Rules 2 to 4."""
        places, ahead, now = self._pool.places(), len(self._waiting), self._clock()
        if not ahead:
            self._began = now
        if not places:
            return ahead < LINE_MAX
        most_s = JOIN_SHARE * self._wait_s
        if now - self._began >= RUSH_S:
            most_s = min(OVERLOAD_WAIT_S, most_s)
        return ahead < LINE_PER_PLACE * places and ahead * self._kept_s / places <= most_s

    async def _wait(self, first: bool) -> Instance | None:
        turn: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        if first:
            self._waiting.move_to_end(turn, last=False)
        try:
            async with asyncio.timeout(self._wait_s):
                return await asyncio.shield(turn)
        except TimeoutError:
            self._give_up(turn)
            return None
        except asyncio.CancelledError:
            self._give_up(turn)
            raise

    def _give_up(self, turn: asyncio.Future[Instance]) -> None:
        """Rule 6."""
        if turn.done():
            self.leave(turn.result(), None)
        else:
            del self._waiting[turn]
