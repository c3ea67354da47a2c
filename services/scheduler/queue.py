"""The queue: which pending units could start if there were room, in order.  A view derived from the core's state.

Theory of operation
  Units of the same shape are interchangeable for the question "is there room", so each shape has a *lane*, in queue order.
  Ten thousand jobs of ten shapes are ten questions, not ten thousand.  An array with a throttle has a lane of its own, so
  that a throttled array is skipped in one step; so has each kind of jobs (`shape.Kind`), and whoever limits tell apart
  (`budgets.Owner`).  An order that asks for time limits gets each lane by them as well (`Lane.by_length`), from the first
  question on.

Rules
  1. Only eligible units are here: pending, not held, dependencies met.
  2. The order is `shape.Place`: rank, then entry; total.  Ranks may be given anew, all together (`ranking`).
  3. A throttled lane may start as many units as its array has open attempts less than the throttle; a lane whose owner is
     limited as many as the limits leave it (`budgets`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import NamedTuple

from schemas.ids import job_of
from services.scheduler.budgets import NOBODY, Budgets, Owner
from services.scheduler.shape import PLAIN, Kind, Place, Shape


class LaneKey(NamedTuple):
    shape: Shape
    array: str  # the throttled array, or ""
    kind: Kind = PLAIN
    owner: Owner = NOBODY


class Lengths:
    """The units of a lane by how long they may run (seconds left of the walltime): each length's places in order."""

    __slots__ = ("lengths", "places")

    def __init__(self) -> None:
        self.lengths: list[float] = []  # in order
        self.places: dict[float, list[Place]] = {}

    def add(self, length_s: float, place: Place) -> None:
        if length_s not in self.places:
            insort(self.lengths, length_s)
            self.places[length_s] = []
        insort(self.places[length_s], place)

    def remove(self, length_s: float, place: Place) -> None:
        places = self.places[length_s]
        del places[bisect_left(places, place)]
        if not places:
            del self.places[length_s]
            del self.lengths[bisect_left(self.lengths, length_s)]


class Lane:
    """`places` in order; `throttle` of its array, 0 if none; `lengths`: once somebody has asked (`Queue.by_length`)."""

    __slots__ = ("key", "lengths", "places", "throttle")

    def __init__(self, key: LaneKey, throttle: int) -> None:
        self.key = key
        self.throttle = throttle
        self.places: list[Place] = []
        self.lengths: Lengths | None = None


class Queue:
    """`length_s` of a unit: how long it may run, in seconds; it must not change while the unit is here.  `budgets`: what owners
    of lanes may start; None if nothing is limited."""

    def __init__(self, length_s: Callable[[str], float], budgets: Budgets | None = None) -> None:
        self.length_s, self.budgets = length_s, budgets
        self.lanes: dict[LaneKey, Lane] = {}
        self.where: dict[str, tuple[Lane, Place]] = {}  # unit -> its place
        self.suspended: dict[str, tuple[str, ...]] = {}  # best-effort unit -> where it was suspended
        self.running: dict[str, int] = {}  # throttled array -> open attempts
        self.grew = True  # since the flag was last taken down: something may start that could not

    def __len__(self) -> int:
        return len(self.where)

    def add(self, place: Place, shape: Shape, throttle: int, kind: Kind = PLAIN, owner: Owner = NOBODY) -> None:
        """A unit is eligible now; it must not be here yet."""
        lane = self._lane(throttle, LaneKey(shape, job_of(place.unit) if throttle else "", kind, owner))
        if not lane.places or lane.places[-1] < place:
            lane.places.append(place)
        else:
            insort(lane.places, place)
        if lane.lengths is not None:
            lane.lengths.add(self.length_s(place.unit), place)
        self.where[place.unit] = (lane, place)
        self.grew = True

    def _lane(self, throttle: int, key: LaneKey) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key, throttle)
        return lane

    def remove(self, unit: str) -> None:
        """A unit is not eligible any more; it need not be here."""
        found = self.where.pop(unit, None)
        if found is None:
            return
        self.suspended.pop(unit, None)
        lane, place = found
        del lane.places[bisect_left(lane.places, place)]
        if lane.lengths is not None:
            lane.lengths.remove(self.length_s(unit), place)
        if not lane.places:
            del self.lanes[lane.key]
        self.grew = True  # in strict order the next one may start now

    def rank_again(self, rank: Callable[[str], int]) -> None:
        """Every unit by its rank of now."""
        for lane in self.lanes.values():
            places = sorted(Place(rank(place.unit), place.entered, place.unit) for place in lane.places)
            if places != lane.places:
                asked, lane.lengths, lane.places, self.grew = lane.lengths is not None, None, places, True
                for place in places:
                    self.where[place.unit] = (lane, place)
                if asked:
                    self.by_length(lane)

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
        most = len(lane.places)
        if lane.throttle:
            most = min(most, max(0, lane.throttle - self.running.get(lane.key.array, 0)))
        return most if self.budgets is None else self.budgets.allowance(lane.key.owner, lane.key.shape, most)

    def by_length(self, lane: Lane) -> Lengths:
        """The lane's units by how long they may run."""
        if lane.lengths is None:
            lane.lengths = Lengths()
            for place in lane.places:
                lane.lengths.add(self.length_s(place.unit), place)
        return lane.lengths

    def head(self) -> Place | None:
        """The first of all that may start."""
        return min((lane.places[0] for lane in self.lanes.values() if self.allowance(lane)), default=None)

    def ahead(self, place: Place) -> int:
        """Eligible units before `place`."""
        return sum(bisect_left(lane.places, place) for lane in self.lanes.values())

    def in_order(self) -> list[Place]:
        return sorted(place for _, place in self.where.values())
