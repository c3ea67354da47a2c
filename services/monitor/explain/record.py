"""What happened, for a replay: the journal from its beginning up to a moment, as lines (`phoenix whatif`).

    GET /v1/record?since=<RFC 3339>&until=<RFC 3339>

Its lines: `schemas.journal_record`.

Theory of operation
  To ask what another policy would have done, a user needs the state in which the period began as exactly as the services had
  it. That state is a fold, so the facts are sent that it is a fold of: of the time before `since` all but measurements, which
  no state outlives by more than `LEAD_S`.  What was trimmed comes from the archive, the rest from the stream.

Rules
  1. For operators only: it covers all departments.  Facts hold no secret and no user content (`schemas.facts`, rule 5).
  2. One record at a time, of at most `MESSAGES_MAX` messages; the next caller has to wait.
  3. Nothing is read ahead of the peer: a slow one slows the reader (the stream's flow control), never the monitor's fold.
     Between slices of `SLICE` messages all other tasks have the loop.
  4. It shows what is stored: also what was void.  The reader folds custody, and sees what was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import msgspec
import nats.errors
from aiohttp import web
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas import facts as f
from schemas.envelope import Garbage, UnknownFact, decode
from schemas.journal_record import FORMAT, Head, Line, Tail
from schemas.subjects import JOURNAL, JOURNAL_STREAM, SNAPSHOTS
from services.domain.exits import Stop
from services.monitor.http.access import Access, Fault
from services.monitor.http.parameters import time_of
from services.runtime.broker.objects import Objects
from services.runtime.journal.archive import Archive, Broken
from services.runtime.journal.fold import Stored
from services.runtime.journal.reader import Reader
from services.runtime.journal.trimmed import reaching, read_mark, slices
from services.runtime.log import Log, message_of

# before `since`: longer than any window that a web rule looks at by default, and than a signal's gap
LEAD_S: Final = 3600.0
MESSAGES_MAX: Final = 20_000_000  # twenty busy years of a small site, some hours of sending
SLICE: Final = 100  # messages between two looks at the loop: 1 to 2 ms
HEARTBEAT_S: Final = 0.5
SILENCE_MAX_S: Final = 20.0  # of the stream while there is more to come
PEER_S: Final = 60.0  # a peer that takes nothing for so long has gone: others wait for their turn
CALL_S: Final = 5.0
_PREFIX: Final = len(JOURNAL) + 1
_MEASURES: Final = (f.LoadObserved, f.HostObserved)


_json: Final = msgspec.json.Encoder()


def line(message: Stored, since: float, until: float) -> bytes | None:
    """One message as a line; None if there is nothing in it for the record."""
    try:
        envelope = decode(message.data, message.subject[_PREFIX:])
    except Garbage:
        return None
    if envelope.at > until:
        return None
    measures = envelope.at >= since - LEAD_S
    facts = tuple(
        fact
        for fact in envelope.facts
        if not isinstance(fact, UnknownFact) and (measures or not isinstance(fact, _MEASURES))
    )
    if not facts:
        return None
    shown = Line(position=message.position, at=envelope.at, writer=envelope.writer, facts=facts)
    return _json.encode(shown) + b"\n"


class Records:
    """The route."""

    def __init__(self, access: Access, nc: Client, js: JetStreamContext, archive: Path, log: Log) -> None:
        self.access, self.nc, self.js, self.archive, self.log = access, nc, js, archive, log
        self._busy = False

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/record", self.record)]

    async def record(self, request: web.Request) -> web.StreamResponse:
        if self.access.who(request).role != "operator":
            raise Fault(403, "denied", "the record has the work of all departments: only operators may read it")
        since, until = time_of(request, "since", 0.0), time_of(request, "until", 1e12)
        if until <= since:
            raise Fault(400, "invalid", "until is not after since", "until")
        if self._busy:
            raise Fault(503, "unavailable", "another record is being read: try again when it is done")
        self._busy = True
        try:
            return await self._send(request, since, until)
        finally:
            self._busy = False

    async def _send(self, request: web.Request, since: float, until: float) -> web.StreamResponse:
        archive, mark, to = await self._sources()
        head = Head(record=FORMAT, cloud=self.access.custody.state.cloud, since=since, until=until, to=to)
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        await answer.prepare(request)
        await answer.write(_json.encode(head) + b"\n")
        last, envelopes = 0, 0
        try:
            async with contextlib.aclosing(parts(self.nc, self.js, archive, mark, to, self.log)) as pieces:
                async for part in pieces:
                    lines = [text for message in part if (text := line(message, since, until)) is not None]
                    last, envelopes = part[-1].position, envelopes + len(lines)
                    async with asyncio.timeout(PEER_S):
                        await answer.write(b"".join(lines) or b"\n")  # rule 3; an empty line says that we are at work
                    await asyncio.sleep(0)
            await answer.write(_json.encode(Tail(end=last, envelopes=envelopes)) + b"\n")
            await answer.write_eof()
        except (ConnectionError, TimeoutError, nats.errors.Error, JetStreamError, Broken, OSError) as error:
            # The status is sent: without its last line the record is cut short, and its reader sees that.
            self.log.warning("record cut short", position=last, error=message_of(error))
        return answer

    async def _sources(self) -> tuple[Archive | None, int, int]:
        """The archive, up to where it is needed, and the journal's end.  Raises `Fault`."""
        try:
            async with asyncio.timeout(CALL_S):
                info = await self.js.stream_info(JOURNAL_STREAM)
                journal, to = str(info.created), info.state.last_seq
                mark = await read_mark(Objects(self.js, SNAPSHOTS), journal)
            archive = await asyncio.to_thread(reaching, self.archive, journal, mark) if mark else None
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            raise Fault(503, "unavailable", "the broker does not answer: try again") from error
        except (Broken, OSError, Stop) as error:
            raise Fault(503, "unavailable", f"the journal's archive cannot be read: {error}") from error
        if to > MESSAGES_MAX:
            raise Fault(413, "limit", f"the journal has {to:,} messages; a record is made of at most {MESSAGES_MAX:,}")
        return archive, mark, to


async def parts(
    nc: Client, js: JetStreamContext, archive: Archive | None, mark: int, to: int, log: Log
) -> AsyncGenerator[list[Stored], None]:
    """All messages up to `to`, in slices: up to `mark` from the archive, then from the stream."""
    if archive is not None:
        async for part in slices(archive, 0, SLICE):
            if part[0].position > mark:
                break
            yield [message for message in part if message.position <= mark]
    position = mark
    arrived = asyncio.Event()
    reader = Reader(nc, js, start=mark, heartbeat_s=HEARTBEAT_S, kick=arrived.set, log=log)
    await reader.open()
    watch = asyncio.create_task(reader.watch(), name="record:reader")
    try:
        while position < to:
            async with asyncio.timeout(SILENCE_MAX_S):
                await arrived.wait()
            arrived.clear()
            while part := [message for message in reader.take(SLICE) if message.position <= to]:
                position = part[-1].position
                yield part
            await reader.acknowledge()
    finally:
        watch.cancel()
        await reader.close()
