"""Load that drives a web department in a simulation: how busy its instances are, one `load.observed` every `signal_s`.

Theory of operation
  The input tells how many instances the work would keep busy.  With n in service they are busy for min(1, work / n) of the
  time: a processor cannot be busier than all the time, so an overload is seen as 1, as a real balancer would see it.  The mean
  over each interval is exact: work and instances are levels, summed up at each change of either.
"""

from __future__ import annotations

from schemas.facts import LoadObserved
from services.domain.core import NEVER


class Load:
    """One department's.  `steps`: (from, busy instances); nothing is observed after `until_s`."""

    def __init__(self, dept: str, steps: tuple[tuple[float, float], ...], signal_s: float, until_s: float) -> None:
        self.dept, self.steps, self.signal_s, self.until_s = dept, steps, signal_s, until_s
        self._next = 0
        self._ticks = 1
        self._at = 0.0
        self._work = 0.0
        self._serving = 0
        self._busy_s = 0.0
        self._since = 0.0  # when the first instance of this interval came into service

    @property
    def due(self) -> float:
        """When the next observation is made; NEVER if the input does not reach so far."""
        due = self._ticks * self.signal_s
        return due if due <= self.until_s else NEVER

    def serve(self, serving: int, now: float) -> None:
        """From `now` on, how many instances are in service."""
        if serving != self._serving:
            self._advance(now)
            if not self._serving:
                self._since, self._busy_s = now, 0.0  # what was before the gap is not in the interval that is reported
            self._serving = serving

    def _advance(self, now: float) -> None:
        while self._next < len(self.steps) and self.steps[self._next][0] <= now:
            at, work = self.steps[self._next]
            self._add(max(at, self._at))
            self._work = work
            self._next += 1
        self._add(now)

    def _add(self, now: float) -> None:
        if self._serving:
            self._busy_s += min(1.0, self._work / self._serving) * (now - self._at)
        self._at = now

    def observe(self, now: float) -> LoadObserved | None:
        """The interval that ends at `now`; None if nothing was in service in it."""
        self._advance(now)
        start = max(self._ticks * self.signal_s - self.signal_s, self._since)
        busy_s, self._busy_s = self._busy_s, 0.0
        self._ticks += 1
        if not self._serving or now <= start:
            return None
        return LoadObserved(
            dept=self.dept, start=start, end=now, utilisation=min(1.0, busy_s / (now - start)), samples=self._serving
        )
