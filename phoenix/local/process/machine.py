"""The machine of one VM of the process hypervisor: its room, its cell, and what runs in them.

Rules
  1. A second boot, and a second job, find nothing of what was before: no process, no file, not its room's name; nor does the
     next VM under the same uid (`cleanup`).
  2. A saved VM is on no host: its room is in a closed directory meanwhile.  It comes back under its old path, since what runs
     in it knows that path.
  3. If the caller is cancelled, uid and control group are given back exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from phoenix.local.driver import Usage, VmSpec
from phoenix.local.guest.machine import Launch, Programs, StartError, Used
from phoenix.local.guest.workdir import Room
from phoenix.local.process import processes
from phoenix.local.process.cgroups import Group
from phoenix.local.process.devices import visible
from phoenix.local.process.isolation import Cell, Isolation
from phoenix.local.process.removal import remove
from phoenix.local.process.spawner import ChildProcess, Spawner
from phoenix.local.process.sweep import MARKER
from phoenix.local.process.users import UsersExhaustedError
from phoenix.local.process.vm_dirs import House

USAGE_INTERVAL_MIN_S = 0.05  # shorter intervals measure noise
_SIZES = ("VmRSS", "VmHWM")  # a process that has ended has none

_log = logging.getLogger(__name__)


class ProcessMachine:
    """One VM: a `Machine` to its guest, a handle to the driver."""

    def __init__(self, spawner: Spawner, isolation: Isolation, house: House, vm: VmSpec, share: float) -> None:
        self.programs: Programs = house.programs
        self.cores = vm.cpu
        self.core_share = share
        self.limited = isolation.limits_cpu
        self.environment: Mapping[str, str] = visible(vm.gpus, isolation.gpus, fenced=isolation.users is not None)
        self._house = house
        self._life = 1
        self.cell: Cell | None = None
        self._vm = vm
        self._isolation = isolation
        self._room: Room | None = None
        self._spawner = spawner
        self._measured = (time.monotonic(), 0.0)
        self._leaving: asyncio.Future[None] | None = None
        self._starting = 0
        self._started = asyncio.Event()
        self._started.set()

    @property
    def path(self) -> str:
        """Of this life's room (rule 1)."""
        name = str(self._vm.vm_id) if self._life == 1 else f"{self._vm.vm_id}.{self._life}"
        return str(self._house.rooms / name)

    @property
    def room(self) -> Room:
        assert self._room is not None, "settle comes first"
        return self._room

    def settle(self, department: str) -> None:
        vm = self._vm
        marker = f"{MARKER}{self.path}"
        cores = vm.cpu * self.core_share
        try:
            self.cell = self._isolation.enclose(str(vm.vm_id), department, cores, vm.memory_mb, marker, vm.gpus)
            room = Room(self.path, self.cell.held.uid)
            room.build()
        except (OSError, UsersExhaustedError) as error:
            raise StartError(f"no directory for VM {vm.vm_id}: {error}") from error
        self._room = room

    @property
    def _group(self) -> Group | None:
        return self.cell.group if self.cell is not None else None

    async def run(self, launch: Launch, stdio: tuple[int, int, int]) -> ChildProcess:
        assert self.cell is not None
        self._starting += 1
        self._started.clear()
        try:
            return await self._spawner.run(launch, self.cell.held, stdio)
        finally:
            self._starting -= 1
            if not self._starting:
                self._started.set()

    async def until_started(self) -> None:
        """Until nothing is being started: what is on its way is in no cell yet, so `pids` does not know it."""
        await self._started.wait()

    def limit_cpu(self, on: bool) -> None:
        if self._group is not None:
            self._group.limit_cpu(self.cores * self.core_share if on else None)

    def killed_for_memory(self) -> bool:
        return self._group is not None and self._group.oom_kills() > 0

    def cpu_seconds(self) -> float | None:
        return self._group.cpu_seconds() if self._group is not None else None

    def pids(self) -> list[int]:
        cell = self.cell  # read once: threads ask too
        if cell is None:
            return []
        held = cell.held
        return processes.owned_pids(list(held.cgroups), held.uid, held.marker)

    def signal_all(self, number: int) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stopped(self, stuck: bool = False) -> bool:
        """Nothing of it continues.  `stuck`: what waits in the kernel without receiving signals counts as well."""
        return all(processes.state(pid) in ("TtZXD" if stuck else "TtZX") for pid in self.pids())

    def kill_all(self) -> None:
        """Blocks until nothing is left."""
        cell = self.cell  # read once: this runs in a thread
        if cell is not None:
            held = cell.held
            processes.purge(list(held.cgroups), held.uid, held.marker)

    async def renew(self) -> None:
        """Rule 1.  Raises `StartError`."""
        if self.pids():
            await asyncio.to_thread(self.kill_all)
        try:
            await self.vacate()
        except OSError as error:
            raise StartError(f"VM {self._vm.vm_id} cannot be cleaned for another job: {error}") from error
        self._room = None
        await self.raze()
        self._life += 1
        self._measured = (time.monotonic(), 0.0)

    async def raze(self) -> None:
        """Remove the room of this life, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            os.lstat(self.path)
            await asyncio.to_thread(self._house.clear, self._vm.vm_id)

    def stow(self) -> None:
        """The room leaves its host (rule 2).  Raises OSError."""
        if self._room is not None:
            os.rename(self.path, self._house.stowed / str(self._vm.vm_id))

    def fetch(self) -> None:
        """The room comes to a host.  Raises OSError."""
        stowed = self._house.stowed / str(self._vm.vm_id)
        if stowed.exists():
            os.rename(stowed, self.path)

    async def vacate(self) -> None:
        """Close the room and give back the cell, in which nothing runs any more. Raises OSError."""
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.ensure_future(self._leave())
            self._leaving.add_done_callback(_told)
        await asyncio.shield(self._leaving)  # rule 3

    async def _leave(self) -> None:
        if self._room is not None:
            self._room.seal()
        if self.cell is not None:
            cell, self.cell = self.cell, None
            if cell.group is not None and not cell.group.try_remove():
                await asyncio.to_thread(cell.group.remove)
            leavings, uid = self._isolation.leavings, cell.held.uid
            if leavings is not None and uid is not None and not leavings.none_of(uid):
                await asyncio.to_thread(leavings.remove, (uid,))
            self._isolation.release(cell)

    async def empty(self) -> None:
        """Remove what the job has on the disk; nothing of it runs.  Raises OSError."""
        assert self.cell is not None
        for directory in (self.room.work, self.room.tmp):
            await asyncio.to_thread(remove, directory)
        leavings, uid = self._isolation.leavings, self.cell.held.uid
        if leavings is not None and uid is not None:
            await asyncio.to_thread(leavings.remove, (uid,))

    def used(self) -> Used:
        cpu = self.cpu_seconds()
        memory_kb = self._group.memory_kb() if self._group is not None else None
        pids = self.pids() if cpu is None or memory_kb is None else []
        return Used(
            cpu_seconds=sum(_cpu_seconds(pid) for pid in pids) if cpu is None else cpu,
            memory_kb=sum(_resident_kb(pid) for pid in pids) if memory_kb is None else memory_kb,
        )

    def peak_kb(self) -> int:
        found = [_resident(pid) for pid in self.pids()]
        together = self._group.resident_kb() if self._group is not None else None
        return max([peak for _, peak in found] + [sum(now for now, _ in found) if together is None else together])

    def usage(self) -> Usage:
        now, used = time.monotonic(), self.used()
        before, before_cpu = self._measured
        interval_s = max(USAGE_INTERVAL_MIN_S, now - before)
        self._measured = (now, used.cpu_seconds)
        percent = percent_of_host_core((used.cpu_seconds - before_cpu) / interval_s, self.core_share, self.cores)
        return Usage(cpu_percent=percent, memory_kb=used.memory_kb)


def _told(leaving: asyncio.Future[None]) -> None:
    """Of one that was not waited for to the end."""
    if not leaving.cancelled() and (error := leaving.exception()) is not None:
        _log.warning("files of a VM cannot be removed: %s", error)


def percent_of_host_core(busy: float, core_share: float, cores: float) -> float:
    """`busy`: real cores.  A host's core is `core_share` of one; where no control group keeps a VM to its own, it counts as
    having all of them, as no hypervisor gives a VM more."""
    return min(max(0.0, busy) / core_share, cores) * 100


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def _resident_kb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        return 0


def _resident(pid: int) -> tuple[int, int]:
    """Now, and at the most; KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {
        name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if name in _SIZES
    }
    return found.get("VmRSS", 0), found.get("VmHWM", 0)
