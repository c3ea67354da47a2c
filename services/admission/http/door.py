"""The HTTP door: the same requests as over NATS, output and files, and the monitor's reads passed through.

Rules
  1. A token identifies the caller; department and role come from the adopted configuration, never from the request.
  2. A role `user` reads the output of own jobs, a manager the department's, an operator everything.
  3. What this door does not serve below /v1 with GET is the monitor's: passed on with the caller's token, streamed.
  4. Bodies are bounded before they are held.  Tokens and bodies are never logged.
  5. When the body is there, and before it is decoded, a request waits for its turn (`runtime.request_queue`).  A read has its
     turn until its first byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import nats.errors
from aiohttp import web
from nats.aio.client import Client
from yarl import URL

from schemas import requests as r
from schemas import signals, subjects
from schemas.config import Department, Limits, WebPolicy
from schemas.control_characters import shown
from schemas.ids import is_instance
from schemas.reads import BY_PATH
from schemas.times import received
from schemas.validation import no_such
from services.admission.answers import (
    Handler,
    HttpError,
    bearer,
    decoded,
    is_msgpack,
    number,
    reply,
    unauthorised,
    whole,
    wrong_parameter,
)
from services.admission.commands import compose
from services.admission.commands.audit_context import Asked, asking, current
from services.admission.commands.compose import Caller
from services.admission.commands.costs import HTTP, READ, cost_of
from services.admission.commands.dispatcher import Desk
from services.admission.commands.request_audit import Gate
from services.admission.core.admission import AdmissionCore
from services.admission.http.output_access import RANKS_MAX, Readable, locate
from services.admission.http.routes import OFFSET_MAX, ROUTES, Route
from services.admission.http.routes import WAIT_MAX_S as WAIT_ASKED_MAX_S
from services.admission.storage.output import STREAMS, Files, Outputs, StreamId
from services.admission.storage.quotas import Shares
from services.admission.storage.removed import Removed
from services.domain.refusal import Refused
from services.runtime.callers.identity import Identities
from services.runtime.callers.peers import FORWARDED, Peers
from services.runtime.http.answers import JSON, MSGPACK, wants_msgpack
from services.runtime.http.body import read_body
from services.runtime.http.body_budget import Held, Room
from services.runtime.http.server import is_known
from services.runtime.request_queue import NOBODY, Turn, Turns

WAIT_MAX_S: Final = 25.0
EXTRA_MAX_BYTES: Final = 4 << 20  # of a submission, beside script and inputs: arguments, environment, JSON's escapes
LARGE_BYTES: Final = 1 << 20
LARGE_MAX: Final = 4  # submissions with large bodies that are decoded and stored at once; others wait, with theirs read
ROOM_BODIES: Final = 8  # this many of the largest bodies: one caller alone has two of them (`body_budget`, rule 1)
ROOM_MIN_BYTES: Final = 512 << 20
ROOM_MAX_BYTES: Final = 2 << 30
TOKENS_EVERY_S: Final = 1.0  # a new or revoked token holds after so long
NAME_MAX: Final = 64  # characters of a name in a record of the audit; names that are right are shorter
PATH_MAX: Final = 200
POSITION: Final = "Phoenix-Position"  # of the journal: the monitor waits until it is there
CONNECT_S: Final = 5.0  # to the monitor, and for a place among those that are passed on
PASSED_MAX: Final = 512  # reads and streams at once: half of what the monitor takes from one address
SILENCE_MAX_S: Final = 300.0  # of the monitor within one answer: event streams send heartbeats
CHUNK_BYTES: Final = 64 << 10
_BYTES: Final = "application/octet-stream"
_READS: Final = [re.compile(re.sub("{[a-z]+}", "[^/]+", path)) for path in BY_PATH]
_PASSED_ON: Final = ("Authorization", "Accept", "Last-Event-ID", "User-Agent")
_PASSED_BACK: Final = ("Content-Type", "Cache-Control", "ETag", "Retry-After", "WWW-Authenticate", "Allow")


class HttpDoor:
    def __init__(
        self,
        core: AdmissionCore,
        desk: Desk,
        gate: Gate,
        turns: Turns,
        outputs: Outputs,
        files: Files,
        identities: Identities,
        nc: Client,
        monitor_url: str,
        peers: Peers,
        room: Room,
        shares: Shares,
        removed: Removed,
    ) -> None:
        self._room, self._shares, self._removed = room, shares, removed
        self._core, self._desk, self._gate, self._turns = core, desk, gate, turns
        self._outputs, self._files = outputs, files
        self._identities, self._nc = identities, nc
        self._monitor_url, self._peers = monitor_url.rstrip("/"), peers
        self._tokens_at = 0.0
        self._large = asyncio.Semaphore(LARGE_MAX)
        self.session: aiohttp.ClientSession | None = None

    def routes(self) -> list[web.RouteDef]:
        found = [web.route(x.method, _pattern(x.path), self._handler(x)) for x in ROUTES]
        return [*found, web.route("*", "/v1/{tail:.*}", self.elsewhere)]

    async def open(self, _app: web.Application) -> AsyncIterator[None]:
        """The line to the monitor, as long as the application lives."""
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=SILENCE_MAX_S)
        line = aiohttp.TCPConnector(limit=PASSED_MAX)
        async with aiohttp.ClientSession(
            connector=line, timeout=timeout, auto_decompress=False, trust_env=False
        ) as self.session:
            yield

    # ------------------------------------------------------------------------------------------------------------ callers

    async def caller(self, request: web.Request) -> Caller:
        """Raises `HttpError` 401, `Refused` (limit, unavailable)."""
        now = time.monotonic()
        if now - self._tokens_at >= TOKENS_EVERY_S:
            self._identities.refresh()
            self._tokens_at = now
        config = self._core.custody.state.config
        identity = self._identities.by_token(bearer(request), config) if config else None
        if identity is None and config and self._identities.refresh():  # made a moment ago
            identity = self._identities.by_token(bearer(request), config)
        if identity is None:
            told = self._asked(request, f"{request.method} {request.path}")
            async with self._turns.turn(NOBODY, told.peer, READ):
                pass
            error = unauthorised(self._identities.ended(bearer(request)))
            self._gate.refused(told, error.refused)
            raise error
        is_known(request)
        return Caller(identity.user, identity.department, identity.role)

    def _handler(self, route: Route) -> Handler:
        method: Callable[..., Awaitable[web.StreamResponse]] = getattr(self, route.handler)
        if not route.token:

            async def shown(request: web.Request) -> web.StreamResponse:
                refuse_unknown(route, request)
                return await method(request)

            return shown

        async def served(request: web.Request) -> web.StreamResponse:
            caller = await self.caller(request)
            told = self._asked(request, _kind(route, request), caller)
            with asking(told), Held(self._room, caller.department, caller.user):
                try:
                    refuse_unknown(route, request)
                    answer: web.StreamResponse = await method(request, caller, route.kind)
                except (Refused, HttpError) as error:
                    self._gate.refused(told, error.refused if isinstance(error, HttpError) else error)
                    raise
                self._gate.granted(told)
            return answer

        return served

    def _asked(self, request: web.Request, kind: str, caller: Caller | None = None) -> Asked:
        client, peer = request.headers.get("User-Agent", ""), self._peers.of(request)
        if caller is None:
            return Asked(kind, "http", peer=peer, client=client)
        user, department, role = caller.user, caller.department, caller.role
        names = (request.match_info["department"][:NAME_MAX],) if kind.startswith("signal.") else ()
        return Asked(kind, "http", user=user, department=department, role=role, peer=peer, client=client, names=names)

    @contextlib.asynccontextmanager
    async def _turn(self, caller: Caller, cost: float, size: int = 0) -> AsyncIterator[Turn]:
        """Raises `Refused` (limit)."""
        async with self._turns.turn(caller.department, caller.user, cost + HTTP, size) as turn:
            try:
                yield turn
            finally:
                told = current()
                turn.leave(told.cost if told is not None else 0.0)

    async def _ask(self, request: web.Request, caller: Caller, department: str, kind: str, data: bytes) -> web.Response:
        async with self._turn(caller, cost_of(kind), len(data)):
            return await self._answer(caller, department, kind, _decoded(kind, data, not is_msgpack(request)))

    async def _ask_of(
        self, request: web.Request, caller: Caller, department: str, kind: str, **named: str
    ) -> web.Response:
        """What the body says, with what the path has named."""
        data = await read_body(request, EXTRA_MAX_BYTES)
        async with self._turn(caller, cost_of(kind), len(data)):
            given = _object(request, data)
            _refuse_another(given, named)
            return await self._answer(caller, department, kind, _with(kind, given, request, **named))

    async def _answer(self, caller: Caller, department: str, kind: str, asked: r.Message) -> web.Response:
        return reply(await self._desk.handle(caller, department, kind, asked))

    # ----------------------------------------------------------------------------------------------------------- requests

    async def submit(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        """The body is read before its turn is waited for: a slow one delays no other request."""
        department = request.query.get("department", caller.department)
        data = await read_body(request, submission_max_bytes(self._core))
        if len(data) < LARGE_BYTES:
            return await self._ask(request, caller, department, kind, data)
        async with self._large:
            return await self._ask(request, caller, department, kind, data)

    async def change_job(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        """The job of the path, and those that the body names beside it.  Of one job alone a refusal is the whole answer."""
        data = await read_body(request, EXTRA_MAX_BYTES)
        async with self._turn(caller, cost_of(kind), len(data)):
            given = _object(request, data)
            named = given.get("jobs", [])
            jobs = [request.match_info["job"], *named] if isinstance(named, list) else named
            asked = _with(kind, given, request, jobs=jobs)
            answer = await self._desk.handle(caller, caller.department, kind, asked)
        if "jobs" not in given and isinstance(answer, r.JobResults) and (error := answer.results[0].error) is not None:
            raise Refused.of(error)
        told = current()
        if told is not None:
            self._gate.parts(told, answer)
        return reply(answer)

    async def change_lease(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        return await self._ask_of(request, caller, caller.department, kind, lease=request.match_info["lease"])

    async def change_department(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        data = await read_body(request, EXTRA_MAX_BYTES)
        return await self._ask(request, caller, request.match_info["department"], kind, data)

    async def change_host(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        return await self._ask_of(request, caller, caller.department, kind, host=request.match_info["host"])

    async def instances(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        async with self._turn(caller, cost_of(kind)):
            return await self._answer(caller, request.match_info["department"], kind, r.InstanceList())

    async def report_instance(self, request: web.Request, caller: Caller, kind: str) -> web.Response:
        info = request.match_info
        return await self._ask_of(request, caller, info["department"], kind, unit=info["unit"])

    async def signal(self, request: web.Request, caller: Caller, _kind: str) -> web.Response:
        department, name = request.match_info["department"], request.match_info["name"]
        if self._core.department(department) is None or not compose.may_see(caller, department):
            raise Refused("denied", f"department: {caller.user} may not signal {department[:64]}", "department")
        known = self._core.department(department)
        if known is not None and known.kind != "web":
            raise Refused(
                "invalid", f"department: {department} is a batch department; signals are for web ones", "department"
            )
        if name not in signals.SIGNALS:
            raise Refused("unknown", f"name: there is no signal {name[:64]!r}; {', '.join(signals.SIGNALS)}", "name")
        data = await read_body(request, signals.bytes_max(name))
        kind = MSGPACK if is_msgpack(request) else JSON
        async with self._turn(caller, READ, len(data)):
            told = _signal(name, data, kind)
        _in_time(told, time.time())
        _may_tell(told, caller, known)
        try:
            await self._nc.publish(subjects.signal(department, caller.user, name), data, headers={"Content-Type": kind})
        except (nats.errors.Error, OSError) as error:
            raise Refused("unavailable", "the broker does not answer: try again") from error
        return reply(r.Done())

    # -------------------------------------------------------------------------------------------------------------- reads

    async def _readable(self, request: web.Request, caller: Caller) -> Readable:
        session = self.session
        assert session is not None
        headers = {"Authorization": request.headers.get("Authorization", "")}
        ask = f"{self._monitor_url}/v1/jobs/"
        async with self._turn(caller, READ):
            return await locate(
                self._core,
                self._outputs,
                session,
                ask,
                headers,
                caller,
                request.match_info.get("job") or request.match_info["unit"],
                request.query.get("attempt"),
            )

    async def output(self, request: web.Request, caller: Caller, _kind: str) -> web.StreamResponse:
        name = request.query.get("stream", "stdout")
        if name not in STREAMS:
            raise wrong_parameter("stream", "stdout or stderr")
        rank, offset = whole(request, "rank", RANKS_MAX - 1), whole(request, "offset", OFFSET_MAX)
        wait_s = min(number(request, "wait_s", 0.0, WAIT_ASKED_MAX_S), WAIT_MAX_S)
        found = await self._readable(request, caller)
        found.check_rank(rank)
        over = found.is_over(self._core, rank)  # before the look: what came until then is in
        stream = StreamId(found.unit, found.stored, rank, name)
        if not found.attempt:
            return web.Response(headers=_place(found, offset, over), content_type=_BYTES)
        if over and not await self._outputs.end(stream) and (told := await self._told_removed(found)):
            headers = {**_place(found, offset, over), "Phoenix-Removed": told}
            return web.Response(headers=headers, content_type=_BYTES)
        if is_instance(found.unit):
            offset = max(offset, await self._outputs.first(stream))  # what came before is not kept
        if not wait_s:
            return await self._send(request, found, stream, offset, over)
        data, end = await self._follow(found, stream, offset, time.monotonic() + wait_s)
        return web.Response(body=data, headers=_place(found, offset + len(data), end), content_type=_BYTES)

    async def _send(
        self, request: web.Request, found: Readable, stream: StreamId, offset: int, over: bool
    ) -> web.StreamResponse:
        """All that there is from `offset` on.  A part that fails breaks the connection off: the length was already sent."""
        end = max(offset, await self._outputs.end(stream))
        answer = web.StreamResponse(headers={**_place(found, end, over), "Content-Type": _BYTES})
        answer.content_length = end - offset
        await answer.prepare(request)
        async for part in self._outputs.parts(stream, offset, end):
            async with asyncio.timeout(SILENCE_MAX_S):
                await answer.write(part)
        await answer.write_eof()
        return answer

    async def _follow(self, found: Readable, stream: StreamId, offset: int, deadline: float) -> tuple[bytes, bool]:
        """What there is from `offset`, waiting for it until `deadline`; and whether nothing more will come after it."""
        while True:
            over = found.is_over(self._core, stream.rank)  # before the read: what came until then is in
            data = await self._outputs.read(stream, offset)
            left_s = deadline - time.monotonic()
            if data or over or left_s <= 0:
                end = over and (not data or not await self._outputs.read(stream, offset + len(data)))
                return data, end
            await self._outputs.news.wait(stream.unit, left_s)

    async def files(self, request: web.Request, caller: Caller, _kind: str) -> web.Response:
        _refuse_instance(request)
        found = await self._readable(request, caller)
        listed = await self._files.list(found.unit, found.stored)
        files = [{"name": name, "size": size} for name, size in listed.items()]
        removed = {} if files or not (told := await self._told_removed(found)) else {"removed": told}
        return reply({"attempt": found.attempt, "files": files, **removed})

    async def file(self, request: web.Request, caller: Caller, _kind: str) -> web.Response:
        _refuse_instance(request)
        found = await self._readable(request, caller)
        name = request.match_info["name"]
        data = await self._files.get(found.unit, found.stored, name)
        if data is None:
            answer = await self._told_removed(found)
            kept = f"attempt {found.attempt} of {found.unit} kept no file {name[:200]}"
            raise Refused("unknown", f"{kept}; what it kept was {answer}" if answer else kept, "name")
        return web.Response(body=data, content_type="application/octet-stream")

    async def _told_removed(self, found: Readable) -> str:
        """Of a job that has ended: why nothing is there, if that is why."""
        if found.ended_at is None:
            return ""
        limits = compose.adopted(self._core).limits
        return await self._removed.told(found.dept, found.ended_at, limits, time.time())

    async def store(self, _request: web.Request, caller: Caller, _kind: str) -> web.Response:
        """What departments have in the object store: the caller's own, an operator's all."""
        names = [name for name in self._shares.departments() if name and compose.may_see(caller, name)]
        return reply({"counted": self._shares.is_counted, "departments": [self._shares.told(n) for n in names]})

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=_openapi(), content_type=JSON)

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.Response(status=204)

    # ------------------------------------------------------------------------------------------------------- pass-through

    async def elsewhere(self, request: web.Request) -> web.StreamResponse:
        """What no route of this server is: GET is the monitor's; another method is none, of a path that there is."""
        if request.method in ("GET", "HEAD"):
            return await self.pass_on(request)
        allowed = {*_methods_of_reads(request.path), *await _methods(request)}
        raise web.HTTPMethodNotAllowed(request.method, allowed) if allowed else web.HTTPNotFound()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """A read of the monitor's, streamed.  The monitor checks the token as admission would.  It receives how far admission
        has folded and answers from there on: a caller that got "submitted" sees the job in the next read."""
        caller = await self.caller(request)
        session = self.session
        assert session is not None
        headers = {name: shown(request.headers[name]) for name in _PASSED_ON if name in request.headers}
        if wants_msgpack(request):
            headers["Accept"] = MSGPACK
        headers[FORWARDED] = self._peers.of(request)  # for the monitor's audit
        headers[POSITION] = str(self._core.custody.state.position)
        url = f"{self._monitor_url}{request.rel_url.raw_path}"
        if request.rel_url.raw_query_string:
            url += f"?{request.rel_url.raw_query_string}"
        try:
            async with self._turn(caller, READ) as turn:
                asked = session.get(URL(url, encoded=True), headers=headers, allow_redirects=False)
                async with asked as answer:
                    turn.leave()  # how long it is read is no matter of turns
                    return await _relay(request, answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Refused("unavailable", "the monitor does not answer: try again") from error


def submission_max_bytes(core: AdmissionCore) -> int:
    config = core.custody.state.config
    limits = config.limits if config else Limits()
    return limits.script_max_bytes * 2 + limits.input_max_bytes * 4 // 3 + EXTRA_MAX_BYTES


def body_room(core: AdmissionCore) -> Room:
    """For the bodies of all callers with a token, guests among them."""
    return Room(lambda: min(ROOM_MAX_BYTES, max(ROOM_MIN_BYTES, ROOM_BODIES * submission_max_bytes(core))))


def _place(found: Readable, offset: int, over: bool) -> dict[str, str]:
    end = "true" if over else "false"
    began = str(found.stored) if found.attempt else "0"
    return {
        "Phoenix-Offset": str(offset),
        "Phoenix-End": end,
        "Phoenix-Attempt": str(found.attempt),
        "Phoenix-Began": began,
    }


async def _relay(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
    relayed = web.StreamResponse(status=answer.status, headers=headers)
    await relayed.prepare(request)
    # From here on the status is sent: a monitor that breaks off ends the answer, it does not change it.
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionResetError):
        async for chunk in answer.content.iter_any():
            async with asyncio.timeout(SILENCE_MAX_S):
                await relayed.write(chunk)
        await relayed.write_eof()
    return relayed


@cache
def _openapi() -> bytes:
    """The generated document (`openapi`), from the file beside this module: the program that serves it makes none."""
    return Path(__file__).with_name("openapi.json").read_bytes()


async def _methods(request: web.Request) -> set[str]:
    """Methods that the routes of this server have for the path, but for the one that serves what is left."""
    found: set[str] = set()
    for resource in request.app.router.resources():
        match, methods = await resource.resolve(request)
        if match is None:
            found |= methods
    return found


def _methods_of_reads(path: str) -> tuple[str, ...]:
    return ("GET", "HEAD") if any(one.fullmatch(path) for one in _READS) else ()


def refuse_unknown(route: Route, request: web.Request) -> None:
    """Raises `HttpError` 400 for a parameter of the query that `route` does not have."""
    known = [parameter.name for parameter in route.query]
    for name in request.query:
        if name not in known:
            field = name[:NAME_MAX]
            raise wrong_parameter(field, no_such("parameter", field, known))


def _pattern(path: str) -> str:
    """Kept files may have directories in their names."""
    return path.replace("/files/{name}", "/files/{name:.+}")


def _object(request: web.Request, data: bytes) -> dict[str, object]:
    """The body's members; none of an empty one.  Raises `HttpError` 400 if it is no object."""
    return decoded(request, data, dict[str, object])


def _refuse_instance(request: web.Request) -> None:
    """Raises `Refused`: only jobs keep files."""
    if is_instance(request.match_info["job"]):
        raise Refused("invalid", f"{request.match_info['job'][:NAME_MAX]!r} is no job: instances keep no files", "job")


def _refuse_another(given: dict[str, object], named: dict[str, str]) -> None:
    """Of one thing that the path names, the body says nothing, or the same.  Raises `Refused`."""
    for field, name in named.items():
        if given.get(field, name) != name:
            raise Refused("invalid", f"{field}: the address names {name[:NAME_MAX]!r}; leave it out of the body", field)


def _with(kind: str, given: dict[str, object], request: web.Request, **named: object) -> r.Message:
    """Raises as `_decoded` does."""
    encode = msgspec.msgpack.encode if is_msgpack(request) else msgspec.json.encode
    return _decoded(kind, encode({**given, **named}), not is_msgpack(request))


def _decoded(kind: str, data: bytes, as_json: bool) -> r.Message:
    """Raises `HttpError` 400 for what cannot be read, `Refused` for a field that does not fit."""
    try:
        decoded: r.Message = r.decode(kind, data, as_json)
    except r.Malformed as error:
        raise _malformed(error) from None
    return decoded


def _malformed(error: r.Malformed) -> HttpError | Refused:
    refused = Refused("invalid", error.message, error.field)
    return HttpError(400, refused) if error.field is None else refused


def _signal(name: str, data: bytes, content_type: str) -> signals.AnySignal:
    """Raises as `_decoded` does."""
    try:
        signal: signals.AnySignal = signals.decode(name, data, content_type)
    except r.Malformed as error:
        raise _malformed(error) from None
    return signal


def _in_time(signal: signals.AnySignal, now: float) -> None:
    """Over HTTP a wrong clock is refused at once.  Raises `Refused`."""
    off_s = 0.0 if signal.at is None else received(signal.at) - now
    if not -signals.LATE_S <= off_s <= signals.AHEAD_S:
        off = f"{abs(off_s):.1f} s {'before' if off_s < 0 else 'after'} admission's clock"
        right = f"a signal is at most {signals.LATE_S:g} s old and {signals.AHEAD_S:g} s ahead"
        raise Refused("invalid", f"at: {off}; {right}: set the clock, or leave `at` out", "at")


def _may_tell(signal: signals.AnySignal, caller: Caller, department: Department | None) -> None:
    """The scheduler drops what does not count; over HTTP the caller gets the reason.  Raises `Refused`."""
    if department is None:
        return
    if not isinstance(signal, signals.ClaimSignal):
        compose.refuse_word(caller, department)
        return
    most = signals.claim_max(department.web or WebPolicy(), caller.role)
    if caller.role == "user" and signal.instances > most:
        may = f"{caller.user} may claim {most} instances of {department.name} at most (its claim_max_user)"
        raise Refused("denied", f"instances: {may}; managers and operators may claim more", "instances")


def _kind(route: Route, request: web.Request) -> str:
    """What was asked, as the audit has it: the request's kind, `signal.cpu`, or what was called."""
    if route.kind:
        return route.kind
    if route.handler == "signal":
        return f"signal.{request.match_info['name'][:NAME_MAX]}"
    return f"{route.method} {request.path[:PATH_MAX]}"
