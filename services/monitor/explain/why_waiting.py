"""Why jobs in the queues wait, as their schedulers report it: asked for from time to time, shown in rows and counted.

The journal has which jobs wait, and some of the reasons (`wait_reasons`); what the order and free capacity imply only the
scheduler knows.  It reports the first ones of its queue with all numbers, the others by the code of their reason
(`scheduler.lookahead.reasons`).

Rules
  1. A level: the scheduler's last report counts, until it does not answer `SILENT_MAX` times in a row.
  2. A reason of the journal's own goes first: it is never behind.  But the begin of a time slot is reported by the scheduler.
  3. A unit without a reported reason, or with a code that is unknown here, is shown as in the queue.
  4. A department is asked only while a job waits there.
  5. What is new of many is taken in in parts: others have their turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Final

import msgspec

from schemas import reasons as because
from schemas.problems import is_problem
from schemas.reasons import Reason
from services.monitor.core.monitor import MonitorCore
from services.monitor.parts import Parts, Work, in_parts
from services.monitor.views.views import Views

ASK_S: Final = 2.0  # as soon as a person could wonder; a scheduler of 1,000 hosts works 30 ms on it
SILENT_MAX: Final = 3


class _Answer(msgspec.Struct):
    reasons: dict[str, Reason]
    rest: dict[str, list[str]] = {}  # by code; of one that a newer version has, nothing is shown


_decoder: Final = msgspec.json.Decoder(_Answer)
_PLAIN: Final = {
    code: kind() for code, kind in because.BY_CODE.items() if kind is not because.Newer
}  # reasons without numbers: rows change only with the code


class WhyWaiting:
    """`ask`: a department's scheduler, None if it does not answer."""

    def __init__(self, core: MonitorCore, views: Views, ask: Callable[[str], Awaitable[bytes | None]]) -> None:
        self.core, self.views, self._ask = core, views, ask
        self._of: dict[str, dict[str, Reason]] = {}  # department -> unit -> why
        self._silent: dict[str, int] = {}
        views.told = self.of

    def of(self, department: str, unit: str) -> Reason | None:
        return self._of.get(department, {}).get(unit)

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(ASK_S)
            await self.look()

    async def look(self) -> None:
        names = [department.name for department in self.core.custody.departments if department.kind == "batch"]
        for name in [name for name in self._of if name not in names]:
            del self._of[name]
        await in_parts(self.views.refreshing())
        asked = [name for name in names if self.views.waiting.first(name, 1)]
        for name, data in zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True):
            self.core.touched |= await in_parts(self._heard(name, data))
            await in_parts(self.views.refreshing())
        for name in names:
            if name not in asked:
                self._of.pop(name, None)

    def _heard(self, department: str, data: bytes | None) -> Parts[dict[str, None]]:
        """Units whose reason differs from the one before."""
        try:
            answer = _decoder.decode(data) if data is not None and not is_problem(data) else None
        except (msgspec.DecodeError, UnicodeDecodeError):  # of a newer version: told as in the queue
            answer = None
        if answer is None:
            self._silent[department] = self._silent.get(department, 0) + 1
            if self._silent[department] < SILENT_MAX:
                return {}
        else:
            self._silent.pop(department, None)
        had, now = self._of.get(department, {}), (yield from _told(answer))
        self._of[department] = now
        found, work = dict[str, None](), Work()
        for unit in chain(had, now):
            if had.get(unit) != now.get(unit):
                found[unit] = None
            if work.add():
                yield
        return found


def _told(answer: _Answer | None) -> Parts[dict[str, Reason]]:
    found, work = dict[str, Reason](), Work()
    for code, units in answer.rest.items() if answer is not None else ():
        for unit in units if code in _PLAIN else ():
            found[unit] = _PLAIN[code]
            if work.add():
                yield
    return found | answer.reasons if answer is not None else found
