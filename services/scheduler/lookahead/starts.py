"""Answers when jobs start (`foresee`), beside the scheduler's own work (`looks`).

    phoenix.query.scheduler.<department>.start    {"jobs": ["17"]}    -> {"at": …, "starts": {unit: {start_at, …}}}

Rules
  1. Without `jobs` the answer has the first ones of the queue (`foresee.FIRST`); of an array the element that `why` is about.
  2. All who look at the queue ask for its first ones: one look serves them all for `FRESH_S`, also requests that come while it
     is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from schemas import queries
from schemas.times import exact
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.looks import Looks
from services.scheduler.lookahead.start_estimate import FIRST, Start, foresee
from services.scheduler.lookahead.why import explained

FRESH_S: Final = 5.0  # a page or a person that looks again sees no other start, but for what has happened since


class Starts:
    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._turn = asyncio.Lock()  # of requests for the first ones
        self._first: tuple[float, dict[str, Start]] | None = None  # of the queue's first ones, and when

    async def answer(self, core: BatchCore, data: bytes, now: float) -> bytes:
        """Raises `looks.Busy`, `Malformed`, and what a plug-in raises."""
        jobs = queries.decode(data, queries.StartAsked).jobs
        if jobs is None:
            found = await self._first_ones(core, now)
        else:
            found = await self._look(core, now, [explained(core, job) for job in jobs[:FIRST]])
        told = {unit: start.told() for unit, start in found.items()}
        return msgspec.json.encode(queries.StartsForeseen(at=exact(now), starts=told))

    async def _first_ones(self, core: BatchCore, now: float) -> dict[str, Start]:
        """Rule 2; units that have started since are left out."""
        async with self._turn:
            if self._first is None or not now - FRESH_S < self._first[0] <= now:
                self._first = (now, await self._look(core, now, None))
            found = self._first[1]
        units = core.custody.state.units
        return {name: word for name, word in found.items() if name in units and units[name].state == "pending"}

    async def _look(self, core: BatchCore, now: float, units: Sequence[str] | None) -> dict[str, Start]:
        return await self._looks.ahead(core, partial(foresee, now=now, units=units))
