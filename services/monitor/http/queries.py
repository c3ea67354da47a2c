"""NATS side of the monitor: answers `phoenix.query.monitor.<department>.<what>` and asks schedulers for their reasons.

Rules
  1. The department is a token of the subject, and the server lets a department's people publish only their own: it says what
     may be seen.  `operators` sees everything.
  2. Answers go only to the requester (PROTOCOL S10).
  3. Usage is that of HTTP (`usage_period`); operators may name a `department`.
  4. Queries wait for their turn, those of a department as one caller's; no answer is larger than a message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from schemas import queries, subjects
from schemas.problems import TOO_LARGE
from schemas.times import received, received_if
from schemas.validation import Malformed
from services.monitor.history.file import History, StandsStill
from services.monitor.http.access import whole
from services.monitor.http.usage_period import usage_asked
from services.monitor.parts import in_parts
from services.monitor.views.usage import EVER
from services.monitor.views.views import Views
from services.runtime.broker import permissions
from services.runtime.broker.client import own_inbox
from services.runtime.broker.reply import answer_query, refusal
from services.runtime.clock import Clock, system_clock
from services.runtime.request_queue import BYTES_A_COST, Turn, Turns

WHY_S: Final = 2.0
COST: Final = 1.0  # a millisecond, and by the size of its answer what it turns out to be
ANSWER_MAX: Final = 1_000_000  # the broker's largest message is 1 MiB, headers included
ROWS_MAX: Final = 10_000
ROWS_BYTES: Final = 900_000
STARTS_S: Final = 4.0  # to look ahead takes a second or two in a full house
_ANYBODY: Final = ""  # a query's subject names a department and no user


class Queries:
    def __init__(self, nc: Client, views: Views, history: History, clock: Clock = system_clock) -> None:
        self.nc, self.views, self.history, self.clock = nc, views, history, clock
        self._inbox = own_inbox(permissions.asking_inbox("monitor"))
        self._asked = 0
        self._answering: set[asyncio.Task[None]] = set()

    def line(self, turns: Turns) -> Callable[[Msg], Awaitable[bool]]:
        """What hears queries (rule 4), and says whether they are refused."""

        async def heard(msg: Msg) -> bool:
            department = msg.subject.split(".")[3]

            def start(turn: Turn | None) -> None:
                if turn is not None:
                    task = asyncio.create_task(self._on_query(msg, turn), name="query")
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)

            refused = turns.put(department, _ANYBODY, COST, len(msg.data), start)
            if refused is not None and turns.answers(department, _ANYBODY):
                await answer_query(msg, department, msgspec.json.encode(refused.problem()))
            return refused is not None

        return heard

    async def _on_query(self, msg: Msg, turn: Turn) -> None:
        size = 0
        try:
            size = await self._answer(msg)
        finally:
            turn.leave(size / BYTES_A_COST)

    async def _answer(self, msg: Msg) -> int:
        """The size of the answer."""
        department, what = msg.subject.split(".")[3:5]
        scope = None if department == subjects.OPERATORS else department
        try:
            body = await self._render(what, scope, msg.data)
        except Malformed as wrong:
            body = refusal("invalid", wrong.message, wrong.field)
        except StandsStill as told:
            body = refusal("unavailable", str(told))
        if len(body) > ANSWER_MAX:
            size = f"the answer has {len(body)} bytes, and at most {ANSWER_MAX} fit in a message"
            body = refusal("limit", f"{size}: request less, or use HTTP", status=TOO_LARGE)
        await answer_query(msg, department, body)
        return len(body)

    async def _render(self, what: str, scope: str | None, data: bytes) -> bytes:
        """Raises `Malformed`, `StandsStill`."""
        views = self.views
        if what == "usage":
            return await self._usage(scope, queries.decode(data, queries.UsageAsked))
        if what == "queue":
            limit = queries.decode(data, queries.QueueAsked).limit
            most = ROWS_MAX if limit is None else min(limit, ROWS_MAX)
            return await in_parts(views.queue(scope, None, most, bytes_max=ROWS_BYTES))
        if what == "job":
            return await self._job(scope, queries.decode(data, queries.JobAsked).job)
        queries.decode(data, queries.AllOfIt)
        await in_parts(views.refreshing())
        if what == "department" and scope is not None:
            return orjson.dumps(views.department(scope))
        if what == "releases" and scope is not None:
            return orjson.dumps(views.releases(scope))
        pictures = {"hosts": views.hosts, "departments": views.departments, "overview": views.overview}
        if what in pictures:
            return orjson.dumps(pictures[what]())
        known = ", ".join(sorted(queries.NAMES["monitor"]))
        return refusal("unknown", f"there is no query {what!r}; known: {known}")

    async def _job(self, scope: str | None, name: str) -> bytes:
        of = self.views.department_of(name)
        found = await in_parts(self.views.job(name)) if of is not None and scope in (None, of) else None
        if found is None:
            return refusal("unknown", f"there is no job {name[:64]!r} in this department", "job")
        return whole(found[0], "units", found[1])

    async def _usage(self, scope: str | None, asked: queries.UsageAsked) -> bytes:
        """Rule 3."""
        since = received_if(asked.since) or 0.0
        until = EVER if asked.until is None else received(asked.until)
        department, accounting = scope or asked.department, self.views.core.accounting
        return orjson.dumps(await usage_asked(accounting, self.history, self.clock, asked.by, department, since, until))

    async def why(self, department: str, job: str) -> bytes | None:
        """The scheduler's own explanation of a job; None if it does not answer."""
        return await self.ask(department, "why", {"job": job}, WHY_S)

    async def starts(self, department: str, jobs: Sequence[str] | None) -> bytes | None:
        """When jobs start, as the scheduler foresees it; None if it does not answer in time."""
        return await self.ask(department, "start", {} if jobs is None else {"jobs": list(jobs)}, STARTS_S)

    async def reasons(self, department: str) -> bytes | None:
        """Why the first ones of its queue wait; None if it does not answer in time."""
        return await self.ask(department, "reasons", {}, WHY_S)

    async def troubles(self, department: str) -> bytes | None:
        """What needs attention in a web department; None if its scheduler does not answer in time."""
        return await self.ask(department, "troubles", {}, WHY_S)

    async def ask(self, department: str, what: str, query: dict[str, Any], wait_s: float) -> bytes | None:
        """A department's scheduler; None if it does not answer, or there is no connection (any more)."""
        self._asked += 1
        inbox = f"{self._inbox}.{self._asked}"
        try:
            subscription = await self.nc.subscribe(inbox, max_msgs=1)
        except NatsError:
            return None
        try:
            subject = subjects.query("scheduler", department, what)
            await self.nc.publish(subject, orjson.dumps(query), reply=inbox)
            return (await subscription.next_msg(timeout=wait_s)).data or None  # empty: no subscriber
        except (NatsError, TimeoutError):
            return None
        finally:
            with contextlib.suppress(NatsError):  # closed meanwhile
                await subscription.unsubscribe()
