"""A batch department whose hosts' real use is reported, for tests of the balancer."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance
from services.domain.custody.rules import RULES
from services.scheduler.core.batch.core import BatchCore
from tests.support.world import World, batch, cloud


def balanced(hosts: int, *, able: bool = True, **settings: Any) -> World:
    """Hosts of 8 cores and 8 GiB held by hpc, whose balancer is on."""
    balance = Balance(**({"enabled": True} | settings))
    config = cloud(batch("hpc", balance=balance))
    capabilities = ("live_migration",) if able else ()
    world = World()
    adopted = msgspec.structs.replace(config, capabilities=capabilities)
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=adopted))
    names = world.hosts(hosts, cores=8)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def busy_cluster(cores: list[int], **settings: Any) -> tuple[World, list[str]]:
    """Four hosts; jobs of this many cores each, all up."""
    world = balanced(4, **settings)
    return world, [up(world, cores=each) for each in cores]


def up(world: World, **fields: Any) -> str:
    """A job whose guest has called."""
    job = world.submit(**({"memory_mb": 1024} | fields))
    world.settle()
    if world.unit(job).live:
        world.start_vms(job)
        world.begin(job)
        world.settle()
    return job


def observe(world: World, host: str, cpu: float) -> None:
    world.write("executor", f.HostObserved(host=host, cpu=cpu, memory=0.1))


def moves(world: World) -> list[tuple[str, str, str]]:
    """(job, from, to) of each move so far."""
    return [
        (fact.unit, str(because.fields(fact.why)["host"]), str(because.fields(fact.why)["to"]))
        for fact in world.facts(f.AttemptClosed)
        if type(fact.why) is because.Balanced
    ]
