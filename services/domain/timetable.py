"""The timetable of leases: whether one more fits beside those that were accepted, and what would fit instead.

Theory of operation (InterGrid, 4.1 and 4.3)
  A local lease has an interval; ordinary jobs and best-effort leases make way for it, so only local leases collide with it.
  Admission says yes or no at once, hours before the scheduler puts the lease on hosts, and it is unknown then on which hosts
  the others will stand: some end early, some start late, a lost host moves one, and a lease that runs is not moved.  So a yes
  does not rest on a plan of hosts.  A set of leases is *sound* at an instant if each of them would find its hosts beside all
  the others of that instant, wherever those stand.

Rules
  1. Accepted is what keeps every instant of its interval sound, for itself and for those accepted before.  Whatever placement
     the scheduler chooses, and in whatever order leases start, the next one finds room: best fit needs no luck.
  2. Conservative, never optimistic: on how many hosts can the others leave too little room for a rank of a size?
     2.1  A rank spoils at most the one host that it stands on; one that is exclusive spoils it for all, and beside a
          lease that is exclusive all do.
     2.2  To spoil B hosts by cores the others need all cores but (cores - 1) of each; they have at most
          sum of min(nodes, B) · cores, because the nodes of a lease are on different hosts.  By every other dimension
          that the rank needs likewise.
     Exact for leases of whole hosts, and where one size is asked for; else some sets are refused that best fit could place.
  3. Only a part of the known hosts may be the department's, it is unknown which: those that cannot hold the rank are counted
     as its first ones.
  4. Intervals are half open: one may start when another ends.  What changes only when a lease starts is looked at then.
  5. The earliest start is the wanted time or the end of another lease: between two ends, later is never better.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from schemas.size import NOTHING, Size
from services.domain.shape import Shape

FOREVER: Final = float("inf")


class Slot(NamedTuple):
    """A lease in the timetable: from `start` to before `end` (UTC seconds)."""

    lease: str
    start: float
    end: float
    part: Shape


class Collision(NamedTuple):
    """The first instant of the interval at which it does not fit, and the leases that have the hosts then, in order of
    acceptance; none: it would not fit alone."""

    at: float
    leases: tuple[str, ...]


class Ground:
    """The hosts, by what each has, of which the department may hold `hosts_max` (None: all)."""

    def __init__(self, hosts: Iterable[Size], hosts_max: int | None = None) -> None:
        self._hosts = tuple(hosts)
        self._may = len(self._hosts) if hosts_max is None else min(hosts_max, len(self._hosts))
        self._sums: dict[Size, list[list[int]]] = {}

    @property
    def size(self) -> int:
        """How many hosts the department may hold."""
        return self._may

    def able(self, part: Shape) -> int:
        """How many hosts the department has for certain that could hold a rank of `part` (rule 3)."""
        able = len(self._needs(part)[0]) - 1
        return max(0, self._may - (len(self._hosts) - able))

    def _needs(self, part: Shape) -> list[list[int]]:
        """What it takes to spoil 0, 1, 2, … of the able hosts for `part`, the cheapest first: by each dimension."""
        found = self._sums.get(part.size)
        if found is None:
            able = [host for host in self._hosts if part.size.fits_in(host)]
            found = [
                [0, *accumulate(sorted(host[number] - least + 1 for host in able))]
                for number, least in enumerate(part.size)
            ]
            self._sums[part.size] = found
        return found

    def is_sound(self, parts: Sequence[Shape]) -> bool:
        """True if each finds room beside the others."""
        crowd = Crowd(parts)
        return all(self._finds_room(part, crowd) for part in dict.fromkeys(parts))

    def _finds_room(self, part: Shape, crowd: Crowd) -> bool:
        """True if `part`, one of `crowd`, fits beside the others, wherever they stand (rules 2 and 3)."""
        spare = self.able(part) - part.nodes
        others = crowd.ranks - part.nodes
        if others <= spare:
            return True
        if part.exclusive:
            return False
        needs = zip(self._needs(part), crowd.shared, part.size, strict=True)
        spoiled = sum(_spoiled(need, others, part.nodes, least) for need, others, least in needs if least)
        return crowd.whole + spoiled <= spare


class Crowd:
    """The leases of one instant.  `ranks`: of all; `whole`: hosts that one lease has alone; `shared`: of each dimension what
    those who share can have on B hosts."""

    def __init__(self, parts: Sequence[Shape]) -> None:
        shared = [part for part in parts if not part.exclusive]
        self.ranks = sum(part.nodes for part in parts)
        self.whole = self.ranks - sum(part.nodes for part in shared)
        self.shared = [Most((part.nodes, part.size[number]) for part in shared) for number in range(len(NOTHING))]


class Most:
    """sum of min(nodes, B) · amount over pairs (nodes, amount), for any B: sums are made once."""

    def __init__(self, uses: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(uses)
        self._nodes = [nodes for nodes, _ in ordered]
        self._narrow = [0, *accumulate(nodes * amount for nodes, amount in ordered)]
        self._amounts = [0, *accumulate(amount for _, amount in ordered)]

    def on(self, hosts: int) -> int:
        narrow = bisect_right(self._nodes, hosts)
        return self._narrow[narrow] + hosts * (self._amounts[-1] - self._amounts[narrow])


def _spoiled(needs: Sequence[int], most: Most, nodes: int, amount: int) -> int:
    """The most hosts that can be spoiled if B of them take needs[B], and the others of `most`, without one of `nodes` with
    `amount` on each, have what they can.  What is left after B falls faster and faster, so those B are 0, 1, … up to the
    answer."""
    low, high = 0, len(needs) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if most.on(middle) - min(nodes, middle) * amount >= needs[middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Timetable:
    """The local leases of one department that were accepted and are not over."""

    def __init__(self, ground: Ground, slots: Iterable[Slot]) -> None:
        self.ground = ground
        self._slots = tuple(slots)
        self._starts = sorted(slot.start for slot in self._slots)
        self._ends = sorted(slot.end for slot in self._slots)

    def collision(self, wanted: Slot) -> Collision | None:
        """None if `wanted` may be accepted (rule 1).  A slot of the same lease is not counted: it is what changes."""
        first = bisect_right(self._starts, wanted.start)
        instants = [wanted.start, *(start for start in self._starts[first:] if start < wanted.end)]
        for at in instants:
            there = [s for s in self._slots if s.start <= at < s.end and s.lease != wanted.lease]
            if not self.ground.is_sound([wanted.part, *(slot.part for slot in there)]):
                return Collision(at, tuple(slot.lease for slot in there))
        return None

    def alone(self, wanted: Slot) -> Collision | None:
        """None if `wanted` would fit if there were no other lease at all."""
        return Timetable(self.ground, ()).collision(wanted)

    def earliest(self, wanted: Slot, start_max: float = FOREVER) -> float | None:
        """The earliest start from `wanted.start` on, for the same part and duration; None if none is up to `start_max`."""
        start, lasts_s = wanted.start, wanted.end - wanted.start
        while start <= start_max:
            collision = self.collision(wanted._replace(start=start, end=start + lasts_s))
            if collision is None:
                return start
            # Whatever includes that instant collides there again: the next chance is an end behind it (rule 5).
            behind = bisect_right(self._ends, collision.at)
            if behind == len(self._ends):
                return None
            start = self._ends[behind]
        return None

    def largest(self, wanted: Slot) -> int:
        """The most nodes, up to those of `wanted`, that fit at that time; 0 if not even one does."""

        def fits(nodes: int) -> bool:
            return self.collision(wanted._replace(part=wanted.part._replace(nodes=nodes))) is None

        return most(wanted.part.nodes, fits)

    def latest_end(self, wanted: Slot) -> float:
        """Up to when the lease may last, at most `wanted.end`; its start if it does not fit at all."""
        collision = self.collision(wanted)
        return wanted.end if collision is None else collision.at


def most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 0 to `limit` that fits; fewer always fit where more do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
