"""one.host.* and one.hostpool.*."""

from __future__ import annotations

from phoenix.local.opennebula import render
from phoenix.local.opennebula.auth import ADMIN, CREATE, MANAGE, USE, Need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, ALLOCATE, INTERNAL, OneError
from phoenix.local.opennebula.methods_vm import updated
from phoenix.local.opennebula.model import Host
from phoenix.local.opennebula.seed import new_host
from phoenix.local.opennebula.states import HostState
from phoenix.local.opennebula.xmlrpc import escape

_NAME_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_: ")
_NAME_CHARS_MAX = 128


def _host_for(call: Call, host_id: int, right: str) -> Host:
    host = call.store.host(host_id)
    call.one.auth.require(call.user, Need(right, "HOST", None, host_id))
    return host


def _xml(call: Call, host: Host, in_pool: bool = False) -> str:
    return render.host(host, call.store.clusters[host.cluster_id], call.store.usage(host.id), in_pool)


def _check_name(call: Call, name: str) -> None:
    prefix = "Error allocating a new host."
    if not 1 <= len(name) < _NAME_CHARS_MAX:
        raise OneError(
            ALLOCATE,
            f"{prefix} Invalid HOSTNAME, HOSTNAME length should be greater than 1, but smaller than 64 characters",
        )
    for char in name:
        if char not in _NAME_CHARS:
            raise OneError(ALLOCATE, f"{prefix} Invalid HOSTNAME, '{char}' is invalid character for a HOSTNAME")
    for host in call.store.hosts.values():
        if host.name == name:
            raise OneError(ALLOCATE, f"{prefix} NAME is already taken by HOST {host.id}.")


@method("one.host.allocate", "sssi")
def allocate(call: Call, name: str, im_mad: str, vm_mad: str, cluster_id: int) -> int:
    """A new host; cluster -1 is the default one."""
    cluster_id = max(cluster_id, 0) if cluster_id == -1 else cluster_id
    call.store.cluster(cluster_id)
    call.one.auth.require(call.user, Need(CREATE, "HOST"), Need(ADMIN, "CLUSTER", None, cluster_id))
    _check_name(call, name)
    host = new_host(call.store, call.one.settings, name, (im_mad, vm_mad), cluster_id)
    call.one.hooks.host_changed(host)
    return host.id


@method("one.host.delete", "i")
def delete(call: Call, host_id: int) -> int:
    """Remove a host without VMs."""
    host = _host_for(call, host_id, ADMIN)
    if host.vms:
        raise OneError(ACTION, "Cannot delete host. Can not remove a host with running VMs")
    if call.one.hooks.active:
        call.one.hooks.deleted["HOST"] = _xml(call, host)
    del call.store.hosts[host_id]
    call.store.clusters[host.cluster_id].hosts.pop(host_id, None)
    return host_id


@method("one.host.info", "i?b")
def info(call: Call, host_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A host as XML."""
    return escape(_xml(call, _host_for(call, host_id, USE)))


@method("one.hostpool.info")
def pool_info(call: Call) -> str:
    """All hosts, newest first."""
    hosts = [
        host
        for _, host in sorted(call.store.hosts.items(), reverse=True)
        if call.one.auth.allowed(call.user, Need(USE, "HOST", None, host.id))
    ]
    return escape(f"<HOST_POOL>{''.join(_xml(call, host, in_pool=True) for host in hosts)}</HOST_POOL>")


@method("one.host.status", "ii")
def status(call: Call, host_id: int, wanted: int) -> int:
    """0 enable, 1 disable, 2 offline."""
    host = _host_for(call, host_id, ADMIN)
    monitor = call.one.monitor
    if wanted == 0:
        if host.state == HostState.DISABLED and host.probed:
            monitor.set_host(host, HostState.MONITORED)
        elif host.state in (HostState.DISABLED, HostState.OFFLINE, HostState.ERROR):
            monitor.set_host(host, HostState.INIT)
    elif wanted == 1:
        monitor.set_host(host, HostState.DISABLED)
    elif wanted == 2:
        monitor.set_host(host, HostState.OFFLINE)
    else:
        raise OneError(INTERNAL, "Wrong status code")
    return host_id


@method("one.host.update", "isi")
def update(call: Call, host_id: int, text: str, mode: int) -> int:
    """Change TEMPLATE; the drivers stay."""
    host = _host_for(call, host_id, MANAGE)
    template = updated(host.template, text, mode, INTERNAL)
    host.template = template.with_value("IM_MAD", host.im_mad).with_value("VM_MAD", host.vm_mad)
    return host_id


def _samples(call: Call, host: Host, seconds: int) -> str:
    return render.samples(host.monitoring, seconds, call.one.clock.now())


@method("one.hostpool.monitoring", "?i")
def pool_monitoring(call: Call, seconds: int = -1) -> str:
    """The samples of all hosts; 0 seconds: the last one of each."""
    hosts = [
        host for host in call.store.hosts.values() if call.one.auth.allowed(call.user, Need(USE, "HOST", None, host.id))
    ]
    return f"<MONITORING_DATA>{''.join(_samples(call, host, seconds) for host in hosts)}</MONITORING_DATA>"
