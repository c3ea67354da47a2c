"""The conservative order, held plainly: who starts and who is reserved is so where hosts are asked moment by moment.

The plain pass below keeps, for each host, who is there from when to when; a moment is tried by asking every host at every
moment at which anything begins or ends there.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import Size
from services.scheduler.core.policies import order_conservative as conservative
from services.scheduler.core.policies.order import Reserved, Situation, Start
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Place, Shape
from tests.properties.test_orders_plain import play
from tests.support.scheduling import core
from tests.support.world import World

ALWAYS, NEVER = float("-inf"), float("inf")


class Occupant(NamedTuple):
    since: float
    until: float
    shape: Shape


class Plain:
    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.now = situation, situation.queue, situation.now
        forecast = situation.forecast()
        wholes = sorted((whole.size.cores, whole.size.memory_mb, name) for name, whole in forecast.held.items())
        self.wholes = {n: forecast.held[n] for _, _, n in wholes if n not in situation.room.resting}  # rule 3
        self.there: dict[str, list[Occupant]] = {name: [] for name in self.wholes}
        for ending in forecast.endings:
            for name in ending.hosts:
                if name in self.there:
                    self.there[name].append(Occupant(ALWAYS, ending.at, ending.shape))
        self.starts: list[Start] = []
        self.reserved: list[Reserved] = []
        self.overdue: dict[str, None] = {}  # hosts on which a reservation began in the past (rule 7)
        self.passed: Place | None = None

    def free(self, name: str, at: float) -> Free:
        there = [o.shape for o in self.there[name] if o.since <= at < o.until]
        whole = self.wholes[name]
        if any(shape.exclusive for shape in there):
            return Free.of(False, Size(-1, -1), whole.serves)
        cores, memory_mb = sum(s.size.cores for s in there), sum(s.size.memory_mb for s in there)
        return Free.of(False, whole.size.minus(Size(cores, memory_mb)), whole.serves) if there else whole

    def holds(self, name: str, shape: Shape, since: float, until: float) -> bool:
        edges = {edge for o in self.there[name] for edge in (o.since, o.until) if since < edge < until}
        return all(self.free(name, at).fits(shape) for at in (since, *edges))

    def able(self, shape: Shape, since: float, until: float) -> list[str]:
        return [name for name in self.there if self.holds(name, shape, since, until)]

    def gains(self, name: str, shape: Shape, length_s: float) -> list[float]:
        """The moments at which the host comes to have room for so long."""
        edges = [ALWAYS, *sorted({edge for o in self.there[name] for edge in (o.since, o.until)} - {ALWAYS})]
        pairs = [(old, at) for old, at in pairwise(edges) if not self.free(name, old).fits(shape)]
        return [at for _, at in pairs if self.holds(name, shape, at, at + length_s)]

    def run(self) -> list[Start]:
        every = [(place, lane) for lane in self.queue.lanes.values() for place in lane.places]
        looked_at: Counter[Any] = Counter()
        for place, lane in sorted(every, key=lambda each: each[0]):
            full = len(self.reserved) - len(self.starts) >= self.situation.policy.reservations_max
            looked_at[lane.key] += 1
            if looked_at[lane.key] > self.queue.allowance(lane):
                continue
            if full or len(self.starts) >= self.situation.most:
                break
            if self.situation.forecast().could_hold(lane.key.shape):
                self.seat(place, lane.key.shape, self.queue.length_s(place.unit))
            else:
                self.passed = self.passed or place
        return self.starts

    def seat(self, place: Place, shape: Shape, length_s: float) -> None:
        now = sorted(self.able(shape, ALWAYS, self.now + length_s), key=lambda n: (self.free(n, ALWAYS), n))
        if len(now) >= shape.nodes:
            why = self.why()
            hosts, since, until = tuple(now[: shape.nodes]), ALWAYS, self.now + length_s
            self.starts.append(Start(place.unit, shape, hosts, why, anywhere=len(self.reserved) == len(self.starts)))
            self.reserved.append(Reserved(place.unit, self.now, hosts))
        else:
            moments = sorted({at for name in self.there for at in self.gains(name, shape, length_s)})
            since = next((at for at in moments if len(self.able(shape, at, at + length_s)) >= shape.nodes), NEVER)
            if since == NEVER:
                return
            hosts, until = tuple(self.able(shape, since, since + length_s)[: shape.nodes]), since + length_s
            if since < self.now or not self.overdue.keys().isdisjoint(hosts):
                self.overdue |= dict.fromkeys(hosts)
            at = NEVER if not self.overdue.keys().isdisjoint(hosts) else since
            self.reserved.append(Reserved(place.unit, at, hosts))
        for name in hosts:
            self.there[name].append(Occupant(since, until, shape))

    def why(self) -> Reason:
        waiting = len(self.reserved) - len(self.starts)
        if waiting:
            return because.Backfill(reserved=waiting)
        if self.passed is not None:
            return because.FirstFit(passed_over=self.passed.unit)
        return because.HeadOfQueue()


def compare(world: World, most: int) -> Counter[str]:
    situation = core(world).view.situation(world.now, core(world).view.room)._replace(most=most)
    plain = Plain(situation)
    found = plain.run()
    plan = conservative.plan(situation)
    assert plan.starts == found
    assert plan.rest is not None
    told = {each.unit: each for each in plain.reserved}
    if most > len(situation.queue.where):
        given = [each for each in plan.rest(situation.now).reservations if each.at < NEVER]
        assert given == [each for each in plain.reserved if each.at < NEVER]
        assert all(told[each.unit] == each for each in plan.reservations if each.at < NEVER)
    return Counter({"starts": len(found), "waits": len(plain.reserved) - len(found)})


@pytest.mark.parametrize("most", [1, 2, 3, 100])
@pytest.mark.parametrize("seed", range(15))
def test_it_starts_and_reserves_as_where_hosts_are_asked_moment_by_moment(seed: int, most: int) -> None:
    for number in range(3):
        play(5000 + 3 * seed + number, compare, order="conservative", reservations_max=most)
