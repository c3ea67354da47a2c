"""A flood of lines of one kind displaces no other line: of each kind a burst, and then a few a second.

A log that is kept by size loses its oldest lines.  A caller that can make a process write the same line ten thousand times
could make it forget what came before.

Rules
  1. A kind is what stands in the code: the event of our lines, the unformatted text of a library's; never what a caller sent.
  2. What is left out is counted, and reported by the next line of its kind (`left_out`).  Lines for debugging are all written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from services.runtime.token_bucket import Buckets

AT_ONCE: Final = 200.0  # what a start, or the loss of all hosts at once, writes of one kind
PER_S: Final = 2.0


class Flood(logging.Filter):
    """Of a handler.  `event_of`: the kind of a record of ours, empty of others."""

    def __init__(
        self,
        event_of: Callable[[logging.LogRecord], str],
        left_out: Callable[[logging.LogRecord, int], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._event_of, self._left_out, self._now = event_of, left_out, now
        self._kinds = Buckets(PER_S, AT_ONCE)
        self._lock = threading.Lock()  # handlers ask their filters before they take theirs

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        with self._lock:
            return self._has_room(record)

    def _has_room(self, record: logging.LogRecord) -> bool:
        now = self._now()
        bucket = self._kinds.of(self._event_of(record) or f"{record.name}: {record.msg}"[:200], now)
        if not bucket.take(now):
            bucket.left_out += 1
            return False
        if bucket.left_out:
            self._left_out(record, bucket.left_out)
            bucket.left_out = 0
        return True
