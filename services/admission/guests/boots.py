"""Which boot of its VM an attempt is of, and what becomes of a VM whose guest cannot do the attempt's work.

Theory of operation
  OpenNebula may start a machine again in the middle of an attempt: a person resets it, makes it again (`recover --recreate`),
  or moves it without its memory.  What ran in it is lost, and whether anything of that is left on its disk depends on how it
  was started.  So each boot has an identity, which its guest sends with `boot` and `began`.

Rules
  1. An attempt is of the boot whose `began` came first into the journal (`attempt.began.boots`); until then nothing has run,
     and any boot may ask.  A VM that is resumed or moved with its memory is the same boot; so is one that takes another job.
  2. Another boot gets no work: `vm.failed` is in the journal before it is answered 410.  Its attempt is broken, its VM is
     ended, and the unit starts in another VM.
  3. A guest may report the same of itself (`POST failed`): that it has been started again, or lacks what the work needs.
  4. A guest that sends no identity is believed, as before there was one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from schemas import facts as f
from schemas.control_characters import shown
from schemas.facts import Fact
from services.admission.answers import decoded, no_content, wrong_parameter
from services.admission.commands.dispatcher import Shell
from services.admission.core.admission import AdmissionCore
from services.admission.guests.guest import Guest
from services.domain.custody.rules import BOOTS_ONCE
from services.domain.refusal import Refused

BOOT_CHARS_MAX: Final = 80  # a UUID, and when its first process began
WHY_CHARS_MAX: Final = 400
BODY_MAX_BYTES: Final = 4096
BOOTED_AGAIN: Final = "it has booted again"
BootId = Annotated[str, Meta(min_length=1, max_length=BOOT_CHARS_MAX)]


class FailedBody(msgspec.Struct, frozen=True, kw_only=True):
    """This guest cannot do its attempt's work.  `why`: for people."""

    why: Annotated[str, Meta(max_length=WHY_CHARS_MAX)] = ""


def boot_of_query(request: web.Request) -> str | None:
    """Raises `HttpError`."""
    boot = request.query.get("boot")
    if boot is not None and not 0 < len(boot) <= BOOT_CHARS_MAX:
        raise wrong_parameter("boot", f"should have 1 to {BOOT_CHARS_MAX} characters")
    return boot


class Boots:
    def __init__(self, shell: Shell, core: AdmissionCore) -> None:
        self._shell, self._core = shell, core

    def is_another(self, guest: Guest, boot: str | None) -> bool:
        """Rule 1, of a guest that sent this."""
        known = self._core.unit(guest.unit)
        first = known.boots[guest.rank] if known is not None and guest.rank < len(known.boots) else None
        return boot is not None and first is not None and boot != first

    async def fail(self, guest: Guest, why: str) -> None:
        """Rule 2; without effect if its attempt is over.  Raises `Refused`."""

        def facts(_now: float, drafted: Sequence[Fact]) -> list[Fact]:
            vm = self._core.custody.bound(guest.unit, guest.named, guest.rank)
            if vm is None or not self._core.custody.live(vm.unit, vm.attempt):
                return []
            fact = f.VmFailed(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=shown(why)[:WHY_CHARS_MAX])
            return [] if fact in drafted or self._core.custody.state.rules < BOOTS_ONCE else [fact]

        await self._shell.propose(facts, cause=guest.unit)

    async def failed(self, request: web.Request, guest: Guest) -> web.Response:
        """Rule 3."""
        why = decoded(request, guest.body, FailedBody).why
        if self._core.custody.bound(guest.unit, guest.named, guest.rank) is None:
            raise Refused("unavailable", "this VM is not yet known here: come back")
        await self.fail(guest, why)
        return no_content()
