"""SVMSched's elections, held plainly: who starts is who starts where each election looks at every waiting unit anew.

The plain pass below knows neither heaps nor streams: what the real one puts aside, drops or looks up by length it asks again
each time.  Shares, ground and reservation are the real ones: they have tests of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from phoenix_papers.svmsched import order as order_svmsched
from phoenix_papers.svmsched.order import in_turn
from phoenix_papers.svmsched.shares import hosts_wanted, needs, shares_of, used_by
from schemas import reasons as because
from schemas.ids import job_of
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.sharing.service_share import Shares, percent
from services.scheduler.core.policies.order import Plan, Reserved, Situation
from services.scheduler.core.policies.preemptible_capacity import PreemptibleCapacity, newest_of
from services.scheduler.core.policies.reservation import Gap, gap_for
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Place, Shape
from tests.support import examples
from tests.support.scheduling import core, reservations
from tests.support.services import shared
from tests.support.world import World

Started = tuple[str, tuple[str, ...], tuple[str, ...], because.Kind, Any]


class Plain:
    """`starts`: unit, hosts, who makes way, why, and the share in use after it (or where it was)."""

    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.forecast = situation, situation.queue, situation.forecast()
        self.ground = PreemptibleCapacity(situation.room, self.forecast, newest_of(situation))
        self.shares, self.used = shares_of(situation.policy, self.forecast), used_by(self.forecast)
        self.turn, self.turn_best_effort = situation.turns
        self.starts: list[Started] = []
        self.ends: list[Ending] = []
        self.throttles: Counter[Any] = Counter()
        self.gap: Gap | None = None
        self.later = False

    def run(self) -> list[Started]:
        while self.elect(self.complies, because.ShareTurn):
            pass
        if self.situation.policy.short_s > 0:
            while self.elect(self.borrows, because.Borrows):
                pass
        self.reserved = Reserved(self.gap.head.unit, self.gap.at) if self.gap is not None and self.later else None
        self.resume()
        while self.elect_best_effort():
            pass
        return self.starts

    def waiting(self, *, best_effort: bool = False) -> Iterator[tuple[Place, Lane]]:
        gone = {unit for unit, *_ in self.starts}
        lanes = [lane for lane in self.queue.lanes.values() if lane.key.kind.best_effort == best_effort]
        lanes = [lane for lane in lanes if self.throttles[lane.key] < self.queue.allowance(lane)]
        yield from sorted(((p, n) for n in lanes for p in n.places if p.unit not in gone), key=lambda each: each[0])

    def uses(self, service: str, shape: Shape) -> Size:
        old, more = self.used.get(service, (0, 0)), needs(shape, self.forecast.wholes)
        return Size(old[0] + more[0], old[1] + more[1])

    def look_for_head(self) -> None:
        """Rule 6: of each service the first within its share, of those the oldest."""
        fronts: dict[str, tuple[Place, Shape]] = {}
        firsts: dict[Any, Place] = {}
        for place, lane in self.waiting():
            service, shape = lane.key.kind.service, lane.key.shape
            first = firsts.setdefault(lane.key, place) == place and service not in fronts
            within = self.shares.complies(service, self.uses(service, shape))
            if first and within and self.forecast.could_hold(shape):
                fronts[service] = place, shape
        self.gap = None
        if fronts:
            head, shape = min(fronts.values(), key=lambda front: front[0].entered)
            self.later = not self.ground.cleared.fits(shape)
            ends = self.ends if self.later else []
            resting = self.situation.room.resting
            self.gap = gap_for(head, shape, self.ground.cleared, self.ground.production, ends, resting)

    def why_not(self, unit: str) -> Reason | None:
        """That the share is full, if it keeps it from starting."""
        kind, shape = (key := self.queue.where[unit][0].key).kind, key.shape
        if kind.best_effort or self.shares.complies(kind.service, self.uses(kind.service, shape)):
            return None
        pct = {"share_pct": self.shares.granted.get(kind.service, 0)}
        pct["used_pct"] = self.shares.usage(self.used.get(kind.service, Size()))
        pct["with_it_pct"] = self.shares.usage(self.uses(kind.service, shape))
        return because.ShareFull(service=kind.service, **{name: percent(x) for name, x in pct.items()})

    def is_heads(self, service: str) -> bool:
        return self.gap is not None and self.queue.where[self.gap.head.unit][0].key.kind.service == service

    def complies(self, place: Place, lane: Lane) -> bool:
        service = lane.key.kind.service
        used = self.uses(service, lane.key.shape)
        if self.gap is not None and self.later and place.unit != self.gap.head.unit and self.is_heads(service):
            used = used.plus(needs(self.gap.shape, self.forecast.wholes))
        return self.shares.complies(service, used)

    def borrows(self, place: Place, lane: Lane) -> bool:
        """Rule 3."""
        service, short_s = lane.key.kind.service, self.situation.policy.short_s
        if self.complies(place, lane) or (self.later and self.is_heads(service)):
            return False
        late = [e for e in self.forecast.declared.values() if self.situation.now - e.since > short_s]
        believed = not [e for e in late if e.kind.service == service]
        return (lane.key.kind.declared and believed) or self.queue.length_s(place.unit) <= short_s

    def elect(self, may: Callable[[Place, Lane], bool], code: because.Kind) -> bool:
        if code is because.ShareTurn and not self.later:
            self.look_for_head()
        if len(self.starts) >= self.situation.most:
            return False
        waiting = [(place, lane) for place, lane in self.waiting() if may(place, lane)]
        for service in in_turn({lane.key.kind.service for _, lane in waiting}, self.turn):
            for place, lane in waiting:
                if lane.key.kind.service == service and self.start(place, lane, code):
                    self.turn = service
                    return True
        return False

    def harmless(self, unit: str, shape: Shape, gap: Gap) -> bool:
        """Rule 6: gone by the head's turn (b), or as large as the head on every count (a)."""
        if self.later:
            return self.situation.now + self.queue.length_s(unit) <= gap.at
        mine, its = (shape.nodes, *shape.size), (gap.shape.nodes, *gap.shape.size)
        larger = all(a >= b for a, b in zip(mine, its, strict=True))
        return larger and (shape.exclusive or not gap.shape.exclusive)

    def start(self, place: Place, lane: Lane, code: because.Kind) -> bool:
        unit, shape, gap, service = place.unit, lane.key.shape, self.gap, lane.key.kind.service
        free = gap is None or unit == gap.head.unit or self.harmless(unit, shape, gap)

        def pick(room: Room) -> tuple[str, ...] | None:
            return room.pick(shape) if gap is None or free else gap.hosts_for(room, shape)

        found = self.ground.find(shape, pick)
        if found is None:
            return False
        hosts, victims = found
        if gap is not None and unit != gap.head.unit and not (self.later and self.harmless(unit, shape, gap)):
            gap.use(hosts, shape)
        self.ground.start(hosts, shape, victims)
        self.used[service] = self.uses(service, shape)
        self.ends.append(Ending(self.situation.now + self.queue.length_s(unit), unit, hosts, shape))
        used_pct = percent(self.shares.usage(self.used[service]))
        self.note(unit, lane, hosts, tuple(victims), code, used_pct)
        return True

    def note(
        self, unit: str, lane: Lane, hosts: tuple[str, ...], gone: tuple[str, ...], code: because.Kind, more: Any
    ) -> None:
        self.starts.append((unit, hosts, gone, code, more))
        self.throttles[lane.key] += 1

    def resume(self) -> None:
        """Rule 7: where it was, else elsewhere."""
        for place in self.queue.suspended_in_order():
            lane, origin = self.queue.where[place.unit][0], self.queue.suspended[place.unit]
            shape, free = lane.key.shape, self.ground.free
            if len(self.starts) < self.situation.most and self.throttles[lane.key] < self.queue.allowance(lane):
                back = len(origin) == shape.nodes and not [
                    name for name in origin if name not in free.free or not free.free[name].fits(shape)
                ]
                hosts = origin if back else free.pick(shape)
                if hosts is not None:
                    self.ground.start_best_effort(hosts, shape)
                    self.note(place.unit, lane, hosts, (), because.Resumes, None if back else list(origin))

    def elect_best_effort(self) -> bool:
        waiting = list(self.waiting(best_effort=True)) if len(self.starts) < self.situation.most else []
        for service in in_turn({lane.key.kind.service for _, lane in waiting}, self.turn_best_effort):
            for place, lane in waiting:
                hosts = self.ground.free.pick(lane.key.shape) if lane.key.kind.service == service else None
                if hosts is not None:
                    self.ground.start_best_effort(hosts, lane.key.shape)
                    self.note(place.unit, lane, hosts, (), because.BestEffort, None)
                    self.turn_best_effort = service
                    return True
        return False


def really(situation: Situation) -> list[Started]:
    starts = order_svmsched.plan(situation).starts
    params = [because.fields(start.reason) for start in starts]
    found = [p.get("used_pct", p.get("from_hosts")) for p in params]
    return [(s.unit, s.hosts, s.victims, type(s.reason), more) for s, more in zip(starts, found, strict=True)]


class Mix(NamedTuple):
    """What is submitted in one story."""

    services: str
    cores: int
    nodes: int
    lengths_s: tuple[float, ...]
    chances: dict[str, float]
    arrays: float

    @classmethod
    def of(cls, random: Random) -> Mix:
        few, many = (50.0, 100.0, 101.0, 400.0), tuple(float(n) for n in range(20, 220, 10))
        chances = {"best_effort": random.choice([0.0, 0.3]), "short": random.choice([0.0, 0.3])}
        chances["exclusive"] = random.choice([0.0, 0.2])
        return cls(
            random.choice(["aabc", "abcd", "abcx", "ab", "ab"]), random.choice([2, 4]), random.choice([1, 2, 3]),
            random.choice([few, many]), chances, random.choice([0.0, 0.2, 0.6]),
        )  # fmt: skip


def asked(random: Random, mix: Mix) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "service": random.choice(mix.services), "cores": random.randint(1, mix.cores),
        "nodes": random.randint(1, mix.nodes), "memory_mb": random.choice([1024, 4096]),
        "walltime_s": random.choice(mix.lengths_s), "priority": random.choice([0, 0, 0, 1]),
    }  # fmt: skip
    fields |= {name: True for name, chance in mix.chances.items() if random.random() < chance}
    if random.random() < mix.arrays:
        fields |= {"array": tuple(range(random.randint(2, 4))), "throttle": random.choice([0, 1, 2]), "nodes": 1}
    return fields


def used_by_hand(world: World) -> dict[str, Size]:
    """Of live production: what it asked for, on whole hosts all that they have."""
    found: dict[str, Size] = {}
    for unit in world.custody.state.units.values():
        job = core(world).state.jobs.get(job_of(unit.id))
        if unit.live and job is not None and not job.best_effort:
            for host in map(world.custody.state.hosts.__getitem__, unit.hosts):
                whole = unit.exclusive and host.cordoned is None  # a cordoned one is not among those that are shared
                found[job.service] = found.get(job.service, Size()).plus(host.size if whole else unit.size)
    return found


def wanted_by_hand(situation: Situation, used: dict[str, tuple[int, int]], kind: tuple[int, int]) -> int:
    """The fewest hosts of which each share holds all that runs and waits."""
    every, forecast = Counter[tuple[str, int]](), situation.forecast()
    for service, much in used.items():
        every.update({(service, 0): much[0], (service, 1): much[1]})
    for key, lane in situation.queue.lanes.items():
        if not key.kind.best_effort:
            more, service = needs(key.shape, forecast.wholes), key.kind.service
            units = situation.queue.allowance(lane)
            every.update({(service, 0): units * more[0], (service, 1): units * more[1]})
    services = set(situation.policy.services)
    for hosts in range(1000):
        shares = Shares(situation.policy, Size(hosts * kind[0], hosts * kind[1]))
        if all(not every[s, 0] or (hosts and shares.complies(s, Size(every[s, 0], every[s, 1]))) for s in services):
            return hosts
    raise AssertionError("no number of hosts is enough")


def kept_waiting(situation: Situation, plan: Plan) -> dict[str, Reason | None]:
    """Of each unit that may start: whether its service's share keeps it from that."""
    waits, queue = (plan.rest(situation.now) if plan.rest is not None else plan).waits, situation.queue
    tried = [(unit, lane.key) for unit, (lane, _) in queue.where.items() if queue.allowance(lane)]
    return {unit: waits[key](unit, situation.now) if key in waits else None for unit, key in tried}


def compare(world: World, most: int) -> list[Started]:
    situation = core(world).view.situation(world.now, core(world).view.room)._replace(most=most)
    used = used_by_hand(world)
    assert {service: much for service, much in used_by(situation.forecast()).items() if any(much)} == used
    for kinds, least in (([Size(4, 8192)], (4, 8192)), ([Size(8, 4096), Size(2, 16384)], (2, 4096))):
        assert hosts_wanted(situation, kinds) == wanted_by_hand(situation, used, least)
    assert hosts_wanted(situation, []) == 0  # nobody knows how large they would be
    plain = Plain(situation)
    told = {unit: plain.why_not(unit) for unit in situation.queue.where}
    found = plain.run()
    assert really(situation) == found
    plan = order_svmsched.plan(situation)
    if not found:
        assert kept_waiting(situation, plan) == {unit: told[unit] for unit in kept_waiting(situation, plan)}
    assert reservations(plan) == ([] if plain.reserved is None else [plain.reserved])
    return found


def pass_time(world: World, random: Random) -> None:
    """What runs begins, goes on for a while, and in part ends."""
    world.settle()
    for unit in [unit for unit, state in world.states().items() if state == "open"]:
        if world.unit(unit).began_at is None:
            world.start_vms(unit)
            world.begin(unit)
    world.now += random.choice([10.0, 50.0, 101.0])
    for unit in [unit for unit, state in world.states().items() if state == "open"]:
        if random.random() < 0.3:
            world.report(unit)


def play(seed: int) -> list[Started]:
    random = Random(seed)
    weights = random.choice([{"a": 3.0, "b": 2.0, "c": 1.0}, dict.fromkeys("abcd", 1.0), {"a": 1.0, "b": 1.0}])
    policy: dict[str, Any] = {
        "services": weights,
        "short_s": random.choice([0.0, 1.0, 100.0, 100.0]),
        "w_cpu": 0.75,
        "w_mem": 0.25,
    }
    world = shared(random.choice([1, 2, 3, 4, 6]), able=random.random() < 0.7, **policy)
    world.strict = False
    found, mix = list[Started](), Mix.of(random)
    for _ in range(4):
        for _ in range(random.randint(3, 9)):
            world.submit(**asked(random, mix))
            world.now += random.choice([0.0, 0.0, 1.0])
        found += compare(world, random.choice([100, 100, 1, 2]))
        if random.random() < 0.15:
            world.cordon("h1")
        pass_time(world, random)
        found += compare(world, 100)
    return found


@pytest.mark.parametrize("seed", range(examples.few(30, searching=60)))
def test_elections_are_as_where_each_looks_at_everybody(seed: int) -> None:
    for number in range(5):
        play(5 * seed + number)
