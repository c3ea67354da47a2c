"""The executor when things go wrong: crashes, strays, hosts that fail, VMs that will not die, refusals, take-over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from phoenix.local.opennebula.states import HostState
from schemas import facts as f
from tests.support.executor_stage import CLOUD, FAST, SLOW, Stage, config_adopted, stage
from tests.support.nats import NatsServer, running_server
from tests.support.until import until

TEMPLATE = 'NAME = "left"\nCPU = "1"\nMEMORY = "64"\nPHOENIX_ID = "{}"\n'


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def empty(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(server, tmp_path) as made:
        yield made


@pytest.fixture
async def scene(empty: Stage) -> Stage:
    await empty.open(3, FAST)
    await empty.grant("host000", "host001")
    return empty


def reasons(journal: list[f.Fact]) -> list[str]:
    return [fact.why for fact in journal if isinstance(fact, f.VmEnded)]


async def left_by_a_crash(scene: Stage, tag: str) -> int:
    """A VM on HOLD that an executor allocated and did not live to journal."""
    return int(await scene.ask(lambda one: one.allocate(TEMPLATE.format(tag))))


async def test_x6_a_vm_left_by_a_crash_between_allocate_and_journal_is_adopted(empty: Stage) -> None:
    await empty.write("provisioner", config_adopted(FAST))
    hosts = [f.HostDescribed(host=f"host00{n}", one_id=n, cores=4, memory_mb=4096) for n in range(3)]
    cleared = [f.HostCleared(host=f"host00{n}") for n in range(3)]
    await empty.write("executor", f.LeaderStarted(epoch=1, instance="e0"), *hosts, *cleared)
    await empty.grant("host000")
    await empty.submit("1")
    await empty.place("1", "host000")
    vm = await left_by_a_crash(empty, f"{CLOUD}/1/1/0")
    empty.start("e1", reaped=("e0",))
    await empty.executor.leads()
    await empty.until(lambda: empty.started("1") == 1, "the VM that was left runs")
    assert empty.alive() == [vm]


async def test_x6_an_orphan_of_ours_is_swept_and_nobody_elses_is_touched(scene: Stage) -> None:
    await scene.running("1", "host000")
    orphan = await left_by_a_crash(scene, f"{CLOUD}/99/1/0")
    other = await left_by_a_crash(scene, "another/99/1/0")
    untagged = await scene.ask(lambda one: one.allocate('NAME = "x"\nCPU = "1"\nMEMORY = "64"\n'))
    await scene.until(lambda: orphan not in scene.alive(), "the orphan is gone")
    assert {other, untagged} <= set(scene.alive())
    assert scene.started("1") == 1


async def test_x7_a_stray_that_runs_is_ended_and_keeps_its_host_until_it_is_gone(scene: Stage) -> None:
    stray = await left_by_a_crash(scene, f"{CLOUD}/99/1/0")
    scene.one.steering.add("cancel", vm_id=stray, delay_s=0.5) if scene.one.steering else None
    await scene.ask(lambda one: one.deploy(stray, 0))
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"))
    await scene.until(lambda: scene.host("host000") == "free", "cleared")
    assert stray not in scene.alive()


async def test_a_reclaimed_host_is_free_when_its_guests_have_ended_and_waits_for_nothing_else(scene: Stage) -> None:
    await scene.write("provisioner", config_adopted(SLOW))
    scene.driver.delays_s["shutdown"] = FAST.grace_s  # SIGTERM, a guest that does not care, SIGKILL
    await scene.running("1", "host000", "host001")
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"), f.HostReleased(host="host001"))
    await scene.until(lambda: scene.host("host000") == scene.host("host001") == "free", "cleared")
    assert reasons(await scene.journal()) == ["terminated", "terminated"]


async def test_a_host_in_error_is_lost_its_job_runs_elsewhere_and_it_comes_back_empty(scene: Stage) -> None:
    await scene.running("1", "host000")
    scene.one.monitor.down[0] = "the probe died"
    scene.one.monitor.probe(scene.one.store.hosts[0])
    await scene.until(lambda: scene.host("host000") == "lost", "lost")
    await scene.close_attempt("1")
    await scene.running("1", "host001", attempt=2)
    del scene.one.monitor.down[0]
    scene.one.monitor.probe(scene.one.store.hosts[0])
    scene.one.monitor.probe(scene.one.store.hosts[0])
    assert scene.one.store.hosts[0].state == HostState.MONITORED
    await scene.until(lambda: scene.host("host000") == "free", "back")
    assert len(scene.alive()) == 1


async def test_x4_a_vm_that_will_not_die_makes_its_host_lost_and_its_end_gives_it_back(scene: Stage) -> None:
    await scene.running("1", "host000")
    assert scene.one.steering is not None
    for step in ("shutdown", "cancel"):
        scene.one.steering.add(step, hold=True)
    await scene.write("scheduler.hpc", f.HostReleased(host="host000"))
    await scene.until(lambda: scene.host("host000") == "lost", "lost")
    assert scene.custody.state.hosts["host000"].lost == "stuck"
    scene.one.steering.clear()
    await scene.until(lambda: scene.host("host000") == "free", "back")


async def test_a_vm_that_powers_off_without_a_report_did_not_complete(scene: Stage) -> None:
    await scene.running("1", "host000")
    scene.driver.end(scene.alive()[0])
    await scene.until(lambda: not scene.custody.state.vms, "its VM is ended")
    assert scene.custody.state.units["1"].broken == "vm_ended"
    assert scene.alive() == []
    assert reasons(await scene.journal()) == ["powered off"]


async def test_a_vm_that_fails_to_boot_is_ended_with_the_reason(scene: Stage) -> None:
    assert scene.one.steering is not None
    scene.one.steering.add("boot", fail="no such kernel", times=1)
    await scene.submit("1")
    await scene.place("1", "host000")
    await scene.until(lambda: scene.custody.state.units["1"].broken == "vm_ended", "ended")
    assert reasons(await scene.journal()) == ["failed: DEPLOY: no such kernel"]
    await scene.close_attempt("1")
    await scene.running("1", "host000", attempt=2)


async def test_a_deploy_that_opennebula_refuses_ends_the_vm(scene: Stage) -> None:
    big = await scene.ask(lambda one: one.allocate('NAME = "big"\nCPU = "4"\nMEMORY = "64"\n'))
    await scene.ask(lambda one: one.deploy(big, 0))  # another user fills the host
    await scene.submit("1")
    await scene.place("1", "host000")
    await scene.until(lambda: scene.custody.state.units["1"].broken == "vm_ended", "ended")
    [why] = reasons(await scene.journal())
    assert why.startswith("deploy refused: [one.vm.deploy] virtual machine")


async def test_a_removed_host_is_removed_and_an_added_one_is_described(scene: Stage) -> None:
    await asyncio.to_thread(lambda: scene.client()._one.host.delete(2))
    await scene.until(lambda: "host002" not in scene.custody.state.hosts, "removed")
    await asyncio.to_thread(lambda: scene.client()._one.host.allocate("fresh", "dummy", "dummy", -1))
    scene.one.monitor.probe(scene.one.store.hosts[max(scene.one.store.hosts)])
    await scene.until(lambda: "fresh" in scene.custody.state.hosts and scene.host("fresh") == "free", "described, free")


async def test_opennebula_that_is_away_for_a_while_costs_nothing(scene: Stage) -> None:
    await scene.running("1", "host000")
    port, runner = scene.one.port, scene.one._runner
    assert runner is not None
    await runner.cleanup()  # no listener, no connection
    await scene.submit("2")
    await scene.place("2", "host001")
    await scene.report("1")
    ending = scene.core.vm_reconciler
    await scene.until(
        lambda: ending.observed_vms["1/1/0"].failures > 0 or "1/1/0" in ending.untagged,
        "its end is refused, or waits until its tag can be read again",
    )
    assert scene.host("host000") == scene.host("host001") == "held"
    scene.one._runner = runner = web.ServerRunner(web.Server(scene.one._handle, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await scene.until(lambda: scene.started("2") == 1 and len(scene.custody.state.vms) == 1, "all is as it should be")
    assert len(scene.alive()) == 1


async def test_x8_an_orderly_stop_is_written_and_the_next_leader_does_not_wait(
    server: NatsServer, tmp_path: Path
) -> None:
    """A lease lives for an hour: waiting for the end of one would be late."""
    async with stage(server, tmp_path, lease_ttl_s=3600.0) as scene:
        await scene.open(3, FAST)
        await scene.grant("host000")
        await stop_and_go_on(scene)


async def stop_and_go_on(scene: Stage) -> None:
    await scene.running("1", "host000")
    assert await scene.executor.stop() == 0
    scene.start("e2")
    await scene.executor.leads()
    assert scene.service.predecessor is not None
    assert scene.service.predecessor.stopped
    await scene.report("1")
    await scene.until(lambda: not scene.custody.state.vms, "ended by the second")


async def test_x8_after_a_crash_the_next_leader_waits_and_then_does_its_work(scene: Stage) -> None:
    await scene.running("1", "host000")
    scene.service.fail("a test ends it without a word")
    assert await scene.executor.code() != 0
    scene.start("e2")
    await scene.executor.leads()
    requests = scene.one.store.requests
    await scene.report("1")
    await scene.until(lambda: not scene.custody.state.vms, "ended by the second")
    state = scene.custody.state
    assert state.at - state.leaders["executor"].since >= 1.5  # lease TTL 1 s + call timeout 0.5 s, by the journal
    assert scene.one.store.requests > requests


async def test_x8_no_call_is_made_while_the_lease_has_less_left_than_a_call_may_take(scene: Stage) -> None:
    def ends() -> float:
        labels = {"method": "vm.action", "outcome": "ok"}
        return scene.service.registry.get_sample_value("phoenix_opennebula_calls_total", labels) or 0.0

    assert scene.one.steering is not None
    await scene.write(
        "provisioner", config_adopted(msgspec.structs.replace(FAST, kill_s=2.0))
    )  # time to pause the broker
    await scene.running("1", "host000")
    scene.one.steering.add("shutdown", hold=True)
    await scene.close_attempt("1")
    await scene.until(lambda: ends() == 1, "the graceful end was asked for")
    kill_by = scene.core.ledger.state.doomed["1/1/0"]
    scene.here.server.pause()
    try:
        await until(lambda: scene.service.lease_left_s() < 0.5, "nothing is renewed")
        await until(lambda: scene.service.now() > kill_by + 0.3, "it is time for the hard end")
        assert ends() == 1
    finally:
        scene.here.server.resume()
    await scene.until(lambda: ends() == 2, "the hard end was asked for")
    scene.one.steering.clear()


async def test_no_secret_is_in_the_journal_or_the_log(scene: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "phoenix")
    await scene.running("1", "host000")
    vm = scene.one.store.vms[scene.alive()[0]]
    secret = (vm.template.vector("CONTEXT") or {})["PHOENIX_TOKEN"]
    journal = await scene.journal()
    assert secret not in repr(journal)
    assert secret not in caplog.text
    assert scene.one.session not in caplog.text
