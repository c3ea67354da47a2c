"""The signals that follow from HAProxy's counters: differences between two readings, and levels.

Rules
  1. Rates are differences over the time between two readings.  A process that is another one, or a counter that is smaller than
     it was, has no difference: that interval has no rates, and the next one has.
  2. Response time is HAProxy's own mean over its last 1024 requests (queue, connection, head of the answer); without a request
     in the interval there is none.
  3. Answers: by instance, while a slot has its address; what it answered in its first interval is not known.
  4. Sessions: the requests that each instance works on; 0 for one without a slot.
Pure: times come in as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phoenix.balance.answers import Counts, Growth
from phoenix.haproxy.reconciler import Plan
from phoenix.haproxy.slots import Reading
from phoenix.haproxy.table import Wanted
from schemas.signals import QUEUE_MAX, AnswersSignal, RequestsSignal, SessionsSignal
from schemas.times import TimeText

DIGITS = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """A reading and when it was taken (monotonic)."""

    reading: Reading
    at: float


class Flow:
    """Remembers the reading of the last signal."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._last: Mark | None = None
        self._answers = Growth(from_zero=False)

    def requests(self, reading: Reading, now: float, at: TimeText) -> RequestsSignal | None:
        """`now`: monotonic seconds, and `at`, of the reading.  None if there are no differences (rule 1)."""
        before, self._last = self._last, Mark(reading, now)
        if before is None or now <= before.at or not _follows(before.reading, reading):
            return None
        old, new, interval_s = before.reading.counters, reading.counters, now - before.at
        served = new.requests - old.requests
        return RequestsSignal(
            rate=round(served / interval_s, DIGITS),
            queue=min(QUEUE_MAX, new.queued + sum(slot.queued for slot in reading.slots)),
            response_ms=new.response_ms if served else None,
            errors=round((new.errors - old.errors) / interval_s, DIGITS),
            refused=round(_own_errors(before.reading, reading) / interval_s, DIGITS),
            at=at,
            interval_s=round(interval_s, DIGITS),
            source=self._source,
        )

    def answers(self, wanted: Sequence[Wanted], plan: Plan, reading: Reading, at: TimeText) -> AnswersSignal | None:
        """None if no instance has answered anything."""
        held = [(one.unit, plan.holders[one.address]) for one in wanted if one.address in plan.holders]
        counts = [
            Counts((reading.pid, slot.name, slot.address), unit, slot.answered, slot.errors) for unit, slot in held
        ]
        found = self._answers.since(counts)
        return AnswersSignal(instances=dict(found), at=at, source=self._source) if found else None

    def sessions(self, wanted: Sequence[Wanted], plan: Plan, at: TimeText) -> SessionsSignal:
        found: dict[str, int] = {}
        for one in wanted:
            slot = plan.holders.get(one.address)
            found[one.unit] = found.get(one.unit, 0) + (slot.sessions if slot is not None else 0)
        return SessionsSignal(sessions=found, at=at, source=self._source)


def _own_errors(old: Reading, new: Reading) -> int:
    """Errors since `old` that HAProxy made by itself, for want of an instance with room: all but those of instances."""
    of_instances = sum(slot.errors for slot in new.slots) - sum(slot.errors for slot in old.slots)
    return max(0, new.counters.errors - old.counters.errors - max(0, of_instances))


def _follows(old: Reading, new: Reading) -> bool:
    """True if `new` is a later reading of the same process."""
    before, after = old.counters, new.counters
    return new.pid == old.pid and after.requests >= before.requests and after.errors >= before.errors
