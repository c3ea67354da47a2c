"""Moves virtual machines through `lifecycle`'s tables: the only writer of VM states, histories and host allocations.

1. A transition is synchronous and atomic; only the hypervisor's answer is awaited, in one task per VM.
2. `Vm.epoch` counts decisions about a VM. A task whose epoch is old changes nothing: a recover or a hard stop has
   overtaken it.
3. A VM that is deleted is DONE at once and cleaned up behind it, as `oned` does; those tasks are kept and awaited at
   the end.
4. Each change is passed to `listeners` before `PREV_STATE` follows, so that an event shows where the VM came from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from phoenix.local.driver import Driver, DriverError, Gpu, HostSpec, VmSpec
from phoenix.local.opennebula.lifecycle import (
    BOOTED,
    CLEANING,
    HARD_ACTIONS,
    MOVING,
    PROLOG_AFTER,
    RETRY,
    STEPS,
    TRANSFERRING,
    Step,
    Target,
)
from phoenix.local.opennebula.model import History, Host, User, Vm
from phoenix.local.opennebula.pace import Pace
from phoenix.local.opennebula.states import Action, Lcm, VmState
from phoenix.local.opennebula.steering import Steering
from phoenix.local.opennebula.store import Clock, Store

Listener = Callable[[Vm], None]

# Clean-up behind a deleted VM: longer means a hypervisor that hangs, and the server must still be able to stop.
CLOSE_S = 20.0

# A driver call that was cancelled gets this long to undo itself before the next call about that VM.
CANCEL_S = 10.0


class Machine:
    """The virtual machines' life. See the module."""

    def __init__(self, store: Store, driver: Driver, clock: Clock, steering: Steering | None) -> None:
        self.store = store
        self.driver = driver
        self.clock = clock
        self.steering = steering
        self.listeners: list[Listener] = []
        self.pace: Pace | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._behind: set[asyncio.Task[None]] = set()
        # VMs whose files an epilog was removing when they were recreated: asking twice would wait for the first.
        self._emptying: set[int] = set()

    @property
    def busy(self) -> int:
        """Operations under way."""
        return len(self._tasks) + len(self._behind)

    async def close(self) -> None:
        """Stop driving VMs; what is under way is cancelled, clean-ups get `CLOSE_S`."""
        for task in list(self._tasks.values()):
            task.cancel()
        held: Steering | None = self.steering or getattr(self.driver, "steering", None)
        if held is not None:
            held.clear()  # what only steering holds must not hold the end
        if self._behind:
            await asyncio.wait(self._behind, timeout=CLOSE_S)
        for task in list(self._behind):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._behind, return_exceptions=True)

    # -- transitions -------------------------------------------------------------------------------

    def move(self, vm: Vm, target: Target) -> None:
        """Enter a state, with what entering it means; tell the listeners."""
        state, lcm = target
        step = STEPS.get(lcm) if state == VmState.ACTIVE else None
        if step is not None and step.enter:
            self._stamp(vm, step.enter)
        if state == VmState.ACTIVE and lcm == Lcm.RUNNING and vm.history:
            self.note(vm, Action.NONE)
        if state == VmState.DONE:
            vm.etime = self.clock.second()
        vm.state, vm.lcm = state, lcm
        vm.touch()
        self._count(vm, target)
        for listener in self.listeners:
            listener(vm)
        vm.prev_state, vm.prev_lcm = state, lcm
        vm.touch()
        if state == VmState.DONE:
            self.store.finish(vm)

    def _count(self, vm: Vm, target: Target) -> None:
        state, lcm = target
        if vm.counted_on >= 0 and (
            state in (VmState.DONE, VmState.STOPPED, VmState.UNDEPLOYED, VmState.PENDING)
            or (state == VmState.ACTIVE and lcm == Lcm.CLEANUP_DELETE)
        ):
            self.store.count(vm, -1)

    def _stamp(self, vm: Vm, names: tuple[str, ...]) -> None:
        if not vm.history:
            return
        now = self.clock.second()
        for name in names:
            which, _, what = name.removeprefix("-").partition(".")
            record = vm.history[-1] if which == "last" else vm.history[-2]
            setattr(record, what, 0 if name.startswith("-") else now)

    def note(self, vm: Vm, action: Action, user: User | None = None, request_id: int = -1, index: int = -1) -> None:
        """Set the action of a history record, with who asked (NONE clears it)."""
        record = vm.history[index]
        record.action = int(action)
        record.uid = user.id if user else -1
        record.gid = user.groups[0] if user else -1
        record.request_id = request_id if user else -1
        vm.touch()

    def add_history(self, vm: Vm, host: Host, datastore_id: int, tm_mad: str) -> History:
        """A stay on another host begins."""
        record = History(vm.id, len(vm.history), host.name, host.id, host.cluster_id, datastore_id, host.vm_mad, tm_mad)
        vm.history.append(record)
        vm.touch()
        return record

    def set_error(self, vm: Vm, text: str) -> None:
        """Set USER_TEMPLATE/ERROR."""
        when = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(self.clock.now()))
        vm.user_template = vm.user_template.with_value("ERROR", f"{when}: {text}")
        vm.touch()

    def finish_step(self, vm: Vm, ok: bool, message: str | None = None) -> None:
        """Leave a transient state, as if the hypervisor had answered so."""
        step = STEPS[Lcm(vm.lcm)]
        if ok:
            self._stamp(vm, step.on_ok)
            self.move(vm, self._next(vm, step))
            return
        if message is not None and step.error is not None:
            self.set_error(vm, step.error + message)
        self._stamp(vm, step.on_fail)
        if step.undo:
            self._return_to_source(vm)
        self.move(vm, step.fail)

    def _next(self, vm: Vm, step: Step) -> Target:
        if vm.lcm == Lcm.LCM_INIT:
            before = vm.history[-2].action if len(vm.history) > 1 else Action.NONE
            return VmState.ACTIVE, PROLOG_AFTER.get(Action(before), Lcm.PROLOG)
        if vm.lcm == Lcm.PROLOG_MIGRATE and vm.history[-1].action != Action.MIGRATE:
            return VmState.ACTIVE, Lcm.BOOT
        return step.ok

    def _return_to_source(self, vm: Vm) -> None:
        source = vm.history[-2]
        host = self.store.hosts.get(source.host_id)
        if host is None:
            return
        record = self.add_history(vm, host, source.datastore_id, source.tm_mad)
        record.stime = record.rstime = self.clock.second()
        self.store.count(vm, host.id)

    # -- driving -----------------------------------------------------------------------------------

    def drive(self, vm: Vm) -> None:
        """Decide again about the VM: the act that drove it is overtaken; if its state is transient, ask the hypervisor."""
        old = self._overtake(vm)
        if vm.state == VmState.ACTIVE and vm.lcm in STEPS:
            task = asyncio.create_task(self._drive(vm, vm.epoch, old), name=f"vm-{vm.id}")
            self._tasks[vm.id] = task
            task.add_done_callback(lambda done: self._forget(vm.id, done))

    def _overtake(self, vm: Vm) -> asyncio.Task[None] | None:
        """Nothing that was asked before decides about the VM any more; what is under way is cancelled and returned."""
        vm.epoch += 1
        old = self._tasks.pop(vm.id, None)
        if old is not None and not old.done():
            old.cancel()
            self._behind.add(old)
            old.add_done_callback(self._behind.discard)
            return old
        return None

    def _forget(self, vm_id: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(vm_id) is task:
            del self._tasks[vm_id]

    async def _drive(self, vm: Vm, epoch: int, old: asyncio.Task[None] | None) -> None:
        if old is not None:
            await asyncio.wait([old], timeout=CANCEL_S)
        while vm.epoch == epoch and vm.state == VmState.ACTIVE and vm.lcm in STEPS:
            step = STEPS[Lcm(vm.lcm)]
            message: str | None = None
            ok = True
            if self.pace is not None:
                await self.pace.before(step.call)
            try:
                await self._ask(step.call, vm)
            except DriverError as error:
                ok, message = False, str(error)
            except Exception as error:  # a driver's bug must not leave the VM in a transient state for ever
                ok, message = False, f"{type(error).__name__}: {error}"
            if vm.epoch != epoch:
                return
            self.finish_step(vm, ok, message)

    async def _ask(self, call: str, vm: Vm) -> None:
        if call == "dispatch":
            if self.steering is not None:
                await self.steering.gate(call, vm.id, vm.history[-1].host_id if vm.history else -1)
            return
        spec = self.spec(vm)
        host = self.host_spec(vm.history[-1])
        action = vm.history[-1].action
        if call == "boot":
            vm.deploy_id = await self.driver.boot(spec, host)
        elif call == "stop":
            await (self.driver.cancel if action in HARD_ACTIONS else self.driver.shutdown)(spec, host)
        elif call == "leave":
            await self._leave(spec, self.host_spec(vm.history[-2]), action)
        elif call == "migrate":
            await self.driver.migrate(spec, self.host_spec(vm.history[-2]), host)
        elif call in ("stow", "fetch"):
            optional = getattr(self.driver, call, None)
            if optional is not None:
                await optional(spec, host)
        elif call == "cleanup":
            await self._clean_up(spec, host, files=vm.id not in self._emptying)
            self._emptying.discard(vm.id)
        else:
            await getattr(self.driver, call)(spec, host)

    async def _leave(self, spec: VmSpec, source: HostSpec, action: int) -> None:
        if action == Action.MIGRATE:
            await self.driver.save(spec, source)
        elif action == Action.POWEROFF_HARD_MIGRATE:
            await self.driver.cancel(spec, source)
        else:
            await self.driver.shutdown(spec, source)

    async def _clean_up(self, spec: VmSpec, host: HostSpec, files: bool, old: asyncio.Task[None] | None = None) -> None:
        if old is not None:
            await asyncio.wait([old], timeout=CANCEL_S)
        with contextlib.suppress(DriverError):
            await self.driver.cancel(spec, host)
        if files:
            with contextlib.suppress(DriverError):
                await self.driver.clean(spec, host)

    def behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something behind an answer that has been given; awaited at `close`."""
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    def reboot(self, vm: Vm, hard: bool) -> None:
        """Restart the guest behind the answer; the VM stays RUNNING whatever comes of it."""
        self.behind(self._reboot(self.spec(vm), self.host_spec(vm.history[-1]), hard))

    async def _reboot(self, spec: VmSpec, host: HostSpec, hard: bool) -> None:
        with contextlib.suppress(DriverError):
            await self.driver.reboot(spec, host, hard)

    # -- deleting and recovering -------------------------------------------------------------------

    def close_history(self, vm: Vm) -> None:
        """Set the times that end what a deleted VM was doing."""
        if not vm.history:
            return
        now, last, lcm = self.clock.second(), vm.history[-1], vm.lcm
        records = [last]
        if vm.state == VmState.ACTIVE and lcm in MOVING:
            records.append(vm.history[-2])
            last.retime = now
        for record in records:
            record.etime = now
            if record.rstime and not record.retime:
                record.retime = now
        if vm.state == VmState.ACTIVE and lcm in TRANSFERRING:
            last.petime = now
        if vm.state == VmState.ACTIVE and lcm in CLEANING:
            last.eetime = now

    def delete(self, vm: Vm, user: User, request_id: int) -> None:
        """Delete a VM: DONE at once; what runs is cancelled and cleaned up behind."""
        on_host = vm.state == VmState.ACTIVE and bool(vm.history)
        old = self._overtake(vm)
        if on_host:
            self.close_history(vm)
            self.note(vm, Action.DELETE, user, request_id)
            files = vm.lcm not in CLEANING
            self.move(vm, (VmState.ACTIVE, Lcm.CLEANUP_DELETE))
            self.behind(self._clean_up(self.spec(vm), self.host_spec(vm.history[-1]), files, old))
        elif vm.history:
            vm.history[-1].etime = vm.history[-1].etime or self.clock.second()
            if vm.state in (VmState.POWEROFF, VmState.SUSPENDED, VmState.STOPPED, VmState.UNDEPLOYED):
                self.behind(self._clean_up(self.spec(vm), self.host_spec(vm.history[-1]), files=True))
        self.move(vm, (VmState.DONE, Lcm.LCM_INIT))

    def delete_from_database(self, vm: Vm) -> None:
        """DONE without a word to the hypervisor."""
        if vm.history:
            last = vm.history[-1]
            last.etime = last.etime or self.clock.second()
            if last.rstime and not last.retime:
                last.retime = self.clock.second()
        self.move(vm, (VmState.DONE, Lcm.LCM_INIT))
        self.drive(vm)

    def recreate(self, vm: Vm, user: User, request_id: int) -> None:
        """Delete what runs and put the VM back to PENDING."""
        on_host = vm.state in (VmState.ACTIVE, VmState.POWEROFF, VmState.SUSPENDED)
        if vm.state == VmState.ACTIVE and vm.lcm in CLEANING:
            self._emptying.add(vm.id)
        if vm.history:
            if on_host:
                self.close_history(vm)
            self.note(vm, Action.DELETE_RECREATE, user, request_id)
        self.move(vm, (VmState.ACTIVE, Lcm.CLEANUP_RESUBMIT) if on_host else (VmState.PENDING, Lcm.LCM_INIT))
        self.drive(vm)

    def recover(self, vm: Vm, ok: bool) -> None:
        """Leave the state as if its step had succeeded or failed; no change where nothing is under way."""
        lcm = Lcm(vm.lcm)
        if lcm == Lcm.UNKNOWN:
            self.move(vm, (VmState.ACTIVE, Lcm.RUNNING))
        elif lcm in STEPS:
            self.finish_step(vm, ok)
            self.drive(vm)
        elif lcm in BOOTED and ok:
            self._stamp(vm, ("-last.retime", "-last.etime"))
            self.move(vm, (VmState.ACTIVE, Lcm.RUNNING))
        elif lcm in RETRY and ok:
            self.move(vm, (VmState.ACTIVE, RETRY[lcm]))
            self.finish_step(vm, ok=True)
            self.drive(vm)

    def retry(self, vm: Vm) -> None:
        """Ask the hypervisor again."""
        lcm = Lcm(vm.lcm)
        if lcm in RETRY:
            self._stamp(vm, ("-last.etime",) if RETRY[lcm] in (Lcm.BOOT_STOPPED, Lcm.BOOT_UNDEPLOY) else ())
            self.move(vm, (VmState.ACTIVE, RETRY[lcm]))
        if vm.lcm in STEPS:
            self.drive(vm)

    # -- what the driver sees ----------------------------------------------------------------------

    def spec(self, vm: Vm) -> VmSpec:
        """The VM as a driver sees it."""
        host = self.store.hosts.get(vm.counted_on)
        return VmSpec(
            vm.id,
            vm.name,
            vm.cpu,
            vm.memory_mb,
            vm.template.vector("CONTEXT") or {},
            vm.user_template.strings(),
            tuple(Gpu(d.index, d.node) for d in host.devices if d.vm_id == vm.id) if host is not None else (),
        )

    def host_spec(self, record: History) -> HostSpec:
        """The host of a history record as a driver sees it; a host that was deleted has no capacity."""
        host = self.store.hosts.get(record.host_id)
        cores, memory_mb = (host.cores, host.memory_mb) if host else (0, 0)
        return HostSpec(record.host_id, record.host_name, cores, memory_mb)
