"""What a leader knows of one open VM beyond the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.executor.calls import Phase
from services.executor.timers import Timers, backoff_s

RETRY_S: Final = 0.05  # after a call without a useful answer; doubles
RETRY_MAX_S: Final = 5.0


@dataclass(slots=True)
class Track:
    """`phase` None: not seen yet by this leader.  `heard`: tick at which the last call about it ended."""

    key: str
    vm: int
    host: str = ""
    phase: Phase | None = None
    heard: int = 0
    busy: bool = False
    deployed: bool = False  # asked to run, and not seen on HOLD since
    refused: str = ""
    condemned: str = ""
    soft_at: float | None = None
    hard_at: float | None = None
    hard_first: float | None = None
    not_before: float = 0.0
    failures: int = 0
    unknown_since: float | None = None

    def try_later(self, now: float, timers: Timers) -> None:
        """A call gave no useful answer: wait, longer each time."""
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, RETRY_S, RETRY_MAX_S)
        timers.set(self.not_before, self.key)
