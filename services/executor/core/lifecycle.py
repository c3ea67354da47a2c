"""The life of one VM, as two tables: what the journal wants of it, and what is asked of OpenNebula for that.

Theory of operation
  An `Aim` is what the journal demands of an open VM; facts change it, and time does (`TOLD`).  A `Phase` is what OpenNebula
  showed of it last.  Aim and phase together give the one `Act` that follows (`ASKED`).  So the order in which facts, answers
  and polls come never matters: every look finds the same act.

Rules
  1. The tables are whole: a pair of aim and event that is not in `TOLD` changes nothing; every pair of aim and phase is in
     `ASKED`.
  2. Nothing leads back from END and KILL: a VM that must end, ends (X4).
  3. Nothing deploys or migrates but for RUN (X1, X3, X7): what is saved or moves is another attempt's before that.
  `docs/reference/lifecycle.md` is made from these tables (`services.executor.diagram`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from services.executor.core.calls import Phase


class Aim(StrEnum):
    """What the journal demands of an open VM."""

    RUN = "running"  # its attempt is live: on the attempt's host
    MOVE = "moving"  # its attempt continues on another host: it runs until that is known, and is saved if that takes too long
    SAVE = "saving"  # its attempt continues later, on any host
    LINGER = "lingering"  # its job has completed, and its guest may yet ask for another one
    PARK = "parked"  # its guest waits for another job
    END = "ending"  # it must end; gracefully until `kill_by`
    KILL = "killing"  # it must end now


class Told(StrEnum):
    """What happens to a VM in the journal, or by the clock."""

    CLOSED = "closed"  # its attempt is closed, reported or broken: it is no longer live, and does not continue
    SUSPENDED = "suspended"  # its attempt is closed, and continues later
    MIGRATED = "migrated"  # its attempt is closed, and continues elsewhere without a pause
    COMPLETED = "completed"  # its job has ended well, and its department keeps VMs warm
    PARKED = "parked"  # its guest waits for the next job
    BOUND = "bound"  # it is another attempt's from now on
    UNSAVED = "unsaved"  # its job no longer continues: it was cancelled, or a part is lost
    EVICTED = "evicted"  # its room is wanted, or too many wait
    HOST_TAKEN = "host taken"  # its host is released or seized
    HOST_LOST = "host lost"
    TIME_UP = "time is up"  # for a move, for waiting, or `kill_by`
    CONDEMNED = "condemned"  # it does not run any more, or never will, though it should


class Act(StrEnum):
    """What follows for a VM.  Those in capitals are calls or facts; the others wait."""

    WATCH = "watch"  # it is on its way: see where it arrives
    REST = "-"  # nothing is to be done, and nothing to be looked at
    DEPLOY = "DEPLOY"  # if X3 allows it
    MIGRATE = "MIGRATE"  # if X3 allows it; what cannot migrate is saved and deployed
    SAVE = "SAVE"  # OpenNebula's `stop`
    STARTED = "VM.STARTED"  # write it, once
    SAVED = "VM.ENDED SUSPENDED"
    DOUBT = "doubt"  # its host does not say; after `stuck_s` it is condemned
    CONDEMN = "condemn"
    SOFT = "TERMINATE"  # gracefully, once
    HARD = "TERMINATE HARD"  # again and again; its host is lost if that does not help
    ENDED = "VM.ENDED"


TOLD: Final[dict[tuple[Aim, Told], Aim]] = {
    (Aim.RUN, Told.CLOSED): Aim.END,
    (Aim.RUN, Told.SUSPENDED): Aim.SAVE,
    (Aim.RUN, Told.MIGRATED): Aim.MOVE,
    (Aim.RUN, Told.COMPLETED): Aim.LINGER,
    (Aim.RUN, Told.HOST_TAKEN): Aim.END,
    (Aim.RUN, Told.HOST_LOST): Aim.END,
    (Aim.RUN, Told.CONDEMNED): Aim.KILL,
    (Aim.MOVE, Told.BOUND): Aim.RUN,
    (Aim.MOVE, Told.TIME_UP): Aim.SAVE,
    (Aim.MOVE, Told.UNSAVED): Aim.END,
    (Aim.MOVE, Told.HOST_LOST): Aim.END,
    (Aim.SAVE, Told.UNSAVED): Aim.END,
    (Aim.SAVE, Told.HOST_LOST): Aim.END,
    (Aim.SAVE, Told.TIME_UP): Aim.KILL,
    (Aim.LINGER, Told.PARKED): Aim.PARK,
    (Aim.LINGER, Told.CLOSED): Aim.END,
    (Aim.LINGER, Told.EVICTED): Aim.END,
    (Aim.LINGER, Told.HOST_TAKEN): Aim.END,
    (Aim.LINGER, Told.HOST_LOST): Aim.END,
    (Aim.LINGER, Told.TIME_UP): Aim.END,
    (Aim.PARK, Told.BOUND): Aim.RUN,
    (Aim.PARK, Told.CLOSED): Aim.KILL,
    (Aim.PARK, Told.EVICTED): Aim.KILL,
    (Aim.PARK, Told.HOST_TAKEN): Aim.KILL,
    (Aim.PARK, Told.HOST_LOST): Aim.KILL,
    (Aim.PARK, Told.TIME_UP): Aim.KILL,
    (Aim.END, Told.TIME_UP): Aim.KILL,
}

_SEEN: Final = (
    None, Phase.HELD, Phase.MOVING, Phase.RUNNING, Phase.ELSEWHERE, Phase.UNKNOWN, Phase.SAVED, Phase.OFF, Phase.FAILED,
)  # fmt: skip
_W, _H, _S, _R, _C = Act.WATCH, Act.HARD, Act.SOFT, Act.REST, Act.CONDEMN
_ROWS: Final = {  # not observed yet, held, moving, running, elsewhere, unknown, saved, off, failed
    Aim.RUN: (_W, Act.DEPLOY, _W, Act.STARTED, Act.MIGRATE, Act.DOUBT, Act.DEPLOY, _C, _C),
    Aim.MOVE: (_W, _H, _W, _R, _R, _W, Act.SAVED, _H, _H),
    Aim.SAVE: (_W, _H, _W, Act.SAVE, Act.SAVE, _W, Act.SAVED, _H, _H),
    Aim.LINGER: (_W, _H, _W, _R, _R, _H, _H, _H, _H),
    Aim.PARK: (_W, _H, _W, _R, _R, _H, _H, _H, _H),
    Aim.END: (_S, _H, _W, _S, _S, _H, _H, _H, _H),  # moving: it refuses every end, or is ending
    Aim.KILL: (_H,) * 9,
}
ASKED: Final[dict[tuple[Aim, Phase | None], Act]] = {
    (aim, phase): act for aim, row in _ROWS.items() for phase, act in zip(_SEEN, row, strict=True)
} | {(aim, Phase.OVER): Act.ENDED for aim in Aim}


def after(aim: Aim, told: Told) -> Aim:
    """The aim after an event; the same where the table says nothing."""
    return TOLD.get((aim, told), aim)
