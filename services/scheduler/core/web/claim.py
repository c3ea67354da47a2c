"""Why a web department claims other hosts than before though it wants as many instances.

Rules
  1. What takes room beside the wanted instances now is told, all of it: those that an update starts before others leave, those
     that drain, successors of those that are not ready, cordoned and too small hosts.  So it is true in both directions.
  2. On the way down the hosts are named that have become empty, HOSTS_MAX at most.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas.reasons import Code, Reason, because
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.rolls import Step

HOSTS_MAX: Final = 10  # more names than this nobody reads


class Room(NamedTuple):
    """Instances that have, or are to get, a place (`wanted`), and those that drain and take room beside them."""

    wanted: int
    draining: int


def why(seen: Picture, step: Step, target: int, room: Room, fewer: int) -> Reason:
    """`fewer`: hosts than before, or not above 0."""
    held, more = seen.held, room.wanted - target
    told: dict[str, str | int | float | list[str]] = {}
    if more > 0:
        told = {"not_ready": more} if step.plan is None else {"release": step.at.roll.wanted, "surge": more}
    if room.draining:
        told["draining"] = room.draining
    idle = seen.idle()
    cordoned = [name for name in sorted(held.cordoned) if name not in idle]
    if cordoned:
        told["cordoned"] = cordoned[:HOSTS_MAX]
    if held.small:
        told["small"] = len(held.small)
    if fewer > 0 and idle:
        told["freed"] = idle[: min(fewer, HOSTS_MAX)]
    return because(Code.ROOM_BESIDE, **told)
