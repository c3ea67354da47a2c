"""Room: what is free on the hosts where this department may place something now.  A view derived from custody.

Theory of operation
  Hosts with the same free room are interchangeable, so they are kept in classes: (empty, free cores, free memory) -> names.
  A cluster has few classes, and a question about a shape looks at classes, not at hosts.

Rules
  1. In the room are hosts that the department holds, that are not cordoned, not in quarantine and not taken as a whole.
  2. Best fit: occupied hosts before empty ones, then fewest free cores, then least free memory, then name (unique).  So empty
     hosts stay empty, for wide jobs and for giving back at once.
  3. The same custody state gives the same room, whichever way it came to be.
  4. A quarantine ends by time: such hosts wait in `resting` until `wake`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from schemas.custody import Custody
from schemas.custody_state import Host
from services.runtime.core import NEVER
from services.scheduler.shape import Shape


class Free(NamedTuple):
    """What is free on a host.  Natural order = rule 2."""

    empty: bool
    cores: int
    memory_mb: int

    def fits(self, shape: Shape) -> bool:
        if self.cores < shape.cores or self.memory_mb < shape.memory_mb:
            return False
        return self.empty or not shape.exclusive


class Room:
    def __init__(self) -> None:
        self.free: dict[str, Free] = {}
        self.classes: dict[Free, list[str]] = {}  # names in order
        self.order: list[Free] = []  # the classes in order
        self.resting: dict[str, float] = {}  # hosts in quarantine -> its end
        self.busy: dict[str, None] = {}  # held hosts with a live attempt, cordoned ones too
        self.grew = True  # since the flag was last taken down: something may fit that did not

    @classmethod
    def of(cls, custody: Custody, dept: str) -> Room:
        room = cls()
        for name in custody.index.held.get(dept, ()):
            room.update(custody, dept, name)
        return room

    def copy(self) -> Room:
        """A room to plan in."""
        twin = Room()
        twin.free = dict(self.free)
        twin.classes = {free: list(names) for free, names in self.classes.items()}
        twin.order = list(self.order)
        twin.busy = dict(self.busy)
        return twin

    # ------------------------------------------------------------------------------------------------------ following

    def update(self, custody: Custody, dept: str, name: str) -> None:
        """Host `name` may have changed."""
        host = custody.state.hosts.get(name)
        self.resting.pop(name, None)
        self.busy.pop(name, None)
        if host is None or host.state != "held" or host.dept != dept:
            self._set(name, None)
            return
        if host.units:
            self.busy[name] = None
        if host.cordoned is not None or host.exclusive:
            self._set(name, None)
        elif host.quarantine_until > custody.state.at:
            self.resting[name] = host.quarantine_until
            self._set(name, None)
        else:
            self._set(name, _free(host))

    def next_rested(self) -> float:
        """When the next quarantine ends."""
        return min(self.resting.values()) if self.resting else NEVER

    def rested(self, custody: Custody, now: float) -> Room:
        """This room, or a copy with the hosts whose quarantine has ended by `now`."""
        if not self.resting or self.next_rested() > now:
            return self
        twin = self.copy()
        for name, until in self.resting.items():
            if until > now:
                twin.resting[name] = until
            else:
                twin._set(name, _free(custody.state.hosts[name]))
        return twin

    def wake(self, custody: Custody, dept: str) -> None:
        """The fold's time has moved: take in what has rested."""
        for name in [name for name, until in self.resting.items() if until <= custody.state.at]:
            self.update(custody, dept, name)

    def _set(self, name: str, free: Free | None) -> None:
        old = self.free.get(name)
        if old == free:
            return
        if old is not None:
            self._drop(name, old)
        if free is None:
            self.free.pop(name, None)
            return
        self.free[name] = free
        if free not in self.classes:
            self.classes[free] = []
            insort(self.order, free)
        insort(self.classes[free], name)
        if old is None or free.cores > old.cores or free.memory_mb > old.memory_mb or free.empty > old.empty:
            self.grew = True

    def _drop(self, name: str, free: Free) -> None:
        names = self.classes[free]
        del names[bisect_left(names, name)]
        if not names:
            del self.classes[free]
            del self.order[bisect_left(self.order, free)]

    # ------------------------------------------------------------------------------------------------------- planning

    def count(self, shape: Shape) -> int:
        """Hosts with room for one rank of `shape`."""
        return sum(len(self.classes[free]) for free in self.order if free.fits(shape))

    def fits(self, shape: Shape) -> bool:
        if len(self.free) < shape.nodes:
            return False
        found = 0
        for free in reversed(self.order):  # the emptiest first: most likely to fit
            if free.fits(shape):
                found += len(self.classes[free])
                if found >= shape.nodes:
                    return True
        return False

    def take(self, shape: Shape) -> tuple[str, ...] | None:
        """The hosts for `shape` by best fit, and their room used up; None if it does not fit."""
        chosen: list[str] = []
        for free in self.order:
            if free.fits(shape):
                chosen += self.classes[free][: shape.nodes - len(chosen)]
                if len(chosen) == shape.nodes:
                    break
        if len(chosen) < shape.nodes:
            return None
        self.use(chosen, shape)
        return tuple(chosen)

    def use(self, hosts: Iterable[str], shape: Shape) -> None:
        """A unit of `shape` takes its room on these hosts."""
        for name in hosts:
            self._use(name, shape)

    def _use(self, name: str, shape: Shape) -> None:
        free = self.free[name]
        left = Free(False, free.cores - shape.cores, free.memory_mb - shape.memory_mb)
        self._set(name, None if shape.exclusive else left)


def _free(host: Host) -> Free:
    return Free(not host.units, host.cores - host.cores_used, host.memory_mb - host.memory_used_mb)
