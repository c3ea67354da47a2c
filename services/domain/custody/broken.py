"""What broke an attempt, as the reason of its closing: said in one way for jobs and for instances, by whoever tells it."""

from __future__ import annotations

from typing import Final

from schemas.reasons import Code, Reason, because
from services.domain.custody.state import Broken

_BROKEN: Final = {
    Broken.HOST_RELEASED: Code.RECLAIMED,
    Broken.HOST_SEIZED: Code.HOST_TAKEN,
    Broken.HOST_LOST: Code.HOST_LOST,
    Broken.VM_ENDED: Code.VM_ENDED,
    Broken.NOT_SAVED: Code.NOT_SAVED,
}


def why_broken(broken: Broken) -> Reason:
    return because(_BROKEN[broken])
