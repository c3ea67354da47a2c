"""Durations as Prometheus wants them, folded: how many were at most so long."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import ClassVar

import msgspec


class Histogram(msgspec.Struct, array_like=True):
    """`counts[i]` of those up to `bounds[i]` seconds, the last one of all beyond."""

    bounds: ClassVar[tuple[float, ...]]
    counts: list[int] = []
    sum_s: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def cumulated(self) -> list[tuple[str, float]]:
        """(upper bound, how many up to it)."""
        bounds = (*map(str, self.bounds), "+Inf")
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))
