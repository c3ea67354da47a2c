"""A real nats-server with the generated configuration, for all tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.nats_process import NatsProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsProcess]:
    process = NatsProcess(tmp_path_factory.mktemp("nats"))
    try:
        await process.start()
        yield process
    finally:
        await process.stop()
