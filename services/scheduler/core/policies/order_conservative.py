"""Conservative backfill: every waiting unit has a reservation; a unit that starts now delays none of those before it.

Sources: A. Mu'alem and D. Feitelson, Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
SP2 with backfilling, IEEE TPDS 12(6), 2001 (conservative backfilling, and the profile of free processors).

Theory of operation
  A *profile* states for each host what is free from which moment on: now, and after each expected end (`forecast`).  In the
  order of the queue each unit gets the earliest window in which its hosts are free for as long as it may run; the window is cut
  out of the profile for the units behind it.  A unit whose window begins now starts.  The textbook's profile counts processors;
  here hosts are shared, and a sum over hosts would promise cores that lie scattered, so each reservation names its hosts.  The
  price: the textbook's window may be on other processors from moment to moment; this one is on these, and so may come later.

Rules
  1. In the order of the queue (`shape.Place`) each unit gets the earliest window.  One that the hosts held now could not hold,
     were they empty, is passed: which hosts the department will be given later is unknown.
  2. It starts now if each of its hosts has room from now until its end; by best fit (empty hosts last, least room first).
  3. Else it is reserved at the first moment at which enough hosts have room for its whole length: of those, the hosts with the
     fewest cores, then least memory, then by name.  The choice does not depend on what else is there: see below.
  4. A pass makes at most `reservations_max` reservations (a setting); the units behind those wait, and `why` says so.  It ends
     sooner once no unit can start any more: the reservations behind that are `rest`.
  5. An array's units over its throttle are passed: they wait for their siblings (as in `fcfs`).
  6. Nothing is remembered: each pass plans from scratch.  So an early end moves all units up, in order (the paper's
     "compression").
  7. A window that began in the past is one whose hosts still hold attempts beyond their expected end (`forecast`, rule 2).  It
     is planned with, but promised to no unit, nor is what follows it on its hosts: when those attempts end is unknown.

A start delays no unit before it.  It takes room that no window before it uses.  When all is planned again with the started unit
on its hosts, each unit before it finds the windows that it found, less some that it did not take (by induction in the order of
the queue): the earliest moment is the same, and so are the hosts, since rule 3 takes the first ones of a fixed order.  Here it
matters that it is not best fit.  What can still delay: hosts that are taken away, boots and ends of machines, which are not in
the estimates, and an early end (a unit before may take its hosts; the paper's compression has the old windows to hold on to).
Time alone starts nothing (`order`, rule 2).  Ends and windows stand still, also those that have passed.  To start now a unit
must fit beside every window that begins before its own end would come; the later it is, the more such windows there are.

Cost: a reservation looks at each host's windows, 0.6 to 4 ms with 1,000 hosts.  A pass in which nothing fits makes none.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from schemas import reasons as because
from schemas.reasons import Reason
from schemas.size import TAKEN
from services.scheduler.core.policies.order import Plan, Reserved, Situation, Start, fitting_lanes, push_next
from services.scheduler.core.state.queue import Lane, Queue
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Place, Shape

ALWAYS: Final = float("-inf")  # the beginning of what is free now
NEVER: Final = float("inf")
NO_ROOM: Final = Free.of(False, TAKEN)


def plan(situation: Situation) -> Plan:
    """Units to start now, and the reservations that it took to know that.  Changes nothing."""

    def rest(now: float) -> Plan:
        return Plan([], reservations=reservations(situation._replace(now=now)))

    fitting = fitting_lanes(situation.queue, situation.room)
    if not fitting:
        return Plan([], rest=rest)
    passing = _Pass(situation)
    passing.hope(fitting)
    passing.run()
    return Plan(passing.found, reservations=passing.given, rest=rest)


def reservations(situation: Situation) -> Iterator[Reserved]:
    """When and where each unit starts as things are, one by one, of all that a pass looks at; NEVER: unknown.  All that is
    needed of queue and hosts is read before the first one: facts may come between two of them."""
    passing, queue, could_hold = _Pass(situation), situation.queue, situation.forecast().could_hold
    lanes = [lane for lane in queue.lanes.values() if could_hold(lane.key.shape)]
    first = islice(_in_turn(queue, lanes), situation.policy.reservations_max + situation.most)
    for place, shape, length_s in [(place, shape, queue.length_s(place.unit)) for place, shape in first]:
        if passing.over:
            return
        yield passing.seat(place, shape, length_s)


# --------------------------------------------------------------------------------------------------------------- the profile


class Line:
    """One host's profile: `free[i]` from `at[i]` to `at[i + 1]`, the last one for ever.  `changes` counts reservations;
    `overdue`: one of them began in the past (rule 7)."""

    __slots__ = ("at", "changes", "free", "name", "overdue")

    def __init__(self, name: str, free: Free) -> None:
        self.name, self.at, self.free, self.changes, self.overdue = name, [ALWAYS], [free], 0, False

    def then(self, at: float, free: Free) -> None:
        """From `at` on, no earlier than all before."""
        if self.at[-1] == at:
            self.free[-1] = free
        else:
            self.at.append(at)
            self.free.append(free)

    def holds(self, shape: Shape, until: float) -> bool:
        """True if there is room from now, and in all that is said of earlier moments, to `until`."""
        return all(free.fits(shape) for free in self.free[: max(1, bisect_left(self.at, until))])

    def windows(self, shape: Shape, length_s: float) -> list[tuple[float, float]]:
        """From when to when (both included) a unit that runs for `length_s` can begin here."""
        found: list[tuple[float, float]] = []
        since: float | None = None
        for at, free in zip(self.at, self.free, strict=True):
            if free.fits(shape):
                since = at if since is None else since
            elif since is not None:
                if since <= at - length_s:
                    found.append((since, at - length_s))
                since = None
        return found if since is None else [*found, (since, NEVER)]

    def take(self, shape: Shape, since: float, until: float) -> None:
        first, last = self._cut(since), self._cut(until)
        for i in range(first, last):
            old = self.free[i]
            self.free[i] = old.beside(shape)
        self.changes += 1

    def _cut(self, at: float) -> int:
        """Index of what begins at `at`, which does from now on."""
        if at == NEVER:
            return len(self.at)
        i = bisect_left(self.at, at)
        if i == len(self.at) or self.at[i] != at:
            self.at.insert(i, at)
            self.free.insert(i, self.free[i - 1])
        return i


def profile(situation: Situation) -> list[Line]:
    """Lines of all hosts on which something may be placed, in the order of rule 3."""
    forecast, room = situation.forecast(), situation.room
    names = sorted((whole.scarce, whole.size, name) for name, whole in forecast.held.items())
    lines = {name: Line(name, room.free.get(name, NO_ROOM)) for *_, name in names if name not in room.resting}
    left: dict[str, int] = {}  # host -> attempts that are still there
    for ending in forecast.endings:
        for name in ending.hosts:
            line = lines.get(name)
            if line is None:
                continue
            left[name] = left.get(name, forecast.units(name)) - 1
            there, shape = line.free[-1], ending.shape
            line.then(
                ending.at,
                there.after(shape) if left[name] else forecast.held[name],
            )
    return list(lines.values())


# --------------------------------------------------------------------------------------------------------------- the pass


def _in_turn(queue: Queue, lanes: Iterable[Lane]) -> Iterator[tuple[Place, Shape]]:
    """The units of these lanes that may start, in the order of the queue."""
    heap = list[tuple[Place, int, Lane]]()
    for lane in lanes:
        push_next(heap, queue, lane, 0)
    while heap:
        place, taken, lane = heapq.heappop(heap)
        yield place, lane.key.shape
        push_next(heap, queue, lane, taken + 1)


class _Pass:
    """`found`: what starts; `given`: the reservations of the other units; `hopes`: shapes that may still start now, with the
    shortest length among their units."""

    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue = situation, situation.queue
        self.lines = profile(situation)
        self.found: list[Start] = []
        self.given: list[Reserved] = []
        self.hopes: dict[Shape, float] | None = None
        self.reserved = 0
        self.passed: Place | None = None
        self._windows: dict[tuple[Shape, float], list[tuple[int, list[tuple[float, float]]]]] = {}
        self._refused: dict[Shape, float] = {}  # units that may run this long or longer cannot start now

    def hope(self, fitting: list[Lane]) -> None:
        self.hopes = {}
        for lane in fitting:
            shortest = self.queue.by_length(lane).lengths[0]
            self.hopes[lane.key.shape] = min(shortest, self.hopes.get(lane.key.shape, NEVER))

    def run(self) -> None:
        """All units in order, as long as one may still start."""
        for place, shape in _in_turn(self.queue, self.queue.lanes.values()):
            if self.over or (self.hopes is not None and not self.hopes):
                return
            if self.situation.forecast().could_hold(shape):
                self.seat(place, shape, self.queue.length_s(place.unit))
            else:
                self.passed = self.passed or place
                self._give_up(shape, 0.0)

    @property
    def over(self) -> bool:
        """Rule 4."""
        full = self.reserved >= self.situation.policy.reservations_max
        return full or len(self.found) >= self.situation.most

    def seat(self, place: Place, shape: Shape, length_s: float) -> Reserved:
        """The unit, which may run for so long, starts or is reserved."""
        now = self.situation.now
        lines = self._now(shape, now + length_s) if length_s < self._refused.get(shape, NEVER) else []
        starts = bool(lines)
        if starts:
            hosts = tuple(line.name for line in lines)
            self.found.append(Start(place.unit, shape, hosts, self._reason(), anywhere=not self.reserved))
            since, until, overdue = ALWAYS, now + length_s, False
        else:
            self._give_up(shape, length_s)
            since, lines = self._first(shape, length_s)
            until, overdue = since + length_s, since < now or any(line.overdue for line in lines)
            self.reserved += bool(lines)
        for line in lines:
            line.take(shape, since, until)
            line.overdue = line.overdue or overdue
        at = NEVER if overdue or not lines else max(now, since)
        reserved = Reserved(place.unit, at, tuple(line.name for line in lines))
        if not starts:
            self.given.append(reserved)
        return reserved

    def _give_up(self, shape: Shape, length_s: float) -> None:
        """No unit of `shape` that may run this long or longer starts in this pass: room only shrinks."""
        self._refused[shape] = min(length_s, self._refused.get(shape, NEVER))
        if self.hopes is not None and self.hopes.get(shape, NEVER) >= length_s:
            self.hopes.pop(shape, None)

    def _now(self, shape: Shape, until: float) -> list[Line]:
        """Rule 2; empty if there are not enough."""
        able = [line for line in self.lines if line.free[0].fits(shape)]
        if len(able) < shape.nodes:
            self._give_up(shape, 0.0)
        able = [line for line in able if line.holds(shape, until)]
        if len(able) < shape.nodes:
            return []
        return sorted(able, key=lambda line: (line.free[0], line.name))[: shape.nodes]

    def _first(self, shape: Shape, length_s: float) -> tuple[float, list[Line]]:
        """Rule 3; no lines if there is no such moment (hosts in quarantine would be needed)."""
        known = self._windows.get((shape, length_s)) or [(-1, [])] * len(self.lines)
        windows = self._windows[shape, length_s] = [
            old if old[0] == line.changes else (line.changes, line.windows(shape, length_s))
            for old, line in zip(known, self.lines, strict=True)
        ]
        since = sorted(first for _, own in windows for first, _ in own)
        until = sorted(last for _, own in windows for _, last in own)
        for count, at in enumerate(since, start=1):
            if at > ALWAYS and count - bisect_left(until, at) >= shape.nodes:
                able = [
                    line
                    for line, (_, own) in zip(self.lines, windows, strict=True)
                    if any(first <= at <= last for first, last in own)
                ]
                return at, able[: shape.nodes]
        return NEVER, []

    def _reason(self) -> Reason:
        if self.reserved:
            return because.Backfill(reserved=self.reserved)
        if self.passed is not None:
            return because.FirstFit(passed_over=self.passed.unit)
        return because.HeadOfQueue()
