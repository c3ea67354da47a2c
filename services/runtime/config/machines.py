"""What the hypervisor means for a configuration, and settings about what becomes of VMs: saving them, keeping them warm.

Theory of operation
  The file names a hypervisor (`[opennebula] hypervisor`); what that can do is a table (`domain.capabilities`), and enters the
  journal with the configuration, so that cores never read more than facts (S7).

Rules
  1. A file that names neither a hypervisor nor an endpoint is for the embedded OpenNebula, whose hypervisor is `process`.  One
     that names an endpoint alone may mean any: nothing is taken for granted, so nothing can be suspended or migrated.
  2. `policy.save_s` follows from the hypervisor unless the file sets it (`SAVE_S`).
  3. An `on_reclaim` that the hypervisor cannot keep is a problem, reported with what it can.
  4. The embedded OpenNebula has no machines but processes and dummies (`EMBEDDED_HAS`).  A file that names another hypervisor
     and no endpoint is a problem wherever it is read: `phoenix up` would start the embedded one, and not the one in the file.
  5. `[opennebula] end_again_s` is longer than the time-out of the site's drivers (`END_AGAIN_S`), unless the file sets it; the
     embedded OpenNebula ends a VM in less than `EMBEDDED_END_AGAIN_S`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.config import END_AGAIN_S, BatchPolicy, Capability, CloudConfig, OnReclaim, Policy
from schemas.size import NOTHING, Size
from services.domain.capabilities import CAPABILITIES, Hypervisor, can
from services.runtime.config.form import Path_, Problem, shown

EMBEDDED: Final[Hypervisor] = "process"
EMBEDDED_HAS: Final[tuple[Hypervisor, ...]] = ("process", "dummy")
EMBEDDED_END_AGAIN_S: Final = 20.0  # longer than its own patience with a driver (`phoenix.local.opennebula.machine`)
WISHES: Final[tuple[OnReclaim, ...]] = ("kill", "requeue", "suspend", "migrate")
# What saving a VM may take.  process, dummy: a signal, or nothing at all; five seconds are for a machine that is busy.
# kvm, xen: 12 GiB at the 100 MB/s of one disk, and then over the wire to the front end, if the datastore is on the hosts; who
# has larger VMs, or slower storage, says so.  lxc saves nothing.
SAVE_S: Final[dict[Hypervisor, float]] = {
    "process": 5.0,
    "dummy": 5.0,
    "lxc": 5.0,
    "kvm": 240.0,
    "qemu": 240.0,
    "xen": 240.0,
}


def hypervisor_of(table: object, named: Hypervisor | None) -> Hypervisor | None:
    """Rule 1.  `table`: what the file says under [opennebula]; `named`: the hypervisor that it names there."""
    return EMBEDDED if named is None and not (isinstance(table, dict) and "endpoint" in table) else named


def elsewhere(table: object, named: Hypervisor | None) -> str:
    """Rule 4: what would be right, "" if nothing is wrong.  The arguments are those of `hypervisor_of`."""
    if named is None or named in EMBEDDED_HAS or (isinstance(table, dict) and "endpoint" in table):
        return ""
    return (
        'should be "process" or "dummy": without an endpoint this is for the embedded OpenNebula, which has only those; '
        f"for hosts with {named} name the endpoint of their OpenNebula too"
    )


def with_hypervisor(cloud: CloudConfig, hypervisor: Hypervisor | None, end_again_s: float | None = None) -> CloudConfig:
    """The cloud with what its hypervisor can do, and the time that it needs for an end (rule 5)."""
    if end_again_s is None:
        end_again_s = EMBEDDED_END_AGAIN_S if hypervisor in EMBEDDED_HAS else END_AGAIN_S
    return replace(cloud, capabilities=() if hypervisor is None else CAPABILITIES[hypervisor], end_again_s=end_again_s)


def with_save_s(policy: Policy, table: Any, hypervisor: Hypervisor | None) -> Policy:
    """Rule 2.  `table`: what the file says under [policy]."""
    said = isinstance(table, dict) and "save_s" in table
    return policy if said or hypervisor is None else replace(policy, save_s=SAVE_S[hypervisor])


def lacks(capabilities: Sequence[Capability], wish: OnReclaim, size: Size = NOTHING) -> str:
    """Why `wish` cannot be kept, of what has this much, and what can; "" if it can."""
    able = tuple(capabilities)
    if can(able, wish, size):
        return ""
    instead = " or ".join(f'"{each}"' for each in WISHES if can(able, each, size))
    vm = "a running VM" if not can(able, wish) else "a VM with devices of its host"
    return f"should be {instead}: the hypervisor of this cloud ([opennebula] hypervisor) cannot {wish} {vm}"


def check(batch: BatchPolicy, path: Path_, label: str, able: Sequence[Capability]) -> Iterator[Problem]:
    """Rule 3."""
    wrong = lacks(able, batch.on_reclaim)
    if wrong:
        yield Problem(path=(*path, "on_reclaim"), found=shown(batch.on_reclaim), right=wrong, label=label)
