"""The pools: every object by id, the counters that never go back, and what hosts have allocated.

1. An id is given once; `next_id` only grows, across restarts too (see `persistence`).
2. Live VMs and final ones are kept apart: pools of live VMs stay fast, and of the final ones only the newest
   `FINAL_VMS_MAX` are kept.
3. A VM counts on one host at most (`Vm.counted_on`), by what its template asked when it was counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, sub
from typing import TypeVar

from phoenix.local.opennebula import errors, pci
from phoenix.local.opennebula.model import Acl, Cluster, Datastore, Demand, Group, Host, Image, Network, User, Vm
from phoenix.local.opennebula.states import VmState

# About 4 KiB each: enough to ask for the end of any VM of the last hours, bounded at tens of MiB.
FINAL_VMS_MAX = 20_000

# The words of OpenNebula for its objects, in messages.
KIND = {
    "vms": "virtual machine",
    "hosts": "host",
    "users": "user",
    "groups": "group",
    "clusters": "cluster",
    "datastores": "datastore",
}


T = TypeVar("T")


class Clock:
    """Wall time that a test may push forward; never back."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead_s = 0.0

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now() + self._ahead_s

    def second(self) -> int:
        """Whole seconds since the epoch, never 0."""
        return int(self.now()) or 1

    def advance(self, seconds: float) -> None:
        """Push time forward."""
        self._ahead_s += max(0.0, seconds)


@dataclass(slots=True)
class Store:
    """All pools. Dictionaries are by id and in the order of making."""

    vms: dict[int, Vm] = field(default_factory=dict)
    final_vms: dict[int, Vm] = field(default_factory=dict)
    hosts: dict[int, Host] = field(default_factory=dict)
    users: dict[int, User] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    clusters: dict[int, Cluster] = field(default_factory=dict)
    datastores: dict[int, Datastore] = field(default_factory=dict)
    acls: dict[int, Acl] = field(default_factory=dict)
    images: dict[int, Image] = field(default_factory=dict)
    networks: dict[int, Network] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)
    allocated: dict[int, Demand] = field(default_factory=dict)
    requests: int = 0

    def new_id(self, pool: str) -> int:
        """The next id of a pool."""
        value = self.next_ids.get(pool, 0)
        self.next_ids[pool] = value + 1
        return value

    def vm(self, vm_id: int) -> Vm:
        """A VM, live or final. Raises `OneError` if there is none."""
        found = self.vms.get(vm_id) or self.final_vms.get(vm_id)
        if found is None:
            raise errors.missing(KIND["vms"], vm_id)
        return found

    def host(self, host_id: int) -> Host:
        """A host. Raises `OneError` if there is none."""
        return _found(self.hosts, "hosts", host_id)

    def user(self, user_id: int) -> User:
        """A user. Raises `OneError` if there is none."""
        return _found(self.users, "users", user_id)

    def group(self, group_id: int) -> Group:
        """A group. Raises `OneError` if there is none."""
        return _found(self.groups, "groups", group_id)

    def cluster(self, cluster_id: int) -> Cluster:
        """A cluster. Raises `OneError` if there is none."""
        return _found(self.clusters, "clusters", cluster_id)

    def datastore(self, datastore_id: int) -> Datastore:
        """A datastore. Raises `OneError` if there is none."""
        return _found(self.datastores, "datastores", datastore_id)

    def finish(self, vm: Vm) -> None:
        """Move a VM that became DONE to the final ones, and forget the oldest of too many."""
        assert vm.state == VmState.DONE
        if self.vms.pop(vm.id, None) is not None:
            self.final_vms[vm.id] = vm
            while len(self.final_vms) > FINAL_VMS_MAX:
                del self.final_vms[next(iter(self.final_vms))]

    def usage(self, host_id: int) -> Demand:
        """All that is allocated on a host."""
        return self.allocated.get(host_id, Demand())

    def count(self, vm: Vm, host_id: int) -> None:
        """Count the VM on a host (-1: on none)."""
        demand = demand_of(vm)
        if vm.counted_on >= 0:
            self.allocated[vm.counted_on] = Demand._make(map(sub, self.usage(vm.counted_on), demand))
            host = self.hosts.get(vm.counted_on)
            if host:
                host.vms.pop(vm.id, None)
                pci.release(vm, host)
        vm.counted_on = host_id
        if host_id >= 0:
            self.allocated[host_id] = Demand._make(map(add, self.usage(host_id), demand))
            self.hosts[host_id].vms[vm.id] = None
            pci.take(vm, self.hosts[host_id])

    def fits(self, vm: Vm, host: Host) -> None:
        """Raises `OneError` if the VM does not fit: CPU is asked first, then memory and PCI devices."""
        cpu, memory_kb = demand_of(vm)
        used_cpu, used_kb = self.usage(host.id)
        where = f"virtual machine [{vm.id}] does not fit in host [{host.id}]."
        if cpu > host.limit_cpu - used_cpu:
            raise errors.OneError(errors.ACTION, f"{where} Not enough CPU: {cpu}/{host.limit_cpu - used_cpu}")
        if memory_kb > host.limit_memory_kb - used_kb:
            raise errors.OneError(
                errors.ACTION, f"{where} Not enough memory: {memory_kb}/{host.limit_memory_kb - used_kb}"
            )
        if not pci.available(vm, host):
            raise errors.OneError(errors.ACTION, f"{where} Unavailable PCI device.")


def demand_of(vm: Vm) -> Demand:
    return Demand(round(vm.cpu * 100), vm.memory_mb * 1024)


def _found(pool: dict[int, T], name: str, object_id: int) -> T:
    found = pool.get(object_id)
    if found is None:
        raise errors.missing(KIND[name], object_id)
    return found
