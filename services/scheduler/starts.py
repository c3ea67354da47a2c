"""Answers when jobs start (`foresee`), beside the scheduler's own work: one look ahead at a time, in a thread.

    phoenix.query.scheduler.<department>.start    {"jobs": ["17"]}    -> {"ok": true, "at": …, "starts": {unit: {start_at, …}}}

Rules
  1. Without `jobs` the first ones of the queue are told (`foresee.FIRST`); of an array the element that `why` is about.
  2. The copy is made in between two facts; what is worked out of it hears of nothing that comes later.
  3. The first ones of the queue are asked for by whoever looks at it: one answer serves all for `FRESH_S`.
  4. More than `WAITING_MAX` questions at once are refused, not queued: each may take a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from schemas.facts import Fact
from services.scheduler.batch import BatchCore
from services.scheduler.batch_why import explained
from services.scheduler.foresee import FIRST, Foreseen, copied, foresee

FRESH_S: Final = 5.0  # a page or a person that looks again sees no other start, but for what has happened since
WAITING_MAX: Final = 8


class Busy(Exception):
    """More are asking than can be answered in time."""


class _Asked(msgspec.Struct, frozen=True):
    jobs: tuple[str, ...] | None = None


class Starts:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()  # whoever looks ahead has it (also `whatif`)
        self._waiting = 0
        self._first: tuple[float, dict[str, Foreseen]] | None = None  # of the queue's first ones, and when

    async def answer(self, core: BatchCore, data: bytes, now: float) -> bytes:
        """Raises `Busy`, msgspec.DecodeError, and what a plug-in raises."""
        jobs = msgspec.json.decode(data or b"{}", type=_Asked).jobs
        if jobs is None:
            found = await self._first_ones(core, now)
        else:
            found = await self.ahead(core, now, [explained(core, job) for job in jobs[:FIRST]])
        return msgspec.json.encode({"ok": True, "at": now, "starts": found})

    async def _first_ones(self, core: BatchCore, now: float) -> dict[str, Foreseen]:
        """Rule 3; who has started since is left out."""
        if self._first is None or not now - FRESH_S < self._first[0] <= now:
            self._first = (now, await self.ahead(core, now, None))
        units = core.custody.state.units
        return {name: word for name, word in self._first[1].items() if name in units and units[name].state == "pending"}

    async def ahead(
        self, core: BatchCore, now: float, units: Sequence[str] | None, more: Iterable[Fact] = ()
    ) -> dict[str, Foreseen]:
        """`foresee`, in a thread.  Raises `Busy`."""
        if self._waiting >= WAITING_MAX:
            raise Busy
        self._waiting += 1
        try:
            async with self.turn:
                return await asyncio.to_thread(foresee, copied(core), now, units, tuple(more))
        finally:
            self._waiting -= 1
