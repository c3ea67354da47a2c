"""The dispatcher: one request in, one answer out, through whichever interface it came.

Theory of operation
  The interface has authenticated the caller (`Caller`).  The dispatcher lets `compose` decide which facts follow, stores what
  must be stored, proposes the facts and answers after they have come back as valid: read your writes.  A void fact is answered
  with its reason.

Rules
  1. What would be refused is refused before anything is stored.
  2. A request id that was answered is answered the same; one that is under way is waited for; one that asks something else is
     a conflict.
  3. A large change (of many jobs) is proposed in pieces, so that it cannot fill an envelope alone.
  4. Each task that is held or released costs every service some time, and can be held and released again: of each caller so
     many a second are granted.  To cancel frees, and has no such limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry

from schemas import facts as f
from schemas import requests as r
from schemas.facts import Fact
from services.admission.commands import compose, instances, leases, releases
from services.admission.commands.audit_context import current
from services.admission.commands.compose import Caller
from services.admission.commands.costs import NAMED, TASK
from services.admission.commands.whatif import Foretelling
from services.admission.core import surge
from services.admission.core.admission import AdmissionCore, Answered
from services.admission.metrics import GRANTED
from services.admission.storage.payloads import Packed, Payloads, digest_of, pack
from services.admission.storage.secrets import Secrets
from services.domain import grace
from services.domain.custody.meta import Meta, Void
from services.domain.refusal import Refused
from services.runtime.journal.headroom import Room
from services.runtime.proposals import Compose, Outcome
from services.runtime.token_bucket import Buckets

NewJob: TypeAlias = Callable[[float, Sequence[Fact]], f.JobSubmitted]  # (now, what is drafted before it)
CHANGES_PER_S: Final = 100.0  # tasks held or released of a caller
CHANGES_BURST: Final = 40_000.0  # the largest array, held and released twice
PIECE_MAX: Final = 500  # facts of one proposal: a quarter of an envelope


class Shell(Protocol):
    """What the desk needs of the service."""

    def now(self) -> float: ...

    @property
    def room(self) -> Room: ...

    async def propose(self, compose: Compose, cause: str = "") -> Outcome: ...


class Desk:
    def __init__(
        self,
        shell: Shell,
        core: AdmissionCore,
        payloads: Payloads,
        registry: CollectorRegistry,
        secrets: Secrets,
        foretelling: Foretelling,
    ) -> None:
        self._granted = GRANTED.live(registry)
        self._shell = shell
        self._core = core
        self._payloads = payloads
        self._secrets = secrets
        self._running: dict[str, tuple[str, asyncio.Future[Any]]] = {}
        self._changes = Buckets(CHANGES_PER_S, CHANGES_BURST)
        self._handlers: dict[str, Callable[[Caller, str, Any], Awaitable[r.Message]]] = {
            "job.submit": self._submit,
            "job.whatif": foretelling.foretell,
            "job.cancel": lambda caller, _dept, request: self._change_jobs(caller, "cancel", request),
            "job.hold": lambda caller, _dept, request: self._change_jobs(caller, "hold", request),
            "job.release": lambda caller, _dept, request: self._change_jobs(caller, "release", request),
            "lease.create": self._create_lease,
            "lease.extend": self._extend_lease,
            "lease.cancel": self._cancel_lease,
            "scale.set": self._scale,
            "release.deploy": self._deploy,
            "host.cordon": lambda caller, _dept, request: self._change_host(caller, "cordon", request),
            "host.drain": lambda caller, _dept, request: self._change_host(caller, "drain", request),
            "host.uncordon": lambda caller, _dept, request: self._change_host(caller, "uncordon", request),
            "instance.list": self._instances,
            "instance.report": self._report_instance,
        }

    async def handle(self, caller: Caller, department: str, kind: str, request: r.Message) -> r.Message:
        """The reply to a decoded request in `department`.  Raises `Refused`."""
        asked = current()
        if asked is not None:
            asked.read(department, request)
        reply = await self._handlers[kind](caller, department, request)
        self._granted.labels(kind).inc()
        if asked is not None:
            asked.done(department, reply)
        return reply

    async def _propose(self, compose: Compose, cause: str = "") -> Outcome:
        outcome = await self._shell.propose(compose, cause)
        asked = current()
        if asked is not None and outcome.facts:
            asked.wrote(outcome.position)
        return outcome

    # ------------------------------------------------------------------------------------------------------ submission

    async def _submit(self, caller: Caller, dept: str, request: r.JobSubmit) -> r.Submitted:
        packed = pack(request, dept)

        def job(_now: float, drafted: Sequence[Fact]) -> f.JobSubmitted:
            return compose.submit(self._core, caller, dept, request, packed.key, packed.digest, drafted)

        made = await self._new_job(caller, request.request, packed, packed.digest, job)
        if request.grace_s is None:
            return r.Submitted(job=made.job, units=made.units)
        waits_s = grace.leaves_s(self._core.custody.state.config, dept, request.grace_s)
        return r.Submitted(job=made.job, units=made.units, claim_waits_s=waits_s)

    async def _new_job(
        self, caller: Caller, request: str, packed: Packed, digest: str, compose_job: NewJob
    ) -> Answered:
        """One job for one request id; repeated, the same."""

        def facts(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            if self._core.answered(caller.user, request) is not None:  # an earlier try came through after all
                return []
            return [compose_job(now, drafted)]

        async def do() -> Answered:
            for fact in facts(self._shell.now(), ()):  # what would be refused is refused before anything is stored
                _charge(fact)
            if self._shell.room.scarce:
                raise self._shell.room.refuse()
            async with self._payloads.stored(packed):
                outcome = await self._propose(facts, cause=request)
            if not outcome.facts:
                return again(self._same(caller.user, request, digest))
            fact = _valid(outcome)
            assert isinstance(fact, f.JobSubmitted)
            return Answered(digest=digest, job=fact.job, units=len(fact.array) or 1)

        def again(answered: Answered) -> Answered:
            if not answered.job:
                raise _other_request(request)
            return answered

        made: Answered = await self._once(caller.user, request, digest, do, again)
        return made

    # ---------------------------------------------------------------------------------------------------------- leases

    async def _create_lease(self, caller: Caller, dept: str, request: r.LeaseCreate) -> r.LeaseGranted:
        packed = pack(request.job(leases.HOLD_SCRIPT), dept)
        digest = leases.digest(request, packed)

        def job(now: float, drafted: Sequence[Fact]) -> f.JobSubmitted:
            return leases.create(self._core, caller, dept, request, packed.key, digest, now, drafted)

        made = await self._new_job(caller, request.request, packed, digest, job)
        return leases.granted(self._core, made.job, request, self._shell.now())

    async def _extend_lease(self, caller: Caller, _dept: str, request: r.LeaseExtend) -> r.LeaseGranted:
        digest = digest_of((request.lease, request.by_s, request.until_s)) if request.request else ""

        def facts(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            if self._core.answered(caller.user, request.request) is not None:
                return []
            return leases.extend(self._core, caller, request, digest, now, drafted)

        async def do() -> r.LeaseGranted:
            outcome = await self._propose(facts, cause=request.request or "lease.extend")
            if outcome.facts:
                _valid(outcome)
            return again(None)

        def again(_answered: Answered | None) -> r.LeaseGranted:
            return leases.granted(self._core, request.lease, None, self._shell.now())

        extended: r.LeaseGranted = await self._once(caller.user, request.request, digest, do, again)
        return extended

    async def _cancel_lease(self, caller: Caller, _dept: str, request: r.LeaseNamed) -> r.Done:
        leases.named(self._core, caller, request.lease)
        answer = await self._change_jobs(caller, "cancel", r.JobsNamed(jobs=(request.lease,)))
        error = answer.results[0].error
        if error is not None:
            raise Refused.of(msgspec.structs.replace(error, field="lease"))
        return r.Done()

    async def _once(
        self,
        user: str,
        request: str,
        digest: str,
        do: Callable[[], Awaitable[Any]],
        again: Callable[[Answered], Any],
    ) -> Any:
        """`do` at most once for a request id; repeated, the same answer."""
        if not request:
            return await do()
        if self._core.answered(user, request) is not None:
            return again(self._same(user, request, digest))
        key = f"{user}/{request}"
        running = self._running.get(key)
        if running is not None:
            if running[0] != digest:
                raise _other_request(request)
            return await asyncio.shield(running[1])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._running[key] = (digest, future)
        try:
            result = await do()
        except BaseException as error:
            waits = (
                error if isinstance(error, Refused) else Refused("unavailable", "the request was broken off: repeat it")
            )
            future.set_exception(waits)
            future.exception()  # there may be no waiter left
            raise
        finally:
            del self._running[key]
        future.set_result(result)
        return result

    def _same(self, user: str, request: str, digest: str) -> Answered:
        """What was answered to this request before.  Raises `Refused` (conflict) if it asked something else."""
        answered = self._core.answered(user, request)
        if answered is None or answered.digest != digest:
            raise _other_request(request)
        return answered

    # --------------------------------------------------------------------------------------------------------- the rest

    async def _change_jobs(self, caller: Caller, verb: compose.Verb, request: r.JobsNamed) -> r.JobResults:
        plan = compose.change_jobs(self._core, caller, verb, list(dict.fromkeys(request.jobs)))
        wanted = sum(len(units) for _, units in plan)
        asked = current()
        if asked is not None:
            asked.cost += TASK * wanted + NAMED * len(plan)
        bucket = self._changes.of(caller.user, now := self._shell.now())
        if verb != "cancel" and not bucket.take(now, wanted):
            may = f"{CHANGES_BURST:g} may be after a pause, and {CHANGES_PER_S:g} a second"
            wait_s, fewer = bucket.wait_s(now, wanted), ", with fewer" if wanted > CHANGES_BURST else ""
            message = f"jobs: {wanted} more tasks to {verb}, and {may}: try again in {wait_s:.1f} s{fewer}"
            raise Refused("limit", message, "jobs", retry_after_s=wait_s)
        facts = compose.change_facts(self._core, caller, verb, plan) if wanted else []
        for start in range(0, len(facts), PIECE_MAX):
            piece = facts[start : start + PIECE_MAX]
            await self._propose(
                lambda _now, drafted, piece=piece: compose.still_wanted(self._core, verb, piece, drafted),  # type: ignore[misc]
                cause=f"job.{verb}",
            )
        return r.JobResults(
            results=tuple(compose.job_result(self._core, verb, result, units) for result, units in plan)
        )

    async def _scale(self, caller: Caller, dept: str, request: r.ScaleSet) -> r.Done:
        digest = (
            digest_of((dept, request.minimum, request.exact, request.for_s, request.auto)) if request.request else ""
        )

        def facts(now: float, _drafted: Sequence[Fact]) -> list[Fact]:
            if self._core.answered(caller.user, request.request) is not None:
                return []
            return [compose.scale(self._core, caller, dept, request, digest, now)]

        async def do() -> r.Done:
            outcome = await self._propose(facts, cause=request.request)
            if outcome.facts:
                _valid(outcome)
            else:
                self._same(caller.user, request.request, digest)
            return r.Done()

        done: r.Done = await self._once(caller.user, request.request, digest, do, lambda _answered: r.Done())
        return done

    async def _deploy(self, caller: Caller, dept: str, request: r.ReleaseDeploy) -> r.Deployed:
        digest = releases.digest(dept, request) if request.request else ""

        def facts(_now: float, drafted: Sequence[Fact]) -> list[Fact]:
            if self._core.answered(caller.user, request.request) is not None:
                return []
            return [releases.deploy(self._core, caller, dept, request, digest, drafted)]

        async def do() -> r.Deployed:
            draft = releases.deploy(self._core, caller, dept, request, digest, ())
            wanted, takes = draft.content.secrets, surge.warning(self._core, draft)  # as things are before
            problem = await self._secrets.problem(dept, wanted) if wanted else ""
            if problem:  # its instances could not boot
                raise Refused("unknown", f"secrets: {problem}", "secrets")
            outcome = await self._propose(facts, cause=request.request or "release.deploy")
            if not outcome.facts:
                return again(self._same(caller.user, request.request, digest))
            fact = _valid(outcome)
            assert isinstance(fact, f.ReleaseRequested)
            return releases.deployed(self._core, dept, fact.release, takes)

        def again(answered: Answered) -> r.Deployed:
            if not answered.job:
                raise _other_request(request.request)
            return releases.deployed(self._core, dept, int(answered.job))

        deployed: r.Deployed = await self._once(caller.user, request.request, digest, do, again)
        return deployed

    async def _change_host(self, caller: Caller, verb: str, request: r.HostNamed) -> r.Done:
        def facts(now: float, _drafted: Sequence[Fact]) -> list[Fact]:
            return compose.change_host(self._core, caller, verb, request, now)

        if facts(self._shell.now(), ()):
            outcome = await self._propose(facts, cause=f"host.{verb}")
            if outcome.facts:
                _valid(outcome)
        return r.Done()

    async def _instances(self, caller: Caller, dept: str, _request: r.InstanceList) -> r.Instances:
        found = instances.listed(self._core, compose.department_for(self._core, caller, dept, "web"))
        problems = {n: await self._secrets.problem(dept, x) for n, x in instances.awaited(self._core, dept).items()}
        return instances.with_problems(found, problems)

    async def _report_instance(self, caller: Caller, dept: str, request: r.InstanceReport) -> r.Done:
        def facts(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            return instances.report(self._core, caller, dept, request, now, drafted)

        if facts(self._shell.now(), ()):
            outcome = await self._propose(facts, cause=request.unit)
            if outcome.facts:
                _valid(outcome)
        return r.Done()


def _charge(fact: Fact) -> None:
    """What a submission costs beside: each element and dependency is looked at, and is in the journal."""
    asked = current()
    if asked is not None and isinstance(fact, f.JobSubmitted):
        asked.cost += NAMED * (len(fact.array) + len(fact.after))


def _valid(outcome: Outcome) -> Fact:
    """The proposal's first fact, if it came back valid.  Raises `Refused` (conflict) with the reason."""
    fact, meta = outcome.facts[0]
    if meta.void is not None:
        raise Refused("conflict", _why_void(meta))
    return fact


def _why_void(meta: Meta) -> str:
    return (
        f"something else happened first ({(meta.void or Void.UNIT_FINAL).value.replace('_', ' ')}): check and try again"
    )


def _other_request(request: str) -> Refused:
    return Refused("conflict", f"request: the id {request!r} was used for another request: use a new one", "request")
