"""A batch department at the table: builders and readers for tests of its core."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Capability
from schemas.facts import Dependency, Disposal
from services.domain.capabilities import ALL
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order import Plan, Reserved
from tests.support.world import World, batch, cloud


def cluster(hosts: int = 3, *, held: int | None = None, cores: int = 4, **policy: Any) -> World:
    """`held` (default all) of `hosts` hosts held by hpc, whose scheduler sits at the table."""
    world = World(cloud(batch("hpc", **policy)))
    names = world.hosts(hosts, cores=cores)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names[: hosts if held is None else held])
    return world


def able(hosts: int = 2, *capabilities: Capability, **policy: Any) -> World:
    """A cloud that can suspend and migrate, unless other `capabilities` are named; its hosts are held by hpc."""
    world = World(msgspec.structs.replace(cloud(batch("hpc", **policy)), capabilities=capabilities or ALL))
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def core(world: World) -> BatchCore:
    found: BatchCore = world.seats["scheduler.hpc"].core
    return found


def decide(world: World) -> list[f.Fact]:
    return core(world).decide(world.now)


def placed(world: World) -> dict[str, tuple[str, ...]]:
    """What the next decision places: unit -> hosts."""
    return {fact.unit: fact.hosts for fact in decide(world) if isinstance(fact, f.UnitPlaced)}


def closed(world: World) -> dict[str, tuple[Disposal, because.Kind]]:
    return {x.unit: (x.disposal, type(x.why)) for x in decide(world) if isinstance(x, f.AttemptClosed)}


def demand(world: World) -> int:
    world.settle()
    return world.custody.state.demands.get("hpc", 0)


def wait_for(job: str, condition: Any = "afterok") -> tuple[Dependency, ...]:
    return (Dependency(condition=condition, job=job),)


def released(world: World) -> list[str]:
    return [fact.host for fact in decide(world) if isinstance(fact, f.HostReleased)]


def running(world: World, *, nodes: int = 1, after_s: float = 0.0, **fields: Any) -> str:
    """A job that has run for as long as the clock is moved from here on."""
    job = world.submit(nodes=nodes, cores=fields.pop("cores", 4), **fields)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += after_s
    return job


def reservations(plan: Plan, now: float = 0.0) -> list[Reserved]:
    """For whom a pass keeps room, all of them."""
    return list((plan.rest(now) if plan.rest is not None else plan).reservations)
