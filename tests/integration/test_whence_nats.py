"""Where requests come from, on a real broker with the generated permissions: addresses of real connections."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from schemas.audit import AuditRecord
from schemas.subjects import request
from services.runtime.broker import whence
from services.runtime.broker.nats_server import CONFIG_FILE
from services.runtime.broker.whence import Whence
from tests.integration.nats_process import NatsProcess, address, settled
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ASKED = request("hpc", "ann", "job", "submit")


class Door:
    """As admission's and the provisioner's, but for the service behind it."""

    def __init__(self, server: NatsProcess) -> None:
        self.server = server
        self.peers: list[str] = []
        self.whence: Whence

    async def open(self) -> None:
        nc, self.denials = await self.server.connect("service-admission")
        self.whence = Whence(nc)
        await self.whence.open()
        await nc.subscribe("phoenix.request.>", cb=self._serve)
        await settled(nc)

    async def _serve(self, msg: Msg) -> None:
        self.peers.append(await self.whence.ask(msg.reply, "hpc", msg.subject.split(".")[3]))
        if msg.reply.startswith("_INBOX_hpc."):
            await msg.respond(b"ok")

    async def told(self, number: int) -> AuditRecord:
        """The record of the request of that number."""

        async def came() -> bool:
            return len(self.peers) > number

        await until(came, "the request is served")
        await self.whence.settled()
        record = AuditRecord(at=1.0, kind="job.submit", outcome="granted", via="nats", peer=self.peers[number])
        return self.whence.told(record)


@pytest_asyncio.fixture(loop_scope="module")
async def server(tmp_path: Path) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


async def test_each_request_is_told_from_the_address_of_its_connection(
    server: NatsProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whence, "ANSWER_S", 30.0)  # a millisecond, unless the machine is busy
    door = Door(server)
    await door.open()
    first, _ = await server.connect("ann", name="laptop")
    second, _ = await server.connect("ann")
    bob, _ = await server.connect("bob")
    await bob.request(request("hpc", "bob", "job", "submit"), timeout=10)  # and listens from now on
    for number, nc in enumerate((first, second, first), 1):
        await nc.request(ASKED, timeout=10)
        assert (await door.told(number)).peer == address(nc)
    assert (await door.told(1)).client.startswith("laptop (python3 ")
    # Whoever wants to hide, or to name another, names all that they have.
    stolen = await bob.subscribe("_INBOX_hpc.bob.box")
    await settled(bob)
    for number, reply in enumerate(("", "_INBOX_hpc.bob.box", "phoenix.journal.admission"), 4):
        await first.publish(ASKED, b"x", reply=reply)
        told = (await door.told(number)).peer.split(", ")
        assert sorted(told) == sorted((address(first), address(second)))
    assert (await stolen.next_msg(10)).data == b"ok"
    assert door.denials.last_error is None


async def test_with_permissions_of_an_older_version_the_record_has_the_inbox(
    server: NatsProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whence, "ANSWER_S", 0.2)
    file = server.directory / CONFIG_FILE
    assert whence.SUBJECT in file.read_text()
    server.write()
    file.write_text(file.read_text().replace(whence.SUBJECT, "phoenix.none"))
    assert server._process is not None
    log = server.directory / "nats.log"
    server._process.send_signal(signal.SIGHUP)

    async def reloaded() -> bool:
        return b"Reloaded server configuration" in await asyncio.to_thread(log.read_bytes)

    await until(reloaded, "the server has reloaded")
    door = Door(server)
    await door.open()
    ann, _ = await server.connect("ann")
    for number in range(3):
        await ann.request(ASKED, timeout=10)
        assert (await door.told(number)).peer.startswith("_INBOX_hpc.ann.")
    other, _ = await server.connect("ann")
    await other.request(ASKED, timeout=10)
    assert (await door.told(3)).peer.startswith("_INBOX_hpc.ann.")
    denied = await asyncio.to_thread(log.read_text)
    assert denied.count(f'Publish Violation - Subject "{whence.SUBJECT}"') == 1
