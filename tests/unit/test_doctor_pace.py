"""What the doctor measures of one VM that runs, and what it makes of it; nothing is ever left behind."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from phoenix.doctor import pace
from phoenix.doctor.dry_run import dry_run
from phoenix.doctor.endpoint import Endpoint
from phoenix.doctor.findings import Finding, worst
from phoenix.doctor.pace import Took
from phoenix.doctor.requirements import Wanted
from phoenix.local.driver import HostSpec, VmSpec
from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.testing import running_server
from services.runtime.config.pace import BOOT_S
from tests.support.ports import free_port
from tests.unit.test_doctor import of

# No image and no network: the embedded server has none.
KVM = Wanted(hypervisor="kvm", template={"DISK": {"TYPE": "fs", "SIZE": "64"}})
LAB = Took(14.0, 33.0, 8.5)


async def dry(one: OpenNebula, wanted: Wanted) -> list[Finding]:
    endpoint = Endpoint(one.url, one.session, "the-file", timeout_s=5.0)
    try:
        return await asyncio.to_thread(dry_run, endpoint, wanted, 0)
    finally:
        endpoint.close()


async def calls_once(vm: VmSpec, _host: HostSpec) -> None:
    """A guest: it calls the cloud, is answered that it is busy, and waits."""
    url = f"{vm.context['PHOENIX_URL']}/v1/guest/{vm.context['PHOENIX_ID'].partition('/')[2]}/boot"

    def call() -> int:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return 200
        except urllib.error.HTTPError as error:
            return error.code

    assert await asyncio.to_thread(call) == 503
    await asyncio.get_running_loop().create_future()


def at(port: int) -> Wanted:
    return replace(KVM, door=f"http://127.0.0.1:{port}", listen=f"127.0.0.1:{port}")


async def test_a_vm_is_run_its_guest_heard_and_ended() -> None:
    async with running_server(2, DummyDriver(guest=calls_once)) as one:
        found = await dry(one, at(free_port()))
        [told] = of(found, "pace")
        assert told.level == "ok"
        assert told.found.startswith("a VM runs after 0.")
        assert "its guest called after 0." in told.found
        assert "after it was asked to; the configuration's times suit that" in told.found
        assert of(found, "dry run")[-1].found == "nothing of it is left"
        assert one.store.vms == {}


async def test_where_the_address_is_taken_the_rest_is_measured() -> None:
    async with running_server(1, DummyDriver(guest=calls_once)) as one, _taken() as port:
        found = of(await dry(one, at(port)), "pace")
        assert [x.level for x in found] == ["ok", "warn"]
        assert "its guest was not listened for" in found[1].found
        assert one.store.vms == {}


def _taken() -> _Taken:
    return _Taken()


class _Taken:
    async def __aenter__(self) -> int:
        self.server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_error: object) -> None:
        self.server.close()
        await self.server.wait_closed()


async def test_a_guest_that_does_not_call_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "CALL_S", 0.2)
    async with running_server(1) as one:
        found = of(await dry(one, at(free_port())), "pace")
        assert [x.level for x in found] == ["ok", "fail"]
        assert found[1].found.startswith("no guest called http://127.0.0.1:")
        assert one.store.vms == {}


async def test_a_vm_that_does_not_boot_is_told_with_opennebulas_words() -> None:
    async with running_server(1, steering=True) as one:
        assert one.steering is not None
        one.steering.add(step="boot", fail="libvirt says no")
        found = of(await dry(one, at(free_port())), "pace")
        assert [x.level for x in found] == ["fail"]
        assert "does not run: " in found[0].found
        assert one.store.vms == {}


async def test_a_host_without_room_is_no_fault() -> None:
    async with running_server(1, cores=1, memory_mb=256) as one:
        found = of(await dry(one, at(free_port())), "pace")
        assert [x.level for x in found] == ["warn"]
        assert "not measured" in found[0].found


# ------------------------------------------------------------------------------------------------------ what follows from it


def test_what_a_site_has_by_default_suits_what_was_measured_at_one() -> None:
    assert pace.proposed(LAB) == {"boot_timeout_s": 360, "grace_s": 20, "kill_s": 55}
    assert worst(pace.judged(LAB, Wanted())) == "ok"
    assert Wanted().boot_timeout_s == BOOT_S


def test_what_the_embedded_cloud_has_does_not_and_what_would_is_told() -> None:
    quick = Wanted(boot_timeout_s=60.0, grace_s=0.3, kill_s=5.0)
    [told] = pace.judged(LAB, quick)
    values = "[department.batch] and [department.web] boot_timeout_s = 360, [policy] grace_s = 20, [policy] kill_s = 55"
    assert (told.level, told.fix.rpartition(": ")[2]) == ("warn", values)
    [told] = pace.judged(LAB, replace(quick, boot_timeout_s=180.0, grace_s=10.0, kill_s=27.0))
    assert told.fix.rpartition(": ")[2] == "[policy] kill_s = 55", "at least half of each"


def test_one_that_does_not_end_when_it_is_asked_is_told() -> None:
    found = pace.judged(Took(1.0, 2.0, None), Wanted())
    assert [x.level for x in found] == ["ok", "warn"]
    assert "ACPI" in found[1].fix


@pytest.mark.parametrize(("seconds", "said"), [(0.4, 1), (9.2, 10), (12, 15), (61, 90), (301, 360), (360, 360)])
def test_numbers_are_ones_that_a_person_would_write(seconds: float, said: int) -> None:
    assert pace._round(seconds) == said
