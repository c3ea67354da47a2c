"""The dimensions of a size: everything that differs between cores and memory, in one row each.

Rules
  1. What is done for each dimension loops over `DIMENSIONS`; what concerns one of them alone (overcommit is of cores, what
     saving a VM takes is of memory) names it.
  2. Rows stand in the order of the fields of `schemas.size.Size`, which is that of the wire.
  3. A new dimension is a field there and a row here; CONTRIBUTING has what else it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from schemas.size import FIELDS, Size


class Dimension(NamedTuple):
    """`field`: of sizes and of every message that is flat; `used`: of a host's answer, what of it is in use; `singular`,
    `plural`: the words for an amount, its unit if it has one.

    Limits: `limit` of `config.UserLimits`, `department_limit` of `config.Department` (empty: nothing limits it); `asked`:
    what of a job's request is at fault if a limit is too low for it.  `weight`: of `config.BatchPolicy`, what it counts for
    in a service's share.

    OpenNebula: `grain`: its unit in ours; `capacity`: what a HOST element has, in ours; `in_use`: what the VMs there have
    asked for, in its; `vm`: the attributes of a VM that has this much.

    Reports: `title`: as a sentence begins with it; `metric`: of Prometheus, with a place for what of it; `scale`: its unit in
    ours; `history`: columns of sums, for what attempts used, the best-effort part of that, and what held hosts had.

    `rules`: the number of custody's rules from which it counts; before it, an amount is nothing.  `scarce`: few hosts have
    it, so others are placed on those last.  `fixed`: what has it stays where it is (`domain.capabilities`)."""

    field: str
    used: str
    singular: str
    plural: str
    asked: str
    weight: str
    capacity: Callable[[Any], int]
    in_use: Callable[[Any], int]
    vm: Callable[[int], tuple[tuple[str, object], ...]]
    title: str
    metric: str
    history: tuple[str, str, str]
    limit: str = ""
    department_limit: str = ""
    grain: int = 1
    scale: int = 1
    rules: int = 0
    scarce: bool = False
    fixed: bool = False

    def amount(self, number: int) -> str:
        """`4 cores`."""
        return f"{number} {self.singular if number == 1 else self.plural}"


def _share(host: Any, name: str) -> int:
    """A number of HOST_SHARE; with a RESERVED attribute it may be negative."""
    return max(0, int(host.findtext(f"HOST_SHARE/{name}") or 0))


def _gpus(host: Any) -> list[Any]:
    """Of the devices that OpenNebula's probe lists."""
    devices = host.iterfind("HOST_SHARE/PCI_DEVICES/PCI")
    return [device for device in devices if (device.findtext("CLASS") or "").lower() == GPU_CLASS]


GPU_CLASS: Final = "0302"  # PCI: a 3D controller.  A display adapter (0300) may be the console's
DIMENSIONS: Final = (
    Dimension(
        field="cores",
        used="cores_used",
        singular="core",
        plural="cores",
        asked="tasks",
        limit="cores_max",
        department_limit="maximum_cores",
        weight="w_cpu",
        grain=100,  # percent of a core
        capacity=lambda host: min(_share(host, "MAX_CPU"), _share(host, "TOTAL_CPU")) // 100,
        in_use=lambda host: _share(host, "CPU_USAGE"),
        vm=lambda number: (("CPU", number), ("VCPU", number)),
        title="Cores",
        metric="phoenix_cores_{}",
        history=("used", "best_effort", "cores"),
    ),
    Dimension(
        field="memory_mb",
        used="memory_used_mb",
        singular="MiB",
        plural="MiB",
        asked="memory_mb",
        weight="w_mem",
        grain=1024,  # KiB
        capacity=lambda host: _share(host, "MAX_MEM") // 1024,
        in_use=lambda host: _share(host, "MEM_USAGE"),
        vm=lambda number: (("MEMORY", number),),
        title="Memory",
        metric="phoenix_memory_{}_bytes",
        scale=1 << 20,
        history=("memory", "best_effort_memory", "memory"),
    ),
    Dimension(
        field="gpus",
        used="gpus_used",
        singular="GPU",
        plural="GPUs",
        asked="gpus",
        limit="gpus_max",
        department_limit="maximum_gpus",
        weight="w_gpu",
        capacity=lambda host: len(_gpus(host)),
        in_use=lambda host: sum(1 for device in _gpus(host) if int(device.findtext("VMID") or -1) >= 0),
        vm=lambda number: (("PCI", {"CLASS": GPU_CLASS}),) * number,
        title="GPUs",
        metric="phoenix_gpus_{}",
        history=("gpus", "best_effort_gpus", "gpus"),
        rules=5,
        scarce=True,
        fixed=True,
    ),
)
assert tuple(dimension.field for dimension in DIMENSIONS) == FIELDS, "rule 2"


SCARCE: Final = tuple(number for number, dimension in enumerate(DIMENSIONS) if dimension.scarce)  # their places
_FIXED: Final = tuple(number for number, dimension in enumerate(DIMENSIONS) if dimension.fixed)
NEWEST: Final = max(dimension.rules for dimension in DIMENSIONS)  # under these rules of custody every dimension counts


def scarcity(size: Size) -> int:
    """How much of what is scarce; 0: nothing."""
    found = 0
    for number in SCARCE:  # no generator: it is asked for each host that changes
        found += size[number]
    return found


def is_fixed(size: Size) -> bool:
    """True of what has something that cannot go elsewhere with it."""
    found = 0
    for number in _FIXED:  # no generator: it is asked for each that may be a victim
        found += size[number]
    return found > 0


def under(size: Size, rules: int) -> Size:
    """What of it counts under these rules of custody."""
    return Size._make(number if d.rules <= rules else 0 for d, number in zip(DIMENSIONS, size, strict=True))


def words(size: Size, *, joined: str = "and") -> str:
    """`4 cores and 512 MiB`."""
    parts = zip(DIMENSIONS, size, strict=True)
    *first, last = (each.amount(number) for each, number in parts if number or not each.scarce)
    return f"{', '.join(first)} {joined} {last}"


def vm_attributes(size: Size) -> Iterator[tuple[str, object]]:
    """Of OpenNebula's template of a VM."""
    for dimension, number in zip(DIMENSIONS, size, strict=True):
        yield from dimension.vm(number)
