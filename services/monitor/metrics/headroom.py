"""What has a limit, and how near it is: streams, the broker's store, disks, history and archive; and which streams are written.

Theory of operation
  Every `LOOK_S` it asks the broker for its streams and whether it writes them, and the operating system for the files.  They
  are looked at apart, so that a broker that is away hides no full disk.  A scrape shows the last look; it sends no request.

Rules
  1. What was not seen for `STALE_S` is not shown: an old figure would look like a new one.  When each was seen last, and how
     often it could not be, stays.
  2. A look has a deadline.  Files are looked at in one thread of their own: a network file system that hangs holds that one,
     and no second is started behind it.
  3. A disk is shown where its directory is.  The broker's may be on another machine; an archive that is not there yet will be
     where its nearest parent is.
  4. The archive's files are added up when its directory has changed: they are never written twice.  One that was moved away,
     and whose link leads nowhere, counts nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas import subjects
from services.runtime.broker import stores
from services.runtime.clock import Clock, system_clock
from services.runtime.config.tables import Config
from services.runtime.families import Label, Table
from services.runtime.journal.archive import CHAIN
from services.runtime.log import Log, message_of

LOOK_S: Final = 10.0  # a full disk is minutes away at the worst; seven calls to the broker and a few to the system
STALE_S: Final = 35.0  # three looks have failed
BROKER_S: Final = 5.0  # for all calls of a look
FILES_S: Final = 5.0
SEGMENT: Final = ".segment"
TAIL_BYTES: Final = 256  # of the archive's chain: its last line is shorter
BROKER, STORES, FILES = "broker", "stores", "files"
STREAMS: Final = {
    "journal": subjects.JOURNAL_STREAM,
    "events": subjects.EVENTS_STREAM,
    "audit": subjects.AUDIT_STREAM,
    "leases": f"KV_{subjects.LEASES}",
    "snapshots": f"OBJ_{subjects.SNAPSHOTS}",
    "objects": f"OBJ_{subjects.OBJECTS}",
}
PLACES: Final = ("data", "archive", "nats")
_PART: Final = Label.of("part", (BROKER, STORES, FILES))
_STREAM: Final = Label.of("stream", STREAMS)
_WHAT: Final = Label.of("what", PLACES)

TABLE: Final = Table("monitor: streams and disks")
SEEN: Final = TABLE.gauge("phoenix_room_seen_timestamp_seconds", "When streams and disks were last looked at", _PART)
LOOKS_FAILED: Final = TABLE.counter("phoenix_room_look_failures_total", "Failed checks of streams and disks", _PART)
STREAM_BYTES: Final = TABLE.gauge("phoenix_stream_bytes", "Bytes in a stream of the broker", _STREAM)
STREAM_LIMIT: Final = TABLE.gauge("phoenix_stream_limit_bytes", "Bytes that a stream may have", _STREAM)
STREAM_MESSAGES: Final = TABLE.gauge("phoenix_stream_messages", "Messages in a stream of the broker", _STREAM)
STREAM_STOPPED: Final = TABLE.gauge(
    "phoenix_stream_stopped", "1: the broker writes this stream no more, until nats-server is started again", _STREAM
)
STORED_BYTES: Final = TABLE.gauge("phoenix_jetstream_bytes", "Bytes in all streams of the broker")
STORED_LIMIT: Final = TABLE.gauge("phoenix_jetstream_limit_bytes", "Bytes that all streams of the broker may have")
DISK_FREE: Final = TABLE.gauge("phoenix_disk_free_bytes", "Free bytes of the disk with these files", _WHAT)
DISK_BYTES: Final = TABLE.gauge("phoenix_disk_bytes", "Bytes of the disk with these files", _WHAT)
HISTORY_BYTES: Final = TABLE.gauge("phoenix_history_bytes", "Bytes of the history's files")
HISTORY_STILL: Final = TABLE.gauge(
    "phoenix_history_stands_still_since_timestamp_seconds", "Since when the history cannot be written; 0: it can"
)
ARCHIVE_BYTES: Final = TABLE.gauge("phoenix_archive_bytes", "Bytes of the journal's archive")
ARCHIVE_POSITION: Final = TABLE.gauge("phoenix_archive_position", "Journal position up to which the archive reaches")


class Stream(NamedTuple):
    """`most`: its limit; 0: none."""

    bytes: int
    most: int
    messages: int


class Broker(NamedTuple):
    streams: Mapping[str, Stream]
    stored: int  # bytes of all streams
    most: int


class Disk(NamedTuple):
    free: int  # for us: what is kept for root is not
    size: int


class Files(NamedTuple):
    disks: Mapping[str, Disk]
    history: int
    archive: int
    archived: int  # position of the last message


class Room(Collector):
    """Registers with a Prometheus registry; `run` looks.  `still`: since when the history stands still (UTC seconds), which its
    writer knows; 0: it does not."""

    def __init__(
        self,
        js: JetStreamContext,
        config: Config,
        log: Log,
        clock: Clock = system_clock,
        monotonic: Clock = time.monotonic,
        still: Clock = float,
    ) -> None:
        self.js, self.config, self.log, self.clock, self.monotonic = js, config, log, clock, monotonic
        self.still = still
        self.broker: Broker | None = None
        self.files: Files | None = None
        self.stopped: frozenset[str] = frozenset()  # names of the broker
        self._seen: dict[str, tuple[float, float]] = {}  # part -> wall clock, monotonic
        self._failures = {BROKER: 0, STORES: 0, FILES: 0}
        self._failing: set[str] = set()  # told in the log once, until it is seen again
        self._measure = Measure(config)
        self._closed = False

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        await self._try(BROKER, self._ask_broker)
        if stores.may_ask(self.config):
            await self._try(STORES, self._ask_stores)
        await self._try(FILES, self._ask_files)

    async def _try(self, part: str, ask: Callable[[], Awaitable[None]]) -> None:
        if self._closed:  # the task outlives the edge for a moment
            return
        try:
            await ask()
        except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
            self._failures[part] += 1
            if part not in self._failing:
                self.log.warning("free space not checked", part=part, error=message_of(error))
            self._failing.add(part)
        else:
            self._failing.discard(part)
            self._seen[part] = (self.clock(), self.monotonic())

    async def _ask_broker(self) -> None:
        async with asyncio.timeout(BROKER_S):
            account = await self.js.account_info()
            found = {name: await self._stream(stream) for name, stream in STREAMS.items()}
        most = account.limits.max_storage or 0
        self.broker = Broker(found, account.storage, most if most > 0 else self.config.nats.file_max_mb << 20)

    async def _stream(self, name: str) -> Stream:
        info = await self.js.stream_info(name)
        return Stream(info.state.bytes, max(0, info.config.max_bytes or 0), info.state.messages)

    async def _ask_stores(self) -> None:
        self.stopped = frozenset(await stores.stopped(self.config))

    async def _ask_files(self) -> None:
        async with asyncio.timeout(FILES_S):
            self.files = await self._measure.take()

    def close(self) -> None:
        self._closed = True
        self._measure.close()

    # ---------------------------------------------------------------------------------------------------------- showing

    def collect(self) -> Iterator[Metric]:
        seen, failed = SEEN.family(), LOOKS_FAILED.family()
        for part, count in self._failures.items():
            failed.add_metric([part], count)
            if part in self._seen:
                seen.add_metric([part], self._seen[part][0])
        yield from (seen, failed)
        yield from _streams(self.broker if self._is_fresh(BROKER) else None)
        yield _stopped(self.stopped if self._is_fresh(STORES) else None)
        yield from _files(self.files if self._is_fresh(FILES) else None)
        yield HISTORY_STILL.of(self.still())

    def _is_fresh(self, part: str) -> bool:
        """Rule 1."""
        return part in self._seen and self.monotonic() - self._seen[part][1] < STALE_S


def _streams(found: Broker | None) -> Iterator[Metric]:
    size, most, messages = STREAM_BYTES.family(), STREAM_LIMIT.family(), STREAM_MESSAGES.family()
    stored, room = STORED_BYTES.family(), STORED_LIMIT.family()
    if found is not None:
        for name, stream in found.streams.items():
            size.add_metric([name], stream.bytes)
            messages.add_metric([name], stream.messages)
            if stream.most:
                most.add_metric([name], stream.most)
        stored.add_metric([], found.stored)
        room.add_metric([], found.most)
    yield from (size, most, messages, stored, room)


def _stopped(found: frozenset[str] | None) -> Metric:
    stopped = STREAM_STOPPED.family()
    if found is not None:
        for name, stream in STREAMS.items():
            stopped.add_metric([name], stream in found)
    return stopped


def _files(found: Files | None) -> Iterator[Metric]:
    free, size, history = DISK_FREE.family(), DISK_BYTES.family(), HISTORY_BYTES.family()
    archive, archived = ARCHIVE_BYTES.family(), ARCHIVE_POSITION.family()
    if found is not None:
        for what, disk in found.disks.items():
            free.add_metric([what], disk.free)
            size.add_metric([what], disk.size)
        history.add_metric([], found.history)
        archive.add_metric([], found.archive)
        archived.add_metric([], found.archived)
    yield from (free, size, history, archive, archived)


class Measure:
    """Looks at the files, in a thread of its own."""

    def __init__(self, config: Config) -> None:
        self.data, self.store = config.data.directory, config.nats.store_dir
        self.archive, self.history = config.journal.archive, config.monitor.history_path
        self._thread = ThreadPoolExecutor(1, "room")
        self._running: Future[Files] | None = None
        self._added: tuple[int, int] = (-1, 0)  # the archive's directory as it was added up: time of change, bytes

    async def take(self) -> Files:
        """Raises OSError, TimeoutError if the last one still hangs."""
        if self._running is not None and not self._running.done():
            raise TimeoutError("the file system does not answer")
        self._running = self._thread.submit(self._files)
        return await asyncio.shield(asyncio.wrap_future(self._running))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _files(self) -> Files:
        places = {"data": self.data, "archive": self.archive}
        if self.store.is_dir():  # rule 3
            places["nats"] = self.store
        disks = {what: disk(nearest(path)) for what, path in places.items()}
        history = sum(size(self.history.with_name(self.history.name + end)) for end in ("", "-wal", "-shm"))
        chain = self.archive / CHAIN
        return Files(disks, history, self._archived() + size(chain), archive_end(chain))

    def _archived(self) -> int:
        """Bytes of the segments (rule 4)."""
        try:
            changed = self.archive.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
        if changed != self._added[0]:
            with os.scandir(self.archive) as entries:
                self._added = (
                    changed,
                    sum(size(Path(entry.path)) for entry in entries if entry.name.endswith(SEGMENT)),
                )
        return self._added[1]


def nearest(path: Path) -> Path:
    """The path, or its nearest parent that is there."""
    return next(place for place in (path, *path.parents) if place.exists())


def disk(path: Path) -> Disk:
    found = os.statvfs(path)
    return Disk(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def size(path: Path) -> int:
    """Bytes of a file; 0: it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def archive_end(chain: Path) -> int:
    """The last position that the archive's chain names in a whole line; 0: none."""
    try:
        with chain.open("rb") as file:
            file.seek(max(0, size(chain) - TAIL_BYTES))
            whole = file.read().rpartition(b"\n")[0]
    except FileNotFoundError:
        return 0
    words = whole.rpartition(b"\n")[2].split()
    return int(words[1]) if len(words) == 4 and words[1].isdigit() else 0
