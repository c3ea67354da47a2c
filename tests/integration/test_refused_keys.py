"""Connections that a real nats-server refuses, as the audit tells them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import nats.errors
import nkeys
import pytest
import pytest_asyncio

from schemas.audit import AuditRecord
from services.monitor.http import denied_connections
from services.monitor.http.denied_connections import RefusedKeys
from services.runtime.broker import credentials, permissions
from services.runtime.broker.denials import Denied
from services.runtime.log import get_log
from tests.integration.nats_process import NatsProcess, may_publish, settled
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Watched:
    """A broker, and what the monitor writes about whom it refuses."""

    def __init__(self, server: NatsProcess) -> None:
        self.server = server
        self.records: list[AuditRecord] = []
        self.task = asyncio.create_task(RefusedKeys(server.config, self.records.append, get_log(), lambda: 5.0).run())

    async def told(self, name: str) -> AuditRecord:
        """The record of the client of that name."""
        assert not self.task.done()
        found = await until(
            lambda: [one for one in self.records if one.client.split(" ")[0] == name], f"told of {name}"
        )
        first: AuditRecord = found[0]
        return first

    async def tried(self, **connect: str) -> None:
        """A connection that says so, and is refused."""
        host, _, port = self.server.config.nats.url.removeprefix("nats://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        assert b"Authorization Violation" in await asyncio.wait_for(reader.readline(), 15)
        writer.close()

    async def listens(self, name: str) -> None:
        """Clients refused from now on are noticed."""

        async def heard() -> bool:
            await self.tried(name=name)
            return any(record.client == name for record in self.records)

        await until(heard, "a refused connection is heard of")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denied_connections, "AGAIN_S", 0.05)
        patch.setattr(denied_connections, "REFUSED_AGAIN_S", 0.05)  # it may be met by a reload
        patch.setattr(denied_connections, "TOLD_BURST", 1000.0)
        server = NatsProcess(tmp_path_factory.mktemp("nats"))
        await server.start()
        found = Watched(server)
        try:
            await found.listens("first")
            yield found
        finally:
            found.task.cancel()
            await asyncio.gather(found.task, return_exceptions=True)
            await server.stop()


def seed(path: Path) -> str:
    """A key that the server does not know; returns its public half."""
    made = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    path.write_bytes(made)
    return nkeys.from_seed(bytearray(made)).public_key.decode()


async def test_a_key_that_the_broker_does_not_know_is_told_with_its_address(watched: Watched, tmp_path: Path) -> None:
    key = seed(tmp_path / "eve.nk")
    with pytest.raises(nats.errors.Error):
        await nats.connect(
            watched.server.config.nats.url, nkeys_seed=str(tmp_path / "eve.nk"), name="eve", allow_reconnect=False
        )
    told = await watched.told("eve")
    assert (told.kind, told.outcome, told.code, told.via, told.at) == (
        "broker.connect",
        "refused",
        "denied",
        "nats",
        5.0,
    )
    assert (told.user, told.department, told.names, told.peer) == ("", "", (key,), "127.0.0.1")
    assert told.client.startswith("eve (python3 ")
    assert told.message == "the broker does not know this key, or its signature is wrong (Authentication Failure)"


@pytest.mark.parametrize(
    "shown",
    [{"user": "hunter2", "pass": "hunter2"}, {"auth_token": "hunter2"}, {"nkey": "UHUNTER2", "sig": "x"}],
    ids=["password", "token", "no key"],
)
async def test_what_else_was_shown_is_not_written_down(watched: Watched, shown: dict[str, str]) -> None:
    name = "-".join(shown)
    await watched.tried(name=name, **shown)
    told = await watched.told(name)
    assert told.message == "no key that the broker knows was presented (Authentication Failure)"
    assert "hunter2" not in str(told).lower()


async def test_its_key_hears_that_and_may_do_nothing_else(watched: Watched) -> None:
    nc, denials = await watched.server.connect(permissions.WATCH)
    assert not await may_publish(nc, denials, "phoenix.journal.admission")
    assert not await may_publish(nc, denials, "$SYS.REQ.SERVER.PING")
    for subject in ("$SYS.>", "phoenix.>", "$SYS.ACCOUNT.*.CONNECT"):
        denials.last_error = None
        await nc.subscribe(subject)
        await settled(nc)
        assert isinstance(denials.last_error, Denied), subject


async def test_after_its_connection_has_ended_and_with_another_key_it_listens_again(watched: Watched) -> None:
    config = watched.server.config
    path = credentials.seed_file(config, permissions.WATCH)
    old = path.rename(path.with_suffix(".old"))
    await watched.server.reload(config)  # makes another key, and drops who has the old one

    async def dropped() -> bool:
        try:
            nc = await nats.connect(config.nats.url, nkeys_seed=str(old), name="old", allow_reconnect=False)
        except nats.errors.Error:
            return True
        await nc.close()
        return False

    await until(dropped, "the old key is refused")
    await watched.listens("second")


async def test_an_installation_without_the_key_is_left_alone(tmp_path: Path) -> None:
    server = NatsProcess(tmp_path)
    credentials.ensure(server.config)
    credentials.seed_file(server.config, permissions.WATCH).unlink()
    await RefusedKeys(server.config, lambda _record: None, get_log()).run()
