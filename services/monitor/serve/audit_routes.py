"""`GET /v1/audit`: who asked for what, from where, and what came of it, read from the stream AUDIT.

Theory of operation
  The stream is read when somebody asks, from a place on and in its order: by time (`since`), behind the last one seen
  (`after`), or the newest.  Nothing is kept here, so nothing has to be rebuilt.  What is not asked for is left out as it is
  read; a page ends when it is full, or when so much was read that somebody else should have a turn, and says where to go on.

Rules
  1. Operators read everything, managers what their department's people asked; a role `user` reads none of it.
  2. A page reads at most `SCAN_MAX` messages; `next` is where the one after it begins (`after`).  It is null at the end of the
     stream.
  3. Without `since` and `after`: the newest `limit` among the last `RECENT` messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import nats.errors
from aiohttp import web
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import Error as JetStreamError

from schemas import subjects
from schemas.audit import AuditBatch, AuditRecord
from services.monitor.serve.access import Access, Fault, json_answer
from services.monitor.serve.parameters import choice_of, limit_of, number_of

LIMIT: Final = 1_000  # records of a page
SCAN_MAX: Final = 5_000  # messages; a second or so
RECENT: Final = 2_000
ANSWER_S: Final = 5.0  # of the broker, for the next message
PENDING_MAX: Final = 128 << 20  # bytes in the client: SCAN_MAX messages of 20 kB
YEAR_9999: Final = 253_370_764_800.0  # the last that a calendar has
_OUTCOMES: Final = ("granted", "refused")


class Asked(NamedTuple):
    """`department`: of who asked; None: everybody's.  `kind`: or the beginning of one (``job.``)."""

    department: str | None
    outcome: str = ""
    user: str = ""
    kind: str = ""
    since: float = 0.0

    @property
    def subject(self) -> str:
        return subjects.audit(self.department or "*", self.outcome or "*")

    def takes(self, record: AuditRecord) -> bool:
        if self.kind not in ("", record.kind) and not (self.kind.endswith(".") and record.kind.startswith(self.kind)):
            return False
        return self.user in ("", record.user) and record.at >= self.since


class AuditRoutes:
    def __init__(self, js: JetStreamContext, access: Access) -> None:
        self.js, self.access = js, access

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/audit", self.read)]

    async def read(self, request: web.Request) -> web.Response:
        asked, limit = self.asked(request), max(1, limit_of(request, LIMIT))
        after = int(number_of(request, "after"))
        try:
            async with asyncio.timeout(4 * ANSWER_S):
                if "after" in request.query or "since" in request.query:
                    return json_answer(await self._page(asked, limit, asked.since, after))
                return json_answer(await self._newest(asked, limit))
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            raise Fault(503, "unavailable", "the broker does not answer: ask again") from error

    def asked(self, request: web.Request) -> Asked:
        """Rule 1."""
        who, query = self.access.who(request), request.query
        if who.role not in ("operator", "manager"):
            raise Fault(403, "denied", f"{who.user} is neither an operator nor a manager: they read the audit")
        department = query.get("department")
        if who.role == "manager":
            if department not in (None, who.department):
                raise Fault(403, "denied", f"{who.user} sees department {who.department!r} only", "department")
            department = who.department
        elif department is not None and not self._is_known(department):
            raise Fault(404, "unknown", f"there is no department {department!r}", "department")
        outcome = choice_of(request, "outcome", _OUTCOMES, "")
        return Asked(department, outcome, query.get("user", ""), query.get("kind", ""), number_of(request, "since"))

    def _is_known(self, department: str) -> bool:
        config = self.access.custody.state.config
        known = config is not None and config.department(department) is not None
        return known or department in (subjects.OPERATORS, subjects.SITE)

    async def _page(self, asked: Asked, limit: int, since: float, after: int) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        sequence, end, read = after, await self._end(), 0
        async for message in self._messages(asked.subject, after, since, end):
            sequence, read = message.metadata.sequence.stream, read + 1
            found += told(message, asked)
            if len(found) >= limit or read >= SCAN_MAX:  # a page ends with a whole message
                return {"records": found, "next": sequence}
        return {"records": found, "next": None, "end": max(sequence, end)}

    async def _newest(self, asked: Asked, limit: int) -> dict[str, Any]:
        end = await self._end()
        found: deque[dict[str, Any]] = deque(maxlen=limit)
        async for message in self._messages(asked.subject, max(0, end - RECENT), 0.0, end):
            found.extend(told(message, asked))
        return {"records": list(found), "next": None, "end": end}

    async def _end(self) -> int:
        async with asyncio.timeout(ANSWER_S):
            return int((await self.js.stream_info(subjects.AUDIT_STREAM)).state.last_seq)

    async def _messages(self, subject: str, after: int, since: float, end: int) -> AsyncIterator[Msg]:
        """Of `subject`, behind `after` and from `since` on, up to sequence `end`, in order."""
        start = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1)
        if since and not after:
            start = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_TIME, opt_start_time=moment(since))
        if after >= end:
            return
        subscription = await self.js.subscribe(
            subject,
            stream=subjects.AUDIT_STREAM,
            ordered_consumer=True,
            config=start,
            pending_msgs_limit=SCAN_MAX * 2,
            pending_bytes_limit=PENDING_MAX,
        )
        try:
            info = await subscription.consumer_info()
            left = (info.num_pending or 0) + (info.delivered.consumer_seq if info.delivered else 0)
            while left > 0:
                message = await subscription.next_msg(ANSWER_S)
                if message.metadata.sequence.stream > end:
                    return
                yield message
                left = message.metadata.num_pending
        finally:
            await subscription.unsubscribe()


def moment(at: float) -> datetime:
    """UTC seconds, however far off, as a time that there is: the stream begins later than the one and ends before the other."""
    return datetime.fromtimestamp(min(max(at, 0.0), YEAR_9999), UTC)


def told(message: Msg, asked: Asked) -> list[dict[str, Any]]:
    """The records of a message that were asked for, as JSON has them; none of one that this version cannot read."""
    try:
        records = msgspec.json.decode(message.data, type=AuditBatch).records
    except msgspec.DecodeError:
        return []
    return [msgspec.to_builtins(record) for record in records if asked.takes(record)]
