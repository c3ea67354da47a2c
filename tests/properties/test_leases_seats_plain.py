"""Where slots will be, and who makes way, held plainly: each host is counted anew at each moment that is asked for.

What is there is drawn at random, in whole seconds and few of them, so that moments meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import BatchPolicy, Leases
from schemas.size import Size
from services.domain.core import NEVER
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.policies.order_leases import agenda
from services.scheduler.core.policies.order_leases_seats import ROUNDING_S, Seat, Seats, saving
from services.scheduler.core.policies.preemption_costs import Cost, cheapest_first
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Booking, Kind, Shape

NOW = 100.0
CORES, MEMORY_MB = 4, 6
KINDS = (Kind(), Kind(best_effort=True), Kind(best_effort=True), Kind(local=True))


class Plain:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.settings = situation, situation.policy.leases
        self.forecast = situation.forecast()
        self.units = self.forecast.custody.state.units
        self.there, self.saving = list(self.forecast.endings), list[Ending]()
        for name, origin in situation.queue.suspended.items():
            unit = self.units[name]
            at = (unit.ended_at or 0.0) + unit.nodes * unit.size.memory_mb / self.settings.suspend_mb_per_s
            hosts = tuple(host for host in origin if host in self.forecast.held)
            if at > NOW and hosts:
                self.saving.append(Ending(at, name, hosts, Shape(unit.nodes, unit.size, unit.exclusive)))
        self.seats: list[Seat] = []
        self.gone: dict[str, float] = {}

    def is_there(self, ending: Ending, at: float) -> bool:
        """Rule 2."""
        if ending.unit in self.gone and self.gone[ending.unit] <= at:
            return False
        if at <= NOW:
            return True
        ends_at = ending.at
        if ending.unit in self.units and self.units[ending.unit].began_at is None and not ending.kind.local:
            ends_at = max(ends_at, NOW + ending.at - ending.since)
        return ends_at + (0.0 if ending.kind.local else self.settings.margin_s) > at

    def fits(self, name: str, shape: Shape, at: float, *, kept: bool = False, written: bool = False) -> bool:
        whole = self.forecast.held.get(name)
        if whole is None or name in self.situation.room.resting:
            return False
        shapes = [e.shape for e in self.there if name in e.hosts and self.is_there(e, at)]
        slots = [s for s in self.seats if name in s.hosts and s.at <= at < s.booking.ends_at and (s.whole or kept)]
        shapes += [s.booking.shape for s in slots]
        shapes += [e.shape for e in self.saving if written and name in e.hosts and e.at > at + ROUNDING_S]
        if any(other.exclusive for other in shapes) or (shape.exclusive and shapes):
            return False
        cores, memory_mb = sum(s.size.cores for s in shapes), sum(s.size.memory_mb for s in shapes)
        enough = whole.size.cores >= cores + shape.size.cores
        return enough and whole.size.memory_mb >= memory_mb + shape.size.memory_mb

    def hosts(self, shape: Shape, at: float, *, written: bool = False) -> list[str]:
        return [name for name in self.forecast.held if self.fits(name, shape, at, written=written)]

    def too_late(self, booking: Booking, unit: str) -> bool:
        told_at = booking.start_at - self.situation.clearing_s(unit)
        return booking.start_at >= NOW and told_at < NOW - ROUNDING_S

    def clear(self, booking: Booking, at: float, *, written: bool) -> tuple[list[Ending], list[str]]:
        """Cheapest first, who is too late last or not at all, until there are enough hosts."""
        live = {e.unit: e for e in self.there if e.kind.best_effort and self.is_there(e, at)}
        costs = [
            Cost(e.unit, e.waited_s, 2.0 * e.shape.nodes * e.shape.size.memory_mb, grace_s=e.grace_s)
            for e in live.values()
        ]
        order = cheapest_first(costs, self.settings)
        late = [unit for unit in order if self.too_late(booking, unit)]
        went: list[Ending] = []
        for unit in [u for u in order if u not in late] + ([] if written else late):
            if len(self.hosts(booking.shape, at, written=written)) >= booking.shape.nodes:
                break
            self.gone[unit] = at
            went.append(live[unit])
        found = self.hosts(booking.shape, at, written=written)
        if len(found) < booking.shape.nodes:
            for ending in went:
                del self.gone[ending.unit]
            return [], found
        return went, found

    def seat(self, booking: Booking) -> Seat:
        at, shape = max(booking.start_at, NOW), booking.shape
        preempt, written = self.settings.preempt, booking.start_at >= NOW
        before = self.hosts(shape, at, written=written)
        went, found = self.clear(booking, at, written=written) if preempt else ([], before)
        if len(found) < shape.nodes:
            before = self.hosts(shape, at)
            went, found = self.clear(booking, at, written=False) if preempt else ([], before)
        written_on = {name for each in self.saving for name in each.hosts}
        busy = [name for name in written_on if not self.fits(name, shape, at, written=True)]
        found.sort(key=lambda name: (name not in before, name in busy, name))
        hosts = tuple(found[: shape.nodes])
        in_time = all(self.fits(name, shape, at, written=True) for name in hosts)
        victims: list[str] = []
        for ending in went[::-1]:
            del self.gone[ending.unit]
            if not all(self.fits(name, shape, at, written=in_time) for name in hosts):
                self.gone[ending.unit] = at
                victims.insert(0, ending.unit)
        self.seats.append(Seat(booking, at, hosts, tuple(victims)))
        return self.seats[-1]

    def walk(self) -> Iterator[Seat]:
        seated = [seat.booking for seat in self.seats]
        for booking in sorted(self.situation.queue.bookings.values()):
            if booking.ends_at > NOW and booking not in seated:
                yield self.seat(booking)

    def until(self, at: float) -> None:
        for booking in sorted(self.situation.queue.bookings.values()):
            if booking.ends_at > NOW and booking.start_at < at:
                self.seat(booking)

    def barred(self, name: str, shape: Shape, since: float, until: float) -> Seat | None:
        """The first slot in the way: of those that are whole, then of those that are kept."""
        meets = [s for s in self.seats if name in s.hosts and s.at < until and s.booking.ends_at > since]
        for seat in sorted(meets, key=lambda seat: not seat.whole):
            if not self.fits(name, shape, max(seat.at, since), kept=not seat.whole):
                return seat
        return None

    def agenda(self) -> tuple[list[tuple[str, str]], float]:
        """Every moment at which somebody has to be told or something is over, of which the next counts."""
        bookings, margin_s = self.situation.queue.bookings.values(), self.settings.margin_s
        moments = [at for b in bookings for at in (b.start_at, b.ends_at)] + [each.at for each in self.saving]
        for ending in self.there:
            if self.units[ending.unit].began_at is None and not ending.kind.local:
                stays_s = ending.at - ending.since + margin_s - ROUNDING_S
                moments += [b.start_at - stays_s for b in bookings]
        told: dict[str, str] = {}
        best_effort = [e.unit for e in self.there if e.kind.best_effort] if self.settings.preempt else []
        needs_s = {unit: self.situation.clearing_s(unit) for unit in best_effort}
        for seat in self.walk() if best_effort else ():
            start_at = seat.booking.start_at
            if start_at - max(needs_s.values()) > NOW:
                moments.append(start_at - max(needs_s.values()))
                break
            told |= {unit: seat.booking.unit for unit in seat.victims if start_at - needs_s[unit] <= NOW}
            moments += [start_at - needed_s for needed_s in needs_s.values()]
        return list(told.items()), min((at for at in moments if at > NOW), default=NEVER)


def shape(random: Random, nodes: int = 2) -> Shape:
    return Shape(
        random.randint(1, nodes), Size(random.choice([1, 2, 3, 4]), random.randint(1, 4)), random.random() < 0.1
    )


def some(random: Random, names: list[str], count: int) -> tuple[str, ...]:
    return tuple(sorted(random.sample(names, min(count, len(names)))))


def draw(seed: int) -> Situation:
    random = Random(seed)
    names = [f"h{number}" for number in range(1, random.randint(2, 5))]
    held = {name: Free.of(True, Size(CORES, MEMORY_MB)) for name in names}
    units: dict[str, Any] = {}
    endings, suspended, clearing_s = list[Ending](), dict[str, tuple[str, ...]](), {"9": 2.0}
    for number in range(1, random.randint(2, 6)):
        unit, wants, since = str(number), shape(random), NOW - random.randint(0, 10)
        hosts = some(random, names, wants.nodes)
        wants = wants._replace(nodes=len(hosts))
        begun = since if random.random() < 0.7 else None
        units[unit] = SimpleNamespace(began_at=begun)
        kind = random.choice(KINDS)
        waited_s, grace_s = float(random.randint(0, 2)), float(random.randint(0, 1))
        endings.append(Ending(since + random.randint(2, 20), unit, hosts, wants, kind, since, waited_s, grace_s))
        clearing_s[unit] = float(random.choice([0, 0, 1, 3, 6]))
    for number in range(11, 11 + random.choice([0, 0, 1, 2])):
        unit, wants = str(number), shape(random)._replace(exclusive=False)
        suspended[unit] = some(random, [*names, "given back"], wants.nodes)
        ended_at = None if random.random() < 0.1 else NOW - random.randint(0, 6)
        units[unit] = SimpleNamespace(**wants._asdict(), ended_at=ended_at)
    bookings: dict[str, Booking] = {}
    for number in range(21, 21 + random.randint(0, 4)):
        at = NOW + random.choice([-3, 0, 0, 1, 2, 5, 8, 12])
        bookings[str(number)] = Booking(at, number, str(number), at + random.choice([2, 3, 5, 10]), shape(random, 3))
    settings = Leases(
        preempt=random.random() < 0.8, suspend_mb_per_s=1.0, resume_mb_per_s=1.0, margin_s=random.choice([0.0, 1.0]),
        victims=random.choice(["minimum-waiting-time", "minimum-overhead", "combined"]),
    )  # fmt: skip
    best_effort = {e.unit: e for e in sorted(endings) if e.kind.best_effort}
    custody = SimpleNamespace(state=SimpleNamespace(units=units))
    forecast: Any = SimpleNamespace(held=held, endings=sorted(endings), best_effort=best_effort, custody=custody)
    room: Any = SimpleNamespace(resting={names[-1]: NOW + 9} if random.random() < 0.1 else {})
    queue: Any = SimpleNamespace(bookings=bookings, suspended=suspended)
    return Situation(
        queue, room, NOW, 10, lambda: forecast, BatchPolicy(leases=settings), clearing_s=lambda unit: clearing_s[unit]
    )


def asked(random: Random, situation: Situation, seats: Seats, plain: Plain) -> None:
    for _ in range(12):
        name, wants = random.choice(list(plain.forecast.held)), shape(random, 1)
        since = NOW + random.randint(0, 12)
        until = since + random.randint(1, 12)
        at = f"{name} {wants} {since} {until}"
        assert seats.free(name, since).fits(wants) == plain.fits(name, wants, since), at
        assert seats.spare(name, since).fits(wants) == plain.fits(name, wants, since, kept=True), at
        assert seats.unwritten(name, since).fits(wants) == plain.fits(name, wants, since, written=True), at
        assert seats.clear(name, wants, since, until) == plain.barred(name, wants, since, until), at


def compare(seed: int) -> None:
    random, situation = Random(seed), draw(seed)
    plain = Plain(situation)
    assert saving(situation) == plain.saving
    assert agenda(situation) == plain.agenda()
    seats, plain = Seats(situation), Plain(situation)
    until = NOW + random.randint(0, 12)
    seats.until(until)
    plain.until(until)
    asked(random, situation, seats, plain)
    wants = shape(random)
    kind, hosts = random.choice(KINDS), some(random, list(plain.forecast.held), wants.nodes)
    placed = Ending(NOW + random.randint(2, 20), "9", hosts, wants, kind, NOW)
    plain.units["9"] = SimpleNamespace(began_at=NOW)  # type: ignore[assignment]
    seats.add(placed)
    plain.there.append(placed)
    assert list(seats.walk()) == list(plain.walk())
    asked(random, situation, seats, plain)


@pytest.mark.parametrize("first", range(0, 3000, 100))
def test_slots_are_laid_and_cleared_as_where_each_host_is_counted_anew(first: int) -> None:
    for seed in range(first, first + 100):
        compare(seed)
