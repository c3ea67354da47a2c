"""When a call is repeated, and after which pause.  Pure: the caller has the clock, and the randomness.

Rules
  1. A READ changes nothing.  A change with a request id is SAFE to repeat, because the cloud does it once however often it
     arrives; so is one that asks for a state (cancel, hold, cordon).  Every other change is repeated only where it has
     certainly not happened (ONCE): it was never sent, or it was refused for now (429).
  2. A call is repeated after each of `PAUSES_S`, and then given up.  But a change that was sent and not answered is repeated
     until the time is up: its caller wants to know whether it has happened, and admission may be starting again.
  3. A pause is at least as long as the cloud asks for (`Retry-After`), and ends before the time is up; otherwise there is none.
  4. Pauses are up to a quarter longer by chance, so that the clients of a cloud that starts again do not come all at once.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)  # a restart of admission takes about a second
SPREAD: Final = 0.25


class Repeat(Enum):
    READ = "nothing happens by it"
    SAFE = "however often it arrives, it is done once"
    ONCE = "it could happen twice"


class Failure(Enum):
    """Of one try."""

    UNSENT = "there was no connection"
    UNANSWERED = "it was sent, and no answer came"
    BUSY = "refused for now, and not done (429)"
    UNAVAILABLE = "the cloud cannot answer now (5xx)"


class Plan:
    """The tries of one call.  `unanswered`: it is a change, and one of them was sent and not answered."""

    def __init__(self, repeat: Repeat) -> None:
        self.repeat = repeat
        self.unanswered = False
        self._failed = 0

    def pause_s(
        self, failure: Failure, left_s: float, retry_after_s: float | None = None, chance: float = 0.0
    ) -> float | None:
        """Seconds until the next try; None: give up.  `left_s`: of the call's time; `chance`: 0 to 1 (rule 4)."""
        self.unanswered |= failure is Failure.UNANSWERED and self.repeat is not Repeat.READ
        self._failed += 1
        if self.repeat is Repeat.ONCE and failure not in (Failure.UNSENT, Failure.BUSY):
            return None
        if self._failed > len(PAUSES_S) and not self.unanswered:
            return None
        pause_s = PAUSES_S[min(self._failed, len(PAUSES_S)) - 1] * (1 + SPREAD * chance)
        pause_s = max(pause_s, retry_after_s or 0.0)
        return pause_s if pause_s < left_s else None
