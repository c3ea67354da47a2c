"""When jobs start, as their scheduler foresees it: what admission and the monitor ask it, and what it answers.  The scheduler
itself has `lookahead.start_estimate.Start`.

phoenix.query.scheduler.<department>.start    {"jobs": ["17"]}     -> {"at": …, "starts": {unit: Foreseen}}
phoenix.query.scheduler.<department>.whatif   JobsAsked            -> JobsForeseen
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from schemas import facts as f
from schemas.reasons import Reason
from schemas.times import TimeText


class Sure(StrEnum):
    """How sure a start is.  `planned`: room is kept for it; `by_walltimes`: it holds if jobs run to their limits and nothing
    comes in between; `cannot_say`: it is unknown."""

    PLANNED = "planned"
    BY_WALLTIMES = "by_walltimes"
    CANNOT_SAY = "cannot_say"


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """When a job starts, as its scheduler foresees it.  `start_at`: when; null: unknown; `hosts`: where, as far
    as that is known (a reservation may name others when its time comes); `sure`: how sure that is; `because`: what the time
    depends on."""

    start_at: TimeText | None
    hosts: tuple[str, ...] = ()
    sure: Sure
    because: Reason


class JobsAsked(msgspec.Struct, frozen=True):
    """Jobs that have not been submitted.  `jobs`: the first is meant, the others are variants of it."""

    jobs: list[f.JobSubmitted]


class JobForeseen(msgspec.Struct, frozen=True, kw_only=True):
    """When one job would start.  `first`: its first element, or the job itself; null: not computed; `last`: its last element,
    or the job itself; null: not computed."""

    first: Foreseen | None = None
    last: Foreseen | None = None


class JobsForeseen(msgspec.Struct, frozen=True, kw_only=True):
    """When jobs would start.  `at`: the time for which this was computed; `now`: the first job would start at
    once; `found`: one for each job, in their order."""

    at: TimeText
    now: bool
    found: list[JobForeseen]
