"""The meter: from CPU times in probe answers to the department's utilisation.

Each good probe brings the CPU seconds an instance has used in its life. Two samples give the rate between them; the
utilisation of an interval is the CPU that all measured instances used, by their rates, over what they may use:
Σ used / Σ (core_share × cores × time). 1.0 means that all are busy.

An instance counts only when it has been in service longer than one interval: one that is starting up burns CPU without
a request, and would ask for still more instances. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phoenix.local.balancer.pool import Instance, type_key


@dataclass(frozen=True, slots=True)
class Reading:
    """`utilisation` over `instances` measured ones."""

    utilisation: float
    instances: int


@dataclass(slots=True)
class _Samples:
    last_at: float
    last_cpu_s: float
    rate: float | None = None


class Meter:
    """Keeps the last samples of every instance."""

    def __init__(self, core_share: float, interval_s: float) -> None:
        self._core_share = core_share
        self._interval_s = interval_s
        self._samples: dict[type_key, _Samples] = {}

    def sample(self, key: type_key, at: float, cpu_s: float) -> None:
        """The CPU time that an instance had used at `at`."""
        samples = self._samples.get(key)
        if samples is None or cpu_s < samples.last_cpu_s:
            # A smaller number is another process behind the same name: start over.
            self._samples[key] = _Samples(at, cpu_s)
        elif at > samples.last_at:
            samples.rate = (cpu_s - samples.last_cpu_s) / (at - samples.last_at)
            samples.last_at, samples.last_cpu_s = at, cpu_s

    def read(self, instances: Iterable[Instance], now: float) -> Reading | None:
        """The utilisation now; None when no instance can be measured."""
        used = capacity = 0.0
        count = 0
        known: set[type_key] = set()
        for instance in instances:
            known.add(instance.key)
            samples = self._samples.get(instance.key)
            if not instance.in_service or now - instance.healthy_since <= self._interval_s:
                continue
            if samples is not None and samples.rate is not None:
                used += samples.rate
                capacity += self._core_share * instance.cores
                count += 1
        for key in [key for key in self._samples if key not in known]:
            del self._samples[key]
        return Reading(used / capacity, count) if count else None
