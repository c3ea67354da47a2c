"""Refused reads, in the audit: the caller, what it wanted to see, from where.

Rules
  1. Recorded is what was denied (401, 403, 421) or hidden (404, `Fault.hides`), not what was mistyped; a login is recorded by
     `session_routes`, and a request without login, which the page sends at every start, is not recorded.
  2. At a bounded rate for each caller (`Sparingly`): trying tokens floods nothing.
  3. A read that admission passed on comes from admission's address.  What it says of its caller is recorded with its source,
     and counts for nothing: any client can claim it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from schemas.audit import AuditRecord, Via
from services.monitor.http.access import Access, Fault
from services.monitor.http.request_audit import record_of
from services.runtime.callers.audit import Sparingly
from services.runtime.callers.peers import FORWARDED, Peers
from services.runtime.clock import Clock, system_clock


class RefusedReads:
    """`note` takes what goes to the audit."""

    def __init__(
        self,
        access: Access,
        note: Callable[[AuditRecord], None],
        peers: Peers,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.access, self.peers, self.clock = access, peers, clock
        self._sparingly = Sparingly(note, monotonic)

    @web.middleware
    async def watch(self, request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        try:
            return await handler(request)
        except Fault as fault:
            if (fault.code == "denied" or fault.hides) and not _is_of_login(request):
                self._tell(request, fault)
            raise

    def _tell(self, request: web.Request, fault: Fault) -> None:
        who, peer = self.access.asker(request), self._peer(request)

        def record() -> AuditRecord:
            via: Via = "http" if "Authorization" in request.headers else "page"
            return record_of(request, who, f"{request.method} {request.path}", via, peer, self.clock(), fault)

        self._sparingly.note(who.user if who is not None else f"@{self.peers.of(request)}", record)

    def _peer(self, request: web.Request) -> str:
        """Rule 3."""
        peer, said = self.peers.of(request), request.headers.get(FORWARDED, "").rpartition(",")[2].strip()
        return f"{said} by {peer}" if said and said != peer else peer


def _is_of_login(request: web.Request) -> bool:
    """Rule 1."""
    asks = request.method == "GET" and "Authorization" not in request.headers
    return request.path == "/v1/session" and (asks or request.method == "POST")
