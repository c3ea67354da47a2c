"""How far the broker's journal was trimmed, and folding what it no longer holds (PROTOCOL S5).

Theory of operation
  The mark is the position up to which the journal may have holes: it is written before anything is purged, beside the
  snapshots, which every service reads.  Behind the mark the stream is whole.  A service that has folded less reads the archive
  first, which reaches the mark at least.

Rules
  1. A mark of another journal is none.
  2. A service that needs the archive and cannot read it stops with that reason: a fold with a hole in it would be worthless.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from services.domain.exits import Exit, Stop
from services.runtime.broker.objects import Damaged, Objects
from services.runtime.journal.archive import Archive, Broken
from services.runtime.journal.fold import Stored

MARK: Final = "journal-trimmed"  # no service is called so
SLICE: Final = 1000  # messages between two looks at the loop: a few milliseconds


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """`end`: up to there the stream may have holes; `digest`: of the archive's last segment then."""

    journal: str
    end: int
    digest: str = ""


async def read_mark(objects: Objects, journal: str) -> int:
    """The mark of this journal; 0: nothing was trimmed.  Raises `Stop` if it cannot be read, and what the broker raises."""
    try:
        data = await objects.get(MARK)
        found = msgspec.json.decode(data, type=Mark) if data is not None else None
    except (Damaged, msgspec.DecodeError) as error:
        raise Stop(Exit.FAILED, f"the mark of how far the journal was trimmed is not readable: {error}") from error
    return found.end if found is not None and found.journal == journal else 0


async def write_mark(objects: Objects, mark: Mark) -> None:
    await objects.put(MARK, msgspec.json.encode(mark))


def reaching(directory: Path, journal: str, mark: int) -> Archive:
    """The archive.  Raises `Broken`, also if it ends before the mark: a hole would be taken for what happened."""
    archive = Archive(directory, journal)
    if archive.end < mark:
        raise Broken(f"{directory} ends at {archive.end}, and the journal was trimmed up to {mark}")
    return archive


async def slices(archive: Archive, position: int, size: int) -> AsyncIterator[list[Stored]]:
    """Its messages behind `position`, in batches, read in a thread."""
    messages = archive.read(position)
    while part := await asyncio.to_thread(lambda: list(islice(messages, size))):
        yield part


async def _untold(_messages: int) -> None:
    return


async def feed_archived(
    directory: Path,
    journal: str,
    position: int,
    mark: int,
    feed: Callable[[Stored], object],
    fed: Callable[[int], Awaitable[None]] = _untold,
) -> None:
    """Feed the archived messages behind `position`; on return the stream continues where they ended.  `fed`: called with the
    number of further ones.  Raises `Stop` (rule 2)."""
    try:
        archive = await asyncio.to_thread(reaching, directory, journal, mark)
        async for part in slices(archive, position, SLICE):
            for message in part:
                feed(message)
            await fed(len(part))
            await asyncio.sleep(0)
    except (Broken, OSError) as error:
        raise Stop(
            Exit.FAILED,
            f"the journal was trimmed up to {mark}; what is before has to be folded, and its archive cannot be read: {error}",
        ) from error
