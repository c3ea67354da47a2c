"""The real monitor, killed around every step that keeps something: nothing is lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.monitor_crash import crashes
from tests.support.monitor_struck import POINTS
from tests.support.nats import running_server


@pytest.mark.long
async def test_killed_around_every_step_the_monitor_neither_loses_nor_doubles_anything(tmp_path: Path) -> None:
    with running_server() as server:
        async with crashes(server, tmp_path) as scene:
            for point in POINTS:
                await scene.strike(point)
            await scene.settle()
