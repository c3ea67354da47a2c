"""A floor by the clock: at least this many instances at these hours, whatever the load, for load that is known beforehand.

As the scheduled scaling of cloud providers and KEDA's cron scaler; here a floor beside the rule, never a number instead of it.

Rules
  1. The floor is the greatest of the entries that hold at `now`; 0 if none does.  From its begin on an entry holds, at its end
     it does not any more.
  2. It is a function of `now` and the configuration alone.  `wake_at` names the next begin or end, so that the core decides
     there though no fact arrives.
  3. For instances that are needed at 08:00 and boot for two minutes the entry begins at 07:58.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.domain.core import NEVER
from services.domain.scaling import WEEK_MIN, ZONE_ANY_H, Span, Unreadable, offset_s, spans

_WEEK_S: Final = WEEK_MIN * 60
_MONDAY_S: Final = 3 * 86_400  # the epoch was a Thursday: its week had begun so long before


class Timetable:
    """Entries of the configuration.  What cannot be read is left out: the file's checks have refused it."""

    def __init__(self, entries: Sequence[str], zone: str) -> None:
        self.spans: list[Span] = []
        for entry in entries:
            try:
                self.spans += spans(entry)
            except Unreadable:
                continue
        try:
            self.shift_s = offset_s(zone, ZONE_ANY_H) + _MONDAY_S
        except Unreadable:
            self.shift_s = _MONDAY_S

    def floor(self, now: float) -> tuple[int, float]:
        """Rule 1, and until when the greatest holds."""
        found, until = 0, NEVER
        for span in self.spans:
            begin = self._begin(span, now)
            end = begin + (span.end - span.begin) * 60
            if now < end and (span.floor, end) > (found, until if found == span.floor else 0.0):
                found, until = span.floor, end
        return found, until

    def wake_at(self, now: float) -> float:
        """Rule 2: the next begin or end after `now`."""
        edges = [NEVER]
        for span in self.spans:
            begin = self._begin(span, now)
            end = begin + (span.end - span.begin) * 60
            edges.append(end if now < end else begin + _WEEK_S)  # a span is shorter than a week
        return min(edges)

    def _begin(self, span: Span, now: float) -> float:
        """The last time, until `now`, at which the span began: a whole number of seconds, so that comparisons are exact."""
        first = span.begin * 60 - self.shift_s
        return float(first + (now - first) // _WEEK_S * _WEEK_S)
