"""Which signals are taken, and which publishers need attention because theirs are not.  No I/O; the clock is given.

Rules
  1. A signal is dropped, and counted by its name and one reason, the first that fits (`schemas.signal_drops`): what cannot be
     read or a field out of its bounds is malformed, which the codec says; not finite and absurd (the same bounds) are for what
     came without a codec; late: older than LATE_S; future: more than AHEAD_S ahead; out of order: not newer than its source's
     last; too long: it measured for longer than the rule looks at (`meter`, rule 7); implausible: of this department it
     cannot be true (`meter_known`).  What is dropped changes nothing: the next good level says all.
  2. Times count by the publisher's own clock (`at`), each signal of a source after its last; without `at` the arrival counts.
     A source is a user, which the broker has authenticated, and what it calls itself.
  3. Publishers get no answer, so dropped signals are remembered here, by signal, user and source: since when, how many, why,
     and by how much the publisher's clock is off.  After TELL_AFTER it is reported (`phoenix why`, `phoenix status`, the log).
  4. A wrong clock, or a wrong idea of the department, spoils every signal of a source: one that is taken ends that trouble.
     Signals out of order come between good ones (two programs under one name): that trouble ends when none was dropped for
     SILENT_S, as all do.
  5. At most TROUBLES_MAX are remembered; the one that was silent for longest makes room.
  6. Of a user, what exceeds BYTES_PER_S of one signal is not even read (`affords`), since that costs the scheduler's time, nor
     what its line has folded away (`runtime.signal_line`): too often.  No user takes another's room.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import msgspec

from schemas import reasons as because
from schemas import signals as s
from schemas.signal_drops import CLOCK, Drop
from services.runtime.token_bucket import Buckets

SOURCES_MAX: Final = 64  # publishers of one signal under one user
SESSIONS_MAX: Final = 100_000  # instances that all sources of sessions name: about 10 MB
SILENT_S: Final = 60.0  # a source is forgotten
# Sessions of 100,000 instances once a second are 2 MB.  A MB of them takes 30 ms to read: an eighth of the scheduler's time.
BYTES_PER_S: Final = 4 << 20
TELL_AFTER: Final = 5  # one that was late now and then needs no attention
TROUBLES_MAX: Final = 64
NOTE_MAX: Final = 200  # characters

_Whose: TypeAlias = tuple[str, str, str]  # signal, user, source
_Bounded = tuple[float | None, float, float]  # a number of a signal, and its bounds


def refusal(signal: s.AnySignal, at: float, now: float, last: float | None) -> Drop | None:
    """Rules 1 and 2; `last`: `at` of its source's last signal, None if it is not known."""
    numbers = _numbers(signal)
    if any(isinstance(number, float) and not math.isfinite(number) for number, _, _ in numbers):
        return Drop.NOT_FINITE
    if any(number is not None and not low <= number <= high for number, low, high in numbers):
        return Drop.ABSURD
    if at < now - s.LATE_S:
        return Drop.LATE
    if at > now + s.AHEAD_S:
        return Drop.FUTURE
    return Drop.OUT_OF_ORDER if last is not None and at <= last else None


def _numbers(signal: s.AnySignal) -> list[_Bounded]:
    """Those that count."""
    if isinstance(signal, s.ClaimSignal):
        return [(signal.instances, 0, s.INSTANCES_MAX)]
    if isinstance(signal, s.SessionsSignal):
        return [(count, 0, s.QUEUE_MAX) for count in signal.sessions.values()]
    if isinstance(signal, s.AnswersSignal):
        return [(count, 0, s.QUEUE_MAX) for counts in signal.instances.values() for count in counts]
    interval = (signal.interval_s, s.INTERVAL_MIN_S, s.INTERVAL_MAX_S)
    if isinstance(signal, s.CpuSignal):
        return [interval, (signal.utilisation, 0, s.UTILISATION_MAX), (signal.instances, 0, s.INSTANCES_MAX)]
    return [interval, (signal.rate, 0, s.RATE_MAX), (signal.target, s.TARGET_MIN, s.RATE_MAX)]


class Trouble(msgspec.Struct, kw_only=True):
    """A publisher whose signals are dropped (rule 3).  `off_s`: its clock minus ours."""

    signal: str
    user: str
    source: str
    why: Drop
    since: float
    last: float = 0.0
    count: int = 0
    off_s: float = 0.0
    note: str = ""

    @property
    def told(self) -> bool:
        return self.count >= TELL_AFTER

    def params(self) -> dict[str, Any]:
        """As a reason has them."""
        found: dict[str, Any] = {"signal": self.signal, "why": str(self.why), "count": self.count}
        if self.user:
            found["user"] = self.user
        if self.source:
            found["source"] = self.source
        if self.why in CLOCK:
            found["off_s"] = round(self.off_s, 1)
        if self.note:
            found["note"] = self.note
        return found

    def __str__(self) -> str:
        return because.SignalsDropped(**self.params()).sentence()


class Gate:
    def __init__(self) -> None:
        self.taken: dict[str, int] = {}  # by signal
        self.dropped: dict[tuple[str, str], int] = {}  # by signal and reason
        self._troubles: dict[_Whose, Trouble] = {}  # who was dropped last at the end
        self._bytes = Buckets(BYTES_PER_S, BYTES_PER_S)  # by signal and user

    def affords(self, name: str, user: str, size: int, now: float) -> bool:
        """Rule 6."""
        return self._bytes.of(f"{name}.{user}", now).take(now, size)

    def took(self, name: str, user: str, source: str) -> None:
        self.taken[name] = self.taken.get(name, 0) + 1
        trouble = self._troubles.get((name, user, source))
        if trouble is not None and trouble.why in (*CLOCK, Drop.IMPLAUSIBLE):  # rule 4
            del self._troubles[name, user, source]

    def drop(
        self,
        name: str,
        why: Drop,
        now: float,
        *,
        user: str = "",
        source: str = "",
        off_s: float = 0.0,
        note: str = "",
        count: int = 1,
    ) -> Trouble | None:
        """Count them.  Returns what is to be reported for the first time."""
        self.dropped[name, why] = self.dropped.get((name, why), 0) + count
        trouble = self._troubles.pop((name, user, source), None)
        if trouble is None or trouble.why is not why or now - trouble.last > SILENT_S:
            trouble = Trouble(signal=name, user=user, source=source, why=why, since=now)
        known = trouble.told
        trouble.last, trouble.off_s, trouble.note = now, off_s, note[:NOTE_MAX]
        trouble.count += count
        if len(self._troubles) >= TROUBLES_MAX:  # rule 5
            del self._troubles[next(iter(self._troubles))]
        self._troubles[name, user, source] = trouble
        return trouble if trouble.told and not known else None

    def troubles(self, now: float) -> list[Trouble]:
        """Those to be reported, by signal, user and source."""
        return [one for _, one in sorted(self._troubles.items()) if one.told and now - one.last <= SILENT_S]
