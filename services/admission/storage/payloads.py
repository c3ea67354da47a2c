"""What a job carries: script, arguments, environment, input files.  Content-addressed objects, put once per content.

    job/<department>/<sha256>      MessagePack of `Payload`
    input/<department>/<sha256>    one input file, as it is

Rules
  1. An object is stored before the fact that names it is proposed: every reader of `job.submitted` can read its payload.
  2. Equal content of a department has one key, so an array, a repeated request and a nightly job cost one object.
  3. What is stored for a fact stays until the fact is folded, or will not come (`stored`); from then on `retention` decides how
     long.  What is being removed is put again only when it is gone.
  4. Nothing of it is ever logged or put into a fact (facts, rule 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
import nats.errors
import nats.js.errors

from schemas.dimensions import DIMENSIONS
from schemas.requests import JobSubmit, StoredSignal
from services.domain.refusal import Refused
from services.runtime.broker.objects import Damaged, Objects

KNOWN_MAX: Final = 50_000  # keys remembered as stored: 64 bytes each
LOADED_MAX: Final = 512  # payloads kept for guests' boots: all elements of an array boot from one
LOADED_MAX_BYTES: Final = 32 << 20
STORE_ERRORS: Final = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError)


class StoredInput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    key: str


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    script: str | None = None
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    directory: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdin: str | None = None
    inputs: tuple[StoredInput, ...] = ()
    keep: tuple[str, ...] = ()
    signal: StoredSignal | None = None


class Packed(msgspec.Struct, frozen=True):
    """A payload ready to be stored.  `digest` is of all that the request asks, its own id left out."""

    key: str
    data: bytes
    inputs: dict[str, bytes]
    digest: str


_encoder: Final = msgspec.msgpack.Encoder(order="sorted")  # equal environments give equal bytes
_decoder: Final = msgspec.msgpack.Decoder(Payload)


def pack(request: JobSubmit, dept: str) -> Packed:
    """The objects that a submission needs."""
    keys = [f"input/{dept}/{hashlib.sha256(file.data).hexdigest()}" for file in request.inputs]
    files = dict(zip(keys, request.inputs, strict=True))
    payload = Payload(
        script=request.script,
        argv=request.argv,
        environment=request.environment,
        directory=request.directory,
        stdout=request.stdout,
        stderr=request.stderr,
        stdin=request.stdin,
        inputs=tuple(
            StoredInput(name=x.name, size=len(x.data), key=key) for x, key in zip(request.inputs, keys, strict=True)
        ),
        keep=request.keep,
        signal=request.signal,
    )
    data = _encoder.encode(payload)
    key = f"job/{dept}/{hashlib.sha256(data).hexdigest()}"
    digest = _digest(request, key, dept) if request.request else ""
    return Packed(key, data, {name: file.data for name, file in files.items()}, digest)


# The base of the digest has cores and memory; the rest stands in it only where it is asked for.
_SIZES: Final = ("gpus", "gpus_per_task", *(dimension.per_node for dimension in DIMENSIONS if dimension.optional))


def _digest(request: JobSubmit, key: str, dept: str) -> str:
    asked = (
        dept,
        key,
        request.name,
        (request.tasks, request.nodes, request.cpus_per_task, request.memory_mb, request.exclusive),
        (request.walltime_s, request.priority, request.retries, request.on_reclaim),
        (request.array, request.after, request.held),
    )
    shared: tuple[object, ...] = (request.service, request.best_effort, request.short)
    if request.quality:
        shared = (*shared, request.quality)
    if request.constraint:
        shared = (*shared, ("constraint", request.constraint))
    if request.memory_per_core_mb:
        shared = (*shared, ("memory_per_core_mb", request.memory_per_core_mb))
    for field in _SIZES:
        if getattr(request, field) is not None:
            shared = (*shared, (field, getattr(request, field)))
    if request.on_term:
        shared = (*shared, ("on_term", request.on_term))
    if request.grace_s is not None:
        shared = (*shared, ("grace_s", request.grace_s))
    return digest_of((*asked, shared) if any(shared) else asked)


def digest_of(asked: object) -> str:
    """64 bits tell a repeated request from another one under the same id: a caller gains nothing by colliding with itself."""
    return hashlib.blake2b(_encoder.encode(asked), digest_size=8).hexdigest()


class TooLarge(Exception):
    """Over a limit of size: HTTP 413."""


class Payloads:
    """The object store's job side.  Raises `Refused` (unavailable) where the store does not answer."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, asyncio.Future[None]] = {}
        self._loaded: OrderedDict[str, tuple[Payload, int]] = OrderedDict()
        self._loaded_bytes = 0
        self._removing: dict[str, asyncio.Future[None]] = {}
        self.pinned: Counter[str] = Counter()  # keys of what is being stored, or waits for its fact
        self.settled: Callable[[Packed], None] = lambda _packed: None  # its fact is folded, or will not come

    @contextlib.asynccontextmanager
    async def stored(self, packed: Packed) -> AsyncIterator[None]:
        """Rule 3: it is in the store, and stays there while this lasts.  Raises `Refused` (limit, unavailable)."""
        keys = (packed.key, *packed.inputs)
        self.pinned.update(keys)
        try:
            await self.store(packed)
            yield
        finally:
            self.pinned.subtract(keys)
            for key in keys:
                if not self.pinned[key]:
                    del self.pinned[key]
            self.settled(packed)

    async def remove(self, key: str) -> None:
        """Unless another request is just storing it.  Raises `Refused` (unavailable)."""
        if key in self.pinned or key in self._removing:
            return
        self._known.pop(key, None)
        if key in self._loaded:
            self._loaded_bytes -= self._loaded.pop(key)[1]
        gone = self._removing[key] = asyncio.get_running_loop().create_future()
        try:
            await self._objects.delete(key)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error
        finally:
            del self._removing[key]
            gone.set_result(None)

    async def store(self, packed: Packed) -> None:
        try:
            for key, data in packed.inputs.items():
                await self._put_once(key, data)
            await self._put_once(packed.key, packed.data)
        except TooLarge as full:
            raise Refused("limit", f"store: {full}", "store") from None
        except STORE_ERRORS as error:
            raise unavailable() from error

    async def _put_once(self, key: str, data: bytes) -> None:
        while (gone := self._removing.get(key)) is not None:
            await asyncio.shield(gone)
        if key in self._known:
            self._known.move_to_end(key)
            return
        running = self._running.get(key)
        if running is not None:  # another request stores the same content right now
            await asyncio.shield(running)
            return
        done = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            await self._objects.put(key, data)
        except BaseException:
            done.set_exception(unavailable())
            done.exception()  # there may be no waiter left
            raise
        finally:
            del self._running[key]
        done.set_result(None)
        self._known[key] = None
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def load(self, key: str) -> Payload:
        """The payload under `key`.  Raises `Refused` (unavailable) if it cannot be read."""
        found = self._loaded.get(key)
        if found is not None:
            self._loaded.move_to_end(key)
            return found[0]
        data = await self.get(key)
        if data is None:
            raise Refused("unavailable", "the job's payload is not in the object store")
        payload = _decoder.decode(data)
        self._keep(key, payload, len(data))
        return payload

    def _keep(self, key: str, payload: Payload, size: int) -> None:
        if key in self._loaded:
            return
        self._loaded[key] = (payload, size)
        self._loaded_bytes += size
        while len(self._loaded) > LOADED_MAX or self._loaded_bytes > LOADED_MAX_BYTES:
            _, (_, freed) = self._loaded.popitem(last=False)
            self._loaded_bytes -= freed

    @staticmethod
    def decoded(data: bytes) -> Payload:
        return _decoder.decode(data)

    async def get(self, key: str) -> bytes | None:
        try:
            return await self._objects.get(key)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error


def unavailable() -> Refused:
    return Refused("unavailable", "the object store does not answer: try again")
