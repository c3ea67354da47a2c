"""Times at which something is to be looked at again: a heap, nothing more."""

from __future__ import annotations

import heapq
from typing import Final

NEVER: Final = float("inf")


class Timers:
    """Names, each with a time (UTC seconds).  A name may be there several times: looking once too often is harmless."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def set(self, when: float, name: str) -> None:
        heapq.heappush(self._heap, (when, name))

    def due(self, now: float) -> list[str]:
        """Take out what is due."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[1])
        return found

    def next(self) -> float:
        return self._heap[0][0] if self._heap else NEVER


def backoff_s(failures: int, first_s: float, max_s: float) -> float:
    """Doubling with each failure in a row."""
    return min(max_s, first_s * 2.0 ** min(failures - 1, 20)) if failures > 0 else 0.0
