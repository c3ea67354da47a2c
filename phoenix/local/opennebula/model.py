"""The objects of the pools: plain data, no rules.

1. Times are whole seconds since the epoch, 0 while unset, as OpenNebula prints them. Memory is KiB in hosts, MiB in
   VMs.
2. `xml_short` and `xml_full` of a VM are its cached fragments (escaped for an answer); `touch` drops them. Code that
   changes a VM touches it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from phoenix.local.opennebula.states import HostState, Lcm, VmState, state_name
from phoenix.local.opennebula.templates import Template

# When it was taken, and its XML.
Sample = tuple[int, str]

# RESERVED_CPU and RESERVED_MEM of a host.
_RESERVE = re.compile(r"-?\d{1,15}%?\Z")

PRIVATE = (1, 1, 0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True, kw_only=True)
class Owned:
    """What OpenNebula calls a pool object with an owner: `perms` is owner, group, other times use, manage, admin."""

    id: int
    name: str
    uid: int = 0
    gid: int = 0
    uname: str = "oneadmin"
    gname: str = "oneadmin"
    perms: tuple[int, ...] = PRIVATE


@dataclass(slots=True)
class History:
    """One stay of a VM on a host."""

    vm_id: int
    seq: int
    host_name: str
    host_id: int
    cluster_id: int
    datastore_id: int
    vm_mad: str
    tm_mad: str
    stime: int = 0
    etime: int = 0
    pstime: int = 0
    petime: int = 0
    rstime: int = 0
    retime: int = 0
    estime: int = 0
    eetime: int = 0
    action: int = 0
    uid: int = -1
    gid: int = -1
    request_id: int = -1


@dataclass(slots=True, kw_only=True)
class Vm(Owned):
    """A virtual machine.

    `counted_on` is the host whose capacity it uses (-1: none); `epoch` counts operations, so that an old one ends.
    """

    template: Template
    user_template: Template
    state: int = VmState.PENDING
    lcm: int = Lcm.LCM_INIT
    prev_state: int = VmState.PENDING
    prev_lcm: int = Lcm.LCM_INIT
    resched: int = 0
    stime: int = 0
    etime: int = 0
    deploy_id: str = ""
    cpu: float = 0.0
    memory_mb: int = 0
    history: list[History] = field(default_factory=list)
    last_poll: int = 0
    usage_xml: str = ""
    counted_on: int = -1
    epoch: int = 0
    xml_short: str | None = None
    xml_full: str | None = None

    def touch(self) -> None:
        """Forget the cached fragments."""
        self.xml_short = None
        self.xml_full = None

    @property
    def state_name(self) -> str:
        """The name used in messages."""
        return state_name(self.state, self.lcm)


class Demand(NamedTuple):
    """How much a VM, or all VMs of a host, have asked for: percent of a core, KiB.  Devices are counted apart (`pci`)."""

    cpu: int = 0
    memory_kb: int = 0


@dataclass(slots=True)
class HostHardware:
    """What a probe finds besides cores and memory.

    Attributes of the host's TEMPLATE, and devices as XML (empty: none reported).
    """

    attributes: dict[str, str] = field(default_factory=dict)
    pci_xml: str = ""
    numa_xml: str = ""
    monitoring_xml: str = ""
    disk_mb: int = 0
    used_disk_mb: int = 0


@dataclass(slots=True)
class PciDevice:
    """A GPU of a host.  `slot`: its number there, which is also its address; `index`: its number among the machine's devices;
    `node`: its device node (empty: nothing stands behind it); `vm_id`: the VM that has it, -1: none."""

    slot: int
    index: int
    node: str = ""
    vm_id: int = -1


@dataclass(slots=True, kw_only=True)
class Host:
    """A host.

    `cores` and `memory_mb` are what a probe will find; `max_cpu` (percent) and `max_memory_kb` what was found: TOTAL_CPU
    and TOTAL_MEM.
    """

    id: int
    name: str
    im_mad: str
    vm_mad: str
    cluster_id: int
    template: Template
    cores: int
    memory_mb: int
    hardware: HostHardware
    state: int = HostState.INIT
    prev_state: int = HostState.INIT
    max_cpu: int = 0
    max_memory_kb: int = 0
    used_cpu: int = 0
    used_memory_kb: int = 0
    probed: bool = False
    vms: dict[int, None] = field(default_factory=dict)
    devices: list[PciDevice] = field(default_factory=list)
    monitoring: list[Sample] = field(default_factory=list)

    @property
    def limit_cpu(self) -> int:
        """What VMs may ask for together, in percent of a core: without what the host reserves, more where that is negative."""
        return self.max_cpu - _reserved(self.template.get("RESERVED_CPU"), self.max_cpu)

    @property
    def limit_memory_kb(self) -> int:
        """The same of memory, in KiB."""
        return self.max_memory_kb - _reserved(self.template.get("RESERVED_MEM"), self.max_memory_kb)


def _reserved(text: str, total: int) -> int:
    """RESERVED_CPU or RESERVED_MEM: a number, or a percentage of the total.  What is neither reserves nothing."""
    if not _RESERVE.match(text) or not total:
        return 0
    return total * int(text[:-1]) // 100 if text.endswith("%") else int(text)


@dataclass(slots=True, kw_only=True)
class User:
    """A user. `groups[0]` is the primary group; `password` is the sha-256 of what the user types."""

    id: int
    name: str
    password: str
    auth_driver: str
    groups: list[int]
    template: Template
    enabled: bool = True
    quota: dict[str, float] | None = None
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Group:
    """A group of users."""

    id: int
    name: str
    template: Template
    users: dict[int, None] = field(default_factory=dict)
    quota: dict[str, float] | None = None


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A set of hosts and datastores."""

    id: int
    name: str
    template: Template
    hosts: dict[int, None] = field(default_factory=dict)
    datastores: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Datastore(Owned):
    """A datastore; `type` 0 image, 1 system, 2 file."""

    template: Template
    type: int
    ds_mad: str
    tm_mad: str
    total_mb: int
    free_mb: int
    used_mb: int
    clusters: dict[int, None] = field(default_factory=dict)


IMAGE_READY, IMAGE_LOCKED = 1, 4


@dataclass(slots=True, kw_only=True)
class Image(Owned):
    """An image that disks may name; nothing is behind it.  `state`: OpenNebula's, as `IMAGE_READY`."""

    state: int = IMAGE_READY


@dataclass(slots=True, kw_only=True)
class Network(Owned):
    """A virtual network that NICs may name; nothing is behind it."""


@dataclass(slots=True, kw_only=True)
class Acl:
    """An access rule, as words: `@1 VM+IMAGE/* CREATE *`."""

    id: int
    text: str
