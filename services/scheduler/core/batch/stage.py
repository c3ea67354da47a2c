"""What a stage of the batch core's decision is: one of `domain.core`, which may remember something and says when to wake it.

Theory of operation
  A decision goes through the stages of the configuration in force, one after the other.  Each adds facts to what is said, and
  may end the decision.  A stage is an object: what it remembers from one decision to the next (a cursor, a cache, "nothing to
  do until") is its own, and holds nothing that a stage which has just been made could not find out again (`check`).  What many
  of them read is not a stage's but the `View`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas import facts as f
from services.scheduler.core.state.shape import Start


@dataclass(slots=True)
class Said:
    """What a decision has to say so far.  `closing`: attempts that end with it; `starts`: units that are placed."""

    facts: list[f.Fact]
    closing: dict[str, None]
    starts: list[Start]


class Stage(Protocol):
    def __call__(self, said: Said, now: float) -> bool:
        """Add what there is to say at that time.  True: the decision ends here."""
        ...

    def next_moment(self, after: float) -> float:
        """When time alone may give the stage something to say, later than `after`; `NEVER` if nothing is stated."""
        ...
