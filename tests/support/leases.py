"""A department of leases at the table."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Leases
from schemas.facts import Disposal
from services.domain.capabilities import ALL
from services.scheduler.core.batch.core import BatchCore
from tests.support.world import World, batch, cloud


def site(
    hosts: int = 4, *, held: int | None = None, suspend: bool = True, order: str = "leases", **settings: Any
) -> World:
    """Hosts of 4 cores; VMs are suspended at 100 MB/s, and nothing else takes time, unless `settings` say otherwise."""
    given: dict[str, Any] = {"suspend_mb_per_s": 100.0, "resume_mb_per_s": 100.0, "margin_s": 0.0} | settings
    policy: Any = {"order": order, "leases": Leases(**given)}
    config = msgspec.structs.replace(cloud(batch("hpc", **policy)), capabilities=ALL if suspend else ())
    world = World(config)
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names[: hosts if held is None else held])
    return world


def lease(world: World, in_s: float, **fields: Any) -> str:
    """A local lease that is to start in this many seconds: 100 s on one host, unless `fields` say otherwise."""
    slot = f.Lease(kind="advance", start_at=world.now + in_s)
    return world.submit(**({"lease": slot, "walltime_s": 100.0, "cores": 4} | fields))


def external(world: World, **fields: Any) -> str:
    """A best-effort lease."""
    given: dict[str, Any] = {"cores": 4, "memory_mb": 1000, "walltime_s": 10_000.0}
    return world.submit(**(given | {"lease": f.Lease(kind="best-effort"), "best_effort": True} | fields))


def begun(world: World) -> None:
    """The guests of whatever is placed have called."""
    for unit, state in world.states().items():
        known = world.unit(unit)
        if state == "open" and known.live and known.began_at is None:
            world.start_vms(unit)
            world.begin(unit)


def settle(world: World) -> None:
    world.settle()
    begun(world)


def until(world: World, at: float) -> None:
    """The clock moves from wake-up to wake-up; whatever is placed begins at once."""
    seat = world.seats["scheduler.hpc"]
    settle(world)
    while (due := seat.core.wake_at()) <= at:
        world.now = max(world.now, due)
        settle(world)
    world.now = at
    settle(world)


def told(world: World, kind: type) -> list[tuple[float, Any]]:
    """Facts of a kind with the seconds at which they were written, since the clock began."""
    from schemas.envelope import decode
    from tests.support.world import START

    found = []
    for writer, data in world.journal:
        envelope = decode(data, writer)
        found += [(envelope.at - START, fact) for fact in envelope.facts if isinstance(fact, kind)]
    return found


def placements(world: World) -> list[tuple[float, str]]:
    return [(at, fact.unit) for at, fact in told(world, f.UnitPlaced)]


def closings(world: World) -> list[tuple[float, str, Disposal, because.Kind]]:
    return [(at, x.unit, x.disposal, type(x.why)) for at, x in told(world, f.AttemptClosed)]
