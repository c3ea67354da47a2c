"""An embedded OpenNebula for tests, in the test's own process and event loop.

async with running_server(hosts=3, steering=True) as server:
    one = pyone.OneServer(server.url, session=server.session)      # blocking: call it in a thread
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from phoenix.local.driver import Driver
from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.steering import Steering
from phoenix.local.opennebula.store import Clock


@asynccontextmanager
async def running_server(
    hosts: int = 4,
    driver: Driver | None = None,
    steering: bool = False,
    *,
    cores: int = 8,
    memory_mb: int = 16384,
    data_dir: Path | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[OpenNebula]:
    """A server on a free port of the loopback.

    `driver` None: a dummy without delays. `settings`, if given, is the base of the others.
    """
    shared = Steering()
    if isinstance(driver, DummyDriver):
        shared = driver.steering
    base = settings or Settings()
    size = base.size._replace(cores=cores, memory_mb=memory_mb)
    wanted = replace(base, hosts=hosts, size=size, steering=steering, data_dir=data_dir)
    server = OpenNebula(wanted, driver or DummyDriver(steering=shared), clock, shared)
    await server.start()
    try:
        yield server
    finally:
        await server.close()
