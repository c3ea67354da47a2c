"""one.vmpool.*: lists of VMs."""

from __future__ import annotations

from collections.abc import Iterable

from phoenix.local.opennebula import render
from phoenix.local.opennebula.auth import USE, need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import INTERNAL, XML_RPC_API, OneError
from phoenix.local.opennebula.model import Owned, Vm
from phoenix.local.opennebula.states import VmState

ANY_BUT_DONE, ANY = -1, -2


def filtered(call: Call, flag: int, things: Iterable[Owned], kind: str) -> list[Owned]:
    """Those that the filter flag names and the caller may use. Raises `OneError`."""
    if flag < -4:
        raise OneError(XML_RPC_API, "Incorrect filter_flag")
    user = call.user
    if flag == -3:
        things = [thing for thing in things if thing.uid == user.id]
    elif flag == -1:
        things = [thing for thing in things if thing.uid == user.id or thing.gid in user.groups]
    elif flag == -4:
        things = [thing for thing in things if thing.gid == user.groups[0]]
    elif flag >= 0:
        things = [thing for thing in things if thing.uid == flag]
    if 0 in user.groups:
        return list(things)
    return [thing for thing in things if call.one.auth.allowed(user, need(USE, kind, thing))]


def paged(things: list[Owned], start: int, end: int) -> list[Owned]:
    """A range of ids (`end` ≥ 0), or a page (`start` offset, `-end` size, newest first)."""
    if start >= 0 and end < -1:
        return things[start : start - end]
    if start >= 0:
        return [thing for thing in things if thing.id >= start and (end < 0 or thing.id <= end)]
    return things


def _in_state(call: Call, state: int) -> Iterable[Vm]:
    """VMs, newest first."""
    store = call.store
    if state not in (ANY, ANY_BUT_DONE) and state not in VmState.__members__.values():
        raise OneError(XML_RPC_API, f"Incorrect state filter {state}")
    if state == VmState.DONE:
        return sorted(store.final_vms.values(), key=lambda vm: -vm.id)
    live = reversed(store.vms.values())
    if state == ANY_BUT_DONE:
        return live
    if state == ANY:
        return sorted([*store.vms.values(), *store.final_vms.values()], key=lambda vm: -vm.id)
    return [vm for vm in live if vm.state == state]


def _vms(call: Call, flag: int, start: int, end: int, state: int) -> list[Vm]:
    things = paged(filtered(call, flag, _in_state(call, state), "VM"), start, end)
    return [thing for thing in things if isinstance(thing, Vm)]


def _no_search(search: str) -> None:
    if search:
        raise OneError(INTERNAL, "JSON query search is not supported by the SQL backend")


@method("one.vmpool.info", "iiii?s")
def info(call: Call, flag: int, start: int, end: int, state: int, search: str = "") -> str:
    """VMs in short."""
    vms = _vms(call, flag, start, end, state)
    _no_search(search)
    return render.vm_pool(vms, extended=False)


@method("one.vmpool.infoextended", "iiii?s")
def info_extended(call: Call, flag: int, start: int, end: int, state: int, search: str = "") -> str:
    """VMs in full."""
    vms = _vms(call, flag, start, end, state)
    _no_search(search)
    return render.vm_pool(vms, extended=True)


@method("one.vmpool.infoset", "s?b")
def info_set(call: Call, vm_ids: str, extended: bool = False) -> str:
    """The VMs named, newest first; what is no id or names none is left out."""
    wanted = {int(text) for text in vm_ids.split(",") if text.strip().isdigit()}
    found = [call.store.vms.get(vm_id) or call.store.final_vms.get(vm_id) for vm_id in sorted(wanted, reverse=True)]
    vms = filtered(call, ANY, [vm for vm in found if vm is not None], "VM")
    return render.vm_pool([vm for vm in vms if isinstance(vm, Vm)], extended)
