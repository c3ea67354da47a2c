"""The order of leases, held plainly: who starts is who starts where every waiting unit is tried in turn.

The plain pass below knows neither heaps nor lengths: it goes through the queue once.  Slots on hosts (`order_leases_seats`)
and the head's gap (`reservation`) are the real ones: they have tests of their own.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import pytest

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import Size
from schemas.times import exact
from services.domain.core import NEVER
from services.scheduler.core.policies import order_leases
from services.scheduler.core.policies.order import Plan, Reserved, Situation, Start
from services.scheduler.core.policies.order_leases_seats import Seats, saving
from services.scheduler.core.policies.preemption_costs import overhead_s, resume_s, suspend_s
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Place
from tests.support import examples
from tests.support.leases import begun, external, lease, site, until
from tests.support.scheduling import core, reservations
from tests.support.world import World

KILL_S = 5.0  # the policy's


class Plain:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.now = situation, situation.queue, situation.now
        self.settings, self.room = situation.policy.leases, situation.room.copy()
        self.forecast, self.seats = situation.forecast(), Seats(situation)
        self.saving = {each.unit: each for each in saving(situation)}
        self.starts: list[Start] = []
        self.throttles: Counter[Any] = Counter()
        self.gap: Gap | None = None

    def run(self) -> list[Start]:
        self.leases()
        self.keep_saving()
        for place in self.queue.suspended_in_order():
            if place.unit not in self.saving:
                self.attempt(place, self.queue.where[place.unit][0])
        waiting = [(place, lane) for lane in self.queue.lanes.values() for place in lane.places]
        for place, lane in sorted(waiting, key=lambda each: each[0]):
            if place.unit not in self.queue.suspended:
                self.attempt(place, lane)
        return self.starts

    def leases(self) -> None:
        """Rule 1.  If none is due, slots are seated around who starts now."""
        due = any(booking.start_at <= self.now for booking in self.queue.bookings.values())
        for seat in self.seats.walk() if due else ():
            booking = seat.booking
            if booking.start_at > self.now:
                return
            fitting = [n for n in seat.hosts if n in self.room.free and self.room.free[n].fits(booking.shape)]
            if seat.whole and not seat.victims and len(fitting) == len(seat.hosts):
                late = {"late_s": round(self.now - booking.start_at, 3)} if self.now > booking.start_at else {}
                self.room.use(seat.hosts, booking.shape)
                reason = because.LeaseStarts(ends_at=exact(booking.ends_at), **late)
                self.starts.append(Start(booking.unit, booking.shape, seat.hosts, reason))

    def keep_saving(self) -> None:
        """Rule 8: what is being written is not free."""
        for each in self.saving.values():
            for name in [name for name in each.hosts if name in self.room.free]:
                free = self.room.free[name]
                left = [max(0, there - taken) for there, taken in zip(free.size, each.shape.size, strict=True)]
                self.room.offer(name, Free.of(False, Size(*left), free.serves))

    def stays_s(self, unit: str, lane: Lane) -> float:
        shape = lane.key.shape
        again_s = resume_s(shape.nodes, shape.size.memory_mb, self.settings) if unit in self.queue.suspended else 0.0
        return self.queue.length_s(unit) + again_s

    def guard(self, unit: str, lane: Lane) -> float:
        """Rules 3 and 4: until when it must be in no slot's way."""
        size, settings = (lane.key.shape.nodes, lane.key.shape.size.memory_mb), self.settings
        away_s = self.stays_s(unit, lane) + settings.margin_s
        if lane.key.kind.best_effort and settings.preempt:
            again_s = resume_s(*size, settings) if unit in self.queue.suspended else 0.0
            go_s = max(KILL_S, suspend_s(*size, settings)) + settings.margin_s
            away_s = min(away_s, overhead_s(*size, settings) + go_s + again_s)
        return self.now + away_s

    def hosts(self, unit: str, lane: Lane) -> tuple[str, ...] | None:
        shape, gap, until = lane.key.shape, self.gap, self.guard(unit, lane)
        self.seats.until(until)
        free = [name for kind in self.room.order if kind.fits(shape) for name in self.room.classes[kind]]
        clear = [name for name in free if self.seats.clear(name, shape, self.now, until) is None]
        stays = gap is not None and self.now + self.stays_s(unit, lane) > gap.at
        spoilt = [name for name in clear if gap is not None and stays and gap.spoils(name, shape)]
        spare = max(0, gap.spare) if gap is not None else 0
        chosen = [*(name for name in clear if name not in spoilt), *spoilt[:spare]][: shape.nodes]
        return tuple(chosen) if len(chosen) == shape.nodes else None

    def attempt(self, place: Place, lane: Lane) -> None:
        """Rules 5 and 6: it starts, or is the head if there is none yet."""
        unit, shape = place.unit, lane.key.shape
        if self.throttles[lane.key] >= self.queue.allowance(lane) or len(self.starts) >= self.situation.most:
            return
        hosts = self.hosts(unit, lane)
        if hosts is None:
            self.look_for_head(place, lane)
            return
        stays_s = self.stays_s(unit, lane)
        if self.gap is not None and self.now + stays_s > self.gap.at:
            self.gap.use(hosts, shape)
        self.room.use(hosts, shape)
        self.seats.add(Ending(self.now + stays_s, unit, hosts, shape, lane.key.kind, self.now))
        self.starts.append(Start(unit, shape, hosts, self.why(unit, lane, hosts)))
        self.throttles[lane.key] += 1

    def why(self, unit: str, lane: Lane, hosts: tuple[str, ...]) -> Reason:
        if unit in self.queue.suspended:
            origin = self.queue.suspended[unit]
            return because.Resumes(**({} if hosts == origin else {"from_hosts": list(origin)}))
        if self.gap is not None:
            return because.Backfill()
        return because.BestEffort() if lane.key.kind.best_effort else because.HeadOfQueue()

    def look_for_head(self, place: Place, lane: Lane) -> None:
        shape, where = lane.key.shape, self.queue.where
        if self.gap is None and self.forecast.could_hold(shape):
            own = [s for s in self.starts if s.unit in where]
            started = [Ending(self.now + self.stays_s(s.unit, where[s.unit][0]), s.unit, s.hosts, s.shape) for s in own]
            started += self.saving.values()
            self.gap = gap_for(place, shape, self.room, self.forecast, started, self.situation.room.resting)
            if self.gap is not None and self.queue.bookings:
                self.gap = self.behind(self.gap, self.guard(place.unit, lane) - self.now)

    def behind(self, gap: Gap, stays_s: float) -> Gap:
        """As late as slots make it."""
        first, shape = gap.at or self.now, gap.shape
        for at in sorted({first, *(b.ends_at for b in self.queue.bookings.values() if b.ends_at > first)}):
            self.seats.until(at + stays_s)
            later = {name: self.seats.spare(name, at, expected=True) for name in self.forecast.held}
            fits = [n for n in later if later[n].fits(shape)]
            clear = [n for n in fits if self.seats.clear(n, shape, at, at + stays_s, expected=True) is None]
            if len(clear) >= shape.nodes:
                return Gap(gap.head, shape, at, later, len(clear) - shape.nodes)
        return gap

    def why_not(self, unit: str) -> Reason | None:
        """The slot in the way, where there is room but for slots."""
        lane, _ = self.queue.where[unit]
        shape, until = lane.key.shape, self.guard(unit, lane)
        self.leases()
        self.keep_saving()
        self.seats.until(until)
        roomy = [name for name in self.room.free if self.room.free[name].fits(shape)]
        barred = [seat for n in roomy if (seat := self.seats.clear(n, shape, self.now, until)) is not None]
        if len(roomy) < shape.nodes or len(roomy) - len(barred) >= shape.nodes:
            return None
        gap_s = round(max(0.0, min(barred).at - self.now - self.settings.margin_s))
        first = min(barred).booking
        return because.LeaseKeepsRoom(job=first.unit, gap_s=gap_s, starts_at=exact(first.start_at))


class Mix(NamedTuple):
    """What is submitted in one story."""

    cores: int
    nodes: int
    lengths_s: tuple[float, ...]
    best_effort: float
    leases: float
    arrays: float

    @classmethod
    def of(cls, random: Random) -> Mix:
        few, many = (40.0, 150.0, 600.0), tuple(float(n) for n in range(20, 420, 20))
        return cls(
            random.choice([2, 4]), random.choice([1, 2, 3]), random.choice([few, many]), random.choice([0.0, 0.5, 0.9]),
            random.choice([0.1, 0.3]), random.choice([0.0, 0.3]),
        )  # fmt: skip


def submit(world: World, random: Random, mix: Mix) -> None:
    size: dict[str, Any] = {
        "cores": random.randint(1, mix.cores), "nodes": random.randint(1, mix.nodes),
        "memory_mb": random.choice([100, 1000, 4000]), "walltime_s": random.choice(mix.lengths_s),
    }  # fmt: skip
    if random.random() < mix.leases:
        lease(world, random.choice([0.0, 30.0, 100.0, 300.0]), **size)
        return
    if random.random() < mix.arrays:
        size |= {"array": tuple(range(random.randint(2, 4))), "throttle": random.choice([0, 1, 2]), "nodes": 1}
    if random.random() < mix.best_effort:
        external(world, **size)
    else:
        world.submit(**size)


def kept_waiting(situation: Situation, plan: Plan, told: dict[str, Reason | None]) -> None:
    """A pass that starts nobody says of each unit that may start which slot keeps room from it, if one does."""
    whole = plan.rest(situation.now) if plan.rest is not None else plan
    for unit, (lane, _) in situation.queue.where.items():
        if situation.queue.allowance(lane):
            wait = whole.waits.get(lane.key)
            assert (None if wait is None else wait(unit, situation.now)) == told[unit]


def compare(world: World, most: int) -> list[Start]:
    mine = core(world)
    situation = mine.view.situation(world.now, mine.view.room)._replace(most=most)
    told = {unit: Plain(situation).why_not(unit) for unit in situation.queue.where}
    plain = Plain(situation)
    found = plain.run()
    plan = order_leases.plan(situation)
    assert plan.starts == ([] if plan.clear else found)
    assert order_leases.Pass(situation).run().starts == found
    if not found:
        kept_waiting(situation, plan, told)
    gap = plain.gap
    heads = [each for each in reservations(plan, situation.now) if each.unit not in situation.queue.bookings]
    assert heads == ([] if gap is None else [Reserved(gap.head.unit, gap.at)])
    return found


def play(seed: int) -> list[Start]:
    random = Random(seed)
    mix, found = Mix.of(random), list[Start]()
    settings: dict[str, Any] = {"margin_s": random.choice([0.0, 5.0]), "preempt": random.random() < 0.7}
    world = site(random.choice([1, 2, 3, 4]), suspend=random.random() < 0.7, **settings)
    world.strict = False
    for _ in range(4):
        for _ in range(random.randint(3, 7)):
            submit(world, random, mix)
        found += compare(world, random.choice([100, 100, 1, 2]))
        world.settle()
        begun(world)
        mine = core(world)
        if random.random() < 0.5 and (due := mine.wake_at()) != NEVER:
            world.now = max(world.now, due)
            found += compare(world, 100)
        until(world, world.now + random.choice([1.0, 20.0, 90.0]))
        for unit in [unit for unit, state in world.states().items() if state == "open"]:
            if random.random() < 0.2 and world.unit(unit).began_at is not None:
                world.report(unit)
        if random.random() < 0.1:
            world.cordon("h1")
        found += compare(world, 100)
    return found


@pytest.mark.parametrize("seed", range(examples.few(30, searching=60)))
def test_the_queue_starts_as_where_each_is_tried_in_turn(seed: int) -> None:
    for number in range(4):
        play(4 * seed + number)
