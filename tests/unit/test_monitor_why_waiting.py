"""Why jobs wait, by the word of their schedulers, in the rows that people see."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import orjson
import pytest
from msgspec.json import encode

from schemas import reasons as because
from schemas.facts import Lease
from schemas.problems import problem
from schemas.reasons import Reason
from services.monitor import parts
from services.monitor.explain.why_waiting import SILENT_MAX, WhyWaiting
from services.monitor.http.page_state import Picture
from tests.unit.test_custody_rules import job
from tests.unit.test_monitor_core import ADOPTED, Desk

SHORT = because.WaitsForHosts(nodes=14, short=1)


class Scheduler:
    """Answers what it is told to, and keeps who was asked."""

    def __init__(self) -> None:
        self.reasons: dict[str, Reason] | None = {}
        self.rest: dict[str, list[str]] = {}
        self.raw: bytes | None = None
        self.asked: list[str] = []

    async def ask(self, department: str) -> bytes | None:
        self.asked.append(department)
        if self.raw is not None or self.reasons is None:
            return self.raw
        return msgspec.json.encode({"reasons": self.reasons, "rest": self.rest})


def house() -> tuple[Desk, Scheduler, WhyWaiting]:
    desk, scheduler = Desk().play(ADOPTED, job("1"), job("2")), Scheduler()
    return desk, scheduler, WhyWaiting(desk.core, desk.views, scheduler.ask)


def codes(desk: Desk) -> dict[str, Any]:
    return {row["unit"]: row["reason"]["code"] for row in desk.queue()}


async def test_the_schedulers_word_is_shown_of_whom_it_tells() -> None:
    desk, scheduler, why = house()
    assert codes(desk) == {"1": "queue", "2": "queue"}
    scheduler.reasons = {"1": SHORT}
    await why.look()
    assert codes(desk) == {"1": "waits_for_hosts", "2": "queue"}
    desk.views.refresh()
    assert [(code, count) for code, count, *_ in desk.views.waiting.reasons("hpc")] == [
        ("queue", 1),
        ("waits_for_hosts", 1),
    ]
    scheduler.reasons = {}
    await why.look()
    assert codes(desk) == {"1": "queue", "2": "queue"}, "it is not among the first ones any more"


async def test_behind_the_first_ones_the_code_is_shown_and_counted() -> None:
    desk, scheduler, why = house()
    desk.play(job("3"), job("4"))
    scheduler.reasons = {"1": SHORT}
    scheduler.rest = {"waits_for_hosts": ["2"], "too_large_now": ["3"], "of tomorrow": ["4"]}
    await why.look()
    assert codes(desk) == {"1": "waits_for_hosts", "2": "waits_for_hosts", "3": "too_large_now", "4": "queue"}
    counted = {code: count for code, count, *_ in desk.views.waiting.reasons("hpc")}
    assert counted == {"waits_for_hosts": 2, "too_large_now": 1, "queue": 1}
    desk.views.refresh()
    await why.look()
    assert desk.core.touched == {}, "the same again renders nothing"


async def test_what_is_new_of_many_is_taken_in_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, scheduler, why = house()
    desk.play(*(job(str(number)) for number in range(3, 8)))
    monkeypatch.setattr(parts, "PART", 2 * parts.NOTED)
    scheduler.rest = {"waits_for_hosts": [str(number) for number in range(1, 8)]}
    ours, seen = asyncio.create_task(why.look()), []
    while not ours.done():
        await asyncio.sleep(0)
        seen.append(sum(count for code, count, *_ in desk.views.waiting.reasons("hpc") if code == "waits_for_hosts"))
    assert sorted(set(seen)) == [0, 2, 4, 6, 7], "others had their turn in between"
    assert set(codes(desk).values()) == {"waits_for_hosts"}


def test_what_is_told_of_many_is_compared_in_parts() -> None:
    _, _, why = house()
    data = msgspec.json.encode({"reasons": {}, "rest": {"too_large_now": [str(number) for number in range(3_000)]}})
    found: list[dict[str, None]] = []

    def heard() -> parts.Parts[None]:
        found.append((yield from why._heard("hpc", data)))

    for _ in range(2):
        assert sum(1 for _ in heard()) >= 2 * (3_000 // parts.PART)
    assert [len(changed) for changed in found] == [3_000, 0]


async def test_that_a_slot_has_begun_the_scheduler_tells() -> None:
    desk, scheduler, why = house()
    desk.core.state.jobs["1"].terms = Lease(kind="advance", start_at=1.0)
    desk.core.touched["1"] = None
    assert codes(desk)["1"] == "lease_starts_at"
    scheduler.rest = {"lease_late": ["1"]}
    await why.look()
    assert codes(desk)["1"] == "lease_late"


async def test_what_the_journal_tells_goes_first() -> None:
    desk, scheduler, why = house()
    scheduler.reasons = {"1": SHORT}
    await why.look()
    desk.core.custody.state.units["1"].held = True
    desk.core.touched["1"] = None
    assert codes(desk)["1"] == "held"


async def test_a_scheduler_that_is_silent_for_long_is_not_believed_any_more() -> None:
    desk, scheduler, why = house()
    scheduler.reasons = {"1": SHORT}
    await why.look()
    scheduler.reasons = None
    for _ in range(SILENT_MAX - 1):
        await why.look()
    assert codes(desk)["1"] == "waits_for_hosts"
    await why.look()
    assert codes(desk)["1"] == "queue"
    for raw in (b"\xff", b"{}", encode(problem("failed", "no")), b'{"reasons": {"1": {"code": "of tomorrow"}}}'):
        scheduler.raw = raw
        await why.look()
        assert codes(desk)["1"] == "queue"


async def test_nobody_is_asked_where_nobody_waits() -> None:
    desk, scheduler = Desk().play(ADOPTED), Scheduler()
    why = WhyWaiting(desk.core, desk.views, scheduler.ask)
    await why.look()
    assert scheduler.asked == []
    desk.play(job("1"))
    await why.look()
    assert scheduler.asked == ["hpc"]


async def test_what_several_wait_for_is_told_without_one_jobs_numbers() -> None:
    desk, scheduler, why = house()
    scheduler.reasons = {"1": SHORT}
    await why.look()
    picture = Picture(desk.core, desk.views, desk.publisher)
    picture.refresh(desk.custody.state.at)
    assert "14 hosts" in orjson.loads(picture.waiting["hpc"].body)["waits_for_hosts"]["sentence"]
    scheduler.reasons = {"1": SHORT, "2": SHORT}
    await why.look()
    picture.refresh(desk.custody.state.at)
    told = orjson.loads(picture.waiting["hpc"].body)["waits_for_hosts"]
    several = "too little is free on the department's hosts for what it needs"
    assert (told["count"], told["sentence"]) == (2, several)
    scheduler.reasons = dict.fromkeys(("1", "2"), because.Dependency(condition="afterok", job="7"))
    await why.look()
    picture.refresh(desk.custody.state.at)
    told = orjson.loads(picture.waiting["hpc"].body)["dependency"]
    assert (told["count"], told["sentence"]) == (2, "waits for another job")
