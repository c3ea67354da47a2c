"""What broke an attempt, as the reason of its closing: said in one way for jobs and for instances, by every service."""

from __future__ import annotations

from typing import Final

from schemas import reasons as because
from schemas.causes import Cause
from schemas.reasons import Reason
from services.domain.custody.state import Broken

_BROKEN: Final[dict[Broken, type[Reason]]] = {
    Broken.HOST_RELEASED: because.Reclaimed,
    Broken.HOST_SEIZED: because.HostTaken,
    Broken.HOST_LOST: because.LostHost,
    Broken.VM_ENDED: because.EndedVm,
    Broken.NOT_SAVED: because.NotSaved,
}


_CAUSES: Final = {
    Broken.HOST_RELEASED: Cause.RECLAIMED,
    Broken.HOST_SEIZED: Cause.SEIZED,
    Broken.HOST_LOST: Cause.HOST_LOST,
    Broken.VM_ENDED: Cause.VM_ENDED,
    Broken.NOT_SAVED: Cause.NOT_SAVED,
}


def cause_of(broken: Broken) -> Cause:
    return _CAUSES[broken]


def why_broken(broken: Broken) -> Reason:
    return _BROKEN[broken]()
