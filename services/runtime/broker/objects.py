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
     programs must know.  Nobody else's name begins so.
  5. What is deleted leaves nothing behind, also no mark that it was there: parts of logs come and go for ever.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from nats.errors import NoRespondersError
from nats.js import JetStreamContext
from nats.js.errors import APIError, NotFoundError

CHUNK_BYTES: Final = 256 << 10  # four of them fit beside everything else in the client's buffer
NAME_MAX_BYTES: Final = 512  # the server ends a connection whose line has more than 4,096 bytes
CALL_TIMEOUT_S: Final = 5.0
OBJECT_MAX_BYTES: Final = 256 << 20  # above the largest snapshot and upload; a limit on memory, read as one piece
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


class Objects:
    """One bucket.  Every method raises `nats` errors or TimeoutError when the broker does not answer."""

    def __init__(self, js: JetStreamContext, bucket: str) -> None:
        self._js = js
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"

    async def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, replacing what was there.  ValueError above OBJECT_MAX_BYTES."""
        if len(data) > OBJECT_MAX_BYTES:
            raise ValueError(f"object {name!r} has {len(data)} bytes; at most {OBJECT_MAX_BYTES} are stored")
        try:
            before = await self._info(name)
        except Damaged:
            before = None  # it is replaced; its chunks, if any, cannot be found any more
        nuid = secrets.token_hex(11)
        await self._put_chunks(nuid, data)
        info = _Info(
            name=name,
            bucket=self._bucket,
            nuid=nuid,
            size=len(data),
            chunks=-(-len(data) // CHUNK_BYTES),
            digest=_digest(data),
            mtime=_now(),
            options={"max_chunk_size": CHUNK_BYTES},
        )
        await self._describe(info)
        if before is not None and before.nuid:
            await self._drop_chunks(before.nuid)

    async def get(self, name: str) -> bytes | None:
        """The object, or None if there is none.  Raises `Damaged`."""
        for _ in range(
            2
        ):  # a concurrent `put` may remove the chunks between the two reads: then the second sees the new ones
            info = await self._info(name)
            if info is None or info.deleted:
                return None
            data = await self._chunks(info)
            if data is not None and len(data) == info.size and _digest(data) == info.digest:
                return data
        raise Damaged(f"object {name!r} in {self._bucket}: its chunks are missing or do not match its digest")

    async def delete(self, name: str) -> bool:
        """True if there was such an object."""
        info = await self._info(name)
        if info is None:
            return False
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await self._js.purge_stream(self._stream, subject=self._description(name))
        await self._drop_chunks(info.nuid)
        return not info.deleted

    async def exists(self, name: str) -> bool:
        info = await self._info(name)
        return info is not None and not info.deleted

    async def _info(self, name: str) -> _Info | None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                found = await self._js.get_last_msg(self._stream, self._description(name), direct=False)
            return msgspec.json.decode(found.data or b"", type=_Info)
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


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def _now() -> str:
    return datetime.now(UTC).isoformat()
