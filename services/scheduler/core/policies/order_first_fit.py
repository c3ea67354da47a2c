"""First fit: in the order of the queue, whatever fits starts.

Source: Phoenix Cloud paper, III-D.

Rules
  1. Units are looked at in the order of the queue (`shape.Place`); one that does not fit is passed over.
  2. In one pass room only shrinks, so a shape that does not fit is dropped for the whole pass.
  3. The reason names who was passed over, if anybody was.

First fit keeps hosts busy; a wide job may wait as long as narrow ones keep coming.  Who cannot accept that takes `fcfs`.
"""

from __future__ import annotations

import heapq

from schemas import reasons as because
from schemas.reasons import Reason
from services.scheduler.core.policies.order import Plan, Situation, Start, fitting_lanes, push_next
from services.scheduler.core.state.queue import Lane, Queue
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Place, Shape


def plan(situation: Situation) -> Plan:
    """Units to start now, in order.  Changes nothing."""
    queue, room, fitting = situation.queue, situation.room, fitting_lanes(situation.queue, situation.room)
    heap: list[tuple[Place, int, Lane]] = []
    for lane in fitting:
        push_next(heap, queue, lane, 0)
    if not heap:  # the usual end of a pass over a long queue: be quick
        return Plan([])
    shapes = dict.fromkeys(lane.key.shape for lane in fitting)
    others = (lane for key, lane in queue.lanes.items() if key.shape not in shapes)
    passed = min((lane.first for lane in others if queue.allowance(lane)), default=None)
    return Plan(_fill(heap, queue, room.copy(), situation.most, passed))


def _fill(
    heap: list[tuple[Place, int, Lane]], queue: Queue, room: Room, most: int, passed: Place | None
) -> list[Start]:
    found: list[Start] = []
    full: dict[Shape, None] = {}
    while heap and len(found) < most:
        place, taken, lane = heapq.heappop(heap)
        shape = lane.key.shape
        hosts = None if shape in full else room.take(shape)
        if hosts is None:
            full[shape] = None
            passed = _earlier(passed, place)
            continue
        found.append(Start(place.unit, shape, hosts, _reason(place, passed), anywhere=True))
        push_next(heap, queue, lane, taken + 1)
    return found


def _earlier(a: Place | None, b: Place) -> Place:
    return b if a is None or b < a else a


def _reason(place: Place, passed: Place | None) -> Reason:
    if passed is None or place < passed:
        return because.HeadOfQueue()
    return because.FirstFit(passed_over=passed.unit)
