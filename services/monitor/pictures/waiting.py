"""Units that wait, by department, in order of submission, and how many wait for which reason since when.

Kept while rows are rendered (`views`): a change of one unit costs one place in a sorted list, whatever the length of the queue.

Rules
  1. Who waits is pending, held or suspended.
  2. A unit waits since it was submitted, or since its last attempt ended.
  3. `versions[department]` grows with every change of that department's queue.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import islice
from typing import Any, Final, NamedTuple

from schemas.ids import sort_key

STATES: Final = frozenset(("pending", "held", "suspended"))
_Key = tuple[tuple[int, int, str], str]


class One(NamedTuple):
    """A unit that waits; `reason` as JSON has it."""

    department: str
    since: float
    reason: dict[str, Any]


SLACK: Final = 100  # that wait no more, in a short list


class Waiting:
    def __init__(self) -> None:
        self.units: dict[str, One] = {}
        self.versions: dict[str, int] = {}
        self._order: dict[str, list[_Key]] = {}  # department -> units by submission, and some that wait no more
        self._listed: dict[str, set[str]] = {}  # the same units
        self._live: Counter[str] = Counter()  # department -> units that wait
        self._by_code: dict[str, dict[str, dict[str, float]]] = {}  # department -> code -> unit -> since

    def note(self, unit: str, state: str, one: One) -> None:
        """The unit's row has been rendered."""
        self.drop(unit)
        if state in STATES:
            self.units[unit] = one
            self._live[one.department] += 1
            listed = self._listed.setdefault(one.department, set())
            if unit not in listed:
                insort(self._order.setdefault(one.department, []), (sort_key(unit), unit))
                listed.add(unit)
            self._by_code.setdefault(one.department, {}).setdefault(one.reason["code"], {})[unit] = one.since
            self._moved(one.department)

    def drop(self, unit: str) -> None:
        one = self.units.pop(unit, None)
        if one is None:
            return
        self._live[one.department] -= 1
        codes = self._by_code[one.department]
        some = codes[one.reason["code"]]
        del some[unit]
        if not some:
            del codes[one.reason["code"]]
        self._tidy(one.department)
        self._moved(one.department)

    def first(self, department: str, most: int) -> list[str]:
        waiting = (unit for _, unit in self._order.get(department, ()) if unit in self.units)
        return list(islice(waiting, most))

    def _tidy(self, department: str) -> None:
        """Who waits no more is taken out when that is half of all: one by one, a hundred thousand that are cancelled would take
        as many moves of the whole list."""
        order = self._order[department]
        if len(order) > 2 * self._live[department] + SLACK:
            order[:] = [key for key in order if key[1] in self.units]
            self._listed[department] = {unit for _, unit in order}

    def reasons(self, department: str) -> list[tuple[str, int, float, dict[str, Any]]]:
        """(code, how many, since when the longest, an example's reason), by code."""
        found = []
        for code, some in sorted(self._by_code.get(department, {}).items()):
            longest = min(some.values())
            found.append((code, len(some), longest, self.units[next(iter(some))].reason))
        return found

    def _moved(self, department: str) -> None:
        self.versions[department] = self.versions.get(department, 0) + 1
