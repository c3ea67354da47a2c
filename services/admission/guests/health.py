"""What an instance's guest reports of its program: how busy it is, whether its health check passes, and how it ended.

Rules
  1. How busy it is goes to the department (`usage_reports`), of one in service alone: one that boots burns CPU without a
     request.
  2. Whether its health check passes is a level that the guest repeats each second; a change of it becomes a fact
     (`instances.news`), and what is too soon for one is in the next call again.
  3. A program that has ended by itself is a fact before its VM is gone: exit code or signal, and the last SAID_LINES lines
     of what it wrote, of stderr if there are any.  The journal is for ever and for many: values of the instance's secrets are
     left out of them; while the secrets are unavailable nothing is quoted, because they could not be found in the lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from schemas import facts as f
from schemas.control_characters import shown
from schemas.facts import Fact
from schemas.facts_instances import SAID_MAX
from schemas.ids import is_instance
from schemas.measures import WHY_MAX, GuestUsage
from services.admission.answers import HttpError, decoded, no_content
from services.admission.commands import instances, releases
from services.admission.commands.dispatcher import Shell
from services.admission.core.admission import AdmissionCore
from services.admission.guests.guest import Guest
from services.admission.guests.usage_reports import Usages
from services.admission.storage.output import Outputs, StreamId
from services.admission.storage.secrets import Secrets
from services.domain.refusal import Refused

BODY_MAX_BYTES: Final = 4096
SAID_LINES: Final = 3
TAIL_BYTES: Final = 4 << 10  # that end in them; an escaped byte is four characters
LEFT_OUT: Final = "***"


class EndedBody(msgspec.Struct, frozen=True, kw_only=True):
    """The program of an instance has ended by itself: `exit` or `signal` tells how.  `exit`: its exit code; `oom`: the
    machine's memory was full, and a process was killed for it."""

    exit: Annotated[int, Meta(ge=0, le=255)] | None = None
    signal: Annotated[int, Meta(ge=1, le=128)] | None = None
    oom: bool = False


class HealthCalls:
    def __init__(self, shell: Shell, core: AdmissionCore, outputs: Outputs, usages: Usages, secrets: Secrets) -> None:
        self._shell, self._core = shell, core
        self._outputs, self._usages, self._secrets = outputs, usages, secrets

    async def usage(self, request: web.Request, guest: Guest) -> web.Response:
        _only_instances(guest)
        body = decoded(request, guest.body, GuestUsage)
        now = self._shell.now()
        if guest.known.began_at is not None:  # rule 1
            self._usages.hear(guest.known.dept, (guest.unit, guest.attempt, guest.rank), body, now)
        if body.ready is not None:
            word = f.InstanceReported(
                unit=guest.unit,
                attempt=guest.attempt,
                state="ready" if body.ready else "unready",
                by="guest",
                why="" if body.ready else shown(body.answer)[:WHY_MAX],
            )
            try:
                await self._say(word)
            except Refused as refused:
                if refused.code not in (
                    "limit",
                    "conflict",
                ):  # rule 2; and its attempt is over, which the next call says
                    raise
        return no_content()

    async def ended(self, request: web.Request, guest: Guest) -> web.Response:
        _only_instances(guest)
        body = decoded(request, guest.body, EndedBody)
        word = f.InstanceReported(
            unit=guest.unit,
            attempt=guest.attempt,
            state="ended",
            by="guest",
            exit=body.exit,
            signal=body.signal,
            oom=body.oom,
            said=await self._said(guest),
        )
        try:
            await self._say(word)
        except Refused as refused:
            if refused.code != "conflict":  # its attempt is over
                raise
        return no_content()

    async def _say(self, word: f.InstanceReported) -> None:
        def facts(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            return instances.news(self._core, word, now, drafted)

        if facts(self._shell.now(), ()):
            await self._shell.propose(facts, cause=word.unit)

    async def _said(self, guest: Guest) -> str:
        """Rule 3."""
        content = releases.content(self._core, guest.known.dept, guest.known.release)
        wanted = content.secrets if content is not None else {}
        try:
            secrets = await self._secrets.of(guest.unit, guest.known.dept, wanted)
            for name in ("stderr", "stdout"):
                text = await self._tail(StreamId(guest.unit, guest.named, guest.rank, name), secrets.values())
                if text:
                    return text
        except Refused:
            pass  # a word beside the one that counts
        return ""

    async def _tail(self, stream: StreamId, secrets: Collection[str]) -> str:
        longest = max((len(value.encode()) for value in secrets), default=0)
        end = await self._outputs.end(stream)
        first = max(await self._outputs.first(stream), end - TAIL_BYTES - longest)
        data = b"".join([part async for part in self._outputs.parts(stream, first, end)]) if end else b""
        return last_lines(without(secrets, data, torn=first > 0))


def without(secrets: Collection[str], data: bytes, *, torn: bool) -> str:
    """The text without the secrets.  `torn`: something stood before it, so the first bytes may be the end of a secret; as many
    as the longest one has are left out."""
    values = sorted((value.encode() for value in secrets if value.strip()), key=len, reverse=True)
    for value in values:
        data = data.replace(value, b"\0" * len(value))  # same length: what may be torn is found by its position
    kept = data[len(values[0]) :] if torn and values else data
    return re.sub("\0+", LEFT_OUT, kept.decode(errors="replace"))


def last_lines(text: str) -> str:
    """The last lines with something in them, in one; invisible characters are shown by their numbers."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    return " | ".join(shown(line.replace("\t", " ")) for line in lines[-SAID_LINES:])[-SAID_MAX:]


def _only_instances(guest: Guest) -> None:
    if not is_instance(guest.unit):
        raise HttpError(400, Refused("invalid", "only the guest of an instance reports this", "unit"))
