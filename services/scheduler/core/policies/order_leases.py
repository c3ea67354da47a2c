"""Leases: a local one has its time slot, whatever else runs; best-effort ones fill the rest and are preempted.

Source: M. A. Salehi, A. N. Toosi, R. Buyya, Contention management in federated virtualized distributed systems, Software:
Practice and Experience 2013, 4.1 and 4.3; aggressive backfilling as there: D. Lifka, JSSPP 1995 (`order_easy`).

Theory of operation
  A lease with a time slot is accepted by admission before its time, and waits apart from the queue.  Slots are laid on hosts as
  things are (`order_leases_seats`).  When a slot begins its lease starts.  So that it can, its victims are ended before:
  earlier by as much as suspending them takes.  All other units are in one queue and start as long as no slot is in the way.

Rules
  1. A lease starts when its slot begins, before any other unit.  If there is no room then, it starts as soon as there is; its
     slot ends when it was to end.  One whose slot has passed does not start.  Of several the one whose slot began first starts
     first, then the one accepted first; one for which there are too few hosts now keeps nothing from the others.
  2. A victim (`order_leases_seats`, `preemption_costs`) is ended `clearing_s` before the slot begins: the time that it takes to
     suspend it, or to end it where that cannot be done, and `margin_s`.  One that started later than that is ended at once.
  3. Production starts only where it is gone by the time that a slot needs its room, `margin_s` before.
  4. Best-effort may run into a slot, if it would run at least as long as it costs to preempt it (suspend and resume) before it
     has to end: else it would be saved and loaded for nothing.  Without `preempt` rule 3 applies to it.
  5. Suspended leases are resumed first of all, in the order of the queue.  Then the queue in order.
  6. The first one that does not start and that the hosts held would hold, were they empty, is the *head*: it gets a
     reservation as in `order_easy`, behind the slots that are in its way; the others start if they are not in its way.
  7. An array's units over its throttle are passed.
  8. Where machines are still being saved nothing starts but the lease that they were preempted for: memory that is being
     written is not free, and any other unit there would be in the slot's way.  Nor are they resumed before they are saved.

Time starts things here, at stated moments (`due`): when a victim has to be ended or is saved, when a slot begins or is over.
Between them it starts nothing (`order`, rule 2): slots stand still, so the gaps before them only shrink.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import NOTHING
from schemas.times import nearest
from services.domain.core import NEVER
from services.scheduler.core.policies.order import Plan, Reserved, Situation, Start, fitting_lanes
from services.scheduler.core.policies.order_leases_seats import ROUNDING_S, Seats, saving, unbegun
from services.scheduler.core.policies.preemption_costs import overhead_s, resume_s, suspend_s
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.queue import Lane, LaneKey, Row
from services.scheduler.core.state.shape import Place, Shape


class Stream(NamedTuple):
    """Units of one lane in order, from `next` on: all of them, or those of one length."""

    place: Place  # of the next one; unique, so streams are never compared further
    next: int
    lane: Lane
    units: Row


Heap: TypeAlias = list[Stream]


def plan(situation: Situation) -> Plan:
    """The attempts to preempt now, or the units to start, and when to plan again; the head's reservation, and what slots keep
    from lanes.  In the rest also where the slots will be.  Changes nothing."""
    queue, (clear, due) = situation.queue, agenda(situation)

    def rest(now: float, found: Plan | None = None) -> Plan:
        then = situation._replace(now=now)
        found = found or Pass(then).run()
        return found._replace(starts=[], reservations=[*found.reservations, *_slots(then)])

    if clear:
        return Plan([], clear=clear, due=due, rest=rest)
    begun = (booking.shape for booking in queue.bookings.values() if booking.start_at <= situation.now)
    if not any(situation.room.fits(shape) for shape in begun) and not fitting_lanes(queue, situation.room):
        return Plan([], due=due, rest=rest)
    found = Pass(situation).run()
    return found._replace(due=due, rest=partial(rest, found=found) if queue.bookings else None)


def _slots(situation: Situation) -> Iterator[Reserved]:
    """Where the leases that wait for their time will be, as things are."""
    for booking, _, hosts, victims in Seats(situation).walk() if situation.queue.bookings else ():
        yield Reserved(booking.unit, booking.start_at, hosts, victims)


def agenda(situation: Situation) -> tuple[list[tuple[str, str]], float]:
    """Rule 2: the attempts to preempt now, each with the lease that it is for, and when this has to be asked again."""
    now, bookings = situation.now, situation.queue.bookings.values()
    due = min((at for b in bookings for at in (b.start_at, b.ends_at) if at > now), default=NEVER)
    due = min([due, *(each.at for each in saving(situation)), *_begin_by(situation)])
    if not situation.policy.leases.preempt or not bookings:
        return [], due
    best_effort, found = situation.forecast().best_effort, dict[str, str]()
    if not best_effort:
        return [], due
    longest_s = max(situation.clearing_s(unit) for unit in best_effort)
    first = min((b.start_at for b in bookings if b.start_at > now), default=NEVER) - longest_s
    if now < first and not any(b.start_at <= now < b.ends_at for b in bookings):
        return [], min(due, first)  # it is early enough to look at it then
    seats = Seats(situation)
    for seat in seats.walk():
        if seat.booking.start_at - longest_s > now:
            due = min(due, seat.booking.start_at - longest_s)
            break
        found |= {unit: seat.booking.unit for unit in seat.victims if seats.moment(seat.booking, unit) <= now}
        # Of all best-effort: another unit may replace a victim that is too late.
        moments = (seats.moment(seat.booking, unit) for unit in best_effort)
        due = min((at for at in moments if now < at < due), default=due)
    return list(found.items()), due


def _begin_by(situation: Situation) -> Iterator[float]:
    """When an attempt that has not begun by then will still be there as the next slot begins that it would have been away for
    (`order_leases_seats`, rule 2)."""
    starts, margin_s = sorted(b.start_at for b in situation.queue.bookings.values()), situation.policy.leases.margin_s
    for stays_s in unbegun(situation).values():
        late_s = stays_s + margin_s - ROUNDING_S
        first = bisect_right(starts, situation.now + late_s)
        yield from (at - late_s for at in starts[first : first + 1])


class Pass:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.now = situation, situation.queue, situation.now
        self.settings, self.room = situation.policy.leases, situation.room.copy()
        self.forecast, self.seats = situation.forecast(), Seats(situation)
        self.saving = {each.unit: each for each in saving(situation)}
        config = self.forecast.custody.state.config
        self.kill_s = config.policy.kill_s if config is not None else 0.0  # to end what cannot be suspended
        self.starts: list[Start] = []
        self.started: dict[object, int] = {}  # of a lane
        self.gone: dict[str, None] = {}
        self.never: dict[Shape, None] = {}  # more than the hosts held now could ever hold
        self.gap: Gap | None = None
        self.refused: dict[LaneKey, None] = {}  # some or all of their units may not have the hosts that have room

    def run(self) -> Plan:
        self._leases()
        self._keep_saving()
        self._resume()
        self._others()
        reserved = [] if self.gap is None else [Reserved(self.gap.head.unit, self.gap.at)]
        waits = dict.fromkeys(self.refused, self._meets_slot) if self.queue.bookings else {}
        return Plan(self.starts, waits, reserved)

    def _meets_slot(self, unit: str, now: float) -> Reason | None:
        """The slot that keeps the unit from the hosts that have room; None if none does, but the head."""
        lane, _ = self.queue.where[unit]
        shape, until = lane.key.shape, self.guard(unit, lane)
        hosts = [name for free, names in self.room.classes.items() if free.fits(shape) for name in names]
        self.seats.until(until)
        barred = [seat for name in hosts if (seat := self.seats.clear(name, shape, self.now, until)) is not None]
        if len(hosts) < shape.nodes or len(hosts) - len(barred) >= shape.nodes:
            return None
        first = min(barred)
        gap_s = round(max(0.0, first.at - now - self.settings.margin_s))
        return because.LeaseKeepsRoom(job=first.booking.unit, gap_s=gap_s, starts_at=nearest(first.booking.start_at))

    # ---------------------------------------------------------------------------------------------------------- leases

    def _leases(self) -> None:
        """Rule 1."""
        due = [booking for booking in self.queue.bookings.values() if booking.start_at <= self.now]
        if not due:
            return
        for seat in self.seats.walk():
            if seat.booking.start_at > self.now:
                break
            if seat.whole and not seat.victims and all(self._offers(name, seat.booking.shape) for name in seat.hosts):
                late_s = round(self.now - seat.booking.start_at, 3)
                reason = because.LeaseStarts(ends_at=nearest(seat.booking.ends_at), late_s=late_s or None)
                self.room.use(seat.hosts, seat.booking.shape)
                self.starts.append(Start(seat.booking.unit, seat.booking.shape, seat.hosts, reason))

    def _keep_saving(self) -> None:
        """Rule 8."""
        for each in self.saving.values():
            for name in each.hosts:
                free = self.room.free.get(name)
                if free is not None:
                    left = free.size.minus(each.shape.size).most(NOTHING)
                    self.room.offer(name, free.left(left))

    def _offers(self, name: str, shape: Shape) -> bool:
        free = self.room.free.get(name)
        return free is not None and free.fits(shape)

    # ----------------------------------------------------------------------------------------------------------- hosts

    def guard(self, unit: str, lane: Lane) -> float:
        """Until when the unit, started now, must not be in a slot's way (rules 3 and 4)."""
        return self._guard(lane, self._stays_s(unit, lane), resumes=unit in self.queue.suspended)

    def _stays_s(self, unit: str, lane: Lane) -> float:
        """For how long the unit would have its hosts, if it started now: with the time that it takes to be resumed."""
        shape, length_s = lane.key.shape, self.queue.length_s(unit)
        return length_s + (
            resume_s(shape.nodes, shape.size.memory_mb, self.settings) if unit in self.queue.suspended else 0.0
        )

    def _guard(self, lane: Lane, length_s: float, *, resumes: bool) -> float:
        shape, settings = lane.key.shape, self.settings
        away = self.now + length_s + settings.margin_s
        if not (lane.key.kind.best_effort and settings.preempt):
            return away
        worth_s = overhead_s(shape.nodes, shape.size.memory_mb, settings) + settings.margin_s
        worth_s += max(self.kill_s, suspend_s(shape.nodes, shape.size.memory_mb, settings))
        worth_s += resume_s(shape.nodes, shape.size.memory_mb, settings) if resumes else 0.0
        return min(away, self.now + worth_s)

    def _find(self, lane: Lane, length_s: float, *, resumes: bool = False) -> tuple[str, ...] | None:
        """Hosts with room now, where it is in no slot's way; best fit among those that spoil nothing of the head's."""
        shape, gap, until = lane.key.shape, self.gap, self._guard(lane, length_s, resumes=resumes)
        self.seats.until(until)
        stays = gap is not None and self.now + length_s > gap.at
        harmless: list[str] = []
        spoilt: list[str] = []
        for free in self.room.order:
            if not free.fits(shape):
                continue
            for name in self.room.classes[free]:
                if self.seats.clear(name, shape, self.now, until) is None:
                    (spoilt if gap is not None and stays and gap.spoils(name, shape) else harmless).append(name)
                    if len(harmless) >= shape.nodes:
                        return tuple(harmless)
        chosen = harmless + (spoilt[: gap.spare] if gap is not None else [])
        if len(chosen) >= shape.nodes:
            return tuple(chosen[: shape.nodes])
        self.refused[lane.key] = None
        return None

    def _start(self, lane: Lane, unit: str, hosts: tuple[str, ...], why: Reason) -> None:
        shape, length_s, kind = lane.key.shape, self._stays_s(unit, lane), lane.key.kind
        if self.gap is not None and self.now + length_s > self.gap.at:
            self.gap.use(hosts, shape)
        self.room.use(hosts, shape)
        self.seats.add(Ending(self.now + length_s, unit, hosts, shape, kind, self.now))
        self.starts.append(Start(unit, shape, hosts, why))
        self.started[lane.key] = self.started.get(lane.key, 0) + 1
        self.gone[unit] = None

    def _allowed(self, lane: Lane) -> bool:
        return self.started.get(lane.key, 0) < self.queue.allowance(lane) and len(self.starts) < self.situation.most

    # ------------------------------------------------------------------------------------------------------- the queue

    def _resume(self) -> None:
        """Rule 5, the suspended ones."""
        where = self.queue.where
        for place in self.queue.suspended_in_order():
            lane, unit = where[place.unit][0], place.unit
            if not self._allowed(lane):
                continue
            if unit in self.saving:
                self.refused[lane.key] = None
                continue
            hosts = self._find(lane, self._stays_s(unit, lane), resumes=True) if self._fits(lane) else None
            if hosts is None:
                self._look_for_head(place, lane)
                continue
            origin = self.queue.suspended[unit]
            self._start(lane, unit, hosts, because.Resumes(from_hosts=[] if hosts == origin else list(origin)))

    def _fits(self, lane: Lane) -> bool:
        return self.room.fits(lane.key.shape)

    def _others(self) -> None:
        """Rule 5, the others: in order until there is a head, then those that are not in its way."""
        heap: Heap = []
        for lane in self.queue.lanes.values():
            self._push(heap, lane, lane, 0)
        while heap and self.gap is None:
            stream = heapq.heappop(heap)
            self._try(heap, stream)
        if self.gap is not None:
            rest: Heap = []
            for stream in heap:
                self._push_brief(rest, stream.lane)
            self._backfill(rest)

    def _push(self, heap: Heap, lane: Lane, units: Row, number: int) -> None:
        while number < len(units) and self._skips(units[number].unit):
            number += 1
        if number < len(units) and self._allowed(lane) and lane.key.shape not in self.never:
            heapq.heappush(heap, Stream(units[number], number, lane, units))

    def _skips(self, unit: str) -> bool:
        return unit in self.gone or unit in self.queue.suspended

    def _try(self, heap: Heap, stream: Stream) -> None:
        """The first of the queue: it starts, or is the head."""
        lane, unit = stream.lane, stream.place.unit
        if not self._allowed(lane):
            return
        hosts = self._find(lane, self.queue.length_s(unit)) if self._fits(lane) else None
        if hosts is not None:
            kind = because.BestEffort if lane.key.kind.best_effort else because.HeadOfQueue
            self._start(lane, unit, hosts, kind())
            self._push(heap, lane, stream.units, stream.next + 1)
        elif self._look_for_head(stream.place, lane):
            self._push(heap, lane, stream.units, stream.next + 1)

    def _push_brief(self, heap: Heap, lane: Lane) -> None:
        """Of a lane behind the head: a stream for each length that may start now; a longer one may not if a shorter may not."""
        if not self._fits(lane) or not self._allowed(lane):
            return
        lengths = self.queue.by_length(lane)
        low, high = 0, len(lengths.lengths)
        while low < high:
            middle = (low + high) // 2
            if self._find(lane, lengths.lengths[middle]) is None:
                high = middle
            else:
                low = middle + 1
        for length_s in lengths.lengths[:low]:
            self._push(heap, lane, lengths.places[length_s], 0)

    def _backfill(self, heap: Heap) -> None:
        barred: dict[object, float] = {}  # of a lane: what is as long as that may not start
        while heap and len(self.starts) < self.situation.most:
            stream = heapq.heappop(heap)
            lane, unit = stream.lane, stream.place.unit
            length_s = self.queue.length_s(unit)
            if not self._allowed(lane) or length_s >= barred.get(lane.key, NEVER) or not self._fits(lane):
                continue
            hosts = self._find(lane, length_s)
            if hosts is None:
                barred[lane.key] = length_s
                continue
            self._start(lane, unit, hosts, because.Backfill())
            self._push(heap, lane, stream.units, stream.next + 1)

    # ------------------------------------------------------------------------------------------------------------ head

    def _look_for_head(self, place: Place, lane: Lane) -> bool:
        """Rule 6.  False if the unit is none: there is one already, or the hosts held would never do."""
        if self.gap is not None:
            return False
        shape = lane.key.shape
        if not self.forecast.could_hold(shape):
            self.never[shape] = None
            return False
        started = [
            Ending(self.now + self._stays_s(s.unit, self.queue.where[s.unit][0]), s.unit, s.hosts, s.shape)
            for s in self.starts
            if s.unit in self.queue.where
        ]
        started += self.saving.values()
        gap = gap_for(place, shape, self.room, self.forecast, started, self.situation.room.resting)
        if gap is not None:
            self.gap = self._behind_slots(gap, lane)
        return self.gap is not None

    def _behind_slots(self, gap: Gap, lane: Lane) -> Gap:
        """The reservation, as late as slots make it."""
        if not self.queue.bookings:
            return gap
        shape, first = gap.shape, gap.at or self.now
        stays_s = self.guard(gap.head.unit, lane) - self.now
        ends = [booking.ends_at for booking in self.queue.bookings.values() if booking.ends_at > first]
        for at in [first, *sorted(dict.fromkeys(ends))]:
            self.seats.until(at + stays_s)
            later = {name: self.seats.spare(name, at, expected=True) for name in self.forecast.held}
            fitting = [
                name
                for name, free in later.items()
                if free.fits(shape) and self.seats.clear(name, shape, at, at + stays_s, expected=True) is None
            ]
            if len(fitting) >= shape.nodes:
                return Gap(gap.head, shape, at, later, len(fitting) - shape.nodes)
        return gap
