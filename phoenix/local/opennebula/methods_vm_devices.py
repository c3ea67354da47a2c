"""one.vm.*: changes of a VM's devices and configuration, snapshots and scheduled actions.

While a running VM is changed it is in a HOTPLUG state; the hypervisors here have nothing to plug, so that it leaves
it at once (step `hotplug`).
"""

from __future__ import annotations

import dataclasses

from phoenix.local.opennebula import devices
from phoenix.local.opennebula.auth import MANAGE
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, INTERNAL, NO_EXISTS, OneError
from phoenix.local.opennebula.methods_vm import parse_template, vm_for
from phoenix.local.opennebula.model import Vm
from phoenix.local.opennebula.states import Action, Lcm, VmState
from phoenix.local.opennebula.templates import Template, Vector

_RUNNING = (VmState.ACTIVE, Lcm.RUNNING)

# What one.vm.updateconf may change.
_CONFIGURABLE = ("CONTEXT", "CPU_MODEL", "FEATURES", "GRAPHICS", "INPUT", "OS", "RAW", "TPM", "VIDEO", "BACKUP_CONFIG")


# What OpenNebula put into those vectors itself.
_OURS = ("DISK_ID", "TARGET", "UUID")


def _running(vm: Vm) -> bool:
    return (vm.state, vm.lcm) == _RUNNING


def _plug(call: Call, vm: Vm, lcm: Lcm) -> None:
    """Through a HOTPLUG state, if the VM runs."""
    if _running(vm):
        call.one.machine.move(vm, (VmState.ACTIVE, lcm))
        call.one.machine.drive(vm)
    vm.touch()


def _attach(call: Call, vm: Vm, lcm: Lcm, action: Action, template: Template) -> None:
    """Through a HOTPLUG state with a new device: the stay ends as it was, another begins with the device."""
    if not _running(vm):
        vm.template = template
        vm.touch()
        return
    machine, ended = call.one.machine, vm.history[-1]
    ended.vm = None
    machine.move(vm, (VmState.ACTIVE, lcm))
    vm.template = template
    machine.split_history(vm, action, call.user, call.request_id)
    if ended.vm is not None:
        vm.history[-1].vm = dataclasses.replace(ended.vm, template=template)
    machine.drive(vm)


def _idle(vm: Vm) -> bool:
    return vm.state in (VmState.PENDING, VmState.HOLD, VmState.POWEROFF, VmState.UNDEPLOYED)


@method("one.vm.updateconf", "is?i")
def update_configuration(call: Call, vm_id: int, text: str, mode: int = 0) -> int:
    """Change CONTEXT and other configuration: mode 1 merges within vectors, 0 replaces them."""
    vm = vm_for(call, vm_id, MANAGE)
    if not (_running(vm) or _idle(vm)):
        raise OneError(ACTION, f"Update configuration action is not available for state {vm.state_name}")
    wanted = parse_template(text, INTERNAL)
    template = vm.template
    for name in _CONFIGURABLE:
        new = wanted.vector(name)
        if new is not None:
            old = template.vector(name) or {}
            kept: Vector = old if mode == 1 else {key: value for key, value in old.items() if key in _OURS}
            template = template.with_value(name, {**kept, **new})
    vm.template = template
    _plug(call, vm, Lcm.HOTPLUG)
    return vm.id


@method("one.vm.attach", "is")
def attach(call: Call, vm_id: int, text: str) -> int:
    """Add a disk."""
    vm = vm_for(call, vm_id, MANAGE)
    if not (_running(vm) or vm.state == VmState.POWEROFF):
        raise OneError(ACTION, f"Attach action is not available for state {vm.state_name}")
    wanted = parse_template(text, INTERNAL).vector("DISK")
    if wanted is None:
        raise OneError(INTERNAL, "Could not add disk to template: no DISK vector")
    disks = vm.template.vectors("DISK")
    number = 1 + max([-1, *(int(disk.get("DISK_ID", "-1")) for disk in disks), *_context_disk(vm)])
    disk = devices.volatile_disk(wanted, number, len(disks))
    if vm.history:
        disk = devices.place_volatile(disk, call.store.datastore(vm.history[-1].datastore_id))
        disk["TM_MAD_SYSTEM"] = disk["TM_MAD"]
    if _running(vm):
        disk["ATTACH"] = "YES"
    _attach(call, vm, Lcm.HOTPLUG, Action.DISK_ATTACH, vm.template.with_value("DISK", *disks, disk))
    return vm.id


def _context_disk(vm: Vm) -> list[int]:
    context = vm.template.vector("CONTEXT")
    return [int(context["DISK_ID"])] if context and "DISK_ID" in context else []


@method("one.vm.attachnic", "is")
def attach_nic(call: Call, vm_id: int, text: str) -> int:
    """Add a network interface."""
    vm = vm_for(call, vm_id, MANAGE)
    if not (_running(vm) or vm.state == VmState.POWEROFF):
        raise OneError(ACTION, f"Attach NIC action is not available for state {vm.state_name}")
    wanted = parse_template(text, INTERNAL)
    for nic in wanted.vectors("NIC"):
        devices.find_vnet(call.store, nic, ACTION)
    before = vm.template.vectors("NIC")
    added = devices.take_nics(call.store, Template({"NIC": [*wanted.vectors("NIC")]}), vm.id, first=len(before))
    if _running(vm):
        added = [{**nic, "ATTACH": "YES"} for nic in added]
    _attach(call, vm, Lcm.HOTPLUG_NIC, Action.NIC_ATTACH, vm.template.with_value("NIC", *before, *added))
    return vm.id


@method("one.vm.snapshotcreate", "is")
def snapshot_create(call: Call, vm_id: int, name: str) -> int:
    """Take a snapshot; returns its id."""
    vm = vm_for(call, vm_id, MANAGE)
    if not _running(vm):
        raise OneError(ACTION, f"Could not create a new snapshot for VM {vm_id}, wrong state {vm.state_name}.")
    known = vm.template.vectors("SNAPSHOT")
    number = 1 + max([-1, *(int(item["SNAPSHOT_ID"]) for item in known)])
    snapshot = {
        "HYPERVISOR_ID": f"{call.one.driver.name}-snap",
        "NAME": name or f"snapshot-{number}",
        "SNAPSHOT_ID": str(number),
        "SYSTEM_DISK_SIZE": str(vm.memory_mb),
        "TIME": str(call.one.clock.second()),
    }
    vm.template = vm.template.with_value("SNAPSHOT", *known, snapshot)
    _plug(call, vm, Lcm.HOTPLUG_SNAPSHOT)
    return number


@method("one.vm.schedadd", "is")
def sched_add(call: Call, vm_id: int, text: str) -> int:
    """Note a scheduled action.

    Returns its id. Nothing runs it: this OpenNebula has no scheduler (rule X7 of the protocol).
    """
    vm = vm_for(call, vm_id, MANAGE)
    wanted = parse_template(text, INTERNAL).vector("SCHED_ACTION")
    if wanted is None or not wanted.get("ACTION") or not wanted.get("TIME"):
        raise OneError(INTERNAL, "Error adding scheduled action: ACTION and TIME are required")
    number = 1 + max([-1, *(int(action["ID"]) for action in vm.sched_actions)])
    vm.sched_actions = [*vm.sched_actions, {**wanted, "ID": str(number), "PARENT_ID": str(vm_id), "TYPE": "VM"}]
    vm.touch()
    return number


@method("one.vm.scheddelete", "ii")
def sched_delete(call: Call, vm_id: int, number: int) -> int:
    """Forget a scheduled action."""
    vm = vm_for(call, vm_id, MANAGE)
    kept = [action for action in vm.sched_actions if action["ID"] != str(number)]
    if len(kept) == len(vm.sched_actions):
        raise OneError(NO_EXISTS, f"Sched action doesn't exist: {number}", number)
    vm.sched_actions = kept
    vm.touch()
    return vm_id
