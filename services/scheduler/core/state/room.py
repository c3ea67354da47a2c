"""Room: what is free on the hosts where this department may place something now.  A view derived from custody.

Theory of operation
  Hosts with the same free room are interchangeable, so they are kept in classes: what its hosts offer -> names.
  A cluster has few classes, and a question about a shape looks at classes, not at hosts.

Rules
  1. In the room are hosts that the department holds, that are not cordoned, not in quarantine and not taken as a whole.
     Cordoned ones that it holds are named beside it (`cordoned`).
  2. Best fit: hosts without what is scarce first (`dimensions.scarcity`), then occupied before empty ones, then fewest free
     cores, then least free memory, then name (unique).  So empty hosts stay empty, for wide jobs and for giving back at once.
  3. The same custody state gives the same room, whichever way it came to be.
  4. A quarantine ends by time: such hosts wait in `resting` until `wake`, also those taken as a whole: attempts that leave them
     free no room.
  5. A class says which constraints its hosts satisfy, of those that the department's jobs have (`constrain`): where none has
     any, labels make no classes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.dimensions import scarcity
from schemas.size import TAKEN, Size
from services.domain.constraints import satisfies
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.scheduler.core.state.shape import Shape

_new: Final = tuple.__new__  # twice as fast as calling the type
FEW: Final = 4  # hosts; more are sorted in together


class Free(NamedTuple):
    """What is free on a host.  Natural order = rule 2.  `scarce`: what is scarce that the host has, free or not; `serves`:
    constraints that the host satisfies (rule 5).

    Its size is flat, and `Size.fits_in` is written out: a pass asks each class and each window of each host, and a size of its
    own would make that a fifth slower."""

    scarce: int
    empty: bool
    cores: int
    memory_mb: int
    gpus: int
    serves: tuple[str, ...]

    @classmethod
    def of(cls, empty: bool, size: Size, serves: tuple[str, ...] = (), scarce: int = 0) -> Free:
        return cls(scarce, empty, *size, serves)

    @property
    def size(self) -> Size:
        return _new(Size, self[2:-1])

    def fits(self, shape: Shape) -> bool:
        need = shape.size
        if need.cores > self.cores or need.memory_mb > self.memory_mb or need.gpus > self.gpus:
            return False
        if shape.constraint and shape.constraint not in self.serves:
            return False
        return self.empty or not shape.exclusive

    def left(self, size: Size) -> Free:
        """The same host with live attempts on it, and this much free."""
        return _new(Free, (self.scarce, False, *size, self.serves))

    def beside(self, shape: Shape) -> Free:
        """What remains beside a rank of `shape`."""
        need = shape.size
        if shape.exclusive:
            return self.left(TAKEN)
        cores, memory_mb, gpus = self.cores - need.cores, self.memory_mb - need.memory_mb, self.gpus - need.gpus
        return _new(Free, (self.scarce, False, cores, memory_mb, gpus, self.serves))

    def after(self, shape: Shape) -> Free:
        """What there is when a rank of `shape` is gone, and others are not."""
        need = shape.size
        cores, memory_mb, gpus = self.cores + need.cores, self.memory_mb + need.memory_mb, self.gpus + need.gpus
        return _new(Free, (self.scarce, False, cores, memory_mb, gpus, self.serves))


class Room:
    def __init__(self, constraints: tuple[str, ...]) -> None:
        self.free: dict[str, Free] = {}
        self.classes: dict[Free, list[str]] = {}  # names in order
        self.order: list[Free] = []  # the classes in order
        self.resting: dict[str, float] = {}  # hosts in quarantine -> its end
        self.busy: dict[str, None] = {}  # held hosts with a live attempt, cordoned ones too
        self.cordoned: dict[str, float] = {}  # held ones -> when what still runs there is ended; NEVER: it stays
        self.grew = True  # since the flag was last taken down: something may fit that did not
        self.constraints = constraints  # that jobs have, in order
        self._met: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {}  # host -> its labels, and what they satisfy

    @classmethod
    def of(cls, custody: Custody, dept: str, constraints: tuple[str, ...] = ()) -> Room:
        room = cls(constraints)
        room.update(custody, dept, custody.index.held.get(dept, ()))
        return room

    def copy(self) -> Room:
        """A room to plan in."""
        twin = Room(self.constraints)
        twin.free = dict(self.free)
        twin.classes = {free: list(names) for free, names in self.classes.items()}
        twin.order = list(self.order)
        return twin

    # ---------------------------------------------------------------------------------------------------- constraints

    def constrain(self, custody: Custody, dept: str, constraints: tuple[str, ...]) -> None:
        """Jobs have these constraints now (rule 5)."""
        self.constraints, self._met = constraints, {}
        self.update(custody, dept, custody.index.held.get(dept, ()))

    def serves(self, host: Host) -> tuple[str, ...]:
        """Of the constraints that jobs have, those that the host satisfies."""
        if not self.constraints:
            return ()
        met = self._met.get(host.name)
        if met is None or met[0] is not host.labels:  # a description brings labels of its own, changed or not
            found = tuple(c for c in self.constraints if satisfies(host.name, host.cluster, host.labels, c))
            met = self._met[host.name] = (host.labels, found)
        return met[1]

    # ------------------------------------------------------------------------------------------------------ following

    def update(self, custody: Custody, dept: str, names: Iterable[str]) -> None:
        """These hosts may have changed.  A wide job changes many in the same way: they go from class to class together."""
        free, hosts, busy, now = self.free, custody.state.hosts, self.busy, custody.state.at
        moves: dict[tuple[Free | None, Free | None], list[str]] = {}
        together: list[str] = []
        new: Free | None
        last: tuple[Host, Free] | None = None
        was: tuple[Free | None, Free | None] = (None, None)
        for name in names:
            host, old = hosts.get(name), free.get(name)
            if self.resting:
                self.resting.pop(name, None)
            if self.cordoned:
                self.cordoned.pop(name, None)
            if host is None or host.state != "held" or host.dept != dept:
                busy.pop(name, None)
                new = None
            else:
                if host.units:
                    busy[name] = None
                else:
                    busy.pop(name, None)
                new = self._offer(host, now, last)
                last = None if new is None else (host, new)
            if old == new:
                continue
            if new is was[1] and old is was[0]:
                together.append(name)
            else:
                was = (old, new)
                together = moves.setdefault(was, [])
                together.append(name)
        for (left, entered), moved in moves.items():
            self._move(left, entered, moved)

    def _offer(self, host: Host, now: float, last: tuple[Host, Free] | None) -> Free | None:
        """What a held host offers; None if nothing may be placed there.  `last`: another one, and what it offers (those of a
        wide job are alike)."""
        if host.cordoned is not None:
            self.cordoned[host.name] = NEVER if host.drain_until is None else host.drain_until
            return None
        if host.quarantine_until > now:
            self.resting[host.name] = host.quarantine_until
            return None
        if host.exclusive:
            return None
        if last is not None and not self.constraints:
            like, offered = last
            if like.used == host.used and like.size == host.size and offered.empty is not bool(host.units):
                return offered
        serves = self.serves(host) if self.constraints else ()
        return _new(Free, (scarcity(host.size), not host.units, *host.size.minus(host.used), serves))

    def _move(self, left: Free | None, entered: Free | None, names: list[str]) -> None:
        """Hosts go from one class to another; None: out of the room."""
        if left is not None:
            self._leave(left, names)
        if entered is None:
            for name in names:
                del self.free[name]
            return
        self.free.update(dict.fromkeys(names, entered))
        self._enter(entered, names)
        if not self.grew:
            self.grew = left is None or entered.serves != left.serves or _offers_more(entered, left)

    def next_rested(self) -> float:
        """When the next quarantine ends."""
        return min(self.resting.values()) if self.resting else NEVER

    def rested(self, custody: Custody, now: float) -> Room:
        """This room, or a copy with the hosts whose quarantine has ended by `now`."""
        if self.next_rested() > now:
            return self
        twin = self.copy()
        for name, until in self.resting.items():
            if until > now:
                twin.resting[name] = until
            elif not custody.state.hosts[name].exclusive:
                twin.free[name] = self._free(custody.state.hosts[name])
                twin._enter(twin.free[name], [name])
        return twin

    def wake(self, custody: Custody, dept: str) -> None:
        """The fold's time has moved: take in what has rested."""
        self.update(custody, dept, [name for name, until in self.resting.items() if until <= custody.state.at])

    def _enter(self, free: Free, names: list[str]) -> None:
        """Hosts with this room join their class; what they offered before is left."""
        there = self.classes.get(free)
        if there is None:
            there = self.classes[free] = []
            insort(self.order, free)
        if len(names) <= FEW:
            for name in names:
                insort(there, name)
        else:
            there += names
            there.sort()

    def _leave(self, free: Free, names: list[str]) -> None:
        there = self.classes[free]
        if len(names) <= FEW:
            for name in names:
                del there[bisect_left(there, name)]
        else:
            first = bisect_left(there, names[0])
            if there[first : first + len(names)] == names:  # best fit takes hosts that lie together
                del there[first : first + len(names)]
            else:
                gone = dict.fromkeys(names)
                there[:] = [name for name in there if name not in gone]
        self._forget_if_none(free)

    def _forget_if_none(self, free: Free) -> None:
        if not self.classes[free]:
            del self.classes[free]
            del self.order[bisect_left(self.order, free)]

    # ------------------------------------------------------------------------------------------------------- planning

    def count(self, shape: Shape) -> int:
        """Hosts with room for one rank of `shape`."""
        return sum(len(self.classes[free]) for free in self.order if free.fits(shape))

    def fits(self, shape: Shape) -> bool:
        if len(self.free) < shape.nodes:
            return False
        cores, memory_mb, gpus = shape.size
        is_plain = not shape.constraint and not shape.exclusive
        found = 0
        for free in reversed(self.order):  # the emptiest first: most likely to fit
            # `Free.fits` begins with the same, but a pass asks each class for each lane, and the call would cost a fifth of it.
            enough = cores <= free.cores and memory_mb <= free.memory_mb and gpus <= free.gpus
            if enough and (is_plain or free.fits(shape)):
                found += len(self.classes[free])
                if found >= shape.nodes:
                    return True
        return False

    def take(self, shape: Shape) -> tuple[str, ...] | None:
        """The hosts for `shape` by best fit, and their room used up; None if it does not fit."""
        parts: list[tuple[Free, list[str]]] = []
        short = shape.nodes
        for free in self.order:
            if short and free.fits(shape):
                parts.append((free, self.classes[free][:short]))
                short -= len(parts[-1][1])
        if short:
            return None
        for free, names in parts:
            del self.classes[free][: len(names)]
            self._forget_if_none(free)
            self._give(free, names, shape)
        return tuple(name for _, names in parts for name in names)

    def pick(self, shape: Shape) -> tuple[str, ...] | None:
        """The hosts that `take` would give; changes nothing."""
        found: list[str] = []
        for free in self.order:
            if free.fits(shape):
                found += self.classes[free][: shape.nodes - len(found)]
                if len(found) == shape.nodes:
                    return tuple(found)
        return None

    def offer(self, name: str, free: Free) -> None:
        """From here on the host offers this."""
        old = self.free.get(name)
        if old is not None:
            self._leave(old, [name])
        self.free[name] = free
        self._enter(free, [name])

    def use(self, hosts: Iterable[str], shape: Shape) -> None:
        """A unit of `shape` takes its room on these hosts."""
        parts: dict[Free, list[str]] = {}
        for name in hosts:
            parts.setdefault(self.free[name], []).append(name)
        for free, names in parts.items():
            self._leave(free, names)
            self._give(free, names, shape)

    def _give(self, free: Free, names: list[str], shape: Shape) -> None:
        """Of hosts that offered `free` and have left their class: what remains beside a rank of `shape`."""
        if shape.exclusive:
            for name in names:
                del self.free[name]
            return
        left = free.beside(shape)
        self.free.update(dict.fromkeys(names, left))
        self._enter(left, names)

    def _free(self, host: Host) -> Free:
        return Free.of(not host.units, host.free, self.serves(host), scarcity(host.size))


def _offers_more(now: Free, then: Free) -> bool:
    return now.empty > then.empty or not now.size.fits_in(then.size)
