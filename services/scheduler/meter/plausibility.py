"""What there is of the department, as far as it bounds what can be said of it.  No I/O; the clock is given.

Rules
  1. A source that counts more instances than exist is wrong, or lies, and would outvote all others: its signal is dropped, not
     cut to what exists, since it is unknown what its mean is of.  An honest publisher is off for a moment, when some have just
     ended: as many as existed within MOMENT_S count as existing.  If it is off for longer, its next good signal counts again.
  2. An instance that never existed is implausible.  One that has ended may still be named by a source: that is passed over.
  3. A target TARGET_OFF_MAX times smaller or larger than the department's own is a mistake of the one or the other.  Where the
     configuration has none, the publisher's word is all that there is; of several, each counts for its own rate (`meter`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas import signals as s

MOMENT_S: Final = 10.0  # a signal may be 5 s old when it arrives, and have measured before that
TARGET_OFF_MAX: Final = 10.0


class Known(NamedTuple):
    """`instances`: that exist, or did a moment ago; `last`: the highest number that one has had; `target`: the configuration's
    `requests_per_instance`, 0 without one."""

    instances: int
    last: int
    target: float = 0.0


class Existing:
    """How many instances there are, or were within MOMENT_S (rule 1)."""

    def __init__(self) -> None:
        self._most, self._at = 0, 0.0

    def most(self, instances: int, now: float) -> int:
        """`instances`: those of this moment."""
        if instances >= self._most or now > self._at + MOMENT_S:
            self._most, self._at = instances, now
        return self._most


def implausible(signal: s.AnySignal, department: str, known: Known) -> str:
    """What in it cannot be, for people; empty: nothing."""
    if isinstance(signal, s.CpuSignal):
        return _too_many(signal.instances or 0, known.instances)
    if isinstance(signal, s.RequestsSignal):
        return _off(signal.target, known.target)
    if isinstance(signal, s.SessionsSignal):
        return _never_was(signal.sessions, department, known.last)
    if isinstance(signal, s.AnswersSignal):
        return _never_was(signal.instances, department, known.last) or _too_many_errors(signal)
    return ""


def _too_many(counted: int, instances: int) -> str:
    return f"it counts {counted} instances, and there are {instances}" if counted > instances else ""


def _off(target: float | None, own: float) -> str:
    if target is None or not own or own / TARGET_OFF_MAX <= target <= own * TARGET_OFF_MAX:
        return ""
    return f"its target is {target:g} requests/s, and requests_per_instance is {own:g}"


def _too_many_errors(signal: s.AnswersSignal) -> str:
    for name, (answered, errors) in signal.instances.items():
        if errors > answered:
            return f"it counts {errors} errors among {answered} answers of {name}"
    return ""


def _never_was(names: Iterable[str], department: str, last: int) -> str:
    for name in names:
        dept, _, number = name.partition(".")
        if dept != department or not number.isdecimal() or not 1 <= int(number) <= last:
            return f"it names {name}, which never was an instance of {department}"
    return ""
