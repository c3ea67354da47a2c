"""What the server lets each credential do: the client library's own calls, and what it delivers to whom.

Who may publish and subscribe to what is in `tests/hostile/test_permission_matrix.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import RetentionPolicy, StreamConfig

from schemas import subjects
from services.runtime.broker import credentials
from services.runtime.broker.denials import Denied
from tests.integration.nats_process import NatsProcess, may_publish, settled

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path_factory.mktemp("nats"))
    try:
        await process.start()
        await make_streams(process)
        yield process
    finally:
        await process.stop()


async def make_streams(server: NatsProcess) -> None:
    """What `phoenix up` makes, by the admin user."""
    nc, _ = await server.connect("service-admin")
    js = nc.jetstream()
    for name, subject in (
        (subjects.JOURNAL_STREAM, subjects.JOURNAL_ALL),
        (subjects.EVENTS_STREAM, subjects.EVENTS_ALL),
        (subjects.AUDIT_STREAM, subjects.AUDIT_ALL),
    ):
        await js.add_stream(StreamConfig(name=name, subjects=[subject], retention=RetentionPolicy.LIMITS))
    await js.create_key_value(bucket=subjects.LEASES, ttl=2, history=1)
    await js.create_object_store(subjects.SNAPSHOTS)
    await js.create_object_store(subjects.OBJECTS)


async def test_without_a_known_key_nobody_connects(server: NatsProcess, tmp_path: Path) -> None:
    other = NatsProcess(tmp_path)
    with pytest.raises(nats.errors.Error):
        await nats.connect(server.config.nats.url, allow_reconnect=False, connect_timeout=30)
    credentials.ensure(other.config)
    with pytest.raises(nats.errors.Error):
        await nats.connect(
            server.config.nats.url,
            nkeys_seed=str(credentials.seed_file(other.config, "ann")),
            allow_reconnect=False,
            connect_timeout=30,
        )


async def journal_messages(server: NatsProcess) -> int:
    nc, _ = await server.connect("service-admin")
    info = await nc.jetstream().stream_info(subjects.JOURNAL_STREAM)
    return info.state.last_seq


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {"Nats-Trace-Dest": "phoenix.journal.admission"},
        {"Nats-Trace-Dest": "phoenix.journal.admission", "Nats-Trace-Only": "true"},
    ],
)
async def test_a_department_cannot_have_the_server_write_the_journal(
    server: NatsProcess, headers: dict[str, str] | None
) -> None:
    """The server's reply without a responder ("no responders") and the message trace go to subjects that the sender chose."""
    before = await journal_messages(server)
    nc, denials = await server.connect("ann")
    for subject in (
        "phoenix.request.hpc.ann.job.submit",
        "phoenix.query.monitor.hpc.queue",
        "phoenix.signal.hpc.ann.cpu",
    ):
        await nc.publish(subject, b"x", reply="phoenix.journal.admission", headers=headers)
    await settled(nc)
    assert await journal_messages(server) == before
    assert isinstance(denials.last_error, Denied) == (headers is not None)


async def test_an_answer_to_a_journal_subject_is_refused_by_the_server_too(server: NatsProcess) -> None:
    """PROTOCOL S10: a service gets a reply subject that the server has made, and answers to none that a client chose.  What the
    server delivers for it stays in the asker's account, where no process listens at that subject; its permissions are the
    second wall."""
    before = await journal_messages(server)
    provisioner, denials = await server.connect("service-provisioner")
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def careless(message: Msg) -> None:
        await message.respond(b"answer")
        await asked.put(message.reply)

    await provisioner.subscribe("phoenix.request.*.*.config.apply", cb=careless)
    await settled(provisioner)
    ann, _ = await server.connect("ann")
    await ann.publish("phoenix.request.hpc.ann.config.apply", b"x", reply="phoenix.journal.admission")
    assert (await asyncio.wait_for(asked.get(), 30)).startswith("_R_.")
    await settled(provisioner)
    assert denials.last_error is None
    assert not await may_publish(provisioner, denials, "phoenix.journal.admission")
    assert not subjects.is_reply_allowed("phoenix.journal.admission", "hpc")
    assert await journal_messages(server) == before


@pytest.mark.parametrize(
    "process", ["admission", "provisioner", "executor", "monitor", "scheduler.hpc", "scheduler.web"]
)
async def test_the_client_library_works_with_a_services_permissions_alone(server: NatsProcess, process: str) -> None:
    """Lease, snapshot and ordered consumer with nats-py's own calls, and not one denial on the way."""
    nc, denials = await server.connect(f"service-{process}")
    js = nc.jetstream(timeout=30)
    leases = await js.key_value(subjects.LEASES)
    await leases.purge(process)  # what the matrix left there
    revision = await leases.create(process, b"1")
    revision = await leases.update(process, b"2", last=revision)
    assert (await leases.get(process)).value == b"2"
    await leases.delete(process, last=revision)
    store = await js.object_store(subjects.SNAPSHOTS)
    for content in (b"first" * 100, b"second" * 100_000):  # the second replaces the first and has several chunks
        await store.put(process, content)
        assert (await store.get(process)).data == content
    await store.delete(process)
    await follow_journal(server, nc, js)
    assert denials.last_error is None


async def follow_journal(server: NatsProcess, nc: Client, js: nats.js.JetStreamContext) -> None:
    """Read the stream's end, then everything up to it, then the subject's last message, with an ordered consumer."""
    writer, _ = await server.connect("service-executor")
    ack = await writer.jetstream(timeout=30).publish("phoenix.journal.executor", b"fact")
    subscription = await js.subscribe(
        subjects.JOURNAL_ALL, stream=subjects.JOURNAL_STREAM, ordered_consumer=True, idle_heartbeat=0.5
    )
    while True:
        message = await subscription.next_msg(timeout=30)
        if message.metadata.sequence.stream == ack.seq:
            break
    await subscription.unsubscribe()
    last = await js.get_last_msg(subjects.JOURNAL_STREAM, "phoenix.journal.executor")
    assert last.seq == ack.seq
    assert (await js.stream_info(subjects.JOURNAL_STREAM)).state.last_seq >= ack.seq


async def test_a_large_replay_passes_flow_control(server: NatsProcess) -> None:
    """More than a consumer's window: without leave to answer flow control the replay would stand still."""
    writer, _ = await server.connect("service-executor")
    write = writer.jetstream(timeout=30)
    for _ in range(10):
        await asyncio.gather(*(write.publish("phoenix.journal.executor", b"x" * 50_000) for _ in range(40)))
    nc, denials = await server.connect("service-scheduler.hpc")
    js = nc.jetstream(timeout=30)
    end = (await js.stream_info(subjects.JOURNAL_STREAM)).state.last_seq
    subscription = await js.subscribe(subjects.JOURNAL_ALL, stream=subjects.JOURNAL_STREAM, ordered_consumer=True)
    seen = 0
    while seen < end:
        seen = (await subscription.next_msg(timeout=30)).metadata.sequence.stream
    await subscription.unsubscribe()
    assert denials.last_error is None


async def test_the_monitor_publishes_and_reads_events_and_trims_the_journal(server: NatsProcess) -> None:
    nc, denials = await server.connect("service-monitor")
    js = nc.jetstream(timeout=30)
    ack = await js.publish("phoenix.event.hpc.job.submitted", b"event")
    subscription = await js.subscribe(subjects.EVENTS_ALL, stream=subjects.EVENTS_STREAM, ordered_consumer=True)
    while (await subscription.next_msg(timeout=30)).metadata.sequence.stream != ack.seq:
        pass
    await js.purge_stream(subjects.JOURNAL_STREAM, seq=1)
    assert denials.last_error is None


async def test_admission_keeps_files_in_the_object_store(server: NatsProcess) -> None:
    nc, denials = await server.connect("service-admission")
    store = await nc.jetstream(timeout=30).object_store(subjects.OBJECTS)
    await store.put("job/1/script", b"#!/bin/sh\n")
    assert (await store.get("job/1/script")).data == b"#!/bin/sh\n"
    assert denials.last_error is None


async def test_events_reach_their_department_only(server: NatsProcess) -> None:
    ann, _ = await server.connect("ann")
    lb, _ = await server.connect("lb")
    mine = await ann.subscribe("phoenix.event.hpc.>")
    theirs = await lb.subscribe("phoenix.event.web.>")
    await settled(ann)
    await settled(lb)
    monitor, _ = await server.connect("service-monitor")
    await monitor.publish("phoenix.event.hpc.job.submitted", b"hpc")
    await monitor.publish("phoenix.event.web.host.granted", b"web")
    assert (await mine.next_msg(timeout=30)).data == b"hpc"
    assert (await theirs.next_msg(timeout=30)).data == b"web"
