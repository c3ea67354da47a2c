"""A broker for all tests of a file, and a world on it that each of them finds empty.

Files whose tests end, restart or pause the broker have a `server` of their own for each test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.nats import NatsServer, running_server
from tests.support.shells import World, clean_world


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with clean_world(server) as made:
        yield made
