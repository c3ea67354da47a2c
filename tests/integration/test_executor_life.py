"""The executor on a real broker and an embedded OpenNebula: VMs come, run, end; hosts are discovered, drained, lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from schemas import facts as f
from tests.support.executor_stage import CLOUD, FAST, SLOW, Stage, config_adopted, stage
from tests.support.nats import NatsServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def scene(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(server, tmp_path) as made:
        await made.open(3, FAST)
        yield made


async def test_a_job_of_two_ranks_runs_reports_and_leaves_nothing_behind(scene: Stage) -> None:
    await scene.grant("host000", "host001")
    await scene.running("1", "host000", "host001")
    vms = [scene.one.store.vms[n] for n in scene.alive()]
    assert {vm.user_template.get("PHOENIX_ID") for vm in vms} == {f"{CLOUD}/1/1/0", f"{CLOUD}/1/1/1"}
    assert {vm.name for vm in vms} == {f"{CLOUD}-1-1-0", f"{CLOUD}-1-1-1"}
    assert all(len((vm.template.vector("CONTEXT") or {})["PHOENIX_TOKEN"]) == 64 for vm in vms)
    await scene.report("1")
    await scene.until(lambda: not scene.custody.state.vms, "its VMs are ended")
    assert scene.alive() == []
    journal = await scene.journal()
    assert [type(x) for x in journal].count(f.VmAllocated) == 2
    assert {x.why for x in journal if isinstance(x, f.VmEnded)} == {"terminated"}


async def test_an_idle_host_that_is_released_is_free_at_once(scene: Stage) -> None:
    await scene.write("provisioner", config_adopted(SLOW))
    await scene.grant("host000")
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"))
    await scene.until(lambda: scene.host("host000") == "free", "cleared, and nothing was waited for")
