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
from math import lcm

from schemas.config import BatchPolicy


class Shares:
    """`cores`, `memory_mb`: of all hosts that are shared."""

    def __init__(self, policy: BatchPolicy, cores: int, memory_mb: int) -> None:
        weights = {name: Fraction(str(weight)) for name, weight in policy.services.items()}
        total = sum(weights.values())
        self.granted = {name: weight / total for name, weight in weights.items()}
        self.cores, self.memory_mb = cores, memory_mb
        self.w_cpu, self.w_mem = Fraction(str(policy.w_cpu)), Fraction(str(policy.w_mem))
        one = lcm(self.w_cpu.denominator, self.w_mem.denominator, *(g.denominator for g in self.granted.values()))
        self._core, self._mib = int(self.w_cpu * one) * memory_mb, int(self.w_mem * one) * cores
        self._limits = {name: int(granted * one) * cores * memory_mb for name, granted in self.granted.items()}

    def usage(self, cores: int, memory_mb: int) -> Fraction:
        """Eq. 5.1: 1 is everything."""
        cpu = Fraction(cores, self.cores) if self.cores else Fraction(0)
        mem = Fraction(memory_mb, self.memory_mb) if self.memory_mb else Fraction(0)
        return self.w_cpu * cpu + self.w_mem * mem

    def complies(self, service: str, cores: int, memory_mb: int) -> bool:
        """True if this much is within the service's share."""
        return self._core * cores + self._mib * memory_mb <= self._limits.get(service, 0)


def must_comply(policy: BatchPolicy, walltime_s: float, *, short: bool, best_effort: bool) -> bool:
    """True of a job that may never take its service above its share: production that is not short.  `short`: declared so."""
    return not best_effort and not (policy.short_s > 0 and (short or walltime_s <= policy.short_s))


def percent(share: Fraction | float) -> float:
    """For people: two digits, as the thesis shows shares."""
    return round(100 * float(share), 2)
