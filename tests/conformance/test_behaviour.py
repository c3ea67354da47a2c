"""What was measured on a real oned and no single call shows: hosts that fail, VMs that vanish, what a recover leads to.

One test a row.  Source: BEHAVIOUR.md beside the recordings (oned 7.4.0); its pace is `tests/unit/test_opennebula_pace.py`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from lxml import etree

from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import HostState
from phoenix.local.opennebula.testing import running_server
from tests.conformance.harness import RawClient
from tests.conformance.states import TEMPLATE, Maker
from tests.conformance.test_state_action_matrix import full_name

RUNNING, UNKNOWN, POWEROFF = "ACTIVE/RUNNING", "ACTIVE/UNKNOWN", "POWEROFF"
ENABLE, DISABLE, OFFLINE = 0, 1, 2
ACTION = 2048
GUARD_S = 31


class Site:
    """An OpenNebula whose hosts are probed only when told so; VMs are made on host 0."""

    def __init__(self, client: RawClient) -> None:
        self.client, self.maker = client, Maker(client)

    async def call(self, method: str, *arguments: Any) -> Any:
        answer = await self.client.call(method, *arguments)
        await self.client.server.parts.settle()
        return answer

    async def must(self, method: str, *arguments: Any) -> Any:
        answer = await self.call(method, *arguments)
        assert answer[0], answer
        return answer[1]

    async def steer(self, **fields: Any) -> dict[str, Any]:
        told = await self.client.steer(**fields)
        await self.client.server.parts.settle()
        return told

    async def state(self, vm: int) -> str:
        xml = etree.fromstring(await self.must("one.vm.info", vm, False))
        return full_name(int(xml.findtext("STATE")), int(xml.findtext("LCM_STATE")))

    async def host(self, host: int = 0) -> Any:
        return etree.fromstring(await self.must("one.host.info", host, False))

    async def host_state(self, host: int = 0) -> HostState:
        return HostState(int((await self.host(host)).findtext("STATE")))

    async def made(self, state: str) -> int:
        vm = await self.maker.make(state, TEMPLATE, 0)
        await self.steer(op="advance", seconds=GUARD_S)
        return vm

    async def deploy(self, vm: int, enforce: bool) -> Any:
        return await self.call("one.vm.deploy", vm, 0, enforce, -1, "")

    async def fails(self, host: int = 0) -> None:
        await self.steer(op="host", host=host, down="probe died")

    async def is_back(self, host: int = 0) -> None:
        await self.steer(op="host", host=host)
        await self.steer(op="probe", host=host)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    settings = Settings(monitor_interval_s=None)
    async with running_server(3, steering=True, cores=8, memory_mb=16384, settings=settings) as server:
        for host in server.store.hosts.values():
            server.monitor.probe(host)
        client = RawClient(server)
        try:
            yield Site(client)
        finally:
            await client.close()


# ------------------------------------------------------------------------------------------------- a VM that ends by itself


async def test_a_report_about_one_vm_is_ignored_within_30_s_of_its_start(site: Site) -> None:
    vm = await site.maker.make(RUNNING, TEMPLATE, 0)
    assert (await site.steer(op="report", vm=vm, state="POWEROFF"))["taken"] is False
    assert await site.state(vm) == RUNNING
    await site.steer(op="advance", seconds=GUARD_S)
    assert (await site.steer(op="report", vm=vm, state="POWEROFF"))["taken"] is True
    assert await site.state(vm) == POWEROFF


@pytest.mark.parametrize(("missing", "becomes"), [("POWEROFF", POWEROFF), ("FAILURE", UNKNOWN)])
async def test_a_vm_absent_from_a_full_report_is_off_or_unknown_at_once(site: Site, missing: str, becomes: str) -> None:
    vm, other = await site.maker.make(RUNNING, TEMPLATE, 0), await site.maker.make(RUNNING, TEMPLATE, 0)
    await site.steer(op="sync", host=0, present={str(other): "RUNNING"}, missing=missing)
    assert await site.state(vm) == becomes
    assert await site.state(other) == RUNNING


async def test_a_vm_that_vanishes_while_it_shuts_down_is_done(site: Site) -> None:
    vm = await site.maker.make("ACTIVE/SHUTDOWN")
    await site.steer(op="sync", host=0, present={})
    assert await site.state(vm) == "DONE"


# ------------------------------------------------------------------------------------------------------------------ hosts


@pytest.mark.parametrize("enforce", [False, True])
async def test_a_disabled_host_takes_a_vm_that_is_sent_there(site: Site, enforce: bool) -> None:
    await site.must("one.host.status", 0, DISABLE)
    vm = await site.made("HOLD")
    assert (await site.deploy(vm, enforce))[0]
    assert await site.state(vm) == RUNNING


async def test_a_disabled_host_keeps_its_vms_until_a_probe_fails(site: Site) -> None:
    vm = await site.made(RUNNING)
    await site.must("one.host.status", 0, DISABLE)
    assert await site.host_state() == HostState.DISABLED
    assert await site.state(vm) == RUNNING
    await site.fails()
    assert await site.state(vm) == UNKNOWN


@pytest.mark.parametrize("enforce", [False, True])
async def test_an_offline_host_refuses_a_vm(site: Site, enforce: bool) -> None:
    await site.must("one.host.status", 0, OFFLINE)
    vm = await site.made("HOLD")
    answer = await site.deploy(vm, enforce)
    assert answer[:3] == (False, "[one.vm.deploy] Host is offline, cannot use it to deploy VM", ACTION)
    assert await site.state(vm) == "HOLD"


async def test_an_offline_host_shows_no_capacity_and_its_vms_still_report(site: Site) -> None:
    vm = await site.made(RUNNING)
    await site.must("one.host.status", 0, OFFLINE)
    host = await site.host()
    assert [host.findtext(f"HOST_SHARE/{name}") for name in ("MAX_CPU", "MAX_MEM", "TOTAL_CPU", "TOTAL_MEM")] == [
        "0"
    ] * 4
    assert await site.state(vm) == RUNNING
    assert (await site.steer(op="report", vm=vm, state="POWEROFF"))["taken"] is True
    assert await site.state(vm) == POWEROFF


@pytest.mark.parametrize("enforce", [False, True])
async def test_a_host_in_error_takes_and_runs_a_vm(site: Site, enforce: bool) -> None:
    await site.fails()
    assert await site.host_state() == HostState.ERROR
    vm = await site.made("HOLD")
    assert (await site.deploy(vm, enforce))[0]
    assert await site.state(vm) == RUNNING


async def test_an_error_makes_running_vms_unknown_and_leaves_those_that_are_off(site: Site) -> None:
    runs, off = await site.made(RUNNING), await site.made(POWEROFF)
    await site.fails()
    assert [await site.state(vm) for vm in (runs, off)] == [UNKNOWN, POWEROFF]


@pytest.mark.parametrize("how", ["report", "recover"])
async def test_when_the_host_is_back_they_stay_unknown_until_a_report_or_a_recover(site: Site, how: str) -> None:
    vm = await site.made(RUNNING)
    await site.fails()
    await site.is_back()
    assert await site.host_state() == HostState.MONITORED
    assert await site.state(vm) == UNKNOWN
    await site.steer(op="advance", seconds=GUARD_S)
    if how == "report":
        await site.steer(op="report", vm=vm, state="RUNNING")
    else:
        await site.must("one.vm.recover", vm, 1)
    assert await site.state(vm) == RUNNING


async def test_a_host_is_enabled_from_disabled_at_once(site: Site) -> None:
    await site.must("one.host.status", 0, DISABLE)
    await site.must("one.host.status", 0, ENABLE)
    assert await site.host_state() == HostState.MONITORED


@pytest.mark.parametrize("by", ["offline", "error"])
async def test_a_host_is_enabled_from_offline_and_error_through_init(site: Site, by: str) -> None:
    if by == "offline":
        await site.must("one.host.status", 0, OFFLINE)
    else:
        await site.fails()
        site.client.server.monitor.down.clear()
    await site.must("one.host.status", 0, ENABLE)
    assert await site.host_state() == HostState.INIT
    await site.steer(op="probe", host=0)
    assert await site.host_state() == HostState.MONITORED


async def test_a_host_with_vms_cannot_be_deleted(site: Site) -> None:
    await site.made(RUNNING)
    answer = await site.call("one.host.delete", 0)
    assert answer[0] is False
    assert answer[2] == ACTION
    assert await site.host_state() == HostState.MONITORED


@pytest.mark.parametrize(
    ("cpu", "memory", "says"),
    [
        ("100", 64, "Not enough CPU: 10000/800"),
        ("100", 999_999, "Not enough CPU: 10000/800"),
        ("1", 999_999, "Not enough memory"),
    ],
)
async def test_an_enforced_deploy_checks_cpu_first_then_memory(site: Site, cpu: str, memory: int, says: str) -> None:
    vm = await site.must("one.vm.allocate", f'CPU={cpu}\nMEMORY={memory}\nSCHED_REQUIREMENTS="ID = 2"', True)
    answer = await site.deploy(vm, True)
    assert answer[0] is False
    assert answer[2] == ACTION
    assert "does not fit in host [0]" in answer[1]
    assert says in answer[1]
    assert await site.state(vm) == "HOLD"


async def test_a_deploy_ignores_the_scheduling_requirements(site: Site) -> None:
    vm = await site.must("one.vm.allocate", 'CPU=1\nMEMORY=64\nSCHED_REQUIREMENTS="ID = 2"', True)
    assert (await site.deploy(vm, True))[0]
    assert await site.state(vm) == RUNNING


async def test_with_the_dummy_scheduler_nobody_places_a_pending_vm(site: Site) -> None:
    vm = await site.made("PENDING")
    for host in range(3):
        await site.steer(op="probe", host=host)
    assert await site.state(vm) == "PENDING"


# ---------------------------------------------------------------------------------------------------------------- recover

SAME, REFUSED = "no change", "refused"
BOOT_FAILURE, PROLOG_FAILURE = "ACTIVE/BOOT_FAILURE", "ACTIVE/PROLOG_FAILURE"
NEVER = (REFUSED, REFUSED, REFUSED)
# From -> what 0 failure, 1 success, 2 retry, 3 delete and 4 recreate lead to; None was not measured.
RECOVER: dict[str, tuple[str | None, ...]] = {
    RUNNING: (SAME, SAME, SAME, "DONE", "PENDING"),
    UNKNOWN: (RUNNING, RUNNING, SAME, "DONE", "PENDING"),
    "ACTIVE/BOOT": (BOOT_FAILURE, RUNNING, RUNNING, "DONE", "PENDING"),
    BOOT_FAILURE: (SAME, RUNNING, RUNNING, "DONE", "PENDING"),
    PROLOG_FAILURE: (SAME, RUNNING, RUNNING, "DONE", "PENDING"),
    "ACTIVE/EPILOG_FAILURE": (SAME, "DONE", "DONE", "DONE", None),
    "ACTIVE/SHUTDOWN": (RUNNING, "DONE", None, None, None),
    "HOLD": (*NEVER, "DONE", "PENDING"),
    POWEROFF: (*NEVER, "DONE", "PENDING"),
    "DONE": (*NEVER, SAME, REFUSED),
}


@pytest.mark.parametrize("state", RECOVER)
async def test_recover(site: Site, state: str) -> None:
    found = {}
    for operation, after in enumerate(RECOVER[state]):
        if after is not None:
            found[operation] = await _recovered(site, state, operation)
    assert found == {operation: after for operation, after in enumerate(RECOVER[state]) if after is not None}


async def _recovered(site: Site, state: str, operation: int) -> str:
    """What a recover of a fresh VM in `state` leads to."""
    if state == UNKNOWN:
        vm = await site.made(RUNNING)
        await site.fails()
        await site.is_back()
    else:
        vm = await site.maker.make(state)
    assert await site.state(vm) == state
    answer = await site.client.call("one.vm.recover", vm, operation)
    if state == "ACTIVE/BOOT" and operation in (2, 4):
        await site.steer(op="clear")  # it was the driver that hung, and it does not hang again
    await site.client.server.parts.settle()
    after = await site.state(vm)
    await site.steer(op="clear")
    if not answer[0]:
        assert (answer[2], after) == (ACTION, state)
        return REFUSED
    return SAME if after == state else after
