"""The meter of the web scheduler's edge: signals in, one observation out.  No I/O; the clock is given.

Theory of operation
  Each source's signals are averaged over the time since the last observation, weighted by how long each measured.  Sources that
  say of how many instances they speak share the department between them: they are averaged, weighted by that number.  A source
  that does not say speaks of the whole department.  The highest of these words counts: an idle balancer must not outvote a
  person or a second balancer that sees the rush.  An observation begins where the last one ended, so that observations cover
  time without seams; after a silence it begins with the first signal.

Rules
  1. A signal is dropped, and counted by reason: malformed (by the codec); not finite; late (older than LATE_S); from the
     future (more than AHEAD_S); out of order or repeated (not newer than its source's last one).
  2. At most SOURCES_MAX sources are told apart; a source that is silent for SILENT_S is forgotten.  More are dropped.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from schemas.facts import LoadObserved
from schemas.signals import CpuSignal

LATE_S: Final = 5.0  # a quarter of the usual window: older news would tell of another load
AHEAD_S: Final = 1.0  # twice the clock difference at which services stop (S6)
SOURCES_MAX: Final = 64  # balancers of one department
SILENT_S: Final = 60.0
SEAM_S: Final = 2.5  # observations of one a second, one of them late: still without a seam


class _Source(msgspec.Struct):
    at: float = 0.0  # of its last signal
    sum: float = 0.0  # utilisation · seconds since the last observation
    seconds: float = 0.0
    samples: int = 0
    instances: int | None = None


class Meter:
    def __init__(self, department: str) -> None:
        self.department = department
        self.sources: dict[str, _Source] = {}
        self.dropped: dict[str, int] = {}
        self.taken = 0
        self._ended = 0.0  # of the last observation
        self._first = math.inf  # begin of the first signal since
        self._last = 0.0

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def take(self, signal: CpuSignal, now: float) -> bool:
        """False if it was dropped (rule 1)."""
        at = now if signal.at is None else signal.at
        reason = self._refusal(signal, at, now)
        if reason:
            self.drop(reason)
            return False
        source = self.sources.setdefault(signal.source, _Source())
        source.at = at
        source.sum += signal.utilisation * signal.interval_s
        source.seconds += signal.interval_s
        source.samples += 1
        source.instances = signal.instances
        self._first = min(self._first, at - signal.interval_s)
        self._last = max(self._last, at)
        self.taken += 1
        return True

    def _refusal(self, signal: CpuSignal, at: float, now: float) -> str:
        if not (math.isfinite(signal.utilisation) and math.isfinite(at) and math.isfinite(signal.interval_s)):
            return "not_finite"
        if signal.utilisation < 0 or signal.interval_s <= 0:
            return "absurd"
        if at < now - LATE_S:
            return "late"
        if at > now + AHEAD_S:
            return "future"
        known = self.sources.get(signal.source)
        if known is not None:
            return "out_of_order" if at <= known.at else ""
        self._forget_silent(now)
        return "too_many_sources" if len(self.sources) >= SOURCES_MAX else ""

    def _forget_silent(self, now: float) -> None:
        self.sources = {name: s for name, s in self.sources.items() if s.at > now - SILENT_S}

    @property
    def pending(self) -> bool:
        """True if there is something to observe."""
        return any(source.samples for source in self.sources.values())

    def observation(self, now: float) -> LoadObserved | None:
        """What has been measured since the last observation, without taking it out; None if there is nothing."""
        heard = [source for _, source in sorted(self.sources.items()) if source.samples]
        end = min(self._last, now)
        start = self._ended if self._first - self._ended < SEAM_S else self._first
        if not heard or end <= start:
            return None
        return LoadObserved(
            dept=self.department,
            start=start,
            end=end,
            utilisation=min(_highest(heard), 1e6),
            samples=sum(source.samples for source in heard),
        )

    def observed(self, fact: LoadObserved) -> None:
        """`fact` is in the journal: begin anew where it ended."""
        self._ended, self._first = fact.end, math.inf
        for source in self.sources.values():
            source.sum = source.seconds = 0.0
            source.samples = 0


def _highest(heard: list[_Source]) -> float:
    """The shared word of those that name their instances, or the word of one that speaks of all: the highest."""
    shares = [(s.instances, s.sum / s.seconds) for s in heard if s.instances]
    words = [s.sum / s.seconds for s in heard if not s.instances]
    if shares:
        words.append(sum(n * mean for n, mean in shares) / sum(n for n, _ in shares))
    return max(words)
