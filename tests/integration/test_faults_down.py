"""Down and up again on the same directory, gently and not, in the middle of work: it continues where it was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import facts as f
from tests.integration.up_cloud import until
from tests.support import faults_verdict as verdict
from tests.support.faults import Load, Siege, siege, together

HOSTS = 6
ROUNDS = int(os.environ.get("PHOENIX_FAULTS_ROUNDS", "2"))  # of the interruptions; `make faults` has all three
JOBS = 12 * ROUNDS
WORK_S = 2.0  # between two interruptions

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


def down(cloud: Siege) -> None:
    cloud.ok("down")


def down_hard(cloud: Siege) -> None:
    cloud.ok("down", "--hard")


def supervisor_dies(cloud: Siege) -> None:
    """Nothing may outlive it; what it knew of is found by the next `up`."""
    os.kill(cloud.status()["pid"], signal.SIGKILL)


def at_work(cloud: Siege, job: str) -> Callable[[], bool]:
    """The script of this job has begun and has not ended, so that an interruption finds it."""

    def begun() -> bool:
        said = {line.split(" ")[0] for line in cloud.told() if line.split(" ")[1] == job}
        assert "end" not in said, "the job was over before it could be interrupted"
        return "start" in said

    return begun


async def interrupt(cloud: Siege, load: Load) -> None:
    """Each interruption has a job of its own to interrupt: how far the stream of the others is depends on the machine."""
    for end in (down, supervisor_dies, down_hard)[:ROUNDS]:
        await asyncio.sleep(WORK_S)
        job = await load.add(name := f"{end.__name__}.x")
        await asyncio.to_thread(until, at_work(cloud, job), "the job to be interrupted does not run")
        await asyncio.to_thread(end, cloud)
        await asyncio.to_thread(until, lambda: not cloud.pids(), f"a process is left after {end.__name__}")
        load.let_go(name)
        await asyncio.to_thread(cloud.ok, "up", "--detach")


async def test_what_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    with siege(tmp_path, HOSTS) as cloud:
        load = Load(cloud, jobs=JOBS, seed=4, over_s=6.0 * ROUNDS, longest_s=4.0)
        await together(load.run(), interrupt(cloud, load))
        await cloud.rest()
        story = await verdict.judge(cloud, load.submitted, HOSTS)
        again = {fact.unit for fact in story.of(f.UnitPlaced) if fact.attempt > 1}
        interrupted = {job for name, job in load.submitted.items() if "." in name}
        assert interrupted <= again, "an interrupted job was not tried again"
        cloud.ok("down")
        assert cloud.pids() == set()
        assert verdict.history(cloud.data / "history.sqlite", story) == []
