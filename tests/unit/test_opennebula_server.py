"""The embedded OpenNebula beyond what was recorded: races, capacity, bounds, guests, tokens, steering."""

from __future__ import annotations

import asyncio
import json
import xmlrpc.client
from typing import Any

import aiohttp
import pyone
import pytest
from lxml import etree

from phoenix.local.driver import HostSpec, VmSpec
from phoenix.local.opennebula import store as store_module
from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.server import BODY_BYTES_MAX, OpenNebula
from phoenix.local.opennebula.states import Action, Lcm, VmState
from phoenix.local.opennebula.testing import running_server

TEMPLATE = 'NAME="a"\nCPU="1"\nMEMORY="128"\nPHOENIX_ID="c/u/1/0"\nCONTEXT=[ TOKEN="t" ]\n'
RUNNING = (VmState.ACTIVE, Lcm.RUNNING)


async def call(server: OpenNebula, method: str, *arguments: Any, session: str | None = None) -> tuple[Any, ...]:
    """One call without HTTP; a fault is `(False, text, code)`."""
    body = xmlrpc.client.dumps((server.session if session is None else session, *arguments), method).encode()
    try:
        return tuple(xmlrpc.client.loads(await server.answer(body))[0][0])
    except xmlrpc.client.Fault as fault:
        return False, fault.faultString, fault.faultCode


async def started(server: OpenNebula, host: int = 0) -> int:
    """A VM that was allocated and deployed; settled."""
    vm: int = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
    assert (await call(server, "one.vm.deploy", vm, host, False, -1, ""))[0]
    await server.parts.settle()
    return vm


def state(server: OpenNebula, vm: int) -> tuple[int, int]:
    """STATE and LCM_STATE."""
    found = server.store.vm(vm)
    return found.state, found.lcm


async def test_guest_lives_with_its_vm() -> None:
    lives: list[str] = []

    async def guest(vm: VmSpec, host: HostSpec) -> None:
        lives.append(f"{vm.attributes['PHOENIX_ID']} {vm.context['TOKEN']} on {host.name}")
        try:
            await asyncio.Event().wait()
        finally:
            lives.append("stopped")

    async with running_server(driver=DummyDriver(guest=guest)) as server:
        vm = await started(server)
        await asyncio.sleep(0)
        assert lives == ["c/u/1/0 t on host000"]
        await call(server, "one.vm.action", "terminate", vm)
        await server.parts.settle()
        assert lives[1:] == ["stopped"]
        assert state(server, vm)[0] == VmState.DONE


async def test_guest_that_ends_powers_its_vm_off() -> None:
    async def guest(vm: VmSpec, host: HostSpec) -> None:
        return

    async with running_server(driver=DummyDriver(guest=guest)) as server:
        vm = await started(server)
        async with asyncio.timeout(2):
            while state(server, vm)[0] != VmState.POWEROFF:  # noqa: ASYNC110
                await asyncio.sleep(0)
        last = server.store.vm(vm).history[-1]
        assert last.action == Action.MONITOR
        assert last.retime
        assert server.store.usage(0) == (100, 128 * 1024), "a powered-off VM keeps its capacity, as in OpenNebula"


class EndsAtOnce(DummyDriver):
    """A VM that has ended before its boot is known to have succeeded."""

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        deploy_id = await super().boot(vm, host)
        self.end(vm.vm_id)
        return deploy_id


async def test_end_before_running_is_not_lost() -> None:
    async with running_server(driver=EndsAtOnce()) as server:
        vm = await started(server)
        await asyncio.sleep(0)
        await server.parts.settle()
        assert state(server, vm) == (VmState.POWEROFF, Lcm.LCM_INIT)


class Slow(DummyDriver):
    """A driver that notes what is asked of it, and takes time to undo a cancelled boot."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.undone = asyncio.Event()

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        self.asked.append("boot")
        try:
            await asyncio.Event().wait()
        finally:
            self.asked.append("undo")
            await asyncio.sleep(0.01)
            self.asked.append("undone")
        return ""

    async def cancel(self, vm: VmSpec, host: HostSpec) -> None:
        self.asked.append("cancel")

    async def clean(self, vm: VmSpec, host: HostSpec) -> None:
        self.asked.append("clean")


@pytest.mark.parametrize("operation", [3, 4])
async def test_cleaning_up_waits_for_the_cancelled_boot(operation: int) -> None:
    driver = Slow()
    async with running_server(driver=driver) as server:
        vm = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
        await call(server, "one.vm.deploy", vm, 0)
        async with asyncio.timeout(2):
            while state(server, vm)[1] != Lcm.BOOT:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await call(server, "one.vm.recover", vm, operation))[0]
        await server.parts.settle()
        assert driver.asked == ["boot", "undo", "undone", "cancel", "clean"]
        assert state(server, vm)[0] == (VmState.DONE if operation == 3 else VmState.PENDING)


class Broken(DummyDriver):
    """A driver with a bug."""

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        raise KeyError("oops")


async def test_a_bug_in_a_driver_is_a_failure_of_the_vm() -> None:
    async with running_server(driver=Broken()) as server:
        vm = await started(server)
        assert state(server, vm) == (VmState.ACTIVE, Lcm.BOOT_FAILURE)
        assert "KeyError" in server.store.vm(vm).user_template.get("ERROR")


async def test_capacity_is_given_back() -> None:
    async with running_server(hosts=2, cores=2) as server:
        first, second = await started(server), await started(server)
        third = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
        answer = await call(server, "one.vm.deploy", third, 0, True, -1, "")
        assert answer[1:3] == (
            f"[one.vm.deploy] virtual machine [{third}] does not fit in host [0]. Not enough CPU: 100/0",
            2048,
        )
        await call(server, "one.vm.migrate", first, 1, True, False, -1, 0)
        await server.parts.settle()
        assert (server.store.usage(0), server.store.usage(1)) == ((100, 131072), (100, 131072))
        for vm in (first, second):
            await call(server, "one.vm.action", "terminate", vm)
        await server.parts.settle()
        assert (server.store.usage(0), server.store.usage(1)) == ((0, 0), (0, 0))
        assert not server.store.hosts[0].vms


async def test_final_vms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FINAL_VMS_MAX", 3)
    async with running_server() as server:
        for _ in range(5):
            await call(server, "one.vm.action", "terminate", await started(server))
            await server.parts.settle()
        assert list(server.store.final_vms) == [2, 3, 4]
        assert (await call(server, "one.vm.info", 0, False))[2] == 1024
        assert (await call(server, "one.vm.info", 4, False))[0]
        assert not server.machine.busy


async def test_pool_is_cached_and_current() -> None:
    async with running_server() as server:
        vm = await started(server)
        pools = [(await call(server, "one.vmpool.infoextended", -2, -1, -1, -1))[1] for _ in range(2)]
        assert pools[0] == pools[1]
        assert "PHOENIX_ID" in pools[0]
        assert "PHOENIX_ID" not in (await call(server, "one.vmpool.info", -2, -1, -1, -1))[1], (
            "a short pool has no attributes"
        )
        await call(server, "one.vm.update", vm, 'NEW="1"', 1)
        assert "<NEW>" in (await call(server, "one.vmpool.infoset", str(vm), True))[1]


async def test_tokens_expire_and_are_revoked() -> None:
    async with running_server(steering=True) as server:
        token = (await call(server, "one.user.login", "oneadmin", "", 60))[1]
        session = f"oneadmin:{token}"
        assert (await call(server, "one.system.version", session=session))[0]
        server.clock.advance(61)
        assert (await call(server, "one.system.version", session=session))[2] == 256
        token = (await call(server, "one.user.login", "oneadmin", "", -1))[1]
        assert (await call(server, "one.system.version", session=f"oneadmin:{token}"))[0]
        await call(server, "one.user.login", "oneadmin", token, 0)
        assert (await call(server, "one.system.version", session=f"oneadmin:{token}"))[2] == 256


async def test_users_see_and_touch_only_their_own() -> None:
    async with running_server() as server:
        await call(server, "one.user.allocate", "ann", "pw", "", [1])
        await call(server, "one.user.allocate", "ben", "pw", "", [1])
        vm = (await call(server, "one.vm.allocate", TEMPLATE, True, session="ann:pw"))[1]
        assert f"<ID>{vm}</ID>" in (await call(server, "one.vmpool.info", -2, -1, -1, -1, session="ann:pw"))[1]
        assert "<ID>" not in (await call(server, "one.vmpool.info", -2, -1, -1, -1, session="ben:pw"))[1]
        assert (await call(server, "one.vm.action", "terminate", vm, session="ben:pw"))[2] == 512
        assert (await call(server, "one.vm.recover", vm, 3, session="ann:pw"))[2] == 512, (
            "recover is the administrator's"
        )
        assert (await call(server, "one.vm.action", "terminate", vm, session="ann:pw"))[0]


async def test_steering_is_off_unless_asked_for() -> None:
    async with running_server() as server:
        assert (await call(server, "phoenix.dummy.steer", "{}"))[2] == -506
    async with running_server(steering=True) as server:
        await call(server, "one.user.allocate", "ann", "pw", "", [1])
        assert (await call(server, "phoenix.dummy.steer", '{"op": "clear"}', session="ann:pw"))[2] == 512
        for wrong in ("no json", "[]", '{"op": "x"}', '{"op": "rule", "step": "x"}', '{"op": "release", "rule": 9}'):
            assert (await call(server, "phoenix.dummy.steer", wrong))[2] in (1024, 8192)


async def test_host_fails_and_returns() -> None:
    async with running_server(hosts=2, steering=True) as server:
        vm = await started(server)
        await call(server, "phoenix.dummy.steer", json.dumps({"op": "host", "host": 0, "down": "power cut"}))
        assert server.store.hosts[0].state == 3
        assert "power cut" in server.store.hosts[0].template.get("ERROR")
        assert state(server, vm) == (VmState.ACTIVE, Lcm.UNKNOWN)
        await call(server, "phoenix.dummy.steer", json.dumps({"op": "end", "vm": vm}))
        assert state(server, vm) == (VmState.ACTIVE, Lcm.UNKNOWN), "nobody hears of it while the host is down"
        for expected in (0, 2):
            await call(server, "phoenix.dummy.steer", json.dumps({"op": "host", "host": 0}))
            assert server.store.hosts[0].state == expected
        server.clock.advance(31)
        await call(server, "phoenix.dummy.steer", json.dumps({"op": "report", "vm": vm, "state": "RUNNING"}))
        await asyncio.sleep(0)
        assert state(server, vm)[0] == VmState.POWEROFF


async def test_closing_does_not_wait_for_what_steering_holds() -> None:
    loop = asyncio.get_running_loop()
    async with running_server(steering=True) as server:
        assert server.steering is not None
        server.steering.add("vmm", hold=True)
        deleted = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
        await call(server, "one.vm.deploy", deleted, 0)
        await server.parts.settle()
        assert (await call(server, "one.vm.recover", deleted, 3))[0]
        await server.parts.settle()
        began = loop.time()
    assert loop.time() - began < 20


async def test_http_edges() -> None:
    async with running_server() as server, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        async with http.get(server.url) as response:
            assert response.status == 405
        async with http.post(server.url.replace("RPC2", "other"), data=b"") as response:
            assert response.status == 404
        async with http.post(server.url, data=b"x" * (BODY_BYTES_MAX + 1)) as response:
            assert response.status == 413
        long = xmlrpc.client.dumps(
            (server.session, 'NAME="l"\nCPU=1\nMEMORY=1\nA="' + "<" * 400_000 + '"', True), "one.vm.allocate"
        )
        async with http.post(server.url, data=long.encode()) as response:
            assert xmlrpc.client.loads(await response.read())[0][0][0] is True


@pytest.mark.parametrize(
    ("cpu", "memory", "limits"),
    [
        ("", "", (800, 16_777_216)),
        ("100", "1048576", (700, 15_728_640)),
        ("-800", "0", (1600, 16_777_216)),
        ("25%", "-50%", (600, 25_165_824)),
        ("some", "1e3", (800, 16_777_216)),
    ],
)
async def test_a_hosts_reserve_is_taken_from_what_vms_may_ask_for(
    cpu: str, memory: str, limits: tuple[int, int]
) -> None:
    async with running_server(1) as server:
        text = f'RESERVED_CPU = "{cpu}"\nRESERVED_MEM = "{memory}"'
        assert (await call(server, "one.host.update", 0, text, 1))[0]
        share = etree.fromstring((await call(server, "one.host.info", 0))[1]).find("HOST_SHARE")
        assert tuple(int(share.findtext(name)) for name in ("MAX_CPU", "MAX_MEM")) == limits
        assert tuple(int(share.findtext(name)) for name in ("TOTAL_CPU", "TOTAL_MEM")) == (800, 16_777_216)


async def test_context_has_attributes_of_the_vm_instead_of_variables() -> None:
    """As oned does: of a name that is no attribute nothing is left."""
    async with running_server(1) as one:
        context = 'A = "$NAME-$VMID", B = "$HOME/x", C = "$UNAME", D = "$OTHER$x", E = "5 dollars"'
        text = f'NAME = "v"\nCPU = 1\nMEMORY = 64\nOTHER = "mine"\nCONTEXT = [ {context} ]'
        client = pyone.OneServer(one.url, session=one.session)
        vm = one.store.vms[await asyncio.to_thread(client.vm.allocate, text, True)]
        found = vm.template.vector("CONTEXT") or {}
        assert [found[name] for name in "ABCDE"] == [f"v-{vm.id}", "/x", "oneadmin", "minex", "5 dollars"]
