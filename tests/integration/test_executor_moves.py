"""Suspend, resume, migrate and warm VMs on a real broker and an embedded OpenNebula."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Warm
from services.executor.core.calls import Phase
from tests.support.executor_stage import FAST, WHY, Stage, stage
from tests.support.nats import NatsServer, running_server

POLICY = msgspec.structs.replace(FAST, save_s=60.0)
SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def scene(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(server, tmp_path) as made:
        await made.open(3, POLICY, Warm(idle_s=60.0))
        await made.grant("host000", "host001", "host002")
        yield made


def on(scene: Stage, vm: int) -> str:
    """The host of the VM's newest history record, as OpenNebula has it."""
    return scene.one.store.hosts[scene.one.store.vms[vm].history[-1].host_id].name


async def saved(scene: Stage, unit: str, attempt: int = 1) -> None:
    await scene.close_attempt(unit, attempt, SUSPEND)
    await scene.until(lambda: scene.custody.index.saved.get(unit), f"{unit} is saved")


async def test_a_suspended_job_gives_its_host_up_and_goes_on_elsewhere(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    await scene.write(
        "scheduler.hpc",
        f.AttemptClosed(unit="1", attempt=1, disposal=SUSPEND, why=WHY),
        f.HostReleased(host="host000"),
    )
    await scene.until(lambda: scene.host("host000") == "free", "its host is clear")
    assert list(scene.custody.state.saved) == [vm]
    [sight] = await scene.ask(lambda one: one.vms_named([vm]))
    assert sight.phase is Phase.SAVED
    await scene.running("1", "host002", attempt=2)
    assert scene.alive() == [vm]
    assert on(scene, vm) == "host002"


async def test_all_ranks_of_a_job_go_on_in_their_own_vms(scene: Stage) -> None:
    await scene.running("1", "host000", "host001")
    vms = [scene.custody.state.vms[f"1/1/{rank}"].vm for rank in (0, 1)]
    await saved(scene, "1")
    await scene.until(lambda: len(scene.custody.state.saved) == 2, "both are saved")
    await scene.running("1", "host001", "host002", attempt=2)
    assert [scene.custody.state.vms[f"1/2/{rank}"].vm for rank in (0, 1)] == vms
    assert [on(scene, vm) for vm in vms] == ["host001", "host002"]


async def test_a_vm_migrates_while_it_runs_and_its_host_is_clear_afterwards(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    await scene.write(
        "scheduler.hpc",
        f.AttemptClosed(unit="1", attempt=1, disposal=MIGRATE, why=WHY),
        f.UnitPlaced(unit="1", attempt=2, hosts=("host001",), cores=1, memory_mb=64),
        f.HostReleased(host="host000"),
    )
    await scene.until(lambda: scene.started("1", 2) == 1, "it runs on")
    assert on(scene, vm) == "host001"
    await scene.until(lambda: scene.host("host000") == "free", "its host is clear")
    assert await _ends(scene) == []


async def test_a_migration_that_fails_is_made_cold(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    scene.driver.steering.add("migrate", fail="no shared storage")
    await scene.close_attempt("1", 1, MIGRATE)
    await scene.running("1", "host001", attempt=2)
    assert on(scene, vm) == "host001"
    assert await _ends(scene) == []


async def test_a_job_whose_saving_fails_begins_anew_in_a_fresh_vm(scene: Stage) -> None:
    await scene.write("provisioner", _quick(scene))
    await scene.running("1", "host000")
    [vm] = scene.alive()
    scene.driver.steering.add("save", fail="no room on the datastore")
    await scene.close_attempt("1", 1, SUSPEND)
    await scene.until(lambda: not scene.custody.state.vms, "it is ended at its time")
    assert await _ends(scene) == ["terminated"]
    await scene.running("1", "host001", attempt=2)
    assert scene.alive() != [vm]


async def test_the_saved_vm_of_a_cancelled_job_is_swept(scene: Stage) -> None:
    await scene.running("1", "host000")
    await saved(scene, "1")
    await scene.write("admission", f.JobCancelled(job="1", user="ann"))
    await scene.until(lambda: scene.alive() == [], "nothing is left")


async def test_a_saved_vm_that_was_deleted_by_hand_costs_an_attempt_and_no_more(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    await saved(scene, "1")
    await scene.ask(lambda one: one.terminate(vm, True))
    await scene.place("1", "host001", attempt=2)
    await scene.until(lambda: scene.custody.state.units["1"].broken, "it is found out")
    await scene.close_attempt("1", 2)
    await scene.running("1", "host001", attempt=3)


async def test_an_executor_that_comes_back_resumes_what_another_one_saved(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    await saved(scene, "1")
    await scene.executor.stop()
    await scene.place("1", "host001", attempt=2)
    scene.start("e2")
    await scene.until(lambda: scene.started("1", 2) == 1, "it continues")
    assert (scene.alive(), on(scene, vm)) == ([vm], "host001")


async def test_a_parked_vm_runs_the_next_job_without_a_call(scene: Stage) -> None:
    await scene.running("1", "host000")
    [vm] = scene.alive()
    await scene.write(
        "admission", f.AttemptReported(unit="1", attempt=1, exit=0), f.VmParked(unit="1", attempt=1, rank=0)
    )
    calls = _acts(scene)
    await scene.submit("2")
    await scene.place("2", "host000")
    await scene.until(lambda: scene.started("2") == 1, "the next job has its VM")
    assert _acts(scene) == calls
    assert scene.alive() == [vm]
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"))
    await scene.until(lambda: scene.host("host000") == "free", "and it ends with its host")


def _acts(scene: Stage) -> int:
    """Calls that change something, so far."""
    found = scene.service.registry.collect()
    samples = [s for family in found for s in family.samples if s.name == "phoenix_opennebula_calls_total"]
    return int(sum(s.value for s in samples if s.labels["method"] in ("vm.allocate", "vm.deploy", "vm.action")))


def _quick(scene: Stage) -> f.ConfigAdopted:
    config = scene.custody.state.config
    assert config is not None
    policy = msgspec.structs.replace(POLICY, save_s=0.3)
    adopted = msgspec.structs.replace(config, policy=policy)
    return f.ConfigAdopted(cloud=scene.custody.state.cloud, custody_rules=scene.custody.state.rules, config=adopted)


async def _ends(scene: Stage) -> list[str]:
    return [fact.why for fact in await scene.journal() if isinstance(fact, f.VmEnded)]
