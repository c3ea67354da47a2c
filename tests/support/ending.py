"""A web department at the table whose instances come and go: builders and readers for tests of how they end."""

from __future__ import annotations

from typing import Any, Literal

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.scheduler.core.web.core import WebCore
from tests.support.world import World, cloud, web

DRAIN_S = 5.0
NOTICE_S = 0.3  # as by default


def site(
    hosts: int = 4, *, held: int = 1, cores: int = 4, drained: bool = False, boot_s: float = 0.0, **policy: Any
) -> World:
    """`held` of `hosts` hosts held by web; VMs start and guests call at once.  `drained`: what drains has drained at once."""
    world = World(cloud(web("web", **{"drain_s": DRAIN_S, "signal_timeout_s": 1e6, **policy})))
    names = world.hosts(hosts, cores=cores)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.settle()
    world.executor()
    world.guests(boot_s=boot_s)
    if drained:
        world.balancer()
    world.grant("web", *names[:held])
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def decide(world: World, kind: type | None = None) -> list[Any]:
    return [fact for fact in core(world).decide(world.now) if kind is None or isinstance(fact, kind)]


def scale(world: World, exact: int) -> None:
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=exact))
    world.settle()


def hear(world: World, unit: str, state: Literal["drained", "unready", "ready"], user: str = "balancer") -> None:
    """A load balancer's word."""
    why = "/healthz answered HTTP 500" if state == "unready" else ""
    world.write("admission", f.InstanceReported(unit=unit, attempt=1, state=state, user=user, why=why))


def feel(world: World, unit: str, state: Literal["unready", "ready"], why: str = "/healthz answered HTTP 500") -> None:
    """The word of an instance's guest."""
    why = why if state == "unready" else ""
    world.write("admission", f.InstanceReported(unit=unit, attempt=1, state=state, by="guest", why=why))


def over(world: World, unit: str, **how: Any) -> None:
    """Its guest's word that the program has ended."""
    world.write("admission", f.InstanceReported(unit=unit, attempt=1, state="ended", by="guest", **how))


def sessions(world: World, *quiet: str) -> None:
    """The instances with the fewest sessions, the fewest first."""
    world.now += 1.0
    fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=0.7, samples=1, quiet=quiet)
    world.write("scheduler.web", fact)


def draining(world: World) -> list[str]:
    units = world.custody.state.units.values()
    return [unit.id for unit in units if unit.live and unit.drains_until is not None]


def serving(world: World) -> list[str]:
    units = world.custody.state.units.values()
    return [unit.id for unit in units if unit.live and unit.began_at is not None and unit.drains_until is None]


def ends(world: World) -> dict[str, tuple[Disposal, because.Kind]]:
    return {fact.unit: (fact.disposal, type(fact.why)) for fact in world.facts(f.AttemptClosed)}
