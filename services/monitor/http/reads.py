"""The monitor's HTTP: reads for the command line and pages.  Loopback by default; admission passes reads on to it.

Rules
  1. Every read but `/healthz`, `/metrics` and the page's files needs a bearer token or a session (`access`: who sees what, and
     how errors are answered).  Every request names this server as it is called (`origin`).
  2. What is more than a picture of the read model has a module of its own with its routes (`more`).
  3. A read never changes anything.
  4. Admission sends in `Phoenix-Position` how far it has folded; a read waits (`CATCH_UP_S` at most) until the monitor is as
     far, so that people read their own writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import CollectorRegistry, generate_latest

from services.monitor.core.monitor import MonitorCore
from services.monitor.events import LOAD, Publisher
from services.monitor.history import reads as history_reads
from services.monitor.history.file import History
from services.monitor.http.access import Access, Fault, faults, json_answer, rows_answer, whole
from services.monitor.http.history_routes import states_of
from services.monitor.http.origin import Hosts
from services.monitor.http.parameters import choice_of, integer_of, is_set, known, limit_of, several_of, time_of
from services.monitor.http.read_queue import InTurn
from services.monitor.http.usage_period import usage_asked
from services.monitor.parts import in_parts
from services.monitor.views.instances import instances
from services.monitor.views.levels import Levels
from services.monitor.views.times import not_before
from services.monitor.views.usage import BY, EVER
from services.monitor.views.views import QUEUE_LIMIT, Views
from services.runtime.http.answers import as_asked, made_safe

FOLLOW_S: Final = 25.0  # a follower gets an empty line this often, so that a dead peer is noticed
POSITION: Final = "Phoenix-Position"
CATCH_UP_S: Final = 2.0  # a monitor that is further behind answers with what it has
EVENTS_LIMIT: Final = 10_000


class Reads:
    """The handlers.  `more`: routes of other modules; `watch`: middlewares that see what is refused."""

    def __init__(
        self,
        core: MonitorCore,
        views: Views,
        history: History,
        publisher: Publisher,
        access: Access,
        registry: CollectorRegistry,
        wait_for: Callable[[int, float], Awaitable[None]],
        levels: Levels | None = None,
        more: Sequence[web.RouteDef] = (),
        hosts: Hosts | None = None,
        watch: Sequence[Middleware] = (),
        turns: InTurn | None = None,
    ) -> None:
        self.core, self.views, self.history, self.publisher = core, views, history, publisher
        self.access = access
        self.registry = registry
        self.wait_for, self.now = wait_for, not_before(core.custody)
        self.levels = levels or Levels(time.monotonic)
        self.more = more
        self.hosts_known, self.watch, self.turns = hosts or Hosts(""), watch, turns

    def app(self) -> web.Application:
        seen = [*self.watch, self.hosts_known.guard, known, self._catch_up]
        if self.turns is not None:
            seen.append(self.turns.served)
        app = made_safe(web.Application(middlewares=[as_asked, faults, *seen]))
        if self.turns is not None:
            self.turns.watch(app)
        app.add_routes(
            [
                web.get("/healthz", self.healthz),
                web.get("/metrics", self.metrics),
                web.get("/v1/queue", self.queue),
                web.get("/v1/jobs/{job}", self.job),
                web.get("/v1/leases", self.leases),
                web.get("/v1/leases/{lease}", self.lease),
                web.get("/v1/hosts", self.hosts),
                web.get("/v1/departments", self.departments),
                web.get("/v1/departments/{department}", self.department),
                web.get("/v1/departments/{department}/releases", self.releases),
                web.get("/v1/instances", self.instances),
                web.get("/v1/events", self.events),
                web.get("/v1/overview", self.overview),
                web.get("/v1/summary", self.summary),
                web.get("/v1/lending", self.lending),
                web.get("/v1/usage", self.usage),
                *self.more,
            ]
        )
        return app

    @web.middleware
    async def _catch_up(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        """Rule 4."""
        asked = request.headers.get(POSITION, "")
        if asked.isdecimal() and len(asked) < 19:
            with contextlib.suppress(TimeoutError):
                await self.wait_for(int(asked), CATCH_UP_S)
        return await handler(request)

    # --------------------------------------------------------------------------------------------------------- handlers

    async def healthz(self, _request: web.Request) -> web.Response:
        told = self.history.complaint
        answer = {"position": self.core.custody.state.position, "ailing": [told] if told else []}
        return json_answer(answer)

    async def metrics(self, _request: web.Request) -> web.Response:
        await in_parts(self.views.refreshing())
        return web.Response(body=generate_latest(self.registry), content_type="text/plain", charset="utf-8")

    async def queue(self, request: web.Request) -> web.Response:
        scope, wanted = self.access.scope(request), frozenset(states_of(request)) or None
        limit, user = limit_of(request, QUEUE_LIMIT), request.query.get("user")
        short = choice_of(request, "form", ("lines",), "") == "lines"
        body = await in_parts(self.views.queue(scope, wanted, limit, user, short=short))
        return web.Response(body=body, content_type="application/json")

    async def job(self, request: web.Request) -> web.Response:
        name = request.match_info["job"]
        self.access.who(request)
        missing = Fault(404, "unknown", f"there is no job {name!r}", "job")
        department = self.views.department_of(name)
        if department is not None:  # refused before it is made
            self.access.theirs(request, department, missing)
        found = await in_parts(self.views.job(name, self.now()))
        if found is not None:
            return web.Response(body=whole(found[0], "units", found[1]), content_type="application/json")
        view = await self.history.ask(history_reads.job, name, round(self.now() * 1000))
        if view is None:
            raise missing
        self.access.theirs(request, view["department"], missing)
        return await rows_answer(view, "units")

    async def leases(self, request: web.Request) -> web.Response:
        """Of the caller's department; with `all=1` also those that are over and still remembered."""
        scope, ended = self.access.scope(request), is_set(request, "all")
        return json_answer(self.views.leases(scope, time.time(), ended=ended))

    async def lease(self, request: web.Request) -> web.Response:
        name = request.match_info["lease"]
        self.access.who(request)
        view = self.views.lease(name, time.time())
        missing = Fault(404, "unknown", f"there is no lease {name!r} (any more)", "lease")
        if view is None:
            raise missing
        self.access.theirs(request, view["department"], missing)
        return json_answer(view)

    async def hosts(self, request: web.Request) -> web.Response:
        self.access.who(request)
        return json_answer(self.views.hosts(self.now()))

    async def lending(self, request: web.Request) -> web.Response:
        """What departments have agreed on, and what is lent now."""
        self.access.who(request)
        return json_answer(self.views.lending(self.now()))

    async def departments(self, request: web.Request) -> web.Response:
        self.access.who(request)
        await in_parts(self.views.refreshing())
        return json_answer(self.views.departments())

    async def department(self, request: web.Request) -> web.Response:
        name = request.match_info["department"]
        self.access.who(request)
        if self.core.custody.department(name) is None:
            raise Fault(404, "unknown", f"there is no department {name!r}", "department")
        await in_parts(self.views.refreshing())
        return json_answer({**self.views.department(name), "instances": self.views.instances(name)})

    async def releases(self, request: web.Request) -> web.Response:
        """What a web department's instances ran, run and are to run; contents are its own people's and the operators'."""
        name = request.match_info["department"]
        self.access.own(request, name)
        known = self.core.custody.department(name)
        if known is None or known.kind != "web":
            raise Fault(404, "unknown", f"there is no web department {name!r}", "department")
        return json_answer(self.views.releases(name))

    async def instances(self, request: web.Request) -> web.Response:
        """Of web departments; with `all=1` also the last ones that have ended."""
        scope, ended = self.access.scope(request), is_set(request, "all")
        return json_answer(instances(self.core, self.levels, scope, ended=ended))

    async def overview(self, request: web.Request) -> web.Response:
        self.access.who(request)
        await in_parts(self.views.refreshing())
        return json_answer(self.views.overview())

    async def summary(self, request: web.Request) -> web.Response:
        self.access.who(request)
        return json_answer(self.views.summary(time_of(request, "since", 0.0)))

    async def usage(self, request: web.Request) -> web.Response:
        scope, by = self.access.scope(request, past=True), choice_of(request, "by", BY, "department")
        period = time_of(request, "since", 0.0), time_of(request, "until", EVER)
        return json_answer(await usage_asked(self.core.accounting, self.history, self.now, by, scope, *period))

    async def events(self, request: web.Request) -> web.StreamResponse:
        scope, after = self.access.scope(request), integer_of(request, "after", 0)
        omitted = frozenset(several_of(request, "omit"))
        if "after" in request.query:
            self._refuse_gap(after, scope, omitted)
        if not is_set(request, "follow"):
            most, oldest = limit_of(request, EVENTS_LIMIT), "after" in request.query
            page = await in_parts(self.publisher.page(after, scope, omitted, most, oldest=oldest))
            return web.Response(body=b"".join(e.data + b"\n" for e in page), content_type="application/x-ndjson")
        if "limit" in request.query:
            raise Fault(400, "invalid", "limit: with follow=1 there is none, the answer does not end", "limit")
        if "after" not in request.query:
            after = self.publisher.newest
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(request)
        watcher = self.publisher.watch()
        try:
            await self._follow(answer, watcher, after, scope, omitted)
        except ConnectionResetError:
            pass  # the listener has gone: the usual end of a stream
        finally:
            self.publisher.unwatch(watcher)
        return answer

    def _refuse_gap(self, after: int, scope: str | None, omitted: frozenset[str]) -> None:
        oldest = self.publisher.complete_from(scope, loads=LOAD not in omitted)
        if after < oldest:
            right = f"request those after {oldest}; some before are missing"
            raise Fault(
                410, "gone", f"after: events up to position {oldest} are not kept; {right}", "after", oldest=oldest
            )

    async def _follow(
        self,
        answer: web.StreamResponse,
        watcher: asyncio.Event,
        after: int,
        scope: str | None,
        omitted: frozenset[str],
    ) -> None:
        due = time.monotonic() + FOLLOW_S  # what others have events of keeps no listener's connection alive
        while True:
            if after < self.publisher.complete_from(scope, loads=LOAD not in omitted) and after:
                return  # it read too slowly: it asks again, and learns what it has missed
            entries = self.publisher.after(after, scope, loads=LOAD not in omitted)
            after = max(after, self.publisher.newest)
            if entries:
                wanted = b"".join(e.data + b"\n" for e in entries if e.kind not in omitted)
                if wanted:
                    await answer.write(wanted)
                    due = time.monotonic() + FOLLOW_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watcher.wait(), max(0.0, due - time.monotonic()))
            if time.monotonic() >= due:
                await answer.write(b"\n")
                due = time.monotonic() + FOLLOW_S
            watcher.clear()
