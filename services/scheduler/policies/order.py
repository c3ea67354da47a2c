"""What an order is: a pure function from queue and room to the units that start now.

    plan(queue, room, most) -> starts      changes neither queue nor room; the same state gives the same starts

A new order is one module with such a function and one line in `ORDERS` of `batch.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from schemas.reasons import Reason
from services.scheduler.queue import Lane, Queue
from services.scheduler.room import Room
from services.scheduler.shape import Place, Shape


class Start(NamedTuple):
    unit: str
    shape: Shape
    hosts: tuple[str, ...]
    reason: Reason


Plan: TypeAlias = Callable[[Queue, Room, int], list[Start]]


def push_next(heap: list[tuple[Place, int, Lane]], queue: Queue, lane: Lane, taken: int) -> None:
    """The lane's next unit after `taken` ones joins the heap, if it may start.  Places are unique: lanes are never compared."""
    if taken < queue.allowance(lane):
        heapq.heappush(heap, (lane.places[taken], taken, lane))
