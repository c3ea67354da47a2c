"""Allocations while OpenNebula refuses the same of every VM: one at a time, rarely, instead of each rank for itself.

A used-up quota is met by every rank that wants a VM.  Were each tried by itself, a queue of hundreds would ask for ever at the
rate of its length.  So the first refusal stops them all; one is tried when the pause is over, and at once when a VM of ours is
gone, since that is what gives a quota room.  The first success lets them all go.

Rules
  1. While it is on, at most one allocation is in flight.
  2. Pauses are those of the failure's rule (`call_errors`), longer with each refusal in a row; a VM that is gone ends one
     pause.
  3. It never decides what becomes of an attempt: its scheduler's start budget does.
"""

from __future__ import annotations

from services.executor.core.call_errors import Failure, pause_s


class AllocationBackoff:
    def __init__(self) -> None:
        self.refusals = 0  # in a row
        self.until = 0.0

    def refused(self, failure: Failure, now: float) -> float:
        """One more was refused; returns when the next may be tried."""
        self.refusals += 1
        self.until = now + pause_s(failure, self.refusals)
        return self.until

    def succeeded(self) -> None:
        self.refusals = 0

    def eased(self) -> None:
        """There may be room now (rule 2)."""
        self.until = 0.0

    def room(self, limit: int, in_flight: int, now: float) -> int:
        """How many of `limit` allocations may be begun."""
        if not self.refusals:
            return limit
        return 0 if now < self.until or in_flight else min(limit, 1)
