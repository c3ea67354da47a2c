"""Floods at the doors: whoever sends one waits or is refused, and other departments are answered meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from schemas.subjects import request
from services.admission.commands import dispatcher as desk
from services.admission.commands.costs import GUEST
from services.admission.guests.tokens import job_token
from services.runtime.fair_queue import Bounds
from services.runtime.http.guard import ANONYMOUS_S
from services.runtime.request_queue import REFUSED
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
        return [one["detail"] for one in self.answers if one.get("code") == "limit"]


@pytest.mark.parametrize("kind", KINDS)
async def test_beside_a_flood_another_department_is_answered_and_its_sender_refused(here: House, kind: str) -> None:
    assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})  # so that two departments ask
    flood, queue, counted = Flood(), here.doors.turns.queue, REFUSED.labels("hpc", "caller")._value.get()
    await flood.send(here, kind)
    for _ in range(20):
        assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})
        async with here.session.get(f"{here.url}/v1/departments/web/instances", headers=here.headers("wim")) as answer:
            assert answer.status == 200
    await until(lambda: len(flood.refused) > 0, "the flood's sender is told")
    last = next(one for one in reversed(flood.answers) if one.get("code") == "limit")
    assert f"try again in {last['retry_after_s']:.1f} s" in last["detail"]
    assert last["retry_after_s"] > SLOW.waiting_max / 2 / SLOW.rate_beside / 10, "half of what waits, at its pace"
    assert REFUSED.labels("hpc", "caller")._value.get() >= counted + len(flood.refused)
    assert REFUSED.labels("bio", "caller")._value.get() == 0
    assert 0 < queue.waiting <= SLOW.waiting_max
    assert queue.check() == []


async def test_a_flood_whose_answers_go_elsewhere_is_a_flood_like_others(here: House) -> None:
    assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})
    await Flood().send(here, "job.submit", reply="_INBOX_bio.leo.stolen")
    for _ in range(20):
        assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})
    assert 0 < here.doors.turns.queue.waiting <= SLOW.waiting_max


async def test_a_caller_without_a_token_is_paced_and_others_are_not(here: House) -> None:
    assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})
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
            assert (await here.ask("ann", kind, {"jobs": [job]}))["results"] == [{"job": job}]
        refused = await here.ask("ann", "job.hold", {"jobs": [job]})
        assert (refused["code"], refused["field"]) == ("limit", "jobs")
        assert 9_000 < refused["retry_after_s"] <= 10_000  # 10 of 50 are left, so 10 are lacking: one in 1,000 s
        one = {"results": [{"job": f"{job}_1"}]}
        assert await here.ask("ann", "job.hold", {"jobs": [f"{job}_1"]}) == one  # fewer at a time
        assert (await here.ask("ann", "job.cancel", {"jobs": [job]}))["results"] == [{"job": job}]


class Callers:
    """Calls over HTTP that go on until `end`; `statuses`: of those that were answered."""

    def __init__(self, here: House, method: str, path: str, token: str, body: Any = None) -> None:
        self._here, self._method, self._url, self._body = here, method, here.url + path, body
        self._headers = {"Authorization": f"Bearer {token}"}
        self.statuses: list[int] = []
        self.tasks = [asyncio.create_task(self._call()) for _ in range(90)]

    async def _call(self) -> None:
        async with self._here.session.request(
            self._method, self._url, json=self._body, headers=self._headers
        ) as answer:
            self.statuses.append(answer.status)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


CALLS: dict[str, tuple[str, str, Any]] = {
    "launch": ("POST", "launch", {"id": "x", "argv": ["true"]}),
    "look at a launch": ("GET", "launch/none/events", None),
    "signal": ("POST", "launch/none/signal", {"signal": 9}),
    "checkpoint": ("POST", "checkpoint", {}),
    "send a file": ("PUT", "checkpoint/files/a", {"some": "thing"}),
    "fetch a file": ("GET", "checkpoint/files/a", None),
}


@pytest.mark.parametrize("call", CALLS)
async def test_what_a_job_asks_with_its_token_waits_for_its_turn_and_its_vm_does_not(here: House, call: str) -> None:
    here.doors.guest_turns.turns.queue.bounds = Bounds(
        waiting_max=5, rate_beside=0.01, burst=12 * GUEST, is_beside=True
    )
    job = (await here.ask("ann", "job.submit", {"script": "x"}))["job"]
    await here.place(job)
    guest = here.guest(job)
    assert await guest.began() == 204
    method, path, body = CALLS[call]
    flood = Callers(here, method, guest.path(path), job_token(guest.token), body)
    await until(lambda: flood.statuses.count(503) >= 30, "most are told to try again")
    for _ in range(5):
        assert "type" not in await here.ask("leo", "job.submit", {"script": "x"})
        assert (await guest.call("PUT", "output/stdout?offset=0", b"x"))[0] == 204
    assert here.doors.guest_turns.turns.queue.waiting  # and some wait
    await flood.end()
    assert await guest.report() == 200
    assert here.doors.guest_turns.turns.queue.check() == []


async def test_who_asks_as_a_guest_without_its_token_waits_for_a_turn(here: House) -> None:
    here.doors.guest_turns.turns.queue.bounds = dataclasses.replace(SLOW, waiting_max=5, is_beside=True)
    for path in ("1/1/0/report", "1/1/0/next", "1/1/0/launch"):
        flood = Callers(here, "POST", f"/v1/guest/{path}", "none")
        await until(lambda: flood.statuses.count(503) >= 30, "most are told to try again")  # noqa: B023
        assert set(flood.statuses) <= {401, 503}
        await flood.end()


async def test_ranks_that_wait_for_the_others_hold_no_turns(here: House) -> None:
    here.doors.guest_turns.turns.queue.bounds = Bounds(is_beside=True, depth_beside=1.0, department_depth=1.0)
    job = (await here.ask("ann", "job.submit", {"script": "x", "nodes": 2}))["job"]
    await here.place(job, "h1", "h2", cores=1)
    first, second = here.guest(job), here.guest(job, rank=1)
    polls = [asyncio.create_task(first.call("GET", "commands?wait_s=20"))]
    polls += [asyncio.create_task(first.call("GET", "launch/x/events?wait_s=20"))]
    ranks = [asyncio.create_task(one.began()) for one in (first, second)]
    assert await asyncio.gather(*ranks) == [204, 204]
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_only_whose_token_is_accepted_keeps_a_connection_of_the_door(here: House) -> None:
    guard, now = here.doors._guard, [0.0]
    guard._now, before = lambda: now[0], guard._now
    job = (await here.ask("ann", "job.submit", {"script": "x"}))["job"]
    await here.place(job)
    guest = here.guest(job)

    async def ends(path: str, headers: dict[str, str]) -> bool:
        async with session.get(here.url + path, headers=headers) as answer:
            return answer.headers.get("Connection") == "close"

    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            assert not await ends("/healthz", {})
            now[0] = 0.9 * ANONYMOUS_S
            assert not await ends("/v1/store", here.headers("leo"))
            now[0] = 1.8 * ANONYMOUS_S
            assert not await ends(guest.path("boot"), guest.headers)
            now[0] = 2.7 * ANONYMOUS_S
            for path, token in (("/v1/store", "none"), (guest.path("boot"), "none"), ("/healthz", "")):
                assert not await ends(path, {"Authorization": f"Bearer {token}"})
            now[0] = 2.8 * ANONYMOUS_S
            assert await ends("/v1/store", {"Authorization": "Bearer none"})
    finally:
        guard._now = before
