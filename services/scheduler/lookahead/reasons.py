"""Why each unit in the queue waits, for those who show and count it: its first reason, as `lookahead.why` ranks them.

    phoenix.query.scheduler.<department>.reasons    {}    -> {"reasons": {unit: reason, …},
                                                              "rest": {code: [unit, …], …}}

Theory of operation
  The monitor has from the journal which units wait; what the order and the room add, only the scheduler has.  The first units
  of the queue are explained one by one, with all numbers.  Behind them all units of a lane wait for the same: their shape,
  their owner, their array and their service are the same, and another unit goes first.  So of each lane one unit is explained,
  and the code of its reason is given for all.  Where a slot of a lease keeps a lane waiting, which a short one would not meet,
  one of each length is.

Rules
  1. In `reasons` are the first `FIRST`, and as many of those that wait after starts that failed; in `rest` the others, at most
     `REST_MAX` of them.
  2. Also in `rest`: leases whose slot has begun without them.  Before that the journal says what they wait for.
  3. Queries must not hold decisions up: after `SLICE_S` other tasks have their turn.  A unit's reason is as of the moment when
     its slice was computed: facts may come in between.
  4. A look takes `BUDGET_S` of CPU at most; a unit that is not reached has no reason in the answer, and is shown as "in the
     queue".
  5. One answer serves all for `FRESH_S`, and for `PAUSE` times as long as it took: that is a twentieth of a core at most.
  6. Moments of reservations are left out where the order reserves for every unit: they are expensive (`last_pass`, rule 2).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from schemas import reasons as because
from schemas.queries import QueueExplained
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.state.queue import Lane
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.snapshot import Snapshot
from services.scheduler.lookahead.why import first

FIRST: Final = 50  # as `foresee`: more than one screen shows
REST_MAX: Final = 50_000  # names of about 12 bytes: below 1 MiB, the smallest payload that a broker may be set to
SLICE_S: Final = 0.005  # as `last_pass`
BUDGET_S: Final = 0.25  # 10,000 jobs in 200 lanes take a tenth of it
FRESH_S: Final = 1.5  # the monitor asks every two seconds
PAUSE: Final = 20


class Reasons:
    def __init__(self, last: LastPass | None = None) -> None:
        self._last = last or LastPass()
        self._turn = asyncio.Lock()
        self._at = 0.0  # when `_told` was worked out
        self._fresh_s = 0.0
        self._told = b""

    async def answer(self, core: BatchCore, now: float) -> bytes:
        """JSON.  Raises what a plug-in raises."""
        async with self._turn:
            if not now - self._fresh_s < self._at <= now:
                look = Look(core, now, self._last)
                self._told = msgspec.json.encode(await look.told())
                self._at, self._fresh_s = now, max(FRESH_S, PAUSE * look.spent_s)
            return self._told


class Look:
    """`spent_s`: CPU that it took."""

    def __init__(self, core: BatchCore, now: float, last: LastPass | None = None) -> None:
        self.core, self.now, self._last = core, now, last or LastPass()
        self._snapshot: Snapshot | None = None
        self._position = 0  # that it is of
        self.spent_s = 0.0

    async def told(self) -> QueueExplained:
        found = QueueExplained()
        steps = self._steps(found)
        while self.spent_s < BUDGET_S:
            began = time.thread_time()
            more = _slice(steps, time.perf_counter() + SLICE_S)
            self.spent_s += time.thread_time() - began
            if not more:
                break
            await asyncio.sleep(0)
        return found

    def _now(self) -> Snapshot:
        """What all have in common until the next fact."""
        position = self.core.custody.state.position
        if self._snapshot is None or self._position != position:
            self._snapshot, self._position = Snapshot(self.core, self.now, self._last), position
        return self._snapshot

    def _steps(self, found: QueueExplained) -> Iterator[None]:
        """Adds to `found` step by step; after each of them facts may come."""
        queue = self._now().queue
        for booking in queue.bookings.values():
            if booking.start_at <= self.now:
                kind = because.LeaseLate if self.now < booking.ends_at else because.LeaseOver
                found.rest.setdefault(because.tag(kind), []).append(booking.unit)
        for place in queue.first(FIRST):
            if place.unit in self.core.view.jobs.queue.where:
                found.reasons[place.unit] = first(self._now(), place.unit)
                yield
        for unit in list(self.core.view.jobs.launches.waiting)[:FIRST]:  # not in the queue before their time
            if unit in self.core.view.jobs.launches.waiting:
                found.reasons[unit] = first(self._now(), unit)
                yield
        left = REST_MAX
        for lane in list(queue.lanes.values()):
            for units in self._alike(lane):
                waiting = [unit for unit in units if unit not in found.reasons][:left]
                if waiting:
                    found.rest.setdefault(first(self._now(), waiting[-1]).code, []).extend(waiting)
                    left -= len(waiting)
                yield

    def _alike(self, lane: Lane) -> list[list[str]]:
        """The lane's units that still wait, grouped by what they wait for."""
        queue = self._now().queue
        every = [place.unit for place in lane.places if place.unit in queue.where]
        if not self.core.view.order.keeps_slots or lane.key not in self._now().last.waits:
            return [every]
        by_stay: dict[tuple[float, bool], list[str]] = {}
        for unit in every:
            by_stay.setdefault((queue.length_s(unit), unit in queue.suspended), []).append(unit)
        return list(by_stay.values())


def _slice(steps: Iterator[None], until: float) -> bool:
    """Some steps; False if there are no more."""
    return any(time.perf_counter() > until for _ in steps)
