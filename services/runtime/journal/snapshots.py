"""Snapshots: where a service starts to fold, so that a restart does not replay the whole journal (PROTOCOL S9).

A snapshot is a help, never a truth: one that is missing, damaged, of another journal, or of other rules is ignored with a log
line, and the journal is folded from its start.  Nothing here trims the journal.

Rules
  1. One object a service; the newest replaces the older.
  2. It names its journal (the stream's time of creation), position, custody rules and the core's version; all must match.
  3. The checksum covers everything: a state that cannot be trusted is not loaded.
  4. Messages count from the process's start on, those of the first catch-up too: a process that dies on the way resumes there,
     not from the beginning.  Until it has caught up it saves a `CATCHING_UP`th as often.  Their bytes count as well: nothing
     that has no snapshot of every service behind it can be trimmed, so large messages would fill the journal before they are
     many.
  5. What hangs on the fold and is stored elsewhere (the monitor's history and events) is stored first, and asked when a
     snapshot is loaded: one that is ahead of it is not used.
  6. A process that has saved one removes what services left that ended while they saved theirs (`Objects`, rule 6).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
import nats.errors

from services.domain.custody.rules import RULES
from services.runtime.broker.objects import CUT_OFF_S, Damaged, Objects
from services.runtime.journal.fold import CoreFactory, Fold
from services.runtime.log import Log, message_of

VERSION: Final = 2  # 1 had what hosts and units have as single numbers
CATCHING_UP: Final = 10  # of a million facts 20 snapshots: saving takes a tenth of the time that folding them takes
BYTES_MAX: Final = 64 << 20  # of the journal between two snapshots: as much as a snapshot of a large cloud
SHARE_MAX: Final = 16  # … and a sixteenth of what the journal may have: it is trimmed from the half on
_CHECKSUM_BYTES: Final = 32


class Every(NamedTuple):
    """The number of messages, or of bytes, after which a snapshot is due (0 bytes: regardless of size)."""

    messages: int
    bytes: int = 0


def bytes_between(journal_max: int) -> int:
    """The most bytes of a journal that may have `journal_max` (0 or less: unlimited)."""
    return min(BYTES_MAX, journal_max // SHARE_MAX) if journal_max > 0 else BYTES_MAX


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`own_last`: the last sequence of the own subject, which the next append expects."""

    version: int = VERSION
    name: str
    journal: str
    position: int
    own_last: int
    rules: int
    core_version: int
    custody: bytes
    core: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def core_version(core: object) -> int:
    """The version of a core's `dump`: its class attribute VERSION, 1 if it has none.  Raise it when old dumps do not load."""
    return int(getattr(core, "VERSION", 1))


def take(name: str, journal: str, fold: Fold) -> Snapshot:
    """The fold's state as a snapshot."""
    return Snapshot(
        name=name,
        journal=journal,
        position=fold.position,
        own_last=fold.own_last,
        rules=RULES,
        core_version=core_version(fold.core),
        custody=fold.custody.dump(),
        core=fold.core.dump(),
    )


def pack(snapshot: Snapshot) -> bytes:
    body = _encoder.encode(snapshot)
    return hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> Snapshot:
    """Raises ValueError that says what is wrong."""
    checksum, body = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise ValueError("the checksum does not match")
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is unreadable: {error}") from error


def restore(snapshot: Snapshot, fold: Fold) -> None:
    """Replace the fold's state.  Raises what the core's `load` raises; the fold is then of no use."""
    fold.custody.load(snapshot.custody)
    fold.core.load(snapshot.core)
    fold.position = snapshot.position
    fold.own_last = snapshot.own_last


class Snapshots:
    """The snapshots of one service in the object store."""

    def __init__(self, objects: Objects, name: str, log: Log) -> None:
        self._objects, self._name, self._log = objects, name, log

    async def save(self, snapshot: Snapshot) -> None:
        await self._objects.put(self._name, pack(snapshot))

    async def sweep(self) -> None:
        """Remove what services left, this one or another, that ended while they saved one."""
        await self._objects.sweep(CUT_OFF_S)

    async def find(self, journal: str, end: int, version: int) -> Snapshot | None:
        """The snapshot, if it can be used with this journal, which ends at `end`, and this version of the core."""
        try:
            data = await self._objects.get(self._name)
            if data is None:
                return None
            snapshot = unpack(data)
        except (Damaged, ValueError, nats.errors.Error, TimeoutError) as error:
            self._log.warning("snapshot not usable", why=message_of(error))
            return None
        why = _mismatch(snapshot, self._name, journal, end, version)
        if why:
            self._log.warning("snapshot not usable", why=why, position=snapshot.position)
            return None
        return snapshot


async def _nothing_beside(_position: int) -> bool:
    return True


class Keeper:
    """Loads the snapshot of a running service and saves a new one whenever it is due (`every`).  `position`: of the last one.
    `secured`: stores what is kept beside the fold up to a position, False if it could not (rule 5)."""

    def __init__(
        self,
        objects: Objects,
        name: str,
        journal: str,
        fold: Fold,
        *,
        every: Every,
        log: Log,
        secured: Callable[[int], Awaitable[bool]] = _nothing_beside,
    ) -> None:
        self.position = 0
        self._secured = secured
        self._store = Snapshots(objects, name, log)
        self._name, self._journal, self._fold, self._every, self._log = name, journal, fold, every, log
        self._messages = self._bytes = 0
        self._failing = False
        self._one = asyncio.Lock()
        self._due = asyncio.Event()

    async def load(self, end: int, core_factory: CoreFactory, doubts: Callable[[], str] = str) -> None:
        """Set the fold to the snapshot, or leave it at the beginning.  `doubts`: asked once it is loaded (rule 5)."""
        found = await self._store.find(self._journal, end, core_version(self._fold.core))
        if found is None:
            return
        try:
            restore(found, self._fold)
        except (
            Exception
        ) as error:  # whatever a core's load raises on bytes that it cannot read: the journal is the truth
            self._not_usable(f"{type(error).__name__}: {error}", found.position, core_factory)
            return
        why = doubts()
        if why:
            self._not_usable(why, found.position, core_factory)
            return
        self.position = found.position
        self._log.info("snapshot loaded", position=found.position)

    def _not_usable(self, why: str, position: int, core_factory: CoreFactory) -> None:
        self._log.warning("snapshot not usable", why=why, position=position)
        self._fold.reset(core_factory)

    def note(self, messages: int, size: int, *, keeps: bool, caught_up: bool) -> None:
        """`messages` and `size` more were folded.  `keeps`: whether this process saves snapshots now (rule 4)."""
        self._messages += messages
        self._bytes += size
        many = self._messages >= self._every.messages * (1 if caught_up else CATCHING_UP)
        if keeps and (many or (caught_up and 0 < self._every.bytes <= self._bytes)):
            self._due.set()

    async def save_forever(self) -> None:
        while True:
            await self._due.wait()
            await self.save()

    async def save_if_due(self) -> None:
        """Before there is a task that does it."""
        if self._due.is_set():
            await self.save()

    async def save(self) -> None:
        """A failure is a log line, once until it is done again: the next one is due soon, and the journal is the truth."""
        async with self._one:  # or an older one that takes its time would replace a newer one
            await self._save()

    async def _save(self) -> None:
        self._due.clear()
        self._messages = self._bytes = 0
        snapshot = take(self._name, self._journal, self._fold)
        try:
            why = "" if await self._secured(snapshot.position) else "what is beside it is not stored"
            if not why:
                await self._store.save(snapshot)
        except (nats.errors.Error, TimeoutError, ValueError, ExceptionGroup) as error:
            why = message_of(error)
        if not why:
            self.position = snapshot.position
            self._log.debug("snapshot saved", position=snapshot.position)
            with contextlib.suppress(nats.errors.Error, TimeoutError):  # after the next one
                await self._store.sweep()
        elif not self._failing:
            self._log.warning("snapshot not saved", position=snapshot.position, error=why)
        self._failing = bool(why)


def _mismatch(snapshot: Snapshot, name: str, journal: str, end: int, version: int) -> str:
    """Why it cannot be used; empty if it can."""
    if snapshot.version != VERSION:
        return f"format {snapshot.version}, this version writes {VERSION}"
    if snapshot.name != name:
        return f"it is of {snapshot.name}"
    if snapshot.journal != journal or snapshot.position > end:
        return "it is of another journal"
    if snapshot.rules != RULES:
        return f"custody rules {snapshot.rules}, this version folds by {RULES}"
    if snapshot.core_version != version:
        return f"core version {snapshot.core_version}, this one is {version}"
    return ""
