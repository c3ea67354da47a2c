"""Quotas of users and groups on VMs: CPU, MEMORY, VMS, and the same of running ones. -1: no limit."""

from __future__ import annotations

from phoenix.local.opennebula.calls import Call
from phoenix.local.opennebula.errors import AUTHORIZATION, OneError
from phoenix.local.opennebula.model import Group, User, Vm
from phoenix.local.opennebula.states import VmState
from phoenix.local.opennebula.templates import Template, cdata

LIMITS = (
    *("CPU", "MEMORY", "PCI_DEV", "PCI_NIC", "RUNNING_CPU", "RUNNING_MEMORY", "RUNNING_PCI_DEV", "RUNNING_PCI_NIC"),
    *("RUNNING_VMS", "SYSTEM_DISK_SIZE", "VMS"),
)
DEFAULTS_XML = (
    "<DATASTORE_QUOTA></DATASTORE_QUOTA><NETWORK_QUOTA></NETWORK_QUOTA><VM_QUOTA></VM_QUOTA><IMAGE_QUOTA></IMAGE_QUOTA>"
)

# The order in which oned asks, found by recording what it names first.
_CHECKED = ("VMS", "RUNNING_VMS", "CPU", "RUNNING_CPU", "MEMORY", "RUNNING_MEMORY")

# VMs in these states do not count as running for quotas.
_IDLE = frozenset({VmState.STOPPED, VmState.UNDEPLOYED, VmState.POWEROFF, VmState.SUSPENDED, VmState.DONE})


def _number(value: float) -> str:
    return f"{value:g}"


def _used(vms: list[Vm]) -> dict[str, float]:
    running = [vm for vm in vms if vm.state not in _IDLE]
    return {
        "CPU": sum(vm.cpu for vm in vms),
        "MEMORY": sum(vm.memory_mb for vm in vms),
        "VMS": len(vms),
        "RUNNING_CPU": sum(vm.cpu for vm in running),
        "RUNNING_MEMORY": sum(vm.memory_mb for vm in running),
        "RUNNING_VMS": len(running),
    }


def _vms_of(call: Call, owner: User | Group) -> list[Vm]:
    if isinstance(owner, User):
        return [vm for vm in call.store.vms.values() if vm.uid == owner.id]
    return [vm for vm in call.store.vms.values() if vm.gid == owner.id]


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def check(call: Call, source: Template) -> None:
    """Raises `OneError` if a VM of this template would exceed a limit of its owner or the owner's group."""
    if 0 in call.user.groups:
        return
    cpu, memory_mb = _float(source.get("CPU")), _float(source.get("MEMORY"))
    asked = {
        "CPU": cpu,
        "MEMORY": memory_mb,
        "VMS": 1.0,
        "RUNNING_CPU": cpu,
        "RUNNING_MEMORY": memory_mb,
        "RUNNING_VMS": 1.0,
    }
    owners: tuple[tuple[str, User | Group], ...] = (
        ("user", call.user),
        ("group", call.store.groups[call.user.groups[0]]),
    )
    for kind, owner in owners:
        if owner.quota is None:
            continue
        used = _used(_vms_of(call, owner))
        for name in _CHECKED:
            limit = owner.quota.get(name, -1.0)
            if limit >= 0 and used[name] + asked[name] > limit:
                text = f"{kind} [{owner.id}] limit of {_number(limit)} reached for {name} quota in VM."
                raise OneError(AUTHORIZATION, f"User [{call.user.id}] : {text}")


def update(owner: User | Group, wanted: Template) -> None:
    """Set the limits that a VM vector names; what it names not stays, other vectors are ignored as oned does."""
    vector = wanted.vector("VM")
    if vector is None:
        return
    quota = dict(owner.quota or dict.fromkeys(LIMITS, -1.0))
    quota.update({name: _float(value) for name, value in vector.items() if name in LIMITS})
    owner.quota = quota


def xml(call: Call, owner: User | Group) -> str:
    """The four quota elements."""
    if owner.quota is None:
        return DEFAULTS_XML
    used = _used(_vms_of(call, owner))
    values: list[str] = []
    for name in LIMITS:
        limit, taken = owner.quota.get(name, -1.0), used.get(name, 0.0)
        values.append(f"<{name}>{cdata(_number(limit))}</{name}><{name}_USED>{cdata(_number(taken))}</{name}_USED>")
    return DEFAULTS_XML.replace("<VM_QUOTA></VM_QUOTA>", f"<VM_QUOTA><VM>{''.join(values)}</VM></VM_QUOTA>")
