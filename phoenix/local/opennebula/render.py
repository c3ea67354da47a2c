"""VMs and hosts as OpenNebula prints them. Fragments are escaped once and cached on the object until it changes."""

from __future__ import annotations

from collections.abc import Iterable

from phoenix.local.opennebula import pci
from phoenix.local.opennebula.model import Cluster, Demand, History, Host, Owned, Sample, User, Vm
from phoenix.local.opennebula.templates import Template, cdata
from phoenix.local.opennebula.xmlrpc import Escaped, escape

_PERMS = ("OWNER_U", "OWNER_M", "OWNER_A", "GROUP_U", "GROUP_M", "GROUP_A", "OTHER_U", "OTHER_M", "OTHER_A")

# What a pool answer keeps of USER_TEMPLATE: oned leaves the rest to `infoextended` and `info`.
SHORT_USER_ATTRIBUTES = ("ERROR", "HYPERVISOR", "LABELS", "LOGO", "SCHED_MESSAGE")

_VM_SHORT_ATTRIBUTES = ("CPU", "MEMORY", "VCPU")


def text(value: str) -> str:
    """Element content that OpenNebula does not put into CDATA."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def ids(values: Iterable[int]) -> str:
    """A list of `<ID>`."""
    return "".join(f"<ID>{value}</ID>" for value in sorted(values))


def owner(thing: Owned) -> str:
    """ID to NAME."""
    return (
        f"<ID>{thing.id}</ID><UID>{thing.uid}</UID><GID>{thing.gid}</GID><UNAME>{text(thing.uname)}</UNAME>"
        f"<GNAME>{text(thing.gname)}</GNAME><NAME>{text(thing.name)}</NAME>"
    )


def permissions(thing: Owned) -> str:
    """PERMISSIONS."""
    inner = "".join(f"<{name}>{bit}</{name}>" for name, bit in zip(_PERMS, thing.perms, strict=True))
    return f"<PERMISSIONS>{inner}</PERMISSIONS>"


def samples(taken: list[Sample], seconds: int, now: float) -> str:
    """Samples of the last `seconds`; 0: only the last one, -1: all."""
    if seconds == 0:
        taken = taken[-1:]
    elif seconds > 0:
        taken = [sample for sample in taken if sample[0] >= now - seconds]
    return "".join(xml for _, xml in taken)


def history(record: History) -> str:
    """One HISTORY."""
    r = record
    return (
        f"<HISTORY><OID>{r.vm_id}</OID><SEQ>{r.seq}</SEQ><HOSTNAME>{text(r.host_name)}</HOSTNAME><HID>{r.host_id}</HID>"
        f"<CID>{r.cluster_id}</CID><STIME>{r.stime}</STIME><ETIME>{r.etime}</ETIME><VM_MAD>{cdata(r.vm_mad)}</VM_MAD>"
        f"<TM_MAD>{cdata(r.tm_mad)}</TM_MAD><DS_ID>{r.datastore_id}</DS_ID><PLAN_ID>-2</PLAN_ID><ACTION_ID>-1</ACTION_ID>"
        f"<PSTIME>{r.pstime}</PSTIME><PETIME>{r.petime}</PETIME><RSTIME>{r.rstime}</RSTIME><RETIME>{r.retime}</RETIME>"
        f"<ESTIME>{r.estime}</ESTIME><EETIME>{r.eetime}</EETIME><ACTION>{r.action}</ACTION><UID>{r.uid}</UID><GID>{r.gid}</GID>"
        f"<REQUEST_ID>{r.request_id}</REQUEST_ID></HISTORY>"
    )


def _history_short(record: History) -> str:
    r = record
    return (
        f"<HISTORY><OID>{r.vm_id}</OID><SEQ>{r.seq}</SEQ><HOSTNAME>{text(r.host_name)}</HOSTNAME><HID>{r.host_id}</HID>"
        f"<CID>{r.cluster_id}</CID><DS_ID>{r.datastore_id}</DS_ID><VM_MAD>{cdata(r.vm_mad)}</VM_MAD>"
        f"<TM_MAD>{cdata(r.tm_mad)}</TM_MAD><ACTION>{r.action}</ACTION></HISTORY>"
    )


def vm_full(vm: Vm) -> str:
    """A VM as `one.vm.info` prints it."""
    records = "".join(map(history, vm.history))
    return (
        f"<VM>{owner(vm)}{permissions(vm)}<LAST_POLL>{vm.last_poll}</LAST_POLL><STATE>{int(vm.state)}</STATE>"
        f"<LCM_STATE>{int(vm.lcm)}</LCM_STATE><PREV_STATE>{int(vm.prev_state)}</PREV_STATE>"
        f"<PREV_LCM_STATE>{int(vm.prev_lcm)}</PREV_LCM_STATE><RESCHED>{vm.resched}</RESCHED><STIME>{vm.stime}</STIME>"
        f"<ETIME>{vm.etime}</ETIME><DEPLOY_ID>{text(vm.deploy_id)}</DEPLOY_ID><MONITORING>{vm.usage_xml}</MONITORING>"
        f"<SCHED_ACTIONS></SCHED_ACTIONS><TEMPLATE>{vm.template.inner_xml()}</TEMPLATE>"
        f"<USER_TEMPLATE>{vm.user_template.inner_xml()}</USER_TEMPLATE><HISTORY_RECORDS>{records}</HISTORY_RECORDS>"
        "<BACKUPS><BACKUP_CONFIG/><BACKUP_IDS></BACKUP_IDS></BACKUPS></VM>"
    )


def _vm_short(vm: Vm) -> str:
    template = "".join(f"<{name}>{text(vm.template.get(name))}</{name}>" for name in _VM_SHORT_ATTRIBUTES)
    for name in ("DISK", "NIC"):
        if vm.template.has(name):
            template += Template({name: vm.template.values[name]}).inner_xml()
    user = Template(
        {n: vm.user_template.values[n] for n in SHORT_USER_ATTRIBUTES if n in vm.user_template.values}
    ).inner_xml()
    records = _history_short(vm.history[-1]) if vm.history else ""
    return (
        f"<VM>{owner(vm)}<LAST_POLL>{vm.last_poll}</LAST_POLL><STATE>{int(vm.state)}</STATE><LCM_STATE>{int(vm.lcm)}</LCM_STATE>"
        f"<RESCHED>{vm.resched}</RESCHED><STIME>{vm.stime}</STIME><ETIME>{vm.etime}</ETIME>"
        f"<DEPLOY_ID>{text(vm.deploy_id)}</DEPLOY_ID><TEMPLATE>{template}</TEMPLATE>"
        f"<MONITORING>{vm.usage_xml}</MONITORING><USER_TEMPLATE>{user}</USER_TEMPLATE>"
        f"<HISTORY_RECORDS>{records}</HISTORY_RECORDS></VM>"
    )


def vm_escaped(vm: Vm, extended: bool) -> str:
    """The VM's cached fragment, escaped."""
    if extended:
        if vm.xml_full is None:
            vm.xml_full = escape(vm_full(vm))
        return vm.xml_full
    if vm.xml_short is None:
        vm.xml_short = escape(_vm_short(vm))
    return vm.xml_short


def vm_pool(vms: Iterable[Vm], extended: bool) -> Escaped:
    """VM_POOL."""
    return Escaped(f"&lt;VM_POOL&gt;{''.join([vm_escaped(vm, extended) for vm in vms])}&lt;/VM_POOL&gt;")


def _host_disks(item: Host, in_pool: bool) -> str:
    if in_pool and not item.probed:
        return "<DATASTORES></DATASTORES>"
    disk, used = (item.hardware.disk_mb, item.hardware.used_disk_mb) if item.probed else (0, 0)
    values = {"DISK_USAGE": "0", "FREE_DISK": str(disk), "MAX_DISK": str(disk), "USED_DISK": str(used)}
    return f"<DATASTORES>{_elements(values)}</DATASTORES>"


def _elements(values: dict[str, str]) -> str:
    return "".join(f"<{name}>{cdata(value)}</{name}>" for name, value in values.items())


def host(item: Host, cluster: Cluster, usage: Demand, in_pool: bool = False) -> str:
    """A host; `usage` is all that its VMs have allocated. A pool shows no samples."""
    hardware = item.hardware
    cpu, memory_kb = usage
    monitoring = item.monitoring[-1][1] if item.monitoring and not in_pool else "<MONITORING/>"
    return (
        f"<HOST><ID>{item.id}</ID><NAME>{text(item.name)}</NAME><STATE>{int(item.state)}</STATE>"
        f"<PREV_STATE>{int(item.prev_state)}</PREV_STATE><IM_MAD>{cdata(item.im_mad)}</IM_MAD><VM_MAD>{cdata(item.vm_mad)}</VM_MAD>"
        f"<CLUSTER_ID>{item.cluster_id}</CLUSTER_ID><CLUSTER>{text(cluster.name)}</CLUSTER><HOST_SHARE>"
        f"<MEM_USAGE>{memory_kb}</MEM_USAGE><CPU_USAGE>{cpu}</CPU_USAGE><TOTAL_MEM>{item.max_memory_kb}</TOTAL_MEM>"
        f"<TOTAL_CPU>{item.max_cpu}</TOTAL_CPU><MAX_MEM>{item.limit_memory_kb}</MAX_MEM><MAX_CPU>{item.limit_cpu}</MAX_CPU>"
        f"<RUNNING_VMS>{len(item.vms)}</RUNNING_VMS><VMS_THREAD>1</VMS_THREAD>{_host_disks(item, in_pool)}"
        f"<PCI_DEVICES>{hardware.pci_xml + pci.render(item.devices) if item.probed else ''}</PCI_DEVICES>"
        f"<NUMA_NODES>{hardware.numa_xml if item.probed else ''}</NUMA_NODES></HOST_SHARE><VMS>{ids(item.vms)}</VMS>"
        f"<TEMPLATE>{item.template.inner_xml()}</TEMPLATE>{monitoring}</HOST>"
    )


def user_core(user: User, gname: str, tokens: bool) -> str:
    """A user up to its TEMPLATE; `tokens`: with its login tokens, which only the user and administrators see."""
    shown = user.tokens.items() if tokens else ()
    logins = "".join(
        f"<LOGIN_TOKEN><TOKEN>{token}</TOKEN><EXPIRATION_TIME>{until}</EXPIRATION_TIME><EGID>{group}</EGID></LOGIN_TOKEN>"
        for token, (until, group) in shown
    )
    return (
        f"<ID>{user.id}</ID><GID>{user.groups[0]}</GID><GROUPS>{ids(user.groups)}</GROUPS><GNAME>{text(gname)}</GNAME>"
        f"<NAME>{text(user.name)}</NAME><PASSWORD>{cdata(user.password)}</PASSWORD><AUTH_DRIVER>{cdata(user.auth_driver)}</AUTH_DRIVER>"
        f"<ENABLED>{int(user.enabled)}</ENABLED>{logins}<TEMPLATE>{user.template.inner_xml()}</TEMPLATE>"
    )
