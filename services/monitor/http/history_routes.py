"""`GET /v1/jobs`: jobs since the beginning, by filter, page by page.

Rules
  1. A department's people see their department's jobs, operators all of them (`access`).
  2. What cannot be meant is refused with the field and what would be right.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from schemas.reads import FILTER_MAX
from services.monitor.history import reads as history_reads
from services.monitor.history.file import History
from services.monitor.history.reads import LIMIT_MAX, SORTS, STATES, Filter
from services.monitor.http.access import Access, Fault, rows_answer
from services.monitor.http.parameters import choice_of, limit_of, several_of, time_of


class HistoryReads:
    """`now`: UTC seconds, not before the last fact."""

    def __init__(self, access: Access, history: History, now: Callable[[], float]) -> None:
        self.access, self.history, self.now = access, history, now

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/jobs", self.jobs)]

    async def jobs(self, request: web.Request) -> web.Response:
        asked = Filter(
            department=self.access.scope(request, past=True),
            user=_text(request, "user"),
            states=states_of(request),
            name=_text(request, "name"),
            host=_text(request, "host"),
            since=_time(request, "since"),
            until=_time(request, "until"),
            sort=choice_of(request, "sort", SORTS, "submitted"),
            ascending=choice_of(request, "order", ("ascending", "descending"), "descending") == "ascending",
            after=request.query.get("after"),
            limit=limit_of(request, LIMIT_MAX, Filter().limit),
        )
        try:
            found = await self.history.ask(history_reads.jobs, asked, round(self.now() * 1000))
        except ValueError as error:
            raise Fault(400, "invalid", str(error), "after") from None
        return await rows_answer(found, "jobs")


def states_of(request: web.Request) -> tuple[str, ...]:
    """The query's `state`."""
    states = several_of(request, "state")
    for state in states:
        if state not in STATES:
            raise Fault(400, "invalid", f"{state[:FILTER_MAX]!r} is no state: {', '.join(STATES)}", "state")
    return states


def _text(request: web.Request, name: str) -> str | None:
    text = request.query.get(name)
    if text is not None and len(text) > FILTER_MAX:
        raise Fault(400, "invalid", f"{name} has more than {FILTER_MAX} characters", name)
    return text


def _time(request: web.Request, name: str) -> int | None:
    return round(time_of(request, name, 0.0) * 1000) if name in request.query else None
