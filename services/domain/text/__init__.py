"""Reasons and facts as sentences, also from JSON of any version.

A reason's words stand beside its type (`schemas.reasons`): `short` fits a column of the queue, `sentence` says it in full,
`remedy` what would unblock it.  A reason of a newer version is shown by its code and fields: never hidden, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from schemas.control_characters import shown

if TYPE_CHECKING:  # the types take as long to load as all else that `phoenix queue` needs
    from schemas.reasons import AnyReason


def as_reason(told: object) -> AnyReason:
    """A reason, its JSON in whatever version's form, or a bare code."""
    from schemas.reasons import AnyReason
    from schemas.reasons.reading import read

    if isinstance(told, AnyReason):
        return told
    return read(told if isinstance(told, Mapping) else {"code": told})


def short(told: object) -> str:
    """For a column: a few words."""
    return as_reason(told).column()


def sentence(told: object) -> str:
    """In full, with its numbers, on one line whatever others have written into it."""
    return shown(as_reason(told).sentence())


def remedy(told: object) -> str:
    """What would unblock it, or an empty string."""
    return as_reason(told).remedy()


def capital(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
