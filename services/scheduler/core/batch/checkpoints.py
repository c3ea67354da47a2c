"""What a department's jobs have saved by checkpoints, and what would be lost of each if it ended now.

Theory of operation
  `checkpoint.reported` says that everything until then is safe.  How much that is follows from the journal alone: the time
  that the unit had run by then in its present life, on top of what earlier lives had saved.  A *life* is what runs without
  losing anything: one attempt, or several that were suspended and resumed.  A requeued job begins a new life from what was
  saved; what it had run since is lost.  Orders of victims ask for `kept_s`.

Rules
  1. Only what counts is folded (`custody.checkpoints`).  A new life begins with its `attempt.began`, so that what the last one
     saves in its grace time is still added to it.
  2. Run time is counted from `attempt.began` to the attempt's closing, as everywhere: what a job does in its grace time, or
     before its guests called, is none.  So nothing is saved that did not run: 0 ≤ `kept_s` ≤ the life's run time.
  3. `saved_s` never shrinks.  A job whose checkpoint turns out to be worthless has to report that by failing.
  4. A job that would be killed keeps nothing: no attempt would continue its work (`Dispositions.kept_s` checks that).
"""

from __future__ import annotations

from schemas import facts as f
from services.domain.custody.checkpoints import counts
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.state import Checkpoint, State


class Checkpoints:
    """Reads custody and `State.again`, keeps `State.checkpoints`."""

    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state

    def reported(self, fact: f.CheckpointReported) -> None:
        """Rule 1."""
        unit = self.custody.state.units.get(fact.unit)
        if not counts(unit, fact.attempt):
            return
        assert unit is not None
        before, at = self.state.checkpoints.get(fact.unit), self.custody.state.at
        base_s, saved_s = (0.0, 0.0) if before is None else (before.base_s, before.saved_s)
        self.state.checkpoints[fact.unit] = Checkpoint(
            attempt=fact.attempt,
            at=at,
            saved_s=max(saved_s, base_s + self._life_s(unit, fact.attempt, at)),
            base_s=base_s,
            percent=fact.percent,
        )

    def _life_s(self, unit: Unit, attempt: int, now: float) -> float:
        """For how long the life that `attempt` is of has run by `now`, or by its end."""
        again = self.state.again.get(unit.id)
        used_s = 0.0 if again is None else again.used_s
        if unit.state == "open" and unit.attempt == attempt:
            return used_s + ran_for(unit, now)
        return used_s or (0.0 if again is None else again.ran_s)  # suspended, or over

    def began(self, unit: str) -> None:
        """An attempt begins: a new life, unless it resumes a suspended one."""
        known, again = self.state.checkpoints.get(unit), self.state.again.get(unit)
        if known is not None and again is not None and not again.used_s:
            known.base_s = known.saved_s

    def kept_s(self, unit: str) -> float:
        """How much of what the unit has run in its present life is safe, in seconds."""
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
