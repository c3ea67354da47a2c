"""The real executor, killed around every call that changes something: one VM an attempt ever ran, nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crash import DEPOSED, SHORT, crashes
from tests.support.nats import NatsServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


async def test_killed_around_every_call_it_neither_loses_nor_doubles_a_vm(server: NatsServer, tmp_path: Path) -> None:
    async with crashes(server, tmp_path) as scene:
        for number, point in enumerate(SHORT):
            await scene.strike(point, str(number + 1))


async def test_a_deposed_leader_whose_call_is_on_its_way_does_no_harm(server: NatsServer, tmp_path: Path) -> None:
    """X8, and where it fails X5: it stands still with a resume on its way, another one leads, then both continue."""
    async with crashes(server, tmp_path) as scene:
        await scene.strike(DEPOSED[0], "1", paused=True)
