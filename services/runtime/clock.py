"""Time in a shell (PROTOCOL S6): which `now` a core is given, and when a clock may not lead any more.

Rules
  1. `now` = max(own clock, fold time): a decision is never older than what it is based on.
  2. A limit is exact only if clocks agree, so each own envelope is compared with the broker's timestamp.  The broker must
     have stored it in [sent - skew_max, known stored + skew_max] on the own clock.  A slow append alone is no skew: it widens
     the interval.
  3. A clock is `Callable[[], float]`, UTC seconds, so that a test can give a wrong one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
