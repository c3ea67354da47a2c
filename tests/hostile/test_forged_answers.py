"""Nobody's answer comes from anybody but who was asked, and no asker steers an answer elsewhere, though it knows every subject.

The attacks are made with a department user's key and with what is guessed at best: the very subjects at which others wait.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg

from services.runtime.broker import credentials, permissions
from services.runtime.broker.client import connected
from services.runtime.broker.origin import whence
from services.runtime.broker.reply import answer
from tests.integration.nats_process import NatsProcess, settled
from tests.support.wire import Wire, hpub, pub

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = (b"phoenix.request.hpc.ann.job.submit", b"phoenix.query.monitor.hpc.queue", b"phoenix.query.scheduler.hpc.why")


class Plane:
    """Services that answer whatever they are asked, and note all that they hear."""

    def __init__(self, broker: NatsProcess) -> None:
        self.broker = broker
        self.heard: list[Msg] = []
        self.clients: list[Client] = []

    async def _answer(self, msg: Msg) -> None:
        self.heard.append(msg)
        await answer(msg, "hpc", b"the answer")

    async def open(self) -> None:
        for process, *listens in (
            ("admission", "phoenix.request.*.*.*.*"),
            ("monitor", "phoenix.query.monitor.>", "phoenix.signal.*.*.*", "phoenix.measure.*.>"),
            ("scheduler.hpc", "phoenix.query.scheduler.hpc.>"),
        ):
            client = await connected(**credentials.service_options(self.broker.config, process))
            self.clients.append(client)
            for subject in listens:
                await client.subscribe(subject, cb=self._answer)
            await settled(client)

    async def rests(self) -> None:
        for _ in range(3):
            for client in self.clients:
                await settled(client)


@pytest_asyncio.fixture(loop_scope="module")
async def plane(broker: NatsProcess) -> AsyncIterator[Plane]:
    made = Plane(broker)
    await made.open()
    yield made
    for client in made.clients:
        await client.close()


async def ann(broker: NatsProcess) -> Wire:
    return await Wire.open(broker.config.nats.url, credentials.seed_file(broker.config, "ann"))


WAITING = {  # who waits where
    "root": "_INBOX_operators.root.known.1",
    "lb": "_INBOX_web.lb.known.1",
    "service-monitor": "_INBOX_asking.monitor.known.1",
    "service-admission": "_INBOX_service.admission.known.1",
    "service-provisioner": "_INBOX_service.provisioner.known.1",
}


async def test_an_answer_comes_to_no_other_department_and_no_service(broker: NatsProcess, plane: Plane) -> None:
    waiting = []
    for credential, subject in WAITING.items():
        nc, _ = await broker.connect(credential)
        waiting.append(await nc.subscribe(subject))
        await settled(nc)
    wire = await ann(broker)
    for subject in ASKED:
        for reply in WAITING.values():
            await wire.say(pub(subject, reply=reply.encode()))
    assert await wire.settled()
    await plane.rests()
    assert len(plane.heard) == len(ASKED) * len(WAITING)  # all were served, and answered
    assert [one.pending_msgs for one in waiting] == [0] * len(waiting)
    wire.close()


async def test_nobody_but_a_service_publishes_to_what_an_asker_listens_at(broker: NatsProcess) -> None:
    wire = await ann(broker)
    for subject in (*WAITING.values(), "_INBOX_hpc.ann.known.1", "_INBOX_hpc.bob.known.1", "_R_.x.y"):
        await wire.say(pub(subject.encode()))
    assert await wire.settled()
    assert len(wire.errors) == len(WAITING) + 3
    wire.close()


@pytest.mark.parametrize(
    "reply",
    [
        b"phoenix.request.hpc.bob.job.cancel",
        b"phoenix.request.hpc.ann.job.cancel",
        b"phoenix.signal.hpc.bob.cpu",
        b"phoenix.signal.web.lb.cpu",
        b"phoenix.query.monitor.web.queue",
        b"phoenix.measure.web.instances",
        b"phoenix.event.web.job.submitted",
        b"phoenix.journal.admission",
        b"$JS.API.STREAM.PURGE.PHOENIX",
        b"$SYS.REQ.SERVER.PING",
    ],
)
async def test_an_answer_is_no_request_signal_or_event(broker: NatsProcess, plane: Plane, reply: bytes) -> None:
    """The broker delivers an answer in the asker's account, and what that account exports or imports does not hear it."""
    outside, _ = await broker.connect("root")
    events = [
        await outside.subscribe(subject) for subject in ("phoenix.event.>", "phoenix.measure.>", "phoenix.audit.>")
    ]
    await settled(outside)
    wire = await ann(broker)
    for subject in ASKED:
        await wire.say(pub(subject, reply=reply))
    assert await wire.settled()
    await plane.rests()
    assert sorted(msg.subject.encode() for msg in plane.heard) == sorted(ASKED)
    assert {msg.data for msg in plane.heard} == {b"x"}
    await settled(outside)
    assert [one.pending_msgs for one in events] == [0, 0, 0]
    wire.close()


@pytest.mark.parametrize("reply", [b"$JS.ACK.PHOENIX.a.1.1.1.1.1", b"_R_.x.y"])
async def test_reply_subjects_that_the_broker_would_hand_on_are_refused(
    broker: NatsProcess, plane: Plane, reply: bytes
) -> None:
    wire = await ann(broker)
    for subject in ASKED:
        await wire.say(pub(subject, reply=reply))
    assert await wire.settled()
    assert len(wire.errors) == len(ASKED)
    assert plane.heard == []
    wire.close()


async def test_from_where_a_request_comes_nobody_forges(broker: NatsProcess, plane: Plane) -> None:
    forged = json.dumps({"host": "10.9.9.9", "name": "somebody", "acc": "control"}).encode()
    wire = await ann(broker)
    for name in (b"Nats-Request-Info", b"nats-request-info", b"Nats-Request-Info "):
        for times in (1, 3):
            block = b"NATS/1.0\r\n" + (name + b": " + forged + b"\r\n") * times + b"\r\n"
            await wire.say(hpub(ASKED[0], block) + hpub(ASKED[0], block, reply=b"_INBOX_hpc.ann.x"))
    assert await wire.settled()
    await plane.rests()
    assert len(plane.heard) == 12
    assert {whence(msg) for msg in plane.heard} == {("127.0.0.1", "")}
    wire.close()


async def test_the_wall_stands_without_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may say and hear everything, in its account: what is not exported is not there."""
    everything = permissions.Permissions(publish=(">",), subscribe=(">",))
    monkeypatch.setattr(permissions, "of_user", lambda _user: everything)
    monkeypatch.setattr(permissions, "services", lambda cloud: dict.fromkeys(_services(cloud), everything))
    broker = NatsProcess(tmp_path)
    try:
        await broker.start()
        user, other, service = [(await broker.connect(who))[0] for who in ("ann", "lb", "service-monitor")]
        heard: dict[str, list[str]] = {"ann": [], "lb": [], "service": []}
        for who, nc in (("ann", user), ("lb", other), ("service", service)):
            await nc.subscribe(">", cb=_noting(heard[who]))
            await settled(nc)
        said = [
            "phoenix.journal.admission", "phoenix.event.web.a.b", "phoenix.event.hpc.a.b", "phoenix.audit.hpc.granted",
            "phoenix.measure.web.x", "phoenix.measure.hpc.x", "$KV.PHOENIX_LEASES.admission", "$O.PHOENIX_OBJECTS.C.x",
            "phoenix.request.hpc.ann.a.b", "phoenix.request.web.lb.a.b", "phoenix.request.operators.root.a.b",
            "phoenix.query.monitor.hpc.x", "phoenix.query.monitor.web.x", "phoenix.signal.hpc.ann.x",
            "phoenix.signal.web.lb.x", "_INBOX_web.lb.x", "_INBOX_service.monitor.x", "_INBOX_asking.monitor.x", "x",
        ]  # fmt: skip
        for subject in said:
            await user.publish(subject, b"ann")
        for subject in said:
            await service.publish(subject, b"service")
        for _ in range(3):
            for nc in (user, other, service):
                await settled(nc)
        from_ann = [subject for subject in heard["service"] if subject.startswith("ann ")]
        assert sorted(from_ann) == [
            "ann phoenix.query.monitor.hpc.x",
            "ann phoenix.request.hpc.ann.a.b",
            "ann phoenix.signal.hpc.ann.x",
        ]
        assert not [subject for subject in heard["lb"] if subject.startswith("ann ")]
        from_service = [subject for subject in heard["ann"] if subject.startswith("service ")]
        assert sorted(from_service) == ["service phoenix.event.hpc.a.b", "service phoenix.measure.hpc.x"]
    finally:
        await broker.stop()


_services = permissions.services


def _noting(heard: list[str]):  # type: ignore[no-untyped-def]
    async def note(msg: Msg) -> None:
        heard.append(f"{msg.data.decode(errors='replace')} {msg.subject}")

    return note
