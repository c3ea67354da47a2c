"""Checkpoints through the door, on a real broker: whole or not at all, the latest attempt's or none's; nothing piles up."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from phoenix.local.guest.door import Boot
from schemas import facts as f
from schemas import reasons as because
from schemas.subjects import OBJECTS
from services.admission.storage.checkpoints import Checkpoints
from services.runtime.broker.objects import Objects
from tests.support.admission_house import House, house

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("checkpoints")) as found:
        cloud = found.broker.config.cloud
        limits = msgspec.structs.replace(
            cloud.limits, checkpoint_files_max=3, checkpoint_max_bytes=1000, checkpoint_interval_s=0
        )
        await found.furnish_limits(msgspec.structs.replace(cloud, limits=limits))
        yield found


async def running(here: House, host: str = "h1") -> str:
    answer = await here.ask("ann", "job.submit", {"script": "echo hi"})
    job: str = answer["job"]
    await here.place(job, host)
    return job


def named(**files: bytes) -> list[dict[str, str]]:
    return [{"name": name, "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()]


async def saved(here: House, job: str, attempt: int = 1, **files: bytes) -> tuple[int, bytes]:
    guest = here.guest(job, attempt=attempt)
    for name, data in files.items():
        assert (await guest.call("PUT", f"checkpoint/files/{name}", data))[0] == 200
    return await guest.call("POST", "checkpoint", {"files": named(**files)})


async def requeued(here: House, job: str, attempt: int = 1) -> None:
    why = because.Reclaimed()
    fact = f.AttemptClosed(unit=job, attempt=attempt, disposal=f.Disposal.REQUEUE, why=why)
    await here.write("scheduler.hpc", fact)


async def facts_of(here: House, job: str) -> list[f.CheckpointReported]:
    return [x for x in await here.journaled(f.CheckpointReported) if x.unit == job]


async def stored(here: House, job: str) -> dict[str, int]:
    """What the object store holds of a unit, by its index."""
    data = await Objects(here.service.js, OBJECTS).get(f"checkpoint/{job}/index")
    return {} if data is None else msgspec.msgpack.decode(data, type=dict[str, int])


async def until_stored(here: House, job: str, count: int) -> None:
    async with asyncio.timeout(30):
        while len(await stored(here, job)) != count:  # noqa: ASYNC110  (the store sends no event)
            await asyncio.sleep(0.02)


async def test_the_next_attempt_finds_what_was_saved(here: House) -> None:
    job = await running(here)
    status, content = await saved(here, job, a=b"one", b=b"two")
    assert (status, msgspec.json.decode(content)) == (200, {"status": "acknowledged", "files": 2, "bytes": 6})
    (fact,) = await facts_of(here, job)
    assert (fact.attempt, fact.files, fact.size_bytes, fact.payload.startswith(f"checkpoint/{job}/m/")) == (
        1,
        2,
        6,
        True,
    )
    await requeued(here, job)
    await here.place(job, attempt=2)
    guest = here.guest(job, attempt=2)
    boot = await guest.json("GET", "boot")
    assert (boot["checkpoint"]["attempt"], boot["checkpoint"]["percent"]) == (1, None)
    read = msgspec.convert(boot, Boot).checkpoint  # as the guest of the process hypervisor reads it
    assert read is not None
    assert [(x.name, x.size) for x in read.files] == [("a", 3), ("b", 3)]
    assert await guest.call("GET", "checkpoint/files/b") == (200, b"two")
    assert (await guest.call("GET", "checkpoint/files/c"))[0] == 404


async def test_in_the_grace_time_it_counts_and_when_the_next_one_has_begun_it_is_gone(here: House) -> None:
    job = await running(here)
    await requeued(here, job)
    assert (await saved(here, job, a=b"early"))[0] == 200
    await here.place(job, attempt=2)
    assert (await saved(here, job, a=b"late"))[0] == 200
    assert (await here.guest(job).call("GET", "boot"))[0] == 410  # everything else is over
    assert await here.guest(job, attempt=2).began() == 204
    guest = here.guest(job)
    status, content = await guest.call("POST", "checkpoint", {})
    assert (status, msgspec.json.decode(content)["code"]) == (410, "gone")
    assert (await guest.call("PUT", "checkpoint/files/a", b"later"))[0] == 410
    assert len(await facts_of(here, job)) == 2
    assert (await here.guest(job, attempt=2).call("GET", "checkpoint/files/a")) == (200, b"late")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"files": named(c=b"never sent")}, 409),
        ({"files": named(**{"../up": b"one"})}, 422),
        ({"files": named(**{"/etc/passwd": b"one"})}, 422),
        ({"files": named(**{"a//b": b"one"})}, 422),
        ({"files": named(**{"a": b"one", "a/b": b"one"})}, 422),
        ({"files": [*named(a=b"one"), *named(a=b"one")]}, 422),
        ({"files": named(a=b"one", b=b"one", c=b"one", d=b"one")}, 413),
        ({"files": named(a=b"x" * 600, b=b"y" * 600)}, 413),
        ({"files": [{"name": "a", "sha256": "no"}]}, 400),
        ({"percent": 101}, 400),
        ({"progress": "x" * 201}, 400),
        ({"progress": "a\nb"}, 400),
        (b"{", 400),
    ],
)
async def test_what_is_refused_changes_nothing(here: House, said: Any, status: int) -> None:
    job = await running(here)
    guest = here.guest(job)
    assert (await saved(here, job, a=b"one"))[0] == 200
    for data in (b"x" * 600, b"y" * 600):
        await guest.call("PUT", "checkpoint/files/big", data)
    assert (await guest.call("POST", "checkpoint", said))[0] == status
    assert len(await facts_of(here, job)) == 1
    await requeued(here, job)
    await here.place(job, attempt=2)
    assert (await here.guest(job, attempt=2).call("GET", "checkpoint/files/a")) == (200, b"one")


@pytest.mark.parametrize(
    ("name", "size", "status"), [("ok", 1001, 413), ("../up", 3, 422), ("%2e%2e%2fup", 3, 422), ("a%00b", 3, 422)]
)
async def test_a_file_that_may_not_be_is_refused_when_it_is_sent(
    here: House, name: str, size: int, status: int
) -> None:
    job = await running(here)
    assert (await here.guest(job).call("PUT", f"checkpoint/files/{name}", b"x" * size))[0] in (
        status,
        404,
        405,
    )  # or it is another path
    assert await stored(here, job) == {}


async def test_a_foreign_unit_and_who_is_no_job_are_refused(here: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    mine, other = await running(here), await running(here, "h2")
    guest = here.guest(mine)
    token = guest.headers["Authorization"].split()[1]
    guest._base = guest._base.replace(f"/{mine}/", f"/{other}/")
    for method, path in (("PUT", "checkpoint/files/a"), ("POST", "checkpoint"), ("GET", "checkpoint/files/a")):
        assert (await guest.call(method, path, b"{}"))[0] == 401
    await here.place("web.77", "w1", dept="web")
    assert (await here.guest("web.77").call("POST", "checkpoint", {}))[0] == 400
    assert await facts_of(here, other) == []
    assert token not in caplog.text


async def test_only_the_last_one_is_kept_and_nothing_after_the_end(here: House) -> None:
    job = await running(here)
    for number in range(4):
        assert (await saved(here, job, a=b"same", b=b"state %d" % number))[0] == 200
    await until_stored(here, job, 3)  # two files, one manifest
    for number in range(8):  # sent and never named: no more than two checkpoints may hold
        await here.guest(job).call("PUT", "checkpoint/files/x", b"%d" % number * 300)
    assert len(await stored(here, job)) == 3 + 6
    assert (await here.guest(job).call("GET", "checkpoint/files/b")) == (200, b"state 3")
    assert await here.guest(job).report() == 200
    await until_stored(here, job, 0)


async def test_without_files_the_job_vouches_itself_and_repeating_is_harmless(here: House) -> None:
    job = await running(here)
    guest = here.guest(job)
    body = {"id": "step-1", "percent": 25, "progress": "step 1"}
    for _ in range(2):
        assert (await guest.call("POST", "checkpoint", body))[0] == 200
    (fact,) = await facts_of(here, job)
    assert (fact.payload, fact.percent, fact.progress, fact.request) == ("", 25.0, "step 1", "step-1")
    assert (await guest.call("POST", "checkpoint", {"id": "step-2"}))[0] == 200
    assert len(await facts_of(here, job)) == 2


async def test_it_survives_a_restart_of_the_door(here: House) -> None:
    job = await running(here)
    assert (await saved(here, job, a=b"before"))[0] == 200
    assert (await here.guest(job).call("PUT", "checkpoint/files/b", b"sent before"))[0] == 200
    assert await here.running.stop() == 0
    await here.start("a2")
    said = {"files": named(a=b"before", b=b"sent before")}
    assert (await here.guest(job).call("POST", "checkpoint", said))[0] == 200
    await requeued(here, job)
    await here.place(job, attempt=2)
    assert (await here.guest(job, attempt=2).call("GET", "checkpoint/files/b")) == (200, b"sent before")
    assert here.core.check() == []
    fresh = Checkpoints(Objects(here.service.js, OBJECTS))
    known = here.core.checkpoint(job)
    assert known is not None
    assert len((await fresh.manifest(known.payload)).files) == 2


async def test_what_ended_while_the_door_was_shut_leaves_nothing(here: House) -> None:
    ended, sent = await running(here), await running(here, "h2")
    assert (await saved(here, ended, a=b"before"))[0] == 200
    assert (await here.guest(sent).call("PUT", "checkpoint/files/b", b"and never named"))[0] == 200
    assert await here.running.stop() == 0
    fact = f.AttemptClosed(unit=ended, attempt=1, disposal=f.Disposal.TIMEOUT, why=because.Walltime())
    await here.publish("scheduler.hpc", fact)
    await here.start("a3")
    await until_stored(here, ended, 0)
    assert len(await stored(here, sent)) == 1
    assert await here.guest(sent).report() == 200
    await until_stored(here, sent, 0)


async def test_a_closed_departments_jobs_leave_nothing(here: House) -> None:
    job = await running(here)
    assert (await saved(here, job, a=b"mine"))[0] == 200
    cloud = here.broker.config.cloud
    others = tuple(d for d in cloud.departments if d.name != "hpc")
    await here.furnish_limits(msgspec.structs.replace(cloud, departments=others))
    await until_stored(here, job, 0)
