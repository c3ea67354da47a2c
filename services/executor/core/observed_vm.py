"""What a leader knows of one open VM beyond the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.executor.core.calls import Phase
from services.executor.core.timers import Timers, backoff_s

RETRY_S: Final = 0.05  # after a call without a useful answer; doubles
RETRY_MAX_S: Final = 5.0


@dataclass(slots=True)
class ObservedVm:
    """`phase` None: not seen yet by this leader.  `heard`: tick at which the last call about it ended.  `cold`: it could not
    migrate while it runs, and is saved and deployed instead."""

    key: str
    vm: int
    host: str = ""
    phase: Phase | None = None
    heard: int = 0
    tagged: bool = False  # its tag was seen to be its attempt's (X6)
    replaced: bool = False  # another VM has its id
    hidden: bool = False  # it is there, and our user may not see or order it: a person gave it to another owner
    locked: bool = False  # a person has locked it: no end is taken
    busy: bool = False
    deployed: bool = False  # asked to run, and not seen on HOLD since
    refused: str = ""
    why: str = ""  # OpenNebula's words, if it failed
    condemned: str = ""
    soft_at: float | None = None
    hard_at: float | None = None
    hard_first: float | None = None
    hard_refusals: int = 0  # hard orders refused in a row though it was not on its way
    rests_from: int | None = None  # a look begun after this tick shows whether the last hard order has come to nothing
    rests: bool = False  # … and there was one
    saved_at: float | None = None  # the last order to save it
    said_saved: bool = False  # `vm.ended` with `suspended` is on its way: nothing is asked of it any more
    cold: bool = False
    not_before: float = 0.0
    failures: int = 0
    unknown_since: float | None = None
    one_host: int = -1  # OpenNebula's id of the host of its newest record, as seen since it was last deployed or moved

    @property
    def is_asked_to_end(self) -> bool:
        """A terminate may be on its way, or may yet do what it was asked."""
        return self.soft_at is not None or self.hard_at is not None or bool(self.condemned)

    def rebind(self, key: str, host: str) -> None:
        """It is another attempt's from now on, which wants it on `host`."""
        if host != self.host and self.phase is Phase.RUNNING:
            self.phase = Phase.ELSEWHERE
        self.key, self.host, self.deployed, self.refused, self.cold = key, host, False, "", False
        self.saved_at = self.unknown_since = None
        self.not_before, self.failures = 0.0, 0

    def try_later(self, now: float, timers: Timers) -> None:
        """A call gave no useful answer: wait, longer each time."""
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, RETRY_S, RETRY_MAX_S)
        timers.set(self.not_before, self.key)
