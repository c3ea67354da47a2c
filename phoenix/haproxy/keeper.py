"""The loop that reads HAProxy and sends it commands: look, plan, send, look again, until there is nothing to send.

Rules
  1. Before the first list of instances it only looks.  A broker or a door that is away later changes nothing: the table stays.
  2. A HAProxy that does not answer is reported once, and asked again at each look; what it reports of itself when it is back is
     all that is known of it.
  3. A command that is refused is reported when its error changes, and retried at each look.
  4. After a command it looks at once: most instances are in service three looks after they have begun.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.reconciler import Order, Plan, plan
from phoenix.haproxy.runtime_api import GoneError, RefusedError, RuntimeApi
from phoenix.haproxy.slots import AnswerError, Reading
from phoenix.haproxy.table import Table
from schemas.times import TimeText, exact
from services.runtime.log import get_log

ROUNDS_MAX: Final = 4  # of commands in one look: address, drain, ready, and one that finds nothing to do
YOUNG_S: Final = 3.0  # a server that is down for longer is not about to come up

_log = get_log()


@dataclass(frozen=True, slots=True)
class Seen:
    """What HAProxy looked like after the last command.  `now`: monotonic."""

    reading: Reading
    plan: Plan
    now: float
    at: TimeText


class Keeper:
    """`seen`: the last look; None while HAProxy does not answer."""

    def __init__(self, api: RuntimeApi, table: Table, counts: Counts) -> None:
        self._api, self._table, self._counts = api, table, counts
        self._pid: int | None = None
        self._gone = ""  # why there was no look
        self._refused: dict[str, str] = {}  # slot -> what HAProxy said
        self._short = (0, 0, 0)  # instances that wait, slots without checks, instances without a usable address
        self.seen: Seen | None = None

    async def look(self) -> Seen | None:
        """One look, and everything that follows from it."""
        try:
            reading = await self._read()
            planned = self._plan(reading)
            for _ in range(ROUNDS_MAX):
                if not planned.orders or not await self._tell_all(planned.orders):
                    break
                reading = await self._read()
                planned = self._plan(reading)
        except (GoneError, AnswerError) as error:
            self._lost(str(error))
            return None
        self._say_shortage(planned)
        self.seen = Seen(reading, planned, time.monotonic(), exact(time.time()))
        return self.seen

    @property
    def is_settled(self) -> bool:
        """True if nothing is on its way: the next look may take its time."""
        seen = self.seen
        if seen is None or not self._table.is_known:
            return True
        young = any(slot.ordered == "ready" and not slot.is_up and slot.for_s < YOUNG_S for slot in seen.reading.slots)
        return not young and not any(one.draining for one in self._table.all())

    async def _read(self) -> Reading:
        reading = await self._api.read()
        if reading.pid != self._pid or self._gone:
            self._counts.processes += reading.pid != self._pid
            _log.info("haproxy answers", pid=reading.pid, uptime_s=reading.uptime_s, slots=len(reading.slots))
            if not reading.has_map:
                _log.error("haproxy.cfg has no map of health paths: a release with another path never serves")
        self._pid, self._gone = reading.pid, ""
        return reading

    def _lost(self, why: str) -> None:
        self._counts.looks_failed += 1
        self.seen = None
        if why != self._gone:
            _log.warning("haproxy cannot be read", error=why)
        self._gone = why

    def _plan(self, reading: Reading) -> Plan:
        """Rule 1."""
        return plan(self._table.all(), reading.slots, reading.has_map) if self._table.is_known else Plan()

    async def _tell_all(self, orders: tuple[Order, ...]) -> bool:
        """True if HAProxy has done any of it.  Raises `GoneError`."""
        done = [await self._tell(order) for order in orders]
        return any(done)

    async def _tell(self, order: Order) -> bool:
        """One slot's commands, up to the first that is refused."""
        for command in order.commands:
            kind = type(command).__name__
            try:
                answer = await self._api.tell(order.slot, command)
            except RefusedError as error:
                self._counts.commands[kind, "refused"] += 1
                if self._refused.get(order.slot) != str(error):
                    _log.error("haproxy refused a command", error=str(error))
                self._refused[order.slot] = str(error)
                return False
            except GoneError:
                self._counts.commands[kind, "lost"] += 1
                raise
            self._counts.commands[kind, "done"] += 1
            _log.info("haproxy command sent", command=answer)
        self._refused.pop(order.slot, None)
        return True

    def _say_shortage(self, planned: Plan) -> None:
        unusable = self._table.unusable
        short = (len(planned.waiting), len(planned.unchecked), len(unusable))
        if short == self._short:
            return
        self._short = short
        if planned.waiting:
            first = ", ".join(one.unit for one in planned.waiting[:5])
            _log.error("more instances than slots: raise the number in server-template", waiting=short[0], first=first)
        if planned.unchecked:
            _log.error("slots without health checks are not used: server-template needs `check`", slots=short[1])
        if unusable:
            first = next(iter(unusable.values()))
            _log.error(
                "instances with an address or a health path that HAProxy cannot use", count=short[2], first=first
            )
        if not any(short):
            _log.info("every instance has a slot")
