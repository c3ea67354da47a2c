"""A snapshot rebuilt from the journal, without its service: for repairs, and for tests that live state equals replayed state.

It reads the journal from its first message on, what was trimmed from the archive.  It changes nothing in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_STREAM, SNAPSHOTS
from services.domain.exits import Exit, Stop
from services.runtime.broker.connect import connect, jetstream, service_key
from services.runtime.broker.objects import Objects
from services.runtime.config.tables import Config
from services.runtime.journal import snapshots
from services.runtime.journal.fold import CoreFactory, Fold, Stored
from services.runtime.journal.reader import Reader
from services.runtime.journal.trimmed import feed_archived, read_mark
from services.runtime.log import Log, message_of

SLICE: Final = 1000
HEARTBEAT_S: Final = 0.5
REBUILD_S: Final = 3600.0  # a journal as large as the default disk allows is folded in some minutes


async def replay(
    nc: Client,
    js: JetStreamContext,
    writer: str | None,
    core_factory: CoreFactory,
    log: Log,
    visit: Callable[[Fold], None] = lambda _fold: None,
    archive: Path | None = None,
) -> Fold:
    """The fold of the whole journal, up to its end at the time of the call: `archive` first, if it was trimmed, then the
    stream.  `visit` is called after each message.  Raises `Stop` if something of it cannot be read."""
    info = await js.stream_info(JOURNAL_STREAM)
    state, journal = info.state, str(info.created)
    fold = Fold(writer, core_factory)

    def feed(message: Stored) -> None:
        fold.feed(message)
        visit(fold)

    mark = await read_mark(Objects(js, SNAPSHOTS), journal)
    if mark:
        if archive is None:
            raise Stop(Exit.FAILED, f"the journal was trimmed up to {mark}: its archive is needed")
        await feed_archived(archive, journal, 0, mark, feed)
    elif state.messages and state.first_seq > 1:
        raise Stop(Exit.FAILED, f"the journal begins at {state.first_seq}, and no record says that it was trimmed")
    arrived = asyncio.Event()
    reader = Reader(nc, js, start=fold.position, heartbeat_s=HEARTBEAT_S, kick=arrived.set, log=log)
    await reader.open()
    watch = asyncio.create_task(reader.watch(), name="rebuild:reader")
    try:
        while fold.position < state.last_seq:
            await arrived.wait()
            arrived.clear()
            for message in reader.take(SLICE):
                feed(message)
            await reader.acknowledge()
            if reader.waiting:
                arrived.set()
                await asyncio.sleep(0)
    finally:
        watch.cancel()
        await reader.close()
    return fold


async def rebuild(
    nc: Client,
    js: JetStreamContext,
    *,
    name: str,
    writer: str | None,
    core_factory: CoreFactory,
    log: Log,
    archive: Path | None = None,
) -> int:
    """Replace the snapshot of the service `name` by one folded from the journal; returns its position."""
    fold = await replay(nc, js, writer, core_factory, log, archive=archive)
    journal = str((await js.stream_info(JOURNAL_STREAM)).created)
    await snapshots.Snapshots(Objects(js, SNAPSHOTS), name, log).save(snapshots.take(name, journal, fold))
    return fold.position


async def rebuild_as(config: Config, *, name: str, writer: str | None, core_factory: CoreFactory, log: Log) -> int:
    """`rebuild` with a connection of its own, under the key of the service `name`, which may run meanwhile.  Raises `Stop`."""
    inbox, seed_file = service_key(config, name)
    client = await connect(config.nats.url, name=f"{name}/rebuild", inbox=inbox, log=log, seed_file=seed_file)
    try:
        async with asyncio.timeout(REBUILD_S):
            return await rebuild(
                client,
                jetstream(client),
                name=name,
                writer=writer,
                core_factory=core_factory,
                log=log,
                archive=config.journal.archive,
            )
    except (nats.errors.Error, JetStreamError, TimeoutError) as error:
        raise Stop(Exit.FAILED, f"{name}: no new snapshot: {message_of(error)}") from error
    finally:
        await client.close()
