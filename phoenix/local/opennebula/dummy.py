"""The dummy hypervisor: every step succeeds at once, unless a delay or a steering rule differs. Nothing runs.

1. One action at a time per VM and host, as a real driver queues them: a `cancel` behind a stuck `boot` waits for it.
2. `guest`, if given, is called after each boot or restore; what it returns runs until the VM stops, and is then
   cancelled. A guest that returns by itself is a guest that powered off: the server gets that event. This is where a
   simulated guest is attached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from phoenix.local.driver import HostSpec, Usage, VmSpec
from phoenix.local.opennebula.steering import Steering

Guest = Callable[[VmSpec, HostSpec], Awaitable[None]]


class DummyDriver:
    """See the module. `delays_s`: seconds per step name, default none."""

    name = "dummy"

    def __init__(
        self,
        *,
        delays_s: Mapping[str, float] | None = None,
        guest: Guest | None = None,
        steering: Steering | None = None,
    ) -> None:
        self.steering = steering or Steering()
        self.delays_s = dict(delays_s or {})
        self.guest = guest
        self._ended: Callable[[int, str], None] | None = None
        self._locks: dict[tuple[int, int], asyncio.Lock] = {}
        self._guests: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, VmSpec] = {}

    async def start(self, ended: Callable[[int, str], None]) -> None:
        """Nothing to start."""
        self._ended = ended

    async def close(self) -> None:
        """Cancel the guests that still run."""
        for vm_id in list(self._guests):
            await self._stop_guest(vm_id)
        self._running.clear()

    @asynccontextmanager
    async def _acting(self, step: str, vm_id: int, host_id: int) -> AsyncIterator[None]:
        key = (vm_id, host_id)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        try:
            async with lock:
                delay = self.delays_s.get(step)
                if delay:
                    await asyncio.sleep(delay)
                if self.steering.rules:
                    await self.steering.gate(step, vm_id, host_id)
                yield
        finally:
            if not lock.locked() and self._locks.get(key) is lock:
                del self._locks[key]

    async def _live(self, vm: VmSpec, host: HostSpec) -> None:
        self._running[vm.vm_id] = vm
        if self.guest is not None:
            await self._stop_guest(vm.vm_id)
            self._guests[vm.vm_id] = asyncio.create_task(
                self._run_guest(self.guest, vm, host), name=f"guest-{vm.vm_id}"
            )

    async def _run_guest(self, guest: Guest, vm: VmSpec, host: HostSpec) -> None:
        why = "the guest powered off"
        try:
            await guest(vm, host)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = f"the guest failed: {type(error).__name__}: {error}"
        self._guests.pop(vm.vm_id, None)
        self._running.pop(vm.vm_id, None)
        if self._ended:
            self._ended(vm.vm_id, why)

    async def _stop_guest(self, vm_id: int) -> None:
        task = self._guests.pop(vm_id, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _halt(self, vm_id: int) -> None:
        self._running.pop(vm_id, None)
        if self._guests:
            await self._stop_guest(vm_id)

    def end(self, vm_id: int, why: str = "ended by steering") -> None:
        """Steering: the VM ends by itself. Raises ValueError if it does not run here."""
        if self._running.pop(vm_id, None) is None:
            raise ValueError(f"VM {vm_id} does not run here")
        task = self._guests.pop(vm_id, None)
        if task is not None:
            task.cancel()
        if self._ended:
            self._ended(vm_id, why)

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        """RUNNING at once."""
        async with self._acting("boot", vm.vm_id, host.host_id):
            await self._live(vm, host)
        return f"{host.name}:{vm.name}:dummy"

    async def shutdown(self, vm: VmSpec, host: HostSpec) -> None:
        """Gone at once."""
        async with self._acting("shutdown", vm.vm_id, host.host_id):
            await self._halt(vm.vm_id)

    async def cancel(self, vm: VmSpec, host: HostSpec) -> None:
        """Gone at once."""
        async with self._acting("cancel", vm.vm_id, host.host_id):
            await self._halt(vm.vm_id)

    async def save(self, vm: VmSpec, host: HostSpec) -> None:
        """Gone at once; the guest is cancelled and starts again on restore."""
        async with self._acting("save", vm.vm_id, host.host_id):
            await self._halt(vm.vm_id)

    async def restore(self, vm: VmSpec, host: HostSpec) -> None:
        """RUNNING at once."""
        async with self._acting("restore", vm.vm_id, host.host_id):
            await self._live(vm, host)

    async def migrate(self, vm: VmSpec, source: HostSpec, target: HostSpec) -> None:  # noqa: ARG002 (nothing moves)
        """Moved at once; the guest continues."""
        async with self._acting("migrate", vm.vm_id, source.host_id):
            return

    async def reboot(self, vm: VmSpec, host: HostSpec, hard: bool) -> None:
        """The guest starts again."""
        async with self._acting("reset" if hard else "reboot", vm.vm_id, host.host_id):
            await self._live(vm, host)

    async def transfer(self, vm: VmSpec, host: HostSpec) -> None:
        """Nothing to transfer."""
        async with self._acting("transfer", vm.vm_id, host.host_id):
            return

    async def clean(self, vm: VmSpec, host: HostSpec) -> None:
        """Nothing to clean."""
        async with self._acting("clean", vm.vm_id, host.host_id):
            return

    async def stow(self, vm: VmSpec, host: HostSpec) -> None:
        """Nothing to stow."""
        async with self._acting("stow", vm.vm_id, host.host_id):
            return

    async def fetch(self, vm: VmSpec, host: HostSpec) -> None:
        """Nothing to fetch."""
        async with self._acting("fetch", vm.vm_id, host.host_id):
            return

    async def usage(self, vm_id: int) -> Usage | None:
        """A dummy VM uses nothing."""
        return Usage(0.0, 0) if vm_id in self._running else None
