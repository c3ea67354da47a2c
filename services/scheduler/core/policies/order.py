"""What an order is: a pure function from a situation to the units that start now.

    plan(situation) -> starts      changes nothing; the same situation gives the same starts

Rules
  1. A pass that starts nothing is not repeated until something has changed that could make it start more: queue or room have
     grown; for an order that looks ahead (`foresees`) also when any host or any expected end has changed.
  2. So time alone must never make an order start more, except at stated moments for which the core is woken: where time
     changes the order of the queue (`order_multi_factor`, `book.next_moment`), and where things have their times (`agenda`:
     `order_leases`, `leases_elsewhere`).  A moment follows from facts, so it stands still until one comes.
  3. Who makes way for a start to come is named by the agenda; those closings are written before anybody starts.

A new order is one module with such a function, a line in `known.ORDERS`, and a word in `schemas.config.Order`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from schemas.config import BatchPolicy
from schemas.reasons import Reason
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.queue import Lane, Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Place, Shape
from services.scheduler.core.state.shape import Start as Start


def nobody(_unit: str) -> bool:
    return False


class Situation(NamedTuple):
    """What an order may look at.  `forecast`: live attempts with their hosts and expected ends, and what hosts offer when they
    are empty; worked out when first asked for.  `most`: starts that one decision may hold.
    `policy`: the department's settings; `turns`: the services of which production and best-effort were placed last.
    `guarded`: of a best-effort unit, whether no job may end its attempt now; `clearing_s`: how long before its room is needed
    it has to be told, in seconds."""

    queue: Queue
    room: Room
    now: float
    most: int
    forecast: Callable[[], Forecast]
    policy: BatchPolicy = BatchPolicy()
    turns: tuple[str, str] = ("", "")
    guarded: Callable[[str], bool] = nobody
    clearing_s: Callable[[str], float] = lambda _: 0.0


class Agenda(NamedTuple):
    """`clear`: best-effort attempts that have to make way now, each with the lease that it is for; `due`: the next moment at
    which time alone may change something."""

    clear: list[tuple[str, str]]
    due: float


class Reserved(NamedTuple):
    """A waiting unit that nobody may delay, when it starts at the latest, and on which hosts, if the order names them."""

    unit: str
    at: float
    hosts: tuple[str, ...] = ()


Plan: TypeAlias = Callable[[Situation], list[Start]]


class Order(NamedTuple):
    """`foresees`: it asks for the forecast; `reserved`: for whom it keeps room, if it does so for one; `reservation`: when a
    unit starts as things are, if it keeps room for many; `reservations`: the same of all that a pass gives one, one by one: it
    reads what it needs before the first one, facts may come between two; `why`: what else keeps a waiting unit from starting,
    the same for all of a lane, or with an agenda for all of a lane that are as long; `hosts`: how many it wants for all that
    runs and waits, given the kinds of hosts (cores and MiB), if that may be more than these fill; `makes_way`: it says itself
    who makes way for whom (`make_way`); `agenda`: if time starts things."""

    plan: Plan
    foresees: bool = False
    reserved: Callable[[Situation], Reserved | None] | None = None
    reservation: Callable[[Situation, str], float | None] | None = None
    reservations: Callable[[Situation], Iterable[Reserved]] | None = None
    why: Callable[[Situation, str], Reason | None] | None = None
    hosts: Callable[[Situation, Sequence[tuple[int, int]]], int] | None = None
    makes_way: bool = False
    agenda: Callable[[Situation], Agenda] | None = None


def push_next(heap: list[tuple[Place, int, Lane]], queue: Queue, lane: Lane, taken: int) -> None:
    """The lane's next unit after `taken` ones joins the heap, if it may start.  Places are unique: lanes are never compared."""
    if taken < queue.allowance(lane):
        heapq.heappush(heap, (lane[taken], taken, lane))


def fitting_lanes(queue: Queue, room: Room) -> list[Lane]:
    """Lanes that may start something and whose shape has room now.  The usual end of a pass over a long queue is that there are
    none."""
    fits: dict[Shape, bool] = {}
    found: list[Lane] = []
    for key, lane in queue.lanes.items():
        if not queue.allowance(lane):
            continue
        fit = fits.get(key.shape)
        if fit is None:
            fit = fits[key.shape] = room.fits(key.shape)
        if fit:
            found.append(lane)
    return found
