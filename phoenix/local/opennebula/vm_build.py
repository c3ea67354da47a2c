"""From a template to a VM: what is checked, what OpenNebula adds, and what is capacity rather than the user's.

1. Checked in this order, with OpenNebula's words: MEMORY, CPU, VCPU, NAME, disks, networks. A disk is volatile (TYPE and
   SIZE), or names an image of the store, which holds names alone; so do NICs and networks. A request that names another gets
   what `oned` says of one that is not there. While an image is LOCKED its VMs wait in CLONING.
2. Attributes that OpenNebula knows go to TEMPLATE, all others to USER_TEMPLATE; NAME to neither.
3. CONTEXT becomes a disk: it gets DISK_ID and TARGET.  `$WORD` in its values is replaced by the VM's attribute of that name, or
   by nothing, whatever follows it; a `$` that ends the word goes too.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from phoenix.local.opennebula.errors import INTERNAL, OneError
from phoenix.local.opennebula.model import IMAGE_LOCKED, IMAGE_READY, Datastore, Image, Network, User, Vm
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


T = TypeVar("T", Image, Network)
IMAGE_USED = 2
# What oned calls the states in which no VM may have an image.
IMAGE_STATES = {0: "INIT", 3: "DISABLED", 5: "ERROR", 6: "CLONE", 7: "DELETE"}


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
    if not disk.get("SIZE", "").isdigit():
        raise OneError(INTERNAL, f"DISK {number}: Not valid or missing SIZE.")
    format_ = disk.get("FORMAT", "raw")
    base = {"DEV_PREFIX": "sd", "DISK_ID": str(number), "DRIVER": format_, "FORMAT": format_, "DISK_TYPE": "FILE"}
    return {**base, "TARGET": f"sd{chr(ord('a') + number)}", **disk, "TYPE": disk.get("TYPE", "fs")}


def _disk(store: Store, disk: Vector, number: int, user: User) -> Vector:
    """A disk with what it copies, if it names an image."""
    if "IMAGE_ID" not in disk and "IMAGE" not in disk:
        return _volatile_disk(disk, number)
    if "IMAGE_ID" in disk:
        found = store.images.get(_id(disk["IMAGE_ID"]))
        missing = f"Image with ID: {disk['IMAGE_ID']} does not exist"
    else:
        found = _named(store.images.values(), disk["IMAGE"], disk.get("IMAGE_UNAME", user.name))
        whose = f"does not own an image with name: {disk['IMAGE']} . Set IMAGE_UNAME or IMAGE_UID."
        missing = f"User {_owner(store, disk.get('IMAGE_UNAME'), user)} {whose}"
    if found is None:
        raise OneError(INTERNAL, f"DISK {number}: {missing}")
    if found.state not in (IMAGE_READY, IMAGE_USED, IMAGE_LOCKED):
        state = IMAGE_STATES.get(found.state, "UNKNOWN")
        raise OneError(INTERNAL, f"Cannot acquire image {found.id}, it is in state: {state}")
    base = {
        "DISK_ID": str(number),
        "DRIVER": "raw",
        "FORMAT": "raw",
        "TYPE": "FILE",
        "DEV_PREFIX": "sd",
        "CLONE": "YES",
    }
    target = {"TARGET": f"sd{chr(ord('a') + number)}"}
    return {**base, **target, **disk, "IMAGE": found.name, "IMAGE_ID": str(found.id), "IMAGE_STATE": str(found.state)}


def _nic(store: Store, nic: Vector, number: int, user: User) -> Vector:
    if "NETWORK_ID" in nic:
        found = store.networks.get(_id(nic["NETWORK_ID"]))
    else:
        found = _named(store.networks.values(), nic.get("NETWORK", ""), nic.get("NETWORK_UNAME", user.name))
    if found is None:
        raise _no_network(nic)
    return {
        **nic,
        "NIC_ID": str(number),
        "NETWORK": found.name,
        "NETWORK_ID": str(found.id),
        "IP": f"192.0.2.{number + 1}",
    }


def _id(text: str) -> int:
    return int(text) if text.isdigit() else -1


def _named(things: Iterable[T], name: str, uname: str) -> T | None:
    return next((thing for thing in things if (thing.name, thing.uname) == (name, uname)), None)


def _owner(store: Store, uname: str | None, user: User) -> int:
    """The number of the user whose objects were looked through."""
    return next((each.id for each in store.users.values() if each.name == uname), user.id)


def has_images(vm: Vm, store: Store) -> bool:
    """False while an image of the VM is still to be copied."""
    numbers = [_id(disk["IMAGE_ID"]) for disk in vm.template.vectors("DISK") if "IMAGE_ID" in disk]
    return all(number not in store.images or store.images[number].state != IMAGE_LOCKED for number in numbers)


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


_VARIABLE = re.compile(r"(?<!\\)\$(\w+)\$?")


def _context(vector: Vector, known: Mapping[str, str], disks: int) -> Vector:
    filled = {key: _VARIABLE.sub(lambda x: known.get(x[1].upper(), ""), value) for key, value in vector.items()}
    return {**filled, "DISK_ID": str(disks), "TARGET": "hda"}


def build(store: Store, source: Template, user: User, gname: str, hold: bool, now: int, new: NewUuid = new_uuid) -> Vm:
    """A VM in PENDING or HOLD. Raises `OneError`, having taken nothing."""
    cpu, memory_mb = check_capacity(source)
    name = source.get("NAME")
    if name:
        check_name(name, INTERNAL)
    disks = [_disk(store, disk, number, user) for number, disk in enumerate(source.vectors("DISK"))]
    nics = [_nic(store, nic, number, user) for number, nic in enumerate(source.vectors("NIC"))]
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
    if nics:
        added["NIC"] = list(nics)
    context = source.vector("CONTEXT")
    if context is not None:
        owner = {"UID": str(user.id), "UNAME": user.name, "GID": str(user.groups[0]), "GNAME": gname}
        attributes = {**source.strings(), **owner, "NAME": name, "VMID": str(vm_id)}
        added["CONTEXT"] = [_context(context, attributes, len(disks))]
    if hold:
        added["SUBMIT_ON_HOLD"] = ["YES"]
    if source.has("DEPLOY_ID"):
        added["IMPORTED"] = ["YES"]
    others = {
        key: values for key, values in source.values.items() if key not in KNOWN and key not in ("NAME", "DEPLOY_ID")
    }
    state = VmState.HOLD if hold else VmState.PENDING
    if any(disk.pop("IMAGE_STATE", "") == str(IMAGE_LOCKED) for disk in disks):
        state = VmState.CLONING
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
