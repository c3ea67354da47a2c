"""Measures: what guests report of themselves, handed on by the door to their department.  Not journaled; a level at a moment.

phoenix.measure.<department>.instances       `Measures`, JSON: the instances that reported since the last one, at most every
0.25 s phoenix.measure.<department>.jobs            `JobMeasures`, likewise: what attempts that run have used until now

What an attempt has used is a total that only grows, so a word that is lost is made good by the next one.  What was said last
is a fact (`attempt.measured`) when its VMs are gone, unless its report says it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.facts import AttemptNumber, Rank, UnitId
from schemas.signals import INTERVAL_MAX_S, UTILISATION_MAX
from schemas.times import TimeText

WHY_MAX: Final = 200  # as in `facts.InstanceReported`
MEMORY_MAX_MB: Final = 1 << 26  # 64 TiB: no machine has more
CORES_MAX: Final = 4096  # nor more of these
CPU_MAX_S: Final = 1e12


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How busy an instance was, as its guest reports it.  `utilisation`: CPU time over the time of the cores that it may use,
    mean over the last `interval_s`; 1: all of them were busy; `interval_s`: how long was measured, in seconds; `memory_mb`:
    memory in use, in MiB; null: not measured."""

    utilisation: Annotated[float, Meta(ge=0, le=UTILISATION_MAX)]
    interval_s: Annotated[float, Meta(gt=0, le=INTERVAL_MAX_S)] = 1.0
    memory_mb: Annotated[float, Meta(ge=0, le=MEMORY_MAX_MB)] | None = None


class GuestUsage(Usage, frozen=True, kw_only=True):
    """How busy an instance was, and whether its health check passes (`POST usage`).  `ready`: whether it passes; null: the
    guest does not check; `answer`: its last answer if it fails, as text."""

    ready: bool | None = None
    answer: Annotated[str, Meta(max_length=WHY_MAX)] = ""


class Measured(Usage, frozen=True, kw_only=True):
    """How busy an instance was, with its name.  `at`: when admission received it."""

    unit: UnitId
    attempt: AttemptNumber
    rank: Rank = 0
    at: TimeText


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    instances: tuple[Measured, ...]


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has used, as its guest reports it (`POST used`).  `cpu_seconds`: CPU time of everything that has run in this
    VM for the job, in seconds; `max_rss_mb`: the most memory that it was seen to have, in MiB; null: not measured."""

    cpu_seconds: Annotated[float, Meta(ge=0, le=CPU_MAX_S)]
    max_rss_mb: Annotated[float, Meta(ge=0, le=MEMORY_MAX_MB)] | None = None


class JobMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """Of an attempt that runs what `facts.AttemptMeasured` says of one that is over.  `heard_at`: when the rank that was heard
    least lately was heard."""

    unit: UnitId
    attempt: AttemptNumber
    cpu_seconds: float
    max_rss_mb: float | None = None
    ranks: int = 1
    heard_at: TimeText


class JobMeasures(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1
    jobs: tuple[JobMeasured, ...]
