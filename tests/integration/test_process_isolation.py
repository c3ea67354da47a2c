"""What one VM cannot do to another, to the cloud or to the machine; and that nothing outlives a killed hypervisor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phoenix.local import locks
from phoenix.local.driver import VmSpec
from phoenix.local.process import users
from phoenix.local.process.driver import ProcessDriver
from phoenix.local.process.isolation import Isolation, IsolationUnavailableError
from phoenix.local.process.sweep import sweep
from tests.support.guest_door import HOST, GuestDoor, Life
from tests.support.until import until

DEADLINE_S = 20.0
AS_ROOT = os.geteuid() == 0
ROOT = Path(__file__).resolve().parents[2]


def needs_root(test: Any) -> Any:
    """Without root the property cannot hold: then what must hold is that the driver says so."""
    return test if AS_ROOT else test_without_root_it_says_what_is_missing


async def test_without_root_it_says_what_is_missing(tmp_path: Path) -> None:
    driver = ProcessDriver(tmp_path / "data", isolate="none")
    await driver.start(lambda vm, why: None)
    try:
        assert driver.isolation()["isolation"] == "none"
        assert "share one user" in driver.isolation()["why"]
    finally:
        await driver.close()
    with pytest.raises(IsolationUnavailableError, match="must be one of"):
        Isolation(tmp_path, "chroot")


def size(path: str) -> int:
    return os.path.getsize(path)


def exists(path: str) -> bool:
    return os.path.lexists(path)


class Yard:
    """A driver, its door, and the ends of its VMs."""

    def __init__(self, data_dir: Path, door: GuestDoor, isolate: str = "auto") -> None:
        self.data_dir = data_dir
        self.door = door
        self.driver = ProcessDriver(data_dir, isolate=isolate)
        self.ended: dict[int, str] = {}

    async def boot(self, unit: str, script: str, department: str = "hpc", memory_mb: int = 128) -> tuple[Life, VmSpec]:
        life = self.door.add(unit, script=script, department=department)
        vm = self.door.vm(unit, memory_mb=memory_mb, attributes={"PHOENIX_DEPARTMENT": department})
        await self.driver.boot(vm, HOST)
        return life, vm

    async def run(self, unit: str, script: str, **wishes: object) -> Life:
        life, vm = await self.boot(unit, script, **wishes)  # type: ignore[arg-type]
        await until(lambda: vm.vm_id in self.ended)
        return life

    def room(self, vm: VmSpec) -> str:
        return self.driver._vms[vm.vm_id].machine.room.path


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with GuestDoor() as door:
        it = Yard(tmp_path / "data", door)
        await it.driver.start(it.ended.__setitem__)
        try:
            yield it
        finally:
            await it.driver.close()


@needs_root
async def test_a_job_over_its_memory_dies_with_that_note(yard: Yard) -> None:
    hog = "#!/bin/sh\nexec /usr/bin/perl -e 'my $x = \"x\" x (512 * 1024 * 1024); sleep 60'\n"
    life = await yard.run("1", hog, memory_mb=64)
    assert life.report is not None
    assert life.report["note"] == "out of memory"
    assert life.report["exit"] == 137


@needs_root
async def test_a_script_does_not_outlive_a_child_that_was_killed_for_memory(yard: Yard) -> None:
    hog = "#!/bin/sh\n/usr/bin/perl -e 'my $x = \"x\" x (512 * 1024 * 1024); sleep 60'\nsleep 300\n"
    life = await yard.run("1", hog, memory_mb=64)
    assert life.report is not None
    assert life.report["note"] == "out of memory"
    assert life.report["exit"] != 0


@needs_root
@pytest.mark.parametrize("department", ["hpc", "other"])
async def test_a_job_reads_nothing_of_another_vm(yard: Yard, department: str) -> None:
    victim, vm = await yard.boot("1", "#!/bin/sh\necho secret > mine; chmod 644 mine; echo up; sleep 60\n")
    await yard.door.until(lambda: victim.text() == "up\n")
    room, pid = yard.room(vm), yard.driver._vms[vm.vm_id].guest.process.pid  # type: ignore[union-attr]
    spy = f"""#!/bin/sh
for what in {room}/token {room}/work/mine {room}/script /proc/{pid}/environ /proc/{pid}/cwd/mine {yard.data_dir}/uids.json; do
    cat $what && echo "READ $what"
done
ls {room} && echo LISTED room; ls {room}/.. && echo LISTED rooms; ls {yard.data_dir} && echo LISTED data
kill -9 {pid} && echo KILLED
cat $PHOENIX_TOKEN_FILE >/dev/null && echo own token
"""
    life = await yard.run("2", spy, department=department)
    assert life.text() == "own token\n"
    # The same, as root, does read: the paths above are the right ones.
    assert size(f"{room}/token")
    assert size(f"{room}/work/mine")


@needs_root
async def test_a_job_cannot_make_the_guest_read_for_it(yard: Yard) -> None:
    secret = yard.data_dir / "secret"
    secret.write_text("the secret")
    script = f"""#!/bin/sh
ln -s {secret} link; ln -s {yard.data_dir} dir; mkfifo pipe; echo fine > plain
rm ../stdout ../note; ln -s {secret} ../stdout; ln -s {secret} ../note; echo printed
"""
    yard.door.add("1", script=script, keep=["*", "dir/*", "*/secret"])
    vm = yard.door.vm("1")
    await yard.driver.boot(vm, HOST)
    await until(lambda: vm.vm_id in yard.ended)
    life = yard.door.lives["1/1/0"]
    assert life.files == {"plain": b"fine\n"}
    assert life.text() == "printed\n"
    assert "the secret" not in json.dumps(life.report)


@needs_root
async def test_a_job_has_no_privilege_and_cannot_gain_one(yard: Yard) -> None:
    life = await yard.run("1", "#!/bin/sh\ngrep -E '^(Groups|CapEff|NoNewPrivs|Uid):' /proc/self/status; umask\n")
    fields = dict(line.split(":", 1) for line in life.text().splitlines() if ":" in line)
    assert fields["Groups"].strip() == ""
    assert int(fields["CapEff"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert int(fields["Uid"].split()[0]) >= 200_000


@needs_root
async def test_a_fork_bomb_stays_in_its_group_and_dies_with_it(yard: Yard) -> None:
    bomb = "#!/bin/sh\nf() { f | f & }\necho up; f; sleep 60\n"
    life, vm = await yard.boot("1", bomb)
    await yard.door.until(lambda: life.text() == "up\n")
    machine = yard.driver._vms[vm.vm_id].machine
    async with asyncio.timeout(DEADLINE_S):
        await yard.driver.cancel(vm, HOST)
    assert machine.pids() == []


@needs_root
async def test_the_cpu_limit_holds(yard: Yard) -> None:
    yard.door.add("1", script="#!/bin/sh\nwhile :; do :; done\n")
    vm = yard.door.vm("1", cpu=2.0)  # two virtual cores of a twentieth each
    await yard.driver.boot(vm, HOST)
    machine = yard.driver._vms[vm.vm_id].machine
    await until(lambda: (machine.cpu_seconds() or 0) > 0.05)
    used, began = machine.cpu_seconds() or 0.0, asyncio.get_running_loop().time()
    await until(lambda: asyncio.get_running_loop().time() - began > 1.0)
    share = ((machine.cpu_seconds() or 0.0) - used) / (asyncio.get_running_loop().time() - began)
    assert share < 0.15


def quota_of(yard: Yard, vm: VmSpec) -> str:
    """The CPU limit as the kernel has it: "-1" or "max …" is none."""
    cell = yard.driver._vms[vm.vm_id].machine.cell
    assert cell is not None
    assert cell.group is not None
    name = "cpu.cfs_quota_us" if cell.group.version == 1 else "cpu.max"
    return Path(f"{cell.group.cpu}/{name}").read_text().split()[0]


@needs_root
async def test_an_instance_is_limited_from_the_moment_that_it_serves(yard: Yard) -> None:
    life = yard.door.add("web.1", kind="instance", script=None, health_path="/healthz")
    vm = yard.door.vm("web.1", cpu=2.0)
    await yard.driver.boot(vm, HOST)
    await yard.door.until(lambda: life.began)
    assert quota_of(yard, vm) == "10000"


@needs_root
async def test_an_instance_that_never_serves_is_not_free_for_long(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phoenix.local.guest.agent.FREE_START_S", 0.3)
    script = "#!/bin/sh\necho up; exec sleep 60\n"
    yard.door.add("web.1", kind="instance", script=script, health_path="/healthz")
    vm = yard.door.vm("web.1", cpu=2.0)
    await yard.driver.boot(vm, HOST)
    machine = yard.driver._vms[vm.vm_id].machine
    await until(lambda: machine.cell is not None and quota_of(yard, vm) in ("-1", "max"))
    await until(lambda: quota_of(yard, vm) == "10000")


@needs_root
async def test_groups_and_rooms_are_removed(yard: Yard) -> None:
    assert yard.driver.isolation() == {"isolation": "uid+cgroup"}
    cgroups = yard.driver._isolation.cgroups  # type: ignore[union-attr]
    assert cgroups is not None
    life, _ = await yard.boot("1", "#!/bin/sh\necho up; sleep 60\n")
    await yard.door.until(lambda: life.text() == "up\n")
    assert len(cgroups.leftovers()) == len(cgroups._bases())
    house = (yard.data_dir / "vms").resolve()
    await yard.driver.close()
    assert cgroups.leftovers() == []
    assert not house.exists()
    assert machine_is_free_of(str(house))


@needs_root
def test_departments_keep_their_users_and_clouds_do_not_share_them(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
    one, two = Isolation(first, "uid"), Isolation(second, "uid")
    assert one.users is not None
    assert two.users is not None
    hpc, web = one.users.take("hpc"), one.users.take("web")
    assert len({hpc, web, one.users.take("hpc"), two.users.take("hpc")}) == 4
    one.users.give_back("hpc", hpc)
    assert one.users.take("web") not in (hpc, web)
    assert one.users.take("hpc") == hpc
    one.close()
    again = Isolation(first, "uid")
    assert again.users is not None
    assert {again.users.take("hpc"), again.users.take("hpc")} >= {hpc}
    again.close()
    two.close()


HYPERVISOR = """
import asyncio, sys
from pathlib import Path
from phoenix.local.process import users
from phoenix.local.process.driver import ProcessDriver
from tests.support.guest_door import HOST, GuestDoor

SCRIPT = '''#!/bin/sh
(setsid sh -c 'trap "" TERM HUP; sleep 300' &)
echo up; sleep 300
'''

async def main():
    driver = ProcessDriver(Path(sys.argv[1]), isolate=sys.argv[2])
    await driver.start(lambda vm, why: None)
    async with GuestDoor() as door:
        life = door.add("1", script=SCRIPT)
        await driver.boot(door.vm("1"), HOST)
        await door.until(lambda: life.text())
        print(driver._spawner.pid, (Path(sys.argv[1]) / "vms").resolve(), flush=True)
        await asyncio.sleep(300)

asyncio.run(main())
"""


def machine_is_free_of(house: str) -> bool:
    """Whether no process carries the marker of this house."""
    marker = f"PHOENIX_ROOM={house}/".encode()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and marker in Path(f"/proc/{name}/environ").read_bytes():
                return False
        except OSError:
            continue
    return True


def start_hypervisor(data_dir: Path, isolate: str) -> tuple[subprocess.Popen[str], int, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HYPERVISOR, str(data_dir), isolate], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    nursery, house = process.stdout.readline().split()
    return process, int(nursery), house


@pytest.mark.parametrize("isolate", ["auto", "none"])
async def test_nothing_outlives_a_hypervisor_that_is_killed(tmp_path: Path, isolate: str) -> None:
    process, nursery, house = await asyncio.to_thread(start_hypervisor, tmp_path / "data", isolate)
    assert not machine_is_free_of(house)
    process.kill()
    await asyncio.to_thread(process.wait)
    await until(lambda: machine_is_free_of(house))
    await until(lambda: not os.path.exists(f"/proc/{nursery}"))
    driver = ProcessDriver(tmp_path / "data", isolate=isolate)
    await driver.start(lambda vm, why: None)
    await driver.close()
    assert not exists(house)


@pytest.mark.parametrize("isolate", ["auto", "none"])
async def test_what_even_the_nursery_could_not_kill_is_swept_at_the_next_start(tmp_path: Path, isolate: str) -> None:
    process, nursery, house = await asyncio.to_thread(start_hypervisor, tmp_path / "data", isolate)
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(nursery, signal.SIGKILL)
    process.kill()
    await asyncio.to_thread(process.wait)
    assert not machine_is_free_of(house)
    driver = ProcessDriver(tmp_path / "data", isolate=isolate)
    await driver.start(lambda vm, why: None)
    assert machine_is_free_of(house)
    await driver.close()


def test_the_sweep_does_not_kill_a_reused_pid(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        record = tmp_path / "nursery.json"
        record.write_text(json.dumps({"nursery_pid": stranger.pid, "started": "another-boot/1"}))
        assert sweep(record, None, tmp_path / "rooms") == 0
        assert stranger.poll() is None
        assert not record.exists()
        stranger.kill()


async def test_vms_end_when_their_nursery_dies_and_new_ones_start(yard: Yard) -> None:
    life, vm = await yard.boot("1", "#!/bin/sh\necho up; sleep 60\n")
    await yard.door.until(lambda: life.text() == "up\n")
    nursery = yard.driver._spawner.pid
    assert nursery is not None
    os.kill(nursery, signal.SIGKILL)
    await until(lambda: vm.vm_id in yard.ended)
    assert life.report is None  # 137 would be the job's own failure: it runs again
    assert "nursery died" in yard.ended[vm.vm_id]
    again = await yard.run("2", "#!/bin/sh\necho again\n")
    assert again.text() == "again\n"


@needs_root
def test_who_may_write_in_run_lock_takes_no_isolation_away(tmp_path: Path) -> None:
    """64 files there, of anybody, were every block of uids: the next cloud ran jobs as root."""
    taken = [Path(f"/run/lock/phoenix-uids-{users.UID_BASE}-{number}.lock") for number in range(users.BLOCKS)]
    try:
        for path in taken:
            path.touch()
            os.chown(path, 65534, 65534)
        isolation = Isolation(tmp_path, "auto")
        assert isolation.kind != "none"
        isolation.close()
    finally:
        for path in taken:
            path.unlink(missing_ok=True)


@needs_root
@pytest.mark.parametrize("wrong", ["a stranger's", "open to all", "a link"])
def test_as_root_auto_is_never_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setattr(locks, "PLACES", (str(tmp_path),))
    place = tmp_path / users.LOCK_DIRECTORY
    if wrong == "a link":
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir(mode=0o700)
        place.chmod(0o777 if wrong == "open to all" else 0o700)
        os.chown(place, 65534 if wrong == "a stranger's" else 0, 0)
    with pytest.raises(IsolationUnavailableError, match=r"jobs would run as root: .* is not root's alone: remove it"):
        Isolation(tmp_path, "auto")
    assert Isolation(tmp_path, "none").kind == "none"
