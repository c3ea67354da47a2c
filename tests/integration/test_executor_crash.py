"""The real executor, killed around every call that changes something: one VM an attempt ever ran, nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crash import SHORT, crashes
from tests.support.nats import NatsServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


async def test_killed_around_every_call_it_neither_loses_nor_doubles_a_vm(server: NatsServer, tmp_path: Path) -> None:
    async with crashes(server, tmp_path) as scene:
        for number, point in enumerate(SHORT):
            await scene.strike(point, str(number + 1))
