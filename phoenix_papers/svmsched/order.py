"""SVMSched: services share a department's hosts by weight; short jobs may borrow, best-effort runs on what is left.

Sources: R. Chakode, B. O. Yenke, J.-F. Mehaut, Resource management of virtual infrastructure for on-demand SaaS services,
CLOSER 2011; R. Chakode, thesis, Univ. Grenoble 2012 (Algorithms 1 to 3, section 4.4.3).

Theory of operation
  Elections, one after the other, until no job can start.  The services have their turns in a circle.  Within one, the first
  by priority and date that stays within the service's share and finds hosts starts.  Only if no service has such a one, the
  first *short* one that finds hosts starts above its share: it gives them back soon.  Then best-effort takes what is free.

Rules
  1. The turn is that of the next service by name after the one placed last.
  2. Within the share (`shares`, `service_share`): production of the service with the new unit.  "At most".
  3. Short: declared so, or with at most `short_s` left of its walltime.  With `short_s` 0 no job is: the shares are partitions.
     Who runs longer than was declared loses it (`jobs`, rule 6); while one does, its service's declarations are not believed.
  4. The first short one, in turn and order, borrows; not the last one found, as in the printed Algorithm 1.
  5. Hosts are found, and best-effort makes way, by `preemptible_capacity`; a job and its hosts and victims go together.
  6. The *head* is the oldest of those that are first in their service within its share.  No job starts in its way (the thesis
     promises a short wait, and without this a wide one waits for ever):
     a) It fits now: who needs less than it on any count leaves it its room until its turn; equals take turns.
     b) It does not, and would on the hosts held were they empty: `reservation`.  What it will use counts for its service, and
        its service does not borrow: its siblings must not fill the share that it waits for.
  7. Best-effort: suspended ones first, where they were suspended, elsewhere if there is no room there; then in turns of their
     own, in order, whatever fits on what is free.
  8. An array's units over its throttle are passed.

Time alone starts nothing (`order`, rule 2): shares do not depend on it, an overrun only takes away, and a reservation's gap
only shrinks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from phoenix.plugin.policies import (
    NOTHING,
    Ending,
    Gap,
    Lane,
    LaneKey,
    Order,
    Place,
    Plan,
    PreemptibleCapacity,
    Reason,
    Reserved,
    Room,
    Shape,
    Situation,
    Size,
    Start,
    because,
    fitting_lanes,
    gap_for,
    newest_of,
    percent,
    total,
)
from phoenix_papers.svmsched.shares import hosts_wanted, needs, shares_of, used_by

API: Final = 1
READS: Final = ("services", "short_s", "w_cpu", "w_mem")


class Stream(NamedTuple):
    """Units of one lane in order, from `next` on; `brief`: all of them end before the head's turn."""

    place: Place  # of the next one; unique, so streams are never compared further
    next: int
    lane: Lane
    places: list[Place]
    brief: bool


class Found(NamedTuple):
    stream: Stream
    hosts: tuple[str, ...]
    victims: list[str]


Heap: TypeAlias = list[Stream]
Elect: TypeAlias = Callable[[str], Found | None]


def plan(situation: Situation) -> Plan:
    """Units to start now, the head that does not fit now, and the lanes that their service's share keeps waiting.  Changes
    nothing."""
    if not fitting_lanes(situation.queue, situation.room) and not situation.forecast().best_effort:
        return Plan([], rest=lambda _: Pass(situation).run())
    return Pass(situation).run()


def in_turn(services: Iterable[str], last: str) -> list[str]:
    """Rule 1: the services in the order of their turns after `last`."""
    names = sorted(services)
    return [name for name in names if name > last] + [name for name in names if name <= last]


class Pass:
    """One pass of elections."""

    def __init__(self, situation: Situation) -> None:
        self.situation, self.queue, self.now = situation, situation.queue, situation.now
        self.forecast = situation.forecast()
        self.ground = PreemptibleCapacity(situation.room, self.forecast, newest_of(situation))
        self.shares, self.used = shares_of(situation.policy, self.forecast), used_by(self.forecast)
        self.turn, self.turn_best_effort = situation.turns
        self.starts: list[Start] = []
        self.started: dict[LaneKey, int] = {}
        self.gone: dict[str, None] = {}
        self.full: dict[Shape, None] = {}  # no room now, even if best-effort made way
        self.lanes: dict[str, list[Lane]] = {}  # production, by service
        self.heaps: dict[str, Heap] = {}
        self.over: dict[str, list[Lane]] = {}  # above the share
        self.aside: list[tuple[str, Stream]] = []  # in the way of a head that has not had its turn yet
        self.gap: Gap | None = None
        self.later = False  # the head does not fit now
        for lane in self.queue.lanes.values():
            if not lane.key.kind.best_effort:
                self.lanes.setdefault(lane.key.kind.service, []).append(lane)
        self.fronts = {service: self._front(service) for service in sorted(self.lanes)}

    def run(self) -> Plan:
        self._production()
        self._resume()
        self._best_effort()
        reserved = [Reserved(self.gap.head.unit, self.gap.at)] if self.gap is not None and self.later else []
        waits = {
            lane.key: partial(self._why_over, service, lane) for service in self.over for lane in self.over[service]
        }
        return Plan(self.starts, waits, reserved)

    def _why_over(self, service: str, lane: Lane, _unit: str, _now: float) -> Reason | None:
        """None: its share would hold it, were it not for the head (rule 6b)."""
        used = self.used.get(service, NOTHING)
        after = used.plus(needs(lane.key.shape, self.forecast.wholes))
        if self.shares.complies(service, after):
            return None
        granted = percent(self.shares.granted.get(service, 0))
        used_pct, would_pct = percent(self.shares.usage(used)), percent(self.shares.usage(after))
        return because.ShareFull(service=service, share_pct=granted, used_pct=used_pct, with_it_pct=would_pct)

    def _production(self) -> None:
        for service, lanes in self.lanes.items():
            heap = self.heaps[service] = []
            for lane in lanes:
                self._push(heap, lane, lane.places, 0, brief=False)
        self._look_for_head()
        self._hold(self._elect, because.ShareTurn)
        if self.situation.policy.short_s > 0:
            self.heaps = {service: self._short(service) for service in self.lanes}
            self._hold(self._elect_short, because.Borrows)

    def _hold(self, elect: Elect, kind: type[because.ShareTurn | because.Borrows]) -> None:
        """Elections in turn, until no job is found."""
        while len(self.starts) < self.situation.most:
            service = None
            for service in in_turn(self.lanes, self.turn):
                found = elect(service)
                if found is not None:
                    self._start(service, found, kind)
                    break
            else:
                return

    # ---------------------------------------------------------------------------------------------------------- shares

    def _after(self, service: str, unit: str, shape: Shape) -> Size:
        """What production of the service would use with the unit (and the head, rule 6b)."""
        parts = [self.used.get(service, NOTHING), needs(shape, self.forecast.wholes)]
        gap = self.gap
        if gap is not None and self.later and unit != gap.head.unit and self._is_heads(service):
            parts.append(needs(gap.shape, self.forecast.wholes))
        return total(parts)

    def _is_heads(self, service: str) -> bool:
        return self.gap is not None and self.queue.where[self.gap.head.unit][0].key.kind.service == service

    def _complies(self, service: str, unit: str, shape: Shape) -> bool:
        return self.shares.complies(service, self._after(service, unit, shape))

    # ------------------------------------------------------------------------------------------------------------ head

    def _front(self, service: str) -> tuple[Place, Shape] | None:
        """The first of the service within its share that the hosts held would hold, were they empty."""
        found: tuple[Place, Shape] | None = None
        for lane in self.lanes[service]:
            place = self._next(lane)
            if place is None or (found is not None and found[0] < place):
                continue
            shape = lane.key.shape
            after = self.used.get(service, NOTHING).plus(needs(shape, self.forecast.wholes))
            within = self.shares.complies(service, after)
            if within and self.forecast.could_hold(shape):
                found = place, shape
        return found

    def _next(self, lane: Lane) -> Place | None:
        if self.started.get(lane.key, 0) >= self.queue.allowance(lane):
            return None
        return next((place for place in lane.places if place.unit not in self.gone), None)

    def _look_for_head(self) -> None:
        """Rule 6.  A head that does not fit stays the head of the whole pass: room only shrinks."""
        if self.later:
            return
        fronts = [front for front in self.fronts.values() if front is not None]
        front = min(fronts, key=lambda front: front[0].entered, default=None)
        if front is None:
            self.gap = None
        elif self.gap is None or self.gap.head != front[0] or self.gap.spare < 0:
            head, shape = front
            self.later = not self.ground.cleared.fits(shape)
            self.gap = self._reserve(head, shape)
        else:
            return
        for service, stream in self.aside:
            heapq.heappush(self.heaps[service], stream)
        self.aside = []

    def _reserve(self, head: Place, shape: Shape) -> Gap | None:
        """None if it fits only once hosts are out of quarantine: until then no job is held back."""
        now, length_s = self.now, self.queue.length_s
        starts = self.starts if self.later else []  # who fits now needs no foresight
        started = [Ending(now + length_s(s.unit), s.unit, s.hosts, s.shape) for s in starts]
        room, resting = self.ground.cleared, self.situation.room.resting
        return gap_for(head, shape, room, self.ground.production, started, resting)

    def _find(self, stream: Stream) -> Found | None:
        """Hosts for the stream's next unit, out of the head's way."""
        shape, unit, gap = stream.lane.key.shape, stream.place.unit, self.gap
        if shape in self.full:
            return None
        kept = None if gap is None or self._harmless(unit, shape, gap) else gap  # its own room the head has in any case

        def pick(room: Room) -> tuple[str, ...] | None:
            return room.pick(shape) if kept is None else kept.hosts_for(room, shape)

        found = self.ground.find(shape, pick)
        if found is None and not self.ground.cleared.fits(shape):
            self.full[shape] = None
        return None if found is None else Found(stream, *found)

    def _harmless(self, unit: str, shape: Shape, gap: Gap) -> bool:
        if self.later:
            return self.now + self.queue.length_s(unit) <= gap.at
        head = gap.shape
        larger = shape.nodes >= head.nodes and head.size.fits_in(shape.size)
        return larger and shape.exclusive >= head.exclusive

    # ------------------------------------------------------------------------------------------------------- elections

    def _push(self, heap: Heap, lane: Lane, places: list[Place], number: int, *, brief: bool) -> None:
        while number < len(places) and places[number].unit in self.gone:
            number += 1
        if number < len(places) and self.started.get(lane.key, 0) < self.queue.allowance(lane):
            heapq.heappush(heap, Stream(places[number], number, lane, places, brief))

    def _stale(self, heap: Heap, stream: Stream) -> bool:
        """True if the stream's unit has started in another stream, or its array is at its throttle; it is replaced then."""
        lane = stream.lane
        if stream.place.unit in self.gone or self.started.get(lane.key, 0) >= self.queue.allowance(lane):
            heapq.heappop(heap)
            self._push(heap, lane, stream.places, stream.next, brief=stream.brief)
            return True
        return False

    def _elect(self, service: str) -> Found | None:
        """The first of the service that stays within its share and finds hosts."""
        heap = self.heaps[service]
        while heap:
            stream = heap[0]
            shape = stream.lane.key.shape
            if self._stale(heap, stream):
                continue
            if not self._complies(service, stream.place.unit, shape):
                heapq.heappop(heap)
                if not stream.brief:
                    self.over.setdefault(service, []).append(stream.lane)
                continue
            found = self._find(stream)
            if found is not None:
                return found
            heapq.heappop(heap)
            if shape not in self.full:
                self._let_pass(service, heap, stream)
        return None

    def _let_pass(self, service: str, heap: Heap, stream: Stream) -> None:
        """The stream is in the head's way: it waits for the head's turn, or only those start that will be away by then."""
        if not self.later:
            self.aside.append((service, stream))
        elif self.gap is not None:
            lane, gap = stream.lane, self.gap
            lengths = self.queue.by_length(lane)
            for length_s in lengths.lengths[: bisect_right(lengths.lengths, gap.at - self.now)]:
                self._push(heap, lane, lengths.places[length_s].places, 0, brief=True)

    def _short(self, service: str) -> Heap:
        """Rule 3: what may borrow."""
        heap: Heap = []
        if self.later and self._is_heads(service):
            return heap
        short_s, believed = self.situation.policy.short_s, self._believed(service)
        for lane in self.over.get(service, []):
            if lane.key.shape in self.full or not self.ground.cleared.fits(lane.key.shape):
                continue
            if lane.key.kind.declared and believed:
                self._push(heap, lane, lane.places, 0, brief=False)
                continue
            lengths = self.queue.by_length(lane)
            for length_s in lengths.lengths[: bisect_right(lengths.lengths, short_s)]:
                self._push(heap, lane, lengths.places[length_s].places, 0, brief=False)
        return heap

    def _believed(self, service: str) -> bool:
        short_s, running = self.situation.policy.short_s, self.forecast.declared.values()
        return not any(e.kind.service == service and self.now - e.since > short_s for e in running)

    def _elect_short(self, service: str) -> Found | None:
        heap = self.heaps[service]
        while heap:
            stream = heap[0]
            if self._stale(heap, stream):
                continue
            found = self._find(stream)
            if found is not None:
                return found
            heapq.heappop(heap)
            if stream.lane.key.shape not in self.full and self.later:
                self._let_pass(service, heap, stream)
        return None

    def _start(self, service: str, found: Found, kind: type[because.ShareTurn | because.Borrows]) -> None:
        stream, hosts, victims = found
        lane, unit, gap = stream.lane, stream.place.unit, self.gap
        shape = lane.key.shape
        if gap is not None and unit != gap.head.unit and not (self.later and self._harmless(unit, shape, gap)):
            gap.use(hosts, shape)
        self.ground.start(hosts, shape, victims)
        used = self.used[service] = self.used.get(service, NOTHING).plus(needs(shape, self.forecast.wholes))
        granted, usage = percent(self.shares.granted.get(service, 0)), percent(self.shares.usage(used))
        reason = kind(service=service, used_pct=usage, share_pct=granted)
        self._note(lane, Start(unit, shape, hosts, reason, tuple(victims)))
        heapq.heappop(self.heaps[service])
        self._push(self.heaps[service], lane, stream.places, stream.next + 1, brief=stream.brief)
        self.turn = service
        if kind is because.ShareTurn:
            self.fronts[service] = self._front(service)
            self._look_for_head()

    def _note(self, lane: Lane, start: Start) -> None:
        self.starts.append(start)
        self.started[lane.key] = self.started.get(lane.key, 0) + 1
        self.gone[start.unit] = None

    # ----------------------------------------------------------------------------------------------------- best-effort

    def _resume(self) -> None:
        """Rule 7, the suspended ones."""
        free, where = self.ground.free, self.queue.where
        for place in self.queue.suspended_in_order():
            lane = where[place.unit][0]
            shape, origin = lane.key.shape, self.queue.suspended[place.unit]
            if len(self.starts) >= self.situation.most or self.started.get(lane.key, 0) >= self.queue.allowance(lane):
                continue
            back = len(origin) == shape.nodes and all(
                name in free.free and free.free[name].fits(shape) for name in origin
            )
            hosts = origin if back else free.pick(shape)
            if hosts is not None:
                self.ground.start_best_effort(hosts, shape)
                self._note(
                    lane, Start(place.unit, shape, hosts, because.Resumes(from_hosts=[] if back else list(origin)))
                )

    def _best_effort(self) -> None:
        """Rule 7, the others."""
        heaps: dict[str, Heap] = {}
        for lane in self.queue.lanes.values():
            if lane.key.kind.best_effort and self.ground.free.fits(lane.key.shape):
                self._push(heaps.setdefault(lane.key.kind.service, []), lane, lane.places, 0, brief=False)
        turn, full = self.turn_best_effort, dict[Shape, None]()
        while len(self.starts) < self.situation.most:
            for service in in_turn(heaps, turn):
                if self._start_best_effort(service, heaps[service], full):
                    turn = service
                    break
            else:
                return

    def _start_best_effort(self, service: str, heap: Heap, full: dict[Shape, None]) -> bool:
        while heap:
            stream = heapq.heappop(heap)
            lane, shape = stream.lane, stream.lane.key.shape
            if shape in full:
                continue
            hosts = None if stream.place.unit in self.gone else self.ground.free.pick(shape)
            if hosts is None and stream.place.unit not in self.gone:
                full[shape] = None
                continue
            if hosts is not None:
                self.ground.start_best_effort(hosts, shape)
                self._note(lane, Start(stream.place.unit, shape, hosts, because.BestEffort(service=service)))
            self._push(heap, lane, stream.places, stream.next + 1, brief=False)
            if hosts is not None:
                return True
        return False


ORDER: Final = Order(plan, foresees=True, makes_way=True, hosts=hosts_wanted)
