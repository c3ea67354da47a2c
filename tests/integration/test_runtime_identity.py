"""The shell under the permissions that an installation really has: each service can do all it
needs, and a wrong key is reported."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import nats
import pytest

from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.subjects import OBJECTS, SNAPSHOTS
from services.domain.exits import Exit
from services.runtime.broker import credentials
from services.runtime.broker.nats_server import nats_server_config
from services.runtime.broker.objects import Objects
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Config
from tests.support.nats import NatsServer
from tests.support.shells import World
from tests.support.toy import next_job, toy_config
from tests.support.until import DEADLINE_S

WRITERS = ["admission", "provisioner", "executor", "scheduler.hpc"]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    server = NatsServer(tmp_path)
    config = installation(server, tmp_path)
    server.text = nats_server_config(config)
    server.start()
    admin = await nats.connect(**credentials.service_options(config, "admin"))
    await ensure_streams(admin.jetstream(timeout=30), config)
    world = World(server, admin, config)
    try:
        yield world
    finally:
        await world.end()
        await admin.close()
        server.kill()


def installation(server: NatsServer, directory: Path) -> Config:
    hpc = Department(name="hpc", kind="batch", batch=BatchPolicy())
    plain = toy_config(server.url, directory, snapshot_every=5)
    config = msgspec.structs.replace(
        plain,
        cloud=CloudConfig(name="toy", departments=(hpc,)),
        nats=msgspec.structs.replace(plain.nats, credentials_dir=directory / "keys", store_dir=directory / "store"),
        data=msgspec.structs.replace(plain.data, guest_key_file=directory / "keys" / "guest.key"),
    )
    credentials.ensure(config)
    config.nats.store_dir.mkdir()
    return config


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_service_may_do_all_that_its_shell_needs(here: World, writer: str) -> None:
    """Lead, append, follow, flow control, snapshots with their purge, and the orderly end."""
    running = here.start("i1", writer=writer)
    service = await running.leads()
    if writer == "admission":
        for _ in range(20):
            await service.propose(next_job(service.custody))
        await Objects(service.js, OBJECTS).put("script", b"x" * 1000)
    snapshots = Objects(service.js, SNAPSHOTS)
    for _ in range(2):
        await snapshots.put(writer, b"y" * 300_000)
    assert await running.stop() == Exit.OK
    again = await here.start("i2", writer=writer).leads()
    assert again.snapshot_position > 0


async def test_the_monitor_follows(here: World) -> None:
    leader = await here.start("i1").leads()
    follower = await here.start("m1", writer=None, name="monitor").caught_up()
    outcome = await leader.propose(next_job(leader.custody))
    await follower.wait_for(outcome.position, DEADLINE_S)
    assert follower.custody.dump() == leader.custody.dump()


async def test_a_service_with_another_ones_key_is_told_and_ends(here: World, caplog: pytest.LogCaptureFixture) -> None:
    keys = here.config.nats.credentials_dir
    shutil.copy(keys / "service-executor.nk", keys / "service-admission.nk")
    assert await here.start("i1").code() == Exit.FAILED
    assert "the broker denies admission what it needs" in caplog.text


async def test_a_missing_key_is_named(here: World, caplog: pytest.LogCaptureFixture) -> None:
    (here.config.nats.credentials_dir / "service-admission.nk").unlink()
    assert await here.start("i1").code() == Exit.USAGE
    assert "service-admission.nk: no key" in caplog.text


async def test_a_key_that_the_broker_does_not_know_is_named(here: World, caplog: pytest.LogCaptureFixture) -> None:
    (here.config.nats.credentials_dir / "service-admission.nk").unlink()
    credentials.ensure(here.config)
    assert await here.start("i1").code() == Exit.USAGE
    assert "does not have the key of admission" in caplog.text


async def test_a_key_withdrawn_at_run_time_ends_the_service(here: World, caplog: pytest.LogCaptureFixture) -> None:
    """The broker forgets the user, the client is closed for good: no zombie."""
    running = here.start("i1")
    await running.leads()
    lines = here.server.text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip() == "# service-admission")
    kept = lines[:start] + lines[start + 5 :]
    here.server.text = "\n".join(kept)
    here.server.stop()
    here.server.start()
    assert await running.code() == Exit.FAILED
    assert "was closed permanently" in caplog.text
