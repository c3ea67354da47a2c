"""What jobs leave behind: output streams in parts, kept files.

    out/<unit>/<attempt>/<rank>/<stream>/<offset, 12 digits>    one part; the next one starts where it ends
    out/<unit>/<attempt>/<rank>/<stream>/first                  of an instance: where the first part is that is still there
    files/<unit>/<attempt>/f/<name>                             one kept file
    files/<unit>/<attempt>/index                                MessagePack: name -> size

Rules
  1. A stream only grows.  What a part repeats of what is there is dropped, so that repeating a call is harmless and a part
     never changes once it is stored.
  2. Parts chain: from offset 0, each part's length leads to the next.  The chain is all there is to find them, so a restart
     loses nothing; what this process has seen is remembered and saves the walk.
  3. An empty part is no object: a job that prints nothing costs nothing.
  4. Everything has a limit: a part, a stream, a file, the files of an attempt.
  5. A job's stream ends at its limit.  An instance may live for ever: of its streams the end is kept, `Kept`, and the oldest
     parts go, a quarter of it at once.  `first` is written before they go, so that the chain is never broken.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from schemas.ids import is_instance
from schemas.requests import is_relative
from services.admission.storage.payloads import STORE_ERRORS, TooLarge, unavailable
from services.admission.wakeups import News
from services.domain.refusal import Refused
from services.runtime.broker.objects import Damaged, Objects

PART_MAX_BYTES: Final = 1 << 20  # the guest contract's
READ_MAX_BYTES: Final = 4 << 20  # of one answer; a follower asks again
STREAMS_MAX: Final = 20_000  # streams whose parts are remembered
FILES_MAX: Final = 1000  # of one attempt: the guest sends no more
FILE_MAX_BYTES: Final = 64 << 20
FILES_MAX_BYTES: Final = 256 << 20  # of one attempt
INDEXES_MAX: Final = 2000
STREAMS: Final = ("stdout", "stderr")


class Kept(msgspec.Struct, frozen=True):
    """How much of a stream's end is kept."""

    bytes: int
    parts: int


# Of an instance's stream: some ten thousand lines.  A guest sends a part a second, if there is something: at least the last
# 25 minutes of one that always has something to say.
LOG_KEPT: Final = Kept(bytes=4 << 20, parts=2000)


class StreamId(msgspec.Struct, frozen=True):
    unit: str
    attempt: int
    rank: int
    name: str

    def part(self, offset: int) -> str:
        return f"{self._place}/{offset:012d}"

    @property
    def first(self) -> str:
        return f"{self._place}/first"

    @property
    def _place(self) -> str:
        return f"out/{self.unit}/{self.attempt}/{self.rank}/{self.name}"


class _Stream:
    """What is known of a stream: where its parts start, and where the last one ends."""

    __slots__ = ("end", "known", "lock", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.end = 0
        self.known = False  # the chain was walked, or the stream was seen from its first byte on
        self.lock = asyncio.Lock()


class Outputs:
    """Streams.  Methods raise `Refused` (unavailable) if the object store does not answer."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._streams: OrderedDict[StreamId, _Stream] = OrderedDict()
        self.news = News()  # of a unit: its output grew, or its attempt changed

    async def append(
        self, stream: StreamId, offset: int, data: bytes, stream_max_bytes: int, kept: Kept | None = None
    ) -> None:
        """Store `data` at `offset`; of the whole stream `kept` stays (None: all).  Raises `TooLarge`, and `Refused` (invalid)
        for a gap."""
        if len(data) > PART_MAX_BYTES:
            raise TooLarge(f"a part has at most {PART_MAX_BYTES} bytes")
        if offset + len(data) > stream_max_bytes:
            raise TooLarge(f"at most {stream_max_bytes} bytes of a stream are kept (output_max_bytes)")
        if not data:
            return
        known = self._of(stream)
        async with known.lock:
            if not known.known and offset > 0:
                await self._walk(stream, known)
            if offset > known.end:
                raise Refused("invalid", f"offset: the stream ends at {known.end}, not at {offset}", "offset")
            fresh = data[known.end - offset :]
            if not fresh:
                return
            try:
                await self._put(stream.part(known.end), fresh)
            except TooLarge:
                if kept is None or len(known.starts) < 2:
                    raise
                half = Kept(bytes=(known.end - known.starts[0]) // 2, parts=kept.parts)
                await self._shorten(stream, known, half)  # its department has no room: its own oldest makes some
                await self._put(stream.part(known.end), fresh)
            known.starts.append(known.end)
            known.end += len(fresh)
            known.known = True
            if kept is not None:
                await self._shorten(stream, known, kept)
        self.news.tell(stream.unit)

    async def _shorten(self, stream: StreamId, known: _Stream, kept: Kept) -> None:
        """Rule 5."""
        starts = known.starts
        if len(starts) <= kept.parts and known.end - starts[0] <= kept.bytes:
            return
        fewest = len(starts) - kept.parts * 3 // 4
        index = max(fewest, bisect.bisect_left(starts, known.end - kept.bytes * 3 // 4))
        index = min(index, len(starts) - 1)  # the last part always stays
        gone, known.starts = starts[:index], starts[index:]
        await self._put(stream.first, str(known.starts[0]).encode())
        for start in gone:
            await self._delete(stream.part(start))

    async def first(self, stream: StreamId) -> int:
        """The first byte that is still there."""
        await self.end(stream)
        starts = self._starts(stream)
        return starts[0] if starts else 0

    async def forget(self, stream: StreamId) -> None:
        """Remove it: the last part first, so that after an interruption the rest is found again."""
        known = self._of(stream)
        async with known.lock:
            await self._walk(stream, known)
            for start in reversed(known.starts):
                await self._delete(stream.part(start))
            if known.starts and known.starts[0]:
                await self._delete(stream.first)
        self._streams.pop(stream, None)

    async def end(self, stream: StreamId) -> int:
        """How many bytes there are."""
        known = self._of(stream)
        if not known.known:
            async with known.lock:
                if not known.known:
                    await self._walk(stream, known)
            if not known.known and not known.lock.locked() and self._streams.get(stream) is known:
                del self._streams[stream]  # who asks for what is not there must not have others' streams walked again
        return known.end

    async def parts(self, stream: StreamId, offset: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `offset` to `end`, which is not beyond `self.end`, part by part."""
        starts = self._starts(stream)
        for index in range(max(0, bisect.bisect_right(starts, offset) - 1), len(starts)):
            start = starts[index]
            if start >= end:
                return
            part = await self._get(stream.part(start))
            if part is None:
                raise Refused("unavailable", f"part {start} of {stream.name} is not in the object store")
            yield part[max(0, offset - start) : end - start]

    async def read(self, stream: StreamId, offset: int) -> bytes:
        """At most READ_MAX_BYTES from `offset`; empty if there is nothing (yet)."""
        end = min(await self.end(stream), offset + READ_MAX_BYTES)
        return b"".join([part async for part in self.parts(stream, offset, end)]) if offset < end else b""

    async def exists(self, stream: StreamId) -> bool:
        """True if anything of it was ever stored."""
        try:
            return await self._objects.exists(stream.part(0))
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error

    async def _walk(self, stream: StreamId, known: _Stream) -> None:
        """Find the parts from their chain.  An empty stream stays unknown: its first byte may be on its way."""
        starts: list[int] = []
        answer = await self._get(stream.first) if is_instance(stream.unit) else None
        end = int(answer) if answer and answer.isdigit() else 0
        while (part := await self._get(stream.part(end))) is not None and part:
            starts.append(end)
            end += len(part)
        known.starts, known.end, known.known = starts, end if starts else 0, bool(starts)

    def _starts(self, stream: StreamId) -> list[int]:
        """Where its parts begin, as far as they are known."""
        known = self._streams.get(stream)
        return [] if known is None else known.starts

    def _of(self, stream: StreamId) -> _Stream:
        known = self._streams.get(stream)
        if known is None:
            known = self._streams[stream] = _Stream()
            if len(self._streams) > STREAMS_MAX:
                self._streams.popitem(last=False)
        else:
            self._streams.move_to_end(stream)
        return known

    # ---------------------------------------------------------------------------------------------------------- objects

    async def _put(self, name: str, data: bytes) -> None:
        try:
            await self._objects.put(name, data)
        except STORE_ERRORS as error:
            raise unavailable() from error

    async def _get(self, name: str) -> bytes | None:
        try:
            return await self._objects.get(name)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error

    async def _delete(self, name: str) -> None:
        try:
            await self._objects.delete(name)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error


class Files:
    """Kept files of attempts."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._indexes: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = asyncio.Lock()  # one at a time: an index is read, changed and written

    async def put(self, unit: str, attempt: int, name: str, data: bytes) -> None:
        """Raises `TooLarge`, and `Refused`."""
        if not is_relative(name):
            raise Refused("invalid", "name: a relative path without '..' and control characters", "name")
        if len(data) > FILE_MAX_BYTES:
            raise TooLarge(f"a file of at most {FILE_MAX_BYTES} bytes is kept")
        try:
            async with self._lock:
                index = await self._index(unit, attempt)
                others = [size for other, size in index.items() if other != name]
                if len(others) >= FILES_MAX or sum(others) + len(data) > FILES_MAX_BYTES:
                    raise TooLarge(f"at most {FILES_MAX} files and {FILES_MAX_BYTES} bytes of one attempt are kept")
                await self._objects.put(f"files/{unit}/{attempt}/f/{name}", data)
                index[name] = len(data)
                await self._objects.put(_index(unit, attempt), msgspec.msgpack.encode(index))
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error

    async def forget(self, unit: str, attempt: int) -> None:
        """Remove all of an attempt: the index last, so that after an interruption the rest is found again."""
        try:
            async with self._lock:
                for name in await self._index(unit, attempt):
                    await self._objects.delete(f"files/{unit}/{attempt}/f/{name}")
                await self._objects.delete(_index(unit, attempt))
                self._indexes.pop(_index(unit, attempt), None)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error

    async def list(self, unit: str, attempt: int) -> dict[str, int]:
        """Name -> size in bytes, in order of names."""
        try:
            index = await self._index(unit, attempt)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error
        return dict(sorted(index.items()))

    async def get(self, unit: str, attempt: int, name: str) -> bytes | None:
        try:
            return await self._objects.get(f"files/{unit}/{attempt}/f/{name}")
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error

    async def _index(self, unit: str, attempt: int) -> dict[str, int]:
        key = _index(unit, attempt)
        found = self._indexes.get(key)
        if found is None:
            data = await self._objects.get(key)
            found = {} if data is None else msgspec.msgpack.decode(data, type=dict[str, int])
            found = self._indexes.setdefault(key, found)
            if len(self._indexes) > INDEXES_MAX:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(key)
        return found


def _index(unit: str, attempt: int) -> str:
    return f"files/{unit}/{attempt}/index"
