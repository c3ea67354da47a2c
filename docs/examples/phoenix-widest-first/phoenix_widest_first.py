"""Widest first: of the jobs that fit, the one that is widest starts.

Source: an example of docs/howto/plugins.md; on why wide jobs go first: packing in decreasing order of size (D. Johnson, 1973).

Theory of operation
  Narrow jobs fit into what wide ones leave, not the other way round.  So a pass begins with the widest, and hosts are packed
  well.  A department of few wide jobs and many narrow ones is served well; where wide jobs keep coming, narrow ones wait.

Rules
  1. By priority first: that is the person's word.
  2. Then the wider one: by its cores on all hosts, or by its hosts (`by`).
  3. Equals in the order of the queue, so the order is total.
  4. What does not fit is passed over.  In one pass room only shrinks, so nothing of the same shape is tried again.
"""

from __future__ import annotations

import heapq
from typing import Literal, NamedTuple

import msgspec

from phoenix.plugin.policies import Lane, Order, Plan, Shape, Situation, Start, because, fitting_lanes, settings

API = 1  # the version of `phoenix.plugin` that this was written for


class Settings(msgspec.Struct, frozen=True):
    """`by`: what is wide."""

    by: Literal["cores", "hosts"] = "cores"


class Turn(NamedTuple):
    """The natural order of these tuples is the order in which units are tried."""

    rank: int  # rule 1: minus priority
    narrowness: int  # rule 2: minus width
    entered: int  # rule 3: unique
    taken: int  # units of the lane that have started in this pass
    lane: Lane


def plan(situation: Situation) -> Plan:
    """Units to start now; the others wait for room, which goes without saying.  Changes nothing: it plans in a copy of the
    room."""
    chosen, queue = settings(Settings, situation.policy.options), situation.queue
    heap: list[Turn] = []
    for lane in fitting_lanes(queue, situation.room):
        _push(heap, chosen, situation, lane, 0)
    if not heap:  # the usual end over a long queue: be quick
        return Plan([])
    room, found = situation.room.copy(), list[Start]()
    while heap and len(found) < situation.most:
        turn = heapq.heappop(heap)
        shape = turn.lane.key.shape
        hosts = room.take(shape)
        if hosts is not None:  # rule 4: else the whole lane is done with
            why = because.ByPolicy(policy="widest-first", details={"width": width(chosen, shape)})
            found.append(Start(turn.lane[turn.taken].unit, shape, hosts, why))
            _push(heap, chosen, situation, turn.lane, turn.taken + 1)
    return Plan(found)


def width(chosen: Settings, shape: Shape) -> int:
    """Rule 2."""
    return shape.nodes if chosen.by == "hosts" else shape.all.cores


def _push(heap: list[Turn], chosen: Settings, situation: Situation, lane: Lane, taken: int) -> None:
    """The lane's next unit joins, if its throttle and its owner's limits let it start."""
    if taken < situation.queue.allowance(lane):
        place = lane[taken]
        heapq.heappush(heap, Turn(place.rank, -width(chosen, lane.key.shape), place.entered, taken, lane))


ORDER = Order(plan)
