"""What the embedded OpenNebula asks of a hypervisor.

The server keeps the OpenNebula state machine, capacity, history and permissions; a driver only acts. It never decides
a state.

1. Each call may take arbitrarily long and may be cancelled; a driver leaves nothing half done that a later `cancel`
   or `clean` cannot remove.
2. A call that fails raises `DriverError`; its text becomes the VM's `USER_TEMPLATE/ERROR` where OpenNebula sets one
   (boot and transfers).
3. `ended` (given to `start`) is the driver's only way to speak first: a VM that ended by itself becomes POWEROFF.
4. `stow` and `fetch` are optional: what OpenNebula's transfer manager does when a VM leaves its host but is to come
   back (EPILOG_STOP, EPILOG_UNDEPLOY) and when it comes back or moves (PROLOG_RESUME, PROLOG_UNDEPLOY,
   PROLOG_MIGRATE…). A driver whose hosts share a file system needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host as a driver sees it: `cores` whole cores, `memory_mb` in MiB."""

    host_id: int
    name: str
    cores: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device: `index` among those of the machine, `node` its device node; empty where nothing stands behind it."""

    index: int
    node: str


@dataclass(frozen=True, slots=True)
class VmSpec:
    """A VM as a driver sees it.

    `cpu` is in cores (0.5 is half a core), `memory_mb` in MiB. `context` holds TEMPLATE/CONTEXT, `attributes` the
    flat strings of USER_TEMPLATE (for instance PHOENIX_ID); `gpus` are those that it has on its host.
    """

    vm_id: int
    name: str
    cpu: float
    memory_mb: int
    context: Mapping[str, str]
    attributes: Mapping[str, str]
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a VM uses now: `cpu_percent` of one core of its host (250.0 is two and a half cores), `memory_kb` resident."""

    cpu_percent: float
    memory_kb: int


class DriverError(Exception):
    """A driver call failed; the text is for the person who reads the VM's ERROR attribute."""


class Driver(Protocol):
    """One hypervisor, for all hosts."""

    name: str

    async def start(self, ended: Callable[[int, str], None]) -> None:
        """Make ready. `ended(vm_id, why)` is to be called, in the server's event loop, when a VM ends by itself."""

    async def close(self) -> None:
        """Stop everything that was started; leave no process."""

    async def boot(self, vm: VmSpec, host: HostSpec) -> str:
        """Start the VM; returns its deploy id. The VM is RUNNING when this returns."""

    async def shutdown(self, vm: VmSpec, host: HostSpec) -> None:
        """Stop gracefully; returns when it is gone."""

    async def cancel(self, vm: VmSpec, host: HostSpec) -> None:
        """Stop at once; returns when it is gone. Gone already is success."""

    async def save(self, vm: VmSpec, host: HostSpec) -> None:
        """Freeze the VM so that `restore` can continue it."""

    async def restore(self, vm: VmSpec, host: HostSpec) -> None:
        """Continue a saved VM."""

    async def migrate(self, vm: VmSpec, source: HostSpec, target: HostSpec) -> None:
        """Move a running VM."""

    async def reboot(self, vm: VmSpec, host: HostSpec, hard: bool) -> None:
        """Restart the guest."""

    async def transfer(self, vm: VmSpec, host: HostSpec) -> None:
        """PROLOG: put in place what the VM needs before its first boot."""

    async def clean(self, vm: VmSpec, host: HostSpec) -> None:
        """EPILOG: remove what `transfer` made."""

    async def usage(self, vm_id: int) -> Usage | None:
        """What the VM uses now, or None if it does not run."""


@runtime_checkable
class MovingDriver(Protocol):
    """The optional part (rule 4)."""

    async def stow(self, vm: VmSpec, host: HostSpec) -> None:
        """EPILOG_STOP, EPILOG_UNDEPLOY: take the VM's files off the host, keeping them."""

    async def fetch(self, vm: VmSpec, host: HostSpec) -> None:
        """PROLOG_RESUME, PROLOG_UNDEPLOY, PROLOG_MIGRATE…: bring the VM's files to the host."""
