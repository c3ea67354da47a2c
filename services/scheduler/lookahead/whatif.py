"""When a job that has not been submitted would start: the core run forward on a copy (`foresee`), beside its decisions.

    phoenix.query.scheduler.<department>.whatif   (`schemas.start_estimate`)

Theory of operation
  Admission has composed the jobs as it would for a submission (`services.admission.commands.whatif`): the first one is the job
  in question, the others are variants of it.  Each is submitted to a copy of its own, with the number that the next job would
  have.

Rules
  1. All of one question is one look, with one copy of the core (`looks`): one at a time, with pauses.
  2. Variants are looked at while less than `VARIANTS_S` has passed, and not at all if the job would start at once.
  3. Nothing is written, and nothing of the core is changed: its copy is thrown away.
  4. The job in the query is checked as a fact is (types), and must be of this department.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import msgspec

from schemas import facts as f
from schemas import queries
from schemas import reasons as because
from schemas.ids import element_id
from schemas.start_estimate import JobForeseen, JobsAsked, JobsForeseen, Sure
from schemas.times import exact
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.looks import Looks
from services.scheduler.lookahead.start_estimate import Copied, Start, foresee

JOBS_MAX: Final = 16  # the job and its variants
BYTES_MAX: Final = 1 << 20  # an array of 10,000 elements names each index: 60 KB, sixteen times
VARIANTS_S: Final = 2.0
AT_ONCE_S: Final = 0.001  # of float sums: it starts in the first decision


class NotOurs(Exception):
    """What is asked is not of this department, or too much.  The message says what would be right."""


class WhatIf:
    """Of one department's scheduler."""

    def __init__(self, department: str, looks: Looks) -> None:
        self.department, self._looks = department, looks

    async def answer(self, core: BatchCore, data: bytes, now: float) -> bytes:
        """JSON.  Raises `looks.Busy`, `NotOurs`, `Malformed`."""
        asked = queries.decode(data, JobsAsked).jobs
        if not 0 < len(asked) <= JOBS_MAX or any(job.dept != self.department for job in asked):
            raise NotOurs(f"1 to {JOBS_MAX} jobs of department {self.department} can be asked for")
        return msgspec.json.encode(await self._looks.ahead(core, partial(_foretold, asked=asked, now=now)))


def _foretold(known: Copied, asked: list[f.JobSubmitted], now: float) -> JobsForeseen:
    """In a thread: it reads nothing but its arguments."""
    began = time.monotonic()
    first, last = found(known, asked[0], now)
    at_once = first.start_at is not None and first.start_at <= now + AT_ONCE_S
    told = [JobForeseen(first=first.told(), last=last.told())]
    for job in asked[1:]:
        if at_once or time.monotonic() - began > VARIANTS_S:
            told.append(JobForeseen())
        else:
            first, last = found(known, job, now)
            told.append(JobForeseen(first=first.told(), last=last.told()))
    return JobsForeseen(at=exact(now), now=at_once, found=told)


def found(known: Copied, job: f.JobSubmitted, now: float) -> tuple[Start, Start]:
    """Of its first element and its last, or twice of the job itself.  Rule 3."""
    number = str(_next_job(known))
    units = [element_id(number, index) for index in (job.array[:1] + job.array[-1:])] or [number]
    submitted = msgspec.structs.replace(job, job=number)
    told = foresee(known, now, units, [submitted])
    nobody = Start(start_at=None, sure=Sure.CANNOT_SAY, because=because.WaitsForHosts())
    return told.get(units[0], nobody), told.get(units[-1], nobody)


class _Last(msgspec.Struct, frozen=True):
    job_last: int = 0


def _next_job(known: Copied) -> int:
    """The number that the next job would have, as far as the copy knows."""
    return msgspec.msgpack.decode(known.custody, type=_Last).job_last + 1
