"""A reservation for one unit that does not fit now: when it will, and what the others must leave it until then (`order_easy`,
`svmsched`).

Theory of operation
  At the *shadow time* enough live attempts are expected to have ended (`forecast`).  Hosts may carry several attempts, so the
  reservation is no list of hosts: it says on how many hosts the unit will fit then, and how many of them it can spare.

Rules
  1. Shadow time: the earliest expected end after which the unit fits.  All that is expected to end by then counts as free.
  2. Who stays longer than that starts on hosts where the unit would not fit then anyway, and on others as far as it can spare
     them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from schemas.size import NOTHING
from services.scheduler.core.state.forecast import Ending
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Place, Shape

NO_ROOM: Final = Free.of(False, NOTHING)


class Expected(Protocol):
    """What is known of the time to come (`forecast.Forecast`): ends in order, what held hosts offer when they are empty, and
    how many live attempts are on one."""

    @property
    def endings(self) -> Sequence[Ending]: ...

    @property
    def held(self) -> Mapping[str, Free]: ...

    def units(self, name: str) -> int: ...


class Gap:
    """The head's reservation.  `at`: shadow time; `later`: what is free then on each host; `spare`: hosts where the head fits
    then beyond those that it needs."""

    def __init__(self, head: Place, shape: Shape, at: float, later: dict[str, Free], spare: int) -> None:
        self.head, self.shape, self.at, self.later, self.spare = head, shape, at, later, spare

    def spoils(self, name: str, shape: Shape) -> bool:
        """True if the head would fit on the host, and no more with a rank of `shape` beside it."""
        free = self.later[name]
        return free.fits(self.shape) and not free.beside(shape).fits(self.shape)

    def hosts_for(self, room: Room, shape: Shape) -> tuple[str, ...] | None:
        """Rule 2: hosts with room now for a unit that stays beyond the shadow time; best fit among those that spoil nothing."""
        harmless: list[str] = []
        spoilt: list[str] = []
        verdicts: dict[Free, list[str]] = {}  # what is free then -> where such hosts go: a cluster has few kinds
        for free in room.order:
            if free.fits(shape):
                for name in room.classes[free]:
                    then = self.later[name]
                    kind = verdicts.get(then)
                    if kind is None:
                        kind = verdicts[then] = spoilt if self.spoils(name, shape) else harmless
                    kind.append(name)
                if len(harmless) >= shape.nodes:
                    break
        chosen = (harmless + spoilt[: self.spare])[: shape.nodes]
        return tuple(chosen) if len(chosen) == shape.nodes else None

    def use(self, hosts: Iterable[str], shape: Shape) -> None:
        for name in hosts:
            self.spare -= self.spoils(name, shape)
            self.later[name] = self.later[name].beside(shape)


def gap_for(
    head: Place, shape: Shape, room: Room, forecast: Expected, started: list[Ending], resting: Iterable[str]
) -> Gap | None:
    """Rule 1.  `room`: what is free now; `started`: units that start in this very pass."""
    later, at = dict(room.free), 0.0
    fitting = {name: None for free in room.order if free.fits(shape) for name in room.classes[free]}
    left: dict[str, int] = {}  # host -> attempts that are still there
    for ending in started:
        for name in ending.hosts:
            left[name] = left.get(name, forecast.units(name)) + 1
    held, away = forecast.held, dict.fromkeys(resting)
    for ending in heapq.merge(sorted(started), forecast.endings):
        if len(fitting) >= shape.nodes and ending.at > at:
            break
        at = ending.at
        for name in ending.hosts:
            new = held.get(name)
            if new is None or name in away:
                continue
            units = left[name] = (left[name] if name in left else forecast.units(name)) - 1
            if units:
                new = (later.get(name) or NO_ROOM._replace(serves=held[name].serves)).after(ending.shape)
            later[name] = new
            if name not in fitting and new.fits(shape):  # what ends only adds: once it fits, it does
                fitting[name] = None
    return Gap(head, shape, at, later, len(fitting) - shape.nodes) if len(fitting) >= shape.nodes else None
