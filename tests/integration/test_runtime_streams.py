"""Streams, buckets and objects on a real broker: created once, verified always, read back whole."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator

import msgspec
import nats
import pytest
from nats.errors import NoRespondersError
from nats.js.errors import APIError

from schemas import subjects
from services.domain.exits import Exit, Stop
from services.runtime.broker.objects import CHUNK_BYTES, Damaged, Objects
from services.runtime.broker.reply import answer
from services.runtime.broker.streams import ensure_streams, stream_configs, verify_streams
from tests.support.nats import NatsServer, running_server
from tests.support.shells import World, world


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with world(server) as made:
        yield made


# --------------------------------------------------------------------------------------------------------------- streams


async def test_a_second_time_changes_nothing(here: World) -> None:
    assert await ensure_streams(here.js, here.config) == []


async def test_the_journal_loses_nothing_and_is_not_read_from_followers(here: World) -> None:
    config = (await here.js.stream_info(subjects.JOURNAL_STREAM)).config
    assert (config.discard, config.max_msgs, config.max_age, config.deny_delete) == ("new", -1, 0, True)
    assert not config.allow_direct
    assert (config.max_bytes or 0) > 0
    position = await here.write(writer="executor")
    with pytest.raises(APIError):
        await here.js.delete_msg(subjects.JOURNAL_STREAM, position)
    with pytest.raises((NoRespondersError, APIError)):
        await here.js.get_msg(subjects.JOURNAL_STREAM, position, direct=True)


async def test_all_streams_together_fit_into_the_store(here: World) -> None:
    total = sum(config.max_bytes or 0 for config in stream_configs(here.config))
    assert total < here.config.nats.file_max_mb << 20


async def test_a_missing_stream_is_named(here: World) -> None:
    await here.js.delete_stream(subjects.EVENTS_STREAM)
    with pytest.raises(Stop, match="stream EVENTS does not exist"):
        await verify_streams(here.js, here.config)


async def test_drift_is_named_with_field_and_value_and_stops_a_service(here: World) -> None:
    config = (await here.js.stream_info(subjects.JOURNAL_STREAM)).config
    config.max_age = 3600
    await here.js.update_stream(config)
    with pytest.raises(Stop, match=r"stream PHOENIX: max_age is 3600\.0 and must be 0"):
        await ensure_streams(here.js, here.config)
    assert await here.start().code() == Exit.FAILED


async def test_sizes_and_the_lease_ttl_follow_the_configuration(here: World) -> None:
    larger = msgspec.structs.replace(
        here.config,
        nats=msgspec.structs.replace(here.config.nats, file_max_mb=512),
        runtime=msgspec.structs.replace(here.config.runtime, lease_ttl_s=3.0),
    )
    assert subjects.JOURNAL_STREAM in await ensure_streams(here.js, larger)
    leases = (await here.js.stream_info(f"KV_{subjects.LEASES}")).config
    assert leases.max_age == 3.0


async def test_leases_are_a_bucket_that_the_usual_tools_read(here: World) -> None:
    await here.start("a1").leads()
    bucket = await here.js.key_value(subjects.LEASES)
    entry = await bucket.get("admission")
    assert b"a1" in (entry.value or b"")


# --------------------------------------------------------------------------------------------------------------- objects

SIZES = [0, 1, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 17]


@pytest.mark.parametrize("size", SIZES)
async def test_an_object_is_read_back_and_the_library_reads_it_too(here: World, size: int) -> None:
    objects = Objects(here.js, subjects.OBJECTS)
    data = hashlib.shake_256(b"x").digest(size)
    await objects.put("jobs/17 ü", data)
    assert await objects.get("jobs/17 ü") == data
    theirs = await (await here.js.object_store(subjects.OBJECTS)).get("jobs/17 ü")
    assert (theirs.data or b"") == data


async def test_what_the_library_wrote_is_read(here: World) -> None:
    data = hashlib.shake_256(b"y").digest(300_000)
    await (await here.js.object_store(subjects.OBJECTS)).put("theirs", data)
    assert await Objects(here.js, subjects.OBJECTS).get("theirs") == data


async def test_replaced_objects_leave_no_chunks_and_deleted_ones_nothing(here: World) -> None:
    objects = Objects(here.js, subjects.OBJECTS)
    for fill in (b"a", b"b", b"c"):
        await objects.put("name", fill * 600_000)
    assert (await here.js.stream_info(f"OBJ_{subjects.OBJECTS}")).state.messages == 3 + 1
    assert await objects.exists("name")
    assert await objects.delete("name")
    assert not await objects.delete("name")
    assert not await objects.exists("name")
    assert await objects.get("name") is None
    assert (await here.js.stream_info(f"OBJ_{subjects.OBJECTS}")).state.messages == 0
    await objects.put("name", b"again")
    assert await objects.get("name") == b"again"


async def test_an_unknown_object_is_none(here: World) -> None:
    assert await Objects(here.js, subjects.OBJECTS).get("never") is None


async def test_a_damaged_object_is_never_returned(here: World) -> None:
    objects = Objects(here.js, subjects.OBJECTS)
    await objects.put("name", b"content")
    info, _ = await objects._info("name")  # type: ignore[misc]
    assert info is not None
    await here.js.publish(
        f"$O.{subjects.OBJECTS}.M.bmFtZQ==", msgspec.json.encode(info), headers={"Nats-Rollup": "sub"}
    )
    assert await objects.get("name") == b"content"
    chunk = f"$O.{subjects.OBJECTS}.C.{info.nuid}"
    await here.js.purge_stream(f"OBJ_{subjects.OBJECTS}", subject=chunk)
    with pytest.raises(Damaged, match="'name'"):
        await objects.get("name")
    await here.js.publish(chunk, b"CONTENT")  # as long as the right one
    with pytest.raises(Damaged, match="'name'"):
        await objects.get("name")


# --------------------------------------------------------------------------------------------------------------- answers


async def test_an_answer_goes_to_the_askers_inbox_and_nowhere_else(here: World) -> None:
    async def door(msg) -> None:
        await answer(msg, "hpc", b"yes", {"Status-Of-Job": "pending"})

    await here.admin.subscribe("phoenix.request.hpc.>", cb=door)
    asker = await nats.connect(here.server.url, inbox_prefix="_INBOX_hpc.ann")
    reply = await asker.request("phoenix.request.hpc.ann.job.submit", b"", timeout=30)
    assert (reply.data, reply.headers) == (b"yes", {"Status-Of-Job": "pending"})
    for forged in ("phoenix.journal.provisioner", "_INBOX_web.eve.x", "_INBOX_hpcx.y", "$JS.API.STREAM.DELETE.PHOENIX"):
        await asker.publish("phoenix.request.hpc.ann.job.submit", b"", reply=forged)
    await asker.request(
        "phoenix.request.hpc.ann.job.submit", b"", timeout=5
    )  # the forged ones are served before this one
    assert (await here.js.stream_info(subjects.JOURNAL_STREAM)).state.messages == 0
    await asker.close()


async def test_a_request_without_reply_subject_is_not_answered(here: World) -> None:
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def door(msg) -> None:
        done.set_result(await answer(msg, "hpc", b"yes"))

    await here.admin.subscribe("phoenix.request.hpc.>", cb=door)
    await here.admin.publish("phoenix.request.hpc.ann.job.submit", b"")
    async with asyncio.timeout(30):
        assert await done is False
