"""Units in order of submission, of which some go again: a change costs one place, whatever the number of the others.

Removed entries are taken out when they are half of all: one by one, a hundred thousand that are cancelled would take as many
moves of the whole list.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final, TypeAlias

from schemas.ids import sort_key

Place: TypeAlias = tuple[tuple[int, int, str], str]
FIRST: Final[Place] = ((-1, -1, ""), "")  # before all
SLACK: Final = 100  # that have gone, in a short list


class Ordered:
    def __init__(self) -> None:
        self._places: list[Place] = []
        self._listed: set[str] = set()  # those in it, and some that have gone
        self._units: set[str] = set()
        self._first = 0  # all before this place have gone

    def __len__(self) -> int:
        return len(self._units)

    @property
    def held(self) -> int:
        """With those that have gone and are still in memory."""
        return len(self._places)

    def add(self, unit: str) -> None:
        self._units.add(unit)
        if unit in self._listed:
            self._first = 0
            return
        self._listed.add(unit)
        place = (sort_key(unit), unit)
        if self._places and place < self._places[-1]:
            insort(self._places, place)
            self._first = 0
        else:
            self._places.append(place)

    def discard(self, unit: str) -> None:
        if unit not in self._units:
            return
        self._units.remove(unit)
        if len(self._places) > 2 * len(self._units) + SLACK:
            self._places = [place for place in self._places if place[1] in self._units]
            self._listed, self._first = set(self._units), 0

    def after(self, place: Place = FIRST) -> Iterator[Place]:
        """Those behind `place`, as long as nothing changes; then one asks again, behind the last that one had."""
        places, units = self._places, self._units
        while self._first < len(places) and places[self._first][1] not in units:
            self._first += 1
        for at in range(max(self._first, bisect_right(places, place)), len(places)):
            if places[at][1] in units:
                yield places[at]
