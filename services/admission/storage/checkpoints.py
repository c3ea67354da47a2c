"""Checkpoints in the object store: what a job has handed in as safe, for its next attempt.

    checkpoint/<unit>/f/<sha256>    one file, as it is
    checkpoint/<unit>/m/<sha256>    MessagePack of `Manifest`: one whole checkpoint by its names; the fact's `payload`
    checkpoint/<unit>/index         MessagePack: every key of the above that may be there -> size, oldest first

Theory of operation
  Files are sent first, each under its content; then the call that names them makes the manifest, and only then the fact is
  journaled.  So a fact always names a whole checkpoint, and one that was broken off, or is overtaken, changes nothing.

Rules
  1. The index is written before what it lists: whatever is stored can be found again, and removed, after any crash.
  2. A manifest is made only of files that are stored whole (a description comes last: `services.runtime.broker.objects`).
  3. Kept of a unit: the last checkpoint that was journaled, and of what has been sent since as much as two may hold; beyond
     that the oldest goes.  When the unit has ended all of it goes (`forget`).
  4. Names are relative and none is another one's directory: the next attempt can make all of them.
  5. Everything has a limit, of the configuration: files, bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from schemas.config import Limits
from schemas.requests import PATH_MAX, is_relative
from schemas.validation import WORDS
from services.admission.storage.payloads import STORE_ERRORS, TooLarge, unavailable
from services.domain.refusal import Refused
from services.runtime.broker.objects import Damaged, Objects

WAITING: Final = 2  # checkpoints: one too large is seen whole and told so, one that was broken off is still there
UNITS_MAX: Final = 1000  # whose index and lock are remembered
Digest = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}\Z", extra={WORDS: "a SHA-256 in 64 digits and letters from a to f"})
]


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a checkpoint that was sent before.  `name`: its relative path; `sha256`: SHA-256 of its content, in hex."""

    name: Annotated[str, Meta(min_length=1, max_length=PATH_MAX)]
    sha256: Digest


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    key: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[Stored, ...] = ()


class Packed(msgspec.Struct, frozen=True):
    """A whole checkpoint in the store: key of its manifest (empty: no files), number of files, bytes."""

    key: str
    files: int
    size_bytes: int


_manifest: Final = msgspec.msgpack.Decoder(Manifest)
_index: Final = msgspec.msgpack.Decoder(dict[str, int])
_NOTHING: Final = Packed("", 0, 0)


class _Unit:
    """What is known of a unit's objects; `index` None: to be read."""

    __slots__ = ("index", "lock")

    def __init__(self) -> None:
        self.index: dict[str, int] | None = None
        self.lock = asyncio.Lock()


class Checkpoints:
    """Every method raises `Refused` (unavailable) if the object store does not answer."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._units: OrderedDict[str, _Unit] = OrderedDict()

    async def send(self, unit: str, name: str, data: bytes, current: str, limits: Limits) -> str:
        """Store one file; returns its digest.  `current`: key of the checkpoint in force.  Raises `TooLarge`, `Refused`."""
        check_names([name])
        if len(data) > limits.checkpoint_max_bytes:
            raise TooLarge(f"{name}: {len(data)} bytes; a checkpoint has at most {limits.checkpoint_max_bytes}")
        digest = hashlib.sha256(data).hexdigest()
        key = f"checkpoint/{unit}/f/{digest}"
        async with self._index(unit) as index:
            index.pop(key, None)
            index[key] = len(data)
            await self._drop(index, await self._superfluous(index, current, limits))
            await self._note(unit, index)
            if not await self._objects.exists(key):
                await self._objects.put(key, data)
        return digest

    async def pack(self, unit: str, files: Sequence[Named], limits: Limits) -> Packed:
        """Make a checkpoint of files that were sent.  Raises `TooLarge`, and `Refused` (invalid, conflict: not sent)."""
        check_names([file.name for file in files])
        if len(files) > limits.checkpoint_files_max:
            raise TooLarge(f"{len(files)} files; a checkpoint has at most {limits.checkpoint_files_max}")
        if not files:
            return _NOTHING
        async with self._index(unit) as index:
            manifest = Manifest(files=tuple([await self._sent(unit, file, index) for file in files]))
            size = sum(file.size for file in manifest.files)
            if size > limits.checkpoint_max_bytes:
                raise TooLarge(f"{size} bytes; a checkpoint has at most {limits.checkpoint_max_bytes}")
            data = msgspec.msgpack.encode(manifest)
            key = f"checkpoint/{unit}/m/{hashlib.sha256(data).hexdigest()}"
            index.pop(key, None)
            index[key] = len(data)
            await self._note(unit, index)
            await self._objects.put(key, data)
        return Packed(key, len(files), size)

    async def _sent(self, unit: str, file: Named, index: dict[str, int]) -> Stored:
        key = f"checkpoint/{unit}/f/{file.sha256}"
        if key not in index or not await self._objects.exists(key):
            raise Refused("conflict", f"{file.name[:200]}: its content was not sent, or has been removed", "files")
        return Stored(name=file.name, size=index[key], key=key)

    async def manifest(self, key: str) -> Manifest:
        """The files of the checkpoint under `key`; none for an empty key.  Raises `Refused` (unavailable) if it is gone."""
        if not key:
            return Manifest()
        data = await self.get(key)
        if data is None:
            raise Refused("unavailable", "the job's checkpoint is not in the object store")
        return _manifest.decode(data)

    async def get(self, key: str) -> bytes | None:
        with _refusals():
            return await self._objects.get(key)

    async def keep_only(self, unit: str, current: str) -> None:
        """Rule 3: a checkpoint was journaled, `current` is in force: what was there before it goes."""
        async with self._index(unit) as index:
            kept, keys = await self._keys(current), list(index)
            until = (
                keys.index(current) if current in index else len(keys)
            )  # what was sent after its manifest is the next one's
            older = [key for key in keys[:until] if key not in kept]
            if older:
                await self._drop(index, older)
                await self._note(unit, index)

    async def forget(self, unit: str) -> None:
        """The unit has ended: nothing of it is needed any more."""
        async with self._index(unit) as index:
            if index:
                await self._drop(index, list(index))
                await self._objects.delete(_index_key(unit))
        self._units.pop(unit, None)

    async def _superfluous(self, index: dict[str, int], current: str, limits: Limits) -> list[str]:
        """Rule 3: of what is not in force, the oldest beyond what two checkpoints may hold."""
        kept = await self._keys(current)
        waiting = [key for key in index if key not in kept]
        size, found = sum(index[key] for key in waiting), []
        for number, key in enumerate(waiting):
            if (
                size <= WAITING * limits.checkpoint_max_bytes
                and len(waiting) - number <= WAITING * limits.checkpoint_files_max
            ):
                break
            found.append(key)
            size -= index[key]
        return found

    async def _keys(self, current: str) -> dict[str, None]:
        """What the checkpoint `current` is made of."""
        files = (await self.manifest(current)).files
        return dict.fromkeys([current, *(file.key for file in files)] if current else [])

    async def _drop(self, index: dict[str, int], keys: Sequence[str]) -> None:
        for key in keys:
            await self._objects.delete(key)
            del index[key]

    async def _note(self, unit: str, index: dict[str, int]) -> None:
        await self._objects.put(_index_key(unit), msgspec.msgpack.encode(index))

    @contextlib.asynccontextmanager
    async def _index(self, unit: str) -> AsyncIterator[dict[str, int]]:
        """The unit's index, for one caller at a time.  Where something fails it is read again: the store has the last word."""
        known = self._of(unit)
        with _refusals():
            async with known.lock:
                if known.index is None:
                    data = await self._objects.get(_index_key(unit))
                    known.index = {} if data is None else _index.decode(data)
                try:
                    yield known.index
                except BaseException:
                    known.index = None
                    raise

    def _of(self, unit: str) -> _Unit:
        known = self._units.get(unit)
        if known is None:
            known = self._units[unit] = _Unit()
            if len(self._units) > UNITS_MAX:
                oldest = next(iter(self._units))
                if not self._units[oldest].lock.locked():
                    del self._units[oldest]
        self._units.move_to_end(unit)
        return known


def check_names(names: Sequence[str]) -> None:
    """Rule 4.  Raises `Refused` (invalid)."""
    taken: dict[str, None] = {}
    for name in names:
        if not is_relative(name) or len(name) > PATH_MAX:
            raise Refused("invalid", f"{name[:200]!r}: a relative path without '..' and control characters", "name")
        if name != "/".join(part for part in name.split("/") if part not in ("", ".")):
            raise Refused("invalid", f"{name[:200]!r}: a path in its shortest form, without '.' and '//'", "name")
        if name in taken:
            raise Refused("invalid", f"{name[:200]!r}: named twice", "files")
        taken[name] = None
    for name in names:
        parts = name.split("/")
        inside = next((up for up in ("/".join(parts[:n]) for n in range(1, len(parts))) if up in taken), None)
        if inside is not None:
            raise Refused("invalid", f"{name[:200]!r}: {inside[:200]!r} is a file, no directory", "files")


def _index_key(unit: str) -> str:
    return f"checkpoint/{unit}/index"


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (*STORE_ERRORS, Damaged) as error:
        raise unavailable() from error
