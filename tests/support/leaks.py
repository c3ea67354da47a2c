"""Where a secret can be found all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats
from nats.js import api

from schemas import subjects
from services.runtime.broker import credentials
from services.runtime.config.tables import Config

STREAMS = (subjects.JOURNAL_STREAM, subjects.EVENTS_STREAM, subjects.AUDIT_STREAM)


def places(word: bytes, *directories: Path) -> list[Path]:
    """Command lines of all processes that one may look at, and files below `directories`, that hold it."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return sorted(path for path in [*Path("/proc").glob("[0-9]*/cmdline"), *files] if word in content(path))


def content(path: Path) -> bytes:
    """Of a process or a file that may be gone by now: nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def messages(config: Config) -> dict[str, list[tuple[str, bytes]]]:
    """All that the journal, the events and the audit of a running cloud hold: subject and content."""
    return asyncio.run(_messages(config))


async def _messages(config: Config) -> dict[str, list[tuple[str, bytes]]]:
    nc = await nats.connect(**credentials.service_options(config, "monitor"))
    js, found = nc.jetstream(), {}
    for stream in STREAMS:
        state = (await js.stream_info(stream)).state
        start = api.ConsumerConfig(deliver_policy=api.DeliverPolicy.ALL)
        subscription = await js.subscribe(">", stream=stream, ordered_consumer=True, config=start)
        found[stream] = kept = []
        while state.messages:
            message = await subscription.next_msg(10)
            kept.append((message.subject, message.data))
            if message.metadata.sequence.stream >= state.last_seq:
                break
        await subscription.unsubscribe()
    await nc.close()
    return found
