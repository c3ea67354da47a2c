"""The archivist: keeps the broker's journal bounded, and everything else in the archive (PROTOCOL S5).

Theory of operation
  From time to time it looks how long the journal is.  Beyond `keep_messages`, or where it is more than half full, it decides up
  to where it may go (`reach`), copies that range into the archive, leaves the mark, and purges.  A crash between two of these
  steps costs nothing: what is archived and still in the stream is read from either, and a mark without a purge only sends a
  reader to the archive.

Rules
  1. Nothing is purged above any service's snapshot, so that each continues without the archive, nor above the archive's end.
  2. The last message of a writer's subject stays, however old it is: the broker answers an append by it (S1).  So subjects are
     purged one by one, and a department that was closed long ago leaves one message behind.
  3. Of a range less than `STEP_MIN` nothing is done: each step is a mark and a purge a subject.
  4. A journal that is more than half full keeps fewer messages than `keep_messages`, such that it is `LOW` full, however few
     they are; unless everything is to be kept.  Services save snapshots by bytes as well, so that they are not behind.
  5. Every failure is reported and retried at the next look; the journal is whole meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_ALL, JOURNAL_STREAM, SNAPSHOTS
from services.domain.exits import Stop
from services.runtime.broker.objects import Damaged, Objects
from services.runtime.journal.archive import SEGMENT_MAX, Archive, Broken
from services.runtime.journal.fold import Stored
from services.runtime.journal.reader import Reader
from services.runtime.journal.snapshots import unpack
from services.runtime.journal.trimmed import Mark, write_mark
from services.runtime.log import Log, message_of

LOOK_S: Final = 60.0  # a busy cloud writes some thousand messages meanwhile
STEP_MIN: Final = 10_000  # a step a few minutes apart at the most
STEP_MAX: Final = 500_000  # of one step: the archive's part of it takes about half a minute
HIGH: Final = 0.5  # of the journal's bytes: from nine tenths on nothing may begin (`journal.headroom`)
LOW: Final = 0.4
HURRY_S: Final = 10.0  # between two looks at a journal that is fuller than that
SEGMENT_BYTES: Final = 16 << 20  # of messages that are held until they are archived
CALL_S: Final = 5.0
COPY_S: Final = 300.0
HEARTBEAT_S: Final = 0.5


def reach(end: int, begun: int, keep: int, snapshots: Iterable[int], step_min: int = STEP_MIN) -> int:
    """Up to which position the journal may be trimmed now; 0: not at all.  `end`: its last position; `begun`: up to where it
    was trimmed; `snapshots`: their positions, 0 of a service that has none (rules 1 and 3)."""
    if not keep:
        return 0
    to = min(end - keep, begun + STEP_MAX, *snapshots)
    return to if to - begun >= step_min else 0


def kept(keep: int, messages: int, used: int, most: int) -> int:
    """How many of its messages stay: `keep`, or fewer (rule 4).  `used`: its bytes, of `most` (0 or less: no limit)."""
    if not keep or not is_filling(used, most):
        return keep
    return min(keep, max(1, int(messages * most * LOW / used)))


def is_filling(used: int, most: int) -> bool:
    return 0 < most * HIGH < used


def purges(to: int, lasts: Mapping[str, int]) -> dict[str, int]:
    """Subject -> the first position of it that stays, so that all up to `to` goes but for its last message (rule 2)."""
    return {subject: min(to + 1, last) for subject, last in sorted(lasts.items())}


class Archivist:
    """`services`: the names whose snapshots bound it."""

    def __init__(
        self, nc: Client, js: JetStreamContext, directory: Path, keep: int, services: tuple[str, ...], log: Log
    ) -> None:
        self.nc, self.js, self.log = nc, js, log
        self.directory, self.keep, self.services = directory, keep, services
        self.archived = 0  # position up to which the archive reaches, as of the last look
        self.failures = 0
        self.hurries = False  # the journal is more than half full

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                while await self.look() and self.hurries:
                    pass  # the oldest may have been the smallest
            except (nats.errors.Error, JetStreamError, TimeoutError, OSError, Broken, Stop) as error:
                self.failures += 1
                self.log.warning("journal not trimmed", error=message_of(error))
            await asyncio.sleep(HURRY_S if self.hurries else LOOK_S)

    async def look(self, step_min: int = STEP_MIN) -> int:
        """Trim if there is enough to trim; returns the position up to which it was done, 0 if it was not."""
        async with asyncio.timeout(CALL_S):
            info = await self.js.stream_info(JOURNAL_STREAM)
        journal, end = str(info.created), info.state.last_seq
        archive = await asyncio.to_thread(Archive, self.directory, journal)
        if archive.end > end:  # the stream was lost and made again; rule 4 of the archive
            raise Broken(f"{self.directory} reaches {archive.end}, the journal ends at {end}: move it away")
        self.archived = archive.end
        used, most = info.state.bytes, info.config.max_bytes or 0
        self.hurries, keep = is_filling(used, most), kept(self.keep, info.state.messages, used, most)
        step_min = 1 if self.hurries else step_min
        if not keep or end - archive.end - keep < step_min:  # without asking for any snapshot
            return 0
        to = reach(end, archive.end, keep, await self._snapshots(journal), step_min)
        if not to:
            return 0
        async with asyncio.timeout(COPY_S):
            await self._copy(archive, to)
        self.archived = archive.end
        await write_mark(Objects(self.js, SNAPSHOTS), Mark(journal=journal, end=to, digest=archive.links[-1].digest))
        await self._purge(to)
        self.log.info("journal trimmed", to=to, kept=end - to)
        return to

    async def _snapshots(self, journal: str) -> list[int]:
        """Position of each service's snapshot; 0 of one that is missing, damaged or of another journal."""
        objects, found = Objects(self.js, SNAPSHOTS), []
        for name in self.services:
            try:
                data = await objects.get(name)
                snapshot = unpack(data) if data is not None else None
            except (Damaged, ValueError):
                snapshot = None
            found.append(snapshot.position if snapshot is not None and snapshot.journal == journal else 0)
        return found

    async def _copy(self, archive: Archive, to: int) -> None:
        """Archive what follows its end, up to `to`."""
        arrived = asyncio.Event()
        reader = Reader(self.nc, self.js, start=archive.end, heartbeat_s=HEARTBEAT_S, kick=arrived.set, log=self.log)
        await reader.open()
        watch = asyncio.create_task(reader.watch(), name="archivist:reader")
        try:
            waiting: list[Stored] = []
            size = 0
            while archive.end < to:
                await _either(arrived, watch)
                arrived.clear()
                fresh = [m for m in reader.take(SEGMENT_MAX) if m.position <= to]
                waiting, size = waiting + fresh, size + sum(len(m.data) for m in fresh)
                await reader.acknowledge()
                whole = len(waiting) >= SEGMENT_MAX or size >= SEGMENT_BYTES
                if whole or (waiting and waiting[-1].position == to):
                    await asyncio.to_thread(archive.append, waiting)
                    waiting, size = [], 0
                if reader.waiting:
                    arrived.set()
        finally:
            watch.cancel()
            await reader.close()

    async def _purge(self, to: int) -> None:
        async with asyncio.timeout(CALL_S):
            info = await self.js.stream_info(JOURNAL_STREAM, subjects_filter=JOURNAL_ALL)
        for subject, first in purges(to, await self._lasts(info.state.subjects or {})).items():
            async with asyncio.timeout(CALL_S):
                await self.js.purge_stream(JOURNAL_STREAM, subject=subject, seq=first)

    async def _lasts(self, subjects: Mapping[str, int]) -> dict[str, int]:
        """Subject -> the position of its last message now: it can only have grown until the purge."""
        found = {}
        for subject in subjects:
            async with asyncio.timeout(CALL_S):
                found[subject] = (await self.js.get_last_msg(JOURNAL_STREAM, subject)).seq or 0
        return found


async def _either(arrived: asyncio.Event, watch: asyncio.Task[None]) -> None:
    """Wait for messages; raises what ended the watchdog."""
    waiting = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({waiting, watch}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if watch.done():
        watch.result()
