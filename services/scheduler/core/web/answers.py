"""Whether a release answers its users worse than the one that it replaces.  Pure functions of levels.

Theory of operation
  Load balancers count what instances answer, and how much of it is 5xx or a broken connection; `load.observed` reports it by
  release.  A health path may be well while every user gets an error, so these counts decide on their own: a release that is
  worse than the one before is given up (`web.release`, rule 10).

Rules
  1. *Watched* is a release that was deployed, not one that was rolled back to: while it rolls, and for `errors_watch_s` after
     it was complete.  The one before is the last complete one, to which it would be rolled back; without one nothing is judged.
  2. Of each of the two count the answers of its own last `errors_watch_s` since the roll-out began; for the one before also
     what it answered in the minute before that.
  3. It is worse if it made at least ERRORS_MIN errors, in at least SECONDS_MIN different seconds (what is open on a host that
     is lost breaks in one), and their share exceeds that of the one before by MARGIN, and is more than TIMES as high.  Of the
     one before GRACE errors more are assumed than it made: a release that has answered little may have been lucky, and one that
     has answered nothing is no measure.  So equal releases are told apart less than once in a thousand
     (`tests/unit/test_web_answers.py`), and where a third of all fails already no release is blamed.
  4. Nothing here depends on the time of the decision: silence changes no verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas import reasons as because
from schemas.facts import Answers
from schemas.reasons import Reason
from services.scheduler.core.web.release import Roll, before

ERRORS_MIN: Final = 10  # with fewer a share is an anecdote; a service of some requests/s makes them within seconds
SECONDS_MIN: Final = 3  # what breaks in one moment may be reported by two observations
MARGIN: Final = 0.05  # a service of which one request in twenty fails does so for all who use it twenty times
TIMES: Final = 3  # with 2, equal releases would be told apart once in a hundred
GRACE: Final = 3  # the rule of three: 0 errors of n are compatible with a share of 3/n
SECOND_S: Final = 1.0  # observations come once a second, a hurried one sooner


class Bucket(NamedTuple):
    """What was answered in a second or more: from `since` to `at`."""

    since: float
    at: float
    answered: int
    errors: int


Record = dict[int, list[Bucket]]  # release -> the oldest first


class Sum(NamedTuple):
    answered: int
    errors: int

    @property
    def share(self) -> float:
        return self.errors / self.answered if self.answered else 0.0


def watched(roll: Roll, complete_at: float, watch_s: float, now: float) -> bool:
    """Rule 1."""
    if not watch_s or roll.wanted != roll.asked or roll.given_up is not None or before(roll) is None:
        return False
    return roll.stage == "rolling" or (roll.stage == "complete" and now < complete_at + watch_s)


def follow(record: Record, roll: Roll, told: Iterable[Answers], span_s: float, at: float, watch_s: float) -> Record:
    """The record with an observation of `span_s` until `at` in it, of a roll that is watched (rule 2)."""
    found = dict(record)
    for one in told:
        if one.answered and one.release in (roll.wanted, before(roll)):
            had = found.get(one.release, [])
            kept = [bucket for bucket in _with(had, one, span_s, at) if bucket.at > at - watch_s]
            found[one.release] = kept
    return found


def _with(had: list[Bucket], one: Answers, span_s: float, at: float) -> list[Bucket]:
    errors = min(one.errors, one.answered)
    if had and at < had[-1].since + SECOND_S:
        last = had[-1]
        return [*had[:-1], Bucket(last.since, at, last.answered + one.answered, last.errors + errors)]
    return [*had, Bucket(at - span_s, at, one.answered, errors)]


def worse(record: Record, roll: Roll) -> Reason | None:
    """Rule 3: why the wanted release is to be given up; None if it is not."""
    back = before(roll)
    if back is None or roll.given_up is not None or roll.wanted != roll.asked:
        return None
    mine, others = record.get(roll.wanted, []), record.get(back, [])
    new, old = total(mine), total(others)
    if sum(1 for bucket in mine if bucket.errors) < SECONDS_MIN or not exceeds(new, old):
        return None
    return because.ReleaseErrors(
        release=roll.wanted,
        answered=new.answered,
        errors=new.errors,
        over_s=round(mine[-1].at - mine[0].since, 1),
        old_answered=old.answered,
        old_errors=old.errors,
        back_to=back,
    )


def total(buckets: Iterable[Bucket]) -> Sum:
    counts = [(one.answered, one.errors) for one in buckets]
    return Sum(sum(answered for answered, _ in counts), sum(errors for _, errors in counts))


def exceeds(new: Sum, old: Sum) -> bool:
    """Rule 3, but for the seconds."""
    if new.errors < ERRORS_MIN or not old.answered:
        return False
    expected = (old.errors + GRACE) / old.answered
    return new.share > expected + MARGIN and new.share > TIMES * expected
