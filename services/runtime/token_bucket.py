"""A token bucket: so much a second, and so much at once after a pause.  No clock: times come in as arguments."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

CALLERS_MAX: Final = 10_000  # buckets kept; an idle one is full again, so forgetting it changes nothing


class Bucket:
    """It is full at `now`.  `left_out`: for callers that count what was not granted."""

    __slots__ = ("_at", "_burst", "_level", "_rate", "left_out")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._level, self._at = rate, burst, burst, now
        self.left_out = 0

    def take(self, now: float, amount: float = 1.0) -> bool:
        """True if there is so much, and then it is taken.  A clock that is set back gives nothing, and takes nothing."""
        if not self.has(now, amount):
            return False
        self._level -= amount
        return True

    def has(self, now: float, amount: float = 1.0) -> bool:
        """True if there is so much; it is not taken."""
        self._level = min(self._burst, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._level >= amount

    def wait_s(self, now: float, amount: float = 1.0) -> float:
        """Seconds until there is so much, or, of more than it ever holds, until it is full."""
        self.has(now)
        return max(0.0, min(amount, self._burst) - self._level) / self._rate


class Buckets:
    """One bucket a caller, the least recently seen forgotten first."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, caller: str, now: float) -> Bucket:
        found = self._of.get(caller)
        if found is None:
            found = self._of[caller] = Bucket(self._rate, self._burst, now)
            if len(self._of) > CALLERS_MAX:
                self._of.popitem(last=False)
        else:
            self._of.move_to_end(caller)
        return found
