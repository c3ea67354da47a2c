"""`job.whatif`: what would become of a submission.  Composed as one, refused as one, and then asked of its scheduler.

Theory of operation
  The job is composed by the code that composes submissions, so that whatever would be refused is refused here, in the same
  words; nothing is proposed, nothing is stored.  Beside it stand variants of it that might start earlier; those that would be
  refused are left out.  The department's scheduler runs them forward on a copy (`services.scheduler.lookahead.whatif`).

Rules
  1. Variants change one thing each: half and a quarter of the time, half of the nodes (with half of the tasks), shared hosts,
     best-effort, another quality of service.  At most `VARIANTS_MAX`.
  2. Only variants that start earlier are reported, the earliest first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec
import nats.errors
from msgspec import UNSET
from nats.aio.client import Client

from schemas import facts as f
from schemas import requests as r
from schemas import subjects
from schemas.config import BatchPolicy
from schemas.problems import problem_in
from schemas.requests_whatif import Field, Forecast, Foretold, Variant
from schemas.size import size_of
from schemas.start_estimate import Foreseen, JobsAsked, JobsForeseen
from schemas.units import seconds
from services.admission.commands import compose
from services.admission.commands.compose import Caller
from services.admission.core.admission import AdmissionCore
from services.domain import grace
from services.domain.refusal import Refused
from services.runtime.broker import permissions
from services.runtime.broker.client import own_inbox

ANSWER_S: Final = 15.0  # of a scheduler whose queue is long, and of whom others ask as well
VARIANTS_MAX: Final = 8
EARLIER_S: Final = 1.0  # what starts less than this earlier is no news
TIME_MIN_S: Final = 60.0  # no shorter time limit is suggested
_Change = tuple[Field, Any, dict[str, Any]]  # field, value, what changes in the request


Ask = Callable[[str, list[f.JobSubmitted]], Awaitable[JobsForeseen]]  # of a department's scheduler; raises `Refused`


class Foretelling:
    def __init__(self, core: AdmissionCore, ask: Ask) -> None:
        self._core, self._ask = core, ask

    async def foretell(self, caller: Caller, dept: str, request: r.JobSubmit) -> Foretold:
        """Raises `Refused`."""
        job = compose.submit(self._core, caller, dept, request, "", "", ())
        variants = list(self._variants(caller, dept, request, job))[:VARIANTS_MAX]
        answer = await self._ask(dept, [job, *(fact for _, fact in variants)])
        main = answer.found[0]
        if main.first is None:
            raise Refused("unavailable", f"the scheduler of {dept} has no answer yet: try again")
        told = [
            (name, value, found.first)
            for ((name, value, _), _), found in zip(variants, answer.found[1:], strict=True)
            if found.first is not None and _earlier(found.first, main.first)
        ]
        return Foretold(
            department=dept,
            at=answer.at,
            now=answer.now,
            units=len(job.array) or 1,
            nodes=job.nodes,
            **size_of(job).fields(),
            walltime_s=job.walltime_s,
            quality=job.quality,
            claim_waits_s=UNSET
            if job.grace_s is None
            else grace.leaves_s(self._core.custody.state.config, dept, job.grace_s),
            forecast=_forecast(main.first),
            last=_forecast(main.last) if job.array and main.last is not None else None,
            variants=tuple(
                Variant(field=name, value=value, forecast=_forecast(first))
                for name, value, first in sorted(told, key=lambda each: seconds(each[2].start_at) or 0.0)
            ),
        )

    def _variants(
        self, caller: Caller, dept: str, request: r.JobSubmit, job: f.JobSubmitted
    ) -> Iterator[tuple[_Change, f.JobSubmitted]]:
        for change in changes(request, job, self._policy(dept)):
            try:
                yield (
                    change,
                    compose.submit(self._core, caller, dept, msgspec.structs.replace(request, **change[2]), "", "", ()),
                )
            except Refused:
                continue

    def _policy(self, dept: str) -> BatchPolicy:
        department = self._core.department(dept)
        return (department.batch if department is not None else None) or BatchPolicy()


class Schedulers:
    """Asks them."""

    def __init__(self, nc: Client) -> None:
        self._nc = nc
        self._inbox = own_inbox(permissions.asking_inbox("admission"))
        self._asked = 0

    async def ask(self, dept: str, jobs: list[f.JobSubmitted]) -> JobsForeseen:
        """Raises `Refused`."""
        data = await self._answer(subjects.query("scheduler", dept, "whatif"), msgspec.json.encode(JobsAsked(jobs)))
        if not data:  # empty: no subscriber
            look = "`phoenix status` shows whether it runs"
            raise Refused("unavailable", f"the scheduler of {dept} does not answer: {look}")
        if (refused := problem_in(data)) is not None:
            raise Refused("unavailable", f"the scheduler of {dept}: {refused.detail}")
        return msgspec.json.decode(data, type=JobsForeseen)

    async def _answer(self, subject: str, body: bytes) -> bytes:
        """Empty if there is none in time."""
        self._asked += 1
        inbox = f"{self._inbox}.{self._asked}"
        try:
            subscription = await self._nc.subscribe(inbox, max_msgs=1)
            try:
                await self._nc.publish(subject, body, reply=inbox)
                return (await subscription.next_msg(timeout=ANSWER_S)).data
            finally:
                await subscription.unsubscribe()
        except (nats.errors.Error, OSError, TimeoutError):
            return b""


def changes(request: r.JobSubmit, job: f.JobSubmitted, policy: BatchPolicy) -> Iterator[_Change]:
    """Rule 1."""
    for part in (2, 4):
        walltime_s = float(int(job.walltime_s / part))
        if walltime_s >= TIME_MIN_S:
            yield "walltime_s", walltime_s, {"walltime_s": walltime_s}
    if job.nodes > 1:
        nodes, tasks = -(-job.nodes // 2), -(-request.tasks // 2)
        yield "nodes", nodes, {"nodes": nodes, "tasks": max(nodes, tasks)}
    if job.exclusive:
        yield "exclusive", False, {"exclusive": False}
    if not job.best_effort:
        yield "best_effort", True, {"best_effort": True}
    for name in sorted(policy.quality):
        if name != job.quality:
            yield "quality", name, {"quality": name}


def _forecast(found: Foreseen) -> Forecast:
    return Forecast(start_at=found.start_at, hosts=found.hosts, sure=found.sure, why=found.because)


def _earlier(one: Foreseen, other: Foreseen) -> bool:
    at, other_at = seconds(one.start_at), seconds(other.start_at)
    if at is None:
        return False
    return other_at is None or at <= other_at - EARLIER_S
