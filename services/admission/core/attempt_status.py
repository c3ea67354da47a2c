"""Which attempt a guest belongs to, and the status of that attempt at this moment.  Pure: from custody.

Theory of operation
  A guest uses the name that it was given for as long as its memory lasts.  An attempt that is suspended and resumed, or
  moved, is another attempt everywhere else: the call under the old name is a call of that one (`Custody.bound`).

Rules
  1. *live*; *over* (the latest attempt, but not live: it may still hand in what it has); *early* (the guest is ahead of this
     fold: come back); *away* (rule 2: come back); *gone* (stop and power off).
  2. Between the close of an attempt that continues and the binding of its VM to the next one, no guest is answered "gone": the
     machine that is to continue would end its job.
  3. What a guest sends is stored under its own name, so that a stream continues where it was; readers find it under the
     attempt with which the unit's present life began (`stored_under`).
"""

from __future__ import annotations

from typing import Literal

from schemas.ids import JOB, is_instance, job_of
from services.admission.core.admission import AdmissionCore
from services.domain.custody.state import Unit

Standing = Literal["live", "over", "early", "away", "gone"]


def speaks_for(core: AdmissionCore, unit: str, named: int, rank: int) -> int:
    """The attempt for which the guest speaks that goes by this name."""
    vm = core.custody.bound(unit, named, rank)
    return named if vm is None else vm.attempt


def standing(core: AdmissionCore, unit: str, attempt: int, named: int | None = None) -> Standing:
    """What `attempt` is worth.  `named`: as which the guest that asks knows itself."""
    known = core.unit(unit)
    if known is None:
        return "early" if _is_ahead(core, unit) else "gone"
    if _is_away(known, attempt, attempt if named is None else named):
        return "away"
    if attempt != known.attempt:
        return "early" if attempt > known.attempt and known.state != "final" else "gone"
    return "live" if known.live else "over"


def _is_away(known: Unit, attempt: int, named: int) -> bool:
    """Rule 2."""
    if known.state == "final" or not known.life <= named <= known.attempt:
        return False
    return known.suspended or (known.resumes and known.live and attempt != known.attempt)


def _is_ahead(core: AdmissionCore, unit: str) -> bool:
    state = core.custody.state
    if is_instance(unit):
        dept, _, number = unit.rpartition(".")
        return number.isdecimal() and int(number) > state.instance_last.get(dept, 0)
    job = job_of(unit)
    return JOB.match(job) is not None and int(job) > state.job_last


def stored_under(known: Unit | None, attempt: int) -> int:
    """The attempt under which stands what `attempt` has handed in (rule 3)."""
    return known.life if known is not None and 0 < known.life <= attempt <= known.attempt else attempt


def goes_on(known: Unit | None) -> bool:
    """True of a unit whose memory is, or is being, carried to its next attempt."""
    return known is not None and known.state != "final" and (known.suspended or (known.resumes and known.live))
