"""A reason of a newer version: shown by its code and what it says, never hidden, never an error (`reading`)."""

from __future__ import annotations

from typing import Any

from schemas.reasons.base import AnyReason
from schemas.words import with_details


class Newer(AnyReason, frozen=True, kw_only=True, tag="newer"):
    """A reason of a newer version.  `named`: its code; `details`: its fields."""

    COLUMN = "other"
    SENTENCE = "a newer version gives the reason"

    named: str
    details: dict[str, Any] = {}

    def column(self) -> str:
        return self.named.replace("_", " ")

    def sentence(self) -> str:
        return with_details(self.named.replace("_", " "), self.details)
