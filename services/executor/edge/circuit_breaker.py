"""How OpenNebula answers, over all calls and polls: when to retry, and what to report to the operators.

Theory of operation
  Every answer and every failure passes here.  *Down* is: the last result was a failure which shows that nothing there works
  as OpenNebula (`call_errors`, `away`); one answer ends it.  *Hindered* is: OpenNebula answers, and refuses the same of
  every VM; the next success of that method ends it, or that no call has met it for FADES_S.

Rules
  1. While it is down calls pause, longer with each failure in a row (`call_errors.pause_s`), and resume with the first answer.
  2. The log reports the first failure of a kind, again each TELL_AGAIN_S while it lasts, and its end: never each one.
  3. `ailing` is reported only after TELL_AFTER_S: a lost connection now and then needs no attention.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from services.executor.core.call_errors import RULES, Failure, pause_s
from services.runtime.log import Log

TELL_AGAIN_S: Final = 60.0
FADES_S: Final = 90.0  # what is still wanted is tried again within 30 s
TELL_AFTER_S: Final = 2.0  # longer than a restart of the embedded server; a restart of oned may be reported


class Trouble(NamedTuple):
    """`since`, `last`: monotonic seconds; `method`: what was asked."""

    failure: Failure
    method: str
    since: float
    why: str
    last: float


class Endpoint:
    """`clock`: monotonic seconds; `utc`: UTC seconds."""

    def __init__(
        self,
        url: str,
        auth_file: Path,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._auth_file, self._log, self._clock, self._utc = url, auth_file, log, clock, utc
        self.user = ""
        self.broke: Callable[[], None] = lambda: None  # called when connections fail: not if an answer is only late
        self.counts: Counter[Failure] = Counter()
        self.down: Trouble | None = None
        self.down_since = 0.0  # UTC; 0: it answers
        self._hindered: dict[Failure, Trouble] = {}
        self._row = 0  # failures since the last answer
        self._paused_until = 0.0
        self._told: dict[Failure, float] = {}

    def answered(self, method: str) -> None:
        """OpenNebula did what it was asked."""
        self.heard()
        for failure in [k for k, trouble in self._hindered.items() if trouble.method == method]:
            del self._hindered[failure]
            self._told.pop(failure, None)
            self._log.info("OpenNebula accepts again what it refused", method=method, failure=failure)

    def hindered(self) -> dict[Failure, Trouble]:
        """What all VMs are refused for now."""
        now = self._clock()
        self._hindered = {k: trouble for k, trouble in self._hindered.items() if now - trouble.last < FADES_S}
        return self._hindered

    def heard(self) -> None:
        """OpenNebula has answered, if only to refuse."""
        if self.down is not None:
            seconds = round(self._clock() - self.down.since, 1)
            self._log.info("OpenNebula answers again", after_s=seconds, failures=self._row)
            for failure in [k for k in self._told if RULES[k].away]:
                del self._told[failure]
        self.down, self.down_since, self._row, self._paused_until = None, 0.0, 0, 0.0

    def failed(self, failure: Failure, method: str, why: str) -> None:
        """A call ended otherwise."""
        self.counts[failure] += 1
        rule, now = RULES[failure], self._clock()
        if not rule.away:
            self.heard()
            if rule.most_s >= RULES[Failure.QUOTA].most_s:
                since = self._hindered[failure].since if failure in self.hindered() else now
                self._hindered[failure] = Trouble(failure, method, since, why, now)
                self._tell(failure, why, now)
            return
        if self.down is None or self.down.failure is not failure:
            since = self.down.since if self.down is not None else now
            self.down = Trouble(failure, method, since, why, now)
            self.down_since = self.down_since or self._utc()
        if failure not in (Failure.TIMEOUT, Failure.LOGIN):
            self.broke()
        self._row += 1
        self._paused_until = now + pause_s(failure, self._row)
        self._tell(failure, why, now)

    def paused_s(self) -> float:
        """How long nothing should be asked; 0: at once."""
        return max(0.0, self._paused_until - self._clock())

    def retry_now(self) -> None:
        """What was wrong may have been mended."""
        self._row, self._paused_until = 0, 0.0

    def ailing(self) -> list[str]:
        """Sentences for the operators; none if all is well."""
        troubles = [*([self.down] if self.down is not None else ()), *self.hindered().values()]
        now = self._clock()
        return [self.sentence(t.failure, t.why) for t in troubles if now - t.since >= TELL_AFTER_S]

    def sentence(self, failure: Failure, why: str) -> str:
        fields = {"url": self._url, "user": self.user, "auth_file": self._auth_file, "why": why}
        return RULES[failure].advice.format(**fields)

    def _tell(self, failure: Failure, why: str, now: float) -> None:
        if now - self._told.get(failure, -TELL_AGAIN_S) < TELL_AGAIN_S:
            return
        self._told[failure] = now
        self._log.warning(self.sentence(failure, why), failure=failure)
