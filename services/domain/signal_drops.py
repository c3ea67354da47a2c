"""Why a signal does not count, and the sentence for whoever publishes it.

Rules
  1. A signal is counted under the first of these reasons that fits, in this order.
  2. Their sentences are here, since both the scheduler (its log, `GET /healthz`) and the command line tell them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class Drop(StrEnum):
    MALFORMED = "malformed"
    NOT_ALLOWED = "not_allowed"
    NOT_FINITE = "not_finite"
    ABSURD = "absurd"
    LATE = "late"
    FUTURE = "future"
    OUT_OF_ORDER = "out_of_order"
    TOO_OFTEN = "too_often"
    TOO_LONG = "too_long"
    IMPLAUSIBLE = "implausible"
    TOO_MANY_SOURCES = "too_many_sources"


CLOCK: Final = (Drop.LATE, Drop.FUTURE)
_WHY: Final = {
    Drop.MALFORMED: "they cannot be read",
    Drop.NOT_ALLOWED: "their user may not send them",
    Drop.NOT_FINITE: "they are not numbers",
    Drop.ABSURD: "they are out of bounds",
    Drop.OUT_OF_ORDER: "they are not newer than its last (repeated, late, or two programs that use one name)",
    Drop.TOO_OFTEN: "they come too often",
    Drop.TOO_LONG: "each measures for longer than the department's rule looks at",
    Drop.IMPLAUSIBLE: "they cannot be true",
    Drop.TOO_MANY_SOURCES: "there are too many sources, or they name too many instances",
}


def sentence(told: Mapping[str, Any]) -> str:
    """`12 cpu signals of haproxy-1 were dropped: its clock is 3600.0 s behind`.  `told`: parameters of `signals_dropped`."""
    user, source = told.get("user", ""), told.get("source", "")
    whose = f" of {source}" if source else ""
    whose += f" (user {user})" if source and user else f" of user {user}" if user else ""
    note = f" ({told['note']})" if told.get("note") else ""
    why = _WHY.get(told["why"]) or _clock(float(told.get("off_s", 0.0)))
    return f"{told.get('count', '?')} {told.get('signal', '')} signals{whose} were dropped: {why}{note}"


def _clock(off_s: float) -> str:
    return f"its clock is {abs(off_s):.1f} s {'behind' if off_s < 0 else 'ahead'}"
