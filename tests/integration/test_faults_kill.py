"""`kill -9` of any service and of the broker, at any moment, under real work: no job is lost and none runs twice."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from phoenix.local.stack import NATS, OPENNEBULA
from schemas import facts as f
from tests.support import faults_verdict as verdict
from tests.support.faults import HOSTS, SERVICES, Killer, Load, siege, together
from tests.support.faults_verdict import Story

SEED = int(os.environ.get("PHOENIX_FAULTS_SEED", "5"))  # another one: PHOENIX_FAULTS_SEED=7 pytest …
ROUNDS = int(os.environ.get("PHOENIX_FAULTS_ROUNDS", "2"))  # kills of each; `make faults` has three
ROUND_S, ROUND_JOBS = 6.0, 20

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


async def besieged(
    directory: Path, load_s: float, jobs: int, rounds: int, names: tuple[str, ...], *wishes: str, batch: str = ""
) -> Story:
    """The story of a cloud whose processes are killed under work, after it was judged."""
    with siege(directory, batch=batch) as cloud:
        load = Load(cloud, jobs=jobs, seed=SEED, over_s=load_s, on_reclaim=wishes or ("requeue",))
        killer = Killer(cloud, seed=SEED, names=names)
        await together(load.run(), killer.run(load_s, rounds))
        began = time.monotonic()
        await cloud.rest()
        print(f"seed {SEED}: kills {killer.kills}, at rest after {time.monotonic() - began:.1f} s")
        assert all(killer.kills.values()), killer.kills
        story = await verdict.judge(cloud, load.submitted, HOSTS)
        cloud.ok("down")
        assert cloud.pids() == set()
        assert verdict.history(cloud.data / "history.sqlite", story) == []
    return story


async def test_killed_services_lose_no_job_and_run_none_twice(tmp_path: Path) -> None:
    """Jobs start again, are suspended or move, and VMs take one job after another, as each wishes."""
    warm = '[department.batch.warm]\nidle_s = 3\nshare = "department"\n'
    wishes = ("requeue", "suspend", "migrate")
    size = (ROUND_S * ROUNDS, ROUND_JOBS * ROUNDS, ROUNDS)
    story = await besieged(tmp_path, *size, (*SERVICES, NATS), *wishes, batch=warm)
    moved = story.of(f.HostSeized, f.HostReleased)
    again = [fact for fact in story.of(f.AttemptClosed) if fact.disposal is f.Disposal.REQUEUE]
    vms = Counter(fact.vm for fact in story.of(f.VmAllocated))
    went_on = [fact for fact in story.of(f.AttemptClosed) if fact.disposal in (f.Disposal.SUSPEND, f.Disposal.MIGRATE)]
    print(f"  {len(moved)} hosts taken, {len(again)} requeued, {len(went_on)} suspended or moved")
    print(f"  {len(vms)} VMs for {vms.total()} attempts, voids {story.custody.state.voids}")
    assert max(vms.values()) > 1, "no VM was used twice"
    assert len(moved) > 2, "hardly a host changed hands: nothing was at stake"


async def test_a_killed_hypervisor_takes_its_vms_along_and_their_jobs_run_again(tmp_path: Path) -> None:
    """With OpenNebula every VM dies; the services are killed as well."""
    story = await besieged(tmp_path, 10.0, 30, 1, (*SERVICES, NATS, OPENNEBULA, OPENNEBULA, "balancer.web"))
    again = [fact for fact in story.of(f.UnitPlaced) if fact.attempt > 1]
    assert again, "no attempt was interrupted"
