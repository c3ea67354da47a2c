"""one.vm.*: allocate, deploy, act, migrate, recover, update, and look."""

from __future__ import annotations

from phoenix.local.opennebula import quotas
from phoenix.local.opennebula.auth import ADMIN, CREATE, MANAGE, USE, Need, need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, AUTHORIZATION, INTERNAL, XML_RPC_API, OneError, TemplateError
from phoenix.local.opennebula.lifecycle import ACTIONS, DEPLOYABLE, MIGRATE_TYPES, MIGRATIONS, Rule
from phoenix.local.opennebula.model import Datastore, Host, Vm
from phoenix.local.opennebula.render import vm_escaped
from phoenix.local.opennebula.states import Action, HostState, Lcm, VmState
from phoenix.local.opennebula.templates import Template, parse
from phoenix.local.opennebula.vm_build import RESTRICTED, build, place_volatile
from phoenix.local.opennebula.xmlrpc import Escaped

# Actions that an owner may not take, only an administrator of the VM.
_ADMIN_ACTIONS = frozenset({"resched", "unresched"})


def parse_template(text: str, code: int) -> Template:
    """A template from a call. Raises `OneError`."""
    try:
        return parse(text)
    except TemplateError as error:
        raise OneError(code, str(error)) from None


def updated(old: Template, text: str, mode: int, code: int) -> Template:
    """A template after an update: mode 0 replaces, 1 merges. Raises `OneError`."""
    if mode not in (0, 1):
        raise OneError(XML_RPC_API, "Wrong update type")
    new = parse_template(text, code)
    return old.merged(new) if mode == 1 else new


def vm_for(call: Call, vm_id: int, right: str, *others: Need) -> Vm:
    """A VM that the caller may use so. Raises `OneError`."""
    vm = call.store.vm(vm_id)
    call.one.auth.require(call.user, need(right, "VM", vm), *others)
    return vm


@method("one.vm.allocate", "s?b")
def allocate(call: Call, text: str, hold: bool = False) -> int:
    """A new VM, PENDING or on HOLD."""
    source = parse_template(text, INTERNAL)
    call.one.auth.require(call.user, Need(CREATE, "VM"))
    return create(call, source, hold)


def create(call: Call, source: Template, hold: bool) -> int:
    """The VM that a template asks for."""
    if 0 not in call.user.groups:
        for name in RESTRICTED:
            if source.has(name):
                raise OneError(
                    AUTHORIZATION, f"User [{call.user.id}] : VM Template includes a restricted attribute {name}."
                )
    quotas.check(call, source)
    gname = call.store.groups[call.user.groups[0]].name
    vm = build(call.store, source, call.user, gname, hold, call.one.clock.second())
    call.one.machine.move(vm, (VmState(vm.state), Lcm.LCM_INIT))
    return vm.id


@method("one.vm.info", "i?b")
def info(call: Call, vm_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """The VM as XML."""
    vm = call.store.vm(vm_id)
    call.one.auth.require(call.user, need(USE, "VM", vm))
    return Escaped(vm_escaped(vm, extended=True))


# -- placement -------------------------------------------------------------------------------------


def _system_datastore(call: Call, host: Host, datastore_id: int) -> Datastore:
    if datastore_id >= 0:
        datastore = call.store.datastore(datastore_id)
        if datastore.type != 1:
            raise OneError(
                INTERNAL,
                f"Trying to use datastore [{datastore_id}] to deploy the VM, but it is not of type system datastore.",
            )
        return datastore
    for number in sorted(call.store.clusters[host.cluster_id].datastores):
        if call.store.datastores[number].type == 1:
            return call.store.datastores[number]
    raise OneError(ACTION, f"cluster [{host.cluster_id}] does not have any datastore of type SYSTEM_DS.")


def _need_host(host: Host) -> Need:
    return Need(MANAGE, "HOST", None, host.id)


@method("one.vm.deploy", "ii?bis")
def deploy(call: Call, vm_id: int, host_id: int, enforce: bool = False, datastore_id: int = -1, extra: str = "") -> int:  # noqa: ARG001 (NIC choice)
    """Begin to run a VM on a host."""
    vm, host = call.store.vm(vm_id), call.store.host(host_id)
    vm_for(call, vm_id, ADMIN, _need_host(host))
    datastore = call.store.datastore(datastore_id) if datastore_id >= 0 else None
    if vm.state not in DEPLOYABLE:
        raise OneError(ACTION, f"Deploy action is not available for state {vm.state_name}")
    if host.state == HostState.OFFLINE:
        raise OneError(ACTION, "Host is offline, cannot use it to deploy VM")
    datastore = _system_datastore(call, host, datastore_id)
    if enforce:
        call.store.fits(vm, host)
    begin(call, vm, host, datastore)
    return vm.id


def begin(call: Call, vm: Vm, host: Host, datastore: Datastore) -> None:
    """A stay on the host begins: capacity is counted, the VM is ACTIVE."""
    machine = call.one.machine
    machine.add_history(vm, host, datastore.id, datastore.tm_mad)
    vm.template = vm.template.with_value("TM_MAD_SYSTEM", datastore.tm_mad)
    if vm.template.has("DISK"):
        disks = [place_volatile(disk, datastore) for disk in vm.template.vectors("DISK")]
        vm.template = vm.template.with_value("DISK", *disks)
    call.store.count(vm, host.id)
    machine.move(vm, (VmState.ACTIVE, Lcm.LCM_INIT))
    machine.drive(vm)


@method("one.vm.migrate", "ii?bbii")
def migrate(
    call: Call,
    vm_id: int,
    host_id: int,
    live: bool = False,
    enforce: bool = False,
    datastore_id: int = -1,
    kind: int = 0,
) -> int:
    """Move a VM to another host."""
    vm, host = call.store.vm(vm_id), call.store.host(host_id)
    vm_for(call, vm_id, ADMIN, _need_host(host))
    states = MIGRATIONS.get((VmState(vm.state), Lcm(vm.lcm)))
    if states is None or not vm.history:
        raise OneError(ACTION, f"Migrate action is not available for state {vm.state_name}")
    if kind not in MIGRATE_TYPES:
        raise OneError(XML_RPC_API, f"Wrong migration type {kind}: 0 saves, 1 powers off, 2 powers off hard")
    if host.state == HostState.OFFLINE:
        raise OneError(ACTION, "Host is offline, cannot use it to migrate VM")
    if vm.state == VmState.ACTIVE and vm.template.has("PCI"):
        raise OneError(ACTION, f"VM [{vm.id}] has PCI devices: it cannot be migrated while it runs")
    last = vm.history[-1]
    if last.host_id == host.id and datastore_id in (-1, last.datastore_id):
        raise OneError(ACTION, f"VM is already running on host [{host.id}] and datastore [{last.datastore_id}]")
    datastore = _system_datastore(call, host, datastore_id if datastore_id >= 0 else last.datastore_id)
    if enforce:
        call.store.fits(vm, host)
    _begin_migration(call, vm, host, datastore, states[1] if live else states[0], kind)
    return vm.id


def _begin_migration(call: Call, vm: Vm, host: Host, datastore: Datastore, lcm: Lcm, kind: int) -> None:
    machine = call.one.machine
    action = Action.LIVE_MIGRATE if lcm == Lcm.MIGRATE else MIGRATE_TYPES[kind]
    if vm.state != VmState.ACTIVE or lcm == Lcm.PROLOG_MIGRATE_UNKNOWN:
        action = Action.MIGRATE
    before = vm.history[-1]
    if vm.state == VmState.ACTIVE:
        machine.note(vm, action, call.user, call.request_id)
    record = machine.add_history(vm, host, datastore.id, datastore.tm_mad)
    record.stime = call.one.clock.second()
    if lcm not in (Lcm.MIGRATE, Lcm.SAVE_MIGRATE):
        before.etime = record.stime
        before.retime = before.retime or record.stime
    if action != Action.LIVE_MIGRATE:
        machine.note(vm, action, call.user, call.request_id)
    call.store.count(vm, host.id)
    machine.move(vm, (VmState.ACTIVE, lcm))
    machine.drive(vm)


# -- actions ---------------------------------------------------------------------------------------


@method("one.vm.action", "si")
def act(call: Call, action: str, vm_id: int) -> int:
    """terminate, poweroff, suspend, resume…"""
    vm = call.store.vm(vm_id)
    rules = ACTIONS.get(action)
    call.one.auth.require(call.user, need(ADMIN if action in _ADMIN_ACTIONS else MANAGE, "VM", vm))
    if rules is None:
        raise OneError(ACTION, f'Action "{action}" is not supported')
    rule = rules.get((VmState(vm.state), Lcm(vm.lcm)))
    if rule is None:
        refused = f'Error performing action "{action}": '
        if action.startswith("terminate"):
            raise OneError(ACTION, f"{refused}Could not terminate VM {vm.id}, wrong state {vm.state_name}.")
        raise OneError(ACTION, f"{refused}This action is not available for state {vm.state_name}")
    _perform(call, vm, action, rule)
    return vm.id


def _perform(call: Call, vm: Vm, action: str, rule: Rule) -> None:
    machine = call.one.machine
    if action in ("resched", "unresched"):
        vm.resched = int(action == "resched")
        vm.touch()
    elif action in ("reboot", "reboot-hard"):
        machine.reboot(vm, hard=action.endswith("hard"))
    elif rule.action == Action.DELETE:
        machine.delete(vm, call.user, call.request_id)
    elif vm.state == VmState.DONE:
        return
    else:
        _change(call, vm, rule)


def _change(call: Call, vm: Vm, rule: Rule) -> None:
    machine = call.one.machine
    again = (vm.state, vm.lcm) == rule.target
    if rule.action == Action.RESUME and vm.state != VmState.ACTIVE:
        last = vm.history[-1]
        last.etime = call.one.clock.second()
        host = call.store.host(last.host_id)
        machine.add_history(vm, host, last.datastore_id, last.tm_mad).stime = call.one.clock.second()
    if rule.action is not None:
        machine.note(vm, rule.action, call.user, call.request_id)
    if not again:
        machine.move(vm, rule.target)
    machine.drive(vm)


@method("one.vm.recover", "ii")
def recover(call: Call, vm_id: int, operation: int) -> int:
    """0 failure, 1 success, 2 retry, 3 delete, 4 delete and recreate, 5 delete from the database."""
    vm = vm_for(call, vm_id, ADMIN)
    machine = call.one.machine
    if operation in (3, 5):
        if vm.state != VmState.DONE:
            if operation == 3:
                machine.delete(vm, call.user, call.request_id)
            else:
                machine.delete_from_database(vm)
    elif operation == 4:
        if vm.state == VmState.DONE:
            raise OneError(ACTION, "Cannot delete-recreate a VM already in DONE state")
        machine.recreate(vm, call.user, call.request_id)
    elif operation in (0, 1, 2):
        if vm.state != VmState.ACTIVE:
            what = "retry" if operation == 2 else "recover operation"
            raise OneError(ACTION, f"Could not perform a {what} on VM {vm.id}, wrong state {vm.state_name}.")
        if operation == 2:
            machine.retry(vm)
        else:
            machine.recover(vm, ok=operation == 1)
    else:
        raise OneError(ACTION, f"Wrong recovery operation code {operation}")
    return vm.id


@method("one.vm.update", "isi")
def update(call: Call, vm_id: int, text: str, mode: int) -> int:
    """Change USER_TEMPLATE."""
    vm = vm_for(call, vm_id, MANAGE)
    vm.user_template = updated(vm.user_template, text, mode, ACTION)
    vm.touch()
    call.one.persistence.changed(vm)
    return vm.id
