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
    """A row.  Columns:

    Names: `field` of sizes and of every flat message; `used` of a host's answer, for the part of it that is in use.  `name` in
    lists and headings; `singular`, `plural` behind a number; `unit` of numbers that are not counts.  `variable` of what a guest
    starts, `slurm` its names there.

    Requests: `per_node`, the field of `requests.JobSubmit` that asks for so much on each node, and so the name of the options'
    value; `asked`, the field that is at fault if a limit is too low for a job.

    Limits: `limit` of `config.UserLimits`, `department_limit` of `config.Department` (empty: nothing limits it).  `weight` of
    `config.BatchPolicy`: how much it counts in a service's usage.  `worth` of `config.MultiFactor`: what `worth_unit` of ours
    are worth in a user's usage, in cores.

    OpenNebula: `grain`, how many of its units are one of ours; `capacity` of a HOST element, in ours; `in_use`, the amount
    that VMs there have asked for, in its unit; `vm`, the attributes of a VM that has this much.  `embedded`: how much a host of
    the embedded cloud has by default, and may have.

    Reports: `metric` of Prometheus, with a place for the kind of amount; `scale`, how many of the metric's units are one of
    ours; `history`, columns of sums: used by attempts, the best-effort part of that, had by held hosts.  `hour`: the word of
    those sums in `usage` (`used_gpu_s`) and of a lease (`gpu_s_used`), and of its price (`gpu_hour`); empty: none has it.

    `rules`: the number of custody's rules from which it counts; before it, an amount is nothing.

    Four properties that do not follow from one another:
    `scarce`: few hosts have any, so that work without need of it goes to the other hosts first (best fit, grants, victims).
    `named`: hosts differ in it, so that a department's demand names the sizes of jobs that need some, and idle hosts that do
    not have enough of it do not meet that demand.  What is scarce is named.
    `optional`: an amount of 0 is left out of sentences, tables and variables.
    `fixed`: what has some cannot migrate or be suspended (`domain.capabilities`)."""

    field: str
    used: str
    name: str
    singular: str
    plural: str
    variable: str
    per_node: str
    asked: str
    weight: str
    worth: str
    capacity: Callable[[Any], int]
    in_use: Callable[[Any], int]
    vm: Callable[[int], tuple[tuple[str, object], ...]]
    embedded: tuple[int, int]
    metric: str
    history: tuple[str, str, str]
    unit: str = ""
    slurm: tuple[str, ...] = ()
    limit: str = ""
    department_limit: str = ""
    hour: str = ""
    worth_unit: int = 1
    grain: int = 1
    scale: int = 1
    rules: int = 0
    scarce: bool = False
    named: bool = False
    optional: bool = False
    fixed: bool = False

    @property
    def title(self) -> str:
        """The name at the beginning of a sentence."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def label(self) -> str:
        """Of a number in a list: `memory a node, MiB`."""
        return f"{self.name} a node{', ' if self.unit else ''}{self.unit}"

    @property
    def option(self) -> str:
        """Of `phoenix up`, and of the embedded OpenNebula."""
        return f"--{self.field.replace('_', '-')}"

    def amount(self, number: int) -> str:
        """`4 cores`."""
        return f"{number} {self.singular if number == 1 else self.plural}"

    def is_shown(self, number: int | None) -> bool:
        """True of a number that is shown."""
        return bool(number) or not (self.optional or number is None)


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
        name="cores",
        singular="core",
        plural="cores",
        variable="PHOENIX_CPUS",
        slurm=("SLURM_CPUS_ON_NODE",),
        per_node="cpus_per_task",
        asked="tasks",
        limit="cores_max",
        department_limit="maximum_cores",
        weight="w_cpu",
        worth="usage_per_core",
        grain=100,  # percent of a core
        capacity=lambda host: min(_share(host, "MAX_CPU"), _share(host, "TOTAL_CPU")) // 100,
        in_use=lambda host: _share(host, "CPU_USAGE"),
        vm=lambda number: (("CPU", number), ("VCPU", number)),
        embedded=(4, 4096),
        metric="phoenix_cores_{}",
        history=("used", "best_effort", "cores"),
        hour="core",
    ),
    Dimension(
        field="memory_mb",
        used="memory_used_mb",
        name="memory",
        singular="MiB",
        plural="MiB",
        unit="MiB",
        variable="PHOENIX_MEMORY_MB",
        slurm=("SLURM_MEM_PER_NODE",),
        per_node="memory_mb",
        asked="memory_mb",
        weight="w_mem",
        worth="usage_per_gb",
        worth_unit=1024,  # GiB, as Slurm counts memory here
        grain=1024,  # KiB
        capacity=lambda host: _share(host, "MAX_MEM") // 1024,
        in_use=lambda host: _share(host, "MEM_USAGE"),
        vm=lambda number: (("MEMORY", number),),
        embedded=(8192, 64 << 20),
        metric="phoenix_memory_{}_bytes",
        scale=1 << 20,
        history=("memory", "best_effort_memory", "memory"),
    ),
    Dimension(
        field="gpus",
        used="gpus_used",
        name="GPUs",
        singular="GPU",
        plural="GPUs",
        variable="PHOENIX_GPUS",
        slurm=("SLURM_GPUS_ON_NODE",),
        per_node="gpus_per_node",
        asked="gpus",
        limit="gpus_max",
        department_limit="maximum_gpus",
        weight="w_gpu",
        worth="usage_per_gpu",
        capacity=lambda host: len(_gpus(host)),
        in_use=lambda host: sum(1 for device in _gpus(host) if int(device.findtext("VMID") or -1) >= 0),
        vm=lambda number: (("PCI", {"CLASS": GPU_CLASS}),) * number,
        embedded=(0, 64),
        metric="phoenix_gpus_{}",
        history=("gpus", "best_effort_gpus", "gpus"),
        hour="gpu",
        rules=5,
        scarce=True,
        named=True,
        optional=True,
        fixed=True,
    ),
)
assert tuple(dimension.field for dimension in DIMENSIONS) == FIELDS, "rule 2"
assert all(dimension.named for dimension in DIMENSIONS if dimension.scarce), "grants go by what demand names"


def _places(column: str) -> tuple[int, ...]:
    """Of the rows for which it is true."""
    return tuple(number for number, dimension in enumerate(DIMENSIONS) if getattr(dimension, column))


SCARCE: Final = _places("scarce")
_NAMED: Final = _places("named")
_FIXED: Final = _places("fixed")
_LARGEST: Final = 32  # bits of an amount
EMBEDDED: Final = Size._make(
    dimension.embedded[0] for dimension in DIMENSIONS
)  # a host of the embedded cloud by default
NEWEST: Final = max(dimension.rules for dimension in DIMENSIONS)  # under these rules of custody every dimension counts


def scarcity(size: Size) -> int:
    """A number to order sizes by: 0 if nothing is scarce; else the amount of the first scarce dimension decides, then that of
    the next.  Amounts of different dimensions are never added."""
    found = 0
    for number in SCARCE:  # no generator: it is asked for each host that changes
        found = (found << _LARGEST) + size[number]
    return found


def is_named(size: Size) -> bool:
    """True of what has some of a dimension that demand names."""
    found = False
    for number in _NAMED:  # no generator: it is asked for each lane
        found = found or size[number] > 0
    return found


def is_fixed(size: Size) -> bool:
    """True of what has something that cannot go elsewhere with it."""
    found = False
    for number in _FIXED:  # no generator: it is asked for each that may be a victim
        found = found or size[number] > 0
    return found


def under(size: Size, rules: int) -> Size:
    """The part of it that counts under these rules of custody."""
    return Size._make(number if d.rules <= rules else 0 for d, number in zip(DIMENSIONS, size, strict=True))


def spoken(size: Size) -> list[tuple[Dimension, int]]:
    """Its numbers that are shown."""
    return [(d, number) for d, number in zip(DIMENSIONS, size, strict=True) if d.is_shown(number)]


def words(size: Size, *, joined: str = "and") -> str:
    """`4 cores and 512 MiB`."""
    *first, last = (dimension.amount(number) for dimension, number in spoken(size))
    return f"{', '.join(first)} {joined} {last}" if first else last


def variables(size: Size) -> dict[str, str]:
    """Of the environment of a process that has this much."""
    return {dimension.variable: str(number) for dimension, number in spoken(size)}


def asking(size: Size) -> dict[str, Any]:
    """The fields of a request for so much on each of as many nodes as it has tasks."""
    numbers = zip(DIMENSIONS, size, strict=True)
    return {dimension.per_node: number if dimension.is_shown(number) else None for dimension, number in numbers}


def vm_attributes(size: Size) -> Iterator[tuple[str, object]]:
    """Of OpenNebula's template of a VM."""
    for dimension, number in zip(DIMENSIONS, size, strict=True):
        yield from dimension.vm(number)
