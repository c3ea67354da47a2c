"""The client library against a cloud that really runs, also over a network that loses answers and cuts connections."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from phoenix.client import (
    Client,
    Conflict,
    Denied,
    Event,
    Invalid,
    OverLimit,
    PhoenixError,
    SyncClient,
    TimedOut,
    Unknown,
    where,
)
from phoenix.client.address import parse_url
from tests.integration.up_cloud import Cloud, signpost
from tests.support.proxy import Proxy
from tests.support.scripted import scripted, silent
from tests.support.until import until

pytestmark = pytest.mark.timeout(120)
END_S = 60.0
SHORT_S = 0.5


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("client") / "data")
    made.ok("up", "--detach", "--hypervisor", "process", "--hosts", "6")
    yield made
    made.close()


def token_of(cloud: Cloud, user: str) -> Path:
    return where.find(cloud.data).user(user).token_file


@pytest.fixture
async def alice(cloud: Cloud) -> AsyncIterator[Client]:
    async with Client.find(cloud.data, user="alice") as client:
        yield client


@contextlib.asynccontextmanager
async def through_a_proxy(cloud: Cloud) -> AsyncIterator[tuple[Client, Proxy]]:
    port = parse_url(where.find(cloud.data).url).port
    async with (
        Proxy(port) as proxy,
        Client(f"http://127.0.0.1:{proxy.port}", token_file=token_of(cloud, "alice")) as client,
    ):
        yield client, proxy


def waits_for(signpost: Path) -> str:
    return f"#!/bin/sh\necho begun\nuntil [ -e {signpost} ]; do sleep 0.05; done\necho 'and ended'\n"


async def test_submit_wait_and_output(alice: Client) -> None:
    job = await alice.submit(
        script="#!/bin/sh\ncat in; echo wrong >&2; echo kept > kept\n", inputs={"in": b"\x00hello"}, keep=["kept"]
    )
    end = await alice.wait(job, timeout_s=END_S)
    assert (end.state, end.exit_code, end.succeeded, end.unit) == ("completed", 0, True, str(job))
    assert end.submitted_at is not None
    assert end.ended_at is not None
    assert end.submitted_at < end.ended_at
    assert (await alice.read_output(job), await alice.read_output(job, offset=1)) == (b"\x00hello", b"hello")
    assert await alice.read_output(job, stream="stderr") == b"wrong\n"
    assert [(file.name, file.size) for file in await alice.files(job)] == [("kept", 5)]
    assert await alice.read_file(job, "kept") == b"kept\n"


async def test_an_array_and_what_depends_on_it(alice: Client) -> None:
    array = await alice.submit(
        argv=["sh", "-c", 'echo "$PHOENIX_ARRAY_TASK_ID"; exit $((PHOENIX_ARRAY_TASK_ID - 1))'], array="1-2"
    )
    after = await alice.submit(argv=["true"], after=f"afterany:{array}")
    never = await alice.submit(argv=["true"], after=array)
    end = await alice.wait(array, timeout_s=END_S)
    assert (end.state, end.succeeded, end.counts) == ("failed", False, {"completed": 1, "failed": 1})
    assert [(unit.unit, unit.exit_code) for unit in end.units] == [(f"{array}_1", 0), (f"{array}_2", 1)]
    assert [await alice.read_output(unit) for unit in array.elements()] == [b"1\n", b"2\n"]
    assert (await alice.wait(after, timeout_s=END_S)).succeeded
    assert str(array) in " ".join((await alice.why(never)).sentences)
    await alice.cancel(never)
    assert (await alice.wait(never, timeout_s=END_S)).state == "cancelled"
    assert {job.unit async for job in alice.history()} >= {*array.elements(), str(after)}


async def test_output_is_followed_while_it_is_written_over_a_cut_connection(cloud: Cloud) -> None:
    async with through_a_proxy(cloud) as (client, proxy), asyncio.timeout(END_S):
        with signpost() as enough:
            job = await client.submit(script=waits_for(enough))
            output = client.output(job)
            assert await anext(output) == b"begun\n"
            proxy.cut()
            proxy.heal()
            enough.touch()
            assert b"".join([part async for part in output]) == b"and ended\n"


async def test_why_and_the_queue(alice: Client) -> None:
    with signpost() as enough:
        held = await alice.submit(script=waits_for(enough), held=True)
        told = await alice.why(held)
        assert told.reasons[0]["code"] == "held"
        assert (len(told.sentences), len(told.remedies)) == (1, 1)
        assert [job.unit for job in (await alice.queue(state="held")).jobs] == [str(held)]
        await alice.release(held)
        await until(lambda: state_is(alice, str(held), "running"), "it does not run")
        await alice.cancel(held)
        assert (await alice.wait(held, timeout_s=END_S)).state == "cancelled"
        await alice.cancel(held)  # what is so already
    steps = [step.kind for step in (await alice.story(held)).steps]
    assert steps[0] == "job.submitted"
    assert "job.cancelled" in steps


async def state_is(client: Client, job: str, state: str) -> bool:
    return (await client.job(job)).state == state


async def test_errors_have_types(alice: Client, cloud: Cloud) -> None:
    with pytest.raises(Invalid) as wrong:
        await alice.submit(argv=["true"], tasks=0)
    assert (wrong.value.field, wrong.value.status) == ("tasks", 422)
    with pytest.raises(Unknown) as unknown:
        await alice.job("99999")
    assert (unknown.value.field, unknown.value.status) == ("job", 404)
    with pytest.raises(Denied, match="web") as denied:
        await alice.scale("web", 2)
    assert denied.value.status == 403
    with pytest.raises(OverLimit, match="larger than") as large:
        await alice.submit(script="#!/bin/sh\n" + "x" * (20 << 20))
    assert (large.value.status, large.value.retry_after_s) == (413, None)
    ended = await alice.submit(argv=["true"])
    await alice.wait(ended, timeout_s=END_S)
    with pytest.raises(Conflict, match="completed") as late:
        await alice.cancel(ended, "99999")
    assert {name: type(error) for name, error in late.value.others.items()} == {str(ended): Conflict, "99999": Unknown}
    async with Client(alice.url, "x" * 43) as stranger:
        with pytest.raises(Denied) as unauthorised:
            await stranger.hosts()
        assert unauthorised.value.status == 401
    with pytest.raises(Conflict) as taken:
        await alice.submit(argv=["false"], request=ended.request)
    assert taken.value.field == "request"


async def test_a_job_whose_answer_was_lost_exists_once(cloud: Cloud, alice: Client) -> None:
    async with through_a_proxy(cloud) as (client, proxy), asyncio.timeout(END_S):
        await client.hosts()
        proxy.mute()  # what is sent arrives, and no answer comes back
        submitting = asyncio.create_task(client.submit(argv=["true"], name="once"))
        await until(lambda: named(alice, "once"), "the job has not arrived")
        proxy.heal()  # the connection breaks, and the call is made again
        job = await submitting
    await alice.wait(job, timeout_s=END_S)
    assert await named(alice, "once") == [str(job)]


async def named(client: Client, name: str) -> list[str]:
    return [job.unit async for job in client.history(name=name)]


async def test_a_job_whose_outcome_is_unknown_is_the_same_one_later(cloud: Cloud, alice: Client) -> None:
    async with through_a_proxy(cloud) as (client, proxy):
        proxy.mute()
        with pytest.raises(TimedOut) as lost:
            await client.submit(argv=["true"], name="later", timeout_s=SHORT_S)
        assert lost.value.unanswered
        proxy.heal()
        await until(lambda: named(alice, "later"), "the job has not arrived")
        job = await client.submit(argv=["true"], name="later", request=lost.value.request)
    assert await named(alice, "later") == [str(job)]


async def test_events_continue_after_a_cut_and_none_is_missing_or_twice(cloud: Cloud, alice: Client) -> None:
    kinds = {"job.submitted", "unit.placed", "attempt.began", "attempt.reported"}
    async with through_a_proxy(cloud) as (client, proxy), asyncio.timeout(END_S):
        async with contextlib.aclosing(client.events(after=0)) as events:
            before = [await anext(events)]
            last = ""
            for _ in range(3):
                job = await alice.submit(argv=["true"])
                await alice.wait(job, timeout_s=END_S)
                last = f"{job}"
                while not ended(before[-1], last):
                    before.append(await anext(events))
                proxy.cut()
                proxy.heal()
        kept = [event async for event in alice.events(after=0, follow=False)]
    reached = [event.id for event in kept].index(before[-1].id)
    assert [event.id for event in before] == [event.id for event in kept][: reached + 1]
    assert {event.kind for event in before if event.fact.get("job", event.fact.get("unit")) == last} >= kinds
    resumed = [event.id async for event in alice.events(after=before[-2].id, follow=False)]
    assert resumed[0] == before[-1].id


def ended(event: Event, job: str) -> bool:
    return event.kind == "attempt.reported" and event.fact["unit"] == job


async def test_a_server_that_never_answers_ends_in_time() -> None:
    async with scripted(*[silent] * 9) as server, Client(server.url, "x", timeout_s=SHORT_S) as client:
        async with asyncio.timeout(END_S):
            for call in (client.hosts(), client.submit(argv=["true"]), client.wait("1", timeout_s=SHORT_S)):
                with pytest.raises(TimedOut):
                    await call


async def test_a_web_department_and_leases(cloud: Cloud) -> None:
    async with Client.find(cloud.data, user="wendy") as wendy:
        await wendy.scale("web", 2)
        await until(lambda: serving(wendy, 2), "it does not scale")
        await wendy.signal_cpu("web", 0.2, source="test")
        await wendy.signal_requests("web", 1.0, target=100, source="test")
        await wendy.signal_claim("web", 1, source="test")
        await wendy.signal_sessions("web", {"web.1": 0}, source="test")
        await wendy.signal_answers("web", {"web.1": (1, 0)}, source="test")
        made = await wendy.deploy("web", environment={"GREETING": "hello"})
        assert made.release == 1
        await until(lambda: complete(wendy), "the release is not complete")
        await wendy.scale("web", auto=True)
        with pytest.raises(PhoenixError, match="batch"):
            await wendy.create_lease("immediate", 60, department="web")
    async with Client.find(cloud.data) as oscar:
        assert {department.kind for department in await oscar.departments()} == {"batch", "web"}
        await oscar.cordon("host005", reason="a look")
        assert [host.host for host in await oscar.hosts() if host.cordoned] == ["host005"]
        await oscar.uncordon("host005")
        assert (await oscar.usage(by="user"))["by"] == "user"


async def serving(client: Client, number: int) -> bool:
    return (await client.department("web")).instances_serving >= number


async def complete(client: Client) -> bool:
    return [each.state for each in await client.releases("web") if each.release == 1] == ["complete"]


def test_without_an_event_loop_from_several_threads(cloud: Cloud) -> None:
    with SyncClient.find(cloud.data, user="alice") as client:

        def run(number: int) -> bytes:
            job = client.submit(argv=["echo", str(number)])
            assert client.wait(job, timeout_s=END_S).succeeded
            return b"".join(client.output(job))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(4))) == [b"%d\n" % number for number in range(4)]
        first = next(client.events(after=0))
        assert first.position > 0
        with pytest.raises(Unknown):
            client.job("99999")
