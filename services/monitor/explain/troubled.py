"""What needs attention in web departments, as their schedulers report it: asked for from time to time, and shown.

The journal has which instances are not ready and which load is missing; of signals that are dropped, and of requests that wait
at a load balancer, only the scheduler knows (`scheduler.lookahead.why_web`, rule 5).

Rule: a level.  The scheduler's last report counts, until it does not answer `SILENT_MAX` times in a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from schemas.problems import is_problem
from schemas.reasons import Reason
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain.why_waiting import SILENT_MAX
from services.monitor.views.views import Views

ASK_S: Final = 1.0  # a scheduler reads it off its state: half a millisecond


class _Answer(msgspec.Struct):
    troubles: tuple[Reason, ...]


_decoder: Final = msgspec.json.Decoder(_Answer)


class Troubled:
    """`ask`: a department's scheduler, None if it does not answer."""

    def __init__(self, core: MonitorCore, views: Views, ask: Callable[[str], Awaitable[bytes | None]]) -> None:
        self.core, self._ask = core, ask
        self._of: dict[str, tuple[Reason, ...]] = {}
        self._silent: dict[str, int] = {}
        views.troubles = self.of

    def of(self, department: str) -> Sequence[Reason]:
        return self._of.get(department, ())

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(ASK_S)
            await self.look()

    async def look(self) -> None:
        names = [department.name for department in self.core.custody.departments if department.kind == "web"]
        for name in [name for name in self._of if name not in names]:
            del self._of[name]
        for name, data in zip(names, await asyncio.gather(*map(self._ask, names)), strict=True):
            self._hear(name, data)

    def _hear(self, department: str, data: bytes | None) -> None:
        try:
            answer = _decoder.decode(data) if data is not None and not is_problem(data) else None
        except (msgspec.DecodeError, UnicodeDecodeError):  # of a newer version: nothing is shown
            answer = None
        if answer is not None:
            self._silent.pop(department, None)
            self._of[department] = answer.troubles
            return
        self._silent[department] = self._silent.get(department, 0) + 1
        if self._silent[department] >= SILENT_MAX:
            self._of.pop(department, None)
