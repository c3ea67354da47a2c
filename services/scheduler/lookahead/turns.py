"""When each has its turn where the order keeps room for many (`Order.reservations`), told beside the scheduler's own decisions.

With 1,000 hosts such a pass takes half a second.  The order reads what it needs at its beginning, and so it is worked out unit
by unit, with the loop free in between.

Rules
  1. The loop is held up for no longer than `SLICE_S`, and one unit.
  2. One pass serves all who ask for `FRESH_S`, and goes only as far as somebody asks.
  3. Who asks waits for `WAIT_S` at most, and has no answer then: the rest of what keeps the unit waiting is told all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from services.domain.core import NEVER
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import Reserved
from services.scheduler.lookahead.standing import Standing

SLICE_S: Final = 0.005  # a decision is due within a millisecond or so, a heartbeat of the lease within half a second
FRESH_S: Final = 3.0  # as `starts`: who looks again sees the same turn; a pass of half a second is a sixth of a core
WAIT_S: Final = 1.0  # the monitor waits for 2 s


class Turns:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._since: float | None = None  # when the pass began
        self._more: Iterator[Reserved] = iter(())
        self._found: dict[str, float] = {}

    async def of(self, core: BatchCore, unit: str, now: float) -> float | None:
        """When the unit's reservation is, UTC seconds; NEVER if that is not known in time; None if it has none.  Raises what a
        plug-in raises."""
        if core.order.reservations is None or unit not in core.book.queue.where:
            return None
        until = time.monotonic() + WAIT_S
        async with self._turn:
            if self._since is None or not now - FRESH_S < self._since <= now:
                self._begin(core, now)
            more = self._goes_on(unit)
            while more and time.monotonic() < until:
                await asyncio.sleep(0)
                more = self._goes_on(unit)
        return self._found.get(unit, NEVER if more else None)

    def _begin(self, core: BatchCore, now: float) -> None:
        situation = Standing(core, now).planned(best_effort=False)
        assert situation is not None, "an order plans production"
        reservations = core.order.reservations
        self._since, self._found = now, {}
        self._more = iter(reservations(situation)) if reservations is not None else iter(())

    def _goes_on(self, unit: str) -> bool:
        """A slice more; False if the unit has been reached, or nobody is left."""
        until = time.perf_counter() + SLICE_S
        if unit in self._found:
            return False
        for each in self._more:
            self._found[each.unit] = each.at
            if each.unit == unit:
                return False
            if time.perf_counter() > until:
                return True
        return False
