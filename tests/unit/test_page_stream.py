"""The page's picture and its stream: whole at first, then what changes, to each what concerns it, bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from aiohttp import ClientPayloadError, ClientResponse

from schemas import facts as f
from schemas import reasons as because
from schemas.units import seconds
from services.domain import text as sentences
from services.monitor.http import decisions, stream
from services.monitor.http.decisions import Decisions
from services.monitor.http.page_state import ROWS, Picture
from tests.support.page import CLOUD, House, adopted, bearer
from tests.unit.test_custody_rules import allocated, closed, granted, job, placed
from tests.unit.test_monitor_core import Desk


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.start()
    yield house
    await house.close()


class Ear:
    """One listener's connection."""

    def __init__(self, answer: ClientResponse) -> None:
        self.answer = answer
        self.last = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event's name and data."""
        found: dict[str, str] = {}
        async with asyncio.timeout(10):
            while line := await self.answer.content.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "" and "data" in found:
                    self.last = found["id"]
                    return found["event"], orjson.loads(found["data"])
                found[name] = value
        raise EOFError

    async def end(self) -> None:
        """Returns when the stream has ended in order."""
        with contextlib.suppress(EOFError):
            while True:
                await self.next()

    async def until(self, name: str) -> dict[str, Any]:
        while True:
            found, data = await self.next()
            if found == name:
                return data


@pytest.fixture
async def listen(house: House) -> AsyncIterator[Any]:
    opened: list[ClientResponse] = []

    async def connect(user: str = "oscar", path: str = "/v1/stream", **headers: str) -> Ear:
        answer = await house.client.get(path, headers={**bearer(user), **headers})
        opened.append(answer)
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        return Ear(answer)

    yield connect
    for answer in opened:
        answer.close()


async def picture(house: House, user: str = "oscar") -> dict[str, Any]:
    answer = await house.answer("/v1/picture", **bearer(user))
    found: dict[str, Any] = await answer.json()
    return found


# ------------------------------------------------------------------------------------------------------------- the picture


async def test_the_picture_is_what_the_other_reads_say(house: House) -> None:
    house.desk.play(job("2"), job("3"), ("admission", f.JobHeld(job="3", user="alice")))
    found = await picture(house)
    assert found["position"] == house.desk.position
    assert found["cloud"] == "c"
    assert found["hosts"] == house.desk.views.hosts(house.stream.now())["hosts"]
    assert [row["units"] for row in found["hosts"]] == [["1"]]
    assert found["owners"] == {"hpc": 1}
    rows = house.desk.views.departments()["departments"]
    told = [{k: v for k, v in row.items() if k != "waiting"} for row in found["departments"]]
    assert told == orjson.loads(orjson.dumps(rows))
    assert [row["unit"] for row in found["queue"]["hpc"]] == ["2", "3"]  # job 1 waits no more
    assert found["queue"]["web"] == []
    reasons = [sentences.sentence(row["reason"]) for row in found["queue"]["hpc"]]
    assert [row["sentence"] for row in found["queue"]["hpc"]] == reasons
    assert found["alerts"] == {"signal_missing": {}, "claims_open": []}
    assert "missed" not in found


async def test_reasons_for_waiting_are_counted_with_their_oldest(house: House) -> None:
    house.desk.play(job("2"), job("3"), ("admission", f.JobHeld(job="3", user="alice")))
    hpc = (await picture(house))["departments"][0]
    waiting = hpc["waiting"]
    assert {code: one["count"] for code, one in waiting.items()} == {"queue": 1, "held": 1}
    submitted = {"queue": house.desk.position - 2, "held": house.desk.position - 1}
    for code, one in waiting.items():
        assert one["oldest_s"] == house.desk.position - submitted[code]
        assert one["sentence"]
    house.desk.play(("admission", f.JobResumed(job="3", user="alice")))
    waiting = (await picture(house))["departments"][0]["waiting"]
    assert {code: one["count"] for code, one in waiting.items()} == {"queue": 2}


async def test_who_lost_a_host_waits_from_then_on(house: House) -> None:
    house.desk.play(closed())
    at = house.desk.position
    house.desk.play(job("2"), job("4"))
    one = (await picture(house))["departments"][0]["waiting"]["queue"]
    assert one["count"] == 3
    assert one["oldest_s"] == house.desk.position - at


async def test_of_a_long_queue_the_first_are_shown_and_all_are_counted(house: House) -> None:
    house.desk.play(*(job(str(number)) for number in range(2, ROWS + 12)))
    found = await picture(house)
    assert [row["job"] for row in found["queue"]["hpc"]] == [str(n) for n in range(2, ROWS + 2)]
    assert found["departments"][0]["waiting"]["queue"]["count"] == ROWS + 10


async def test_a_department_sees_all_hosts_and_its_own_queue_and_decisions(house: House) -> None:
    house.desk.play(job("2"))
    found = await picture(house, "wendy")
    assert [row["host"] for row in found["hosts"]] == ["h1"]
    assert [row["department"] for row in found["departments"]] == ["hpc", "web"]
    assert [row["waiting"] for row in found["departments"]] == [{}, {}]
    assert found["queue"] == {"web": []}
    assert found["decisions"] == []
    alice = await picture(house, "alice")
    assert list(alice["queue"]) == ["hpc"]
    assert {one["department"] for one in alice["decisions"]} == {"hpc"}
    assert await house.get("/v1/picture?department=hpc", **bearer("wendy")) == 403


async def test_decisions_are_told_in_sentences_and_measurements_are_not(house: House) -> None:
    house.desk.play(allocated(), ("scheduler.web", f.LoadObserved(dept="web", start=0.0, end=1.0, samples=1)))
    found = (await picture(house))["decisions"]
    assert [one["kind"] for one in found] == ["config.adopted", "host.granted", "job.submitted", "unit.placed"]
    granted_, submitted, placed_ = found[1:]
    assert granted_["host"] == "h1"
    assert submitted["job"] == "1"
    assert placed_["unit"] == "1"
    assert "job 1" in submitted["sentence"]
    assert [one["id"] for one in found] == sorted({one["id"] for one in found}, key=lambda i: int(i.split(".")[0]))


def test_every_kind_that_is_told_is_one() -> None:
    assert set(f.BY_KIND) >= decisions.TOLD


async def test_alerts_say_who_claims_and_who_is_silent(house: House) -> None:
    silent = because.SignalMissing()
    house.desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2, reason=silent)))
    alerts = (await picture(house))["alerts"]
    assert list(alerts["signal_missing"]) == ["web"]
    assert [(claim["department"], claim["hosts"], claim["missing"]) for claim in alerts["claims_open"]] == [
        ("web", 2, 2)
    ]
    house.desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1, reason=silent)))
    (claim,) = (await picture(house))["alerts"]["claims_open"]
    assert (claim["hosts"], claim["missing"]) == (2, 1)  # what is still missing of what it began with


async def test_a_picture_without_a_broker_says_since_when_it_is_old(house: House) -> None:
    house.stream.picture.connected = lambda: False
    since = (await picture(house))["alerts"]["broker_lost"]
    house.stream.clock = lambda: 1e9
    assert (await picture(house))["alerts"]["broker_lost"] == since
    house.stream.picture.connected = lambda: True
    assert "broker_lost" not in (await picture(house))["alerts"]


async def test_without_a_token_there_is_nothing(house: House) -> None:
    for path in ("/v1/picture", "/v1/stream", "/v1/timeline"):
        assert await house.get(path) == 401


# ------------------------------------------------------------------------------------------------------------ the timeline


async def test_the_timeline_is_bounded_and_refuses_nonsense(house: House) -> None:
    house.desk.play(*granted("h2", "hpc"), job("70"))
    answer = await house.answer("/v1/timeline?since=1970-01-01T00:00:00Z&points=1", **bearer("wendy"))
    found = await answer.json()
    assert len(found["at"]) == 1
    assert found["owners"]["hpc"][0] > 0
    for query in ("points=0", "points=x", "points=9999", "since=nan", "since=0"):
        assert await house.get(f"/v1/timeline?{query}", **bearer("wendy")) == 400


# -------------------------------------------------------------------------------------------------------------- the stream


async def test_a_stream_begins_with_the_picture_and_goes_on_with_what_changes(house: House, listen: Any) -> None:
    ear = await listen()
    first, data = await ear.next()
    assert first == "picture"
    assert data == await picture(house)
    assert ear.last == str(house.desk.position)
    house.desk.play(*granted("h2", "hpc"))
    hosts = await ear.until("hosts")
    assert [row["host"] for row in hosts["hosts"]] == ["h2"]  # and not h1, which is as it was
    assert (hosts["removed"], hosts["owners"]) == ([], {"hpc": 2})
    told = await ear.until("decisions")
    assert [one["kind"] for one in told["decisions"]] == ["host.granted"]
    assert ear.last == str(house.desk.position)


async def test_what_is_gone_is_said(house: House, listen: Any) -> None:
    house.desk.play(*granted("h2", "hpc"), ("executor", f.HostLost(host="h2", reason="x")))
    ear = await listen()
    await ear.until("picture")
    fewer = CLOUD.departments[:1]
    users = tuple(user for user in CLOUD.users if user.department != "web")
    house.desk.play(
        ("executor", f.HostRemoved(host="h2")), adopted(msgspec.structs.replace(CLOUD, departments=fewer, users=users))
    )
    assert (await ear.until("hosts"))["removed"] == ["h2"]
    assert (await ear.until("departments"))["removed"] == ["web"]


async def test_a_queue_is_told_when_it_changes_to_those_who_may_see_it(house: House, listen: Any) -> None:
    oscar, alice, wendy = await listen(), await listen("alice"), await listen("wendy")
    for ear in (oscar, alice, wendy):
        await ear.until("picture")
    house.desk.play(job("2"))
    for ear in (oscar, alice):
        queued: list[str] = []
        decided: list[str] = []
        while not (queued and decided):
            event, data = await ear.next()
            queued += [row["unit"] for row in data["queue"].get("hpc", ())] if event == "queue" else []
            decided += [one["job"] for one in data["decisions"]] if event == "decisions" else []
        assert (queued, decided) == (["2"], ["2"])
    house.desk.play(*granted("h9", "web"))
    seen: list[tuple[str, dict[str, Any]]] = [await wendy.next()]
    while seen[-1][0] != "decisions":
        seen.append(await wendy.next())
    assert [one["host"] for one in seen[-1][1]["decisions"]] == ["h9"]  # and not alice's job
    assert {name for event, data in seen if event == "queue" for name in data["queue"]} <= {"web"}
    rows = [row for event, data in seen if event == "departments" for row in data["departments"]]
    assert rows
    assert [row["waiting"] for row in rows if row["department"] == "hpc"] in ([], [{}], [{}, {}])


async def test_nothing_is_told_twice(house: House, listen: Any) -> None:
    house.pause()  # told by hand, so that somebody comes between a fact and its telling
    await (await listen()).until("picture")
    house.desk.play(job("2"))
    two = await listen()
    given = await two.until("picture")
    house.desk.play(job("3"))
    house.stream.tell()
    heard = [d["job"] for d in (await two.until("decisions"))["decisions"]]
    known = [d["job"] for d in given["decisions"] if d["kind"] == "job.submitted"]
    assert (known, heard) == (["1", "2"], ["3"])


async def test_who_comes_back_misses_nothing(house: House, listen: Any) -> None:
    ear = await listen("alice")
    await ear.until("picture")
    behind = house.desk.position
    ear.answer.close()
    house.desk.play(*(job(str(number)) for number in range(2, 300)))
    for again in (
        await listen("alice", **{"Last-Event-ID": str(behind)}),
        await listen("alice", path=f"/v1/stream?after={behind}"),
    ):
        found = await again.until("picture")
        assert [one["job"] for one in found["decisions"]] == [str(number) for number in range(2, 300)]
        assert "missed" not in found
    fresh = await (await listen("alice")).until("picture")
    assert len(fresh["decisions"]) == decisions.SHOWN


@pytest.mark.parametrize(("behind", "missed"), [(3, True), (104, True), (105, False), (205, False), (206, True)])
async def test_who_was_gone_for_too_long_is_told(house: House, listen: Any, behind: int, missed: bool) -> None:
    """The newest 100 are kept: those of the positions 106 to 205."""
    house.stream.picture.decisions = Decisions(house.desk.publisher, most=100)
    house.desk.play(*(job(str(number)) for number in range(2, 207 - house.desk.position)))
    assert house.desk.position == 205
    found = await (await listen(**{"Last-Event-ID": str(behind)})).until("picture")
    assert found.get("missed", False) is missed


async def test_who_was_gone_for_too_long_is_told_also_when_others_listened(house: House, listen: Any) -> None:
    house.stream.picture.decisions = Decisions(house.desk.publisher, most=10)
    await (await listen()).until("picture")
    for number in range(2, 40):
        house.desk.play(job(str(number)))
        house.stream.tell()
    for behind, missed in ((house.desk.position - 10, False), (house.desk.position - 11, True)):
        found = await (await listen(**{"Last-Event-ID": str(behind)})).until("picture")
        assert found.get("missed", False) is missed
        assert len(found["decisions"]) == 10


async def test_after_a_restart_without_memory_what_was_missed_is_said(house: House, listen: Any) -> None:
    house.desk.publisher.ring.clear()  # a monitor that began from a snapshot has no events
    position = house.desk.position
    for behind, missed in ((position, False), (position - 1, True)):
        found = await (await listen(**{"Last-Event-ID": str(behind)})).until("picture")
        assert found.get("missed", False) is missed


async def test_of_what_is_not_in_memory_any_more_is_said_that_it_was_missed(house: House, listen: Any) -> None:
    house.desk.play(job("2"), job("3"))
    house.desk.publisher.ring.popleft()
    first = house.desk.publisher.ring[0].position
    for behind, missed in ((first - 1, False), (first - 2, True)):
        found = await (await listen(**{"Last-Event-ID": str(behind)})).until("picture")
        assert found.get("missed", False) is missed


@pytest.mark.parametrize("given", ["x", "-1", "9" * 30, "1.5"])
async def test_an_id_that_is_none_of_ours_is_no_resume(house: House, listen: Any, given: str) -> None:
    assert "missed" not in await (await listen(**{"Last-Event-ID": given})).until("picture")


async def test_a_point_of_the_timeline_comes_when_its_step_is_over(house: House, listen: Any) -> None:
    ear = await listen()
    await ear.until("picture")
    house.desk.play(*(job(str(number)) for number in range(2, 9)))  # a second each
    point = await ear.until("point")
    assert point["step_s"] == 5
    at = seconds(point["at"])
    assert at is not None
    assert at % 5 == 0
    assert house.desk.position - 5 < at <= house.desk.position
    assert sum(point["owners"].values()) == pytest.approx(1.0)


async def test_a_queue_is_told_if_it_has_changed_and_what_waits_for_its_second_is_not_forgotten(
    house: House, listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.pause()
    await (await listen()).until("picture")
    frames = house.stream.listeners[0].frames
    house.stream.tell()
    house.desk.play(job("2"))
    house.stream.tell()  # within its second
    assert house.stream._is_queue_due
    monkeypatch.setattr(stream, "QUEUE_S", 0.0)
    house.stream.tell()
    assert not house.stream._is_queue_due
    told = b"".join(frames.get_nowait() for _ in range(frames.qsize()))
    assert told.count(b'"queue":{"hpc":[{"job":"2"') == 1
    house.desk.play(("admission", f.HostCordoned(host="h1", reason="x", user="oscar")))
    house.stream.tell()
    assert b"event: queue" not in frames.get_nowait()


# -------------------------------------------------------------------------------------------------------------- its bounds


async def test_what_changes_together_is_told_together(house: House, listen: Any) -> None:
    ear = await listen()
    await ear.until("picture")
    house.desk.play(*(job(str(number)) for number in range(2, 60)))
    assert len((await ear.until("decisions"))["decisions"]) == 58


async def test_all_listeners_of_a_scope_get_the_same_bytes(house: House, listen: Any) -> None:
    for user in ("oscar", "oscar", "alice", "wendy"):
        await (await listen(user)).until("picture")
    house.desk.play(*granted("h2", "hpc"))
    house.stream.tell()
    frames = [listener.frames.get_nowait() for listener in house.stream.listeners]
    assert frames[0] is frames[1]
    assert b"event: decisions" not in frames[3]


async def test_a_listener_that_does_not_read_is_dropped_and_the_others_are_not(house: House, listen: Any) -> None:
    slow, quick = await listen(), await listen()
    await slow.until("picture")
    await quick.until("picture")
    waiting = house.stream.listeners[0]
    for number in range(stream.FRAMES_MAX + 1):
        waiting.give(b"x" * (number + 1))
    assert waiting.gone.is_set()
    assert waiting.frames.qsize() <= stream.FRAMES_MAX
    house.desk.play(job("2"))
    await quick.until("decisions")
    with pytest.raises(ClientPayloadError):
        await slow.end()
    assert len(house.stream.listeners) == 1


async def test_so_many_listen_at_once(house: House, listen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PER_USER_MAX", 1)
    monkeypatch.setattr(stream, "LISTENERS_MAX", 2)
    await (await listen("alice")).until("picture")
    assert await house.get("/v1/stream", **bearer("alice")) == 429
    await (await listen("wendy")).until("picture")
    answer = await house.answer("/v1/stream", **bearer("oscar"))
    assert (answer.status, (await answer.json())["code"]) == (429, "limit")


async def test_who_has_gone_counts_no_more(house: House, listen: Any) -> None:
    ear = await listen()
    await ear.until("picture")
    ear.answer.close()
    async with asyncio.timeout(10):
        while house.stream.listeners:
            house.desk.play(job(str(house.desk.position + 10)))
            await asyncio.sleep(0.01)


async def test_a_stream_ends_with_the_right_to_listen(
    house: House, listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(stream, "ASK_AGAIN_S", 0.01)
    ear = await listen("alice")
    await ear.until("picture")
    house.write_tokens({"t-oscar": "oscar"})
    await ear.end()


async def test_at_the_end_every_stream_is_ended(house: House, listen: Any) -> None:
    ear = await listen()
    await ear.until("picture")
    house.stream.close()
    await ear.end()


async def test_while_nobody_listens_nothing_is_rendered(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[float] = []
    monkeypatch.setattr(house.stream.picture, "refresh", rendered.append)
    house.desk.play(job("2"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert rendered == []


def test_a_row_is_rendered_again_only_if_it_says_something_else() -> None:
    desk = Desk().play(adopted(CLOUD), *granted(), *granted("h2", "hpc"), job(), placed())
    shown = Picture(desk.core, desk.views, desk.publisher)
    shown.refresh(50.0)
    first = dict(shown.hosts)
    desk.play(allocated())
    shown.refresh(51.0)
    assert shown.hosts["h2"] is first["h2"]
    assert shown.hosts["h1"].version > first["h1"].version


def test_another_unit_of_the_same_size_is_another_row() -> None:
    desk = Desk().play(adopted(CLOUD), *granted(), job(), placed())
    shown = Picture(desk.core, desk.views, desk.publisher)
    shown.refresh(50.0)
    assert orjson.loads(shown.hosts["h1"].body)["units"] == ["1"]
    desk.play(job("2"), closed(), placed("2"))
    shown.refresh(51.0)
    assert orjson.loads(shown.hosts["h1"].body)["units"] == ["2"]
