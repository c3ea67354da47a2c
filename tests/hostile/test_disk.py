"""A job that fills the disk: it is ended with the reason, whatever shape it gives to what it writes, and the cloud goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phoenix.local.process import disk
from phoenix.local.process.disk import Disk, Held
from tests.integration.up_cloud import Cloud, until
from tests.support.guest_door import HOST
from tests.support.hypervisor import ISOLATIONS, started
from tests.support.small_disk import SmallDisk
from tests.support.tools import tool

QUOTA_MB = 8
FILL = "dd if=/dev/zero bs=64k count=512 2>/dev/null"
WAYS = {
    "one file": f"{FILL} >big; sleep 300",
    "many directories": f'mkdir -p "a?b/ c/$(printf "\\n")x"; cd "a?b/ c"; for n in 1 2 3 4; do {FILL} >$n; done; sleep 300',
    "deleted and open": f"exec 3>gone; rm gone; {FILL} >&3; sleep 300",
    "a background process": f"({FILL} >big; sleep 300) & exec 1>&2; wait",
    "its own temporary directory": f"{FILL} >$TMPDIR/big; sleep 300",
}
OUTSIDE = f'own=$(mktemp /tmp/hostile.XXXXXX); {FILL} >"$own"; sleep 300'


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "EVERY_S", 0.0)
    monkeypatch.setattr(disk, "RESTS", 0.0)


@pytest.mark.parametrize("isolate", ISOLATIONS)
async def test_a_job_over_its_quota_has_failed_with_the_reason(tmp_path: Path, isolate: str) -> None:
    async with started(tmp_path / "data", isolate, disk_mb=QUOTA_MB) as hypervisor:
        ways = {**WAYS, **({} if isolate == "none" else {"outside": OUTSIDE})}
        units = {way: str(number) for number, way in enumerate(ways, 1)}
        lives = {way: hypervisor.door.add(units[way], script=f"#!/bin/sh\n{ways[way]}\n") for way in ways}
        modest = hypervisor.door.add("99", script="#!/bin/sh\nhead -c 1000000 /dev/zero >little; echo done\n")
        vms = [await hypervisor.boot(unit) for unit in (*units.values(), "99")]
        await hypervisor.until_ended(*vms)
        for way, life in lives.items():
            assert life.report is not None, way
            assert life.report["exit"] == 137, way
            assert "MiB on the disk, of the 8 MiB of a job" in life.report["note"], way
            assert "killed: it held" in life.text("stderr"), way
        assert modest.report is not None
        assert modest.report["exit"] == 0
        assert modest.report["note"] is None


async def test_an_instance_over_its_quota_ends_and_its_last_words_say_why(tmp_path: Path) -> None:
    async with started(tmp_path / "data", ISOLATIONS[0], disk_mb=QUOTA_MB) as hypervisor:
        script = f"#!/bin/sh\n{FILL} >big\nsleep 300\n"
        hypervisor.door.add("web.1", kind="instance", script=script, health_path="/healthz")
        (why,) = await hypervisor.until_ended(await hypervisor.boot("web.1"))
        assert "killed: it held" in why
        assert "of the 8 MiB of a job" in why


async def test_a_rank_without_a_script_ends_as_well(tmp_path: Path) -> None:
    async with started(tmp_path / "data", ISOLATIONS[0], disk_mb=QUOTA_MB) as hypervisor:
        hypervisor.door.add("1", rank=1, ranks=2, script=None)
        vm = await hypervisor.boot("1", rank=1)
        machine = hypervisor.driver._vms[vm.vm_id].machine
        await hypervisor.door.until(lambda: machine.cell is not None)
        await asyncio.to_thread(Path(machine.room.work, "big").write_bytes, b"x" * (32 << 20))
        (why,) = await hypervisor.until_ended(vm)
        assert "killed: it held" in why
        await hypervisor.driver.clean(vm, HOST)


class Room:
    """What is free, and what VMs hold: the largest goes first, and is emptied."""

    def __init__(self, place: Path, sizes: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes = sizes
        self.ended: list[tuple[int, bool, str]] = []
        self.place = place
        self.disk = Disk([str(place)], 1000, self.held, self.end)
        for vm in sizes:
            (place / str(vm)).mkdir()
            (place / str(vm) / "big").write_bytes(b"x" * sizes[vm])
        monkeypatch.setattr(disk, "LEAST_BYTES", 1)

    def held(self) -> dict[int, Held]:
        return {vm: Held((str(self.place / str(vm)),), ()) for vm in self.sizes}

    async def end(self, vm: int, why: str, empty: bool) -> None:
        self.ended.append((vm, empty, why))
        del self.sizes[vm]


async def test_on_a_disk_that_is_almost_full_the_largest_goes_first_and_nobody_who_holds_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, {1: 17 << 20, 2: 20 << 20, 3: 1 << 20}, monkeypatch)
    short = os.stat(tmp_path).st_dev, disk.BYTES
    assert [await room.disk._look(short) for _ in range(3)] == [True, True, False]
    assert [(vm, empty) for vm, empty, _ in room.ended] == [(2, True), (1, True)]
    assert "almost full, and it used most of it: 20 MiB" in room.ended[0][2]


async def test_whoever_has_used_up_the_number_of_files_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(tmp_path, {1: 32 << 20, 2: 0}, monkeypatch)
    for number in range(disk.LEAST_FILES):
        (tmp_path / "2" / str(number)).touch()
    assert await room.disk._look((os.stat(tmp_path).st_dev, disk.FILES))
    assert [vm for vm, *_ in room.ended] == [2]
    assert "it used most of it: 10002 files" in room.ended[0][2]


async def test_who_cannot_be_counted_goes_when_room_is_short_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, {1: 32 << 20, 2: 0}, monkeypatch)
    run = subprocess.run

    def slow(argv: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        if str(tmp_path / "2") in argv:
            raise subprocess.TimeoutExpired(argv, 0.0)
        return run(argv, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "run", slow)
    assert not await room.disk._look(None)
    assert await room.disk._look((os.stat(tmp_path).st_dev, disk.BYTES))
    assert [vm for vm, *_ in room.ended] == [2]


async def test_the_watch_survives_whatever_it_looks_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "LOOK_S", 0.0)
    asked = asyncio.Event()

    def held() -> dict[int, Held]:
        loop.call_soon_threadsafe(asked.set)
        raise RecursionError

    loop = asyncio.get_running_loop()
    watch = asyncio.create_task(Disk([str(tmp_path)], 1, held, room_end).watch())
    for _ in range(2):
        await asyncio.wait_for(asked.wait(), 20)
        asked.clear()
    assert not watch.done()
    watch.cancel()


async def room_end(vm: int, why: str, empty: bool) -> None:
    raise AssertionError(f"{vm} {why} {empty}")


class Small(Cloud):
    """A cloud whose whole directory, jobs' rooms and journal alike, is on a small disk, where its commands are as well."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.disk = SmallDisk(data, 256)

    def phoenix(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=self.environment(), check=False)

    def up(self) -> None:
        words = ["up", "--detach", "--isolate", "none", "--hosts", "2", "--balancer", "none"]
        done = self.phoenix(self.disk.inside([sys.executable, "-m", "phoenix.cli", *words]))
        assert done.returncode == 0, done.stderr

    def run(self, *words: str, **_: object) -> subprocess.CompletedProcess[str]:  # type: ignore[override]
        enter = [str(tool("nsenter")), "--user", "--mount", "--preserve-credentials", "--target", str(min(self.pids()))]
        return self.phoenix([*enter, sys.executable, "-m", "phoenix.cli", *words])

    def close(self) -> None:
        if self.pids():
            super().close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    found = Small(tmp_path / "data")
    yield found
    found.close()


@pytest.mark.long
def test_jobs_that_fill_the_disk_of_the_cloud_fail_and_the_cloud_goes_on(small: Small) -> None:
    """They need no journal for that, which may be full; with room again it is written."""
    small.up()
    fill = "trap '' TERM; while :; do cat /dev/zero >>big; cat /dev/zero >$TMPDIR/big; done"
    jobs = [small.ok("submit", "--wrap", fill).strip() for _ in range(3)]

    def states() -> list[str]:
        return [small.json("show", job)["state"] for job in jobs]

    until(lambda: states() == ["failed"] * 3, "they are not all ended")
    assert "almost full" in small.ok("show", jobs[0])
    until(lambda: small.status()["healthy"], "the cloud does not come back")
    job = small.ok("submit", "--wrap", "true").strip()
    until(lambda: small.json("show", job)["state"] == "completed", "the next job does not run")
    waits = small.ok("submit", "--wrap", "sleep 300").strip()
    small.ok("cancel", waits)
    until(lambda: small.json("show", waits)["state"] == "cancelled", "it is not cancelled")
