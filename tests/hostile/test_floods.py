"""Floods at the doors: whoever sends one waits or is refused, and other departments are answered meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from schemas.subjects import request
from services.admission import desk
from services.runtime.fair_queue import Bounds
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
MANY = 3_000
SLOW = Bounds(waiting_max=100, rate_beside=1.0, burst=50.0)  # for whoever floods it lasts longer than any test
KINDS: dict[str, dict[str, Any]] = {
    "job.submit": {"script": "x"},
    "job.whatif": {"script": "x"},
    "job.cancel": {"jobs": [str(n) for n in range(1, 101)]},
    "job.hold": {"jobs": ["1"]},
    "lease.create": {"nodes": 1, "duration_s": 60.0},
}


@pytest_asyncio.fixture(loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("flood")) as found:
        found.doors.turns.queue.bounds = SLOW
        yield found


class Flood:
    """What `ann` sends, and what she is answered."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    async def heard(self, msg: Msg) -> None:
        self.answers.append(msgspec.json.decode(msg.data))

    async def send(self, here: House, kind: str, reply: str = "") -> None:
        nc = await here.client("ann")
        inbox = reply or nc.new_inbox()
        if not reply:
            await nc.subscribe(inbox, cb=self.heard)
        data = msgspec.json.encode(KINDS[kind])
        for _ in range(MANY):
            await nc.publish(request("hpc", "ann", *kind.split(".")), data, reply=inbox)
        await nc.flush()

    @property
    def refused(self) -> list[str]:
        return [
            one["error"]["message"] for one in self.answers if not one.get("ok") and one["error"]["code"] == "limit"
        ]


@pytest.mark.parametrize("kind", KINDS)
async def test_beside_a_flood_another_department_is_answered_and_its_sender_refused(here: House, kind: str) -> None:
    assert (await here.ask("leo", "job.submit", {"script": "x"}))["ok"]  # so that two departments ask
    flood, queue = Flood(), here.doors.turns.queue
    await flood.send(here, kind)
    for _ in range(20):
        assert (await here.ask("leo", "job.submit", {"script": "x"}))["ok"]
        async with here.session.get(f"{here.url}/v1/departments/web/instances", headers=here.headers("wim")) as answer:
            assert answer.status == 200
    await until(lambda: len(flood.refused) > 0, "the flood's sender is told")
    assert "ask again in 1 s" in flood.refused[-1]
    assert 0 < queue.waiting <= SLOW.waiting_max
    assert queue.check() == []


async def test_a_flood_whose_answers_go_elsewhere_is_a_flood_like_others(here: House) -> None:
    assert (await here.ask("leo", "job.submit", {"script": "x"}))["ok"]
    await Flood().send(here, "job.submit", reply="_INBOX_bio.leo.stolen")
    for _ in range(20):
        assert (await here.ask("leo", "job.submit", {"script": "x"}))["ok"]
    assert 0 < here.doors.turns.queue.waiting <= SLOW.waiting_max


async def test_a_caller_without_a_token_is_paced_and_others_are_not(here: House) -> None:
    assert (await here.ask("leo", "job.submit", {"script": "x"}))["ok"]
    here.doors.turns.queue.bounds = dataclasses.replace(SLOW, waiting_max=5)

    async def ask(headers: dict[str, str]) -> int:
        async with here.session.post(f"{here.url}/v1/jobs", json={"script": "x"}, headers=headers) as answer:
            return answer.status

    flood = [asyncio.create_task(ask({"Authorization": "Bearer none"})) for _ in range(90)]
    await until(lambda: sum(one.done() for one in flood) >= 50, "some are answered")
    assert await ask(here.headers("leo")) == 200
    await until(lambda: any(one.done() and one.result() == 429 for one in flood), "and some are refused")
    assert {one.result() for one in flood if one.done()} == {401, 429}
    for one in flood:
        one.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_who_holds_and_releases_again_and_again_is_stopped_before_the_journal_is_full(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "CHANGES_BURST", 50.0)
    monkeypatch.setattr(desk, "CHANGES_PER_S", 0.001)
    async with house(tmp_path_factory.mktemp("changes")) as here:
        job = (await here.ask("ann", "job.submit", {"script": "x", "array": "1-20"}))["job"]
        for kind in ("job.hold", "job.release"):
            assert (await here.ask("ann", kind, {"jobs": [job]}))["results"] == [{"job": job, "ok": True}]
        refused = await here.ask("ann", "job.hold", {"jobs": [job]})
        assert (refused["error"]["code"], refused["error"]["field"]) == ("limit", "jobs")
        one = {"results": [{"job": f"{job}_1", "ok": True}], "ok": True}
        assert await here.ask("ann", "job.hold", {"jobs": [f"{job}_1"]}) == one  # fewer at a time
        assert (await here.ask("ann", "job.cancel", {"jobs": [job]}))["results"] == [{"job": job, "ok": True}]
