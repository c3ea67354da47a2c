"""The executor and the states of hosts, on a real broker and an embedded OpenNebula: who keeps a job, and who comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.local.opennebula.model import Acl
from schemas import facts as f
from schemas.config import Hosts
from schemas.size import Size
from tests.support.executor_stage import FAST, Stage, config_adopted, stage
from tests.support.nats import NatsServer, running_server

ENABLE, DISABLE, OFFLINE = 0, 1, 2
USERS = 1  # the group that new users have
THEIRS = 'NAME = "theirs"\nCPU = "1.5"\nMEMORY = "1000"\n'


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def scene(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(server, tmp_path) as made:
        await made.open(3, FAST)
        await made.grant("host000", "host001")
        await made.grant("host002", dept="web")
        yield made


async def one(scene: Stage, work: Any) -> Any:
    """A call of an administrator."""
    return await asyncio.to_thread(lambda: work(scene.client()._one))


async def status(scene: Stage, host: int, wanted: int) -> None:
    await one(scene, lambda client: client.host.status(host, wanted))


def probe(scene: Stage, host: int) -> None:
    scene.one.monitor.probe(scene.one.store.hosts[host])


async def configure(scene: Stage, **hosts: Any) -> None:
    adopted = config_adopted(FAST)
    cloud = msgspec.structs.replace(adopted.config, hosts=Hosts(**hosts))
    await scene.write("provisioner", msgspec.structs.replace(adopted, config=cloud))


def apart(scene: Stage, name: str) -> str | None:
    host = scene.custody.state.hosts[name]
    return host.quarantine if host.quarantine_until > scene.service.now() else None


async def instance(scene: Stage, number: int, host: str) -> None:
    """A web instance that runs."""
    placed = f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=(host,), cores=1, memory_mb=64)
    await scene.write("scheduler.web", placed)
    await scene.until(lambda: scene.started(f"web.{number}") == 1, f"web.{number} runs")


async def test_a_disabled_host_keeps_its_job_until_it_ends_and_comes_back_when_it_is_enabled(scene: Stage) -> None:
    await scene.running("1", "host000")
    await status(scene, 0, DISABLE)
    await scene.until(lambda: apart(scene, "host000") == "disabled", "set apart")
    assert scene.custody.live("1", 1)
    assert len(scene.alive()) == 1
    await scene.report("1")
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"))
    await scene.until(lambda: scene.host("host000") == "free", "cleared")
    assert apart(scene, "host000") == "disabled"
    await status(scene, 0, ENABLE)
    await scene.until(lambda: apart(scene, "host000") is None, "free of it")


@pytest.mark.parametrize("how", ["offline", "error"])
async def test_jobs_of_a_failed_host_are_broken_instances_too_and_it_comes_back_empty(scene: Stage, how: str) -> None:
    await scene.running("1", "host000")
    await instance(scene, 1, "host002")
    for host in (0, 2):
        if how == "offline":
            await status(scene, host, OFFLINE)
        else:
            scene.one.monitor.down[host] = "the probe died"
            probe(scene, host)
    await scene.until(lambda: scene.host("host000") == scene.host("host002") == "lost", "lost")
    assert scene.custody.state.hosts["host000"].lost == how
    assert [scene.custody.live(unit, 1) for unit in ("1", "web.1")] == [False, False]
    await scene.close_attempt("1")
    await scene.running("1", "host001", attempt=2)  # requeued
    await scene.write("provisioner", f.HostReleased(host="host001"))  # void: no other service may give it back
    for host in (0, 2):
        scene.one.monitor.down.pop(host, None)
        if how == "offline":
            await status(scene, host, ENABLE)
        probe(scene, host)
        probe(scene, host)
    await scene.until(lambda: scene.host("host000") == scene.host("host002") == "free", "back, and empty")
    await scene.grant("host002", dept="web")
    await instance(scene, 2, "host002")  # replaced
    assert scene.custody.live("1", 2)


async def test_a_host_that_is_monitored_late_is_set_apart_then_lost_then_back(scene: Stage) -> None:
    await scene.running("1", "host000")
    await configure(scene, monitor_late_s=1.6, monitor_lost_s=3.2)
    store, loop = scene.one.store, asyncio.create_task(scene.one.monitor._run(0.2))
    silent, store.hosts[0].im_mad = store.hosts[0].im_mad, "nosuch"  # its probes say nothing, and nothing complains
    await scene.until(lambda: apart(scene, "host000") == "monitored late", "set apart")
    assert scene.custody.live("1", 1)
    await scene.until(lambda: scene.host("host000") == "lost", "lost")
    store.hosts[0].im_mad = silent
    await scene.until(lambda: scene.host("host000") == "free" and apart(scene, "host000") is None, "back")
    loop.cancel()
    assert scene.host("host001") == "held"
    reasons = [x.reason for x in await scene.journal() if isinstance(x, f.HostLost)]
    assert reasons == ["monitored late"]


async def test_a_job_of_a_host_that_was_deleted_is_broken_and_a_new_host_is_found(scene: Stage) -> None:
    await one(scene, lambda client: client.host.delete(1))
    await scene.until(lambda: "host001" not in scene.custody.state.hosts, "lost, then removed")
    lost = [x for x in await scene.journal() if isinstance(x, f.HostLost)]
    assert lost == [f.HostLost(host="host001", reason="removed")]
    number = await one(scene, lambda client: client.host.allocate("fresh", "dummy", "dummy", -1))
    probe(scene, number)
    await scene.until(lambda: "fresh" in scene.custody.state.hosts and scene.host("fresh") == "free", "described, free")


async def test_what_another_tenant_runs_is_not_offered_and_our_own_vms_change_nothing(scene: Stage) -> None:
    await scene.running("1", "host000")
    vm = await one(scene, lambda client: client.vm.allocate(THEIRS))
    await one(scene, lambda client: client.vm.deploy(vm, 0))
    host = scene.custody.state.hosts["host000"]
    await scene.until(lambda: host.size == Size(2, 3096), "less is offered")
    await scene.running("2", "host000")
    await scene.report("1")
    await scene.until(lambda: not scene.started("1"), "its VM is ended")
    await one(scene, lambda client: client.vm.action("terminate-hard", vm))
    await scene.until(lambda: host.size == Size(4, 4096), "all is offered")
    described = [x for x in await scene.journal() if isinstance(x, f.HostDescribed)]
    assert [(x.host, x.cores) for x in described[3:]] == [("host000", 2), ("host000", 4)]


async def test_what_our_user_may_not_see_is_not_offered_and_keeps_no_host(server: NatsServer, tmp_path: Path) -> None:
    """With the documented rights, but for USE on VMs of others."""
    async with stage(server, tmp_path) as scene:
        number = await one(scene, lambda client: client.user.allocate("phoenix", "secret", "core", []))
        rules = ("VM/* CREATE", f"VM/@{USERS} ADMIN", "HOST/* USE+MANAGE", "DATASTORE/* USE")
        scene.one.store.acls = {i: Acl(id=i, text=f"#{number} {rule} *") for i, rule in enumerate(rules)}
        scene.config.opennebula.auth_file.write_text("phoenix:secret\n")
        await scene.open(3, FAST)
        await scene.grant("host000", "host001")
        await scene.running("1", "host000")
        theirs = [await one(scene, lambda client: client.vm.allocate(THEIRS)) for _ in range(2)]
        for host, vm in enumerate(theirs):
            await one(scene, lambda client, vm=vm, host=host: client.vm.deploy(vm, host))
        host = scene.custody.state.hosts["host000"]
        await scene.until(lambda: host.size == Size(2, 3096) and host.others == Size(2, 1000), "less is offered")
        await scene.running("2", "host000")
        await scene.write("scheduler.hpc", f.HostReleased(host="host001"))
        await scene.until(lambda: scene.host("host001") == "free", "cleared, whatever others run there")
        assert len(scene.alive()) == 4


async def test_cpu_is_overcommitted_where_the_site_allows_it_and_while_little_of_it_is_used(scene: Stage) -> None:
    store = scene.one.store
    await one(scene, lambda client: client.host.update(0, 'RESERVED_CPU = "-400"', 1))
    await configure(scene, cpu_overcommit=2.0, monitor_late_s=2.0)  # the latter: samples are looked at more often
    hosts = scene.custody.state.hosts

    async def used(percent: int, cores: int) -> None:
        store.hosts[0].used_cpu = store.hosts[1].used_cpu = percent
        probe(scene, 0)
        probe(scene, 1)
        await scene.until(lambda: hosts["host000"].size.cores == cores, f"{cores} cores are offered")

    await used(40, 8)
    await scene.submit("1")
    await scene.place("1", "host000", cores=6)
    await scene.until(lambda: scene.started("1") == 1, "OpenNebula has deployed what was offered")
    await used(390, 4)
    await used(230, 4)  # within the band
    await used(100, 8)
    assert scene.custody.live("1", 1)
    assert hosts["host001"].size.cores == 4  # its site has set no negative reserve
    assert {host.size.memory_mb for host in hosts.values()} == {4096}


async def test_labels_of_the_configuration_leave_a_free_host_out_and_let_it_in_again(scene: Stage) -> None:
    await scene.write("scheduler.web", f.HostReleased(host="host002"))
    await scene.until(lambda: scene.host("host002") == "free", "cleared")
    for number in (0, 1):
        await one(scene, lambda client, number=number: client.host.update(number, 'POOL = "ours"', 1))
    await scene.until(lambda: scene.custody.state.hosts["host001"].labels.get("POOL") == "ours", "labels are facts")
    await configure(scene, use="pool=ours")
    await scene.until(lambda: "host002" not in scene.custody.state.hosts, "left out")
    assert [scene.host(name) for name in ("host000", "host001")] == ["held", "held"]
    await configure(scene, clusters=("default",))
    await scene.until(lambda: "host002" in scene.custody.state.hosts and scene.host("host002") == "free", "let in")


async def test_a_host_on_which_vms_do_not_boot_is_quarantined_and_one_good_start_frees_it(scene: Stage) -> None:
    assert scene.one.steering is not None
    await configure(scene, quarantine_after=2, quarantine_s=1.0)
    scene.one.steering.add("boot", fail="no such kernel", times=2)
    await scene.submit("1")
    for attempt in (1, 2):
        await scene.place("1", "host000", attempt=attempt)
        await scene.until(lambda: scene.custody.state.units["1"].broken == "vm_ended", "it failed")
        await scene.close_attempt("1", attempt)
    await scene.until(lambda: scene.custody.state.hosts["host000"].quarantine == "starts failed", "quarantined")
    await scene.until(lambda: apart(scene, "host000") is None, "its time is over")
    await scene.running("1", "host000", attempt=3)
    await scene.until(lambda: scene.custody.state.hosts["host000"].quarantine_until == 0.0, "free of it")
