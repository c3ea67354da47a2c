"""The events before a snapshot: read back from their stream, so that a monitor that starts from one shows the last ones too.

Rules
  1. Only what the fold did not make again is read: events up to the snapshot, as many as there is room for.
  2. A stream that does not answer costs the picture of what was, nothing else: the caller goes on without.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from schemas import subjects
from services.monitor.events import Entry, Publisher

ANSWER_S: Final = 5.0  # for the next message; twenty thousand take about a second
PENDING_MAX: Final = 64 << 20  # bytes waiting in the client: several times what the ring holds


async def refill(publisher: Publisher, js: JetStreamContext, until: int) -> int:
    """Put the stored events up to the journal's position `until` before those in memory; returns how many.  Raises what the
    broker raises."""
    room = publisher.room
    found = [entry for entry in await _last(js, room) if entry.position <= until] if room else []
    publisher.prepend(found)
    return len(found)


async def _last(js: JetStreamContext, count: int) -> list[Entry]:
    async with asyncio.timeout(ANSWER_S):
        state = (await js.stream_info(subjects.EVENTS_STREAM)).state
    first = max(state.first_seq, state.last_seq - count + 1)
    if not state.messages or first > state.last_seq:
        return []
    start = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first)
    subscription = await js.subscribe(
        subjects.EVENTS_ALL,
        stream=subjects.EVENTS_STREAM,
        ordered_consumer=True,
        config=start,
        pending_msgs_limit=count + 1,
        pending_bytes_limit=PENDING_MAX,
    )
    found: list[Entry] = []
    try:
        while True:
            message = await subscription.next_msg(ANSWER_S)
            found.append(_entry(message))
            if message.metadata.sequence.stream >= state.last_seq:
                return found
    finally:
        await subscription.unsubscribe()


def _entry(message: Msg) -> Entry:
    event = orjson.loads(message.data)
    return Entry(event["position"], event["index"], event["department"], event["kind"], message.data)
