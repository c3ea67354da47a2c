"""Units that wait, by department, in order of submission, and how many wait for which reason since when, asking for how much.

Kept as units change (`rows`): a change of one unit costs one place in a sorted list, whatever the length of the queue.

Rules
  1. Waiting is: pending, held or suspended.
  2. A unit waits since it was submitted, or since its last attempt ended.
  3. `versions[department]` grows with every change of that department's queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from schemas.size import NOTHING, Size, total
from services.monitor.views.ordered import Ordered

STATES: Final = frozenset(("pending", "held", "suspended"))


class One(NamedTuple):
    """A unit that waits; `reason` as JSON has it; `asked`: what it asks for on all nodes together."""

    department: str
    since: float
    reason: dict[str, Any]
    asked: Size = NOTHING


class Waiting:
    def __init__(self) -> None:
        self.units: dict[str, One] = {}
        self.versions: dict[str, int] = {}
        self._order: dict[str, Ordered] = {}  # by department
        self._by_code: dict[str, dict[str, dict[str, float]]] = {}  # department -> code -> unit -> since
        self._asked: dict[tuple[str, str], Size] = {}  # department, code -> what all of those ask for

    def note(self, unit: str, state: str, one: One) -> None:
        """The unit has changed."""
        self.drop(unit)
        if state in STATES:
            self.units[unit] = one
            self._order.setdefault(one.department, Ordered()).add(unit)
            code = one.reason["code"]
            self._by_code.setdefault(one.department, {}).setdefault(code, {})[unit] = one.since
            self._asked[one.department, code] = self._asked.get((one.department, code), NOTHING).plus(one.asked)
            self._moved(one.department)

    def drop(self, unit: str) -> None:
        one = self.units.pop(unit, None)
        if one is None:
            return
        codes, code = self._by_code[one.department], one.reason["code"]
        some, key = codes[code], (one.department, code)
        del some[unit]
        self._asked[key] = self._asked[key].minus(one.asked)
        if not some:
            del codes[code], self._asked[key]
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

    def asked(self, department: str, codes: Iterable[str]) -> Size:
        """What those that wait for one of these reasons ask for together."""
        return total(self._asked.get((department, code), NOTHING) for code in codes)

    def _moved(self, department: str) -> None:
        self.versions[department] = self.versions.get(department, 0) + 1
