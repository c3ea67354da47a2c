"""The queue of guests' calls (`runtime.request_queue`): no job delays others, whatever it asks with its VM's token or its own.

Rules
  1. A call waits for its turn when its body is there, and before anything of it is decoded; one that waits for others, or for
     news, has given its turn back.
  2. A VM is one caller, the job in it another one: its agent does not wait behind what the job asks.
  3. They are turns of their own: guests ask all the time, and none of that may pace the people beside them.  So each is always
     held to the pace that people have beside others.
  4. What is refused for now is 503: a guest asks again (docs/reference/guests.md).
  5. A caller without a valid token waits for its turn too, by its address, and is then refused.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from services.admission.answers import bearer, unauthorised
from services.admission.commands.costs import GUEST
from services.admission.core.admission import AdmissionCore
from services.admission.guests.tokens import GuestTokens
from services.domain.refusal import Refused
from services.runtime.callers.peers import Peers
from services.runtime.fair_queue import Bounds
from services.runtime.http.server import is_known
from services.runtime.request_queue import NOBODY, Turn, Turns

BOUNDS: Final = Bounds(is_beside=True)  # rule 3


class GuestTurns:
    def __init__(self, core: AdmissionCore, tokens: GuestTokens, peers: Peers) -> None:
        self.turns = Turns(BOUNDS)
        self._core, self._tokens, self._peers = core, tokens, peers

    async def caller(self, request: web.Request, tag: str, *, job: bool) -> str:
        """Who asks in the name of that VM: the VM, or with `job` its job (rule 2).  Raises `HttpError` 401."""
        token = bearer(request)
        if (is_guests := self._tokens.is_valid(tag, token)) or (job and self._tokens.is_valid(tag, token, job)):
            is_known(request)
            return tag if is_guests else f"job of {tag}"
        (await self._wait(NOBODY, self._peers.of(request), 0)).leave()
        raise unauthorised()

    async def wait(self, unit: str, caller: str, size: int = 0) -> Turn:
        """Raises `Refused` (unavailable)."""
        known = self._core.unit(unit)
        return await self._wait(NOBODY if known is None else known.dept, caller, size)

    async def _wait(self, department: str, caller: str, size: int) -> Turn:
        try:
            return await self.turns.wait(department, caller, GUEST, size)
        except Refused as refused:
            raise Refused("unavailable", refused.message, retry_after_s=refused.retry_after_s) from None
