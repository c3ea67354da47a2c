"""What is free, what would be if best-effort were preempted, and which of it is (`preemption`).

Source: R. Chakode, thesis, Univ. Grenoble 2012, Algorithm 2 (a host with room first; only then one where best-effort has to
be suspended, the newest first, "older ones are presumed near completion").

Rules
  1. A unit that fits on what is free preempts nothing.
  2. Else as little best-effort as possible is preempted (`preemption.minimal`), in the order that is given: of `svmsched` the
     newest first (latest start, then latest submission: total).  What can stay beside the new unit on its hosts stays.
  3. Production is never preempted, nor is a guarded unit (`preemption`).
  4. A preempted attempt leaves all its hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from services.scheduler.core.policies import preemption
from services.scheduler.core.policies.order import Situation
from services.scheduler.core.policies.reservation import NO_ROOM
from services.scheduler.core.policies.victims import newest_first
from services.scheduler.core.state.forecast import Ending, Forecast
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Shape

Pick: TypeAlias = Callable[[Room], tuple[str, ...] | None]


class PreemptibleCapacity:
    """The capacity as one pass sees it.  `free`: what no attempt has; `cleared`: what would be free without `best_effort`, the
    attempts that may be preempted, first victim first."""

    def __init__(self, room: Room, forecast: Forecast, best_effort: list[Ending]) -> None:
        self.forecast, self.resting, self.free = forecast, room.resting, room.copy()
        self.left: dict[str, int] = {}  # host -> attempts on it, where this pass has changed their number
        self.best_effort = list(best_effort)
        self.cleared = self.free.copy() if self.best_effort else self.free
        without: dict[str, int] = {}
        for ending in self.best_effort:
            self.vacate(self.cleared, without, ending)
        self.production = Production(forecast, without, dict.fromkeys(ending.unit for ending in best_effort))

    def find(self, shape: Shape, pick: Pick) -> tuple[tuple[str, ...], list[str]] | None:
        """Hosts for a unit of production, and the best-effort attempts preempted for it, in their order; None if there are
        none.  `pick`: the hosts in a room that it may have."""
        hosts = pick(self.free)
        if hosts is not None:
            return hosts, []
        if not self.best_effort or pick(self.cleared) is None:
            return None
        search = _Search(self, shape, pick)
        victims = preemption.minimal(self.best_effort, search)
        return None if victims is None else (search.hosts, [ending.unit for ending in victims])

    def start(self, hosts: tuple[str, ...], shape: Shape, victims: list[str]) -> None:
        """A unit of production takes its hosts, once `victims` have left."""
        for ending in [ending for ending in self.best_effort if ending.unit in victims]:
            self.vacate(self.free, self.left, ending)
            self.best_effort.remove(ending)
        self.start_best_effort(hosts, shape)
        if self.cleared is not self.free:
            self.cleared.use(hosts, shape)

    def start_best_effort(self, hosts: tuple[str, ...], shape: Shape) -> None:
        """A unit takes hosts that it may have to give back."""
        self.free.use(hosts, shape)
        for name in hosts:
            self.left[name] = self.left.get(name, self.forecast.units(name)) + 1

    def vacate(self, room: Room, left: dict[str, int], ending: Ending) -> None:
        """Rule 4.  A host that is cordoned or in quarantine offers nothing, whichever attempt leaves it."""
        for name in ending.hosts:
            whole = self.forecast.held.get(name)
            if whole is None or name in self.resting:
                continue
            units = left[name] = left.get(name, self.forecast.units(name)) - 1
            room.offer(name, room.free.get(name, NO_ROOM).after(ending.shape) if units else whole)


class _Search:
    """Hosts for one unit of production (`preemption.Trial`).  `offers`: what they offer once all that are needed have left."""

    def __init__(self, capacity: PreemptibleCapacity, shape: Shape, pick: Pick) -> None:
        self.capacity, self.shape, self.pick = capacity, shape, pick
        self.room, self.left = capacity.free.copy(), dict(capacity.left)
        self.hosts: tuple[str, ...] = ()
        self.offers: dict[str, Free] = {}

    def take(self, ending: Ending) -> None:
        self.capacity.vacate(self.room, self.left, ending)

    def fits(self) -> bool:
        hosts = self.pick(self.room)
        if hosts is None:
            return False
        self.hosts, self.offers = hosts, {name: self.room.free[name] for name in hosts}
        return True

    def give_back(self, ending: Ending) -> bool:
        beside = {name: self.offers[name].beside(ending.shape) for name in ending.hosts if name in self.offers}
        if not all(free.fits(self.shape) for free in beside.values()):
            return False
        self.offers.update(beside)
        return True


class Production:
    """The forecast as production sees it: without the attempts that may be preempted.  `without`: the other attempts on a host
    where such are; `gone`: the attempts that may be preempted.  All else is as in the forecast."""

    def __init__(self, forecast: Forecast, without: dict[str, int], gone: dict[str, None]) -> None:
        self.forecast, self.without, self.gone, self.held = forecast, without, gone, forecast.held
        self._endings: list[Ending] | None = None

    @property
    def endings(self) -> list[Ending]:
        if self._endings is None:
            self._endings = [ending for ending in self.forecast.endings if ending.unit not in self.gone]
        return self._endings

    def units(self, name: str) -> int:
        return self.without[name] if name in self.without else self.forecast.units(name)

    def could_hold(self, shape: Shape) -> bool:
        return self.forecast.could_hold(shape)


def newest_of(situation: Situation) -> list[Ending]:
    """Rule 2: live best-effort that may be ended now, newest first."""
    running = situation.forecast().best_effort.values()
    return sorted((each for each in running if not situation.guarded(each.unit)), key=_newest)


def _newest(ending: Ending) -> tuple[float, float, int, int]:
    return (
        -ending.since,  # 1. the latest start
        ending.grace_s,  # 2. the one that leaves soonest (`victims`, rule 2)
        *newest_first(ending.unit),  # 3. the latest submission; unique
    )
