"""Requests that wait at load balancers, as their signals `requests` say.  No I/O; the clock is given.

Nothing is decided on it: a queue says that something is short, not how many more instances would do.  But when requests wait,
and the rule sees no load, the bottleneck is one that it does not see, and a person is told (`web.why`, rule 4).

Rules
  1. Of several sources the sum.  A word holds until the source's next one: HELD_S, or twice as long as it measured.
  2. It is told when every signal for WAITED_S has told of a queue: what a rise leaves for a moment is nobody's business.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from schemas.signals import RequestsSignal

HELD_S: Final = 2.5  # as load (`meter`)
WAITED_S: Final = 3.0  # a new instance of the embedded cloud serves within a second


Whose: TypeAlias = tuple[str, str]  # a user, and what it calls itself


class Waiting(NamedTuple):
    requests: int
    for_s: float


class _Word(NamedTuple):
    requests: int
    until: float


class Queue:
    """Of one department."""

    def __init__(self) -> None:
        self._words: dict[Whose, _Word] = {}  # as many as the meter takes
        self._since: float | None = None

    def take(self, signal: RequestsSignal, now: float, whose: Whose) -> None:
        """A signal that counts."""
        had = self._count(now)
        self._words = {source: word for source, word in self._words.items() if word.until > now}
        if signal.queue is None:  # not known
            self._words.pop(whose, None)
        else:
            self._words[whose] = _Word(signal.queue, now + max(HELD_S, 2 * signal.interval_s))
        if not self._count(now):
            self._since = None
        elif not had or self._since is None:
            self._since = now

    def waiting(self, now: float) -> Waiting | None:
        """Rule 2."""
        count = self._count(now)
        if not count or self._since is None or now < self._since + WAITED_S:
            return None
        return Waiting(count, round(now - self._since, 1))

    def _count(self, now: float) -> int:
        return sum(word.requests for word in self._words.values() if word.until > now)
