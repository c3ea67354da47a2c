"""Turns of the monitor's reads over HTTP (`runtime.request_queue`).

Rules
  1. A read waits for its turn before anything of it is looked up, and has it until its answer begins: streams continue without.
  2. What it cost is known by the size of its answer, and charged then.
  3. Health, metrics and the page's files are no reads of the model: they wait for no turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from services.domain.refusal import Refused
from services.monitor.http.access import Access
from services.monitor.http.http_error import Fault
from services.runtime.callers.peers import Peers
from services.runtime.http.server import is_known
from services.runtime.request_queue import BYTES_A_COST, NOBODY, Turn, Turns

READS: Final = "/v1/"
COST: Final = 1.5  # a millisecond, and what aiohttp takes beside
_TURN: Final = web.RequestKey("turn", Turn)


class InTurn:
    def __init__(self, access: Access, turns: Turns, peers: Peers) -> None:
        self._access, self._turns, self._peers = access, turns, peers

    def watch(self, app: web.Application) -> None:
        app.on_response_prepare.append(self._begins)

    @web.middleware
    async def served(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        """Raises `Fault`."""
        if not request.path.startswith(READS):
            return await handler(request)
        who = self._access.asker(request)
        if who is not None:
            is_known(request)
        department, caller = (who.department, who.user) if who is not None else (NOBODY, self._peers.of(request))
        try:
            turn = request[_TURN] = await self._turns.wait(department, caller, COST)
        except Refused as refused:
            raise Fault(429, refused.code, refused.message, retry_after_s=refused.retry_after_s) from None
        size = 0
        try:
            answer = await handler(request)
            size = len(answer.body) if isinstance(answer, web.Response) and isinstance(answer.body, bytes) else 0
        finally:
            turn.leave(size / BYTES_A_COST)
        return answer

    async def _begins(self, request: web.Request, _answer: web.StreamResponse) -> None:
        turn = request.get(_TURN)
        if turn is not None:
            turn.leave()
