"""`GET /v1/prices`: the organisation's price table, as far as the caller may have to pay by it.

Rules
  1. The file is read for each answer: a price that is added counts from the next bill on, without a restart.
  2. A table that cannot be used is an answer with the reason, and stops nothing else: no service needs it.
  3. A department's people see the prices of all and of their own department; the digest is of the whole table.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from aiohttp import web

from services.monitor.http.access import Access, Fault, json_answer
from services.runtime.config import prices

NONE = (
    "this cloud has no price table: name a file with --prices FILE, or in its configuration as [billing] prices, which takes "
    "effect at the next `phoenix down` and `phoenix up --config FILE`"
)


class PriceRoutes:
    """`file`: of the configuration; None: it names none."""

    def __init__(self, access: Access, file: Path | None) -> None:
        self.access, self.file = access, file

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/prices", self.prices)]

    async def prices(self, request: web.Request) -> web.Response:
        department = self.access.scope(request)
        if self.file is None:
            raise Fault(404, "unknown", NONE)
        try:
            found = await asyncio.to_thread(prices.load, self.file)
        except prices.Unusable as error:
            raise Fault(409, "conflict", f"the cloud's price table has problems:\n{error}") from None
        mine = msgspec.to_builtins(found.of(department))
        return json_answer({"file": self.file.name, "digest": found.digest(), "prices": mine})
