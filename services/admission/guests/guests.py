"""Admission's interface for guests: what a VM asks, hands in and reports (the guest contract, `/v1/guest/…`).

Theory of operation
  A call names unit, attempt and rank; its token proves that the VM carries that PHOENIX_ID.  For which attempt it speaks, and
  what that is worth, is custody's to say, at the moment of the call (`attempt_status`): a killed script may still hand in
  what it has, and a late success counts; who is ahead of this fold, or on the way to another host, comes back; who is gone
  stops.

Rules
  1. A guest powers off after "acknowledged" only, and only what is journaled and valid is acknowledged (PROTOCOL, Guests).
  2. `began` is answered when the fact has come back.  A rank waits in its call for the other ranks: which ranks have called is
     kept nowhere else, so a restart of admission costs a repeated call, and a gang starts together.
  3. Nothing is journaled that is not valid in this view.
  4. Bodies and streams are bounded.  Neither tokens nor content are logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import Meta

from schemas import facts as f
from schemas.facts import Fact
from schemas.ids import is_instance, job_of, vm_tag
from services.admission.answers import HttpError, decoded, gone, no_content, number, reply, whole
from services.admission.commands import compose, releases
from services.admission.commands.dispatcher import Shell
from services.admission.core import vm_reuse
from services.admission.core.admission import AdmissionCore
from services.admission.core.attempt_status import Standing, goes_on, speaks_for, standing
from services.admission.guests.boot import Boot, boot_of
from services.admission.guests.boot_text import command_lines, lines
from services.admission.guests.boots import BODY_MAX_BYTES as FAILED_MAX_BYTES
from services.admission.guests.boots import BOOTED_AGAIN, BootId, Boots, boot_of_query
from services.admission.guests.checkpoint import SAID_MAX_BYTES, CheckpointCalls
from services.admission.guests.guest import Guest
from services.admission.guests.guest_queue import GuestTurns
from services.admission.guests.health import BODY_MAX_BYTES as HEALTH_MAX_BYTES
from services.admission.guests.health import HealthCalls
from services.admission.guests.launch import Command, EventsBody, Full, LaunchBody, Launches, SignalBody, refuse_beyond
from services.admission.guests.next_job import NextCalls
from services.admission.guests.tokens import GuestTokens
from services.admission.guests.usage_facts import BODY_MAX_BYTES as USED_MAX_BYTES
from services.admission.guests.usage_facts import JobUsages
from services.admission.guests.usage_reports import Usages
from services.admission.storage.checkpoints import Checkpoints
from services.admission.storage.output import (
    FILE_MAX_BYTES,
    LOG_KEPT,
    PART_MAX_BYTES,
    STREAMS,
    Files,
    Outputs,
    StreamId,
)
from services.admission.storage.payloads import Payloads
from services.admission.storage.secrets import Secrets
from services.domain.custody.checkpoints import counts
from services.domain.custody.state import Unit
from services.domain.refusal import Refused
from services.runtime.http.body import read_body
from services.runtime.http.body_budget import Held, Room

BASE: Final = "/v1/guest/{unit}/{attempt:[0-9]{1,9}}/{rank:[0-9]{1,5}}"
SMALL_MAX_BYTES: Final = 4 << 20  # of a JSON body: a batch of launch events is about 1.4 MiB
GATHER_S: Final = 20.0  # a rank's call waits so long for the others; below the guest's deadline for one try
POLL_MAX_S: Final = 25.0
UPLOADS_MAX: Final = 4  # large bodies that are stored at once; others wait, with theirs read
OFFSET_MAX: Final = 1 << 39
AFTER_MAX: Final = 1 << 53  # microseconds since 1970, in what a float counts exactly
Worth = Literal["live", "latest", "saves", "there"]
Size = int | Callable[[], int]  # of a body, at most, bytes
Number = Annotated[float, Meta(ge=0, le=1e12)]


class BeganBody(msgspec.Struct, frozen=True, kw_only=True):
    """This VM is ready.  `address`: of an instance, where it listens, `host:port`; null: a job; `boot`: identity of this boot
    of the VM; null: not known."""

    address: Annotated[str, Meta(max_length=256)] | None = None
    boot: BootId | None = None


class ReportBody(msgspec.Struct, frozen=True, kw_only=True):
    """How the script has ended.  `exit`: exit code of the script; `signal`: number of the signal that ended it; null: none;
    `seconds`: how long it ran; `note`: remark of the guest, for people; `stay`: the guest can take another job; `terminated`:
    the script still ran when the guest told it to end, because its VM was being shut down or an answer was 410."""

    exit: Annotated[int, Meta(ge=-(1 << 31), le=1 << 31)]
    signal: Annotated[int, Meta(ge=0, le=128)] | None = None
    seconds: Number = 0.0
    cpu_seconds: Number | None = None
    max_rss_mb: Number | None = None
    note: Annotated[str, Meta(max_length=4096)] | None = None
    stay: bool = False
    terminated: bool = False


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The report is in the journal, and valid.  `status`: `acknowledged`; `stay`: the VM is to take another job."""

    status: str
    stay: bool = False


class _Gathering:
    """Ranks of an attempt that have called `began`."""

    __slots__ = ("addresses", "boots", "done")

    def __init__(self) -> None:
        self.addresses: dict[int, str | None] = {}
        self.boots: dict[int, str | None] = {}
        self.done: asyncio.Future[None] | None = None


_ENDING: Final = (f.UnitPlaced, f.AttemptClosed, f.AttemptReported)
GuestHandler = Callable[[web.Request, Guest], Awaitable[web.Response]]


class Guests:
    def __init__(
        self,
        shell: Shell,
        core: AdmissionCore,
        payloads: Payloads,
        outputs: Outputs,
        files: Files,
        checkpoints: Checkpoints,
        tokens: GuestTokens,
        turns: GuestTurns,
        usages: Usages,
        secrets: Secrets,
        room: Room,
    ) -> None:
        self._shell, self._core, self._room = shell, core, room
        self._payloads, self._outputs, self._files, self._turns = payloads, outputs, files, turns
        self._secrets = secrets
        self._launches = Launches()
        self._gathering: dict[tuple[str, int], _Gathering] = {}
        self._uploads = asyncio.Semaphore(UPLOADS_MAX)
        self.checkpoints = CheckpointCalls(shell, core, checkpoints, self._uploads)
        self._boots = Boots(shell, core)
        self._health = HealthCalls(shell, core, outputs, usages, secrets)
        self._next = NextCalls(shell, core, tokens, turns)
        self.jobs = JobUsages(shell, core, usages)

    def routes(self) -> list[web.RouteDef]:
        def route(
            method: str, path: str, handler: GuestHandler, worth: Worth = "live", size: Size = 0, job: bool = False
        ) -> web.RouteDef:
            return web.route(method, f"{BASE}/{path}", self._checked(handler, worth, size, job))

        return [
            web.post(f"{BASE}/next", self._next.ask),
            route("GET", "boot", self._boot),
            route("GET", "plain/boot", self._plain_boot),
            route("GET", "plain/script", self._plain_script),
            route("POST", "began", self._began, size=SMALL_MAX_BYTES),
            route("PUT", "output/{stream}", self._output, "latest", PART_MAX_BYTES),
            route("PUT", "files/{name:.+}", self._file, "latest", FILE_MAX_BYTES),
            route("GET", "inputs/{name:.+}", self._input),
            route("POST", "failed", self._boots.failed, size=FAILED_MAX_BYTES),
            route("POST", "report", self._report, "latest", SMALL_MAX_BYTES),
            route("POST", "usage", self._health.usage, size=HEALTH_MAX_BYTES),
            route("POST", "used", self.jobs.used, "there", USED_MAX_BYTES),
            route("POST", "ended", self._health.ended, size=HEALTH_MAX_BYTES),
            route(
                "PUT",
                "checkpoint/files/{name:.+}",
                self.checkpoints.send,
                "saves",
                self.checkpoints.file_max_bytes,
                job=True,
            ),
            route("GET", "checkpoint/files/{name:.+}", self.checkpoints.fetch, job=True),
            route("POST", "checkpoint", self.checkpoints.say, "saves", SAID_MAX_BYTES, job=True),
            route("POST", "launch", self._start_launch, size=SMALL_MAX_BYTES, job=True),
            route("GET", "commands", self._commands),
            route("GET", "plain/commands", self._plain_commands),
            route("POST", "launch/{launch}/events", self._add_events, size=SMALL_MAX_BYTES),
            route("GET", "launch/{launch}/events", self._read_events, job=True),
            route("POST", "launch/{launch}/signal", self._signal_launch, size=SMALL_MAX_BYTES, job=True),
        ]

    def applied(self, fact: Fact, broken: tuple[str, ...]) -> None:
        """A valid fact came: who waits for an attempt that it began or ended looks again."""
        self.checkpoints.applied(fact)
        self._next.applied(fact)
        self.jobs.applied(fact, broken)
        if isinstance(fact, f.AttemptBegan):
            self._drop_gathering(fact.unit)
        ended = (fact.unit,) if isinstance(fact, _ENDING) and not goes_on(self._core.unit(fact.unit)) else ()
        for unit in (*ended, *broken):
            self._launches.forget(unit)
            self._drop_gathering(unit)

    def _drop_gathering(self, unit: str) -> None:
        for key in [key for key in self._gathering if key[0] == unit]:
            gathering = self._gathering.pop(key)
            if gathering.done is not None and not gathering.done.done():
                gathering.done.set_result(None)

    # ---------------------------------------------------------------------------------------------------------- identity

    def _checked(
        self, handler: GuestHandler, worth: Worth, size: Size, job: bool
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def checked(request: web.Request) -> web.Response:
            info = request.match_info
            unit, attempt, rank = info["unit"], int(info["attempt"]), int(info["rank"])
            caller = await self._turns.caller(
                request, vm_tag(self._core.custody.state.cloud, unit, attempt, rank), job=job
            )
            current = speaks_for(self._core, unit, attempt, rank)
            known = self._core.unit(unit)
            if known is None or not self._counts(unit, attempt, rank, current, worth):
                (await self._turns.wait(unit, caller)).leave()
                found = standing(self._core, unit, current, attempt)
                if found in ("early", "away"):
                    raise _come_back(found)
                return gone()
            with Held(self._room, known.dept, job_of(unit)):
                data = await read_body(request, size() if callable(size) else size)
                turn = await self._turns.wait(unit, caller, len(data))
                try:
                    return await handler(request, Guest(unit, current, rank, known, attempt, data, turn))
                finally:
                    turn.leave()

        return checked

    def _counts(self, unit: str, attempt: int, rank: int, current: int, worth: Worth) -> bool:
        """Whether a call of that worth is heard."""
        if worth == "there" and self._core.custody.bound(unit, attempt, rank) is not None:
            return True
        found = standing(self._core, unit, current, attempt)
        if worth == "saves" and found in ("away", "gone"):
            return counts(self._core.unit(unit), current)
        return (
            found == "live"
            or (found == "away" and worth == "latest")
            or (found == "over" and worth in ("latest", "saves"))
        )

    def _gone(self, guest: Guest) -> web.Response:
        """What a call that is of no worth is answered.  Raises `Refused` if the guest is to ask again."""
        current = speaks_for(self._core, guest.unit, guest.named, guest.rank)
        found = standing(self._core, guest.unit, current, guest.named)
        if found == "away" or current != guest.attempt:
            raise _come_back(found)
        return gone()

    # ------------------------------------------------------------------------------------------------------ the job's life

    async def _boot(self, request: web.Request, guest: Guest) -> web.Response:
        boot = await self._boot_for(request, guest)
        return gone() if boot is None else reply(boot)

    async def _plain_boot(self, request: web.Request, guest: Guest) -> web.Response:
        boot = await self._boot_for(request, guest)
        return gone() if boot is None else web.Response(body=lines(boot), content_type="text/plain", charset="utf-8")

    async def _plain_script(self, _request: web.Request, guest: Guest) -> web.Response:
        boot = await self._boot_of(guest)
        if boot is None:
            return gone()
        return web.Response(body=(boot.script or "").encode(), content_type="application/octet-stream")

    async def _boot_for(self, request: web.Request, guest: Guest) -> Boot | None:
        if self._boots.is_another(guest, boot_of_query(request)):
            await self._boots.fail(guest, BOOTED_AGAIN)
            return None
        return await self._boot_of(guest)

    async def _boot_of(self, guest: Guest) -> Boot | None:
        job = None if is_instance(guest.unit) else self._core.job(guest.unit)
        payload = None if job is None else await self._payloads.load(job.payload)
        if guest.rank >= guest.ranks:
            return None
        config = compose.adopted(self._core)
        saved = None if job is None else await self.checkpoints.of_boot(guest.unit)
        release = releases.content(self._core, guest.known.dept, guest.known.release) if job is None else None
        secrets = {} if release is None else await self._secrets.of(guest.unit, guest.known.dept, release.secrets)
        return boot_of(config, guest.known, guest.rank, job, payload, saved, release, secrets)

    async def _began(self, request: web.Request, guest: Guest) -> web.Response:
        body = decoded(request, guest.body, BeganBody)
        address, known = body.address, guest.known
        if self._boots.is_another(guest, body.boot):
            await self._boots.fail(guest, BOOTED_AGAIN)
            return gone()
        if known.began_at is not None and (not is_instance(guest.unit) or known.addresses == (address,)):
            return no_content()
        if guest.rank >= guest.ranks:
            return gone()
        gathering = self._gathering.setdefault(guest.key, _Gathering())
        gathering.addresses[guest.rank], gathering.boots[guest.rank] = address, body.boot
        if len(gathering.addresses) < guest.ranks:
            guest.turn.leave()
            await self._wait_for_ranks(gathering)
        else:
            self._gathering.pop(guest.key, None)
            await self._journal_began(guest, gathering)
        if self._boots.is_another(guest, body.boot):  # another one has come first
            await self._boots.fail(guest, BOOTED_AGAIN)
            return gone()
        return self._began_answer(guest)

    async def _wait_for_ranks(self, gathering: _Gathering) -> None:
        if gathering.done is None:
            gathering.done = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(GATHER_S):
                await asyncio.shield(gathering.done)
        except TimeoutError:
            return

    async def _journal_began(self, guest: Guest, gathering: _Gathering) -> None:
        addresses = tuple(gathering.addresses[rank] for rank in sorted(gathering.addresses))
        boots = tuple(gathering.boots[rank] for rank in sorted(gathering.boots))
        if not any(boots):
            boots = ()
        if not is_instance(guest.unit):
            addresses = ()  # only instances listen
        try:
            await self._shell.propose(
                lambda _now, _drafted: compose.began(self._core, guest.unit, guest.attempt, addresses, boots),
                cause=guest.unit,
            )
        except Refused as refused:
            if refused.code != "conflict":
                raise
        finally:
            if gathering.done is not None and not gathering.done.done():
                gathering.done.set_result(None)

    def _began_answer(self, guest: Guest) -> web.Response:
        """What the journal says now."""
        if standing(self._core, guest.unit, guest.attempt, guest.named) != "live":
            return self._gone(guest)
        known = self._core.unit(guest.unit)
        if known is None or known.began_at is None:
            raise Refused("unavailable", "not all ranks have called yet: call again")
        return no_content()

    async def _report(self, request: web.Request, guest: Guest) -> web.Response:
        if is_instance(guest.unit) or guest.rank != 0:
            raise HttpError(400, Refused("invalid", "only rank 0 of a job reports", "rank"))
        told = decoded(request, guest.body, ReportBody)
        cpu_seconds, max_rss_mb = self.jobs.reports(guest, told.cpu_seconds, told.max_rss_mb)
        fact = f.AttemptReported(
            unit=guest.unit,
            attempt=guest.attempt,
            exit=told.exit,
            signal=told.signal,
            seconds=told.seconds,
            cpu_seconds=cpu_seconds,
            max_rss_mb=max_rss_mb,
            note=told.note,
            terminated=told.terminated,
        )

        def facts(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            reported = compose.report(self._core, fact, drafted)
            live = self._core.custody.live(fact.unit, fact.attempt)
            stays = told.stay and fact.exit == 0 and not fact.terminated and live
            vm = self._core.custody.bound(guest.unit, guest.named, guest.rank)
            return [*reported, *(vm_reuse.parked(self._core, vm, now, drafted) if stays else ())]

        try:
            outcome = await self._shell.propose(facts, cause=guest.unit)
        except Refused as refused:
            if refused.code != "conflict":
                raise
            return self._reported_before(guest, told) or self._gone(guest)
        if outcome.facts[0][1].void is not None:
            return self._reported_before(guest, told) or self._gone(guest)
        stays = any(isinstance(fact, f.VmParked) and meta.void is None for fact, meta in outcome.facts)
        return reply(Acknowledged(status="acknowledged", stay=stays))

    def _reported_before(self, guest: Guest, told: ReportBody) -> web.Response | None:
        """The same answer again to a guest that has not heard it: its VM may be the next job's by now."""
        if not (told.stay and told.exit == 0):
            return None
        found = vm_reuse.following(self._core, guest.unit, guest.named, guest.rank, self._shell.now())
        return None if found in ("gone", "park") else reply(Acknowledged(status="acknowledged", stay=True))

    # ----------------------------------------------------------------------------------------------------------- content

    async def _output(self, request: web.Request, guest: Guest) -> web.Response:
        name = request.match_info["stream"]
        if name not in STREAMS:
            raise HttpError(404, Refused("unknown", "the streams are stdout and stderr", "stream"))
        offset = whole(request, "offset", OFFSET_MAX)
        limit, kept = compose.adopted(self._core).limits.output_max_bytes, None
        if is_instance(guest.unit):
            limit, kept = OFFSET_MAX, LOG_KEPT
        await self._outputs.append(StreamId(guest.unit, guest.named, guest.rank, name), offset, guest.body, limit, kept)
        return no_content()

    async def _file(self, request: web.Request, guest: Guest) -> web.Response:
        if is_instance(guest.unit):  # an instance has no end at which its files would be removed
            raise HttpError(400, Refused("invalid", "only jobs keep files, not instances", "unit"))
        async with self._uploads:
            await self._files.put(guest.unit, guest.named, request.match_info["name"], guest.body)
        return no_content()

    async def _input(self, request: web.Request, guest: Guest) -> web.Response:
        name = request.match_info["name"]
        job = self._core.job(guest.unit)
        payload = None if job is None else await self._payloads.load(job.payload)
        found = next((x for x in payload.inputs if x.name == name), None) if payload else None
        data = None if found is None else await self._payloads.get(found.key)
        if data is None:
            raise Refused("unknown", f"job {job_of(guest.unit)} has no input {name[:200]}", "name")
        return web.Response(body=data, content_type="application/octet-stream")

    # ------------------------------------------------------------------------------------------------------------ launch

    async def _start_launch(self, request: web.Request, guest: Guest) -> web.Response:
        _only_rank_0(guest)
        wanted = decoded(request, guest.body, LaunchBody)
        if not wanted.overcommit and (cores := self._cores(guest.known)):
            refuse_beyond(wanted.tasks, cores)
        self._launches.launch(guest.life, guest.ranks, wanted)
        return web.Response(status=202)

    def _cores(self, unit: Unit) -> int:
        """Of all its hosts, what it may use.  0: unknown, one of them is not described."""
        if not unit.exclusive:
            return unit.size.cores * len(unit.hosts)
        hosts = self._core.custody.state.hosts
        known = [hosts[name].size.cores for name in unit.hosts if name in hosts]
        return sum(known) if all(known) else 0

    async def _commands(self, request: web.Request, guest: Guest) -> web.Response:
        found = await self._commands_for(request, guest)
        return self._gone(guest) if found is None else reply({"commands": found})

    async def _plain_commands(self, request: web.Request, guest: Guest) -> web.Response:
        found = await self._commands_for(request, guest)
        if found is None:
            return self._gone(guest)
        return web.Response(body=command_lines(found), content_type="text/plain", charset="utf-8")

    async def _commands_for(self, request: web.Request, guest: Guest) -> Sequence[Command] | None:
        """None if its attempt is over."""
        if guest.rank >= guest.ranks:
            return None
        after = whole(request, "after", AFTER_MAX)
        wait_s = number(request, "wait_s", 0.0, POLL_MAX_S)
        guest.turn.leave()
        found = await self._launches.commands(guest.life, guest.ranks, guest.rank, after, wait_s)
        return found if standing(self._core, guest.unit, guest.attempt, guest.named) == "live" else None

    async def _add_events(self, request: web.Request, guest: Guest) -> web.Response:
        body = decoded(request, guest.body, EventsBody)
        try:
            self._launches.add_events(guest.life, guest.rank, request.match_info["launch"], body)
        except Full:
            raise Refused("unavailable", "earlier input has not been read yet: try again later") from None
        return no_content()

    async def _read_events(self, request: web.Request, guest: Guest) -> web.Response:
        _only_rank_0(guest)
        after = whole(request, "after", AFTER_MAX)
        wait_s = number(request, "wait_s", 0.0, POLL_MAX_S)
        guest.turn.leave()
        found = await self._launches.events(guest.life, request.match_info["launch"], after, wait_s)
        return reply({"events": found})

    async def _signal_launch(self, request: web.Request, guest: Guest) -> web.Response:
        _only_rank_0(guest)
        body = decoded(request, guest.body, SignalBody)
        self._launches.signal(guest.life, request.match_info["launch"], body.signal)
        return no_content()


def _come_back(found: Standing) -> Refused:
    what = "this attempt is not yet known here" if found == "early" else "this job is on the way to its next host"
    return Refused("unavailable", f"{what}: come back")


def _only_rank_0(guest: Guest) -> None:
    if guest.rank != 0:
        raise HttpError(403, Refused("denied", "only rank 0 launches", "rank"))
