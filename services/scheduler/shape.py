"""What a unit needs on hosts, and its place in the queue: the small types that everything in the batch core shares."""

from __future__ import annotations

from typing import Final, NamedTuple


class Shape(NamedTuple):
    """`nodes` different hosts, on each of them `cores` and `memory_mb`; `exclusive`: hosts that are otherwise empty."""

    nodes: int
    cores: int
    memory_mb: int
    exclusive: bool


class Kind(NamedTuple):
    """Whose a unit is, for orders that share hosts among services (`policies/order_svmsched`).  `declared`: short by its
    submitter's word."""

    service: str = ""
    best_effort: bool = False
    declared: bool = False


PLAIN: Final = Kind()


class Place(NamedTuple):
    """A unit's place in the queue; the natural order of these tuples is the order of the queue.

    1. `rank` = minus priority: higher priority first
    2. `entered`: order of entry; unique, so the order is total
    """

    rank: int
    entered: int
    unit: str
