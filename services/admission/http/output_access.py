"""Whose output it is, which attempt is meant, and when nothing more will come.

Rules
  1. A role `user` reads own jobs, a manager the department's, an operator everything.
  2. A job that this core has forgotten is looked up at the monitor with the caller's token: its history is longer than our
     memory, and it checks the caller as we do.
  3. An attempt is over for a reader when it is closed and its report is in or its VM is gone: everything that a guest hands in
     comes before either.  One that is suspended, or moves, is not over.
  4. An instance has no owner: every member of its department may read what it wrote.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec

from schemas.ids import ELEMENT, INSTANCE, JOB, instance_parts, job_of
from schemas.units import seconds
from services.admission.answers import wrong_parameter
from services.admission.commands.compose import Caller, may_see
from services.admission.core.admission import AdmissionCore
from services.admission.core.attempt_status import goes_on, stored_under
from services.admission.storage.output import STREAMS, Outputs, StreamId
from services.domain.custody.state import vm_key
from services.domain.refusal import Refused

MONITOR_S: Final = 5.0
RANKS_MAX: Final = 65_536  # of a job whose number of ranks is no longer stored
PROBED_MAX: Final = 20  # attempts of a forgotten job that are looked for, newest last


class Readable(msgspec.Struct, frozen=True):
    """A unit whose output the caller may read; `attempt` 0: none yet."""

    unit: str
    attempt: int
    stored: int  # the attempt under which it stands: a suspended one and the one that resumes it are one stream
    ranks: int = 1
    dept: str = ""
    ended_at: float | None = None  # of a job that has ended, UTC seconds

    def check_rank(self, rank: int) -> None:
        """Raises `Refused` for a rank that it has not: who reads nothing would take it for one that is silent."""
        if rank >= self.ranks:
            are = f"{self.ranks} ranks, 0 to {self.ranks - 1}" if self.ranks > 1 else "one rank, 0"
            raise Refused("unknown", f"rank: {self.unit} has {are}", "rank")

    def is_over(self, core: AdmissionCore, rank: int) -> bool:
        """True if nothing more of this attempt will come."""
        known = core.unit(self.unit)
        if known is None or (self.attempt and known.attempt > self.attempt and self.attempt < known.life):
            return True
        if self.attempt == 0 or known.attempt == 0:
            return known.state == "final"
        if known.state == "open" or goes_on(known):
            return False
        return known.exit is not None or vm_key(self.unit, known.attempt, rank) not in core.custody.state.vms


async def locate(
    core: AdmissionCore,
    outputs: Outputs,
    session: aiohttp.ClientSession,
    monitor: str,
    headers: Mapping[str, str],
    caller: Caller,
    unit: str,
    attempt: str | None,
) -> Readable:
    """The unit and attempt to read.  `monitor`: URL that a job id is appended to.  Raises `Refused`."""
    if INSTANCE.match(unit):
        return _instance(core, caller, unit, _attempt(attempt))
    if JOB.match(unit) is None and ELEMENT.match(unit) is None:
        raise Refused(
            "invalid",
            f"{unit[:64]!r} is no job: 17, or 17_3 for an element of an array; nor an instance: web.7",
            "job",
        )
    number = _attempt(attempt)
    job = core.job(unit)
    answer: dict[str, Any] = {}
    if job is not None:
        _check(caller, unit, job.dept, job.user)
        if unit == job_of(unit) and job.is_array:
            first = job.array[0] if job.array else 1
            raise Refused("invalid", f"{unit} is an array: name an element, for example {unit}_{first}", "job")
        if core.unit(unit) is None:
            if job.left:
                raise Refused("unknown", f"job {job_of(unit)} has no element {unit}", "job")
            # its units are forgotten, not its output
            answer = await _ask_monitor(session, monitor, headers, caller, unit)
    else:
        answer = await _ask_monitor(session, monitor, headers, caller, unit)
    known = core.unit(unit)
    had = known.attempt if known is not None else _number(answer.get("attempt"))
    if number is not None and had is not None and number > had:
        raise Refused("unknown", f"attempt: {unit} has had {had}", "attempt")
    if number is None:
        number = known.attempt if known is not None else await _newest(outputs, unit)
    ranks = job.nodes if job is not None else _number(answer.get("nodes"))
    dept = job.dept if job is not None else _text(answer.get("department")) or ""
    ended_at = known.ended_at if known is not None else seconds(answer.get("ended_at"))
    return Readable(unit, number, stored_under(known, number), RANKS_MAX if ranks is None else ranks, dept, ended_at)


def _instance(core: AdmissionCore, caller: Caller, unit: str, attempt: int | None) -> Readable:
    """Rule 4."""
    dept, number = instance_parts(unit)
    if not may_see(caller, dept) or not 0 < number <= core.custody.state.instance_last.get(dept, 0):
        raise Refused("unknown", f"there is no instance {unit}", "unit")
    known = core.unit(unit)
    if known is not None and (attempt or 0) > known.attempt:
        raise Refused("unknown", f"attempt: {unit} has had {known.attempt}", "attempt")
    return Readable(unit, attempt or (known.attempt if known is not None else 1), attempt or 1)


def _check(caller: Caller, unit: str, dept: str, user: str | None) -> None:
    if not may_see(caller, dept):
        raise Refused("unknown", f"there is no job {unit}", "job")
    if caller.role == "user" and user != caller.user:
        raise Refused("denied", f"job {unit} is {user}'s: its owner or a manager of {dept} may read its output", "job")


def _attempt(text: str | None) -> int | None:
    if text is None or text == "latest":
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < len(text) <= 9 or int(text) < 1:
        raise wrong_parameter("attempt", f'{text[:40]!r} is neither "latest" nor a number from 1')
    return int(text)


async def _ask_monitor(
    session: aiohttp.ClientSession, monitor: str, headers: Mapping[str, str], caller: Caller, unit: str
) -> dict[str, Any]:
    """What it knows of the job.  Raises `Refused`."""
    try:
        async with asyncio.timeout(MONITOR_S), session.get(f"{monitor}{unit}", headers=headers) as answer:
            content = await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Refused("unavailable", "the monitor, which keeps old jobs, does not answer: try again") from error
    if status != 200:
        raise Refused("unknown", f"there is no job {unit}", "job")
    told = _job_in(content)
    _check(caller, unit, str(told.get("department") or told.get("dept") or caller.department), _text(told.get("user")))
    return told


def _job_in(content: bytes) -> dict[str, Any]:
    """The job's record in the monitor's answer: at its top, or under "job"."""
    try:
        told = json.loads(content)
    except ValueError as error:
        raise Refused("unavailable", "the monitor's answer is not readable: try again") from error
    inner = told.get("job") if isinstance(told, dict) else None
    found = inner if isinstance(inner, dict) else told
    return found if isinstance(found, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


async def _newest(outputs: Outputs, unit: str) -> int:
    """The newest attempt of a forgotten unit that left output; 1 if none did."""
    for attempt in range(PROBED_MAX, 0, -1):
        for stream in STREAMS:
            if await outputs.exists(StreamId(unit, attempt, 0, stream)):
                return attempt
    return 1
