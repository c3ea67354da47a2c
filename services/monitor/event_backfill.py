"""The events before a snapshot: read back from their stream, so that a monitor that starts from one shows the last ones too.

Rules
  1. Only what the fold did not make again is read: events up to the snapshot, as many as there is room for.
  2. A stream that does not answer costs the picture of what was, nothing else: the caller continues without.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import orjson
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from schemas import subjects
from services.monitor.events import Entry, Publisher
from services.monitor.stream_reads import ANSWER_S, messages


async def refill(publisher: Publisher, js: JetStreamContext, until: int) -> int:
    """Put the stored events up to the journal's position `until` before those in memory; returns how many.  Raises what the
    broker raises."""
    publisher.resumed(until)
    async with asyncio.timeout(ANSWER_S):
        state = (await js.stream_info(subjects.EVENTS_STREAM)).state
    first = max(1, state.first_seq, state.last_seq - publisher.room + 1)
    found = [entry for entry in await _from(js, first, state.last_seq) if entry.position <= until]
    publisher.prepend(found, whole=first == 1 and bool(found))
    return len(found)


async def _from(js: JetStreamContext, first: int, last: int) -> list[Entry]:
    every = messages(js, subjects.EVENTS_STREAM, subjects.EVENTS_ALL, first, last, last - first + 2)
    async with aclosing(every) as found:
        return [_entry(message) async for message in found]


def _entry(message: Msg) -> Entry:
    event = orjson.loads(message.data)
    return Entry(event["position"], event["index"], event["department"], event["kind"], message.data)
