"""What the server lets each credential do: a matrix of allowed and denied, and the client library's own calls.

A denied publish is shown by the server's "permissions violation" for exactly that subject, an allowed one by its absence: after
the publish a ping is exchanged, and the server answers in order, so there is nothing to wait for.
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
from services.runtime.broker.denials import Denials, Denied
from services.runtime.config.file import processes
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


async def may_subscribe(nc: Client, denials: Denials, subject: str) -> bool:
    denials.last_error = None
    subscription = await nc.subscribe(subject)
    await settled(nc)
    allowed = denials.last_error is None
    if allowed:
        await subscription.unsubscribe()
    return allowed


PUBLISH_ALLOWED = {
    "ann": [
        "phoenix.request.hpc.ann.job.submit",
        "phoenix.signal.hpc.ann.cpu",
        "phoenix.query.monitor.hpc.queue",
        "phoenix.query.scheduler.hpc.why",
    ],
    "lb": ["phoenix.signal.web.lb.cpu", "phoenix.request.web.lb.instance.list"],
    "root": [
        "phoenix.request.operators.root.host.drain",
        "phoenix.request.hpc.root.job.cancel",
        "phoenix.query.monitor.web.queue",
        "phoenix.query.provisioner.operators.state",
    ],
    "service-admission": [
        "phoenix.journal.admission",
        "_R_.x.y",  # what the broker makes of an asker's reply subject
        "phoenix.audit.hpc.refused",
        "phoenix.signal.web.lb.cpu",
        "phoenix.measure.web.instances",
        "$KV.PHOENIX_LEASES.admission",
        "$O.PHOENIX_OBJECTS.C.x",
        "$O.PHOENIX_SNAPSHOTS.C.x",
    ],
    "service-provisioner": [
        "phoenix.journal.provisioner",
        "phoenix.audit.operators.refused",
        "_R_.x.y",
        "$KV.PHOENIX_LEASES.provisioner",
    ],
    "service-executor": [
        "phoenix.journal.executor",
        "$KV.PHOENIX_LEASES.executor",
        "$JS.API.STREAM.INFO.OBJ_PHOENIX_OBJECTS",
    ],
    "service-scheduler.hpc": [
        "phoenix.journal.scheduler.hpc",
        "_R_.x.y",
        "_INBOX_asking.monitor.x.1",
        "$KV.PHOENIX_LEASES.scheduler.hpc",
    ],
    "service-scheduler.web": ["phoenix.audit.web.granted", "phoenix.audit.operators.refused"],  # of claims
    "service-monitor": [
        "phoenix.event.hpc.job.submitted",
        "_R_.x.y",
        "$JS.API.STREAM.INFO.EVENTS",
        "phoenix.query.scheduler.hpc.why",
        "phoenix.query.scheduler.web.troubles",
        "phoenix.audit.hpc.granted",  # who logs in at the page
    ],
    "service-admin": ["phoenix.audit.operators.granted"],
}

PUBLISH_DENIED = {
    "ann": [
        "phoenix.request.hpc.bob.job.submit",  # another's name
        "phoenix.request.web.ann.job.submit",  # another department
        "phoenix.request.web.lb.scale.set",
        "phoenix.request.operators.ann.host.drain",
        "phoenix.signal.web.ann.cpu",
        "phoenix.signal.hpc.bob.claim",  # in another's name
        "phoenix.measure.hpc.instances",  # it is the door's word
        "phoenix.query.monitor.web.queue",
        "phoenix.journal.admission",
        "phoenix.journal.scheduler.hpc",
        "phoenix.event.hpc.job.submitted",
        "phoenix.audit.hpc.refused",
        "_INBOX_hpc.bob.x.y",
        "_INBOX_service.admission.x.y",
        "_INBOX.x",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.PHOENIX",
        "$JS.API.STREAM.MSG.GET.PHOENIX",
        "$JS.API.DIRECT.GET.PHOENIX",
        "$JS.API.CONSUMER.CREATE.EVENTS",
        "$KV.PHOENIX_LEASES.admission",
        "$O.PHOENIX_OBJECTS.C.x",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
    ],
    "root": [
        "phoenix.request.hpc.ann.job.submit",  # an operator speaks in its own name
        "phoenix.journal.provisioner",
        "phoenix.event.hpc.job.submitted",
        "phoenix.signal.web.lb.cpu",
        "$JS.API.STREAM.INFO.PHOENIX",
        "_INBOX_hpc.ann.x.y",
    ],
    "service-admission": [
        "phoenix.journal.provisioner",
        "phoenix.journal.scheduler.hpc",
        "phoenix.event.hpc.job.submitted",
        "$KV.PHOENIX_LEASES.provisioner",
        "_INBOX_service.provisioner.x.y",
        "_INBOX_hpc.ann.x.y",
        "_INBOX_asking.monitor.x.1",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$JS.API.STREAM.PURGE.PHOENIX",
        "$JS.API.STREAM.DELETE.PHOENIX",
        "$JS.API.STREAM.UPDATE.PHOENIX",
        "$JS.API.STREAM.MSG.DELETE.PHOENIX",
        "$JS.API.STREAM.PURGE.KV_PHOENIX_LEASES",
        "$SYS.REQ.SERVER.PING.CONNZ",
    ],
    "service-provisioner": ["phoenix.journal.executor", "phoenix.audit.hpc.refused", "$O.PHOENIX_OBJECTS.C.x"],
    "service-executor": ["phoenix.journal.provisioner", "phoenix.signal.web.lb.cpu", "$O.PHOENIX_OBJECTS.M.x"],
    "service-scheduler.hpc": [
        "phoenix.audit.hpc.granted",
        "phoenix.journal.scheduler.web",
        "phoenix.journal.scheduler",
        "phoenix.journal.scheduler.hpc.x",
        "_INBOX_web.lb.x.y",
        "$KV.PHOENIX_LEASES.scheduler.web",
        "$JS.API.STREAM.PURGE.PHOENIX",
        "$JS.API.CONSUMER.CREATE.OBJ_PHOENIX_OBJECTS",
    ],
    "service-monitor": [
        "phoenix.journal.admission",
        "phoenix.journal.monitor",
        "$JS.API.STREAM.DELETE.PHOENIX",
    ],
    "service-admin": ["phoenix.journal.admission", "phoenix.request.hpc.ann.job.submit", "phoenix.audit.hpc.granted"],
}

SUBSCRIBE_ALLOWED = {
    "ann": ["_INBOX_hpc.ann.x.*", "phoenix.event.hpc.>", "phoenix.event.hpc.job.submitted"],
    "lb": ["phoenix.event.web.>", "phoenix.measure.web.instances"],
    "root": ["_INBOX_operators.root.>", "phoenix.event.>", "phoenix.audit.>", "phoenix.measure.*.instances"],
    "service-admission": ["phoenix.request.>", "_INBOX_service.admission.>"],
    "service-provisioner": ["phoenix.request.*.*.config.apply", "phoenix.request.operators.*.config.apply"],
    "service-scheduler.web": ["phoenix.signal.web.*.cpu", "phoenix.query.scheduler.web.>"],
    "service-monitor": [
        "phoenix.query.monitor.>",
        "phoenix.query.monitor.*.*",
        "phoenix.signal.*.*.sessions",
        "phoenix.measure.*.instances",
        "_INBOX_asking.monitor.x.1",
    ],
}

SUBSCRIBE_DENIED = {
    "ann": [
        ">",
        "phoenix.>",
        "phoenix.event.>",
        "phoenix.event.web.>",
        "phoenix.event.*.job.submitted",
        "phoenix.journal.>",
        "phoenix.request.hpc.>",
        "phoenix.request.hpc.ann.>",  # to take away the door's requests, or to answer them
        "phoenix.audit.hpc.refused",
        "phoenix.signal.hpc.ann.cpu",
        "phoenix.measure.web.instances",
        "phoenix.measure.*.instances",
        "_INBOX_hpc.bob.>",
        "_INBOX_hpc.>",
        "_INBOX_hpc.*.>",
        "_INBOX_service.admission.>",
        "_INBOX.>",
        "$JS.EVENT.>",
        "$KV.PHOENIX_LEASES.>",
        "$O.PHOENIX_OBJECTS.>",
    ],
    "root": ["phoenix.journal.>", "phoenix.request.>", "_INBOX_hpc.ann.>", "$JS.EVENT.>"],
    "service-admission": ["_INBOX_hpc.ann.>", "_INBOX_service.>", "phoenix.journal.admission"],
    "service-provisioner": ["phoenix.request.>", "phoenix.request.*.*.job.submit"],
    "service-executor": ["phoenix.request.>", "phoenix.signal.>"],
    "service-scheduler.hpc": ["phoenix.signal.web.>", "phoenix.query.scheduler.web.>", "phoenix.request.hpc.>"],
    "service-monitor": ["phoenix.request.>", "_INBOX_service.admission.>", "_INBOX_operators.root.>"],
}


@pytest.mark.parametrize("credential", sorted(PUBLISH_ALLOWED))
async def test_publishing_what_is_needed_is_allowed(server: NatsProcess, credential: str) -> None:
    nc, denials = await server.connect(credential)
    denied = [s for s in PUBLISH_ALLOWED[credential] if not await may_publish(nc, denials, s)]
    assert denied == []


@pytest.mark.parametrize("credential", sorted(PUBLISH_DENIED))
async def test_publishing_anything_else_is_denied(server: NatsProcess, credential: str) -> None:
    nc, denials = await server.connect(credential)
    allowed = [s for s in PUBLISH_DENIED[credential] if await may_publish(nc, denials, s)]
    assert allowed == []


@pytest.mark.parametrize("credential", sorted(SUBSCRIBE_ALLOWED))
async def test_subscribing_to_what_is_needed_is_allowed(server: NatsProcess, credential: str) -> None:
    nc, denials = await server.connect(credential)
    denied = [s for s in SUBSCRIBE_ALLOWED[credential] if not await may_subscribe(nc, denials, s)]
    assert denied == []


@pytest.mark.parametrize("credential", sorted(SUBSCRIBE_DENIED))
async def test_subscribing_to_anything_else_is_denied(server: NatsProcess, credential: str) -> None:
    nc, denials = await server.connect(credential)
    allowed = [s for s in SUBSCRIBE_DENIED[credential] if await may_subscribe(nc, denials, s)]
    assert allowed == []


async def test_no_service_writes_the_journal_of_another(server: NatsProcess) -> None:
    journals = [subjects.journal(p) for p in processes(server.config.cloud) if p != "monitor"]
    for process in processes(server.config.cloud):
        nc, denials = await server.connect(f"service-{process}")
        allowed = [s for s in journals if await may_publish(nc, denials, s)]
        assert allowed == ([] if process == "monitor" else [subjects.journal(process)])


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
    """The reply to nobody ("no responders") and the message trace go to subjects that the sender chose."""
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
    """PROTOCOL S10: a service hears a reply subject that the server has made, and answers nobody's choice.  What the server
    delivers for it stays in the asker's account, where nobody listens at that subject; its permissions are the second wall."""
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
