"""`GET /v1/audit`: callers, what they asked for, from where, and the outcome (`audit_reads`).

Rules
  1. Operators read everything, managers what their department's people asked; a role `user` reads none of it.
  2. Without `since` and `after`: the newest `limit`.
"""

from __future__ import annotations

import asyncio
from typing import Final

import nats.errors
from aiohttp import web
from nats.js.errors import Error as JetStreamError

from schemas import subjects
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.audit_reads import AuditReads, Wanted
from services.monitor.http.parameters import choice_of, integer_of, limit_of, time_of

LIMIT: Final = 1_000  # records of a page
READ_S: Final = 20.0  # of a page; the broker has a deadline for each answer
_OUTCOMES: Final = ("granted", "refused")


class AuditRoutes:
    def __init__(self, access: Access, reads: AuditReads) -> None:
        self.access, self.reads = access, reads

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/audit", self.audit)]

    async def audit(self, request: web.Request) -> web.Response:
        wanted, limit = self._wanted(request), max(1, limit_of(request, LIMIT))
        after = integer_of(request, "after", 0)
        try:
            async with asyncio.timeout(READ_S):
                if "after" in request.query or "since" in request.query:
                    return json_answer(await self.reads.page(wanted, limit, after))
                return json_answer(await self.reads.newest(wanted, limit))
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            raise Fault(503, "unavailable", "the broker does not answer: try again") from error

    def _wanted(self, request: web.Request) -> Wanted:
        """Rule 1."""
        who, query = self.access.who(request), request.query
        if who.role not in ("operator", "manager"):
            raise Fault(403, "denied", f"{who.user} is neither an operator nor a manager: they read the audit")
        department = query.get("department")
        if who.role == "manager":
            if department not in (None, who.department):
                raise Fault(403, "denied", f"{who.user} sees department {who.department!r} only", "department")
            department = who.department
        elif department is not None and not self._is_known(department):
            raise Fault(404, "unknown", f"there is no department {department!r}", "department")
        outcome = choice_of(request, "outcome", _OUTCOMES, "")
        return Wanted(department, outcome, query.get("user", ""), query.get("kind", ""), time_of(request, "since", 0.0))

    def _is_known(self, department: str) -> bool:
        known = self.access.custody.department(department) is not None
        return known or department in (subjects.OPERATORS, subjects.SITE)
