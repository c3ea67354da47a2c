"""What each hypervisor can do with a running VM beside ending it: one table, read by the configuration, the cores and the docs.

`suspend`: its memory is saved and its host given up (OpenNebula's `stop`).  `resume_elsewhere`: it resumes on any host.
`live_migration`: it moves while it runs.  `cold_migration`: it is saved, moved and resumed by one order.
`keep_devices`: what is said of the others holds also of a VM that has devices of its host (`Dimension.fixed`).

`ENDS_ITSELF`: those whose machines may power themselves off.  OpenNebula's LXC driver cleans up after a container that it stops
itself; where the container has ended by itself, its stop fails, and what it had mounted stays on the host.

Sources: OpenNebula's drivers (KVM, LXC, Xen); `docs/reference/lifecycle.md` says what was run here, what is upstream's.
"""

from __future__ import annotations

from typing import Final, Literal

from schemas.config import Capability
from schemas.dimensions import is_fixed
from schemas.size import NOTHING, Size

Hypervisor = Literal["process", "dummy", "kvm", "qemu", "lxc", "xen"]
ALL: Final[tuple[Capability, ...]] = ("suspend", "resume_elsewhere", "live_migration", "cold_migration")
CAPABILITIES: Final[dict[Hypervisor, tuple[Capability, ...]]] = {
    "process": ALL,  # SIGSTOP and SIGCONT; every host is the same machine, so the memory need not move
    "dummy": (*ALL, "keep_devices"),  # does nothing, and succeeds
    "kvm": ALL,
    "qemu": ALL,  # KVM's driver without the processor's help (VM_MAD qemu): slower, and able to do the same
    "lxc": (),  # upstream's driver has neither save nor migrate
    "xen": ALL,
}
ENDS_ITSELF: Final[tuple[Hypervisor, ...]] = ("process", "dummy", "kvm", "qemu", "xen")


def ends_itself(*named: str) -> bool:
    """True if VMs may power themselves off where the hypervisor goes by all of these names; False where none is known."""
    return bool(named) and all(name in ENDS_ITSELF for name in named)


def can(capabilities: tuple[Capability, ...], wish: str, size: Size = NOTHING) -> bool:
    """True if `on_reclaim = wish` can be kept where the hypervisors have these capabilities, of what has this much."""
    if wish in ("suspend", "migrate") and is_fixed(size) and "keep_devices" not in capabilities:
        return False
    if wish == "suspend":
        return "suspend" in capabilities and "resume_elsewhere" in capabilities
    if wish == "migrate":
        return "live_migration" in capabilities or can(capabilities, "suspend")
    return wish in ("kill", "requeue")
