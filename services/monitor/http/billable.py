"""`GET /v1/billable?day=…`: what a bill of one UTC day is made of, without prices: cores and hosts by department from
when until when, work lost by cause, how many hosts were held, lent and borrowed.

Rules
  1. An attempt is of the day as far as it was open in it, from its placement on; one that continues has the rest of the day, or
     until now.
  2. A loss counts on the day on which it happened; what was taken back of it on the day on which that was reported, with the
     hour of the loss.  So nothing is added to a day that is over.
  3. A day before the history's details is refused: a bill with a part missing would look whole.
  4. An hour of hosts is counted once: from the history, or, if it is not over, from accounting.  Accounting is asked
     first: an hour that ends meanwhile is in both, never in neither.
  5. A day is `over` when facts of it can no longer be on their way.  Until then its bill is one so far.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from schemas.dimensions import DIMENSIONS
from services.monitor.core.accounting import Accounting
from services.monitor.core.buckets import DAY_MS, Span, add
from services.monitor.history.file import History
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.parameters import time_of
from services.monitor.views.times import iso

_SIZE: Final = tuple(dimension.field for dimension in DIMENSIONS if dimension.hour)  # they may have a price
_ATTEMPTS = (
    "SELECT a.unit, a.attempt, a.department, a.user, "  # noqa: S608 (columns of the table)
    "coalesce(j.service, ''), coalesce(j.lease, ''), coalesce(j.quality, ''), "
    + "".join(f"a.{field}, " for field in _SIZE)
    + "a.hosts, max(a.placed_ms, :since), min(coalesce(a.ended_ms, :until), :until)"
    " FROM attempts AS a LEFT JOIN jobs AS j ON j.unit = a.unit"
    " WHERE a.placed_ms < :until AND (a.ended_ms IS NULL OR a.ended_ms > :since)"
    " AND (:department IS NULL OR a.department = :department) ORDER BY a.unit, a.attempt"
)
_LOSSES = (
    "SELECT l.unit, l.attempt, l.department, l.user, l.service, coalesce(j.lease, ''), coalesce(j.quality, ''), l.claimant,"
    " l.at_ms, l.core_ms FROM losses AS l LEFT JOIN jobs AS j ON j.unit = l.unit"
    " WHERE l.told_ms >= :since AND l.told_ms < :until AND l.claimant IS NOT NULL"
    " AND (:department IS NULL OR l.department = :department) ORDER BY l.position, l.number"
)
_HOLDING = (
    "SELECT department, begin_ms, held, lent, borrowed FROM holding WHERE begin_ms >= :since AND begin_ms < :until"
    " AND (:department IS NULL OR department = :department) AND (held OR lent) ORDER BY department, begin_ms"
)
_KINDS = (  # the last one wins
    "SELECT department, kind FROM departments WHERE since_ms < :until"
    " AND (:department IS NULL OR department = :department) ORDER BY department, position"
)
ATTEMPT = (
    "unit",
    "attempt",
    "department",
    "user",
    "service",
    "lease",
    "quality",
    *_SIZE,
    "hosts",
    "from_ms",
    "until_ms",
)
LOSS = ("unit", "attempt", "department", "user", "service", "lease", "quality", "claimant", "at_ms", "core_ms")
HOLDING = ("department", "begin_ms", "held_ms", "lent_ms", "borrowed_ms")
_TIMES: Final = {"from_ms": "from_at", "until_ms": "until_at", "at_ms": "at", "begin_ms": "begin_at"}
# far more than facts are on their way, and than clocks may differ (`skew_max_s`: a minute)
SETTLED_MS: Final = 5 * 60_000


def of_day(db: sqlite3.Connection, day: int, department: str | None, until: int) -> dict[str, Any]:
    """The day that begins at `day`, as far as `until` (milliseconds).  ValueError: rule 3."""
    found = db.execute("SELECT value FROM meta WHERE key = 'details_from_ms'").fetchone()
    if found and day < int(found[0]):
        raise ValueError(f"details of days before {(iso(int(found[0]) / 1000) or '')[:10]} are no longer kept")
    values = {"since": day, "until": until, "department": department}
    asked = {"attempts": (_ATTEMPTS, ATTEMPT), "losses": (_LOSSES, LOSS), "holding": (_HOLDING, HOLDING)}
    return {
        "kinds": dict(db.execute(_KINDS, values).fetchall()),
        **{
            name: [dict(zip(columns, row, strict=True)) for row in db.execute(sql, values)]
            for name, (sql, columns) in asked.items()
        },
    }


def running_hours(accounting: Accounting, day: int, department: str | None, now: int) -> list[dict[str, Any]]:
    """Of the same day, what the history does not have yet because no fact has ended the hour."""
    sums: dict[tuple[str, int], Span] = {}
    for book in accounting.to_tell(max(now, accounting.state.at)):
        for begin, bucket in book.kept.items():
            for dept, span in bucket.spans.items():
                if day <= begin < day + DAY_MS and department in (None, dept):
                    add(sums.setdefault((dept, begin), Span()), span)
    return [
        dict(zip(HOLDING, (*key, span.held, span.lent, span.borrowed), strict=True))
        for key, span in sums.items()
        if span.held or span.lent
    ]


def together(told: list[dict[str, Any]], running: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rule 4."""
    known = {(one["department"], one["begin_ms"]) for one in told}
    return told + [one for one in running if (one["department"], one["begin_ms"]) not in known]


class Billable:
    """`now`: UTC seconds, not before the last fact."""

    def __init__(self, access: Access, history: History, accounting: Accounting, now: Callable[[], float]) -> None:
        self.access, self.history, self.accounting, self.now = access, history, accounting, now

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/billable", self.billable)]

    async def billable(self, request: web.Request) -> web.Response:
        department, day = self.access.scope(request, past=True), round(time_of(request, "day", -1.0) * 1000)
        if day < 0 or day % DAY_MS:
            raise Fault(
                400, "invalid", "day should be the time at which a UTC day begins, such as 2026-02-03T00:00:00Z", "day"
            )
        now = round(self.now() * 1000)
        if day > now:
            raise Fault(400, "invalid", "that day is to come", "day")
        until, running = min(now, day + DAY_MS), running_hours(self.accounting, day, department, now)
        try:
            found = await self.history.ask(of_day, day, department, until)
        except ValueError as error:
            raise Fault(404, "unknown", str(error), "day") from None
        found["holding"] = together(found["holding"], running)
        is_over = now >= day + DAY_MS + SETTLED_MS
        began = (self.accounting.state.began_at or now) / 1000
        times = {"until": iso(until / 1000), "began": iso(began), "over": is_over}
        return json_answer({**times, **shown(day, found)})


def shown(day: int, found: dict[str, Any]) -> dict[str, Any]:
    """What `of_day` found of the day, as it is answered."""
    rows = {name: [_shown(row) for row in found[name]] for name in ("attempts", "losses", "holding")}
    return {"day": iso(day / 1000), "kinds": found["kinds"], **rows}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row as answers have it: times as text, durations in seconds, hosts as a list."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name in _TIMES:
            found[_TIMES[name]] = iso(value / 1000)
        elif name.endswith("_ms"):
            found[f"{name.removesuffix('_ms')}_s"] = value / 1000
        else:
            found[name] = value.split(",") if name == "hosts" else value
    return found
