"""A flap budget: at most N changes of direction in an hour.  Each one gives hosts to batch or takes them back, with its jobs.

Rules
  1. A turn is a change of the number against the direction of the change before it.
  2. A turn downwards is made only if the turns of the last hour, it, and the turn up that may have to follow are no more
     than N: so the way up is always free, and no hour has more than N turns.
  3. While the budget is spent the higher number is held, and `why` says so and until when.  Steps in the direction that is
     followed already cost nothing.
  4. Every change counts.  What a person's exact number or the maximum enforces is done whatever is left.
  5. Remembered are the turns of the last hour, at most TURNS_MAX.

After Kubernetes' stabilisation windows, which make flapping rarer without a bound, and error budgets (Beyer et al. 2016).
"""

from __future__ import annotations

from typing import Final

import msgspec

HOUR_S: Final = 3600.0
TURNS_MAX: Final = 100  # the greatest budget: more than one in a minute is no budget


class Course(msgspec.Struct, frozen=True):
    heading: int = 0  # of the last change: 1 up, -1 down; 0: there was none
    turns: tuple[float, ...] = ()  # when, in order


def follow(course: Course, at: float, by: int) -> Course:
    """A change by this many instances."""
    heading = 1 if by > 0 else -1
    if course.heading in (0, heading):
        return Course(heading, course.turns)
    return Course(heading, (*recent(course, at)[1 - TURNS_MAX :], at))


def recent(course: Course, now: float) -> tuple[float, ...]:
    """Turns of the last hour."""
    return tuple(at for at in course.turns if at + HOUR_S > now)


def free_at(course: Course, budget: int, now: float) -> float:
    """From when on the number may fall (rules 2 and 3); `now`: it may.  `budget`: at least 2, or 0 for none."""
    if not budget or course.heading != 1:
        return now
    turns = recent(course, now)
    over = len(turns) + 2 - max(2, budget)
    return turns[over - 1] + HOUR_S if over > 0 else now
