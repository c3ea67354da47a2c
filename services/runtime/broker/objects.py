"""Objects: bytes under a name, in the standard layout of NATS object stores (`nats object get` reads them).

A thin wrapper instead of the library's: that one opens an ordered consumer for each `get`, which costs a consumer's creation
and is blind for seconds after a server restart.  Here an object is read by exact messages.

    $O.<bucket>.C.<nuid>             chunks
    $O.<bucket>.M.<base64 of name>   the description, rolled up: only the last one is kept

Rules
  1. Chunks first, description last: a name always leads to a whole object, or to none.
  2. The digest is checked on every `get`: an object that does not match is `Damaged`, never returned.
  3. A name that is written again gets new chunks; the old ones are removed after the new description is stored.
  4. A subject has an end: a name longer than `NAME_MAX_BYTES` is described under its digest (`long/<sha256>`), which other
     programs must know.  No other name begins so.
  5. What is deleted leaves nothing behind, also no mark that it was there: parts of logs come and go for ever.  Nor does a
     `put` that fails, as far as the broker still answers.
  6. What a process left that ended in the middle of a `put` is unreachable: `sweep` removes chunks that no description leads
     to, once they are old enough (`CUT_OFF_S`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

CHUNK_BYTES: Final = 256 << 10  # four of them fit beside everything else in the client's buffer
NAME_MAX_BYTES: Final = 512  # the server ends a connection whose line has more than 4,096 bytes
CALL_TIMEOUT_S: Final = 5.0
OBJECT_MAX_BYTES: Final = 256 << 20  # above the largest snapshot and upload; a limit on memory, read as one piece
CHUNK_COSTS: Final = 128  # bytes of a chunk's message beside its content
# bytes of a description's, beside three times its name: in the subject, in base64, and within
DESCRIPTION_COSTS: Final = 800
CUT_OFF_S: Final = 3600.0  # a batch of chunks and the description follow within half a minute, or the `put` has failed
_IN_FLIGHT: Final = 4  # chunks published at once: enough to hide the round trip


class Damaged(Exception):
    """The object's chunks are missing or do not match its digest."""


class _Info(msgspec.Struct, kw_only=True):
    name: str
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: dict[str, Any] = {}
    metadata: dict[str, str] = {}


class Described(NamedTuple):
    """An object without its content.  `position`: of its description in the stream; `cost`: bytes of the stream, rounded up;
    `nuid`: what its chunks are under."""

    name: str
    size: int
    at: float
    cost: int
    position: int
    metadata: dict[str, str]
    nuid: str


class Objects:
    """One bucket.  Every method raises `nats` errors or TimeoutError when the broker does not answer."""

    def __init__(self, js: JetStreamContext, bucket: str) -> None:
        self._js = js
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"

    async def put(self, name: str, data: bytes, metadata: dict[str, str] | None = None) -> Described | None:
        """Store `data` under `name`; returns what it replaces.  ValueError above OBJECT_MAX_BYTES."""
        if len(data) > OBJECT_MAX_BYTES:
            raise ValueError(f"object {name!r} has {len(data)} bytes; at most {OBJECT_MAX_BYTES} are stored")
        try:
            found = await self._info(name)
        except Damaged:
            found = None  # it is replaced; its chunks, if any, cannot be found any more
        nuid = secrets.token_hex(11)
        info = _Info(
            name=name,
            bucket=self._bucket,
            nuid=nuid,
            size=len(data),
            chunks=-(-len(data) // CHUNK_BYTES),
            digest=_digest(data),
            mtime=_now(),
            options={"max_chunk_size": CHUNK_BYTES},
            metadata=metadata or {},
        )
        try:
            await self._put_chunks(nuid, data)
            await self._describe(info)
        except Exception as error:  # rule 5
            with contextlib.suppress(Exception):
                await self._drop_chunks(nuid)
            if isinstance(error, ExceptionGroup):  # of chunks sent together: the first one's says it
                raise error.exceptions[0] from None
            raise
        if found is None:
            return None
        if found[0].nuid:
            await self._drop_chunks(found[0].nuid)
        return _described(*found)

    async def get(self, name: str) -> bytes | None:
        """The object, or None if there is none.  Raises `Damaged`."""
        for _ in range(
            2
        ):  # a concurrent `put` may remove the chunks between the two reads: then the second sees the new ones
            found = await self._info(name)
            if found is None or found[0].deleted:
                return None
            info = found[0]
            data = await self._chunks(info)
            if data is not None and len(data) == info.size and _digest(data) == info.digest:
                return data
        raise Damaged(f"object {name!r} in {self._bucket}: its chunks are missing or do not match its digest")

    async def delete(self, name: str) -> Described | None:
        """Remove it; returns what there was."""
        found = await self._info(name)
        if found is None:
            return None
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await self._js.purge_stream(self._stream, subject=self._description(name))
        await self._drop_chunks(found[0].nuid)
        return None if found[0].deleted else _described(*found)

    async def exists(self, name: str) -> bool:
        found = await self._info(name)
        return found is not None and not found[0].deleted

    async def room(self) -> tuple[int, int]:
        """Bytes that the bucket may have (0: any number), and the position of its last message."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            info = await self._js.stream_info(self._stream)
        return max(0, info.config.max_bytes or 0), info.state.last_seq

    async def each(self, after: int = 0) -> AsyncIterator[Described]:
        """All objects that were described after position `after`, the oldest first.  One that cannot be read is left out."""
        while True:
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    found = await self._js.get_msg(
                        self._stream, seq=after + 1, subject=f"$O.{self._bucket}.M.*", next=True, direct=False
                    )
            except NotFoundError:
                return
            after = found.seq or after + 1
            with contextlib.suppress(msgspec.DecodeError):
                yield _described(msgspec.json.decode(found.data or b"", type=_Info), after)

    async def sweep(self, older_s: float) -> int:
        """Rule 6; returns of how many a `put` was cut off.  Chunks are listed before descriptions are read: what is described
        meanwhile is seen."""
        lost = await self._chunk_ids()
        if lost:
            async for found in self.each():
                lost.pop(found.nuid, None)
        swept = 0
        for nuid in lost:
            with contextlib.suppress(NotFoundError):  # another process has removed them
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    last = await self._js.get_last_msg(self._stream, self._chunk_subject(nuid), direct=False)
                if last.time is not None and last.time.timestamp() <= time.time() - older_s:
                    await self._drop_chunks(nuid)
                    swept += 1
        return swept

    async def _chunk_ids(self) -> dict[str, None]:
        """What chunks are under; of very many the server tells a part."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            info = await self._js.stream_info(self._stream, subjects_filter=self._chunk_subject("*"))
        return {subject.rpartition(".")[2]: None for subject in info.state.subjects or ()}

    async def _info(self, name: str) -> tuple[_Info, int] | None:
        """The description, and its position."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._js.get_last_msg(self._stream, self._description(name), direct=False)
            return msgspec.json.decode(found.data or b"", type=_Info), found.seq or 0
        except NotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise Damaged(f"object {name!r} in {self._bucket}: its description is unreadable") from error

    async def _describe(self, info: _Info) -> None:
        headers = {"Nats-Rollup": "sub"}
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await self._js.publish(self._description(info.name), msgspec.json.encode(info), headers=headers)

    async def _put_chunks(self, nuid: str, data: bytes) -> None:
        subject = self._chunk_subject(nuid)
        starts = range(0, len(data), CHUNK_BYTES)
        for first in range(0, len(starts), _IN_FLIGHT):
            chunks = [data[start : start + CHUNK_BYTES] for start in starts[first : first + _IN_FLIGHT]]
            async with asyncio.timeout(CALL_TIMEOUT_S * _IN_FLIGHT), asyncio.TaskGroup() as group:
                for chunk in chunks:  # the tasks start, and so publish, in this order
                    group.create_task(self._js.publish(subject, chunk), name="object-chunk")

    async def _chunks(self, info: _Info) -> bytes | None:
        """All chunks joined, or None if one is missing."""
        subject = self._chunk_subject(info.nuid)
        parts: list[bytes] = []
        sequence = 1
        for _ in range(info.chunks):
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    part = await self._js.get_msg(self._stream, seq=sequence, subject=subject, next=True, direct=True)
            except (NotFoundError, NoRespondersError):
                return None
            parts.append(part.data or b"")
            sequence = (part.seq or 0) + 1
        return b"".join(parts)

    async def _drop_chunks(self, nuid: str) -> None:
        """Old chunks only take room: a failure here leaves garbage, not a wrong object."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._js.purge_stream(self._stream, subject=self._chunk_subject(nuid))
        except (APIError, NoRespondersError, TimeoutError):
            return

    def _description(self, name: str) -> str:
        key = name.encode()
        if len(key) > NAME_MAX_BYTES:  # rule 4
            key = f"long/{hashlib.sha256(key).hexdigest()}".encode()
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(key).decode()}"

    def _chunk_subject(self, nuid: str) -> str:
        return f"$O.{self._bucket}.C.{nuid}"


def cost(name: str, size: int) -> int:
    """Bytes of the stream that an object takes, rounded up."""
    return size + -(-size // CHUNK_BYTES) * CHUNK_COSTS + DESCRIPTION_COSTS + 3 * len(name.encode())


def _described(info: _Info, position: int) -> Described:
    try:
        at = datetime.fromisoformat(info.mtime).timestamp()
    except ValueError:
        at = 0.0  # another program's
    return Described(info.name, info.size, at, cost(info.name, info.size), position, info.metadata, info.nuid)


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def _now() -> str:
    return datetime.now(UTC).isoformat()
