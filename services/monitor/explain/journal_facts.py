"""The fact at a place of the journal: from memory, the stream, or the archive, wherever it still is.

Rules
  1. Nothing is changed, and nothing is assumed: what is nowhere any more, or cannot be read, is None.
  2. At most `AT_ONCE` questions to the broker are under way; the newest `KEPT_MAX` envelopes stay in memory.
  3. Of the archive only the segments are read that hold what is asked for, in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas.envelope import Garbage, Received, decode
from schemas.subjects import JOURNAL, JOURNAL_STREAM
from services.runtime.journal.archive import Archive, Broken

AT_ONCE: Final = 32
KEPT_MAX: Final = 4_000  # envelopes: some MB
CALL_S: Final = 2.0
_PREFIX: Final = len(JOURNAL) + 1


class JournalFacts:
    """`archive`: its directory."""

    def __init__(self, js: JetStreamContext, archive: Path) -> None:
        self.js, self.archive = js, archive
        self._kept: OrderedDict[int, Received] = OrderedDict()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def get(self, positions: Iterable[int]) -> dict[int, Received]:
        """The envelopes at these positions, as far as they are anywhere."""
        wanted = sorted(set(positions))
        found = {position: self._kept[position] for position in wanted if position in self._kept}
        missing = [position for position in wanted if position not in found]
        for position, envelope in zip(missing, await asyncio.gather(*map(self._stored, missing)), strict=True):
            if envelope is not None:
                found[position] = envelope
        missing = [position for position in missing if position not in found]
        if missing:
            found |= await self._archived(missing)
        for position in wanted:
            if position in found:
                self._kept[position] = found[position]
                self._kept.move_to_end(position)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return found

    async def _stored(self, position: int) -> Received | None:
        """From the stream."""
        try:
            async with self._slots, asyncio.timeout(CALL_S):
                message = await self.js.get_msg(JOURNAL_STREAM, position)
        except (JetStreamError, nats.errors.Error, TimeoutError):
            return None
        return _decoded(message.data or b"", message.subject or "")

    async def _archived(self, positions: list[int]) -> dict[int, Received]:
        try:
            async with asyncio.timeout(CALL_S):
                journal = str((await self.js.stream_info(JOURNAL_STREAM)).created)
            return await asyncio.to_thread(_read, self.archive, journal, positions)
        except (JetStreamError, nats.errors.Error, TimeoutError, Broken, OSError):
            return {}


def _read(directory: Path, journal: str, positions: list[int]) -> dict[int, Received]:
    """A file that is missing or damaged costs what is in it (rule 1)."""
    archive, found = Archive(directory, journal), {}
    for link in archive.links:
        wanted = [position for position in positions if link.first <= position <= link.last]
        with contextlib.suppress(Broken, OSError):
            for message in archive.some(wanted):
                found[message.position] = _decoded(message.data, message.subject)
    return {position: envelope for position, envelope in found.items() if envelope is not None}


def _decoded(data: bytes, subject: str) -> Received | None:
    try:
        return decode(data, subject[_PREFIX:])
    except Garbage:
        return None
