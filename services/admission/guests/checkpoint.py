"""The guests' calls about checkpoints (docs/reference/guests.md): send files, declare them a checkpoint, fetch them again.

Rules
  1. Rank 0 of a job's latest attempt speaks, also while it is being ended: that is when jobs checkpoint.  When the next attempt
     has begun it is gone (`custody.checkpoints`).
  2. "Acknowledged" means journaled, with all files stored whole; anything else changes nothing: the last checkpoint stays.
  3. A call with an `id` may be repeated: it is journaled once.
  4. What a checkpoint has overtaken is removed after the journal knows it, and what a unit leaves after its end; by a task that
     may be cut short, as nothing depends on it.  A new leader checks what ended lately: another one, or none, may have
     been there when it did.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from schemas import facts as f
from schemas.control_characters import HIDDEN, WHAT
from schemas.facts import Fact
from schemas.ids import is_instance
from schemas.times import exact
from schemas.validation import WORDS
from services.admission.answers import HttpError, decoded, gone, reply
from services.admission.commands import compose
from services.admission.commands.dispatcher import Shell
from services.admission.core.admission import AdmissionCore
from services.admission.guests.boot import BootCheckpoint, BootInput
from services.admission.guests.guest import Guest
from services.admission.storage.checkpoints import Checkpoints, Named, Packed
from services.domain.custody.checkpoints import counts
from services.domain.refusal import Refused

SAID_MAX_BYTES: Final = 8 << 20  # 1,000 names of 4,095 bytes with their digests
ENDED_MAX: Final = 10_000  # units whose objects wait to be removed: as many as custody remembers; beyond that they stay
REMOVE_RETRY_S: Final = 5.0
LATELY: Final = 1000  # ended units that a door looks at when it opens: one read each, in the background


class CheckpointBody(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint: the job's work up to now is safe.  `id`: id of this call, so that repeating it is harmless; `files`:
    files that the next attempt gets; empty: the job keeps its state itself; `percent`: part of the job that is done, in
    percent; null: unknown; `progress`: the progress in the job's words, for people."""

    id: Annotated[str, Meta(max_length=64)] = ""
    files: tuple[Named, ...] = ()
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    progress: Annotated[
        str,
        Meta(
            max_length=200,
            pattern=rf"^[^{HIDDEN}]*\Z",
            extra={WORDS: f"text of at most 200 characters without {WHAT}"},
        ),
    ] = ""


class CheckpointCalls:
    def __init__(self, shell: Shell, core: AdmissionCore, checkpoints: Checkpoints, uploads: asyncio.Semaphore) -> None:
        self._shell, self._core, self._checkpoints, self._uploads = shell, core, checkpoints, uploads
        self._ended: asyncio.Queue[str] = asyncio.Queue(ENDED_MAX)
        self._stored = dict.fromkeys(core.checkpointed())  # units that may have objects: few jobs checkpoint

    def current(self, unit: str) -> str:
        """Key of the checkpoint in force; empty: none, or one without files."""
        known = self._core.checkpoint(unit)
        return "" if known is None else known.payload

    def file_max_bytes(self) -> int:
        return compose.adopted(self._core).limits.checkpoint_max_bytes

    async def send(self, request: web.Request, guest: Guest) -> web.Response:
        _speaker(guest)
        name, limits = request.match_info["name"], compose.adopted(self._core).limits
        async with self._uploads:
            self._stored[guest.unit] = None
            digest = await self._checkpoints.send(guest.unit, name, guest.body, self.current(guest.unit), limits)
        return reply({"name": name, "size": len(guest.body), "sha256": digest})

    async def fetch(self, request: web.Request, guest: Guest) -> web.Response:
        name = request.match_info["name"]
        manifest = await self._checkpoints.manifest(self.current(guest.unit))
        found = next((file for file in manifest.files if file.name == name), None)
        data = None if found is None else await self._checkpoints.get(found.key)
        if data is None:
            raise Refused("unknown", f"the last checkpoint of {guest.unit} has no file {name[:200]}", "name")
        return web.Response(body=data, content_type="application/octet-stream")

    async def say(self, request: web.Request, guest: Guest) -> web.Response:
        """Rules 1 to 3."""
        _speaker(guest)
        body = decoded(request, guest.body, CheckpointBody)
        limits = compose.adopted(self._core).limits
        packed = await self._checkpoints.pack(guest.unit, body.files, limits)
        fact = f.CheckpointReported(
            unit=guest.unit,
            attempt=guest.attempt,
            payload=packed.key,
            files=packed.files,
            size_bytes=packed.size_bytes,
            percent=body.percent,
            progress=body.progress,
            request=body.id or secrets.token_hex(8),
        )
        before = self.current(guest.unit)
        try:
            await self._shell.propose(
                lambda now, drafted: compose.checkpoint(self._core, fact, now, drafted), cause=guest.unit
            )
        except Refused as refused:
            if refused.code != "conflict":
                raise
            return gone()
        return await self._answer(guest, fact, packed, before)

    async def _answer(self, guest: Guest, fact: f.CheckpointReported, packed: Packed, before: str) -> web.Response:
        """What the journal says now: another attempt, or the end, may have come first."""
        known = self._core.checkpoint(guest.unit)
        mine = known is not None and (known.attempt, known.request) == (fact.attempt, fact.request)
        if not mine and not counts(self._core.unit(guest.unit), guest.attempt):
            return gone()
        if before != packed.key:
            self._remove_later(guest.unit)
        return reply({"status": "acknowledged", "files": packed.files, "bytes": packed.size_bytes})

    async def of_boot(self, unit: str) -> BootCheckpoint | None:
        """What a guest learns of the unit's last checkpoint."""
        known = self._core.checkpoint(unit)
        if known is None:
            return None
        files = (await self._checkpoints.manifest(known.payload)).files
        told = tuple(BootInput(name=file.name, size=file.size) for file in files)
        return BootCheckpoint(attempt=known.attempt, at=exact(known.at), percent=known.percent, files=told)

    # -------------------------------------------------------------------------------------------------------- removing

    def applied(self, fact: Fact) -> None:
        """A valid fact came: a unit that has ended leaves nothing."""
        if isinstance(fact, f.CheckpointReported) and fact.payload:  # perhaps of another door
            self._stored[fact.unit] = None
        if isinstance(fact, f.DepartmentClosed):
            for name in list(self._stored):
                self._ended_now(name)
        cancelled = self._core.custody.changed if isinstance(fact, f.Cancelled) else ()
        for name in cancelled or (getattr(fact, "unit", ""),):
            if name in self._stored:
                self._ended_now(name)

    def _ended_now(self, name: str) -> None:
        unit = self._core.unit(name)
        if unit is None or unit.state == "final":
            del self._stored[name]
            self._remove_later(name)

    def _look_back(self) -> None:
        """Rule 4: what was sent to another door, and is named by no fact."""
        custody = self._core.custody
        units = [name for names in custody.index.open.values() for name in names]
        self._stored |= dict.fromkeys(name for name in units if not is_instance(name))
        for name in list(custody.state.finals)[-LATELY:]:
            if not is_instance(name):
                self._remove_later(name)

    def _remove_later(self, unit: str) -> None:
        if not self._ended.full():
            self._ended.put_nowait(unit)

    async def remove(self) -> None:
        """Rule 4, until it is cancelled."""
        self._look_back()
        while True:
            unit = await self._ended.get()
            known = self._core.unit(unit)
            try:
                if known is None or known.state == "final":
                    await self._checkpoints.forget(unit)
                else:
                    await self._checkpoints.keep_only(unit, self.current(unit))
            except Refused:  # the store does not answer
                self._remove_later(unit)
                await asyncio.sleep(REMOVE_RETRY_S)


def _speaker(guest: Guest) -> None:
    """Rule 1."""
    if is_instance(guest.unit) or guest.rank != 0:
        raise HttpError(400, Refused("invalid", "only rank 0 of a job checkpoints", "rank"))
