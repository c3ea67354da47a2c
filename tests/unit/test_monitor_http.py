"""The monitor's HTTP: who may read what, errors that say so, and reads that wait for the reader's own writes."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.custody.custody import Custody
from services.monitor.events import LOAD, Entry, Publisher
from services.monitor.explain.why import Why
from services.monitor.history.file import Still
from services.monitor.http import reads
from services.monitor.http.access import Access
from services.monitor.http.history_routes import HistoryReads
from services.monitor.http.reads import POSITION, Reads
from services.monitor.metrics.collect import ReadModel
from services.monitor.metrics.scrape import Ports, Scrape
from services.monitor.parts import at_once
from services.runtime.broker.credentials import digest
from services.runtime.broker.reply import refusal
from services.runtime.callers.identity import Identities
from services.runtime.config.tables import Config, Metrics
from tests.support.page import CLOUD, adopted
from tests.support.problems import checked
from tests.unit.test_custody_rules import granted, job, placed
from tests.unit.test_monitor_core import Desk

PORTS = Config(cloud=CLOUD, metrics=Metrics(ports={"executor": 1}))
HELD = {"start_at": None, "hosts": [], "sure": "cannot_say", "because": {"code": "held"}}


class House:
    def __init__(self, tmp_path: Path) -> None:
        self.desk = Desk(tmp_path / "h.sqlite")
        self.desk.play(adopted(CLOUD), *granted(), job(), placed())
        tokens = self.tokens = tmp_path / "tokens.json"
        ended = {digest("t-past"): {"user": "alice", "made": 0.0, "ends": 86400.5}}
        tokens.write_bytes(orjson.dumps({digest(f"t-{u.name}"): u.name for u in CLOUD.users} | ended))
        self.waited: list[int] = []
        self.asked = asyncio.Event()
        self.arrives = asyncio.Event()
        registry = CollectorRegistry()
        registry.register(ReadModel(self.desk.core, self.desk.views))
        assert self.desk.history is not None
        access = Access(self.desk.core.custody, Identities(tokens, CLOUD))
        served = Reads(
            self.desk.core,
            self.desk.views,
            self.desk.history,
            self.desk.publisher,
            access,
            registry,
            self._wait_for,
            more=[
                *Scrape(self.desk.core.custody, Ports(PORTS)).routes(),
                *Why(access, self.desk.views, self.desk.history, self, lambda: 100.0).routes(),
                *HistoryReads(access, self.desk.history, lambda: 100.0).routes(),
            ],
        )
        self.client = TestClient(TestServer(served.app()))

    reasons: tuple[dict[str, Any], ...] = ()  # more than that it is held

    refusal = ""  # of the scheduler, to what is asked next

    async def why(self, department: str, job: str) -> bytes | None:
        if self.refusal:
            return refusal("failed", self.refusal)
        held = [{"code": "held", "params": {}}, *self.reasons]
        return orjson.dumps({"department": department, "job": job, "reasons": held}) if job == "1" else None

    async def starts(self, department: str, jobs: Sequence[str] | None) -> bytes | None:
        return orjson.dumps({"starts": {"1": HELD}}) if department == "hpc" else None

    async def _wait_for(self, position: int, timeout_s: float) -> None:
        self.waited.append(position)
        self.asked.set()
        async with asyncio.timeout(timeout_s):
            await self.arrives.wait()

    async def get(self, path: str, user: str = "alice", **headers: str) -> tuple[int, bytes]:
        given = {"Authorization": f"Bearer t-{user}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer = await self.client.get(path, headers=given)
        return answer.status, await answer.read()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.client.start_server()
    yield house
    await house.client.close()
    assert house.desk.history is not None
    await house.desk.history.close()


async def test_while_the_tokens_cannot_be_read_nobody_is_let_in_and_told_no_more_than_that(house: House) -> None:
    good = house.tokens.read_bytes()
    house.tokens.write_bytes(b"{")
    for _ in range(2):
        status, body = await house.get("/v1/queue")
        error = orjson.loads(body)
        assert (status, error["code"]) == (503, "unavailable")
        assert "tokens.json" not in error["detail"]
    house.tokens.write_bytes(good)
    assert (await house.get("/v1/queue"))[0] == 200


@pytest.mark.parametrize(
    ("path", "user", "status"),
    [
        ("/v1/queue", "alice", 200),
        ("/v1/queue", "nobody", 401),
        ("/v1/queue?department=web", "alice", 403),
        ("/v1/queue?department=web", "oscar", 200),
        ("/v1/queue?department=wbe", "oscar", 404),
        ("/v1/queue?limit=many", "alice", 400),
        ("/v1/queue?limit=nan", "alice", 400),
        ("/v1/jobs/1", "alice", 200),
        ("/v1/jobs/1", "wendy", 404),
        ("/v1/jobs/99", "alice", 404),
        ("/v1/jobs", "alice", 200),
        ("/v1/why/1", "alice", 200),
        ("/v1/why/1", "wendy", 404),
        ("/v1/why/99", "alice", 404),
        ("/v1/why/1_2", "alice", 404),
        ("/v1/starts/1_2", "alice", 404),
        ("/v1/jobs/1_2", "alice", 404),
        ("/v1/why/none", "alice", 404),
        ("/v1/why/hpc", "alice", 200),
        ("/v1/why/hpc", "wendy", 403),
        ("/v1/why/h1", "wendy", 200),
        ("/v1/why/h1?kind=job", "wendy", 404),
        ("/v1/why/h1?kind=hots", "wendy", 400),
        ("/v1/starts", "alice", 200),
        ("/v1/starts/1", "wendy", 404),
        ("/v1/starts/99", "alice", 404),
        ("/v1/why/web", "alice", 403),
        ("/v1/hosts", "wendy", 200),
        ("/v1/lending", "wendy", 200),
        ("/v1/lending", "nobody", 401),
        ("/v1/departments", "wendy", 200),
        ("/v1/departments/none", "wendy", 404),
        ("/v1/overview", "wendy", 200),
        ("/v1/summary?since=1970-01-01T00:00:00Z", "wendy", 200),
        ("/v1/usage", "alice", 200),
        ("/v1/usage?by=user&since=1970-01-01T00:00:00Z&until=2255-01-01T00:00:00Z", "oscar", 200),
        ("/v1/usage?department=web", "alice", 403),
        ("/v1/usage?department=wbe", "oscar", 200),  # it may be one that was removed: its past is asked for
        ("/v1/usage?by=host", "alice", 400),
        *(
            (f"/v1/usage?since={time}", "alice", 400)
            for time in ("nan", "0", "2026-11-01", "2026-11-01T08:00:00", "T", "TZ", "")
        ),
        ("/v1/usage?sinse=2026-11-01T08:00:00Z", "alice", 400),
        ("/v1/hosts?all=1", "alice", 400),
        ("/v1/queue?limit=100001", "alice", 400),
        ("/v1/queue?limit=-1", "alice", 400),
        ("/v1/queue?form=long", "alice", 400),
        ("/v1/queue?state=lost", "alice", 400),
        ("/v1/instances?all=yes", "alice", 400),
        ("/v1/instances?all=true", "alice", 200),
        ("/v1/usage", "nobody", 401),
        ("/v1/events?after=0", "alice", 200),
        ("/v1/nothing", "alice", 404),
        ("/metrics/nobody", "alice", 404),
        ("/metrics/executor", "alice", 503),
    ],
)
async def test_who_may_read_what(house: House, path: str, user: str, status: int) -> None:
    found, body = await house.get(path, user)
    assert found == status
    if status >= 400:
        error = orjson.loads(body)
        assert error["detail"]
        assert error["code"] in ("invalid", "unknown", "denied", "unavailable")


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/why/{}", "/v1/why/{}?kind=job", "/v1/starts/{}"])
async def test_a_job_of_another_department_is_as_one_that_is_not_there(house: House, path: str) -> None:
    told = {job: (await house.get(path.format(job), "wendy")) for job in ("1", "9")}
    assert (told["1"][0], told["1"][1].replace(b"'1'", b"'9'")) == told["9"]
    assert told["9"][0] == 404


async def test_usage_of_ones_own_department_alone(house: House) -> None:
    told = {}
    for user in ("alice", "wendy", "oscar"):
        answer = orjson.loads((await house.get("/v1/usage?by=user", user))[1])
        told[user] = [one["department"] for one in answer["departments"]], [row["user"] for row in answer["rows"]]
    assert told == {"alice": (["hpc"], ["alice"]), "wendy": (["web"], []), "oscar": (["hpc", "web"], ["alice"])}


async def test_health_and_metrics_need_no_token(house: House) -> None:
    answer = await house.client.get("/healthz")
    assert orjson.loads(await answer.read())["position"] == house.desk.position
    text = await (await house.client.get("/metrics")).text()
    assert 'phoenix_hosts{department="hpc",state="held"} 1.0' in text
    assert 'phoenix_jobs{department="hpc",state="starting"} 1.0' in text
    assert re.search(r'phoenix_held_host_seconds_total{department="hpc"} [1-9]', text)
    assert 'phoenix_lost_core_seconds_total{department="hpc"} 0.0' in text


async def test_events_of_a_department_are_its_own(house: House) -> None:
    _, body = await house.get("/v1/events?after=0")
    kinds = {orjson.loads(line)["department"] for line in body.splitlines()}
    assert kinds == {"hpc"}


async def test_a_read_waits_for_the_position_that_the_door_has(house: House) -> None:
    reading = asyncio.create_task(house.get("/v1/queue", **{POSITION: "7"}))
    async with asyncio.timeout(5):
        await house.asked.wait()
    assert house.waited == [7]
    assert not reading.done()
    house.arrives.set()
    assert (await reading)[0] == 200


async def test_a_follower_sees_what_happens(house: House) -> None:
    headers = {"Authorization": "Bearer t-alice"}
    async with house.client.get("/v1/events?after=0&follow=1", headers=headers) as answer:
        first = await answer.content.readline()
        assert orjson.loads(first)["kind"] == "host.granted"
        house.desk.play(job("2"))
        async with asyncio.timeout(5):
            while orjson.loads(line := await answer.content.readline())["fact"].get("job") != "2":
                assert line


async def test_a_refusal_names_the_parameter_and_says_where_the_calls_are(house: House) -> None:
    _, parameter = await house.get("/v1/hosts?all=1", "alice")
    assert orjson.loads(parameter)["detail"] == "all: there is no such parameter"
    _, path = await house.get("/v1/queu", "alice")
    assert orjson.loads(path)["detail"].endswith("Not Found; /openapi.json lists the calls")


async def test_a_follower_without_a_position_begins_now_and_has_no_limit(house: House) -> None:
    headers = {"Authorization": "Bearer t-alice"}
    async with house.client.get("/v1/events?follow=1", headers=headers) as answer, asyncio.timeout(5):
        house.desk.play(job("2"))
        assert orjson.loads(await answer.content.readline())["fact"]["job"] == "2"
    status, refused = await house.get("/v1/events?follow=1&limit=3", "alice")
    assert (status, orjson.loads(refused)["field"]) == (400, "limit")


async def test_a_follower_with_nothing_to_read_gets_empty_lines_while_others_have_events(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "FOLLOW_S", 0.1)
    house.desk.play(adopted(CLOUD))
    headers = {"Authorization": "Bearer t-wendy"}

    async def others() -> None:
        for number in itertools.count(2):
            house.desk.play(job(str(number)))
            await asyncio.sleep(0.01)

    busy = asyncio.create_task(others())
    async with house.client.get("/v1/events?after=0&follow=1", headers=headers) as answer, asyncio.timeout(5):
        while line := (await answer.content.readline()).strip():
            assert orjson.loads(line)["department"] != "hpc"
        assert not busy.done()
    busy.cancel()


async def test_events_are_paged_forward_from_a_position_and_the_newest_come_without_one(house: House) -> None:
    async def ids(query: str) -> list[str]:
        status, body = await house.get(f"/v1/events?{query}")
        assert status == 200
        return [orjson.loads(line)["id"] for line in body.splitlines()]

    house.desk.play(job("2"), job("3"))
    every = await ids("after=0")
    assert len(every) == 5
    paged: list[str] = []
    while page := await ids(f"limit=2&after={paged[-1].split('.')[0] if paged else 0}"):
        assert len(page) <= 2
        paged += page
    assert paged == every
    assert await ids("limit=2") == every[-2:]
    assert await ids("limit=0") == await ids("after=0&limit=0") == []


def test_a_page_ends_with_a_whole_envelope() -> None:
    found = [Entry(position, index, "hpc", "k", b"") for position, index in ((3, 0), (4, 0), (4, 1), (4, 2), (7, 0))]
    publisher = Publisher(Custody())
    publisher.ring.extend(found[::2])
    publisher.loads.extend(found[1::2])

    def page(most: int, *, oldest: bool) -> list[Entry]:
        return at_once(publisher.page(0, None, (), most, oldest=oldest))

    assert page(2, oldest=True) == found[:4]
    assert page(9, oldest=True) == found
    assert page(2, oldest=False) == found[-2:]
    assert at_once(publisher.page(4, None, (LOAD,), 9, oldest=True)) == [found[4]]


async def test_another_departments_events_are_denied_not_empty(house: House) -> None:
    assert (await house.get("/v1/events?department=hpc", "wendy"))[0] == 403
    assert (await house.get("/v1/events?department=hpc&follow=1", "wendy"))[0] == 403


async def test_kinds_can_be_left_out(house: House) -> None:
    _, every = await house.get("/v1/events?after=0")
    _, some = await house.get("/v1/events?after=0&omit=host.granted,vm.ended")
    kinds = [orjson.loads(line)["kind"] for line in every.splitlines()]
    assert "host.granted" in kinds
    assert [orjson.loads(line)["kind"] for line in some.splitlines()] == [k for k in kinds if k != "host.granted"]
    headers = {"Authorization": "Bearer t-alice"}
    async with house.client.get("/v1/events?after=0&follow=1&omit=host.granted", headers=headers) as answer:
        async with asyncio.timeout(5):
            assert orjson.loads(await answer.content.readline())["kind"] == "job.submitted"


async def test_a_follower_that_goes_away_is_no_error(house: House, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"Authorization": "Bearer t-alice"}
    async with house.client.get("/v1/events?after=0&follow=1", headers=headers) as answer:
        await answer.content.readline()
        answer.close()
    async with asyncio.timeout(5):
        while house.desk.publisher._watchers:
            house.desk.play(job(str(house.desk.position + 10)))
            await asyncio.sleep(0.01)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_token_that_has_ended_is_told_so(house: House) -> None:
    status, body = await house.get("/v1/queue", "past")
    assert status == 401
    assert orjson.loads(body)["detail"] == (
        "this token of alice ended at 1970-01-02T00:00:00Z: the cloud's operator creates another (phoenix token create)"
    )


async def test_starts_are_told_of_the_callers_own_queue(house: House) -> None:
    for user, units in (("alice", ["1"]), ("oscar", ["1"]), ("wendy", [])):
        assert list(orjson.loads((await house.get("/v1/starts", user))[1])["starts"]) == units


@pytest.mark.parametrize("path", ["/v1/jobs/{}", "/v1/why/{}", "/v1/why/{}?kind=job", "/v1/starts/{}"])
async def test_an_element_that_an_array_does_not_have_is_missing_and_one_that_it_has_is_not(
    house: House, path: str
) -> None:
    house.desk.play(job("2", array=(1, 4)), ("admission", f.JobCancelled(job="2_4", user="alice")))
    found = {name: (await house.get(path.format(name)))[0] for name in ("2", "2_4", "2_3", "2_0")}
    assert found == {"2": found["2"], "2_4": 200, "2_3": 404, "2_0": 404}
    assert found["2"] != 404
    house.desk.core.custody.state.units.pop(
        "2_4"
    )  # as custody forgets it: the history answers, and nothing starts any more
    assert (await house.get(path.format("2_4")))[0] == (404 if "starts" in path else 200)


async def test_a_refusal_of_the_scheduler_is_no_answer_without_reasons(house: House) -> None:
    house.refusal = "the order widest-first raised ValueError"
    status, body = await house.get("/v1/why/1")
    error = orjson.loads(body)
    assert (status, error["code"]) == (503, "unavailable")
    assert error["detail"] == f"the scheduler of hpc does not explain 1: {house.refusal}"


async def test_why_has_sentences_remedies_and_when_it_starts(house: House) -> None:
    _, body = await house.get("/v1/why/1")
    answer = orjson.loads(body)
    assert answer["sentences"] == ["It is held."]
    assert answer["remedies"] == ["phoenix release 1"]
    assert answer["start"]["sentence"] == "this cannot be predicted: it is held"
    _, body = await house.get("/v1/why/h1")
    answer = orjson.loads(body)
    assert len(answer["sentences"]) == len(answer["remedies"])
    assert answer["sentences"][0].startswith("Held by hpc since ")


async def test_why_of_what_has_ended_is_told_from_the_fold_or_the_history_and_nobody_asks_its_scheduler(
    house: House,
) -> None:
    house.desk.play(job("2", array=(1, 2)), ("admission", f.JobCancelled(job="2_1", user="alice")))
    close = f.AttemptClosed(unit="1", attempt=1, disposal=Disposal.TIMEOUT, why=because.Walltime())
    house.desk.play(("scheduler.hpc", close))

    async def told(name: str) -> list[str]:
        status, body = await house.get(f"/v1/why/{name}")
        assert status == 200
        return list(orjson.loads(body)["sentences"])

    known = {name: await told(name) for name in ("1", "2_1")}
    assert known["1"][0].startswith("It is finished: timeout, at 1970-")
    assert len(known["1"]) == 2, "why the attempt was closed"
    assert known["2_1"][0].startswith("It is finished: cancelled, at 1970-")
    for name in known:
        house.desk.core.custody.state.units.pop(name, None)
    house.desk.core.state.jobs.clear()
    assert {name: await told(name) for name in known} == known
    assert (await house.get("/v1/why/1", "wendy"))[0] == 404


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        ({"exit": 0, "seconds": 3.2}, "It is finished: completed with exit code 0 after 3s, at 1970-"),
        ({"exit": 3, "seconds": 75.0}, "It is finished: failed with exit code 3 after 1m15s, at 1970-"),
        ({"exit": 137, "signal": 9, "seconds": 3}, "It is finished: failed with signal 9 (SIGKILL) after 3s, at 1970-"),
        ({"exit": 0}, "It is finished: completed with exit code 0, at 1970-"),
    ],
)
async def test_why_of_what_has_ended_has_exit_code_and_time(house: House, reported: dict[str, Any], said: str) -> None:
    report = f.AttemptReported(unit="1", attempt=1, **reported)
    house.desk.play(("admission", f.AttemptBegan(unit="1", attempt=1)), ("admission", report))
    for _ in ("the fold", "the history"):
        status, body = await house.get("/v1/why/1")
        assert status == 200
        assert orjson.loads(body)["sentences"][0].startswith(said)
        house.desk.core.custody.state.units.pop("1", None)
        house.desk.core.state.jobs.clear()


async def test_why_of_a_cancelled_job_says_so_once(house: House) -> None:
    close = f.AttemptClosed(unit="1", attempt=1, disposal=Disposal.CANCELLED, why=because.Cancelled())
    house.desk.play(("admission", f.JobCancelled(job="1", user="alice")), ("scheduler.hpc", close))
    _, body = await house.get("/v1/why/1")
    (only,) = orjson.loads(body)["sentences"]
    assert only.startswith("It is finished: cancelled, at 1970-")


async def test_why_says_that_a_person_and_not_the_load_keeps_webs_hosts(house: House) -> None:
    params = {"nodes": 2, "cores": 1, "held": 0, "web": ["web"], "held_by_web": 1}
    house.reasons = ({"code": "waits_for_hosts", **params},)
    for said, told in (({"exact": 3}, True), ({}, False)):
        house.desk.play(("admission", f.ScaleRequested(dept="web", user="wes", **said)))
        _, body = await house.get("/v1/why/1")
        answer = orjson.loads(body)
        assert ("`phoenix scale web --auto`" in answer["remedies"][1]) == told
        assert answer["reasons"][1].get("by_hand") == (["web"] if told else None)


async def test_while_the_history_stands_still_what_needs_it_is_refused_and_the_rest_is_told(house: House) -> None:
    history = house.desk.history
    assert history is not None
    assert orjson.loads((await house.get("/healthz"))[1])["ailing"] == []
    history.still, history._not_before = Still(0.0, "database or disk is full"), math.inf
    told = "the history has not been written since 1970-01-01T00:00:00.000Z: database or disk is full; it resumes by itself"
    status, body = await house.get("/v1/jobs")
    assert (status, orjson.loads(body)["code"]) == (503, "unavailable")
    assert orjson.loads(body)["detail"].startswith(told)
    assert (await house.get("/v1/jobs/1"))[0] == 200, "memory has it"
    assert (await house.get("/v1/jobs/99"))[0] == 503, "nobody can say that there is none"
    assert [(await house.get(path))[0] for path in ("/v1/queue", "/v1/overview", "/metrics", "/healthz")] == [200] * 4
    assert orjson.loads((await house.get("/healthz"))[1])["ailing"][0].startswith(told)


@pytest.mark.parametrize(
    ("method", "path", "user", "status"),
    [
        ("GET", "/v1/queue", "alice", 200),
        ("GET", "/v1/jobs/99", "alice", 404),
        ("GET", "/v1/queue", "nobody", 401),
        ("GET", "/v1/nowhere", "alice", 404),
        ("PUT", "/v1/queue", "alice", 405),
        ("DELETE", "/v1/hosts", "alice", 405),
        ("GET", "/v1/queue?limit=many", "alice", 400),
    ],
)
@pytest.mark.parametrize("header", ["Accept", "Content-Type"])
async def test_messagepack_is_answered_in_messagepack(
    house: House, method: str, path: str, user: str, status: int, header: str
) -> None:
    plain = {"Authorization": f"Bearer t-{user}"}
    as_json = await house.client.request(method, path, headers=plain)
    packed = await house.client.request(method, path, headers={**plain, header: "application/msgpack"})
    assert (as_json.status, packed.status) == (status, status)
    told, unpacked = orjson.loads(await as_json.read()), msgspec.msgpack.decode(await packed.read())
    assert unpacked.keys() == told.keys()
    if status >= 400:
        assert unpacked == told
        for answer in (as_json, packed):
            checked(status, answer.headers, await answer.read())
    form = "problem+" if status >= 400 else ""
    assert (as_json.content_type, packed.content_type) == (f"application/{form}json", f"application/{form}msgpack")
    assert (packed.headers.get("Allow", "") == "GET,HEAD") == (status == 405)
