"""A token bucket: so much a second, and so much at once after a pause.  No clock: times come in as arguments."""

from __future__ import annotations


class Bucket:
    """It is full at `now`.  `left_out`: for whoever counts what was not granted."""

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
