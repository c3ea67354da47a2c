"""The orders of a queue, held plainly: who starts is who starts where all that wait are gone through one by one.

The plain passes below know neither lanes nor lengths.  Rooms are the real ones; the head's gap is worked out by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import Size
from services.scheduler.core.policies import order_easy, order_fcfs, order_first_fit, order_shortest_first
from services.scheduler.core.policies.order import Reserved, Situation, Start
from services.scheduler.core.policies.reservation import Gap
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Place, Shape
from tests.support.scheduling import cluster, core, reservations
from tests.support.world import World


class Plain:
    """Goes through all that wait in an order, and starts whom it may."""

    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.room, self.now = (
            situation,
            situation.queue,
            situation.room.copy(),
            situation.now,
        )
        self.starts: list[Start] = []
        self.throttles: Counter[Any] = Counter()
        self.passed: Place | None = None  # the first one that did not start
        self.gap: Gap | None = None

    def waiting(self, key: Callable[[Place], Any] = lambda place: place) -> Iterator[tuple[Place, Lane]]:
        """Whoever is over a throttle is passed."""
        every = [(place, lane) for lane in self.queue.lanes.values() for place in lane.places]
        for place, lane in sorted(every, key=lambda each: key(each[0])):
            if len(self.starts) < self.situation.most and self.throttles[lane.key] < self.queue.allowance(lane):
                yield place, lane

    def start(self, place: Place, lane: Lane, hosts: tuple[str, ...], why: Reason) -> None:
        in_turn = not isinstance(why, because.Backfill)
        self.starts.append(Start(place.unit, lane.key.shape, hosts, why, anywhere=in_turn))
        self.throttles[lane.key] += 1

    def in_turn(self) -> Reason:
        if self.passed is None:
            return because.HeadOfQueue()
        return because.FirstFit(passed_over=self.passed.unit)

    def fcfs(self) -> list[Start]:
        for place, lane in self.waiting():
            hosts = self.room.take(lane.key.shape)
            if hosts is None:
                break
            self.start(place, lane, hosts, because.HeadOfQueue())
        return self.starts

    def first_fit(self) -> list[Start]:
        for place, lane in self.waiting():
            hosts = self.room.take(lane.key.shape)
            if hosts is None:
                self.passed = self.passed or place
            else:
                self.start(place, lane, hosts, self.in_turn())
        return self.starts

    def shortest_first(self) -> list[Start]:
        length_s = self.queue.length_s
        for place, lane in self.waiting(lambda place: (place.rank, length_s(place.unit), place.entered)):
            hosts = self.room.take(lane.key.shape)
            if hosts is not None:
                self.start(place, lane, hosts, because.ShortestFirst(limit_s=length_s(place.unit)))
        return self.starts

    def easy(self) -> list[Start]:
        for place, lane in self.waiting():
            if self.gap is not None:
                self.backfill(place, lane, self.gap)
                continue
            hosts = self.room.take(lane.key.shape)
            if hosts is not None:
                self.start(place, lane, hosts, self.in_turn())
                continue
            self.passed = self.passed or place
            if self.situation.forecast().could_hold(lane.key.shape):
                self.gap = self.gap_for(place, lane.key.shape)
        return self.starts

    def backfill(self, place: Place, lane: Lane, gap: Gap) -> None:
        shape, head = lane.key.shape, gap.head.unit
        if self.now + self.queue.length_s(place.unit) <= gap.at:
            hosts, why = self.room.take(shape), because.Backfill(head=head, gap_s=round(gap.at - self.now, 3))
        else:
            hosts = gap.hosts_for(self.room, shape)
            if hosts is not None:
                self.room.use(hosts, shape)
                gap.use(hosts, shape)
            why = because.Backfill(head=head, spare=gap.spare)
        if hosts is not None:
            self.start(place, lane, hosts, why)

    def gap_for(self, head: Place, shape: Shape) -> Gap | None:
        """The first end after which enough hosts have room, and what each has then."""
        forecast, resting = self.situation.forecast(), self.situation.room.resting
        there = [(e.at, e.hosts, e.shape) for e in forecast.endings]
        there += [(self.now + self.queue.length_s(s.unit), s.hosts, s.shape) for s in self.starts]
        for at in sorted({end for end, _, _ in there}):
            later = dict(self.room.free)
            for name in {name for end, hosts, _ in there if end <= at for name in hosts}:
                whole = forecast.held.get(name)
                if whole is not None and name not in resting:
                    stay = [its for end, hosts, its in there if name in hosts and end > at]
                    cores, memory_mb = sum(s.size.cores for s in stay), sum(s.size.memory_mb for s in stay)
                    left = Free.of(False, whole.size.minus(Size(cores, memory_mb)), whole.serves)
                    later[name] = left if stay else whole
            fitting = sum(1 for free in later.values() if free.fits(shape))
            if fitting >= shape.nodes:
                return Gap(head, shape, at, later, fitting - shape.nodes)
        return None


def asked(random: Random, cores: int, nodes: int, lengths_s: tuple[float, ...], arrays: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "cores": random.randint(1, cores), "nodes": random.randint(1, nodes), "memory_mb": random.choice([100, 4000]),
        "walltime_s": random.choice(lengths_s), "priority": random.choice([0, 0, 0, 1]),
        "exclusive": random.random() < 0.1,
    }  # fmt: skip
    if random.random() < arrays:
        fields |= {"array": tuple(range(random.randint(2, 4))), "throttle": random.choice([0, 1, 2]), "nodes": 1}
    return fields


def compare(world: World, most: int) -> Counter[str]:
    situation = core(world).view.situation(world.now, core(world).view.room)._replace(most=most)
    told = Counter[str]()
    for order, plain in (
        (order_fcfs, Plain.fcfs), (order_first_fit, Plain.first_fit), (order_shortest_first, Plain.shortest_first),
    ):  # fmt: skip
        found = plain(Plain(situation))
        assert order.plan(situation).starts == found
        told.update(type(start.reason) for start in found)
    easy = Plain(situation)
    found = easy.easy()
    plan = order_easy.plan(situation)
    assert plan.starts == found
    told.update(type(start.reason) for start in found)
    alone = Plain(situation)
    alone.backfill = lambda *_: None  # type: ignore[method-assign]
    alone.easy()
    gap = alone.gap
    assert reservations(plan) == ([] if gap is None else [Reserved(gap.head.unit, gap.at)])
    return told


def play(seed: int, compare: Callable[[World, int], Counter[str]] = compare, **policy: Any) -> Counter[str]:
    random = Random(seed)
    few, many = (50.0, 100.0, 400.0), tuple(float(n) for n in range(20, 220, 10))
    mix = random.choice([2, 4]), random.choice([1, 2, 3]), random.choice([few, many]), random.choice([0.0, 0.3])
    hosts = random.choice([1, 2, 3, 5])
    policy = {"order": random.choice(["easy", "fcfs"])} | policy
    world = cluster(hosts, held=random.choice([hosts, hosts, max(1, hosts - 1)]), **policy)
    world.strict = False
    told = Counter[str]()
    for _ in range(4):
        for _ in range(random.randint(2, 7)):
            world.submit(**asked(random, *mix))
        told += compare(world, random.choice([100, 100, 1, 2]))
        if random.random() < 0.15:
            world.cordon("h1")
        world.settle()
        world.now += random.choice([10.0, 50.0, 90.0])
        for unit in [unit for unit, state in world.states().items() if state == "open"]:
            if world.unit(unit).began_at is None:
                world.start_vms(unit)
                world.begin(unit)
            elif random.random() < 0.4:
                world.report(unit)
        told += compare(world, 100)
    return told


@pytest.mark.parametrize("seed", range(50))
def test_orders_are_as_where_all_that_wait_are_gone_through_one_by_one(seed: int) -> None:
    for number in range(4):
        play(4 * seed + number)
