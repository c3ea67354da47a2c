"""The broker is silent for three seconds, ends and starts again, and dies, under work: everything continues."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support import faults_verdict as verdict
from tests.support.faults import Load, Siege, siege, together

HOSTS = 6
JOBS = 30
SILENT_S = 3.0  # more than a lease's life (2 s)

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


async def trouble(cloud: Siege) -> None:
    await asyncio.sleep(2.0)
    await cloud.strike("nats", signal.SIGSTOP)
    await asyncio.sleep(SILENT_S)
    await cloud.strike("nats", signal.SIGCONT)
    for number in (signal.SIGTERM, signal.SIGKILL):
        await asyncio.sleep(2.0)
        await cloud.strike("nats", number)


async def test_a_broker_that_is_silent_or_starts_again_loses_nothing(tmp_path: Path) -> None:
    with siege(tmp_path, HOSTS) as cloud:
        load = Load(cloud, jobs=JOBS, seed=3, over_s=10.0)
        await together(load.run(), trouble(cloud))
        await cloud.rest()
        processes = {process["name"]: process["restarts"] for process in cloud.status()["processes"]}
        print(f"restarts: {processes}")
        story = await verdict.judge(cloud, load.submitted, HOSTS)
        cloud.ok("down")
        assert cloud.pids() == set()
        assert verdict.history(cloud.data / "history.sqlite", story) == []
