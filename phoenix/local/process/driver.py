"""The process hypervisor: the driver that makes OpenNebula's VMs local process groups.

Theory of operation. A VM is a room (a directory), a cell (uid, control group, limits) and a guest: an asyncio task in
this process that speaks the guest contract and starts the job's script through the nursery. So a VM costs one fork and
one exec, the job's own.

    boot       start the guest's task; RUNNING when that is done. When the guest has learned from admission whose VM it is, room
               and cell are made
    shutdown   SIGTERM to the script; when it ends the guest finishes (output, a success is reported, the ends of launched
               tasks); after the grace, everything is killed
    cancel     everything is killed at once
    save       the guest falls silent; what is being started is let start; SIGSTOP to everything, until it stands still;
               restore continues
    stow       the room leaves the host: into a closed directory; fetch brings it to the next one
    clean      remove the room
    renew      the guest asks for it when it takes another job: everything is killed, then a new room and a new cell

1. A VM is gone when its cell holds no process; only then is its uid given to another VM.
2. A VM ends by itself when its guest's task ends, for whatever reason; `ended` is called after rule 1.
3. `shutdown`, `cancel` and `clean` of a VM that is gone succeed. A cancelled call leaves what a later `cancel` removes.
4. Nothing of a VM survives the hypervisor (zygote.py rules 4 and 5; sweep.py for what both leave).
5. All hosts are this machine, so a saved VM's memory, and the sockets that its processes hold, stay here as stopped processes;
   what it gives up is its host: no processor time, and no room that anybody could enter.  A room comes back under its old
   path, since what runs in it knows that path.
6. A life after the first one finds nothing of the one before: no process, no file, not its room's name.
7. A VM is gone, and its host clear, whatever it has left, and however long that takes to remove: its room is closed, its uid is
   no other VM's meanwhile.
8. A VM that holds too much on the disk is killed (`disk`), and its job has failed, with the reason; on a disk that is almost
   full it is emptied first, since nothing can be reported while nothing can be written.
"""

# ruff: noqa: ARG002  # the contract names a host in every call; here all hosts are this machine
from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from phoenix.local.driver import DriverError, HostSpec, Usage, VmSpec
from phoenix.local.guest.agent import Guest
from phoenix.local.guest.door import Door, new_session
from phoenix.local.process.disk import Disk, Held
from phoenix.local.process.isolation import Isolation, IsolationUnavailableError, raise_open_files_limit
from phoenix.local.process.machine import ProcessMachine
from phoenix.local.process.spawner import Spawner
from phoenix.local.process.sweep import record_nursery, sweep
from phoenix.local.process.users import UID_BASE
from phoenix.local.process.vm_dirs import House

GRACE_MAX_S = 3600.0  # whatever the boot document says; the executor kills hard before
DISK_MB = 10_240  # a day's output of most jobs; sixteen fit on a small disk, and the reserve holds where they do not
FAREWELL_S = 0.3  # after the kill: the last output goes out if admission answers at once
KERNEL_CHECK_S = 0.01
STUCK_S = 0.5  # five CPU periods; who waits in the kernel for longer is stuck, behind a stopped vforked child
CLEAN_DEADLINE_S = 5.0  # a host is not kept waiting longer for what a VM has left
SAVE_DEADLINE_S = 40.0  # more than a start may take; a VM that does not stand still by then is out of order

_log = logging.getLogger(__name__)


class _Vm:
    """A VM that exists: its machine, its guest and the guest's task."""

    def __init__(self, machine: ProcessMachine, guest: Guest) -> None:
        self.machine = machine
        self.guest = guest
        self.task: asyncio.Task[str] | None = None
        self.ending = False  # from here on its task must not be cancelled: it is cleaning up
        self.gone = asyncio.Event()


class ProcessDriver:
    """Driver `process`. See the module for what it does and docs for the isolation it reports.

    `core_share`: real cores per virtual core. `grace_s`: SIGTERM to SIGKILL, unless the job asks for another grace.
    `isolate`: "auto", or one of isolation.KINDS to insist. `disk_mb`: what a VM may hold on the disk. `network`: a descriptor
    of the network namespace that jobs are in; None: the machine's.  `gpus`: the device nodes of the machine's GPUs (`devices`).
    """

    name = "process"

    def __init__(
        self,
        data_dir: Path,
        core_share: float = 0.05,
        grace_s: float = 0.3,
        isolate: str = "auto",
        uid_base: int = UID_BASE,
        disk_mb: int = DISK_MB,
        network: int | None = None,
        gpus: tuple[str, ...] = (),
    ) -> None:
        self.data_dir = data_dir
        self.core_share = core_share
        self.grace_s = grace_s
        self._isolate = isolate
        self._uid_base = uid_base
        self._disk_mb = disk_mb
        self._gpus = gpus
        self._watch: asyncio.Task[None] | None = None
        self._spawner = Spawner()
        self._spawner.network = network
        self._vms: dict[int, _Vm] = {}
        self._isolation: Isolation | None = None
        self._house: House | None = None
        self._session: aiohttp.ClientSession | None = None
        self._ended: Callable[[int, str], None] = lambda _vm, _why: None

    def isolation(self) -> dict[str, str]:
        """How VMs are kept apart: {"isolation": "uid+cgroup"|"uid"|"none", "why": …}; for status pages."""
        if self._isolation is None:
            return {"isolation": "unknown", "why": "not started"}
        return self._isolation.status()

    async def start(self, ended: Callable[[int, str], None]) -> None:
        """Sweep what a crashed predecessor left, build the house, start the nursery. Raises `DriverError`."""
        self._ended = ended
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._isolation = Isolation(self.data_dir, self._isolate, self._uid_base, self._gpus)
        except IsolationUnavailableError as error:
            raise DriverError(str(error)) from error
        if self._isolation.users is not None:
            self.data_dir.chmod(0o700)
        raise_open_files_limit()
        self._house = await asyncio.to_thread(House, self.data_dir, self._isolation.users is not None)
        houses = [self._house.path, *([self._house.former] if self._house.former is not None else [])]
        rooms = [house / "rooms" for house in houses]
        killed = await asyncio.to_thread(sweep, self._record, self._isolation.cgroups, *rooms)
        if killed:
            _log.warning("killed %d processes left by an earlier hypervisor", killed)
        await asyncio.to_thread(self._house.empty)
        users, leavings = self._isolation.users, self._isolation.leavings
        if users is not None and leavings is not None:
            try:
                await asyncio.to_thread(leavings.remove, users.block)
            except OSError as error:
                _log.warning("not everything that earlier VMs left on this machine can be removed: %s", error)
        self._spawner.hides = users is not None
        self._spawner.on_start = self._record_nursery
        self._spawner.start()
        self._session = new_session()
        shared = leavings.on_disk if leavings is not None else ()
        disk = Disk((str(self._house.path), *shared), self._disk_mb, self._held, self._put_down)
        self._watch = asyncio.create_task(disk.watch(), name="disk")

    @property
    def _record(self) -> Path:
        return self.data_dir / "nursery.json"

    def _record_nursery(self, pid: int) -> None:
        record_nursery(self._record, pid)

    async def close(self) -> None:
        """Kill every VM, then the nursery; remove rooms, groups and programs."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
        vms = list(self._vms.values())
        await asyncio.gather(*(self._kill(vm) for vm in vms))
        await self._spawner.close()
        if self._session is not None:
            await self._session.close()
        if self._isolation is not None:
            self._isolation.close()
        if self._house is not None:
            await asyncio.to_thread(self._house.demolish)
        self._record.unlink(missing_ok=True)

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        """Start the guest. Raises `DriverError`."""
        if vm.vm_id in self._vms:
            raise DriverError(f"VM {vm.vm_id} is already running")
        assert self._session is not None
        assert self._isolation is not None
        assert self._house is not None
        phoenix_id, token = _identity(vm)
        url = vm.context.get("PHOENIX_URL", "")
        if not url:
            raise DriverError(f"VM {vm.vm_id} has no PHOENIX_URL in its CONTEXT")
        try:
            door = Door(self._session, url, phoenix_id, token, boot_id=secrets.token_hex(16))
        except ValueError as error:
            raise DriverError(str(error)) from error
        machine = ProcessMachine(self._spawner, self._isolation, self._house, vm, self.core_share)
        guest = Guest(door, machine, self._session)
        entry = self._vms[vm.vm_id] = _Vm(machine, guest)
        entry.task = asyncio.create_task(self._live(vm.vm_id, entry), name=f"vm {vm.vm_id}")
        return f"process-{vm.vm_id}"

    async def _live(self, vm_id: int, vm: _Vm) -> str:
        """The task of a VM: the guest's life, then the certain end of everything in the cell."""
        why = "killed"
        try:
            await vm.machine.raze()  # of a boot before this one: hostile to a root guest
            why = await vm.guest.run()
        except asyncio.CancelledError:
            pass  # by `_kill`, which waits for the end below
        except Exception as error:
            _log.exception("the guest of VM %d failed", vm_id)
            why = f"the guest failed: {error!r}"
        finally:
            await self._vanish(vm_id, vm)
        if not vm.guest.stopping:
            self._ended(vm_id, why)
        return why

    async def _vanish(self, vm_id: int, vm: _Vm) -> None:
        vm.ending = True
        machine = vm.machine
        if machine.pids():
            await asyncio.to_thread(machine.kill_all)
        vm.guest.close()
        try:
            async with asyncio.timeout(CLEAN_DEADLINE_S):
                await machine.vacate()
        except TimeoutError:
            _log.warning("VM %d left many files: they are removed later, and its uid stays in use until then", vm_id)
        except Exception:  # rule 7
            _log.exception("VM %d cannot be cleaned up; its uid stays in use", vm_id)
        finally:
            self._vms.pop(vm_id, None)
            vm.gone.set()

    async def _kill(self, vm: _Vm) -> None:
        """Kill everything, let the guest send the last output, and wait until the VM is gone."""
        vm.guest.stopping = True
        assert vm.task is not None
        vm.guest.look()
        await asyncio.to_thread(vm.machine.kill_all)
        if not vm.ending:
            vm.ending = True
            vm.task.cancel()
        await vm.gone.wait()

    def _held(self) -> dict[int, Held]:
        """What each VM has on the disk, for `Disk`; in a thread."""
        machines = {vm_id: vm.machine for vm_id, vm in list(self._vms.items())}
        uids = {vm_id: cell.held.uid for vm_id, machine in machines.items() if (cell := machine.cell) is not None}
        leavings = self._isolation.leavings if self._isolation is not None else None
        left = leavings.of({uid for uid in uids.values() if uid is not None}) if leavings is not None else {}
        return {
            vm_id: Held((machines[vm_id].path, *left.get(uid or 0, ())), tuple(machines[vm_id].pids()))
            for vm_id, uid in uids.items()
        }

    async def _put_down(self, vm_id: int, why: str, empty: bool) -> None:
        """A VM that harms the others ends with a reason; `empty`: what it holds goes before anybody hears of it (rule 8)."""
        vm = self._vms.get(vm_id)
        if vm is None or vm.ending or vm.guest.stopping:
            return
        _log.warning("VM %d (%s) is %s", vm_id, vm.guest.door.phoenix_id, why)
        try:
            if vm.guest.put_down(why):
                await asyncio.to_thread(vm.machine.kill_all)
                if empty and not vm.ending:
                    await vm.machine.empty()
                return
            await self._kill(vm)
            if empty and self._house is not None:
                await asyncio.to_thread(self._house.clear, vm_id)
        except OSError as error:
            _log.warning("resources of VM %d cannot be removed: %s", vm_id, error)
        self._ended(vm_id, why)

    async def shutdown(self, vm: VmSpec, host: HostSpec) -> None:
        entry = self._vms.get(vm.vm_id)
        if entry is None:
            return
        entry.guest.stopping = True
        boot = entry.guest.boot
        grace_s = self.grace_s
        if boot is not None and boot.grace_s is not None:
            grace_s = min(boot.grace_s, GRACE_MAX_S)
        if not entry.guest.dismissed:  # a second SIGTERM would cut short what the script does after the first
            if not entry.guest.ask_to_end():
                entry.machine.signal_all(signal.SIGTERM)
            # A stopped process hears SIGTERM only when it continues.
            entry.machine.signal_all(signal.SIGCONT)
        entry.guest.door.awake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await _until_done(entry)
        if not entry.gone.is_set():
            await self._farewell(entry)

    async def _farewell(self, vm: _Vm) -> None:
        """The grace is over: kill, but give the guest a moment to send what the script had said."""
        vm.guest.look()
        await asyncio.to_thread(vm.machine.kill_all)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await _until_done(vm)
        if not vm.gone.is_set():
            await _say_last(vm)
            await self._kill(vm)

    async def cancel(self, vm: VmSpec, host: HostSpec) -> None:
        entry = self._vms.get(vm.vm_id)
        if entry is not None:
            await self._kill(entry)

    async def save(self, vm: VmSpec, host: HostSpec) -> None:
        """Returns when nothing of the VM runs: its room may leave under it (rule 5). Raises `DriverError`."""
        entry = self._running(vm.vm_id)
        if vm.gpus:
            raise DriverError(f"VM {vm.vm_id} has GPUs, whose memory cannot be saved: it continues")
        await _say_last(entry)
        entry.guest.door.awake.clear()
        entry.guest.sleep()
        try:
            async with asyncio.timeout(SAVE_DEADLINE_S):
                await entry.machine.until_started()
                await _until_still(entry.machine)
        except TimeoutError:
            await self.restore(vm, host)
            raise DriverError(f"VM {vm.vm_id} cannot be frozen within {SAVE_DEADLINE_S:g} s: it continues") from None

    async def restore(self, vm: VmSpec, host: HostSpec) -> None:
        """Continue, under the name that the guest has always had: memory continues where it was."""
        entry = self._running(vm.vm_id)
        entry.guest.wake()
        entry.guest.door.awake.set()
        entry.machine.signal_all(signal.SIGCONT)

    def _running(self, vm_id: int) -> _Vm:
        entry = self._vms.get(vm_id)
        if entry is None:
            raise DriverError(f"VM {vm_id} does not run: its processes have ended or the hypervisor was restarted")
        return entry

    async def migrate(self, vm: VmSpec, source: HostSpec, target: HostSpec) -> None:
        """All hosts are this machine: only the books change."""

    async def reboot(self, vm: VmSpec, host: HostSpec, hard: bool) -> None:
        """Stop the guest and start it again, from its boot."""
        await (self.cancel if hard else self.shutdown)(vm, host)
        await self.boot(vm, host)

    async def transfer(self, vm: VmSpec, host: HostSpec) -> None:
        """Rooms are made at boot."""

    async def stow(self, vm: VmSpec, host: HostSpec) -> None:
        """The VM leaves its host and is to come back (rule 5). Raises `DriverError`."""
        entry = self._vms.get(vm.vm_id)
        if entry is not None:
            try:
                entry.machine.stow()
            except OSError as error:
                raise DriverError(
                    f"the directory of VM {vm.vm_id} cannot be moved from {host.name}: {error}"
                ) from error

    async def fetch(self, vm: VmSpec, host: HostSpec) -> None:
        """The VM comes to a host. Raises `DriverError`."""
        entry = self._vms.get(vm.vm_id)
        if entry is not None:
            try:
                entry.machine.fetch()
            except OSError as error:
                raise DriverError(f"the directory of VM {vm.vm_id} cannot be moved to {host.name}: {error}") from error

    async def clean(self, vm: VmSpec, host: HostSpec) -> None:
        await self.cancel(vm, host)
        if self._house is not None:
            clearing = asyncio.ensure_future(asyncio.to_thread(self._house.clear, vm.vm_id))
            done, _ = await asyncio.wait({clearing}, timeout=CLEAN_DEADLINE_S)
            if not done:  # rule 7
                _log.warning("the directory of VM %d is large: it is removed later", vm.vm_id)

    async def usage(self, vm_id: int) -> Usage | None:
        entry = self._vms.get(vm_id)
        return entry.machine.usage() if entry is not None else None


async def _say_last(vm: _Vm) -> None:
    """What its job has used: a guest that sleeps, or has no script that ends, does not come to say it."""
    if vm.guest.use is not None:
        await vm.guest.use.say_last(FAREWELL_S)


async def _until_done(vm: _Vm) -> None:
    """Everything in the VM has ended, and said what it had to say."""
    if vm.guest.process is not None:
        await vm.gone.wait()
    # A rank without a script never ends by itself: it is done when its tasks are, and the script's rank knows of it.
    while vm.machine.pids() or vm.guest.outstanding:  # noqa: ASYNC110  (the kernel sends no event for this)
        await asyncio.sleep(KERNEL_CHECK_S)


async def _until_still(machine: ProcessMachine) -> None:
    """A process that its CPU limit has put aside stops only when it has its turn, and one that was being forked while the
    others heard the signal has not heard it."""
    stuck_at = time.monotonic() + STUCK_S
    machine.signal_all(signal.SIGSTOP)
    while not machine.stopped(stuck=time.monotonic() > stuck_at):
        await asyncio.sleep(KERNEL_CHECK_S)
        machine.signal_all(signal.SIGSTOP)


def _identity(vm: VmSpec) -> tuple[str, str]:
    """PHOENIX_ID and token as the VM was made with; what is set on it later is not what it knows."""
    phoenix_id, token = vm.context.get("PHOENIX_ID", ""), vm.context.get("PHOENIX_TOKEN", "")
    if not phoenix_id or not token:
        raise DriverError(
            f"VM {vm.vm_id} has no PHOENIX_ID and PHOENIX_TOKEN in its CONTEXT: it does not belong to this cloud"
        )
    return phoenix_id, token
