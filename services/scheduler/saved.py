"""What a department's jobs have saved by checkpoints, and what would be lost of each if it ended now.

Theory of operation
  `checkpoint.reported` says that everything until then is safe.  How much that is follows from the journal alone: the time
  that the unit had run by then, in the life that runs (`batch_state.Checkpoint`), on top of what earlier lives had saved.  A
  requeued job begins a new life from what was saved; what it had run since is lost.  Orders of victims ask for `kept_s`.

Rules
  1. Only what counts is folded (`schemas.checkpoints`): of the latest attempt, until the next one is placed.
  2. Run time is counted between `attempt.began` and the end of the attempt, as everywhere: what a job does in its grace time,
     or before its guests called, is none.  So nothing is saved that did not run: 0 ≤ `kept_s` ≤ the life's run time.
  3. `saved_s` never shrinks.  A job whose checkpoint turned out to be worthless has to say so by failing.
  4. A job that would be killed keeps nothing: no attempt would go on from it (`Endings.kept_s` asks that).
"""

from __future__ import annotations

from schemas import facts as f
from schemas.checkpoints import counts
from schemas.custody import Custody
from schemas.custody_state import Unit
from services.scheduler.batch_state import Checkpoint, State


class Saved:
    """Reads custody, keeps `State.checkpoints`."""

    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state

    def reported(self, fact: f.CheckpointReported, used_s: float) -> None:
        """Rule 1.  `used_s`: for how long the unit ran in suspended attempts of the life that runs."""
        unit = self.custody.state.units.get(fact.unit)
        if unit is None or not counts(unit, fact.attempt):
            return
        before, at = self.state.checkpoints.get(fact.unit), self.custody.state.at
        base_s = 0.0 if before is None else before.base_s
        life_s = None if before is None else before.life_s
        if life_s is None and unit.state == "pending" and not unit.suspended:
            life_s = ran_for(unit, at)  # its first checkpoint, in the grace time of a life that is over
        if life_s is not None:
            ran_s = life_s
        else:  # of a suspended attempt `used_s` says all
            ran_s = used_s + (ran_for(unit, at) if unit.state == "open" else 0.0)
        saved_s = max(base_s + ran_s, 0.0 if before is None else before.saved_s)
        self.state.checkpoints[fact.unit] = Checkpoint(
            attempt=fact.attempt, at=at, saved_s=saved_s, base_s=base_s, life_s=life_s, percent=fact.percent
        )

    def life_over(self, unit: Unit, used_s: float) -> None:
        """The unit's life is over, and it may begin another one.  `used_s`: as in `reported`."""
        known = self.state.checkpoints.get(unit.id)
        if known is not None:
            known.life_s = used_s + ran_for(unit, self.custody.state.at)

    def placed(self, unit: str) -> None:
        """An attempt opens: a new life, unless it goes on where one was suspended."""
        known = self.state.checkpoints.get(unit)
        if known is not None and known.life_s is not None:
            known.base_s, known.life_s = known.saved_s, None

    def kept_s(self, unit: str) -> float:
        """How much of what the unit has run in the life that runs is safe, in seconds."""
        known = self.state.checkpoints.get(unit)
        return 0.0 if known is None else known.saved_s - known.base_s

    def forget(self, unit: str) -> None:
        self.state.checkpoints.pop(unit, None)


def ran_for(unit: Unit, until: float) -> float:
    """For how long the unit's latest attempt has run by `until`, or until its end."""
    if unit.began_at is None:
        return 0.0
    end = until if unit.state == "open" or unit.ended_at is None else min(until, unit.ended_at)
    return max(0.0, end - unit.began_at)
