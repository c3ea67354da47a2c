"""What instances answer, as the signals `answers` of load balancers say it, summed by release.  No I/O; the clock is given.

Rules
  1. An instance's answers are its release's.  Of one that is not in service nothing counts.
  2. Counted is by the time at which a signal comes, in entries of ENTRY_S; those of the last KEPT_S are kept.
  3. An observation of the load tells what has come since the last one that told any, while a release is watched; else only if
     some of it were errors.  The first one of a roll-out begins KEPT_S before: that is what the release before is measured by.
  4. Failing is a release of which ERRORS_MIN answers in the last RECENT_S, and a share of MARGIN of them, were errors: the same
     numbers as of one that is worse than another (`web.answers`), without another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from schemas.facts import Answers
from schemas.facts_instances import RELEASES_MAX
from schemas.signals import AnswersSignal
from services.scheduler.core.web.answers import ERRORS_MIN, MARGIN, Sum

KEPT_S: Final = 60.0  # before a roll-out: long enough for a service of one request a second
ENTRY_S: Final = 1.0
RECENT_S: Final = 20.0  # the usual window


class Failing(NamedTuple):
    release: int
    answered: int
    errors: int
    over_s: float


class _Entry(msgspec.Struct):
    begin: float
    is_told: bool = False
    counts: dict[int, Sum] = {}


class Answered:
    """Of one department.  `release_of`: what an instance runs, and whether that is what all are to run; None: it does not
    count."""

    def __init__(self) -> None:
        self.release_of: Callable[[str], tuple[int, bool] | None] = lambda _unit: None
        self.counted: dict[bool, Sum] = {True: Sum(0, 0), False: Sum(0, 0)}  # since the process began
        self._entries: deque[_Entry] = deque()

    def take(self, signal: AnswersSignal, now: float) -> None:
        """A signal that counts."""
        entry = self._entry(now)
        for unit, (answered, errors) in signal.instances.items():
            of = self.release_of(unit)
            if of is not None:
                release, is_wanted = of
                more = Sum(answered, min(errors, answered))
                entry.counts[release] = _plus(entry.counts.get(release), more)
                self.counted[is_wanted] = _plus(self.counted[is_wanted], more)

    def _entry(self, now: float) -> _Entry:
        """Rule 2: that of this moment."""
        while self._entries and self._entries[0].begin <= now - KEPT_S:
            self._entries.popleft()
        if not self._entries or self._entries[-1].is_told or self._entries[-1].begin + ENTRY_S <= now:
            self._entries.append(_Entry(now))
        return self._entries[-1]

    def observed(self, told_at: float, is_watched: bool, now: float) -> tuple[tuple[Answers, ...], float]:
        """Rule 3: answers by release, and for how long they were counted.  `told_at`: when the journal told some last; 0: of
        this roll-out never."""
        since = max(told_at, now - KEPT_S)
        fresh = [one for one in self._entries if one.begin > now - KEPT_S]
        if told_at:  # what another leader has told is not marked here
            fresh = [one for one in fresh if not one.is_told and one.begin > told_at - ENTRY_S]
        found = _summed(fresh)
        if not found or not (is_watched or any(sum_.errors for sum_ in found.values())):
            return (), 0.0
        for one in fresh:
            one.is_told = True
        newest = sorted(found, reverse=True)[:RELEASES_MAX]
        answers = [
            Answers(release=release, answered=found[release].answered, errors=found[release].errors)
            for release in newest
        ]
        return tuple(answers), round(now - since, 3)

    def failing(self, now: float) -> list[Failing]:
        """Rule 4, by number."""
        recent = [one for one in self._entries if one.begin > now - RECENT_S]
        return [
            Failing(release, *one, RECENT_S)
            for release, one in sorted(_summed(recent).items())
            if one.errors >= ERRORS_MIN and one.share >= MARGIN
        ]


def _summed(entries: list[_Entry]) -> dict[int, Sum]:
    found: dict[int, Sum] = {}
    for entry in entries:
        for release, one in entry.counts.items():
            found[release] = _plus(found.get(release), one)
    return found


def _plus(one: Sum | None, more: Sum) -> Sum:
    return more if one is None else Sum(one.answered + more.answered, one.errors + more.errors)
