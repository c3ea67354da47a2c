"""`GET /v1/billable?day=…`: what a bill of one UTC day is made of, and nothing of prices: who had which cores and hosts from
when until when, which work was lost to whom, how many hosts were lent.

Rules
  1. An attempt is of the day as far as it was open in it, from its placement on; one that goes on has the rest of the day.
  2. Losses count on the day on which they happened; what a late success took back, too.
  3. A day before the history's details is refused: a bill with a part missing would look whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from aiohttp import web

from services.monitor.history.file import History
from services.monitor.model.accounting import Accounting
from services.monitor.model.buckets import DAY_MS
from services.monitor.pictures.times import iso
from services.monitor.serve.access import Access, Fault, json_answer
from services.monitor.serve.parameters import number_of

_ATTEMPTS = (
    "SELECT a.unit, a.attempt, a.department, a.user, coalesce(j.service, ''), coalesce(j.lease, ''), coalesce(j.quality, ''),"
    " a.cores, a.hosts, max(a.placed_ms, :since), min(coalesce(a.ended_ms, :until), :until)"
    " FROM attempts AS a LEFT JOIN jobs AS j ON j.unit = a.unit"
    " WHERE a.placed_ms < :until AND (a.ended_ms IS NULL OR a.ended_ms > :since)"
    " AND (:department IS NULL OR a.department = :department) ORDER BY a.unit, a.attempt"
)
_LOSSES = (
    "SELECT l.unit, l.attempt, l.department, l.user, l.service, coalesce(j.lease, ''), coalesce(j.quality, ''), l.claimant,"
    " l.at_ms, l.core_ms FROM losses AS l LEFT JOIN jobs AS j ON j.unit = l.unit"
    " WHERE l.at_ms >= :since AND l.at_ms < :until AND l.claimant IS NOT NULL"
    " AND (:department IS NULL OR l.department = :department) ORDER BY l.position, l.number"
)
_HOLDING = (
    "SELECT department, begin_ms, lent, borrowed FROM holding WHERE begin_ms >= :since AND begin_ms < :until"
    " AND (:department IS NULL OR department = :department) AND (lent OR borrowed) ORDER BY department, begin_ms"
)
ATTEMPT = (
    "unit",
    "attempt",
    "department",
    "user",
    "service",
    "lease",
    "quality",
    "cores",
    "hosts",
    "from_ms",
    "until_ms",
)
LOSS = ("unit", "attempt", "department", "user", "service", "lease", "quality", "claimant", "at_ms", "core_ms")
HOLDING = ("department", "begin_ms", "lent_ms", "borrowed_ms")


def of_day(db: sqlite3.Connection, day: int, department: str | None) -> dict[str, list[dict[str, Any]]]:
    """The day that begins at `day` (milliseconds).  ValueError: rule 3."""
    found = db.execute("SELECT value FROM meta WHERE key = 'details_from_ms'").fetchone()
    if found and day < int(found[0]):
        raise ValueError(f"details of days before {(iso(int(found[0]) / 1000) or '')[:10]} are not kept any more")
    values = {"since": day, "until": day + DAY_MS, "department": department}
    asked = {"attempts": (_ATTEMPTS, ATTEMPT), "losses": (_LOSSES, LOSS), "holding": (_HOLDING, HOLDING)}
    return {
        name: [dict(zip(columns, row, strict=True)) for row in db.execute(sql, values)]
        for name, (sql, columns) in asked.items()
    }


def running_hours(accounting: Accounting, day: int, department: str | None, now: int) -> list[dict[str, Any]]:
    """Of the same day, what the history has not been told yet because no fact has ended the hour."""
    found = []
    for book in (accounting.state.fresh, accounting.as_of(max(now, accounting.state.at))):
        for begin, bucket in book.kept.items():
            if day <= begin < day + DAY_MS:
                found += [
                    dict(zip(HOLDING, (dept, begin, span.lent, span.borrowed), strict=True))
                    for dept, span in bucket.spans.items()
                    if department in (None, dept) and (span.lent or span.borrowed)
                ]
    return found


class Billable:
    """`now`: UTC seconds, not before the last fact."""

    def __init__(self, access: Access, history: History, accounting: Accounting, now: Callable[[], float]) -> None:
        self.access, self.history, self.accounting, self.now = access, history, accounting, now

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/billable", self.billable)]

    async def billable(self, request: web.Request) -> web.Response:
        department, day = self.access.scope(request, past=True), round(number_of(request, "day", -1.0) * 1000)
        if day < 0 or day % DAY_MS:
            raise Fault(400, "invalid", "day should be the UTC second at which a day begins", "day")
        now = round(self.now() * 1000)
        if day + DAY_MS > now:
            raise Fault(400, "invalid", "that day is not over", "day")
        try:
            found = await self.history.ask(of_day, day, department)
        except ValueError as error:
            raise Fault(404, "unknown", str(error), "day") from None
        found["holding"] += running_hours(self.accounting, day, department, now)
        return json_answer({"day": day / 1000, **found})
