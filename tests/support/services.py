"""A batch department whose services share its hosts (`order = "svmsched"`): builders for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas import facts as f
from services.domain.capabilities import ALL
from services.scheduler.core.batch.core import BatchCore
from tests.support.scheduling import core
from tests.support.world import World, batch, cloud

SHORT_S = 600.0
THIRDS = {"a": 1.0, "b": 1.0, "c": 1.0}


def shared(hosts: int = 3, *, cores: int = 4, memory_mb: int = 8192, able: bool = True, **policy: Any) -> World:
    """All of `hosts` held by hpc; three services with a third each, or `services`.  `able`: it can suspend."""
    given: dict[str, Any] = {"services": THIRDS, "short_s": SHORT_S} | policy
    config = cloud(batch("hpc", order="svmsched", **given))
    world = World(msgspec.structs.replace(config, capabilities=ALL if able else ()))
    names = world.hosts(hosts, cores=cores, memory_mb=memory_mb)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def long(world: World, service: str, cores: int = 1, **fields: Any) -> str:
    return world.submit(service=service, cores=cores, **{"walltime_s": 7200.0} | fields)


def short(world: World, service: str, cores: int = 1, **fields: Any) -> str:
    return world.submit(service=service, cores=cores, **{"walltime_s": SHORT_S} | fields)


def best_effort(world: World, cores: int = 4, service: str = "a", **fields: Any) -> str:
    return world.submit(service=service, cores=cores, best_effort=True, **{"walltime_s": 7200.0} | fields)


def started(world: World) -> list[str]:
    """What the next decision starts, in order."""
    return [fact.unit for fact in core(world).decide(world.now) if isinstance(fact, f.UnitPlaced)]


def start(world: World, *units: str) -> None:
    """Settles; the units run now."""
    world.settle()
    for unit in units:
        world.start_vms(unit)
        world.begin(unit)


def used(world: World, service: str) -> int:
    """Cores that live production of the service has."""
    jobs, units = core(world).state.jobs, world.custody.state.units.values()
    mine = [u for u in units if u.live and jobs[u.id].service == service and not jobs[u.id].best_effort]
    return sum(unit.nodes * unit.size.cores for unit in mine)
