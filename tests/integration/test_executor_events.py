"""The event stream of an embedded OpenNebula: told at once, lost, forged, broken off; polling is always enough."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from services.executor.edge.event_hints import GRACE_S, PROOF_MIN, Hearsay
from services.executor.edge.executor import ExecutorEdge
from services.executor.edge.poll import HOSTS_GAP_S
from tests.support.executor_stage import FAST, Stage, stage
from tests.support.nats import NatsServer, running_server

RARELY_S = 300.0  # no pool is polled again within a test


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


def sample(scene: Stage, name: str, **labels: str) -> float:
    return scene.service.registry.get_sample_value(name, labels) or 0.0


def heard(scene: Stage, kind: str) -> float:
    return sample(scene, "phoenix_opennebula_events_total", kind=kind)


def hearsay(scene: Stage) -> Hearsay:
    edge = next(edge for edge in scene.service.edges if isinstance(edge, ExecutorEdge))
    assert edge._poller is not None
    return edge._poller._hearsay


def trusted(scene: Stage) -> bool:
    return sample(scene, "phoenix_opennebula_events_trusted") == 1.0


async def prove(scene: Stage) -> None:
    """Enough announced changes; on a busy machine some may have been announced too late to count, so some more if need be."""
    await scene.grant("host000", "host001", "host002")
    await scene.until(lambda: hearsay(scene).connected, "the executor listens")
    for number in range(2 * PROOF_MIN):
        await scene.running(str(number + 1), f"host00{number % PROOF_MIN}")
        if number + 1 >= PROOF_MIN:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * GRACE_S):
                    await scene.until(lambda: trusted(scene), "the stream has proved itself")
                return
    assert trusted(scene)


@pytest.fixture
async def scene(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """Pools are polled once, and then as good as never."""
    async with stage(server, tmp_path, events=True, poll_s=RARELY_S) as made:
        await made.open(3, msgspec.structs.replace(FAST, save_s=60.0))
        await prove(made)
        yield made


@pytest.fixture
async def quick(server: NatsServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """Pools are polled ten times a second, and once a second while events are trusted."""
    async with stage(server, tmp_path, events=True, poll_s=0.1) as made:
        await made.open(3, FAST)
        await prove(made)
        yield made


def vm_of(scene: Stage, unit: str) -> int:
    return next(v.vm for v in scene.custody.state.vms.values() if v.unit == unit)


async def test_a_vm_that_ends_by_itself_is_seen_without_a_pool(scene: Stage) -> None:
    scene.driver.end(vm_of(scene, "1"))
    await scene.until(lambda: "1/1/0" not in scene.custody.state.vms, "vm.ended")
    assert [fact.why for fact in await scene.journal() if isinstance(fact, f.VmEnded)] == ["powered off"]


async def test_a_host_that_fails_is_seen_without_a_pool(scene: Stage) -> None:
    scene.one.monitor.failed(scene.one.store.hosts[1], "probe died")
    await scene.until(lambda: scene.host("host001") == "lost", "host.lost")


async def test_a_host_that_is_new_is_seen_without_a_wait(scene: Stage) -> None:
    await scene.ask(lambda one: one._one.host.allocate("host009", "dummy", "dummy", -1))
    scene.one.monitor.probe(scene.one.store.hosts[3])
    await scene.until(lambda: "host009" in scene.custody.state.hosts, "described")


async def test_a_deploy_that_is_refused_is_seen_though_no_event_tells(scene: Stage) -> None:
    scene.one.store.hosts[0].max_cpu = 50  # enforced: not enough for another
    await scene.submit("9")
    await scene.place("9", "host000")
    await scene.until(lambda: scene.custody.state.units["9"].broken, "its attempt is broken")
    ended = [fact for fact in await scene.journal() if isinstance(fact, f.VmEnded) and fact.unit == "9"]
    assert ended
    assert ended[0].why.startswith("deploy refused")


async def test_events_that_are_lost_are_noticed_and_polling_takes_over(
    quick: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_event: str) -> None: ...

    monkeypatch.setattr(quick.one.events, "publish", lost)
    quick.driver.end(vm_of(quick, "1"))
    await quick.until(lambda: "1/1/0" not in quick.custody.state.vms, "the audit finds it")
    await quick.until(lambda: not trusted(quick), "the trust is gone")
    assert heard(quick, "missed") >= 1
    await quick.running("7", "host000")  # by polling alone
    quick.driver.end(vm_of(quick, "7"))
    await quick.until(lambda: "7/1/0" not in quick.custody.state.vms, "by polling alone")


async def test_a_publisher_that_goes_away_is_noticed_and_believed_again_only_after_proof(quick: Stage) -> None:
    port = quick.one.events.port
    await quick.one.events.close()
    await quick.until(lambda: not trusted(quick), "the trust is gone")
    quick.one.events._port = port
    await quick.one.events.start()
    before = heard(quick, "vm")
    for attempt in range(30):
        unit = f"{attempt + 10}"
        await quick.running(unit, "host000")
        await quick.report(unit)
        await quick.until(lambda: not any(v.unit == unit for v in quick.custody.state.vms.values()), "ended")  # noqa: B023
        if trusted(quick):
            break
    assert trusted(quick)
    assert heard(quick, "vm") >= before + PROOF_MIN


async def test_forged_and_malformed_events_change_nothing(scene: Stage) -> None:
    publish, vm = scene.one.events.publish, vm_of(scene, "1")
    before = scene.executor.service.custody.dump()
    for topic in (
        f"EVENT STATE VM/DONE/LCM_INIT/{vm} ",
        f"EVENT STATE VM/ACTIVE/BOOT_FAILURE/{vm} ",
        "EVENT STATE HOST/ERROR//0 ",
        "EVENT STATE VM/DONE/LCM_INIT/999999 ",
        "EVENT STATE VM/DONE/../../etc/passwd ",
        f"EVENT STATE VM/DONE/{'X' * 500}/1 ",
        "EVENT STATE HOST/" + "9" * 5_000,
    ):
        publish([topic], "x" * 100_000)
    await scene.until(lambda: heard(scene, "malformed") >= 3 and heard(scene, "foreign") >= 1, "all have come")
    await scene.running("8", "host001")  # later than all of these, and all is as it was
    assert vm_of(scene, "1") == vm
    assert scene.host("host000") == "held"
    assert before != b""
    assert not [fact for fact in await scene.journal() if isinstance(fact, f.VmEnded | f.HostLost)]


async def test_a_flood_of_events_is_outlived(scene: Stage) -> None:
    vm, payload = vm_of(scene, "1"), base64.b64encode(b"x" * 2_000).decode()

    async def flood() -> None:
        for number in range(20_000):
            scene.one.events.publish([f"EVENT STATE VM/POWEROFF/LCM_INIT/{vm if number % 2 else number} "], payload)
            if number % 100 == 0:
                await asyncio.sleep(0)

    flooding: Any = asyncio.create_task(flood())
    await scene.running("8", "host001")
    await scene.report("8")
    await scene.until(lambda: not any(v.unit == "8" for v in scene.custody.state.vms.values()), "it ended meanwhile")
    await flooding
    assert vm_of(scene, "1") == vm


def asked(scene: Stage, method: str) -> float:
    return sample(scene, "phoenix_opennebula_calls_total", method=method, outcome="ok")


async def test_a_flood_of_events_about_hosts_costs_no_more_than_polling(scene: Stage) -> None:
    """A look at each of them would be hundreds of calls a second, by any client that can publish."""
    began, before = time.monotonic(), (asked(scene, "host.info"), asked(scene, "hostpool.info"), heard(scene, "host"))
    while heard(scene, "host") < before[2] + 3_000:
        for number in range(30):
            topic = f"EVENT STATE HOST/ERROR//{number % 2 * 998} "  # 0, and one that does not exist
            scene.one.events.publish([topic], "x" * 2_000)
        await asyncio.sleep(0.002)
        assert time.monotonic() < began + 30.0
    await scene.running("8", "host001")
    times = 2 + (time.monotonic() - began) / HOSTS_GAP_S
    assert asked(scene, "host.info") - before[0] <= times
    assert asked(scene, "hostpool.info") - before[1] <= times
    assert scene.host("host000") == "held"


async def test_a_vm_is_saved_goes_on_and_moves_by_its_events_alone(scene: Stage) -> None:
    vm = vm_of(scene, "1")
    await scene.close_attempt("1", 1, f.Disposal.SUSPEND)
    await scene.until(lambda: vm in scene.custody.state.saved, "saved")
    await scene.place("1", "host001", attempt=2)
    await scene.until(lambda: scene.started("1", 2) == 1, "it continues elsewhere")
    await scene.close_attempt("1", 2, f.Disposal.MIGRATE)
    await scene.place("1", "host002", attempt=3)
    await scene.until(lambda: scene.started("1", 3) == 1, "it has moved")
    assert vm_of(scene, "1") == vm
    assert scene.one.store.vms[vm].history[-1].host_name == "host002"
    await scene.until(lambda: not hearsay(scene).owed, "what was found before it was announced has been announced")
    assert trusted(scene)
    assert not heard(scene, "missed")
