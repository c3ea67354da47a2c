"""Why the first ones of the queue wait, told to whoever shows the queue: the first reason of each, as `batch_why` ranks them.

    phoenix.query.scheduler.<department>.reasons    {}    -> {"ok": true, "reasons": {unit: {code, params}, …}}

The monitor knows from the journal who waits; what the order and the room say only the scheduler knows.

Rules
  1. The first `FIRST` of the queue are told, and no more than `BUDGET_S` of CPU allow: questions must not hold decisions up.
     Between two units others have their turn.
  2. One answer serves all for `FRESH_S`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from schemas.reasons import Reason
from services.scheduler.batch import BatchCore
from services.scheduler.batch_why import why

FIRST: Final = 50  # as `foresee`: more than one screen shows
BUDGET_S: Final = 0.03  # in FRESH_S: two hundredths of a core; of 1,000 hosts one unit takes half a millisecond
FRESH_S: Final = 1.5


class Reasons:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._told: tuple[float, dict[str, Reason]] | None = None  # when, and what

    async def answer(self, core: BatchCore, now: float) -> bytes:
        """Raises what a plug-in raises."""
        async with self._turn:
            if self._told is None or not now - FRESH_S < self._told[0] <= now:
                self._told = (now, await self._look(core, now))
            return msgspec.json.encode({"ok": True, "reasons": self._told[1]})

    async def _look(self, core: BatchCore, now: float) -> dict[str, Reason]:
        found: dict[str, Reason] = {}
        spent_s = 0.0
        for place in core.book.queue.in_order()[:FIRST]:
            begun = time.perf_counter()
            reasons = why(core, place.unit, now)
            spent_s += time.perf_counter() - begun
            unit = core.custody.state.units.get(place.unit)
            if reasons and unit is not None and unit.state == "pending":
                found[place.unit] = reasons[0]
            if spent_s > BUDGET_S:
                break
            await asyncio.sleep(0)
        return found
