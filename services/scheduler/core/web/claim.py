"""The hosts that a web department claims, and why these where the number of instances is the same.

Rules
  1. Hosts for all instances, those that drain included, since they take room (where some hosts of the cluster are too small,
     no more than are not); at least those in use; plus held ones that can carry no more (cordoned, and in use; too small,
     while others are short): instances that stay there need no other place.
  2. A host whose instance is closed goes back only when its VM has ended, and it is claimed until then.  A lower claim would
     bring notice, and notice kills.
  3. A rolling update claims no more than `max_surge` allows: where none is left, a successor waits for the place of one that
     drains.  With `surge = "idle"` the hosts for it are no part of the claim: they are wanted beside it, if they are idle
     (`if_idle`), and kept as long as the update needs them.
  4. Where the hosts are others and the number of instances is the same, the reason is that of the hosts (`why`): what takes
     room beside the wanted instances now, all of it: those that an update starts before others leave, those that drain,
     successors of those that are not ready, cordoned and too small hosts.  So it is true in both directions.
  5. On the way down the hosts are named that have become empty, HOSTS_MAX at most.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from schemas import reasons as because
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.shape import Shape
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.rolls import Step

HOSTS_MAX: Final = 10  # a longer list is not read


class Room(NamedTuple):
    """Instances that have, or are to get, a place (`wanted`), and those that drain and take room beside them."""

    wanted: int
    draining: int


class Packing:
    """How many instances a host carries, and how many hosts can carry one.  A view derived from custody."""

    def __init__(self, custody: Custody, shape: Shape, most: int) -> None:
        """`shape` of an instance; `most` of them on one host, as configured."""
        self.custody, self.shape, self.most = custody, shape, most
        self.capacities = Capacities.of(custody)
        self._per_host: int | None = None  # None: to be worked out again

    def host_changed(self, name: str) -> bool:
        """True if its capacity counts otherwise now."""
        if not self.capacities.update(self.custody, name):
            return False
        self._per_host = None
        return True

    @property
    def per_host(self) -> int:
        """Instances on a host: as configured, if the smallest usable host can carry them."""
        if self._per_host is None:
            self._per_host = min(self.most, self.capacities.ranks(self.shape) or self.most)
        return self._per_host

    def able(self, hosts: int) -> int:
        """Of this many hosts, as many as there are that carry instances: more would only bring hosts that carry nothing."""
        able = self.capacities.able(self.shape)
        return min(hosts, able) if able < len(self.capacities.of_host) else hosts

    def as_data(self) -> tuple[object, ...]:
        """Equal for equal views, but for what is worked out from it."""
        return self.shape, self.most, self.capacities.of_host, self.capacities.counts


def room(step: Step, target: int, most: int, draining: int) -> Room:
    """Rule 3.  `most`: active instances that there may be."""
    if step.plan is None:
        return Room(most, draining)
    beside = target + step.at.terms.max_surge - step.plan.room
    return Room(step.plan.room, max(0, min(draining, beside)))


def claim(seen: Picture, packing: Packing, room: Room) -> int:
    """Rules 1 and 2: hosts wanted in all."""
    return max(needed(seen, packing, room), len(seen.held.hosts) - len(seen.idle()))


def needed(seen: Picture, packing: Packing, room: Room) -> int:
    """Of these, what instances need, wherever they are."""
    held, idle = seen.held, seen.idle()
    hosts = packing.able(-(-max(0, room.wanted + room.draining - seen.apart()) // packing.per_host))
    if not hosts:
        return 0
    leaving = sum(1 for name in held.cordoned if name not in idle)
    small = len(held.small) if held.useful < hosts else 0
    return hosts + leaving + small


def if_idle(seen: Picture, packing: Packing, step: Step, target: int, room: Room, claim: int, before: int) -> int:
    """Rule 3, where the surge takes idle hosts alone: of `claim`, those that are wanted only if they are idle, until they are
    empty again.  `before`: as said last."""
    if step.plan is None:
        return max(0, min(claim - needed(seen, packing, room), before))
    wanted = min(room.wanted, target)
    firm = needed(seen, packing, Room(wanted, max(0, min(room.draining, target - wanted))))
    return max(0, min(claim - firm, -(-step.at.terms.max_surge // packing.per_host)))


def why(seen: Picture, step: Step, target: int, room: Room, fewer: int) -> Reason:
    """Rules 4 and 5.  `fewer`: hosts than before, or not above 0."""
    held, more = seen.held, room.wanted - target
    told: dict[str, Any] = {}
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
    return because.RoomBeside(**told)
