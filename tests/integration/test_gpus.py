"""GPUs of the embedded cloud, on stand-in device nodes: a VM that asks for devices has particular ones, its job opens those and
no others, and what it leaves is given to the next one."""

from __future__ import annotations

import os
import stat
import xmlrpc.client
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from phoenix.local.driver import Gpu
from phoenix.local.opennebula import render
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import Lcm, VmState
from phoenix.local.opennebula.testing import running_server
from phoenix.local.process.devices import visible
from phoenix.local.process.driver import ProcessDriver
from phoenix.local.process.isolation import Isolation
from schemas.dimensions import EMBEDDED
from tests.support.gpu_nodes import AS_ROOT, gpu_nodes
from tests.support.guest_door import GuestDoor, Life, token_of
from tests.support.until import until

LOOK = """#!/bin/sh
for node in {nodes}; do head -c 1 $node >/dev/null 2>&1 && echo "opens ${{node##*/}}"; done
echo "visible $CUDA_VISIBLE_DEVICES, $PHOENIX_GPUS: ${{PHOENIX_GPU_DEVICES##*/}}"
"""


@pytest.fixture
def nodes() -> Iterator[tuple[str, ...]]:
    """Two cards that any user may open, as those of NVIDIA, and one that only root may."""
    with gpu_nodes(0o666, 0o666, 0o600) as found:
        yield found


class Site:
    """An embedded OpenNebula with one host, the process hypervisor, and the door of the guests."""

    def __init__(self, server: OpenNebula, door: GuestDoor, nodes: tuple[str, ...]) -> None:
        self.server, self.door, self.nodes = server, door, nodes
        self._units = 0

    async def call(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        body = xmlrpc.client.dumps((self.server.session, *arguments), method).encode()
        return tuple(xmlrpc.client.loads(await self.server.answer(body))[0][0])

    async def deploy(self, gpus: int, script: str, wish: str = 'CLASS="0302"') -> tuple[int, Life, tuple[Any, ...]]:
        self._units += 1
        unit = str(self._units)
        life = self.door.add(unit, script=script)
        tag = f"cloud/{unit}/1/0"
        context = f'PHOENIX_ID="{tag}", PHOENIX_URL="{self.door.url}", PHOENIX_TOKEN="{token_of(tag)}"'
        pci = f"PCI=[ {wish} ]\n" * gpus
        template = f'CPU="1"\nMEMORY="128"\nPHOENIX_DEPARTMENT="hpc"\n{pci}CONTEXT=[ {context} ]\n'
        vm = (await self.call("one.vm.allocate", template, True))[1]
        return vm, life, await self.call("one.vm.deploy", vm, 0, True, -1, "")

    async def run(self, gpus: int) -> list[str]:
        """What a job with this many GPUs says, when its VM has ended."""
        vm, life, answer = await self.deploy(gpus, self.look())
        assert answer[0], answer
        await self.ended(vm)
        return life.text().splitlines()

    async def ended(self, vm: int) -> None:
        await until(lambda: self.server.store.vm(vm).state == VmState.POWEROFF)
        await self.call("one.vm.action", "terminate-hard", vm)
        await self.server.parts.settle()

    def look(self) -> str:
        return LOOK.format(nodes=" ".join(self.nodes))

    def who(self) -> list[int]:
        """The VM of each device, as OpenNebula shows the host."""
        store = self.server.store
        store.host(0).probed = True
        host = etree.fromstring(render.host(store.host(0), store.cluster(0), store.usage(0)))
        return [int(each.text) for each in host.iterfind("HOST_SHARE/PCI_DEVICES/PCI/VMID")]


@pytest.fixture
async def site(tmp_path: Path, nodes: tuple[str, ...]) -> AsyncIterator[Site]:
    driver = ProcessDriver(tmp_path / "process", core_share=1.0, gpus=nodes)
    settings = Settings(gpu_devices=nodes)
    async with GuestDoor() as door, running_server(1, driver, cores=8, settings=settings) as server:
        yield Site(server, door, nodes)


async def test_a_job_opens_its_gpu_and_not_its_neighbours(site: Site) -> None:
    wait = "#!/bin/sh\n" + site.look().partition("\n")[2] + "echo up; sleep 60\n"
    first, life, _ = await site.deploy(1, wait)
    await site.door.until(lambda: "up" in life.text())
    if not AS_ROOT:
        await only_variables(site, life)
        return
    assert life.text().splitlines()[:-1] == ["opens gpu0", "visible 0, 1: gpu0"]
    assert await site.run(1) == ["opens gpu1", "visible 0, 1: gpu1"]
    assert await site.run(2) == ["opens gpu1", "opens gpu2", "visible 0,1, 2: gpu2"], "released, and only root's own"
    assert await site.run(0) == ["visible , 0: "]
    assert site.who() == [first, -1, -1]
    await site.call("one.vm.action", "terminate-hard", first)
    await site.server.parts.settle()
    assert site.who() == [-1, -1, -1]
    assert await site.run(1) == ["opens gpu0", "visible 0, 1: gpu0"], "it is given to the next one"
    assert [stat.S_IMODE(os.stat(node).st_mode) for node in site.nodes] == [0o666, 0o666, 0o600], "nothing is changed"


async def only_variables(site: Site, life: Life) -> None:
    """Without root nothing keeps jobs from a device that the hypervisor's user can open, and the driver says so."""
    assert "visible 0, 1: zero" in life.text()
    assert "can open every GPU" in site.server.driver.isolation()["why"]  # type: ignore[attr-defined]
    assert (await site.run(1))[-1] == "visible 1, 1: full"


async def test_a_job_cannot_undo_what_closes_its_neighbours_gpu(site: Site) -> None:
    other = site.nodes[1]
    escape = f"""#!/bin/sh
umount {other}; rm -f {other}; mknod mine c 1 5 && head -c 1 mine && echo MADE
unshare -Urm sh -c 'umount {other}; umount -l {other}; head -c 1 {other} && echo UNMOUNTED'
nsenter -m -t 1 head -c 1 {other} && echo LEFT
head -c 1 {other} && echo OPENED
echo tried
"""
    vm, life, _ = await site.deploy(1, escape)
    await site.ended(vm)
    assert "tried" in life.text()
    if AS_ROOT:
        assert life.text() == "tried\n"


async def test_a_vm_that_finds_no_device_is_refused_and_takes_nothing(site: Site) -> None:
    vm, _, answer = await site.deploy(len(site.nodes) + 1, site.look())
    assert not answer[0]
    assert answer[1].endswith(f"virtual machine [{vm}] does not fit in host [0]. Unavailable PCI device.")
    assert not (await site.deploy(1, site.look(), 'CLASS="0200"'))[2][0]
    assert set(site.who()) == {-1}


async def test_a_device_is_given_by_its_address(site: Site) -> None:
    vm, _, answer = await site.deploy(1, "#!/bin/sh\nsleep 60\n", 'SHORT_ADDRESS="02:00.0"')
    assert answer[0]
    assert site.who()[:2] == [-1, vm]
    assert site.server.store.vm(vm).template.vectors("PCI")[0]["ADDRESS"] == "0000:02:00:0"


async def test_a_vm_with_a_gpu_is_neither_saved_nor_moved(site: Site) -> None:
    vm, life, _ = await site.deploy(1, "#!/bin/sh\necho up; sleep 60\n")
    await site.door.until(lambda: life.text() == "up\n")
    await site.call("one.vm.action", "stop", vm)
    await site.server.parts.settle()
    found = site.server.store.vm(vm)
    assert (found.state, found.lcm) == (VmState.ACTIVE, Lcm.RUNNING)
    assert "cannot be migrated" in (await site.call("one.vm.migrate", vm, 0, True, True, -1, 0))[1]
    assert site.who()[0] == vm


@pytest.mark.parametrize(
    ("hosts", "gpus", "known", "expected"),
    [
        (3, 0, (), [[], [], []]),
        (2, 2, (), [["", ""], ["", ""]]),
        (3, 0, ("a", "b"), [["a"], ["b"], []]),
        (2, 0, ("a", "b", "c"), [["a", "b"], ["c"]]),
        (3, 2, ("a", "b", "c"), [["a", "b"], ["c"], []]),
    ],
)
async def test_devices_are_dealt_to_hosts_none_twice(
    hosts: int, gpus: int, known: tuple[str, ...], expected: list[list[str]]
) -> None:
    async with running_server(hosts, settings=Settings(size=EMBEDDED._replace(gpus=gpus), gpu_devices=known)) as server:
        assert [[device.node for device in host.devices] for host in server.store.hosts.values()] == expected


async def test_a_vm_has_the_same_devices_after_a_restart_of_opennebula(tmp_path: Path) -> None:
    settings = Settings(size=EMBEDDED._replace(gpus=2))
    template = 'CPU="1"\nMEMORY="128"\nPCI=[ SHORT_ADDRESS="02:00.0" ]\n'
    async with running_server(1, settings=settings, data_dir=tmp_path) as server:
        site = Site(server, GuestDoor(), ())
        vm = (await site.call("one.vm.allocate", template, True))[1]
        assert (await site.call("one.vm.deploy", vm, 0, True, -1, ""))[0]
        await server.parts.settle()
    async with running_server(1, settings=settings, data_dir=tmp_path) as server:
        assert Site(server, GuestDoor(), ()).who() == [-1, vm]


def test_without_gpus_there_is_nothing_new(tmp_path: Path) -> None:
    isolation = Isolation(tmp_path, "none")
    assert "GPU" not in isolation.status()["why"]
    assert visible((), (), fenced=True) == {}
    assert visible((Gpu(3, "/dev/x"),), ("/dev/x",), fenced=False)["CUDA_VISIBLE_DEVICES"] == "3"
