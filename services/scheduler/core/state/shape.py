"""Whose a unit is, when it starts, and its place in the queue: the small types that everything in the batch core shares."""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.reasons import Reason
from services.domain.shape import Shape as Shape


class Kind(NamedTuple):
    """Whose a unit is, for orders that share hosts among services (`svmsched`).  `declared`: short by its
    submitter's word; `local`: a lease with a time slot of its own."""

    service: str = ""
    best_effort: bool = False
    declared: bool = False
    local: bool = False


PLAIN: Final = Kind()


class Booking(NamedTuple):
    """A lease with a time slot that waits for it.  Natural order: start, then order of entry; total."""

    start_at: float
    entered: int
    unit: str
    ends_at: float
    shape: Shape


class Place(NamedTuple):
    """A unit's place in the queue; the natural order of these tuples is the order of the queue.

    1. `rank` = minus priority: higher priority first
    2. `entered`: order of entry; unique, so the order is total
    """

    rank: int
    entered: int
    unit: str


class Start(NamedTuple):
    """A unit that starts now, on these hosts.  `victims`: best-effort attempts that make way for it.  `anywhere`: other hosts
    with room would do as well, since no reservation was planned around these."""

    unit: str
    shape: Shape
    hosts: tuple[str, ...]
    reason: Reason
    victims: tuple[str, ...] = ()
    anywhere: bool = False
