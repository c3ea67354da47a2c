"""The guest's call for its next job: `POST …/next`, a long poll (docs/reference/guests.md, rules in `vm_reuse`).

Rules
  1. The guest's own token alone opens it: the job that ran before has had another one, so it cannot ask for what follows it.
  2. Asking again gives the same answer, whether a call was lost or another process led before: all that it rests on is in the
     journal, until the guest has taken yet another job.
  3. "gone" also when the host is not the department's any more: the guest powers off by itself, sooner than it is ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from aiohttp import web

from schemas import facts as f
from schemas.facts import Fact
from schemas.ids import vm_tag
from services.admission.answers import gone, no_content, number, reply
from services.admission.commands.dispatcher import Shell
from services.admission.core import vm_reuse
from services.admission.core.admission import AdmissionCore
from services.admission.guests.guest_queue import GuestTurns
from services.admission.guests.tokens import GuestTokens
from services.admission.wakeups import News
from services.domain.custody.state import Vm, vm_key

WAIT_MAX_S: Final = 25.0
LOOK_S: Final = 5.0  # a host that is taken is seen so late by a guest that waits there; its end comes sooner anyway


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """The next job of a VM, which changes its name and token.  `status`: `bound`; `id`: the VM's PHOENIX_ID from now on;
    `token`: the VM's token from now on."""

    status: Literal["bound"] = "bound"
    id: str
    unit: str
    attempt: int
    rank: int
    token: str


class NextCalls:
    def __init__(self, shell: Shell, core: AdmissionCore, tokens: GuestTokens, turns: GuestTurns) -> None:
        self._shell, self._core, self._tokens, self._turns = shell, core, tokens, turns
        self._news = News()  # by the name under which they ask

    async def ask(self, request: web.Request) -> web.Response:
        info = request.match_info
        unit, attempt, rank = info["unit"], int(info["attempt"]), int(info["rank"])
        caller = await self._turns.caller(request, self._tag(unit, attempt, rank), job=False)
        (await self._turns.wait(unit, caller)).leave()
        deadline = time.monotonic() + number(request, "wait_s", 0.0, WAIT_MAX_S)
        while True:
            found = vm_reuse.following(self._core, unit, attempt, rank, self._shell.now())
            if isinstance(found, Vm):
                return self._identity(found)
            if found == "park" and await self._park(unit, attempt, rank):
                continue
            if found != "wait":
                return gone()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return no_content()
            await self._news.wait(vm_key(unit, attempt, rank), min(left_s, LOOK_S))

    def _identity(self, vm: Vm) -> web.Response:
        tag = self._tag(vm.unit, vm.attempt, vm.rank)
        token = self._tokens.of(tag)
        return reply(Following(id=tag, unit=vm.unit, attempt=vm.attempt, rank=vm.rank, token=token))

    def _tag(self, unit: str, attempt: int, rank: int) -> str:
        return vm_tag(self._core.custody.state.cloud, unit, attempt, rank)

    async def _park(self, unit: str, attempt: int, rank: int) -> bool:
        """True if the journal says now that the VM waits.  Raises `Refused`."""

        def compose(now: float, drafted: Sequence[Fact]) -> list[Fact]:
            if any(isinstance(fact, f.VmParked) and fact.unit == unit for fact in drafted):
                return []  # the same call, twice at once
            return vm_reuse.parked(self._core, self._core.custody.bound(unit, attempt, rank), now, drafted)

        await self._shell.propose(compose, cause=unit)
        vm = self._core.custody.bound(unit, attempt, rank)
        return vm is None or vm.parked_at is not None

    def applied(self, fact: Fact) -> None:
        """A valid fact came."""
        if isinstance(fact, f.VmAllocated):
            vm = self._core.custody.state.vms.get(vm_key(fact.unit, fact.attempt, fact.rank))
            if vm is not None and vm.was:
                self._news.tell(vm.was)
        elif isinstance(fact, f.VmEnded):
            self._news.tell(vm_key(fact.unit, fact.attempt, fact.rank))
