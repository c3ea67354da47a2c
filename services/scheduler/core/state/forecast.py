"""What will be free when: the expected ends of live attempts, and what each host offers once it is empty.  A view derived from
custody, for orders that look ahead (`policies/order_easy`); it exists only while such an order is in force.

Rules
  1. An attempt is expected to end when its walltime is over: counted from `attempt.began`, before that from its placement.
     It may end sooner; it cannot end later, but for the time that its machines take to boot and to end.
     A lease with a time slot ends with it, whenever it began.
  2. An end that has passed stays where it was.  So what is expected changes with facts alone, never with time.
  3. Expected are the hosts that the department holds now and may place on; cordoned ones are not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from schemas.dimensions import scarcity
from schemas.size import NOTHING, Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import PLAIN, Kind, Shape


class Ending(NamedTuple):
    """A live attempt.  Natural order: expected end, then unit (unique)."""

    at: float
    unit: str
    hosts: tuple[str, ...]
    shape: Shape
    kind: Kind = PLAIN
    since: float = 0.0  # when its guests called, before that when it was placed
    waited_s: float = 0.0  # by then
    grace_s: float = 0.0  # that it asked for (`domain.grace`)


class Forecast:
    """`ends_at`: when a unit's attempt that began then ends at the latest; `kind`: whose it is; `waited_s`: how long it had
    waited by then; `serves`: constraints that a host satisfies (`Room`).

    `used`: what production has of each service.  Live attempts by unit: `best_effort`; `declared` short;
    `exclusive`: production that has more than `used` says, whole hosts."""

    def __init__(
        self,
        custody: Custody,
        dept: str,
        ends_at: Callable[[str, float], float],
        units: Iterable[str],
        kind: Callable[[str], Kind] = lambda _: PLAIN,
        waited_s: Callable[[str, float], float] = lambda _unit, _since: 0.0,
        serves: Callable[[Host], tuple[str, ...]] = lambda _host: (),
    ) -> None:
        self.serves = serves
        self.custody, self.dept, self.ends_at, self.kind, self.waited_s = custody, dept, ends_at, kind, waited_s
        self.used: dict[str, Size] = {}
        self.best_effort: dict[str, Ending] = {}
        self.declared: dict[str, Ending] = {}
        self.exclusive: dict[str, Ending] = {}
        self.endings: list[Ending] = []  # in order
        self.held: dict[str, Free] = {}  # hosts on which the department may place -> what each offers when it is empty
        self.wholes: dict[Free, int] = {}  # how many hosts offer this when they are empty
        self._of: dict[str, Ending] = {}
        for name in custody.index.held.get(dept, ()):
            self.host_changed(name)
        for unit in units:
            self.unit_changed(unit)

    # ------------------------------------------------------------------------------------------------------- following

    def unit_changed(self, name: str) -> None:
        """The unit was placed, its attempt began, or is not live any more."""
        old = self._of.pop(name, None)
        if old is not None:
            del self.endings[bisect_left(self.endings, old)]
            self._count(old, -1)
            for found in (self.best_effort, self.declared, self.exclusive):
                found.pop(name, None)
        unit = self.custody.state.units.get(name)
        if unit is not None and unit.live:
            since = unit.began_at if unit.began_at is not None else unit.placed_at or 0.0
            shape = Shape(unit.nodes, unit.size, unit.exclusive)
            at, kind, waited_s = self.ends_at(name, since), self.kind(name), self.waited_s(name, since)
            new = self._of[name] = Ending(at, name, unit.hosts, shape, kind, since, waited_s, unit.grace_s or 0.0)
            insort(self.endings, new)
            self._count(new, 1)

    def _count(self, ending: Ending, by: int) -> None:
        """`by` (1 or -1) more of this live attempt in `used`, `best_effort`, `declared`."""
        shape, kind, unit = ending.shape, ending.kind, ending.unit
        if kind.best_effort:
            self.best_effort[unit] = ending
        else:
            now = self.used[kind.service] = self.used.get(kind.service, NOTHING).plus(shape.all.times(by))
            if now == NOTHING:
                del self.used[kind.service]
        if kind.declared:
            self.declared[unit] = ending
        if shape.exclusive and not kind.best_effort:
            self.exclusive[unit] = ending

    def host_changed(self, name: str) -> None:
        """Anything about the host may have changed."""
        old, host, new = self.held.get(name), self.custody.state.hosts.get(name), None
        if host is not None and host.state == "held" and host.dept == self.dept and host.cordoned is None:
            new = Free.of(True, host.size, self.serves(host), scarcity(host.size))
            if new == old:
                return
        if old is not None:
            del self.held[name]
            self.wholes[old] -= 1
            if not self.wholes[old]:
                del self.wholes[old]
        if new is not None:
            self.held[name] = new
            self.wholes[new] = self.wholes.get(new, 0) + 1

    # --------------------------------------------------------------------------------------------------------- reading

    def views(self) -> tuple[object, ...]:
        """All that is derived, for checks."""
        return self.endings, self.held, self.wholes, self.used, self.best_effort, self.declared, self.exclusive

    def units(self, name: str) -> int:
        """Live attempts on a host."""
        return len(self.custody.state.hosts[name].units)

    def could_hold(self, shape: Shape) -> bool:
        """True if the hosts held now would do for `shape`, were they empty."""
        return sum(count for whole, count in self.wholes.items() if whole.fits(shape)) >= shape.nodes
