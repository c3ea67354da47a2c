"""The life of one VM, as two tables: what the journal wants of it, and what is asked of OpenNebula for that.

Theory of operation
  An `Aim` is what the journal wants of an open VM; facts change it, and time does (`TOLD`).  A `Phase` is what OpenNebula
  showed of it last.  Aim and phase together give the one `Act` that follows (`ASKED`).  So the order in which facts, answers
  and polls come never matters: whoever looks again finds the same act.

Rules
  1. The tables are whole: a pair of aim and event that is not in `TOLD` changes nothing; every pair of aim and phase is in
     `ASKED`.
  2. Nothing leads back from END and KILL: who must end, ends (X4).
  3. Nothing deploys but from HELD, and only for RUN (X1, X3).
  `docs/lifecycle.md` is made from these tables (`services.executor.diagram`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from services.executor.calls import Phase


class Aim(StrEnum):
    """What the journal wants of an open VM."""

    RUN = "running"  # its attempt is live
    END = "ending"  # it must end; gracefully until `kill_by`
    KILL = "killing"  # it must end now


class Told(StrEnum):
    """What happens to a VM in the journal, or by the clock."""

    CLOSED = "closed"  # its attempt is closed, reported or broken: it is not live any more
    HOST_TAKEN = "host taken"  # its host is released or seized
    HOST_LOST = "host lost"
    TIME_UP = "time is up"  # `kill_by` has passed
    CONDEMNED = "condemned"  # it does not run any more, or never will, though it should


class Act(StrEnum):
    """What follows for a VM.  Those in capitals are calls or facts; the others wait."""

    WATCH = "watch"  # it is on its way: see where it arrives
    DEPLOY = "DEPLOY"  # if X3 allows it
    STARTED = "VM.STARTED"  # write it, once
    DOUBT = "doubt"  # its host does not say; after `stuck_s` it is condemned
    CONDEMN = "condemn"
    SOFT = "TERMINATE"  # gracefully, once
    HARD = "TERMINATE HARD"  # again and again; its host is lost if that does not help
    ENDED = "VM.ENDED"


TOLD: Final[dict[tuple[Aim, Told], Aim]] = {
    (Aim.RUN, Told.CLOSED): Aim.END,
    (Aim.RUN, Told.HOST_TAKEN): Aim.END,
    (Aim.RUN, Told.HOST_LOST): Aim.END,
    (Aim.RUN, Told.CONDEMNED): Aim.KILL,
    (Aim.END, Told.TIME_UP): Aim.KILL,
}

_SEEN: Final = (
    None, Phase.HELD, Phase.MOVING, Phase.RUNNING, Phase.UNKNOWN, Phase.OFF, Phase.FAILED, Phase.OVER,
)  # fmt: skip
_W, _H = Act.WATCH, Act.HARD
_ROWS: Final = {  # not seen yet, held, moving, running, unknown, off, failed, over
    Aim.RUN: (_W, Act.DEPLOY, _W, Act.STARTED, Act.DOUBT, Act.CONDEMN, Act.CONDEMN, Act.ENDED),
    Aim.END: (Act.SOFT, _H, _W, Act.SOFT, _H, _H, _H, Act.ENDED),  # MOVING: it refuses every end, or is ending
    Aim.KILL: (_H, _H, _H, _H, _H, _H, _H, Act.ENDED),
}
ASKED: Final[dict[tuple[Aim, Phase | None], Act]] = {
    (aim, phase): act for aim, row in _ROWS.items() for phase, act in zip(_SEEN, row, strict=True)
}


def after(aim: Aim, told: Told) -> Aim:
    """The aim after an event; the same where the table says nothing."""
    return TOLD.get((aim, told), aim)
