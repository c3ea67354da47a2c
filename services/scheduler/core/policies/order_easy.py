"""EASY backfill: no unit delays the first one that waits; those that do not delay it may overtake.

Sources: D. Lifka, The ANL/IBM SP scheduling system, JSSPP 1995; A. Mu'alem and D. Feitelson, Utilization, predictability,
workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling, IEEE TPDS 12(6), 2001.

Theory of operation
  The queue is worked in order until a unit does not fit.  That one, the *head*, gets a reservation: at the *shadow time*, when
  enough live attempts are expected to have ended (`forecast`), there is room for it.  Behind it, a unit starts if it fits now
  and cannot be in the way then.  Estimates are time limits, which end those that exceed them, so an attempt ends later than
  expected only by what its machines take to boot and to end.
  The textbook counts whole nodes; what takes their place here is in `reservation`.

Rules
  1. In the order of the queue (`shape.Place`), as long as each fits, units start.
  2. The head is the first unit that does not fit now and would fit on the hosts held now, were they empty.  One that would not
     is passed: which hosts the department will be given later is unknown.  Its turn comes when enough hosts are held.
  3. Shadow time: the earliest expected end after which the head fits.  All that is expected to end by then counts as free.
  4. A unit that ends by the shadow time starts wherever it fits (best fit).
  5. One that ends later starts on hosts where the head would not fit at the shadow time anyway, and on others as far as the
     head can spare them ("extra nodes").
  6. Only one reservation: others may be delayed again and again by backfill, but each is the head one day, and the time of the
     head's reservation only comes nearer, unless hosts are taken away.
  7. An array's units over its throttle are passed: they wait for their siblings (as in `fcfs`).

Time alone starts nothing (`order`, rule 2): expected ends stand still, so do the shadow time and what can be spared, and the
gap before it only shrinks.  Cost: lanes, not units, are looked at, and a lane by time limits only where rule 5 gives no more.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import NamedTuple, TypeAlias

from schemas import reasons as because
from schemas.reasons import Reason
from services.scheduler.core.policies.order import Plan, Reserved, Situation, Start, fitting_lanes
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.queue import Lane, LaneKey, Row
from services.scheduler.core.state.shape import Place, Shape


class Stream(NamedTuple):
    """Units of one lane in order, from `next` on: all of them, or `brief` ones, of one length, that end by the shadow time."""

    place: Place  # of the next one; unique, so streams are never compared further
    next: int
    lane: Lane
    brief: Row | None


Heap: TypeAlias = list[Stream]


def plan(situation: Situation) -> Plan:
    """Units to start now, and the head with its shadow time, if there is one.  Changes nothing."""
    if not fitting_lanes(situation.queue, situation.room):
        return Plan([], rest=lambda _: _Pass(situation).run())
    return _Pass(situation).run()


# --------------------------------------------------------------------------------------------------------------- the pass


class _Pass:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.room = situation, situation.queue, situation.room.copy()
        self.found: list[Start] = []
        self.started: dict[LaneKey, int] = {}
        self.full: dict[Shape, None] = {}  # no room now
        self.no_extra: dict[Shape, None] = {}  # room now, but only for those that end by the shadow time
        self.passed: Place | None = None  # the first one that the hosts held now could never hold
        self.gap: Gap | None = None
        self.heap: Heap = []
        for lane in self.queue.lanes.values():
            self._push(lane, 0)

    def run(self) -> Plan:
        self._in_order()
        if self.gap is None:
            return Plan(self.found)
        self._backfill(self.gap)
        return Plan(self.found, reservations=[Reserved(self.gap.head.unit, self.gap.at)])

    def _push(self, lane: Lane, number: int, brief: Row | None = None) -> None:
        units = lane if brief is None else brief
        if number < len(units) and self.started.get(lane.key, 0) < self.queue.allowance(lane):
            heapq.heappush(self.heap, Stream(units[number], number, lane, brief))

    def _start(self, stream: Stream, hosts: tuple[str, ...], why: Reason, *, anywhere: bool = False) -> None:
        lane = stream.lane
        self.found.append(Start(stream.place.unit, lane.key.shape, hosts, why, anywhere=anywhere))
        self.started[lane.key] = self.started.get(lane.key, 0) + 1
        self._push(lane, stream.next + 1, stream.brief)

    def _in_order(self) -> None:
        """Rules 1 to 3: until a unit has to wait, which is then the head."""
        while self.heap and len(self.found) < self.situation.most and self.gap is None:
            stream = heapq.heappop(self.heap)
            shape = stream.lane.key.shape
            hosts = None if shape in self.full else self.room.take(shape)
            if hosts is not None:
                self._start(stream, hosts, self._in_turn(), anywhere=True)
                continue
            if shape not in self.full:
                self.full[shape] = None
                self.gap = self._reserve(stream.place, shape)
            self.passed = self.passed or stream.place

    def _in_turn(self) -> Reason:
        if self.passed is None:
            return because.HeadOfQueue()
        return because.FirstFit(passed_over=self.passed.unit)

    def _reserve(self, head: Place, shape: Shape) -> Gap | None:
        forecast, now = self.situation.forecast(), self.situation.now
        if not forecast.could_hold(shape):
            return None
        length_s = self.queue.length_s
        started = [Ending(now + length_s(start.unit), start.unit, start.hosts, start.shape) for start in self.found]
        return gap_for(head, shape, self.room, forecast, started, self.situation.room.resting)

    def _backfill(self, gap: Gap) -> None:
        """Rules 4 and 5."""
        now, length_s = self.situation.now, self.queue.length_s
        while self.heap and len(self.found) < self.situation.most:
            stream = heapq.heappop(self.heap)
            lane, shape, unit = stream.lane, stream.lane.key.shape, stream.place.unit
            if shape in self.full or self.started.get(lane.key, 0) >= self.queue.allowance(lane):
                continue
            if stream.brief is not None or now + length_s(unit) <= gap.at:
                hosts = self.room.take(shape)
                if hosts is None:
                    self.full[shape] = None
                else:
                    self._start(stream, hosts, because.Backfill(head=gap.head.unit, gap_s=round(gap.at - now, 3)))
            elif not self.room.fits(shape):
                self.full[shape] = None
            elif not self._start_extra(stream, gap):
                self._only_short(stream, gap)

    def _start_extra(self, stream: Stream, gap: Gap) -> bool:
        shape = stream.lane.key.shape
        hosts = None if shape in self.no_extra else gap.hosts_for(self.room, shape)
        if hosts is None:
            self.no_extra[shape] = None
            return False
        self.room.use(hosts, shape)
        gap.use(hosts, shape)
        self._start(stream, hosts, because.Backfill(head=gap.head.unit, spare=gap.spare))
        return True

    def _only_short(self, stream: Stream, gap: Gap) -> None:
        """Of this lane only the units that end by the shadow time remain: as streams of their own, one for each length."""
        lane, now = stream.lane, self.situation.now
        lengths = self.queue.by_length(lane)
        for length_s in lengths.lengths:
            if now + length_s > gap.at:
                break
            places = lengths.places[length_s]
            self._push(lane, bisect_right(places.places, stream.place), places)
