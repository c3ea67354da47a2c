"""Random numbers of the distributions that the workload models need, the same on every machine and in every Python.

`random.Random` promises across versions only what `random()` gives for a seed; its other methods have changed before.  So
everything here stands on `random()` alone.  Logarithms and powers may differ in the last bit between C libraries: who uses
these numbers rounds them (to whole seconds, to whole requests) before they become an input.

  1. normal: the polar method (Marsaglia and Bray, SIAM Review 6, 1964).
  2. gamma: Marsaglia and Tsang, A simple method for generating gamma variables, ACM TOMS 26(3), 2000; shapes of 1 and more.
  3. exponential: by inversion.
"""

from __future__ import annotations

import math
import random


class Variates:
    """One stream; streams of different names are independent, so that more of one kind leaves the others as they were."""

    def __init__(self, seed: int, name: str) -> None:
        self.uniform = random.Random(f"{seed}/{name}").random  # noqa: S311 (a model's chance, no secret)
        self._spare: float | None = None  # the polar method makes two at a time

    def normal(self) -> float:
        """Mean 0, variance 1."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        while True:
            x, y = 2 * self.uniform() - 1, 2 * self.uniform() - 1
            square = x * x + y * y
            if 0 < square < 1:
                factor = math.sqrt(-2 * math.log(square) / square)
                self._spare = y * factor
                return x * factor

    def gamma(self, shape: float, scale: float) -> float:
        """Mean shape·scale, variance shape·scale²."""
        if shape < 1:
            raise ValueError(f"the method needs a shape of at least 1, not {shape}")
        d = shape - 1 / 3
        c = 1 / math.sqrt(9 * d)
        while True:
            x = self.normal()
            v = (1 + c * x) ** 3
            if v > 0 and math.log(1 - self.uniform()) < x * x / 2 + d * (1 - v + math.log(v)):
                return d * v * scale

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1 - self.uniform())
