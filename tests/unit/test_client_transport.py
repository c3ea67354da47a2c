"""The client library against servers that fail in every way: what is repeated, with which id, within which time; and streams
that are continued where they broke off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from phoenix.client import (
    Client,
    Denied,
    Event,
    Gone,
    Invalid,
    OverLimit,
    PhoenixError,
    SyncClient,
    TimedOut,
    Unavailable,
    Unknown,
    Unreadable,
    following,
    retries,
    transport,
)
from schemas import requests as r
from schemas.problems import problem
from schemas.reads import BY_PATH
from schemas.times import received
from tests.support.scripted import Script, Scripted, answer, closes, refuses, scripted, silent, streams

OK = answer(200, {"ok": True, "job": "7"})
DONE = answer(200, {"ok": True})
SHORT_S = 0.3  # of a call to a server that does not answer
LONG_S = 60.0  # of one that must not wait for it

Change = Callable[[Client], Awaitable[object]]
WITH_ID: list[Change] = [
    lambda client: client.submit(argv=["true"]),
    lambda client: client.scale("web", 2),
    lambda client: client.deploy("web"),
    lambda client: client.create_lease("immediate", 60),
    lambda client: client.extend_lease("7", by_s=60),
]
OF_A_STATE: list[Change] = [
    lambda client: client.cancel("7"),
    lambda client: client.hold("7"),
    lambda client: client.release("7"),
    lambda client: client.cancel_lease("7"),
    lambda client: client.cordon("h1"),
    lambda client: client.uncordon("h1"),
    lambda client: client.drain("h1"),
]
ONCE: list[Change] = [
    lambda client: client.drain("h1", deadline_s=60),
    lambda client: client.signal_cpu("web", 0.5),
    lambda client: client.signal_claim("web", 2),
]
GRANTED = answer(200, {"ok": True, "job": "7", "lease": "7", "release": 1, "results": []})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSES_S", (0.01, 0.01, 0.01))
    monkeypatch.setattr(following, "AGAIN_S", 0.01)
    monkeypatch.setattr(following, "PENDING_FIRST_S", 0.01)


@contextlib.asynccontextmanager
async def calling(*script: Script, timeout_s: float = LONG_S) -> AsyncIterator[tuple[Client, Scripted]]:
    async with scripted(*script) as server, Client(server.url, "secret", timeout_s=timeout_s) as client:
        yield client, server


@pytest.mark.parametrize("change", WITH_ID)
@pytest.mark.parametrize("lost", [closes, answer(502, b""), refuses(503, "unavailable"), refuses(429, "limit")])
async def test_a_change_with_an_id_is_repeated_with_the_same_one(change: Change, lost: Script) -> None:
    async with calling(lost, lost, GRANTED) as (client, server):
        await change(client)
    ids = [asked.json["request"] for asked in server.asked]
    assert len(ids) == 3
    assert len(set(ids)) == 1
    assert len(ids[0]) == 24


async def test_two_calls_have_two_ids_and_a_program_may_name_its_own() -> None:
    async with calling(OK, OK, OK) as (client, server):
        made = [await client.submit(argv=["true"]), await client.submit(argv=["true"])]
        own = await client.submit(argv=["true"], request="mine")
    ids = [asked.json["request"] for asked in server.asked]
    assert ids == [made[0].request, made[1].request, "mine"]
    assert own.request == "mine"
    assert len(set(ids)) == 3


@pytest.mark.parametrize("change", OF_A_STATE)
async def test_a_change_that_asks_for_a_state_is_repeated(change: Change) -> None:
    async with calling(closes, GRANTED) as (client, server):
        await change(client)
    assert len(server.asked) == 2
    assert server.asked[0].body == server.asked[1].body


@pytest.mark.parametrize("change", ONCE)
@pytest.mark.parametrize("lost", [closes, answer(502, b""), refuses(503, "unavailable")])
async def test_what_could_happen_twice_is_sent_once(change: Change, lost: Script) -> None:
    async with calling(lost, GRANTED) as (client, server):
        with pytest.raises(Unavailable) as caught:
            await change(client)
    assert len(server.asked) == 1
    assert caught.value.unanswered == (caught.value.status != 503)


@pytest.mark.parametrize("change", ONCE)
async def test_but_what_was_refused_for_now_is_sent_again(change: Change) -> None:
    async with calling(refuses(429, "limit"), GRANTED) as (client, server):
        await change(client)
    assert len(server.asked) == 2


async def test_a_server_that_is_never_there_is_given_up_and_nothing_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with Client(url, timeout_s=LONG_S) as client:
        for call in (client.submit(argv=["true"]), client.signal_cpu("web", 0.5), client.hosts()):
            with pytest.raises(Unavailable, match="does not answer") as caught:
                await call
            assert not caught.value.unanswered


async def test_a_server_that_never_answers_ends_a_read_in_time() -> None:
    async with calling(silent, silent, timeout_s=SHORT_S) as (client, server):
        with pytest.raises(TimedOut, match="has not answered in time") as caught:
            await client.hosts()
    assert not caught.value.unanswered
    assert len(server.asked) == 2


async def test_and_a_change_with_the_way_to_learn_its_outcome() -> None:
    async with calling(silent, silent, OK, timeout_s=SHORT_S) as (client, server):
        with pytest.raises(TimedOut, match="the outcome is unknown") as caught:
            await client.submit(argv=["true"])
        assert caught.value.unanswered
        assert caught.value.request == server.asked[0].json["request"]
        assert f"request={caught.value.request!r}" in caught.value.hint
        found = await client.submit(argv=["true"], request=caught.value.request, timeout_s=LONG_S)
    assert found.job == "7"
    assert len({asked.json["request"] for asked in server.asked}) == 1


async def test_a_lost_packet_does_not_cost_all_of_the_time() -> None:
    async with calling(silent, OK, timeout_s=2 * SHORT_S) as (client, server):
        assert (await client.submit(argv=["true"])).job == "7"
    assert len(server.asked) == 2


async def test_a_call_may_have_a_time_of_its_own() -> None:
    async with calling(silent, silent) as (client, _):
        with pytest.raises(TimedOut):
            await client.hosts(timeout_s=SHORT_S)
        with pytest.raises(TimedOut):
            await client.hosts(timeout_s=0)


@pytest.mark.parametrize(("status", "code"), [(429, "limit"), (503, "unavailable")])
async def test_a_pause_that_is_longer_than_the_time_is_not_made(status: int, code: str) -> None:
    async with calling(refuses(status, code, Retry_After="3600")) as (client, server):
        with pytest.raises((OverLimit, Unavailable)) as caught:
            await client.hosts()
    assert isinstance(caught.value, OverLimit | Unavailable)
    assert caught.value.retry_after_s == 3600.0
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "code"), [(422, "invalid"), (404, "unknown"), (403, "denied"), (409, "conflict"), (413, "limit")]
)
async def test_what_is_refused_is_not_repeated(status: int, code: str) -> None:
    async with calling(refuses(status, code)) as (client, server):
        with pytest.raises(PhoenixError, match=f"it is {code}") as caught:
            await client.submit(argv=["true"])
    assert not caught.value.unanswered
    assert len(server.asked) == 1


async def test_the_token_is_in_no_error_and_in_one_header() -> None:
    async with calling(refuses(401, "denied"), closes, timeout_s=SHORT_S) as (client, server):
        for _ in range(2):
            with pytest.raises(PhoenixError) as caught:
                await client.hosts()
            assert "secret" not in f"{caught.value!r}{caught.value.hint}{vars(caught.value)}"
    assert server.asked[0].headers["authorization"] == "Bearer secret"
    assert "secret" not in server.asked[0].path


async def test_a_token_that_was_replaced_in_its_file_is_used_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    script = (DONE, refuses(401, "denied"), DONE, refuses(401, "denied"))
    async with scripted(*script) as server, Client(server.url, token_file=file) as client:
        await client.cordon("h1")
        file.write_text("new")
        await client.cordon("h1")
        with pytest.raises(Denied):  # it is the same still
            await client.cordon("h1")
    assert [asked.headers["authorization"][7:] for asked in server.asked] == ["old", "old", "new", "new"]


async def test_what_is_no_json_is_an_error_of_its_own() -> None:
    async with calling(answer(200, b"<html>"), answer(200, b"[]"), answer(302, b"", Location="/x")) as (client, server):
        for _ in range(2):
            with pytest.raises(Unreadable):
                await client.hosts()
        with pytest.raises(PhoenixError, match="302"):
            await client.hosts()
    assert len(server.asked) == 3


async def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n{")
        await writer.drain()

    async with calling(half, answer(200, {"hosts": []})) as (client, server):
        assert await client.hosts() == []
    assert len(server.asked) == 2


async def test_names_cannot_leave_their_place_in_the_address() -> None:
    async with calling(answer(200, {}), answer(200, b"x")) as (client, server):
        await client.why("../hosts?x")
        await client.read_file("7", "a/b c?.txt")
    assert [asked.path for asked in server.asked] == ["/v1/why/..%2Fhosts%3Fx", "/v1/jobs/7/files/a%2Fb%20c%3F.txt"]


async def test_only_what_was_given_is_sent_and_files_are_a_list() -> None:
    async with calling(OK, OK) as (client, server):
        array = await client.submit(argv=["true"], inputs={"a": b"\xff"}, department="hpc")
        await client.submit(script="#!/bin/sh\n", after=[array, "8_1"], tasks=2)
    first, second = (asked.json for asked in server.asked)
    assert server.asked[0].path == "/v1/jobs?department=hpc"
    assert first | {"request": ""} == {"argv": ["true"], "inputs": [{"name": "a", "data": "/w=="}], "request": ""}
    assert second | {"request": ""} == {"script": "#!/bin/sh\n", "after": "afterok:7:8_1", "tasks": 2, "request": ""}


async def test_a_thousand_jobs_go_in_one_request_and_every_refusal_is_reported() -> None:
    def results(granted: str, *refused: str) -> Script:
        results = [r.JobResult(job=job, error=problem("unknown", "no such job", "jobs")) for job in refused]
        return answer(200, msgspec.json.encode(r.JobResults(results=(r.JobResult(job=granted), *results))))

    async with calling(results("1000"), results("2000", "1500", "2001")) as (client, server):
        with pytest.raises(PhoenixError, match="no such job") as caught:
            await client.cancel(*map(str, range(1000, 2002)))
    assert [len(asked.json["jobs"]) for asked in server.asked] == [1000, 2]
    assert set(caught.value.others) == {"1500", "2001"}  # type: ignore[attr-defined]


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
QUERIES: list[tuple[str, Callable[[Client], Any]]] = [
    ("/v1/queue", lambda c: c.queue(department="hpc", state="held", user="ann", limit=1)),
    (
        "/v1/jobs",
        lambda c: anext(
            c.history(
                department="hpc", user="ann", state="held", name="*", host="h1", since=NOON, until=0.0, ascending=True
            )
        ),
    ),
    ("/v1/why/{name}", lambda c: c.why("7", kind="job")),
    ("/v1/story/{entity}", lambda c: c.story("7", kind="job", last=5, since=NOON)),
    ("/v1/starts", lambda c: c.starts(department="hpc")),
    ("/v1/events", lambda c: anext(c.events(after=1, department="hpc", follow=False))),
    ("/v1/events", lambda c: anext(c.events(after=1, department="hpc"))),
    ("/v1/events", lambda c: anext(c.events(department="hpc"))),
    ("/v1/usage", lambda c: c.usage(by="user", department="hpc", since=NOON, until=NOON)),
    ("/v1/instances", lambda c: c.instances("web", ended=True)),
    ("/v1/leases", lambda c: c.leases(department="hpc", ended=True)),
]


@pytest.mark.parametrize(("path", "read"), QUERIES)
async def test_reads_ask_with_the_parameters_that_there_are(path: str, read: Callable[[Client], Any]) -> None:
    async with calling(refuses(404, "unknown")) as (client, server):
        with pytest.raises(Unknown):
            await read(client)
    known = {parameter.name: parameter for parameter in BY_PATH[path].query}
    asked = dict(pair.split("=", 1) for pair in server.asked[0].path.partition("?")[2].split("&"))
    assert asked.keys() <= known.keys()
    for name, value in asked.items():
        if known[name].type == "time":
            assert received(unquote(value)) in (NOON.timestamp(), 0.0)
        if known[name].choices:
            assert value in known[name].choices
        if known[name].most is not None:
            assert int(value) <= (known[name].most or 0)


async def test_the_history_is_read_page_by_page() -> None:
    pages = (
        {"jobs": [{"job": "9", "state": "failed"}], "next": "abc"},
        {"jobs": [{"job": "8", "state": "ended"}], "next": None},
    )
    async with calling(*(answer(200, page) for page in pages)) as (client, server):
        found = [job async for job in client.history()]
    assert [(job.job, job.is_final, job.succeeded) for job in found] == [("9", True, False), ("8", True, False)]
    assert ["after=abc" in asked.path for asked in server.asked] == [False, True]


# ------------------------------------------------------------------------------------------------------------------- waiting


def state(name: str, **more: Any) -> Script:
    return answer(200, {"job": "7", "unit": "7", "state": name, **more})


async def test_a_wait_ends_with_the_job_and_survives_a_cloud_that_is_away() -> None:
    lost = [refuses(503, "unavailable")] * 4  # one read's tries
    async with calling(state("running"), *lost, closes, state("failed", exit_code=3)) as (client, server):
        found = await client.wait("7", timeout_s=LONG_S)
    assert (found.state, found.exit_code, found.succeeded) == ("failed", 3, False)
    assert len(server.asked) == 7


async def test_a_wait_is_over_in_time_and_says_how_the_job_is() -> None:
    async with calling(*[state("running")] * 50) as (client, _):
        with pytest.raises(TimedOut, match=r"job 7 is not over after 0.3 s: its state is running"):
            await client.wait("7", timeout_s=SHORT_S)
    async with calling(silent, silent) as (client, _):
        with pytest.raises(TimedOut, match="its state is unknown"):
            await client.wait("7", timeout_s=SHORT_S)


async def test_a_wait_gives_up_on_a_cloud_that_is_gone() -> None:
    async with calling() as (client, _):
        with pytest.raises(Unavailable):
            await client.wait("7", timeout_s=LONG_S, patience_s=0)


async def test_a_wait_for_what_there_is_not_ends_at_once() -> None:
    async with calling(refuses(404, "unknown")) as (client, _):
        with pytest.raises(PhoenixError, match="unknown"):
            await client.wait("7", timeout_s=LONG_S)


# -------------------------------------------------------------------------------------------------------------------- events


def line(id_: str) -> bytes:
    position, index = map(int, id_.split("."))
    event = {
        "v": 1,
        "id": id_,
        "position": position,
        "index": index,
        "at": "1970-01-01T00:00:05.000Z",
        "kind": "job.held",
        "department": "hpc",
    }
    return msgspec.json.encode({**event, "writer": "admission", "fact": {"job": "7"}}) + b"\n"


async def some(events: Any, count: int) -> list[str]:
    async with asyncio.timeout(LONG_S), contextlib.aclosing(events):
        return [(await anext(events)).id for _ in range(count)]


async def test_events_continue_behind_the_last_one_also_within_a_position() -> None:
    cut = line("9.1")[:-20]
    script = (streams(line("8.0"), line("9.0"), cut), closes, streams(line("9.0"), line("9.1"), b"\n", line("12.0")))
    async with calling(*script, streams(line("13.0"))) as (client, server):
        assert await some(client.events(after=7, department="hpc"), 5) == ["8.0", "9.0", "9.1", "12.0", "13.0"]
    asked = [dict(pair.split("=") for pair in each.path.partition("?")[2].split("&")) for each in server.asked]
    assert [each["after"] for each in asked] == ["7", "8", "8", "11"]
    assert asked[0] == {"after": "7", "follow": "1", "department": "hpc", "omit": "load.observed"}


async def test_after_an_empty_line_the_position_is_whole() -> None:
    async with calling(streams(line("8.0"), b"\n"), streams(line("9.0"))) as (client, server):
        assert await some(client.events(after="7.3", omit=()), 2) == ["8.0", "9.0"]
    assert [asked.path for asked in server.asked] == ["/v1/events?after=6&follow=1", "/v1/events?after=8&follow=1"]


async def test_a_stream_without_a_byte_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SILENCE_S", 0.1)
    async with calling(streams(line("8.0"), then=silent), streams(line("9.0"))) as (client, server):
        assert await some(client.events(after=7), 2) == ["8.0", "9.0"]
    assert "after=8&" in server.asked[1].path


async def test_lost_events_are_an_error_of_their_own() -> None:
    gone = answer(410, {"code": "gone", "detail": "not kept", "oldest": 99})
    async with calling(streams(line("8.0")), gone) as (client, _):
        events = client.events(after=7)
        assert (await anext(events)).id == "8.0"
        with pytest.raises(Gone, match="not kept") as caught:
            await anext(events)
    assert caught.value.oldest == 99


async def test_events_from_now_on_begin_behind_the_newest() -> None:
    async with calling(answer(200, line("41.0") + line("41.1")), streams(line("42.0"))) as (client, server):
        assert await some(client.events(), 1) == ["42.0"]
    assert server.asked[0].path == "/v1/events?limit=1&omit=load.observed"
    assert "after=41&" in server.asked[1].path


async def test_pages_end_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAGE", 2)
    first, second = line("8.0") + line("9.0") + line("9.1"), line("10.0")
    async with calling(answer(200, first), answer(200, second)) as (client, server):
        found = [event.id async for event in client.events(after=0, follow=False)]
    assert found == ["8.0", "9.0", "9.1", "10.0"]
    assert ["after=0&limit=2" in server.asked[0].path, "after=9&limit=2" in server.asked[1].path] == [True, True]


async def test_a_cloud_that_stays_away_ends_a_stream() -> None:
    async with calling(streams(line("8.0"))) as (client, _):
        events = client.events(after=7, patience_s=0)
        assert (await anext(events)).id == "8.0"
        with pytest.raises(Unavailable):
            await anext(events)


async def test_a_wrong_place_is_refused_before_anything_is_sent() -> None:
    async with calling() as (client, server):
        with pytest.raises(Invalid, match="after"):
            await anext(client.events(after="x"))
    assert server.asked == []


# -------------------------------------------------------------------------------------------------------------------- output


def part(data: bytes, offset: int, *, attempt: int = 1, began: int = 1, end: bool = False) -> Script:
    place = {"Phoenix_Offset": str(offset), "Phoenix_End": str(end).lower(), "Phoenix_Attempt": str(attempt)}
    return answer(200, data, **place, Phoenix_Began=str(began))


async def written(client: Client, job: str = "7", **more: Any) -> bytes:
    async with asyncio.timeout(LONG_S):
        return b"".join([each async for each in client.output(job, **more)])


async def test_output_is_followed_over_broken_connections_to_the_end_of_the_job() -> None:
    script = (part(b"", 0, attempt=0, began=0), part(b"one ", 4), closes, part(b"two", 7, end=True))
    async with calling(*script, state("completed", attempt=1)) as (client, server):
        assert await written(client) == b"one two"
    assert [("offset=4" in asked.path) for asked in server.asked] == [False, False, True, True, False]
    assert all("stream=stdout" in asked.path and "wait_s=20" in asked.path for asked in server.asked[:4])


async def test_a_job_that_is_queued_again_writes_from_the_beginning() -> None:
    script = (
        part(b"one ", 4),
        part(b"", 4, end=True),
        state("pending", attempt=1),
        part(b"??", 6, attempt=2, began=2),  # at the old offset of the new output: of no use
        part(b"late ", 9, end=True),  # the rest of the first one
        part(b"again", 5, attempt=2, began=2, end=True),
        state("completed", attempt=2),
    )
    async with calling(*script) as (client, server):
        assert await written(client) == b"one late again"
    paths = [asked.path for asked in server.asked]
    assert ["attempt=1" in paths[4], "offset=4" in paths[4], "offset" in paths[5]] == [True, True, False]


async def test_a_job_that_was_suspended_continues_its_output() -> None:
    script = (part(b"one ", 4), part(b"two", 7, attempt=2, began=1, end=True), state("completed", attempt=2))
    async with calling(*script) as (client, _):
        assert await written(client) == b"one two"


async def test_an_attempt_that_came_in_between_is_read_too() -> None:
    script = (part(b"one", 3, end=True), state("completed", attempt=2), part(b"", 3, attempt=2, began=2))
    rest = (part(b"", 3, end=True), part(b"two", 3, attempt=2, began=2, end=True), state("completed", attempt=2))
    async with calling(*script, *rest) as (client, _):
        assert await written(client) == b"onetwo"


@pytest.mark.parametrize(
    ("name", "more", "path"), [("7", {"attempt": 1}, "/v1/jobs/7/"), ("web.3", {}, "/v1/instances/web.3/")]
)
async def test_one_attempt_and_an_instance_end_with_themselves(name: str, more: Any, path: str) -> None:
    async with calling(part(b"one", 3, end=True)) as (client, server):
        assert await written(client, name, stream="stderr", **more) == b"one"
    assert server.asked[0].path.startswith(path)
    assert "stream=stderr" in server.asked[0].path


# ------------------------------------------------------------------------------------------------- without an event loop


async def test_threads_call_at_the_same_time_and_a_stream_is_an_iterator() -> None:
    hosts = answer(200, {"hosts": [{"host": "h1", "state": "free"}]})
    async with scripted(*[hosts] * 8, streams(line("8.0"), then=silent)) as server:

        def use() -> list[Event]:
            with SyncClient(server.url, "secret") as client:
                import concurrent.futures

                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    found = list(pool.map(lambda _: client.hosts()[0].host, range(8)))
                assert found == ["h1"] * 8
                events = client.events(after=7)
                first = next(events)
                events.close()
                return [first]

        assert [event.id for event in await asyncio.to_thread(use)] == ["8.0"]
    assert len(server.asked) == 9


async def test_closing_ends_the_calls_that_wait_and_those_that_come() -> None:
    arrived = asyncio.Event()

    async def arrives(writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await silent(writer)

    async with scripted(arrives) as server:
        client = SyncClient(server.url, "secret")
        waiting = asyncio.create_task(asyncio.to_thread(client.hosts))
        await arrived.wait()
        await asyncio.to_thread(client.close)
        with pytest.raises(RuntimeError, match="closed during this call"):
            await waiting
        with pytest.raises(RuntimeError, match="is closed"):
            client.hosts()
        client.close()


def test_a_call_from_its_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    async def call(client: SyncClient) -> str:
        try:
            client.hosts()
        except RuntimeError as error:
            return str(error)
        return ""

    with SyncClient("http://127.0.0.1:1") as client:
        assert "its own thread" not in client.url
        assert "wait for itself" in client.run(call(client))
