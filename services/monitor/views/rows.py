"""What has changed of units, and rows of the queue: known for all, rendered only on request.

Theory of operation
  The fold notes which units it has `touched`.  Before anything is read of them, that is gone through, in parts: department,
  user, state and reason of each are known then, and how many there are of which.  Its row is rendered when a reader wants to
  see it, and kept until the unit changes.  So a page of a queue costs a page, whatever the length of the queue, and however
  many have come or gone.

Rules
  1. A row that is kept is that of its unit as it is: everything that a row shows of a unit touches it when it changes.
  2. Long work is done in parts (`monitor.parts`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from schemas.ids import is_instance, job_of
from services.domain.custody.state import ENDED_EARLY, Unit
from services.monitor.core.monitor import MonitorCore, unit_state
from services.monitor.parts import NOTED, RENDERED, Parts, Work
from services.monitor.views.ordered import FIRST, Ordered, Place
from services.monitor.views.waiting import STATES, One, Waiting

ENDED: Final = frozenset(("completed", ENDED_EARLY, "failed", "cancelled", "timeout", "killed", "stopped"))
Drawn = tuple[bytes, bytes]  # row, and line
_Counts = dict[str, int]  # by state


class Row:
    """`drawn`: rule 1."""

    __slots__ = ("dept", "drawn", "state", "user")

    def __init__(self, dept: str, user: str, state: str) -> None:
        self.dept, self.user, self.state = dept, user, state
        self.drawn: Drawn | None = None


class Rows:
    """`draw` renders a unit; `waits` says of one that waits since when, and why."""

    def __init__(self, core: MonitorCore, draw: Callable[[Unit], Drawn], waits: Callable[[Unit], One]) -> None:
        self.core, self._draw, self._waits = core, draw, waits
        self.waiting = Waiting()
        self._rows: dict[str, Row] = {}
        self._due: deque[str] = deque()  # touched, and not gone through
        self._open: dict[str, Ordered] = {}  # by department
        self._over: dict[str, Ordered] = {}
        self._counts: dict[str, dict[str, _Counts]] = {}  # department -> user -> how many
        self._elements: dict[str, dict[str, None]] = {}  # array -> its elements
        self._cost = 0

    # ------------------------------------------------------------------------------------------------------ what changes

    def refresh(self) -> None:
        """One part of it: all, as long as nothing much has changed."""
        next(self.refreshing(), None)

    def refreshing(self) -> Parts[None]:
        """What was touched until now.  Not what is meanwhile: in a rush there would be no end of it."""
        self._due.extend(self.core.touched)
        self.core.touched = {}
        self._due.extend(self.core.causes.restated())
        work, left = Work(), len(self._due)
        while left > 0 and self._due:  # others may take from it, too
            self._note(self._due.popleft())
            left -= 1
            if work.add(NOTED):
                yield

    def _note(self, name: str) -> None:
        unit = self.core.custody.state.units.get(name)
        had = self._rows.get(name)
        if unit is None or is_instance(name):
            if had is not None:
                self._forget(name, had)
            return
        job, state = self.core.state.jobs.get(job_of(name)), unit_state(unit)
        row = self._rows[name] = Row(unit.dept, job.user if job else "", state)
        if had is not None:
            self._count(had, -1)
        self._count(row, 1)
        self._place(name, row, had)
        if state in STATES:
            self.waiting.note(name, state, self._waits(unit))
        else:
            self.waiting.drop(name)

    def _place(self, name: str, row: Row, had: Row | None) -> None:
        """In the lists in which it belongs."""
        is_over = row.state in ENDED
        if had is None or (had.state in ENDED) != is_over:
            if had is not None:
                (self._open if is_over else self._over)[had.dept].discard(name)
            (self._over if is_over else self._open).setdefault(row.dept, Ordered()).add(name)
        if had is None and "_" in name:
            self._elements.setdefault(job_of(name), {})[name] = None

    def _forget(self, name: str, had: Row) -> None:
        del self._rows[name]
        self._count(had, -1)
        (self._over if had.state in ENDED else self._open)[had.dept].discard(name)
        self.waiting.drop(name)
        array = self._elements.get(job_of(name))
        if array is not None:
            array.pop(name, None)
            if not array:
                del self._elements[job_of(name)]

    def _count(self, row: Row, one: int) -> None:
        counts = self._counts.setdefault(row.dept, {}).setdefault(row.user, {})
        counts[row.state] = counts.get(row.state, 0) + one

    # --------------------------------------------------------------------------------------------------------- what is so

    def counts(self, department: str) -> _Counts:
        """Units by state."""
        found: _Counts = {}
        for counts in self._counts.get(department, {}).values():
            for state, count in counts.items():
                found[state] = found.get(state, 0) + count
        return found

    def elements(self, array: str) -> list[str]:
        """In order."""
        return sorted(self._elements.get(array, ()), key=lambda name: (len(name), name))

    def state(self, name: str) -> str:
        return self._rows[name].state

    def knows(self, name: str) -> bool:
        return name in self._rows and name in self.core.custody.state.units

    def is_drawn(self, name: str) -> bool:
        return self._rows[name].drawn is not None

    def drawn(self, name: str) -> Drawn:
        """Its row and its line."""
        kept = self._rows[name]
        if kept.drawn is None:
            kept.drawn = self._draw(self.core.custody.state.units[name])
        return kept.drawn

    def queue(
        self,
        department: str | None,
        states: frozenset[str] | None,
        limit: int,
        user: str | None,
        short: bool,
        bytes_max: int,
    ) -> Parts[tuple[list[bytes], int]]:
        """Rows, or with `short` lines, in order of submission, and how many there are in all."""
        yield from self.refreshing()
        total = self._total(department, states, user)
        work, found, size, last = Work(), list[bytes](), 0, FIRST
        lists = self._lists(department, states)
        while len(found) < limit and size <= bytes_max:
            for place in _merged(lists, last):
                last = place
                row = self._seen(place[1], states, user, short)
                if row is not None:
                    found.append(row)
                    size += len(row)
                if work.add(self._cost) or len(found) >= limit or size > bytes_max:
                    break
            else:
                break
            yield
        return found, total

    def _seen(self, name: str, states: frozenset[str] | None, user: str | None, short: bool) -> bytes | None:
        """Its row or line, if it is one of those.  `_cost`: what it took."""
        kept, self._cost = self._rows.get(name), 1
        if kept is None or user not in (None, kept.user) or name not in self.core.custody.state.units:
            return None
        if kept.state not in states if states else kept.state in ENDED:
            return None
        if kept.drawn is None:
            self._cost = RENDERED
        return self.drawn(name)[short]

    def _lists(self, department: str | None, states: frozenset[str] | None) -> list[Ordered]:
        chosen = [self._open] if not states or states - ENDED else []
        chosen += [self._over] if states and states & ENDED else []
        return [order for of in chosen for name, order in of.items() if department in (None, name)]

    def _total(self, department: str | None, states: frozenset[str] | None, user: str | None) -> int:
        return sum(
            count
            for name, users in self._counts.items()
            if department in (None, name)
            for of, counts in users.items()
            if user in (None, of)
            for state, count in counts.items()
            if (state in states if states else state not in ENDED)
        )


def _merged(lists: list[Ordered], last: Place) -> Iterator[Place]:
    if len(lists) == 1:
        return lists[0].after(last)
    return heapq.merge(*(order.after(last) for order in lists))
