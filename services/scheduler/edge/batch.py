"""The batch scheduler's edge: it answers why jobs wait and when they start, and shows the queue.

    phoenix.query.scheduler.<department>.why      {"job": "17"}       -> {"job": …, "reasons": [reason, …]}
    phoenix.query.scheduler.<department>.queue    {"limit": 100}      -> the queue in its order (`queries.JobQueue`)
    phoenix.query.scheduler.<department>.reasons  {}                  -> why each waiting unit waits (`reasons`)
    phoenix.query.scheduler.<department>.start    {"jobs": ["17"]}    -> when they start (`starts`)
    phoenix.query.scheduler.<department>.whatif   when jobs would start that have not been submitted (`whatif`)

Rules
  1. Only the leader answers: a standby may be behind.
  2. A replica that lacks a policy that the configuration names ends (`scheduler.plugins`), also while it stands by.
  3. Answers go only to the department's inboxes and to operators (`runtime.answer`).
  4. Queries why jobs wait or when they start do not keep others from being answered: they may take a while.  More than
     `ASKING_MAX` at once are refused.
  5. A walltime is enforced at once if guests could report, else once they could (`scheduler.reports`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
from nats.aio.msg import Msg

from schemas import queries, subjects
from schemas.facts import Fact
from schemas.problems import TOO_LARGE
from schemas.validation import Malformed
from services.domain.custody.meta import Meta
from services.domain.exits import Stop
from services.runtime.broker.reply import answer_query, refusal
from services.runtime.service import Edge, Service
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.edge import plugins, reports
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.looks import Busy, Looks
from services.scheduler.lookahead.reasons import Reasons
from services.scheduler.lookahead.starts import Starts
from services.scheduler.lookahead.whatif import BYTES_MAX, NotOurs, WhatIf
from services.scheduler.lookahead.why import QUEUE_MAX, explained, queue_view, why

QUERY_MAX_BYTES: Final = 4096
ASKING_MAX: Final = 64  # people who look at the same moment; each may have to wait for a second


class _Query(NamedTuple):
    """Raises `Busy`, `NotOurs`, `Malformed`, and what a plug-in raises."""

    ask: Callable[[BatchCore, bytes, float], Awaitable[bytes]]
    bytes_max: int = QUERY_MAX_BYTES


class BatchEdge(Edge):
    def __init__(self, department: str) -> None:
        self.department = department
        looks = Looks()
        self.starts, self.whatif = Starts(looks), WhatIf(department, looks)
        self.last_pass = LastPass()
        self.reasons = Reasons(self.last_pass)
        self._queries = {
            "queue": _Query(self._queue),
            "reasons": _Query(self._reasons),
            "start": _Query(self.starts.answer),
            "whatif": _Query(self.whatif.answer, BYTES_MAX),
            "why": _Query(self._why),
        }
        self._tasks: set[asyncio.Task[None]] = set()  # rule 4

    async def start(self, service: Service) -> None:
        self.service = service
        plugins.watch(service, self.department)
        core = service.core
        assert isinstance(core, BatchCore)
        core.view.limits.heard_until = 0.0  # rule 5
        service.spawn("reports", reports.watch(service, core))
        await service.nc.subscribe(subjects.query("scheduler", self.department, "*"), cb=self._on_query)

    def applied(self, fact: Fact, _meta: Meta) -> None:
        plugins.on_applied(self.service, self.department, fact)

    async def _on_query(self, msg: Msg) -> None:
        if not self.service.is_leader:
            return
        if len(self._tasks) >= ASKING_MAX:
            await answer_query(msg, self.department, refusal("limit", "too many ask: ask again in a few seconds"))
            return
        task = asyncio.create_task(self._tell(msg))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self, msg: Msg) -> None:
        told = await self.answered(msg.subject.rsplit(".", 1)[1], msg.data)
        await answer_query(msg, self.department, told)

    async def answered(self, what: str, data: bytes) -> bytes:
        """The answer to query `what`, as JSON."""
        core, query = self.service.core, self._queries.get(what)
        assert isinstance(core, BatchCore)
        if query is None:
            return refusal("unknown", f"there is no query {what!r}; known: {', '.join(sorted(self._queries))}")
        if len(data) > query.bytes_max:
            return refusal("limit", f"a query has at most {query.bytes_max} bytes", status=TOO_LARGE)
        try:
            return await query.ask(core, data, self.service.now())
        except Malformed as wrong:
            return refusal("invalid", wrong.message, wrong.field)
        except NotOurs as error:
            return refusal("invalid", str(error), "jobs")
        except Busy:
            return refusal("limit", "too many ask when jobs start: ask again in a few seconds")
        except Stop as error:  # a plug-in that cannot answer; deciding ends the process, a question does not
            return refusal("failed", error.why)

    async def _why(self, core: BatchCore, data: bytes, now: float) -> bytes:
        job = queries.decode(data, queries.WhyAsked).job
        if not job:
            raise Malformed("job is missing", "job")
        unit = explained(core, job)
        if core.view.order.reserves_for_all and unit in core.view.jobs.queue.where:
            await self.last_pass.reach(core, unit, now)
        reasons = why(core, job, now, self.last_pass)
        if not reasons:
            return refusal("unknown", f"there is no job {job[:64]!r} in department {self.department}", "job")
        return msgspec.json.encode(queries.JobExplained(job=job, unit=unit or job, reasons=reasons))

    async def _reasons(self, core: BatchCore, data: bytes, now: float) -> bytes:
        queries.decode(data, queries.AllOfIt)
        return await self.reasons.answer(core, now)

    async def _queue(self, core: BatchCore, data: bytes, _now: float) -> bytes:
        limit = queries.decode(data, queries.QueueAsked).limit
        return msgspec.json.encode(queue_view(core, QUEUE_MAX if limit is None else limit))
