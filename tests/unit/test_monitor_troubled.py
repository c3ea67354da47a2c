"""What somebody should look at of web departments, by the word of their schedulers, in rows and metrics."""

from __future__ import annotations

from typing import Any

import msgspec
from nats.errors import ConnectionClosedError, ConnectionDrainingError
from prometheus_client import CollectorRegistry, generate_latest

from phoenix.cli.departments import render
from schemas import reasons as because
from schemas.problems import problem
from schemas.reasons import Reason
from services.monitor.explain.troubled import Troubled
from services.monitor.explain.why_waiting import SILENT_MAX
from services.monitor.http.queries import Queries
from services.monitor.metrics.collect import ReadModel
from tests.support.page import CLOUD, adopted
from tests.unit.test_monitor_core import Desk

DROPPED = because.SignalsDropped(signal="cpu", source="b1", why="late", count=5, off_s=-9.0)
TOLD = "5 cpu signals of b1 were dropped: its clock is 9.0 s behind"


class Scheduler:
    def __init__(self) -> None:
        self.troubles: list[Reason] | None = []
        self.raw: bytes | None = None
        self.asked: list[str] = []

    async def ask(self, department: str) -> bytes | None:
        self.asked.append(department)
        if self.troubles is None:
            return self.raw
        return msgspec.json.encode({"troubles": self.troubles})


def house() -> tuple[Desk, Scheduler, Troubled]:
    desk, scheduler = Desk().play(adopted(CLOUD)), Scheduler()
    return desk, scheduler, Troubled(desk.core, desk.views, scheduler.ask)


def row(desk: Desk, department: str = "web") -> dict[str, Any]:
    return desk.views.department(department)


def exported(desk: Desk) -> str:
    registry = CollectorRegistry()
    registry.register(ReadModel(desk.core, desk.views))
    return generate_latest(registry).decode()


async def test_the_schedulers_word_is_in_rows_and_metrics_until_it_is_taken_back() -> None:
    desk, scheduler, troubled = house()
    series = 'phoenix_web_troubles{code="signals_dropped",department="web"}'
    assert f"{series} 0.0" in exported(desk)
    scheduler.troubles = [DROPPED]
    await troubled.look()
    assert scheduler.asked == ["web"], "a batch department has no such word"
    assert [(one["reason"]["code"], one["sentence"]) for one in row(desk)["troubles"]] == [("signals_dropped", TOLD)]
    assert f"web: {TOLD}; see phoenix why web" in render([row(desk), row(desk, "hpc")]).splitlines()
    assert f"{series} 1.0" in exported(desk)
    scheduler.troubles = []
    await troubled.look()
    assert row(desk)["troubles"] == []
    assert f"{series} 0.0" in exported(desk)


async def test_who_does_not_answer_for_a_while_says_nothing_any_more() -> None:
    desk, scheduler, troubled = house()
    scheduler.troubles = [DROPPED]
    await troubled.look()
    scheduler.troubles = None
    for raw in (None, b"{", msgspec.json.encode(problem("failed", "no")))[: SILENT_MAX - 1]:
        scheduler.raw = raw
        await troubled.look()
        assert row(desk)["troubles"], "one answer may be lost"
    await troubled.look()
    assert row(desk)["troubles"] == []


async def test_what_the_journal_tells_is_not_said_twice() -> None:
    desk, scheduler, troubled = house()
    scheduler.troubles = [because.SignalMissing(timeout_s=10.0)]
    await troubled.look()
    assert "no load has been reported" not in render([row(desk)])


async def test_a_department_that_is_removed_takes_its_word_with_it() -> None:
    desk, scheduler, troubled = house()
    scheduler.troubles = [DROPPED]
    await troubled.look()
    desk.play(adopted(msgspec.structs.replace(CLOUD, departments=CLOUD.departments[:1])))
    await troubled.look()
    assert troubled.of("web") == ()


class Leaving:
    """A connection that is being closed: before it is asked for an answer, or while that is waited for."""

    def __init__(self, *, early: bool) -> None:
        self.early = early

    async def subscribe(self, _inbox: str, max_msgs: int) -> Leaving:
        if self.early:
            raise ConnectionDrainingError
        return self

    async def publish(self, _subject: str, _data: bytes, reply: str) -> None:
        raise ConnectionClosedError

    async def unsubscribe(self) -> None:
        raise ConnectionClosedError


async def test_a_connection_that_is_being_closed_gives_no_answer_and_no_error() -> None:
    desk, _, _ = house()
    for early in (True, False):
        queries = Queries(Leaving(early=early), desk.views, desk.history)  # type: ignore[arg-type]
        assert await queries.troubles("web") is None
