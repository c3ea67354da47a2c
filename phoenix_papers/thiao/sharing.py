"""Cores that jobs share, exactly: demand beyond what there is slows all jobs down alike.

Rules
  1. A job that is alone on its cores does one second of work in a second.  If all on a host together want w of its c cores and
     w > c, each does c / w.
  2. So all on a host run at one rate.  The host needs one clock of work done, on which each of its jobs has a fixed end: no sum
     over small steps, and the same bytes on every machine.
"""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

Job = TypeVar("Job")
_END: Final = 1e-6  # seconds of work: what is left of a job by rounding alone


class Shared(Generic[Job]):
    """One host.  `besides`: cores that others want there, such as the services of guests."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.besides = 0.0
        self.done_s = 0.0
        self.running: list[tuple[float, float, Job]] = []  # (its end on this clock, cores that it wants, job)

    def start(self, job: Job, work_s: float, wants: float = 1.0) -> None:
        self.running.append((self.done_s + work_s, wants, job))

    @property
    def wanted(self) -> float:
        return math.fsum(wants for _, wants, _ in self.running) + self.besides

    @property
    def used(self) -> float:
        """Cores."""
        return min(float(self.cores), self.wanted)

    @property
    def rate(self) -> float:
        return min(1.0, self.cores / self.wanted) if self.wanted else 1.0

    def next_end_s(self) -> float:
        """Seconds from now; infinity if nothing runs."""
        if not self.running:
            return math.inf
        return max(0.0, min(end for end, _, _ in self.running) - self.done_s) / self.rate

    def pass_s(self, seconds: float) -> None:
        """Time goes by, and nothing starts or ends meanwhile."""
        self.done_s += seconds * self.rate

    def finish(self) -> list[Job]:
        """Whose work is done leaves, in the order of their starts."""
        over = [job for end, _, job in self.running if end <= self.done_s + _END]
        self.running = [each for each in self.running if each[0] > self.done_s + _END]
        return over
