"""Where the time slots of leases will be, and which attempts are preempted for them (`order_leases`).

Theory of operation
  Leases that wait for their time (`queue.bookings`) are seated one after the other, in order of their start.  At that time a
  host offers what the attempts that are still there leave of it.  A lease takes hosts that offer enough; if there are too few,
  as little best-effort as possible is preempted (`preemption.minimal`), the cheapest first (`preemption_costs`).  All of it is
  computed from facts alone, except that a slot whose time has come is looked at as of now.

Rules
  1. Order: start, then entry.  A later slot fits around the earlier ones.
  2. An attempt is gone by a slot's start if it is expected to end `margin_s` before; a lease's own slot ends sharp.  One that
     has not begun (its machines boot, or wait for memory that is being written) has all of its time still before it, counted
     from now on.  Once the slot has begun, an attempt that is there is there.
  3. Of the candidates removed hypothetically each stays that can beside the lease on the hosts that it gets.  Hosts on which
     nothing must end, and that are not just being cleared for another slot, are taken before others, then in the order of their
     names, not by best fit: a unit that starts where no slot is in the way must not move slots, or a later one may not find its
     hosts any more.  Candidates that cannot be gone in time any more are taken last: what has started since must not make the
     slot late.
  4. Production and other leases are never preempted.  Without `preempt` nothing is.
  5. A lease for which there are too few hosts, whatever is preempted, keeps those that there are from jobs, so that they do not
     lengthen its wait; nothing is preempted for it yet.  Nothing is kept from other leases: one that is due and fits starts.
  6. A slot that has passed takes nothing.
  7. Memory that is being written is not free.  A host where a unit is still being saved when the slot begins (for one that
     begins later) is ready only if the lease fits beside that.  Others are taken only if there are too few that are ready or
     can still be cleared in time: the lease is late then, and nothing more is preempted for it.
  8. For a reservation, which promises nothing (`order_leases`, rule 6), an attempt that is expected to end by then is gone,
     without a margin and whether it has begun or not.  Nothing of that moves with the clock, so time alone lets no unit in
     before the head.

Cost: a slot looks at every host once; only slots that matter to the question are seated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from schemas.config import Leases
from schemas.size import TAKEN
from services.scheduler.core.policies import preemption
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.policies.preemption_costs import Cost, cheapest_first, overhead_s, suspend_s
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Booking, Shape

ROUNDING_S: Final = 0.001  # moments are counted back from a start: adding it all up again may miss it by a rounding


class Seat(NamedTuple):
    """`at`: the start of the slot, or now if that has passed; `hosts`: fewer than it needs, if rule 5."""

    booking: Booking
    at: float
    hosts: tuple[str, ...]
    victims: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return len(self.hosts) == self.booking.shape.nodes


class Seats:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.now = situation, situation.now
        self.settings: Leases = situation.policy.leases
        self.forecast = situation.forecast()
        self.movable = dict(self.forecast.best_effort)  # and that of this pass
        self.on: dict[str, list[Ending]] = {}  # host -> attempts there
        for ending in self.forecast.endings:
            self.add(ending)
        waiting = [booking for booking in situation.queue.bookings.values() if booking.ends_at > self.now]
        self.waiting = sorted(waiting, reverse=True)  # the next one is the last
        self.there: dict[str, list[Seat]] = {}  # host -> slots that will be there
        self.kept: dict[str, list[Seat]] = {}  # host -> slots for which it is kept (rule 5)
        self.saving: dict[str, list[Ending]] = {}  # host -> units that are being saved there
        for each in saving(situation):
            for name in each.hosts:
                self.saving.setdefault(name, []).append(each)
        self.gone: dict[str, float] = {}  # victim -> from when on
        self.unbegun = unbegun(situation)

    def add(self, ending: Ending) -> None:
        """An attempt is there, or has just been placed."""
        if ending.kind.best_effort:
            self.movable[ending.unit] = ending
        for name in ending.hosts:
            self.on.setdefault(name, []).append(ending)

    def walk(self) -> Iterator[Seat]:
        """The slots in order, each seated when it is asked for."""
        while self.waiting:
            yield self._seat(self.waiting.pop())

    def until(self, at: float) -> None:
        """Seat all slots that start before `at`."""
        while self.waiting and self.waiting[-1].start_at < at:
            self._seat(self.waiting.pop())

    # --------------------------------------------------------------------------------------------------------- reading

    def free(self, name: str, at: float, *, expected: bool = False) -> Free:
        """What the host offers a lease at a time from now on (rule 2), beside the seated slots.  `expected`: rule 8."""
        whole = self.forecast.held.get(name)
        if whole is None or name in self.situation.room.resting:
            return Free.of(False, TAKEN)
        found, away = whole, self._expected_away if expected else self._away
        for ending in self.on.get(name, ()):
            if not away(ending, at):
                found = found.beside(ending.shape)
        return _beside_slots(found, self.there.get(name, ()), at)

    def unwritten(self, name: str, at: float) -> Free:
        """What is left of that beside memory that is still being written then."""
        found = self.free(name, at)
        for each in self.saving.get(name, ()):
            if each.at > at + ROUNDING_S:
                found = found.beside(each.shape)
        return found

    def spare(self, name: str, at: float, *, expected: bool = False) -> Free:
        """What the host offers a job then: not what is kept."""
        return _beside_slots(self.free(name, at, expected=expected), self.kept.get(name, ()), at)

    def _away(self, ending: Ending, at: float) -> bool:
        if self.gone.get(ending.unit, at + 1) <= at:
            return True
        margin_s = 0.0 if ending.kind.local else self.settings.margin_s
        ends_at = max(ending.at, self.now + self.unbegun.get(ending.unit, 0.0))
        return at > self.now and ends_at + margin_s <= at

    def _expected_away(self, ending: Ending, at: float) -> bool:
        """Rule 8."""
        return self.gone.get(ending.unit, at + 1) <= at or (at != self.now and ending.at <= at)

    def clear(self, name: str, shape: Shape, since: float, until: float, *, expected: bool = False) -> Seat | None:
        """The first slot that would lack room on the host if `shape` was there from `since` to `until`; None if none."""
        for seat in self.there.get(name, ()):
            at = max(seat.at, since)
            if (
                seat.at < until
                and seat.booking.ends_at > since
                and not self.free(name, at, expected=expected).fits(shape)
            ):
                return seat
        for seat in self.kept.get(name, ()):
            at = max(seat.at, since)
            if (
                seat.at < until
                and seat.booking.ends_at > since
                and not self.spare(name, at, expected=expected).fits(shape)
            ):
                return seat
        return None

    # --------------------------------------------------------------------------------------------------------- seating

    def _seat(self, booking: Booking) -> Seat:
        hosts, victims = self._room_for(booking, max(booking.start_at, self.now))
        seat = Seat(booking, max(booking.start_at, self.now), hosts, tuple(each.unit for each in victims))
        where = self.there if seat.whole else self.kept
        for name in hosts:
            where.setdefault(name, []).append(seat)
        return seat

    def _room_for(self, booking: Booking, at: float) -> tuple[tuple[str, ...], list[Ending]]:
        """Its hosts, and the attempts preempted there.  Rule 7: first what is in time."""
        shape = booking.shape
        fitting = [name for name in self.forecast.held if self.free(name, at).fits(shape)]
        if self.saving and booking.start_at >= self.now:
            ready = [name for name in fitting if name not in self.saving or self.ready([name], shape, at)]
            clearing = _Clearing(self, booking, at, ready, in_time=True)
            victims = self._victims(clearing)
            if victims is not None:
                return clearing.hosts, victims
        clearing = _Clearing(self, booking, at, fitting, in_time=False)
        victims = self._victims(clearing)
        return (clearing.chosen(), []) if victims is None else (clearing.hosts, victims)

    def _victims(self, clearing: _Clearing) -> list[Ending] | None:
        """Best-effort to preempt, cheapest first, so that the lease fits; from here on in `gone`.  None if it does not fit."""
        if clearing.fits():
            return []
        if not self.settings.preempt:
            return None
        candidates = self._candidates(clearing.booking, clearing.at, in_time=clearing.in_time)
        victims = preemption.minimal(candidates, clearing)
        if victims is None:  # rule 5
            for each in candidates:
                del self.gone[each.unit]
        return victims

    def _candidates(self, booking: Booking, at: float, *, in_time: bool) -> list[Ending]:
        """Best-effort that may be preempted, cheapest first; `in_time`: only what can be gone by then."""
        there = {e.unit: e for e in self.movable.values() if not self._away(e, at)}
        costs = [
            Cost(
                e.unit, e.waited_s, overhead_s(e.shape.nodes, e.shape.size.memory_mb, self.settings), grace_s=e.grace_s
            )
            for e in there.values()
        ]
        order = sorted(cheapest_first(costs, self.settings), key=lambda unit: self._too_late(booking, unit))
        names = takewhile(lambda unit: not self._too_late(booking, unit), order) if in_time else order
        return [there[unit] for unit in names]

    def ready(self, hosts: Iterable[str], shape: Shape, at: float) -> bool:
        """Rule 7: each has room for `shape` then beside all that is still being saved there."""
        return all(self.unwritten(name, at).fits(shape) for name in hosts)

    def _too_late(self, booking: Booking, unit: str) -> bool:
        return self.now <= booking.start_at and self.moment(booking, unit) < self.now - ROUNDING_S

    def moment(self, booking: Booking, unit: str) -> float:
        """When the unit has to be ended for the slot."""
        return booking.start_at - self.situation.clearing_s(unit)


class _Clearing:
    """Hosts for one slot (`preemption.Trial`).  `before`: those that fit as things are; `in_time`: only hosts that are ready
    count."""

    def __init__(self, seats: Seats, booking: Booking, at: float, before: list[str], *, in_time: bool) -> None:
        self.seats, self.booking, self.shape, self.at, self.in_time = seats, booking, booking.shape, at, in_time
        self.before = dict.fromkeys(before)
        self.found = dict(self.before)
        self.hosts: tuple[str, ...] = ()
        self.ready = False  # whether the hosts are, once all that were taken have left

    def take(self, ending: Ending) -> None:
        self.seats.gone[ending.unit] = self.at
        for name in ending.hosts:
            if self.seats.free(name, self.at).fits(self.shape) and (not self.in_time or self._ready([name])):
                self.found[name] = None

    def fits(self) -> bool:
        if len(self.found) < self.shape.nodes:
            return False
        self.hosts = self.chosen()
        self.ready = self._ready(self.hosts)
        return True

    def chosen(self) -> tuple[str, ...]:
        """Rule 3."""
        busy = {name: None for name in self.seats.saving if not self._ready([name])}
        found = sorted(self.found, key=lambda name: (name not in self.before, name in busy, name))
        return tuple(found[: self.shape.nodes])

    def give_back(self, ending: Ending) -> bool:
        """Not if the lease would not fit any more, or not in time."""
        seats = self.seats
        del seats.gone[ending.unit]
        if self._ready(self.hosts) if self.ready else all(seats.free(n, self.at).fits(self.shape) for n in self.hosts):
            return True
        seats.gone[ending.unit] = self.at
        return False

    def _ready(self, hosts: Iterable[str]) -> bool:
        return self.seats.ready(hosts, self.shape, self.at)


def unbegun(situation: Situation) -> dict[str, float]:
    """Rule 2: placed attempts that have not begun, and for how long each will be there once it does, in seconds."""
    forecast = situation.forecast()
    units = forecast.custody.state.units
    waiting = [e for e in forecast.endings if units[e.unit].began_at is None and not e.kind.local]
    return {each.unit: each.at - each.since for each in waiting}


def saving(situation: Situation) -> list[Ending]:
    """Suspended units whose machines are still being written to disk, on the hosts where they are, until that is done."""
    found: list[Ending] = []
    forecast, settings = situation.forecast(), situation.policy.leases
    for name, origin in situation.queue.suspended.items():
        unit = forecast.custody.state.units[name]
        at = (unit.ended_at or 0.0) + suspend_s(unit.nodes, unit.size.memory_mb, settings)
        hosts = tuple(host for host in origin if host in forecast.held)
        if at > situation.now and hosts:
            shape = Shape(unit.nodes, unit.size, unit.exclusive)
            found.append(Ending(at, name, hosts, shape))
    return found


def _beside_slots(free: Free, seats: Sequence[Seat], at: float) -> Free:
    for seat in seats:
        if seat.at <= at < seat.booking.ends_at:
            free = free.beside(seat.booking.shape)
    return free
