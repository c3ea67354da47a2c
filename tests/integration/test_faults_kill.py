"""`kill -9` of any service and of the broker, at any moment, under real work: no job is lost and none runs twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from schemas import facts as f
from tests.support import faults_verdict as verdict
from tests.support.faults import HOSTS, Killer, Load, Siege, siege, together
from tests.support.faults_verdict import Story

JOBS = 60
KILL_S = 18.0
SEED = int(os.environ.get("PHOENIX_FAULTS_SEED", "1"))  # another one: PHOENIX_FAULTS_SEED=7 pytest …

pytestmark = pytest.mark.timeout(240)


async def judge(cloud: Siege, submitted: dict[str, str]) -> Story:
    """Everything that `faults_verdict` asks of a cloud at rest."""
    journal = await cloud.journal()
    story = Story(journal)
    assert verdict.jobs(story, submitted) == []
    assert verdict.runs(cloud.told(), story) == []
    assert verdict.apart(story) == []
    assert verdict.hosts(story, HOSTS) == []
    assert verdict.vms(await cloud.alive(), Story(await cloud.journal())) == []
    read = {job: await cloud.output(job) for job in submitted.values()}
    assert verdict.outputs(read, story) == []
    snapshots = {name: s for name, s in (await cloud.snapshots()).items() if s.position <= len(journal)}
    assert verdict.state(journal, snapshots) == []
    return story


async def test_killed_services_lose_no_job_and_run_none_twice(tmp_path: Path) -> None:
    with siege(tmp_path) as cloud:
        load, killer = Load(cloud, jobs=JOBS, seed=SEED), Killer(cloud, seed=SEED)
        await together(load.run(), killer.run(KILL_S))
        began = time.monotonic()
        await cloud.rest()
        print(f"seed {SEED}: kills {killer.kills}, at rest after {time.monotonic() - began:.1f} s")
        assert all(killer.kills.values()), killer.kills
        story = await judge(cloud, load.submitted)
        moved, attempts = story.of(f.HostSeized, f.HostReleased), story.of(f.UnitPlaced)
        assert len(moved) > 2, "no host changed hands: nothing was at stake"
        print(f"  {len(attempts)} attempts, {len(moved)} hosts taken, voids {story.custody.state.voids}")
        cloud.ok("down")
        assert cloud.pids() == set()
        assert verdict.history(cloud.data / "history.sqlite", story) == []
