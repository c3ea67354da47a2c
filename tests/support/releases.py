"""A web department in a `World` whose instances do what their release does to them: come up, never call, end,
crash later, or are lost with their VM.

    world, fates = site(instances=8)             # release 0 is good
    fates[2] = "crashes"                         # before anybody deploys it
    deploy(world, max_unavailable=1)             # -> 1, 2, … as the journal has it
    world.advance(60)

    users = Users(world, {2: 1.0})               # who get an error for each request that release 2 answers
    users.ask(60)                                # this many seconds: answers are observed, as by the edge

`Watch` looks at every fact: no instance drains for a roll while that leaves fewer in service than its terms allow.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.envelope import FACTS_MAX
from schemas.facts import Fact
from schemas.releases import Release
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.meter.answers import KEPT_S
from tests.support.world import NullCore, StandInGuests, World, cloud, web

BOOT_S: Final = 0.5
CRASH_S: Final = 2.0  # a crash after so long in service: shorter than what counts as having stood
Fates = dict[int | str, str]  # release, or one instance -> "good" (default), "silent", "ends", "crashes", "lost"


def site(*, instances: int = 8, hosts: int = 12, **policy: Any) -> tuple[World, Fates]:
    given: dict[str, Any] = {"signal_timeout_s": 1e6, "boot_timeout_s": 5.0, "drain_s": 2.0, "instances_min": instances}
    given["min_ready_s"] = 0.0  # the stories of a roll are quick; those of what crashes name it
    world = World(cloud(web("web", **{**given, **policy})))
    world.strict = False  # `verify` after each fact is the other properties'
    fates: Fates = {}
    world.hosts(hosts)
    world.seat("provisioner", ProvisionerCore)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.seat("admission", lambda custody: Guests(custody, fates), "guests")
    world.seat("executor", lambda custody: Faults(custody, fates), "faults")
    world.seat("observer", Watch, "watch")
    world.advance(3 * BOOT_S)
    return world, fates


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def deploy(
    world: World, *, max_unavailable: int = 0, max_surge: int = 1, min_ready_s: float | None = None, image: str = ""
) -> int:
    number = world.custody.state.release_last.get("web", 0) + 1
    fact = f.ReleaseRequested(
        dept="web",
        release=number,
        user="wes",
        content=Release(image=image),
        max_unavailable=max_unavailable,
        max_surge=max_surge,
        min_ready_s=min_ready_s,
    )
    world.write("admission", fact)
    return number


def scale(world: World, exact: int) -> None:
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=exact))


def said(world: World) -> list[tuple[int, str]]:
    return [(fact.release, fact.state) for fact in world.facts(f.ReleaseChanged)]


def serving(custody: Any) -> list[Unit]:
    units = (custody.state.units[name] for name in custody.index.open.get("web", ()))
    return [unit for unit in units if unit.live and unit.began_at is not None and unit.drains_until is None]


def of_releases(world: World) -> dict[int, int]:
    """Release -> instances in service."""
    found: dict[int, int] = {}
    for unit in serving(world.custody):
        found[unit.release] = found.get(unit.release, 0) + 1
    return found


class Users:
    """They ask each instance in service `EACH` times a second; `shares`: release -> what part of it is answered with 5xx."""

    EACH: Final = 20

    def __init__(self, world: World, shares: dict[int, float]) -> None:
        self.world, self.shares = world, shares
        self._told: deque[dict[int, tuple[int, int]]] = deque(maxlen=int(KEPT_S))

    def ask(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.advance(1.0)
            counts = {release: count * self.EACH for release, count in of_releases(self.world).items()}
            self._told.append({one: (all_, round(all_ * self.shares.get(one, 0.0))) for one, all_ in counts.items()})
            self._observe()

    def _observe(self) -> None:
        """The first one of a roll-out tells of the minute before."""
        fresh = list(self._told) if not core(self.world).state.answers_at else [self._told[-1]]
        sums: dict[int, tuple[int, int]] = {}
        for told in fresh:
            for release, (answered, errors) in told.items():
                had = sums.get(release, (0, 0))
                sums[release] = (had[0] + answered, had[1] + errors)
        answers = tuple(f.Answers(release=one, answered=sums[one][0], errors=sums[one][1]) for one in sorted(sums))
        at = self.world.now
        fact = f.LoadObserved(dept="web", start=at - 1, end=at, samples=1, answers=answers)
        self.world.write("scheduler.web", msgspec.structs.replace(fact, answers_s=float(len(fresh))))
        self.world.settle()


def fate_of(fates: Fates, unit: Unit) -> str:
    return fates.get(unit.id) or fates.get(unit.release, "good")


class Guests(StandInGuests):
    def __init__(self, custody: Any, fates: Fates) -> None:
        super().__init__(custody, BOOT_S, {})
        self.fates = fates

    def _call(self, unit: Unit) -> float:
        due = super()._call(unit)
        return due if fate_of(self.fates, unit) in ("good", "crashes", "lost") else float("inf")

    def decide(self, now: float) -> list[Fact]:
        found = super().decide(now)
        for unit, due in self._crashes():
            if due <= now:
                found.append(f.InstanceReported(unit=unit.id, attempt=unit.attempt, state="ended", by="guest", exit=1))
        return found

    def wake_at(self) -> float:
        return min([super().wake_at(), *(due for _, due in self._crashes())])

    def _crashes(self) -> list[tuple[Unit, float]]:
        units = (self.custody.state.units[name] for name in sorted(self.custody.index.open.get("web", ())))
        some = (unit for unit in units if unit.live and fate_of(self.fates, unit) == "crashes")
        return [(unit, unit.began_at + CRASH_S) for unit in some if unit.began_at is not None]


class Faults(NullCore):
    """The executor's word that a VM has ended."""

    def __init__(self, custody: Any, fates: Fates) -> None:
        super().__init__(custody)
        self.fates = fates

    def decide(self, now: float) -> list[Fact]:
        ended = [vm for vm, due in self._doomed() if due <= now]
        found: list[Fact] = [f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="exit 1") for vm in ended]
        return found[:FACTS_MAX]

    def wake_at(self) -> float:
        return min((due for _, due in self._doomed()), default=float("inf"))

    def _doomed(self) -> list[tuple[Any, float]]:
        found = []
        for vm in self.custody.state.vms.values():
            unit = self.custody.state.units[vm.unit]
            fate = fate_of(self.fates, unit)
            if fate == "ends" and vm.started_at is not None:
                found.append((vm, vm.started_at + BOOT_S / 2))
            elif fate == "lost" and unit.began_at is not None:
                found.append((vm, unit.began_at + CRASH_S))
        return found


class Watch(NullCore):
    """Looks at every fact; `fewest`: in service at any moment since it was last set."""

    def __init__(self, custody: Any) -> None:
        super().__init__(custody)
        self.target = self.wanted = 0
        self.fewest = 1 << 30

    def apply(self, fact: Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        if isinstance(fact, f.DemandChanged) and fact.instances is not None:
            self.target = fact.instances
        elif isinstance(fact, f.ReleaseChanged):
            self.wanted = fact.back_to if fact.state == "rolled_back" else fact.release
        here = len(serving(self.custody))
        self.fewest = min(self.fewest, here)
        unavailable, surge = self._bounds()
        if isinstance(fact, f.InstanceDraining) and type(fact.reason) is because.Rolling:
            assert here >= self.target - unavailable, (fact, here, self.target)
        if isinstance(fact, f.UnitPlaced) and fact.reason is not None and type(fact.reason) is because.Rolling:
            units = (self.custody.state.units[name] for name in self.custody.index.open["web"])
            active = sum(1 for unit in units if unit.live and unit.drains_until is None)
            assert active <= self.target + surge, (fact, active, self.target)

    def _bounds(self) -> tuple[int, int]:
        asked = self.custody.state.releases.get("web", {}).get(self.wanted)
        return (0, 1) if asked is None else (asked.max_unavailable, asked.max_surge)


def watch(world: World) -> Watch:
    found: Watch = world.seats["watch"].core
    return found
