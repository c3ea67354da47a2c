"""The audit, read from the stream AUDIT: callers, what they asked for, from where, and the outcome.

Theory of operation
  The stream is read on request, from a place on and in its order: by time (`since`), behind the last one seen
  (`after`), or the newest.  Nothing is kept here, so nothing has to be rebuilt.  What is not asked for is left out as it is
  read; a page ends when it is full, or when enough was read that another caller should have a turn, and says where to continue.

Rules
  1. A page reads at most `SCAN_MAX` messages; `next` is where the one after it begins (`after`).  It is null at the end of the
     stream.
  2. The newest are sought among the last `RECENT` messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from schemas import subjects
from schemas.audit import AuditBatch, AuditRecord
from schemas.units import exact
from services.monitor.stream_reads import ANSWER_S, messages

SCAN_MAX: Final = 5_000  # messages; a second or so
RECENT: Final = 2_000
YEAR_9999: Final = 253_370_764_800.0  # the last that a calendar has


class Wanted(NamedTuple):
    """`department`: of the records; None: of all.  `kind`: or the beginning of one (``job.``).  `since`: UTC seconds."""

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


class AuditReads:
    """Raises what the broker raises."""

    def __init__(self, js: JetStreamContext) -> None:
        self.js = js

    async def page(self, wanted: Wanted, limit: int, after: int = 0) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        sequence, end, read = after, await self._end(), 0
        async with aclosing(self._messages(wanted.subject, after, wanted.since, end)) as every:
            async for message in every:
                sequence, read = message.metadata.sequence.stream, read + 1
                found += told(message, wanted)
                if len(found) >= limit or read >= SCAN_MAX:  # a page ends with a whole message
                    return {"records": found, "next": sequence}
        return {"records": found, "next": None, "end": max(sequence, end)}

    async def newest(self, wanted: Wanted, limit: int) -> dict[str, Any]:
        """Rule 2."""
        end = await self._end()
        found: deque[dict[str, Any]] = deque(maxlen=limit)
        async with aclosing(self._messages(wanted.subject, max(0, end - RECENT), 0.0, end)) as every:
            async for message in every:
                found.extend(told(message, wanted))
        return {"records": list(found), "next": None, "end": end}

    async def _end(self) -> int:
        async with asyncio.timeout(ANSWER_S):
            return int((await self.js.stream_info(subjects.AUDIT_STREAM)).state.last_seq)

    def _messages(self, subject: str, after: int, since: float, end: int) -> AsyncGenerator[Msg, None]:
        """Of `subject`, behind `after`, or from `since` on, up to sequence `end`, in order."""
        start = moment(since) if since and not after else after + 1
        return messages(self.js, subjects.AUDIT_STREAM, subject, start, end, 2 * SCAN_MAX)


def moment(at: float) -> datetime:
    """UTC seconds, however far off, as a time that there is: the stream begins later than the one and ends before the other."""
    return datetime.fromtimestamp(min(max(at, 0.0), YEAR_9999), UTC)


def told(message: Msg, wanted: Wanted) -> list[dict[str, Any]]:
    """The records of a message that were asked for, as JSON has them; none of one that this version cannot read."""
    try:
        records = msgspec.json.decode(message.data, type=AuditBatch).records
    except msgspec.DecodeError:
        return []
    return [{**msgspec.to_builtins(record), "at": exact(record.at)} for record in records if wanted.takes(record)]
