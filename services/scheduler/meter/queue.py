"""Requests that wait at load balancers or are turned away by them, as signals `requests` report.  No I/O; the clock is given.

Nothing is decided on it: a queue shows that something is short, not how many more instances would do.  But when requests wait,
and the rule sees no load, the bottleneck is one that it does not see; and a request that is turned away is not served, whatever
the rule sees.  Both are reported to people (`web.why`, rules 4 and 7).

Rules
  1. Of several sources the sum.  A word holds until the source's next one: HELD_S, or twice as long as it measured.
  2. It is reported when every signal for WAITED_S has had some: what a rise leaves for a moment needs no attention.
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


class Refused(NamedTuple):
    """`rate`: requests/s."""

    rate: float
    for_s: float


class _Word(NamedTuple):
    number: float
    until: float


class _Some:
    """One number of these signals, by source; as many as the meter takes."""

    def __init__(self) -> None:
        self._words: dict[Whose, _Word] = {}
        self._since: float | None = None

    def take(self, whose: Whose, number: float | None, until: float, now: float) -> None:
        """`number`: None if the source does not know it."""
        had = self._sum(now)
        self._words = {one: word for one, word in self._words.items() if word.until > now}
        if number is None:
            self._words.pop(whose, None)
        else:
            self._words[whose] = _Word(number, until)
        if not self._sum(now):
            self._since = None
        elif not had or self._since is None:
            self._since = now

    def told(self, now: float) -> tuple[float, float] | None:
        """Rule 2: how much, and for how long."""
        found = self._sum(now)
        if not found or self._since is None or now < self._since + WAITED_S:
            return None
        return found, round(now - self._since, 1)

    def _sum(self, now: float) -> float:
        return sum(word.number for word in self._words.values() if word.until > now)


class Queue:
    """Of one department."""

    def __init__(self) -> None:
        self._waiting, self._refused = _Some(), _Some()

    def take(self, signal: RequestsSignal, now: float, whose: Whose) -> None:
        """A signal that counts."""
        until = now + max(HELD_S, 2 * signal.interval_s)
        self._waiting.take(whose, signal.queue, until, now)
        self._refused.take(whose, signal.refused, until, now)

    def waiting(self, now: float) -> Waiting | None:
        found = self._waiting.told(now)
        return None if found is None else Waiting(round(found[0]), found[1])

    def refused(self, now: float) -> Refused | None:
        found = self._refused.told(now)
        return None if found is None else Refused(round(found[0], 1), found[1])
