"""What one department may take of the broker: connections, subscriptions, and time without a key.  Others have theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from services.runtime.broker import credentials
from services.runtime.broker.nats_server import AUTH_TIMEOUT_S
from tests.integration.nats_process import CLOUD, NatsProcess
from tests.support.wire import Wire, pub

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONNECTIONS, SUBSCRIPTIONS = 12, 20
LIMITS = f"[nats]\ndepartment_connections_max = {CONNECTIONS}\nsubscriptions_max = {SUBSCRIPTIONS}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bounded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path_factory.mktemp("nats"), CLOUD + LIMITS)
    try:
        await process.start()
        yield process
    finally:
        await process.stop()


async def wire(broker: NatsProcess, user: str) -> Wire:
    return await Wire.open(broker.config.nats.url, credentials.seed_file(broker.config, user))


async def test_a_department_has_so_many_connections_and_no_other_has_fewer(bounded: NatsProcess) -> None:
    mine = [await wire(bounded, "ann") for _ in range(CONNECTIONS)]
    for user in ("ann", "bob"):
        with pytest.raises(AssertionError, match="maximum account active connections exceeded"):
            await wire(bounded, user)
    for user in ("lb", "root"):
        (await wire(bounded, user)).close()
    await bounded.connect("service-monitor")
    for each in mine:
        assert await each.settled()
        each.close()


async def test_a_connection_has_so_many_subscriptions_and_goes_on(bounded: NatsProcess) -> None:
    mine = await wire(bounded, "ann")
    for number in range(SUBSCRIPTIONS + 100):
        await mine.say(b"SUB _INBOX_hpc.ann.%d %d\r\n" % (number, number))
    assert await mine.settled()
    assert [b"maximum subscriptions exceeded" in line for line in mine.errors] == [True] * 100
    await mine.say(pub(b"phoenix.request.hpc.ann.job.submit"))
    assert await mine.settled()
    service, _ = await bounded.connect("service-monitor")
    for number in range(SUBSCRIPTIONS + 100):
        await service.subscribe(f"phoenix.query.monitor.hpc.{number}")
    await service.flush()
    assert service.is_connected
    mine.close()


@pytest.mark.parametrize(
    "said", [b"", b"PING\r\n", b'CONNECT {"verbose":false}\r\n', b"SUB > 1\r\nPUB phoenix.journal.x 1\r\nx\r\n"]
)
async def test_who_shows_no_key_is_let_go(bounded: NatsProcess, said: bytes) -> None:
    parts = urlsplit(bounded.config.nats.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(said)
    async with asyncio.timeout(AUTH_TIMEOUT_S * 6):
        told = await reader.read()
    assert b"-ERR 'Authentication Timeout'" in told or b"-ERR 'Authorization Violation'" in told
    writer.close()


async def test_a_line_without_end_ends_the_connection(bounded: NatsProcess) -> None:
    mine = await wire(bounded, "ann")
    await mine.say(b"PUB " + b"x" * 5000)
    assert not await mine.settled()
    assert any(b"Maximum Control Line" in line or b"maximum control line" in line for line in mine.errors)
