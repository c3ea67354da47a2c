"""What an order is: a pure function from a situation to the result of a pass over the queue.

    plan(situation) -> Plan      what starts now, and for which units room is kept; changes nothing; equal situations, equal
    plans

Why a lane waits is a result of the pass that did not start it (as in Nomad's AllocMetric).  A plan states only what cannot be
derived elsewhere: of each lane the first of these is the reason.
    a. its array's throttle or a limit allows it nothing (`Queue.allowance`)
    b. what `waits` gives for it
    c. there is too little room for its shape
    d. it would delay the first one of `reservations`; without any, it is behind the head of the queue
A pass that can start nothing ends at once; what it did not need for that is in `rest`, computed on request.

Rules
  1. A pass that starts nothing is not repeated until something has changed that could make it start more: queue or room have
     grown; for an order that looks ahead (`foresees`) also when any host or any expected end has changed.
  2. So time alone must never make an order start more, except at stated moments for which the core is woken: where time changes
     the order of the queue (`order_multi_factor`, `jobs.next_moment`), and where things have their times (`due`:
     `order_leases`, `leases_elsewhere`).  A moment follows from facts, so it stands still until one comes.
  3. Attempts that must end for a later start are in `clear`; their closings are written before anything starts.

A new order is one module with such a function, and its entry in `registry`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from schemas.config import BatchPolicy
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.core import NEVER
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.queue import Lane, LaneKey, Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Place, Shape
from services.scheduler.core.state.shape import Start as Start


def nobody(_unit: str) -> bool:
    return False


class Situation(NamedTuple):
    """What an order may read.  `forecast`: live attempts with their hosts and expected ends, and what hosts offer when they are
    empty; computed on first use.  `most`: starts that one decision may hold.  `policy`: the department's settings; `turns`: the
    services of which production and best-effort were placed last.  `guarded`: of a best-effort unit, whether no job may preempt
    it now; `clearing_s`: how long before its room is needed a unit must be ended, in seconds."""

    queue: Queue
    room: Room
    now: float
    most: int
    forecast: Callable[[], Forecast]
    policy: BatchPolicy = BatchPolicy()
    turns: tuple[str, str] = ("", "")
    guarded: Callable[[str], bool] = nobody
    clearing_s: Callable[[str], float] = lambda _: 0.0


class Reserved(NamedTuple):
    """A waiting unit that no other may delay, when it starts at the latest (NEVER: unknown), and on which hosts, if the order
    names them.  `victims`: the attempts preempted for it then."""

    unit: str
    at: float
    hosts: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()


# Why this unit of a lane waits at this moment: the same for the whole lane, or, in an order that keeps slots, for its units of
# one length.  None if the unit itself is not kept waiting by what keeps the others.
Wait: TypeAlias = Callable[[str, float], Reason | None]
NO_WAITS: Final[Mapping[LaneKey, Wait]] = {}


class Plan(NamedTuple):
    """What a pass found.  `starts`: units that start now, in order.  `waits`: lanes that the order itself keeps from starting,
    whatever room there is.  `reservations`: the units for which room is kept, in order.  `clear`: best-effort attempts that
    must be preempted now, each with the lease that it is for; then nothing starts.  `due`: the next moment at which time alone
    may change something.  `rest`: the waits and reservations, as of a moment, of a pass that ended before it had found them all
    (its reservations may be computed one by one: all that is needed of queue and hosts is read before the first one)."""

    starts: list[Start]
    waits: Mapping[LaneKey, Wait] = NO_WAITS
    reservations: Iterable[Reserved] = ()
    clear: Sequence[tuple[str, str]] = ()
    due: float = NEVER
    rest: Callable[[float], Plan] | None = None


class Order(NamedTuple):
    """`foresees`: it uses the forecast; `makes_way`: it chooses the victims itself (`best_effort`); `keeps_slots`: it keeps the
    slots of leases (`Plan.clear`, `Plan.due`), and chooses the victims; `reserves_for_all`: each pass plans for every waiting
    unit, and so looks at each host for each of them; `hosts`: how many it wants for all that runs and waits, given the kinds of
    hosts (cores and MiB), if that may be more than these fill: used by demand, not by a pass."""

    plan: Callable[[Situation], Plan]
    foresees: bool = False
    makes_way: bool = False
    keeps_slots: bool = False
    reserves_for_all: bool = False
    hosts: Callable[[Situation, Sequence[Size]], int] | None = None


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
