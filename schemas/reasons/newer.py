"""A reason of a newer version: shown by its code and what it says, never hidden, never an error (`reading`)."""

from __future__ import annotations

from typing import Any

from schemas.reasons.base import AnyReason


class Newer(AnyReason, frozen=True, kw_only=True, tag="newer"):
    """`named`: its code; `details`: its fields."""

    COLUMN = "other"
    SENTENCE = "a newer version says why"

    named: str
    details: dict[str, Any] = {}
