"""Why a signal does not count, and the words for its publisher.

A signal is counted under the first of these reasons that fits, in this order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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
WHY: Final[dict[str, str]] = {
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
REMEDIES: Final[dict[str, str]] = {
    Drop.NOT_ALLOWED: "send them as a user who may, or name this one in balancers of the department",
    Drop.OUT_OF_ORDER: "give each publisher a `source` of its own",
    Drop.IMPLAUSIBLE: "repair the publisher, or stop it: what it says cannot be so in this department",
    **dict.fromkeys(CLOCK, "set the publisher's clock; who cannot trust its clock leaves `at` out"),
}
