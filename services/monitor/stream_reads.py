"""What a stream of the broker holds, read in its order and up to a place; nothing is consumed, and nothing waits for more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final

from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

ANSWER_S: Final = 5.0  # of the broker, for the next message; twenty thousand take about a second
PENDING_MAX: Final = 128 << 20  # bytes that wait in the client


async def messages(
    js: JetStreamContext, stream: str, subject: str, start: int | datetime, end: int, most: int
) -> AsyncGenerator[Msg, None]:
    """Of `subject`, from sequence or time `start` on, up to sequence `end`.  `most`: messages that may wait in the client.
    To be closed (`aclosing`) by callers that stop early.  Raises what the broker raises."""
    if end < 1 or (isinstance(start, int) and start > end):
        return
    begin = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE)
    if isinstance(start, int):
        begin.opt_start_seq = start
    else:
        begin.deliver_policy, begin.opt_start_time = api.DeliverPolicy.BY_START_TIME, start
    subscription = await js.subscribe(
        subject,
        stream=stream,
        ordered_consumer=True,
        config=begin,
        pending_msgs_limit=most,
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
