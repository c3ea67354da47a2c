"""Shares of a department's hosts: what a service is granted, what it uses, and whether a job stays within it.  Pure arithmetic,
for the scheduler that keeps them and the door that refuses what could never be within one.

Source: R. Chakode, thesis, Univ. Grenoble 2012, eq. 6.1 (granted = weight / sum of weights) and eq. 5.1
(usage = w_mem · memory + w_cpu · cores, as shares of all); the comparison is "at most" (its Algorithm 1).

Rules
  1. Numbers are exact, as a person wrote them: 16 of 48 cores are a third of them.
  2. A service without a weight has no share.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm, prod
from operator import mul

from schemas.config import BatchPolicy
from schemas.dimensions import DIMENSIONS
from schemas.size import Size


class Shares:
    """`whole`: all hosts that are shared, together."""

    def __init__(self, policy: BatchPolicy, whole: Size) -> None:
        weights = {name: Fraction(str(weight)) for name, weight in policy.services.items()}
        total = sum(weights.values())
        self.granted = {name: weight / total for name, weight in weights.items()}
        self.whole = whole
        self.weights = [Fraction(str(getattr(policy, dimension.weight))) for dimension in DIMENSIONS]
        # Usage and share times what makes both whole numbers: the comparison is in every step of a pass.
        one = lcm(*(weight.denominator for weight in (*self.weights, *self.granted.values())))
        every = prod(there or 1 for there in whole)
        parts = zip(self.weights, whole, strict=True)
        self._each = [int(weight * one) * every // there if there else 0 for weight, there in parts]
        self._limits = {name: int(granted * one) * every for name, granted in self.granted.items()}

    def usage(self, much: Size) -> Fraction:
        """Eq. 5.1: 1 is everything."""
        parts = zip(self.weights, much, self.whole, strict=True)
        return sum((weight * Fraction(used, there) for weight, used, there in parts if there), Fraction(0))

    def complies(self, service: str, much: Size) -> bool:
        """True if this much is within the service's share."""
        used: int = sum(map(mul, self._each, much))
        return used <= self._limits.get(service, 0)


def must_comply(policy: BatchPolicy, walltime_s: float, *, short: bool, best_effort: bool) -> bool:
    """True of a job that may never take its service above its share: production that is not short.  `short`: declared so."""
    return not best_effort and not (policy.short_s > 0 and (short or walltime_s <= policy.short_s))


def percent(share: Fraction | float) -> float:
    """For people: two digits, as the thesis shows shares."""
    return round(100 * float(share), 2)
