"""Units that wait, by department, in order of submission, and how many wait for which reason since when.

Kept as units change (`rows`): a change of one unit costs one place in a sorted list, whatever the length of the queue.

Rules
  1. Waiting is: pending, held or suspended.
  2. A unit waits since it was submitted, or since its last attempt ended.
  3. `versions[department]` grows with every change of that department's queue.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, NamedTuple

from services.monitor.views.ordered import Ordered

STATES: Final = frozenset(("pending", "held", "suspended"))


class One(NamedTuple):
    """A unit that waits; `reason` as JSON has it."""

    department: str
    since: float
    reason: dict[str, Any]


class Waiting:
    def __init__(self) -> None:
        self.units: dict[str, One] = {}
        self.versions: dict[str, int] = {}
        self._order: dict[str, Ordered] = {}  # by department
        self._by_code: dict[str, dict[str, dict[str, float]]] = {}  # department -> code -> unit -> since

    def note(self, unit: str, state: str, one: One) -> None:
        """The unit has changed."""
        self.drop(unit)
        if state in STATES:
            self.units[unit] = one
            self._order.setdefault(one.department, Ordered()).add(unit)
            self._by_code.setdefault(one.department, {}).setdefault(one.reason["code"], {})[unit] = one.since
            self._moved(one.department)

    def drop(self, unit: str) -> None:
        one = self.units.pop(unit, None)
        if one is None:
            return
        codes = self._by_code[one.department]
        some = codes[one.reason["code"]]
        del some[unit]
        if not some:
            del codes[one.reason["code"]]
        self._order[one.department].discard(unit)
        self._moved(one.department)

    def first(self, department: str, most: int) -> list[str]:
        order = self._order.get(department)
        return [] if order is None else [unit for _, unit in islice(order.after(), most)]

    def reasons(self, department: str) -> list[tuple[str, int, float, dict[str, Any]]]:
        """(code, how many, since when the longest, an example's reason), by code."""
        found = []
        for code, some in sorted(self._by_code.get(department, {}).items()):
            longest = min(some.values())
            found.append((code, len(some), longest, self.units[next(iter(some))].reason))
        return found

    def _moved(self, department: str) -> None:
        self.versions[department] = self.versions.get(department, 0) + 1
