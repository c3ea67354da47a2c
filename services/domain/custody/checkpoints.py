"""When a checkpoint counts.  One answer for every reader of `checkpoint.reported`: admission, the batch core, the monitor.

Theory of operation
  A job says "what I have done until now is safe".  Custody does not read that: it changes no holder of a host and ends no
  attempt. So the fact is plain, and never void; what it is worth is settled here, from custody at its place in the journal, and
  equal for every reader of the same journal.

Rules
  1. It counts for the unit's latest attempt, until the unit is final: also after that attempt was closed or broken, which is
     when a job that is being preempted checkpoints.
  2. It counts for the attempt before, until the latest one begins: a job that is moved has its next place at once, and its
     grace time all the same.  The next VM starts only when the old one is gone (PROTOCOL, X3), and is given what it saved.
  3. Instances have no checkpoints: they keep nothing, and are replaced.
"""

from __future__ import annotations

from schemas.ids import is_instance
from services.domain.custody.state import Unit


def counts(unit: Unit | None, attempt: int) -> bool:
    """True if a checkpoint of `attempt` counts now; `unit`: what custody knows of its unit."""
    if unit is None or unit.state == "final" or is_instance(unit.id):
        return False
    if 0 < attempt == unit.attempt - 1:
        return unit.state == "open" and unit.began_at is None
    return 0 < attempt == unit.attempt
