"""Writing the audit: records are collected for a moment and published together.

Theory of operation
  A record costs the caller nothing: it is put into a list.  `FLUSH_S` later all that came meanwhile is published, one
  message for each department and outcome: at 10,000 requests a second some hundred messages.  What was granted is in the
  journal as well, with user and request id; the audit adds from where, and what was refused.

Rules
  1. A broker that is away loses records: the audit must not stop admission.  What is lost is counted (a metric) and logged.
  2. Never a payload, never a token.  Texts of callers are cut.  Where a refused caller has put a word as long as a token into
     an address, a name or a header, it may be one: only its beginning is recorded.
  3. Granted and refused have subjects of their own, and each department its own: a flood of one pushes out none of another
     (`streams`).
  4. Refusals are recorded at a bounded rate for each caller; what is left out is counted in the next record.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import nats.errors

from schemas.audit import AuditBatch, AuditRecord
from schemas.ids import is_department
from schemas.subjects import SITE, audit
from services.runtime import families_shell
from services.runtime.log import Log, message_of
from services.runtime.token_bucket import Buckets

FLUSH_S: Final = 0.2
REFUSED_PER_S: Final = 2.0  # of one caller: a person sees them all
REFUSED_BURST: Final = 20.0
WAITING_MAX: Final = 20_000  # records: two seconds of the fastest door
# Ours have 43 characters, jobs' 64, keys 58; request ids have fewer.  A public key (U…) is none.
_TOKEN: Final = re.compile(r"(?<![\w-])(?!U[A-Z2-7]{55}\b)([\w-]{4})[\w-]{36,}")
BATCH_MAX: Final = 100  # about 20 kB: 10,000 messages of a department are then 200 MB at most

LOST: Final = families_shell.AUDIT_LOST.live(None)


class Recorder:
    def __init__(self, publish: Callable[[str, bytes], Awaitable[None]], log: Log) -> None:
        self._publish, self._log = publish, log
        self._waiting: list[AuditRecord] = []
        self._arrived = asyncio.Event()

    def note(self, record: AuditRecord) -> None:
        if len(self._waiting) >= WAITING_MAX:
            LOST.inc()
            return
        self._waiting.append(record)
        self._arrived.set()

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Publish what waits."""
        self._arrived.clear()
        records, self._waiting = self._waiting, []
        groups: dict[str, list[AuditRecord]] = {}
        for record in records:
            department = record.department if is_department(record.department) else SITE
            groups.setdefault(audit(department, record.outcome), []).append(record)
        for subject, some in groups.items():
            for start in range(0, len(some), BATCH_MAX):
                await self._send(subject, some[start : start + BATCH_MAX])

    async def _send(self, subject: str, records: list[AuditRecord]) -> None:
        try:
            await self._publish(subject, _encoded(records))
        except (nats.errors.Error, OSError, TimeoutError) as error:
            LOST.inc(len(records))
            self._log.warning("audit not recorded", records=len(records), error=message_of(error))


def _encoded(records: list[AuditRecord]) -> bytes:
    """Paths and headers may hold bytes that are not text: they are recorded by their numbers."""
    try:
        return msgspec.json.encode(AuditBatch(records=tuple(records)))
    except UnicodeEncodeError:
        return msgspec.json.encode(AuditBatch(records=tuple(map(_as_text, records))))


def _as_text(record: AuditRecord) -> AuditRecord:
    fields = {name: value for name, value in msgspec.structs.asdict(record).items() if isinstance(value, str)}
    texts = {name: _text(value) for name, value in fields.items() if not value.isascii()}
    return msgspec.structs.replace(record, names=tuple(map(_text, record.names)), **texts)


def _text(value: str) -> str:
    return value.encode(errors="backslashreplace").decode()


def _tokenless(record: AuditRecord) -> AuditRecord:
    """Rule 2."""
    fields = {name: _TOKEN.sub(r"\1…", getattr(record, name)) for name in ("kind", "peer", "client", "message")}
    return msgspec.structs.replace(record, names=tuple(_TOKEN.sub(r"\1…", name) for name in record.names), **fields)


class Sparingly:
    """Rule 4."""

    def __init__(
        self,
        note: Callable[[AuditRecord], None],
        now: Callable[[], float],
        per_s: float = REFUSED_PER_S,
        burst: float = REFUSED_BURST,
    ) -> None:
        self._note, self._now = note, now
        self._of = Buckets(per_s, burst)

    def note(self, caller: str, record: Callable[[], AuditRecord]) -> None:
        """`record`: made if there is room for it."""
        now = self._now()
        bucket = self._of.of(caller, now)
        if not bucket.take(now):
            bucket.left_out += 1
            return
        self._note(_tokenless(msgspec.structs.replace(record(), left_out=bucket.left_out)))
        bucket.left_out = 0
