"""First come, first served: no unit overtakes another.

Source: what any queue does; the baseline of A. Mu'alem and D. Feitelson, IEEE TPDS 12(6), 2001.

Rules
  1. Units start in the order of the queue (`shape.Place`) as long as each fits.
  2. The first one that does not fit stops the pass, however small the ones behind it are.
  3. A unit that only its array's throttle keeps waiting is passed: it waits for its own siblings, not for hosts.

Strict order wastes hosts in front of a wide job and guarantees that it starts: nothing can delay it for ever.
"""

from __future__ import annotations

import heapq

from schemas import reasons as because
from services.scheduler.core.policies.order import Plan, Situation, Start, push_next
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.shape import Place


def plan(situation: Situation) -> Plan:
    """Units to start now, in order.  Changes nothing."""
    queue, head = situation.queue, situation.queue.head()
    if head is None or not situation.room.fits(queue.where[head.unit][0].key.shape):
        return Plan([])
    heap: list[tuple[Place, int, Lane]] = []
    for lane in queue.lanes.values():
        push_next(heap, queue, lane, 0)
    room = situation.room.copy()
    found: list[Start] = []
    while heap and len(found) < situation.most:
        place, taken, lane = heap[0]
        hosts = room.take(lane.key.shape)
        if hosts is None:
            break
        heapq.heappop(heap)
        found.append(Start(place.unit, lane.key.shape, hosts, because.HeadOfQueue(), anywhere=True))
        push_next(heap, queue, lane, taken + 1)
    return Plan(found)
