"""SVMSched's ground, held plainly: what is free, and who makes way, is as where each attempt on each host is counted anew."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from schemas.size import Size
from services.domain.custody.state import Unit
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.policies.preemptible_capacity import PreemptibleCapacity, newest_of
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Shape
from tests.support.scheduling import core
from tests.support.services import best_effort, long, shared, start
from tests.support.world import World

CORES, MEMORY_MB = 4, 8192


class Attempt(NamedTuple):
    name: str
    hosts: tuple[str, ...]
    shape: Shape


class Plain:
    """All attempts; `may_go`: best-effort, newest first."""

    def __init__(self, world: World) -> None:
        units = [unit for unit in world.custody.state.units.values() if unit.live]
        jobs = core(world).state.jobs
        hosts = world.custody.state.hosts.items()
        self.hosts = [n for n, h in hosts if h.cordoned is None and h.quarantine_until <= world.now]
        self.attempts = [Attempt(u.id, u.hosts, Shape(u.nodes, u.size, u.exclusive)) for u in units]
        newest = sorted((u for u in units if jobs[u.id].best_effort), key=lambda u: (-since(u), -int(u.id)))
        self.may_go = [unit.id for unit in newest]
        self.own = {unit.id for unit in units if not jobs[unit.id].best_effort}

    def free(self, gone: list[str]) -> dict[str, Free]:
        """What hosts offer that may be placed on, without those who are gone."""
        found: dict[str, Free] = {}
        for host in self.hosts:
            there = [a.shape for a in self.attempts if host in a.hosts and a.name not in gone]
            if not any(shape.exclusive for shape in there):
                cores, memory_mb = sum(s.size.cores for s in there), sum(s.size.memory_mb for s in there)
                found[host] = Free.of(not there, Size(CORES - cores, MEMORY_MB - memory_mb))
        return found

    def find(self, shape: Shape) -> tuple[tuple[str, ...], list[str]] | None:
        for number in range(len(self.may_go) + 1):
            gone = self.may_go[:number]
            hosts = room(self.free(gone)).pick(shape)
            if hosts is not None:
                for name in gone[::-1]:  # the oldest first: who can stay stays
                    without = self.free([n for n in gone if n != name])
                    if all(host in without and without[host].fits(shape) for host in hosts):
                        gone = [n for n in gone if n != name]
                return hosts, gone
        return None

    def start(self, name: str, hosts: tuple[str, ...], shape: Shape, victims: list[str]) -> None:
        self.attempts = [a for a in self.attempts if a.name not in victims] + [Attempt(name, hosts, shape)]
        self.may_go = [n for n in self.may_go if n not in victims]


def since(unit: Unit) -> float:
    return unit.began_at if unit.began_at is not None else unit.placed_at or 0.0


def room(free: dict[str, Free]) -> Room:
    made = Room(())
    for name, offered in free.items():
        made.offer(name, offered)
    return made


def situation_of(random: Random) -> tuple[World, Situation]:
    """Few hosts, full of best-effort: old, new, on one host and on several; one may be cordoned, one in quarantine."""
    world = shared(random.randint(1, 4), services={"a": 1.0}, cores=CORES, memory_mb=MEMORY_MB)
    world.strict = False
    for _ in range(random.randint(1, 5)):
        exclusive = random.random() < 0.2
        submit = best_effort if random.random() < 0.75 else long
        cores, nodes = random.randint(1, 3), random.choice([1, 1, 2])
        unit = submit(world, service="a", cores=cores, nodes=nodes, memory_mb=1024, exclusive=exclusive)
        world.settle()
        if world.unit(unit).live:
            start(world, unit)
        world.now += random.choice([0.0, 10.0])
    if random.random() < 0.2:
        world.cordon("h1")
    if random.random() < 0.3:
        world.rest(random.choice(list(world.custody.state.hosts)))
    return world, core(world).view.situation(world.now, core(world).view.room.rested(world.custody, world.now))


def play(seed: int) -> None:
    random = Random(seed)
    world, situation = situation_of(random)
    ground, plain = PreemptibleCapacity(situation.room, situation.forecast(), newest_of(situation)), Plain(world)
    assert [ending.unit for ending in ground.best_effort] == plain.may_go
    for name in plain.hosts:
        assert ground.production.units(name) == sum(name in a.hosts for a in plain.attempts if a.name in plain.own)
    assert [ending.unit for ending in ground.production.endings if ending.unit not in plain.own] == []
    for number in range(4):
        assert (ground.free.free, ground.cleared.free) == (plain.free([]), plain.free(plain.may_go))
        shape = Shape(random.choice([1, 1, 2]), Size(random.randint(1, CORES), 1024), random.random() < 0.2)
        found = ground.find(shape, lambda room, shape=shape: room.pick(shape))
        assert found == plain.find(shape)
        if found is not None:
            ground.start(found[0], shape, found[1])
            plain.start(f"new{number}", found[0], shape, found[1])


@pytest.mark.parametrize("seed", range(40))
def test_the_ground_is_as_where_each_attempt_is_counted_anew(seed: int) -> None:
    for number in range(4):
        play(4 * seed + number)
