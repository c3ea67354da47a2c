"""Measures: what guests report of themselves, handed on by the door to their department.  Not journaled; a level at a moment.

phoenix.measure.<department>.instances       `Measures`, JSON: whoever reported since the last one, at most every 0.25 s
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.facts import AttemptNumber, Rank, UnitId
from schemas.signals import INTERVAL_MAX_S, UTILISATION_MAX

WHY_MAX: Final = 200  # as in `facts.InstanceReported`


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a guest reports (`POST usage`): `utilisation` of the cores that it may use, mean over the last `interval_s`; at 1.0
    all of them were busy."""

    utilisation: Annotated[float, Meta(ge=0, le=UTILISATION_MAX)]
    interval_s: Annotated[float, Meta(gt=0, le=INTERVAL_MAX_S)] = 1.0
    memory_mb: Annotated[float, Meta(ge=0, le=1 << 26)] | None = None


class GuestUsage(Usage, frozen=True, kw_only=True):
    """With whether the program's health check passes, and what it answered last if not; null: the guest does not look.  That is
    for the door, which hands the rest on."""

    ready: bool | None = None
    answer: Annotated[str, Meta(max_length=WHY_MAX)] = ""


class Measured(Usage, frozen=True, kw_only=True):
    """The same of a rank; `at`: when the door heard it, UTC seconds."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank = 0
    at: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    instances: tuple[Measured, ...]
