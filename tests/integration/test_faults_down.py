"""Down and up again on the same directory, gently and not, in the middle of work: it goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import facts as f
from tests.integration.up_cloud import until
from tests.support import faults_verdict as verdict
from tests.support.faults import Load, Siege, siege, together

HOSTS = 6
JOBS = 36
WORK_S = 3.0  # between two interruptions

pytestmark = pytest.mark.timeout(240)


def down(cloud: Siege) -> None:
    cloud.ok("down")


def down_hard(cloud: Siege) -> None:
    cloud.ok("down", "--hard")


def supervisor_dies(cloud: Siege) -> None:
    """Nothing may outlive it; what it knew of is found by the next `up`."""
    os.kill(cloud.status()["pid"], signal.SIGKILL)


def busy(cloud: Siege, since: int) -> Callable[[], bool]:
    """At least two scripts are at work that have begun after so many lines, so that an interruption finds some."""

    def at_work() -> bool:
        said = Counter(line.split(" ")[0] for line in cloud.told()[since:])
        return said["start"] - said["end"] >= 2

    return at_work


async def interrupt(cloud: Siege) -> None:
    for end in (down, supervisor_dies, down_hard):
        since = len(cloud.told())
        await asyncio.sleep(WORK_S)
        await asyncio.to_thread(until, busy(cloud, since), "no script runs")
        await asyncio.to_thread(end, cloud)
        await asyncio.to_thread(until, lambda: not cloud.pids(), f"a process is left after {end.__name__}")
        await asyncio.to_thread(cloud.ok, "up", "--detach")


async def test_what_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    with siege(tmp_path, HOSTS) as cloud:
        load = Load(cloud, jobs=JOBS, seed=4, over_s=24.0, longest_s=4.0)
        await together(load.run(), interrupt(cloud))
        await cloud.rest()
        story = await verdict.judge(cloud, load.submitted, HOSTS)
        again = [fact for fact in story.of(f.UnitPlaced) if fact.attempt > 1 and "." not in fact.unit]
        assert again, "no interrupted job was tried again"
        cloud.ok("down")
        assert cloud.pids() == set()
        assert verdict.history(cloud.data / "history.sqlite", story) == []
