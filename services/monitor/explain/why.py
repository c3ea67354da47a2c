"""`GET /v1/why/{name}`: why a job waits, an instance or a web department is as it is, a batch department has the hosts that it
has, a host is where it is; `GET /v1/starts`: when jobs start, as their scheduler foresees it.

Rules
  1. The service that decides explains: of jobs, instances and web departments the scheduler is asked; a batch department's
     hosts and a host's moves involve several services, so they come from the fold (`why_department`, `why_host`).
     Of a job that has ended nothing remains to be decided: its answer comes from the fold or the history.
  2. A name is a job's or an instance's first, then a department's, then a host's, unless `kind` is given.
  3. A department's people see their own jobs and departments; all users see all hosts.
  4. A start that cannot be estimated in time is no failure: then it is left out.
  5. Every answer has `sentences`, and `remedies` one for each: what would change it, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson
from aiohttp import web

from schemas import reasons as because
from schemas.ids import ELEMENT, JOB
from schemas.problems import problem_in
from services.domain import text as sentences
from services.domain.custody.state import ENDED_EARLY
from services.domain.text.starts import when_it_starts
from services.monitor.explain import why_department, why_host
from services.monitor.history import reads as history_reads
from services.monitor.history.file import History
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.parameters import choice_of
from services.monitor.parts import in_parts
from services.monitor.views.times import plain
from services.monitor.views.views import Views
from services.runtime.clock import Clock

KINDS = ("job", "department", "host")


class Schedulers(Protocol):
    """What is asked of a department's scheduler; None if it does not answer."""

    async def why(self, department: str, job: str) -> bytes | None: ...
    async def starts(self, department: str, jobs: Sequence[str] | None) -> bytes | None: ...


class Why:
    def __init__(self, access: Access, views: Views, history: History, schedulers: Schedulers, now: Clock) -> None:
        self.access, self.views, self.core, self.schedulers = access, views, views.core, schedulers
        self.history = history
        self.now = now

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/why/{name}", self.why),
            web.get("/v1/starts", self.starts),
            web.get("/v1/starts/{job}", self.start),
        ]

    async def why(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.access.who(request)
        kind = choice_of(request, "kind", KINDS, "")
        missing = Fault(
            404, "unknown", f"there is no {kind or 'job, department or host'} {name[:100]!r} (any more)", "job"
        )
        job = self.views.department_of(name) if kind in ("", "job") else None
        view = await self._known(name) if kind in ("", "job") else None
        if view is not None:
            job = str(view["department"])
        if job is not None:
            self.access.theirs(request, job, missing)
            ended = _ended(view) if view is not None else None
            return json_answer(_of_ended(name, ended)) if ended else await self._of_job(job, name)
        department = self.core.custody.department(name) if kind in ("", "department") else None
        if department is not None:
            self.access.own(request, name)
            if department.kind == "web":
                return json_answer(_spoken(await self._asked(name, name), name, name))
            found = why_department.explain(self.core, name, self.now())
        else:
            found = why_host.explain(self.core, name, self.now()) if kind in ("", "host") else None
        if found is None:
            raise missing
        return json_answer(worded(found))

    async def starts(self, request: web.Request) -> web.Response:
        """Of the first ones of each queue that the caller sees."""
        scope = self.access.scope(request)
        every = [department.name for department in self.core.custody.departments if department.kind == "batch"]
        asked = [name for name in every if scope in (None, name)]
        found: dict[str, Any] = {}
        for answer in await asyncio.gather(*(self._starts(name, None) for name in asked)):
            found |= answer
        return json_answer({"starts": found})

    async def start(self, request: web.Request) -> web.Response:
        name = request.match_info["job"]
        self.access.who(request)
        department = self.views.department_of(name)
        missing = Fault(404, "unknown", f"there is no job {name[:100]!r} (any more)", "job")
        if department is None:
            raise missing
        self.access.theirs(request, department, missing)
        return json_answer({"starts": await self._starts(department, [name])})

    # -------------------------------------------------------------------------------------------------------- asking

    async def _of_job(self, department: str, name: str) -> web.Response:
        """The scheduler's reasons, and when it starts if it waits."""
        if not name[:1].isdecimal():
            return json_answer(_spoken(await self._asked(department, name), name, department))
        found, starts = await asyncio.gather(self._asked(department, name), self._starts(department, [name]))
        answer = _spoken(found, name, department, self._by_hand)
        for start in list(starts.values())[:1]:
            answer["start"] = {**start, "sentence": when_it_starts(start, self.now(), sentences.sentence)}
        return json_answer(answer)

    async def _known(self, name: str) -> dict[str, Any] | None:
        """The job as `show` has it, or None."""
        if JOB.match(name) is None and ELEMENT.match(name) is None:
            return None
        found = await in_parts(self.views.job(name, rows=False))
        return (
            found[0] if found is not None else await self.history.ask(history_reads.job, name, round(self.now() * 1000))
        )

    def _by_hand(self, reason: dict[str, Any]) -> None:
        """Of hosts that web has: where a person keeps them, and not the load.  The scheduler does not know."""
        names = [name for name in reason.get("web") or () if why_department.by_hand(self.core, name, self.now())]
        if names:
            reason["by_hand"] = names

    async def _asked(self, department: str, name: str) -> dict[str, Any]:
        """The scheduler's answer.  Raises `Fault` (503) if there is none, or a refusal."""
        answer = await self.schedulers.why(department, name)
        if answer is None:
            look = "`phoenix status` shows whether it runs"
            raise Fault(503, "unavailable", f"the scheduler of {department} does not answer: {look}")
        if (refused := problem_in(answer)) is not None:  # it does not know the unit yet, or its order's plug-in fails
            raise Fault(503, "unavailable", f"the scheduler of {department} does not explain {name}: {refused.detail}")
        found: dict[str, Any] = orjson.loads(answer)
        return found

    async def _starts(self, department: str, jobs: list[str] | None) -> dict[str, Any]:
        """Rule 4."""
        answer = orjson.loads(await self.schedulers.starts(department, jobs) or b"{}")
        found = answer.get("starts") if isinstance(answer, dict) else None
        return found if isinstance(found, dict) else {}


def _of_ended(name: str, reasons: list[dict[str, Any]]) -> dict[str, Any]:
    return _told({"job": name, "unit": name, "reasons": reasons}, name, "")


def _spoken(
    answer: dict[str, Any], name: str, department: str, more: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """A scheduler's answer with its reasons as sentences (rule 5), and with what else is known of each."""
    reasons = answer.get("reasons") or []
    if more is not None:
        for reason in reasons:
            more(reason)
    return _told(answer, name, department)


def _told(answer: dict[str, Any], name: str, department: str) -> dict[str, Any]:
    """Rule 5."""
    reasons = answer.get("reasons") or []
    answer["sentences"] = [sentences.capital(sentences.sentence(reason)) for reason in reasons]
    remedies = [sentences.remedy(reason) for reason in reasons]
    answer["remedies"] = [text.replace("DEPARTMENT", department).replace("JOB", name) for text in remedies]
    return answer


def worded(answer: dict[str, Any]) -> dict[str, Any]:
    """Of a host or a batch department, as it is answered: sentences and remedies apart."""
    told = answer.pop("told")
    spoken = [sentences.capital(word["sentence"]) for word in told]
    return {**answer, "sentences": spoken, "remedies": [word["remedy"] for word in told]}


def _ended(view: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Of a job that is over: how it ended, of an array how many elements ended how; then why its last attempt was closed, if a
    service or a person decided that.  None: it is not over."""
    if view.get("ended_at") is None:
        return None
    end, counts = str(view["state"]), view.get("counts") or {}
    params: dict[str, Any] = {"end": end, "ended_at": view["ended_at"]}
    if counts:
        params["counts"] = [f"{counts[state]} {state.replace('_', ' ')}" for state in sorted(counts)]
    attempts = view.get("attempts") or [{}]
    last = attempts[-1]
    if view.get("exit_code") is not None and end != ENDED_EARLY and not counts:
        params["exit"] = view["exit_code"]
    params |= {name: last[name] for name in ("signal", "seconds") if last.get(name)}
    if len(attempts) > 1:
        params["attempt"] = last["attempt"]
    closed = last.get("why")
    more = closed and closed["code"] != end  # that it was cancelled is how it ended
    return [plain(because.Finished(**params)), *([closed] if more else [])]
