"""What the last pass over the queue found, for explanations: the order is not asked a second time (`policies.order`).

A pass that could start nothing ended early; its rest is computed here on request, once for all requests.  Where the order
reserves for every waiting unit (`conservative`) that takes half a second with 1,000 hosts, so it is done unit by unit, with the
loop free in between; the order has read what it needs before the first one.

Rules
  1. What is known here is of the last pass, and is dropped with it.  Moments of an order that reserves for every unit serve for
     `FRESH_S`, as they are expensive: facts may have come in between.
  2. The loop is held up for no longer than `SLICE_S`, and one unit; reservations are computed only as far as requested.
  3. A request waits for `WAIT_S` at most, and gets no moment then: the other reasons why the unit waits are given all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Final

from services.domain.core import NEVER
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import NO_WAITS, Plan, Reserved, Wait
from services.scheduler.core.state.queue import LaneKey

SLICE_S: Final = 0.005  # a decision is due within a millisecond or so, a heartbeat of the lease within half a second
FRESH_S: Final = 3.0  # as `starts`: a second look sees the same turn; a pass of half a second is a sixth of a core
WAIT_S: Final = 1.0  # the monitor waits for 2 s


class LastPass:
    """`waits`: lanes that the order itself keeps from starting.  `head`: the first unit for which room is kept."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._plan: Plan | None = None
        self._since: float | None = None  # when the reservations for all units were begun
        self.waits: Mapping[LaneKey, Wait] = NO_WAITS
        self.head: Reserved | None = None
        self._found: dict[str, Reserved] = {}
        self._more: Iterator[Reserved] | None = None  # None: all are found

    def see(self, core: BatchCore, now: float) -> LastPass:
        """As it is now.  Raises what a plug-in raises."""
        plan = core.start.last_pass(now)
        if core.view.order.reserves_for_all:
            self.waits, self.head = plan.waits, next(iter(plan.reservations), None)
            if self._since is None or not now - FRESH_S < self._since <= now:
                self._since = now
                self._begin(plan.rest(now) if plan.rest is not None else plan)
        elif plan is not self._plan:
            whole = plan.rest(now) if plan.rest is not None else plan
            self._since, self.waits = None, whole.waits
            self._begin(whole)
            first = self._next()
            self.head = None if first is None or first.unit in core.view.jobs.queue.bookings else first
        self._plan = plan
        return self

    def reserved(self, unit: str) -> Reserved | None:
        """The unit's reservation, as far as they are worked out."""
        return self._found.get(unit)

    @property
    def complete(self) -> bool:
        """True if all reservations are worked out."""
        return self._more is None

    def work_out(self, unit: str, until: float = NEVER) -> bool:
        """The reservations as far as this unit's; False if that takes longer than `until` (of `perf_counter`)."""
        while unit not in self._found and self._next() is not None:
            if time.perf_counter() > until:
                return unit in self._found
        return True

    async def reach(self, core: BatchCore, unit: str, now: float) -> None:
        """The same, slice by slice (rules 2 and 3).  Raises what a plug-in raises."""
        until = time.monotonic() + WAIT_S
        async with self._asking:
            self.see(core, now)
            done = self.work_out(unit, time.perf_counter() + SLICE_S)
            while not done and time.monotonic() < until:
                await asyncio.sleep(0)
                done = self.work_out(unit, time.perf_counter() + SLICE_S)

    def _begin(self, plan: Plan) -> None:
        self._found, self._more = {}, iter(plan.reservations)

    def _next(self) -> Reserved | None:
        """One more."""
        found = None if self._more is None else next(self._more, None)
        if found is None:
            self._more = None
        else:
            self._found[found.unit] = found
        return found
