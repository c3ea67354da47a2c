"""The client library: what programs ask of a cloud, over HTTP, as coroutines.

    async with Client.find() as phoenix:
        job = await phoenix.submit(argv=["echo", "hello"])
        end = await phoenix.wait(job, timeout_s=60)

Rules
  1. Each call ends within its `timeout_s` (the client's, 30 s, if it names none), whatever the cloud does; streams end where
     their docstring says.
  2. Each change that the wire can tell apart carries a request id, so that it is done once however often it is sent
     (`retries`).  The caller may name the id, to repeat a call after a restart of the program.
  3. An error is a `PhoenixError`, and its type says what to do (`errors`).
  4. Jobs are named by what `submit` has returned, or by text: ``17``, an element ``17_3``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

from phoenix.client import answers, following, where
from phoenix.client.address import quote
from phoenix.client.answers import (
    Department,
    Deployed,
    Event,
    Explanation,
    File,
    Host,
    Instance,
    Job,
    Json,
    Lease,
    LeaseGranted,
    Prediction,
    Queue,
    Release,
    Start,
    Story,
    Submitted,
    object_of,
)
from phoenix.client.errors import Refused, TimedOut, Unavailable, of_part
from phoenix.client.options import JobOptions, LeaseOptions, ReleaseOptions
from phoenix.client.retries import Repeat
from phoenix.client.times import written
from phoenix.client.transport import TIMEOUT_S, Token, Transport

JobRef: TypeAlias = str | Submitted | Job
After: TypeAlias = str | Submitted | Sequence[JobRef]
WAIT_S: Final = 86400.0  # a day
POLL_FIRST_S: Final = 0.05
POLL_MAX_S: Final = 1.0  # a second is not noticed; ten thousand waiting programs are still few requests
SHARE: Final = 4.0  # a question rests for this many times as long as its answer took: of large arrays
JOBS_MAX: Final = 1000  # named in one cancel, hold or release: `schemas.requests.JOBS_MAX`
HISTORY_PAGE: Final = 1000  # rows
LOAD: Final = "load.observed"  # one a second of each web department
SIGNAL_S: Final = 5.0  # a signal is worth nothing later


class Client:
    """One cloud, with one credential.  `url`: of its HTTP interface; `token` or `token_file`: who calls; `timeout_s`: of each
    call; `agent`: how the cloud's audit names this program; `ca_file`: of an https address, the certificate authorities to
    trust, as PEM (None: $SSL_CERT_FILE, else the system's).  Belongs to one event loop; close it, or use ``async with``."""

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        token_file: str | Path | None = None,
        timeout_s: float = TIMEOUT_S,
        agent: str = "phoenix-client",
        ca_file: str | Path | None = None,
    ) -> None:
        file = None if token_file is None else Path(token_file)
        self._line = Transport(url, Token(token, file), timeout_s=timeout_s, agent=agent, ca_file=ca_file)

    @classmethod
    def find(
        cls,
        data: str | Path | None = None,
        *,
        user: str | None = None,
        timeout_s: float = TIMEOUT_S,
        agent: str = "phoenix-client",
        ca_file: str | Path | None = None,
    ) -> Self:
        """The cloud that the command line would find (`where`): in the directory `data`, at `$PHOENIX_URL` with the token in
        `$PHOENIX_TOKEN_FILE`, in `$PHOENIX_DATA`, or in `./.phoenix`.  `user`: in an embedded cloud, who calls; without it
        `$PHOENIX_USER`, else its operator.  Raises `Unavailable`, `Denied`, `Invalid`."""
        site = where.find(data)
        name = user or (os.environ.get("PHOENIX_USER") if site.data is not None else None)
        chosen = site.user(name) if name else site.operator()
        file = where.token_of(site, chosen)
        return cls(site.url, token_file=file, timeout_s=timeout_s, agent=agent, ca_file=ca_file)

    @property
    def url(self) -> str:
        return self._line.url

    async def close(self) -> None:
        """End its connections.  The next call would open new ones."""
        await self._line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---------------------------------------------------------------------------------------------------------------- jobs

    async def submit(
        self,
        *,
        after: After | None = None,
        department: str | None = None,
        request: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Submitted:
        """A job, or with `array` an array of them.  `after`: a dependency as for `phoenix submit --dependency`
        (``afterok:17,afterany:18``), or jobs that must have completed.  `department`: for operators.  `request`: its id, at
        most 128 characters; the same id submits the same job only once."""
        asked = {**_wire(options), "request": request or _new_id()}
        if after is not None:
            asked["after"] = _dependency(after)
        answer = await self._change("/v1/jobs", asked, {"department": department}, timeout_s)
        return answers.read(Submitted, answer, request=asked["request"])

    async def job(self, job: JobRef, *, timeout_s: float | None = None) -> Job:
        """A job, an element, or an array with all its elements; also one that ended long ago."""
        return answers.read(Job, object_of(await self.get(f"/v1/jobs/{_name(job)}", timeout_s=timeout_s)))

    async def wait(
        self,
        job: JobRef,
        *,
        timeout_s: float = WAIT_S,
        poll_s: float = POLL_MAX_S,
        patience_s: float = following.PATIENCE_S,
    ) -> Job:
        """The job once it is final, an array once all its elements are.  It is asked for at least every `poll_s` seconds, of a
        large array more seldom.  Raises `TimedOut` after `timeout_s`; `Unavailable` if the cloud is away for `patience_s`.  A
        job that fails is no error: see `Job.succeeded`, `Job.exit_code`."""
        now = asyncio.get_running_loop().time
        end, pause_s, patience = now() + timeout_s, POLL_FIRST_S, following.Patience(patience_s)
        state = "unknown"
        while True:
            began = now()
            try:
                found = await self.job(job, timeout_s=max(0.0, min(self._line.timeout_s, end - began)))
                patience.answered()
                if found.is_final:
                    return found
                state = found.state
            except (Unavailable, TimedOut):
                if now() < end and patience.is_over():
                    raise
            rest_s = max(min(poll_s, pause_s), SHARE * (now() - began))
            await asyncio.sleep(max(0.0, min(rest_s, end - now())))
            if now() >= end:
                raise TimedOut(f"job {_name(job)} is not over after {timeout_s:g} s: its state is {state}")
            pause_s *= 1.3

    async def read_output(
        self,
        job: JobRef,
        *,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        rank: int | None = None,
        attempt: int | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """What a job, an element or an instance has written so far, from byte `offset` on.  `rank`: of a job on several nodes;
        `attempt`: default the latest.  Of an instance only the end is kept."""
        return await self._output(job, stream, rank, attempt).now(offset, timeout_s)

    def output(
        self,
        job: JobRef,
        *,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        rank: int | None = None,
        attempt: int | None = None,
        patience_s: float = following.PATIENCE_S,
    ) -> AsyncGenerator[bytes, None]:
        """The same, part by part as it is written, until the job is over and everything was yielded.  A connection that breaks
        is opened again; raises `Unavailable` if the cloud is away for `patience_s`.  If the job is queued again, its next
        attempt's output follows from its beginning; with `attempt` it ends with that attempt."""
        return self._output(job, stream, rank, attempt).follow(offset, patience_s)

    async def files(self, job: JobRef, *, timeout_s: float | None = None) -> list[File]:
        """The files that the cloud keeps of a job (its option `keep`)."""
        answer = await self.get(f"/v1/jobs/{_name(job)}/files", timeout_s=timeout_s)
        return list(answers.read_all(File, answer.get("files")))

    async def read_file(self, job: JobRef, name: str, *, timeout_s: float | None = None) -> bytes:
        """One of them."""
        return (await self._line.call("GET", f"/v1/jobs/{_name(job)}/files/{quote(name)}", timeout_s=timeout_s)).body

    async def cancel(self, *jobs: JobRef, timeout_s: float | None = None) -> None:
        """End jobs and elements; an array's number ends all its elements.  All are tried; then the first refusal is raised,
        whose `others` has every one by name.  One that was cancelled already is no error."""
        await self._change_jobs("cancel", jobs, timeout_s)

    async def hold(self, *jobs: JobRef, timeout_s: float | None = None) -> None:
        """Do not start jobs before they are released.  Errors as of `cancel`."""
        await self._change_jobs("hold", jobs, timeout_s)

    async def release(self, *jobs: JobRef, timeout_s: float | None = None) -> None:
        """Lift a hold.  Errors as of `cancel`."""
        await self._change_jobs("release", jobs, timeout_s)

    async def queue(
        self,
        *,
        department: str | None = None,
        state: str | None = None,
        user: str | None = None,
        limit: int | None = None,
        timeout_s: float | None = None,
    ) -> Queue:
        """Jobs and elements that are not over, or those in `state` (several with commas), in order of submission."""
        chosen = {"department": department, "state": state, "user": user, "limit": limit}
        return answers.read(Queue, await self.get("/v1/queue", chosen, timeout_s=timeout_s))

    async def history(
        self,
        *,
        department: str | None = None,
        user: str | None = None,
        state: str | None = None,
        name: str | None = None,
        host: str | None = None,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        sort: Literal["submitted", "started", "ended", "wait", "elapsed", "cores"] = "submitted",
        ascending: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncGenerator[Job, None]:
        """Jobs since the beginning, page by page, newest (longest, largest) first.  `name`: a pattern with ``*`` and ``?``; a
        job is of the period if it was there in it.  `timeout_s`: of each page."""
        chosen: dict[str, object] = {"department": department, "user": user, "state": state, "name": name, "host": host}
        chosen |= {"since": written(since, "since"), "until": written(until, "until"), "sort": sort}
        chosen |= {"order": "ascending" if ascending else None, "limit": HISTORY_PAGE}
        after: object = None
        while True:
            answer = await self.get("/v1/jobs", {**chosen, "after": after}, timeout_s=timeout_s)
            for row in answers.read_all(Job, answer.get("jobs")):
                yield row
            after = answer.get("next")
            if after is None:
                return

    async def whatif(
        self,
        *,
        after: After | None = None,
        department: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Prediction:
        """When and where such a job would start.  Nothing is submitted."""
        asked = _wire(options)
        if after is not None:
            asked["after"] = _dependency(after)
        values = {"department": department}
        answer = await self._line.call("POST", "/v1/whatif", values, asked, timeout_s=timeout_s)
        return answers.read(Prediction, answer.json())

    # ------------------------------------------------------------------------------------------------------------- reasons

    async def why(
        self,
        name: JobRef,
        *,
        kind: Literal["job", "department", "host"] | None = None,
        timeout_s: float | None = None,
    ) -> Explanation:
        """Why a job waits, an instance, a department or a host is as it is."""
        answer = await self.get(f"/v1/why/{_name(name)}", {"kind": kind}, timeout_s=timeout_s)
        return answers.read(Explanation, answer)

    async def story(
        self,
        name: JobRef,
        *,
        kind: Literal["job", "department", "host"] | None = None,
        last: int | None = None,
        since: datetime | float | None = None,
        timeout_s: float | None = None,
    ) -> Story:
        """The life of a job, instance, department or host, step by step; `last`: how many steps, at most 500."""
        chosen = {"kind": kind, "limit": last, "since": written(since, "since")}
        return answers.read(Story, await self.get(f"/v1/story/{_name(name)}", chosen, timeout_s=timeout_s))

    async def starts(self, *, department: str | None = None, timeout_s: float | None = None) -> dict[str, Start]:
        """By name, when the first jobs of each queue are expected to start."""
        answer = await self.get("/v1/starts", {"department": department}, timeout_s=timeout_s)
        return {unit: answers.read(Start, start) for unit, start in object_of(answer.get("starts")).items()}

    # -------------------------------------------------------------------------------------------------------------- events

    def events(
        self,
        *,
        after: int | str | None = None,
        department: str | None = None,
        omit: Iterable[str] = (LOAD,),
        follow: bool = True,
        patience_s: float = following.PATIENCE_S,
    ) -> AsyncGenerator[Event, None]:
        """Events in the journal's order, each once.  `after`: a position, or the `id` of the last event that was handled;
        without it those that come from now on.  `department`: for operators; others get their own department's.  `omit`: kinds
        to leave out.  Without `follow` it ends with what there is now.

        A connection that breaks is opened again behind the last event.  Raises `Gone` if some behind `after` are not kept any
        more: nothing is left out silently.  Raises `Unavailable` if the cloud is away for `patience_s`."""
        chosen = {"department": department, "omit": ",".join(omit)}
        return following.events(self._line, after, chosen, on=follow, patience_s=patience_s)

    # -------------------------------------------------------------------------------------------------- hosts, departments

    async def hosts(self, *, timeout_s: float | None = None) -> list[Host]:
        """All hosts, in order of their names."""
        return list(answers.read_all(Host, (await self.get("/v1/hosts", timeout_s=timeout_s)).get("hosts")))

    async def cordon(self, host: str, *, reason: str = "", timeout_s: float | None = None) -> None:
        """Place nothing more on a host.  For operators, as the next two."""
        await self._change(f"/v1/hosts/{quote(host)}/cordon", {"reason": reason}, {}, timeout_s)

    async def drain(
        self, host: str, *, reason: str = "", deadline_s: float | None = None, timeout_s: float | None = None
    ) -> None:
        """As `cordon`, and instances are replaced elsewhere first; after `deadline_s` seconds what remains is ended.  With a
        deadline it is not repeated after a lost answer, because it would count from then."""
        asked = {"reason": reason, "deadline_s": deadline_s}
        repeat = Repeat.SAFE if deadline_s is None else Repeat.ONCE
        await self._change(f"/v1/hosts/{quote(host)}/drain", asked, {}, timeout_s, repeat)

    async def uncordon(self, host: str, *, reason: str = "", timeout_s: float | None = None) -> None:
        """Return a host to use."""
        await self._change(f"/v1/hosts/{quote(host)}/uncordon", {"reason": reason}, {}, timeout_s)

    async def departments(self, *, timeout_s: float | None = None) -> list[Department]:
        """All departments, in the configuration's order."""
        answer = await self.get("/v1/departments", timeout_s=timeout_s)
        return list(answers.read_all(Department, answer.get("departments")))

    async def department(self, name: str, *, timeout_s: float | None = None) -> Department:
        """One of them."""
        return answers.read(Department, await self.get(f"/v1/departments/{quote(name)}", timeout_s=timeout_s))

    async def usage(
        self,
        *,
        by: Literal["department", "user", "service", "lease"] = "department",
        department: str | None = None,
        since: datetime | float | None = None,
        until: datetime | float | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """Who held and used how much (docs/reference/usage.md), in seconds."""
        chosen = {"by": by, "department": department}
        period = {"since": written(since, "since"), "until": written(until, "until")}
        return await self.get("/v1/usage", {**chosen, **period}, timeout_s=timeout_s)

    # ----------------------------------------------------------------------------------------------------- web departments

    async def instances(
        self, department: str | None = None, *, ended: bool = False, timeout_s: float | None = None
    ) -> list[Instance]:
        """The instances of a web department, or of all; `ended`: also the last 50 of each that have ended."""
        answer = await self.get("/v1/instances", _also(department, ended), timeout_s=timeout_s)
        return list(answers.read_all(Instance, answer.get("instances")))

    async def scale(
        self,
        department: str,
        minimum: int | None = None,
        *,
        exact: int | None = None,
        for_s: float | None = None,
        auto: bool = False,
        request: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """At least `minimum`, or exactly `exact` instances, for `for_s` seconds (None: until changed); `auto`: the load decides
        again.  For managers and operators."""
        asked = {"minimum": minimum, "exact": exact, "for_s": for_s, "auto": auto, "request": request or _new_id()}
        await self._change(f"/v1/departments/{quote(department)}/scale", asked, {}, timeout_s)

    async def deploy(
        self,
        department: str,
        *,
        request: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[ReleaseOptions],
    ) -> Deployed:
        """A new release: the department's instances are replaced by ones that run it.  For managers and operators."""
        asked = {**options, "request": request or _new_id()}
        answer = await self._change(f"/v1/departments/{quote(department)}/releases", asked, {}, timeout_s)
        return answers.read(Deployed, answer, request=asked["request"])

    async def releases(self, department: str, *, timeout_s: float | None = None) -> list[Release]:
        """The releases that are remembered, newest first."""
        answer = await self.get(f"/v1/departments/{quote(department)}/releases", timeout_s=timeout_s)
        return list(answers.read_all(Release, answer.get("releases")))

    async def signal_cpu(
        self,
        department: str,
        utilisation: float,
        *,
        instances: int | None = None,
        at: datetime | float | None = None,
        interval_s: float = 1.0,
        source: str = "",
        timeout_s: float = SIGNAL_S,
    ) -> None:
        """How busy a web department's instances are: 1.0 is all their cores (docs/reference/signals.md, as for the others).  A
        signal is published about once a second; one that is lost is not repeated, because the next one says more."""
        asked = {"utilisation": utilisation, "instances": instances, "interval_s": interval_s}
        await self._signal(department, "cpu", asked, at, source, timeout_s)

    async def signal_requests(
        self,
        department: str,
        rate: float,
        *,
        target: float | None = None,
        queue: int | None = None,
        response_ms: float | None = None,
        errors: float | None = None,
        refused: float | None = None,
        at: datetime | float | None = None,
        interval_s: float = 1.0,
        source: str = "",
        timeout_s: float = SIGNAL_S,
    ) -> None:
        """`rate` requests per second came in; `target`: that one instance should serve, else the department's own."""
        asked = {"rate": rate, "target": target, "queue": queue, "response_ms": response_ms, "errors": errors}
        asked |= {"refused": refused, "interval_s": interval_s}
        await self._signal(department, "requests", asked, at, source, timeout_s)

    async def signal_claim(
        self,
        department: str,
        instances: int,
        *,
        at: datetime | float | None = None,
        source: str = "",
        timeout_s: float = SIGNAL_S,
    ) -> None:
        """`instances` are wanted in all, whatever the load.  It ends `signal_timeout_s` after the last one."""
        await self._signal(department, "claim", {"instances": instances}, at, source, timeout_s)

    async def signal_sessions(
        self,
        department: str,
        sessions: Mapping[str, int],
        *,
        at: datetime | float | None = None,
        source: str = "",
        timeout_s: float = SIGNAL_S,
    ) -> None:
        """Open sessions by instance (``web.7``)."""
        await self._signal(department, "sessions", {"sessions": dict(sessions)}, at, source, timeout_s)

    async def signal_answers(
        self,
        department: str,
        instances: Mapping[str, tuple[int, int]],
        *,
        at: datetime | float | None = None,
        source: str = "",
        timeout_s: float = SIGNAL_S,
    ) -> None:
        """By instance: requests answered since the last signal, and how many of them with 5xx."""
        await self._signal(department, "answers", {"instances": dict(instances)}, at, source, timeout_s)

    # -------------------------------------------------------------------------------------------------------------- leases

    async def create_lease(
        self,
        kind: Literal["advance", "deadline", "immediate", "best-effort"],
        duration_s: float,
        *,
        start_at: datetime | float | None = None,
        deadline_at: datetime | float | None = None,
        department: str | None = None,
        request: str | None = None,
        timeout_s: float | None = None,
        **options: Unpack[LeaseOptions],
    ) -> LeaseGranted:
        """Machines for a time.  `advance`: from `start_at` on; `deadline`: over by `deadline_at`; `immediate`: now, or refused;
        `best-effort`: when there is room.  Raises `Conflict` if it collides; its `lease` names what would be granted."""
        asked: dict[str, Any] = {
            **_wire(options),
            "kind": kind,
            "duration_s": duration_s,
            "request": request or _new_id(),
        }
        asked |= {
            "start_at": written(start_at, "start_at"),
            "deadline_at": written(deadline_at, "deadline_at"),
        }
        answer = await self._change("/v1/leases", asked, {"department": department}, timeout_s)
        return answers.read(LeaseGranted, answer, request=asked["request"])

    async def extend_lease(
        self,
        lease: str | LeaseGranted,
        *,
        by_s: float | None = None,
        until_at: datetime | float | None = None,
        request: str | None = None,
        timeout_s: float | None = None,
    ) -> LeaseGranted:
        """Longer by `by_s` seconds, or until `until_at`."""
        asked = {"by_s": by_s, "until_at": written(until_at, "until_at"), "request": request or _new_id()}
        answer = await self._change(f"/v1/leases/{quote(str(lease))}/extend", asked, {}, timeout_s)
        return answers.read(LeaseGranted, answer, request=asked["request"])

    async def cancel_lease(self, lease: str | LeaseGranted, *, timeout_s: float | None = None) -> None:
        """End a lease: its time is free again."""
        await self._change(f"/v1/leases/{quote(str(lease))}/cancel", {}, {}, timeout_s)

    async def leases(
        self, *, department: str | None = None, ended: bool = False, timeout_s: float | None = None
    ) -> list[Lease]:
        """Leases in order of acceptance; `ended`: also those that are over and remembered."""
        answer = await self.get("/v1/leases", _also(department, ended), timeout_s=timeout_s)
        return list(answers.read_all(Lease, answer.get("leases")))

    async def lease(self, lease: str | LeaseGranted, *, timeout_s: float | None = None) -> Lease:
        """One of them."""
        return answers.read(Lease, await self.get(f"/v1/leases/{quote(str(lease))}", timeout_s=timeout_s))

    # -------------------------------------------------------------------------------------------------------- anything else

    async def get(
        self, path: str, values: Mapping[str, object] | None = None, *, timeout_s: float | None = None
    ) -> Json:
        """Any read of the interface, as plain JSON: ``get("/v1/lending")``.  `values`: its query; None is left out."""
        return object_of((await self._line.call("GET", path, values, timeout_s=timeout_s)).json())

    # -------------------------------------------------------------------------------------------------------------- inside

    async def _change(
        self,
        path: str,
        asked: Mapping[str, object],
        values: Mapping[str, object],
        timeout_s: float | None,
        repeat: Repeat = Repeat.SAFE,
    ) -> Json:
        request = str(asked.get("request", ""))
        answer = await self._line.call("POST", path, values, asked, repeat=repeat, timeout_s=timeout_s, request=request)
        return object_of(answer.json())

    async def _change_jobs(self, verb: str, jobs: Sequence[JobRef], timeout_s: float | None) -> None:
        names, wrong = [_name(job) for job in jobs], dict[str, Refused]()
        for first in range(0, len(names), JOBS_MAX):
            some = names[first : first + JOBS_MAX]
            answer = await self._change(f"/v1/jobs/{some[0]}/{verb}", {"jobs": some}, {}, timeout_s)
            wrong |= {str(r["job"]): of_part(r["error"]) for r in answer.get("results", []) if "error" in r}
        if wrong:
            error = next(iter(wrong.values()))
            error.others = wrong
            raise error

    async def _signal(
        self,
        department: str,
        name: str,
        asked: Mapping[str, object],
        at: datetime | float | None,
        source: str,
        timeout_s: float,
    ) -> None:
        told = {key: value for key, value in asked.items() if value is not None}
        told |= {"source": source} | ({} if at is None else {"at": written(at, "at")})
        await self._change(f"/v1/signals/{quote(department)}/{name}", told, {}, timeout_s, Repeat.ONCE)

    def _output(self, job: JobRef, stream: str, rank: int | None, attempt: int | None) -> following.Output:
        name = _name(job)
        is_instance = "." in name

        async def is_over(last: int) -> bool:
            if is_instance or attempt is not None:
                return True
            found = await self.job(job)
            return found.is_final and found.attempt <= last

        kind = "instances" if is_instance else "jobs"
        values = {"stream": stream, "rank": rank, "attempt": attempt}
        return following.Output(self._line, f"/v1/{kind}/{name}/output", values, is_over)


def _also(department: str | None, ended: bool) -> dict[str, object]:
    return {"department": department, "all": 1 if ended else None}


def _new_id() -> str:
    """96 random bits, as the command line's."""
    return os.urandom(12).hex()


def _name(job: JobRef) -> str:
    return quote(job.unit or job.job if isinstance(job, Job) else str(job))


def _dependency(after: After) -> str:
    """A specification as it is; else all of these must have completed."""
    if isinstance(after, str):
        return after
    jobs = [after] if isinstance(after, Submitted) else after
    return "afterok:" + ":".join(_name(job) for job in jobs)


def _wire(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the request has them: input files are a list."""
    asked = dict(options)
    if asked.get("inputs"):
        asked["inputs"] = [{"name": name, "data": data} for name, data in asked["inputs"].items()]
    else:
        asked.pop("inputs", None)
    return asked
