"""Shortest first: the unit with the shortest time limit starts, whatever else waits.

Source: the rule of shortest processing time (W. Smith, Naval Research Logistics Quarterly 3, 1956), with time limits for times.

Rules
  1. Units are looked at by priority, then by what is left of their walltime, then by their place in the queue (total).
  2. One that does not fit is passed over, as in `first-fit`; a shape that does not fit is dropped for the whole pass.

Mean waits are short, since many short jobs wait for no long one; long and wide jobs may wait as long as short ones keep coming.
Who states a limit that is too short is ended by it, so it pays to be honest.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from schemas import reasons as because
from services.scheduler.core.policies.order import Plan, Situation, Start, fitting_lanes
from services.scheduler.core.state.queue import Lane, LaneKey
from services.scheduler.core.state.shape import Place, Shape

Turn: TypeAlias = tuple[int, float, int]  # rank, seconds left of the walltime, order of entry; unique by the last one
Stream: TypeAlias = tuple[
    Turn, int, list[Place], Lane
]  # units of one lane and one length, and how many of them have started


def plan(situation: Situation) -> Plan:
    """Units to start now, shortest first.  Changes nothing."""
    queue = situation.queue
    heap: list[Stream] = []
    for lane in fitting_lanes(queue, situation.room):
        lengths = queue.by_length(lane)
        for length_s in lengths.lengths:
            _push(heap, length_s, lengths.places[length_s].places, 0, lane)
    return Plan(_fill(situation, heap) if heap else [])


def _push(heap: list[Stream], length_s: float, places: list[Place], taken: int, lane: Lane) -> None:
    if taken < len(places):
        place = places[taken]
        heapq.heappush(heap, ((place.rank, length_s, place.entered), taken, places, lane))


def _fill(situation: Situation, heap: list[Stream]) -> list[Start]:
    queue, room = situation.queue, situation.room.copy()
    found: list[Start] = []
    full: dict[Shape, None] = {}
    started: dict[LaneKey, int] = {}
    while heap and len(found) < situation.most:
        (_, length_s, _), taken, places, lane = heapq.heappop(heap)
        shape, already = lane.key.shape, started.get(lane.key, 0)
        if shape in full or already >= queue.allowance(lane):
            continue
        hosts = room.take(shape)
        if hosts is None:
            full[shape] = None
            continue
        unit, started[lane.key] = places[taken].unit, already + 1
        found.append(Start(unit, shape, hosts, because.ShortestFirst(limit_s=length_s), anywhere=True))
        _push(heap, length_s, places, taken + 1, lane)
    return found
