"""A loop that looks again at a time: an alarm that is set again after each look, and as a rule for a later time.

Rule: it rings at the time that it was set for last, or before.  The loop that it wakes looks, and sets it again; so to put it
off costs nothing, where a timer that is cancelled and recreated after each fact is a hundredth of what a service does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """`ring` is called from the event loop, once for each time that it was set, at most."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._fire)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._ring()
