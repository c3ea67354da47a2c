"""Time in a shell (PROTOCOL S6): which `now` a core is given, and when a clock may not lead any more.

Rules
  1. `now` = max(own clock, fold time): a decision is never older than what it is based on.
  2. A limit is exact only if clocks agree, so each own envelope is compared with the broker's timestamp.  The broker must
     have stored it in [sent - skew_max, known stored + skew_max] on the own clock.  A slow append alone is no skew: it widens
     the interval.
  3. Rule 2 comes too late: an envelope an hour ahead has already moved the fold time of all readers.  So a candidate asks
     the broker for its time before it writes anything, and a leader looks for steps of its clock (against the monotonic one)
     before each envelope.
  4. A clock is `Callable[[], float]`, UTC seconds, so that a test can give a wrong one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

Clock = Callable[[], float]
system_clock: Final[Clock] = time.time


def decision_time(own_s: float, fold_s: float) -> float:
    """What `decide` gets, and an envelope's `at`."""
    return own_s if own_s > fold_s else fold_s


def skew_s(sent_s: float, known_stored_s: float, stored_s: float) -> float:
    """How far the broker's timestamp lies outside [sent, known stored], in seconds; 0 if inside.  Positive: the own clock is
    behind the broker's; negative: ahead."""
    if stored_s < sent_s:
        return stored_s - sent_s
    return max(0.0, stored_s - known_stored_s)


def broker_time(text: str) -> float:
    """UTC seconds of a time as the broker writes it: ``2026-11-21T11:11:23.543911964Z``.  ValueError if it is none."""
    return datetime.fromisoformat(text).timestamp()


class StepDetector:
    """Has the wall clock been set since it was trusted?"""

    def __init__(self, clock: Clock, monotonic: Clock = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._offset = math.nan

    def trust(self) -> None:
        """The clock was compared with the broker's just now."""
        self._offset = self._clock() - self._monotonic()

    def step_s(self) -> float:
        """By how much it was set since then; 0 if it was never trusted."""
        if math.isnan(self._offset):
            return 0.0
        return self._clock() - self._monotonic() - self._offset
