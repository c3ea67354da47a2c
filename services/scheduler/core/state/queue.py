"""The queue: which pending units could start if there were room, in order.  A view derived from the core's state.

Theory of operation
  Units of the same shape are interchangeable for the question "is there room", so each shape has a *lane*, in queue order.
  Ten thousand jobs of ten shapes are ten questions, not ten thousand.  An array with a throttle has a lane of its own, so
  that a throttled array is skipped in one step; so has each kind of jobs (`shape.Kind`), and each owner that limits distinguish
  (`budgets.Owner`).  An order that asks for time limits gets each lane by them as well (`Lane.by_length`), from the first
  question on.

Rules
  1. Only eligible units are here: pending, not held, dependencies met.
  2. The order is `shape.Place`: rank, then entry; total.  Units may be ranked again, all together (`priority`).  A lane is
     sorted only when a unit beyond its first one is asked for: to find the first of all takes no sort, and most lanes have no
     room.
  3. A lease with a time slot has no lane: it is in `bookings`, and its time is its turn.
  4. A throttled lane may start as many units as its array has open attempts less than the throttle; a lane whose owner is
     limited as many as the limits leave it (`budgets`).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias

from schemas.ids import job_of
from services.scheduler.core.state.budgets import NOBODY, Budgets, Owner
from services.scheduler.core.state.shape import PLAIN, Booking, Kind, Place, Shape


class LaneKey(NamedTuple):
    shape: Shape
    array: str  # the throttled array, or ""
    kind: Kind = PLAIN
    owner: Owner = NOBODY


# Ranks of units as they are now, in the order in which they are named.
Ranks: TypeAlias = Callable[[Sequence[Place]], list[int]]


class Ranked:
    """What all rows of a queue share: how units rank since when.  `version` rises when they are ranked again."""

    __slots__ = ("ranks", "version")

    def __init__(self) -> None:
        self.version = 0
        self.ranks: Ranks  # once units have been ranked again


class Row:
    """Units in order, as they rank now; sorted when one beyond the first is asked for (rule 2)."""

    __slots__ = ("_first", "_places", "_ranked", "_version")

    def __init__(self, ranked: Ranked, version: int, places: list[Place]) -> None:
        self._ranked, self._version, self._places = ranked, version, places
        self._first: tuple[int, Place] | None = None  # version and unit; of a row that is not in order, once asked for

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Place:
        return self.places[number] if number else self.first

    @property
    def places(self) -> list[Place]:
        """All of them."""
        if self._version != self._ranked.version:
            self._put_in_order()
        return self._places

    @property
    def first(self) -> Place:
        """There is always one."""
        if self._version == self._ranked.version:
            return self._places[0]
        if self._first is None or self._first[0] != self._ranked.version:
            self._first = (self._ranked.version, _first_of(self._places, self._ranked.ranks(self._places)))
        return self._first[1]

    def _put_in_order(self) -> None:
        again = zip(self._ranked.ranks(self._places), self._places, strict=True)
        self._places = sorted([Place(rank, place.entered, place.unit) for rank, place in again])
        self._version = self._ranked.version

    def add(self, place: Place) -> None:
        insort(self.places, place)

    def remove(self, place: Place) -> None:
        places = self.places
        del places[bisect_left(places, place)]


def _first_of(places: Sequence[Place], ranks: Sequence[int]) -> Place:
    least = min(ranks)
    equals = [place for rank, place in zip(ranks, places, strict=True) if rank == least]
    place = min(equals, key=lambda place: place.entered)
    return Place(least, place.entered, place.unit)


class Lengths:
    """The units of a lane by how long they may run (seconds left of the walltime): each length's units in order."""

    __slots__ = ("_ranked", "lengths", "places")

    def __init__(self, ranked: Ranked, version: int, places: Iterable[tuple[float, Place]]) -> None:
        """`places` in the order of `version`."""
        found: dict[float, list[Place]] = {}
        for length_s, place in places:
            found.setdefault(length_s, []).append(place)
        self._ranked = ranked
        self.lengths = sorted(found)
        self.places = {length_s: Row(ranked, version, row) for length_s, row in found.items()}

    def add(self, length_s: float, place: Place) -> None:
        if length_s not in self.places:
            insort(self.lengths, length_s)
            self.places[length_s] = Row(self._ranked, self._ranked.version, [])
        self.places[length_s].add(place)

    def remove(self, length_s: float, place: Place) -> None:
        row = self.places[length_s]
        row.remove(place)
        if not row:
            del self.places[length_s]
            del self.lengths[bisect_left(self.lengths, length_s)]


class Lane(Row):
    """`throttle` of its array, 0 if none; `where`: the queue's, each unit's lane and place."""

    __slots__ = ("key", "lengths", "throttle", "where")

    def __init__(self, key: LaneKey, throttle: int, ranked: Ranked, where: dict[str, tuple[Lane, Place]]) -> None:
        super().__init__(ranked, ranked.version, [])
        self.key, self.throttle, self.where = key, throttle, where
        self.lengths: Lengths | None = None  # made on first use (`Queue.by_length`)

    def _put_in_order(self) -> None:
        super()._put_in_order()
        self.where.update((place.unit, (self, place)) for place in self._places)

    def by_length(self, length_s: Callable[[str], float]) -> Lengths:
        if self.lengths is None:
            places = ((length_s(place.unit), place) for place in self._places)
            self.lengths = Lengths(self._ranked, self._version, places)
        return self.lengths


class Queue:
    """`length_s` of a unit: how long it may run, in seconds; it must not change while the unit is here.  `budgets`: what owners
    of lanes may start; None if nothing is limited."""

    def __init__(self, length_s: Callable[[str], float], budgets: Budgets | None = None) -> None:
        self.length_s, self.budgets = length_s, budgets
        self.ranked = Ranked()
        self.lanes: dict[LaneKey, Lane] = {}
        self.where: dict[str, tuple[Lane, Place]] = {}  # unit -> its place
        self.suspended: dict[str, tuple[str, ...]] = {}  # best-effort unit -> where it was suspended
        self.bookings: dict[str, Booking] = {}
        self.running: dict[str, int] = {}  # throttled array -> open attempts
        self.grew = True  # since the flag was last taken down: something may start that could not

    def __len__(self) -> int:
        return len(self.where)

    def add(self, place: Place, shape: Shape, throttle: int, kind: Kind = PLAIN, owner: Owner = NOBODY) -> None:
        """A unit is eligible now; it must not be here yet."""
        lane = self._lane(throttle, LaneKey(shape, job_of(place.unit) if throttle else "", kind, owner))
        lane.add(place)
        if lane.lengths is not None:
            lane.lengths.add(self.length_s(place.unit), place)
        self.where[place.unit] = (lane, place)
        self.grew = True

    def book(self, booking: Booking) -> None:
        """A lease with a time slot waits; it must not be here yet."""
        self.bookings[booking.unit] = booking
        self.grew = True

    def _lane(self, throttle: int, key: LaneKey) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key, throttle, self.ranked, self.where)
        return lane

    def remove(self, unit: str) -> None:
        """A unit is not eligible any more; it need not be here."""
        if self.bookings.pop(unit, None) is not None:
            self.grew = True  # the room of its time slot is free for others
        found = self.where.get(unit)
        if found is None:
            return
        lane = found[0]
        lane.places  # noqa: B018 (in order, and with it the unit's place)
        _, place = self.where.pop(unit)
        self.suspended.pop(unit, None)
        lane.remove(place)
        if lane.lengths is not None:
            lane.lengths.remove(self.length_s(unit), place)
        if not lane:
            del self.lanes[lane.key]
        self.grew = True  # in strict order the next one may start now

    def rank_again(self, ranks: Ranks) -> None:
        """Every unit by its rank of now."""
        self.ranked.ranks = ranks
        self.ranked.version += 1
        self.grew = True

    def opened(self, array: str, by: int) -> None:
        """A throttled array has `by` more open attempts."""
        count = self.running.get(array, 0) + by
        if count:
            self.running[array] = count
        else:
            self.running.pop(array, None)
        self.grew = True

    # -------------------------------------------------------------------------------------------------------- reading

    def allowance(self, lane: Lane) -> int:
        """Units that this lane may start now."""
        most = len(lane)
        if lane.throttle:
            most = min(most, max(0, lane.throttle - self.running.get(lane.key.array, 0)))
        return most if self.budgets is None else self.budgets.allowance(lane.key.owner, lane.key.shape, most)

    def by_length(self, lane: Lane) -> Lengths:
        """The lane's units by how long they may run."""
        return lane.by_length(self.length_s)

    def head(self) -> Place | None:
        """The first of all that may start."""
        return min((lane.first for lane in self.lanes.values() if self.allowance(lane)), default=None)

    def ahead(self, place: Place) -> int:
        """Units before `place` that may start: those that wait for their array or a limit are passed."""
        return sum(min(bisect_left(lane.places, place), self.allowance(lane)) for lane in self.lanes.values())

    def suspended_in_order(self) -> list[Place]:
        """The units in `suspended`."""
        for unit in self.suspended:
            self.where[unit][0].places  # noqa: B018 (in order, and with it the unit's place)
        return sorted(self.where[unit][1] for unit in self.suspended)

    def in_order(self) -> list[Place]:
        return sorted(place for lane in self.lanes.values() for place in lane.places)

    def first(self, most: int) -> list[Place]:
        """The first ones of all, in order."""
        return list(islice(heapq.merge(*(lane.places for lane in self.lanes.values())), most))
