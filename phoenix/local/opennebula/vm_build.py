"""From a template to a VM: what is checked, what OpenNebula adds, and what is capacity rather than the user's.

1. Checked in this order, with OpenNebula's words: MEMORY, CPU, VCPU, NAME, disks, networks. A disk is volatile (TYPE and
   SIZE): there are neither images nor networks here, and a request that names one gets what `oned` says of one that is not
   there.
2. Attributes that OpenNebula knows go to TEMPLATE, all others to USER_TEMPLATE; NAME to neither.
3. CONTEXT becomes a disk: it gets DISK_ID and TARGET, and `$VMID`, `$NAME` are filled in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from phoenix.local.opennebula.errors import INTERNAL, OneError
from phoenix.local.opennebula.model import Datastore, User, Vm
from phoenix.local.opennebula.states import VmState
from phoenix.local.opennebula.store import Store
from phoenix.local.opennebula.templates import Template, Value, Vector

NAME_CHARS_MAX = 128

KNOWN = frozenset(
    {
        *(
            "BACKUP_CONFIG",
            "CLONING_TEMPLATE_ID",
            "CONTEXT",
            "CPU",
            "CPU_COST",
            "CPU_MODEL",
            "DISK",
            "DISK_COST",
            "EMULATOR",
        ),
        *("FEATURES", "GRAPHICS", "HYPERV_OPTIONS", "IMPORTED", "INPUT", "MEMORY", "MEMORY_COST", "MEMORY_MAX"),
        *(
            "MEMORY_RESIZE_MODE",
            "MEMORY_SLOTS",
            "NIC",
            "NIC_ALIAS",
            "NIC_DEFAULT",
            "NUMA_NODE",
            "OS",
            "PCI",
            "RAW",
            "SNAPSHOT",
        ),
        *("SPICE_OPTIONS", "SUBMIT_ON_HOLD", "TEMPLATE_ID", "TOPOLOGY", "TPM", "VCPU", "VCPU_MAX", "VIDEO", "VMGROUP"),
    }
)

# What only an administrator may set (a part of oned.conf's VM_RESTRICTED_ATTR).
RESTRICTED = ("DEPLOY_ID", "EMULATOR", "IMPORTED", "RAW", "CPU_COST", "MEMORY_COST", "DISK_COST")

_PINNING = "!(PIN_POLICY = PINNED)"

NewUuid = Callable[[], str]


def new_uuid() -> str:
    """A random UUID."""
    return str(uuid.uuid4())


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) > 0 else None


def check_capacity(template: Template) -> tuple[float, int]:
    """CPU in cores and MEMORY in MiB. Raises `OneError`."""
    memory_mb = _whole(template.get("MEMORY"))
    if memory_mb is None:
        raise OneError(INTERNAL, "MEMORY attribute must be a positive integer value.")
    cpu = _positive(template.get("CPU"))
    if cpu is None:
        raise OneError(INTERNAL, "CPU attribute must be a positive float or integer value.")
    if template.has("VCPU") and _whole(template.get("VCPU")) is None:
        raise OneError(INTERNAL, "VCPU attribute must be a positive integer value.")
    return cpu, memory_mb


def check_name(name: str, code: int) -> str:
    """A VM's or object's name. Raises `OneError`."""
    if not name:
        raise OneError(code, "Invalid NAME, it cannot be empty")
    if len(name) > NAME_CHARS_MAX:
        raise OneError(code, f"Invalid NAME, max length is {NAME_CHARS_MAX} chars")
    for char in name:
        if char in "&|:\\\";/'#{}$<>":
            raise OneError(code, f"Invalid NAME, char '{char}' is not allowed")
    return name


def _volatile_disk(disk: Vector, number: int) -> Vector:
    """A disk that lives and dies with its VM."""
    if "IMAGE_ID" in disk:
        raise OneError(INTERNAL, f"DISK {number}: Image with ID: {disk['IMAGE_ID']} does not exist")
    if "IMAGE" in disk:
        whose = f"User 0 does not own an image with name: {disk['IMAGE']} . Set IMAGE_UNAME or IMAGE_UID."
        raise OneError(INTERNAL, f"DISK {number}: {whose}")
    if not disk.get("SIZE", "").isdigit():
        raise OneError(INTERNAL, f"DISK {number}: Not valid or missing SIZE.")
    format_ = disk.get("FORMAT", "raw")
    base = {"DEV_PREFIX": "sd", "DISK_ID": str(number), "DRIVER": format_, "FORMAT": format_, "DISK_TYPE": "FILE"}
    return {**base, "TARGET": f"sd{chr(ord('a') + number)}", **disk, "TYPE": disk.get("TYPE", "fs")}


def place_volatile(disk: Vector, datastore: Datastore) -> Vector:
    """A volatile disk once its VM is on a system datastore."""
    template = datastore.template
    return {
        **disk,
        "ALLOW_ORPHANS": template.get("ALLOW_ORPHANS", "NO"),
        "CLUSTER_ID": ",".join(map(str, datastore.clusters)),
        "DATASTORE": datastore.name,
        "DATASTORE_ID": str(datastore.id),
        "PERSISTENT_SNAPSHOTS": template.get("PERSISTENT_SNAPSHOTS", "YES"),
        "TM_MAD": datastore.tm_mad,
    }


def _no_network(nic: Vector) -> OneError:
    if "NETWORK_ID" in nic:
        return OneError(INTERNAL, f"Virtual network with ID: {nic['NETWORK_ID']} does not exist")
    whose = (
        f"User 0 does not own a network with name: {nic.get('NETWORK', '')} . Set NETWORK_UNAME or NETWORK_UID in NIC."
    )
    return OneError(INTERNAL, whose)


def _context(vector: Vector, vm_id: int, name: str, disks: int) -> Vector:
    filled = {key: value.replace("$VMID", str(vm_id)).replace("$NAME", name) for key, value in vector.items()}
    return {**filled, "DISK_ID": str(disks), "TARGET": "hda"}


def build(store: Store, source: Template, user: User, gname: str, hold: bool, now: int, new: NewUuid = new_uuid) -> Vm:
    """A VM in PENDING or HOLD. Raises `OneError`, having taken nothing."""
    cpu, memory_mb = check_capacity(source)
    name = source.get("NAME")
    if name:
        check_name(name, INTERNAL)
    disks = [_volatile_disk(disk, number) for number, disk in enumerate(source.vectors("DISK"))]
    if nics := source.vectors("NIC"):
        raise _no_network(nics[0])
    vm_id = store.new_id("vms")
    name = name or f"one-{vm_id}"
    known = {
        key: values for key, values in source.values.items() if key in KNOWN and key not in ("DISK", "NIC", "CONTEXT")
    }
    template = Template(known)
    added: dict[str, list[Value]] = {"VMID": [str(vm_id)], "OS": [{**(source.vector("OS") or {}), "UUID": new()}]}
    added["AUTOMATIC_REQUIREMENTS"] = [_PINNING]
    if disks:
        added["DISK"] = list(disks)
    context = source.vector("CONTEXT")
    if context is not None:
        added["CONTEXT"] = [_context(context, vm_id, name, len(disks))]
    if hold:
        added["SUBMIT_ON_HOLD"] = ["YES"]
    if source.has("DEPLOY_ID"):
        added["IMPORTED"] = ["YES"]
    others = {
        key: values for key, values in source.values.items() if key not in KNOWN and key not in ("NAME", "DEPLOY_ID")
    }
    state = VmState.HOLD if hold else VmState.PENDING
    vm = Vm(
        id=vm_id,
        name=name,
        uid=user.id,
        gid=user.groups[0],
        uname=user.name,
        gname=gname,
        template=Template({**template.values, **added}),
        user_template=Template(others),
        state=state,
        prev_state=state,
        stime=now,
        deploy_id=source.get("DEPLOY_ID"),
        cpu=cpu,
        memory_mb=memory_mb,
    )
    store.vms[vm_id] = vm
    return vm
