"""What became of each request of a run, and the moments that matter.

Rules
  1. Every request of the plan that was due has exactly one outcome; none is dropped, repeated or hidden.
  2. `due` is when it was intended, `taken` when the generator took it up, `sent` when its bytes went to the kernel, `ended`
     when its answer was whole or it failed: seconds from the beginning of the run, NaN for what never came.
  3. Latency is `ended - due`.  A request that waits because the generator or a connection was late is late all the same: this
     is what measuring from the sending would hide (G. Tene's "coordinated omission").
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from phoenix.load.curve import FRESH, POST, Plan


class Outcome(IntEnum):
    """How a request ended."""

    UNDECIDED = 0  # not due when the run was interrupted; in no count
    ANSWERED = 1  # a whole answer with a status below 400
    STATUS = 2  # a whole answer with 400 or more
    NOT_SENT = 3  # every connection that the generator may open was busy
    REFUSED = 4  # no connection could be opened
    CLOSED = 5  # the connection ended before the answer was whole
    TIMEOUT = 6  # no whole answer in time, counted from when it was due
    MALFORMED = 7  # what came back is not HTTP/1.1
    ABANDONED = 8  # under way when the run was interrupted


NAN = float("nan")


class Row(NamedTuple):
    """One request."""

    due: float
    taken: float
    sent: float
    ended: float
    outcome: Outcome
    status: int  # 0: no answer
    fresh: bool
    post: bool


class Record:
    """A run, request by request."""

    def __init__(self, plan: Plan) -> None:
        count = len(plan.due)
        self.plan = plan
        self.began_at = 0.0  # UTC seconds of the run's 0
        self.seconds = 0.0  # until the last one ended
        self.taken = array("d", [NAN]) * count
        self.sent = array("d", [NAN]) * count
        self.ended = array("d", [NAN]) * count
        self.outcomes = bytearray(count)
        self.statuses = array("H", [0]) * count
        self.connections = 0  # opened in all
        self.connections_most = 0  # at once
        self.cpu_s = 0.0  # of the generator's process, from the first arrival to the last end
        self.interrupted = False

    def rows(self) -> Iterator[Row]:
        """Those that were due."""
        for index, outcome in enumerate(self.outcomes):
            if outcome != Outcome.UNDECIDED:
                flags = self.plan.flags[index]
                yield Row(
                    self.plan.due[index],
                    self.taken[index],
                    self.sent[index],
                    self.ended[index],
                    Outcome(outcome),
                    self.statuses[index],
                    bool(flags & FRESH),
                    bool(flags & POST),
                )


def kind(row: Row) -> str:
    """The name of an outcome, for tables: `answered`, a failure's kind, or the status of a refusal."""
    if row.outcome is Outcome.STATUS:
        return f"status-{row.status}"
    return row.outcome.name.lower().replace("_", "-")
