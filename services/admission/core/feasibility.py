"""The shape of a job: nodes and cores, array indices, dependencies; and whether any host could ever hold it.

Rules
  1. nodes not given: one if tasks · cpus_per_task fit a host, else the fewest that hold ceil(tasks / nodes) · cpus_per_task
     and the memory each (docs: requests).
     Memory not given is so much for each core, the request's or the department's.  0 is all memory of the smallest host that
     has the cores: the job may start on any that does, and hosts are mostly alike.  The department's default is no more than
     that: a request without the option is not refused for it.
     GPUs in all are as many on each node; one task has all of its node's.
  2. What no set of the known hosts could ever hold is refused at once, with the field that makes it so, and the largest host
     if no host is large enough (DESIGN §4).  Every known host counts, regardless of its holder and its state: it may come back.
     With a constraint (`domain.constraints`) the hosts that satisfy it are all there are.
  3. Array specifications and dependencies are sbatch's (`domain.specs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final, cast

from schemas.dimensions import DIMENSIONS, words
from schemas.facts import Dependency
from schemas.requests import JobSubmit
from schemas.size import NOTHING, Size, total
from schemas.units import count
from services.domain import specs
from services.domain.constraints import problem, satisfies
from services.domain.custody.state import Host
from services.domain.refusal import Refused
from services.domain.shape import Shape

FITTING_KEPT_MAX: Final = 1000  # shapes whose fitting hosts are remembered: a department's jobs come in a few sizes


class Capacity:
    """The known hosts by size.  Rebuilt when a host is described or removed.  `constraint`: what they all satisfy."""

    def __init__(self, hosts: Iterable[Host], constraint: str = "") -> None:
        self.constraint = constraint
        sized = [host for host in hosts if host.size.cores > 0]
        # 1. the largest, by the order of sizes; 2. unique: the name
        self._hosts = sorted(sized, key=lambda host: (*(-amount for amount in host.size), host.name))
        self.most = reduce(Size.most, (host.size for host in sized), NOTHING)  # of each dimension, on whatever host
        self._fitting: dict[Size, int] = {}
        self._whole_mb: dict[int, int] = {}  # by cores, of which no host has more than `most`

    @property
    def largest(self) -> str:
        """The largest host as a person reads it."""
        host = self._hosts[0]
        return f"{host.name} with {words(host.size)}"

    @property
    def hosts(self) -> int:
        """How many there are."""
        return len(self._hosts)

    @property
    def empty(self) -> bool:
        return not self._hosts

    def fitting(self, size: Size) -> int:
        """How many hosts could hold this much, each on its own."""
        found = self._fitting.get(size)
        if found is None:
            if len(self._fitting) >= FITTING_KEPT_MAX:
                self._fitting.clear()
            found = self._fitting[size] = sum(1 for host in self._hosts if size.fits_in(host.size))
        return found

    def total(self, hosts_max: int | None) -> Size:
        """Of all hosts together, or of the largest `hosts_max`."""
        return total(host.size for host in self._hosts[:hosts_max])

    def smallest(self, size: Size) -> Size:
        """The smallest host that could hold this much; there is one."""
        return min(host.size for host in self._hosts if size.fits_in(host.size))

    def whole_mb(self, cores: int) -> int:
        """All memory of the smallest host with at least `cores` cores; 0 if there is none."""
        if cores > self.most.cores:
            return 0
        if cores not in self._whole_mb:
            self._whole_mb[cores] = min(host.size.memory_mb for host in self._hosts if host.size.cores >= cores)
        return self._whole_mb[cores]

    def fewest_nodes(self, tasks: int, cpus_per_task: int, size_on: Callable[[int], Size]) -> int | None:
        """The fewest hosts that hold `tasks` spread evenly; None if even all of them do not.  Some host holds one.
        `size_on`: the size of each of N nodes.  Of numbers of nodes that give each as many tasks only the smallest is tried."""
        nodes = -(-tasks // (self.most.cores // cpus_per_task))
        while nodes <= len(self._hosts):
            if self.fitting(size_on(nodes)) >= nodes:
                return nodes
            on_each = -(-tasks // nodes)
            if on_each == 1:
                return None
            nodes = -(-tasks // (on_each - 1))
        return None


def constrained(constraint: str, hosts: Iterable[Host]) -> Capacity:
    """The hosts that satisfy it.  Raises `Refused` if it is no constraint, or if no known host does."""
    wrong = problem(constraint)
    if wrong:
        raise Refused("invalid", f"constraint: {wrong}", "constraint")
    known = list(hosts)
    meeting = [h for h in known if satisfies(h.name, h.cluster, h.labels, constraint)]
    if known and not meeting:
        asked = f"constraint: none of the {len(known)} known hosts satisfies {constraint!r}"
        raise Refused("invalid", f"{asked}; `phoenix hosts --json` shows their labels and clusters", "constraint")
    return Capacity(meeting, constraint)


def cores_on_node(tasks: int, nodes: int, cpus_per_task: int) -> int:
    return _tasks_on_node(tasks, nodes) * cpus_per_task


def _tasks_on_node(tasks: int, nodes: int) -> int:
    return -(-tasks // nodes)


def shape_of(request: JobSubmit, capacity: Capacity, nodes_max: int | None, memory_per_core_mb: int) -> Shape:
    """What the job needs.  `nodes_max`: what the department may hold; `memory_per_core_mb`: of who does
    not say how much.  Raises `Refused`."""
    if capacity.empty:
        raise Refused("unavailable", "no host is known yet, so what fits cannot be computed: try again in a moment")
    if request.memory_mb is not None and request.memory_mb > capacity.most.memory_mb:
        raise Refused("invalid", _too_large(f"memory_mb: no host has {request.memory_mb} MiB", capacity), "memory_mb")
    if request.cpus_per_task > capacity.most.cores:
        asked = f"cpus_per_task: no host has {count(request.cpus_per_task, 'core')}"
        raise Refused("invalid", _too_large(asked, capacity), "cpus_per_task")

    def size_on(nodes: int) -> Size:
        cores = cores_on_node(request.tasks, nodes, request.cpus_per_task)
        memory_mb = _memory_mb(request, capacity, cores, memory_per_core_mb)
        return plain._replace(cores=cores, memory_mb=memory_mb, gpus=_gpus(request, nodes))

    plain = Size._make(getattr(request, dimension.per_node) or 0 for dimension in DIMENSIONS)
    _refuse_optional(capacity, plain)
    _refuse_gpus(request, capacity)
    nodes = request.nodes or capacity.fewest_nodes(request.tasks, request.cpus_per_task, size_on)
    if nodes is None:
        more = f" with {request.memory_per_core_mb} MiB for each core" if request.memory_per_core_mb else ""
        gpus = f" and {count(request.gpus_per_task, 'GPU')}" if request.gpus_per_task else ""
        each = f"{count(request.cpus_per_task, 'core')}{gpus}"
        asked = f"tasks: {_tasks(request)} of {each}{more} do not fit all hosts together"
        raise Refused("invalid", _too_large(asked, capacity), "tasks")
    shape = Shape(nodes, size_on(nodes), request.exclusive, request.constraint)
    _refuse_impossible(request, capacity, shape)
    if nodes_max is not None and nodes > nodes_max:
        raise Refused("invalid", f"nodes: {count(nodes, 'host')}; the department may hold at most {nodes_max}", "nodes")
    return shape


def _memory_mb(request: JobSubmit, capacity: Capacity, cores: int, per_core_mb: int) -> int:
    """On each node, which has that number of cores (rule 1).  At least 1, where no host has them: then it is refused for
    that."""
    if request.memory_mb:
        return request.memory_mb
    if request.memory_per_core_mb is not None:
        return request.memory_per_core_mb * cores
    whole_mb = max(1, capacity.whole_mb(cores))
    return whole_mb if request.memory_mb == 0 else min(per_core_mb * cores, whole_mb)


def _gpus(request: JobSubmit, nodes: int) -> int:
    """On each of `nodes` nodes (rule 1)."""
    if request.gpus_per_task is not None:
        return _tasks_on_node(request.tasks, nodes) * request.gpus_per_task
    return request.gpus_per_node if request.gpus_per_node is not None else -(-(request.gpus or 0) // nodes)


def _refuse_gpus(request: JobSubmit, capacity: Capacity) -> None:
    """Of those asked for in all or for each task: not as many on each node, or more there than any host has."""
    field = "gpus_per_task" if request.gpus_per_task else "gpus"
    if not getattr(request, field):
        return
    if request.gpus and request.nodes and request.gpus % request.nodes:
        message = f"gpus: {count(request.gpus, 'GPU')} cannot be as many on each of {count(request.nodes, 'node')}"
        raise Refused("invalid", f"{message}; gpus_per_node says how many a node has", "gpus")
    each = _gpus(request, request.nodes or request.tasks)
    if each > capacity.most.gpus:
        raise Refused("invalid", f"{field}: no host has {count(each, 'GPU')} (the most is {capacity.most.gpus})", field)


def _refuse_optional(capacity: Capacity, asked: Size) -> None:
    """More on a node than any host has, of what most jobs do not need: the refusal names it alone."""
    for dimension, number, most in zip(DIMENSIONS, asked, capacity.most, strict=True):
        if dimension.optional and number > most:
            message = f"{dimension.per_node}: no host has {dimension.amount(number)} (the most is {most})"
            raise Refused("invalid", message, dimension.per_node)


def _refuse_impossible(request: JobSubmit, capacity: Capacity, shape: Shape) -> None:
    nodes, size = shape.nodes, shape.size
    fitting = capacity.fitting(size)
    if fitting >= nodes:
        return
    if size.cores > capacity.most.cores:
        asked = f"nodes: {_tasks(request)} on {count(nodes, 'node')} are {count(size.cores, 'core')} on each"
        raise Refused("invalid", _too_large(asked, capacity), "nodes")
    if fitting == 0:
        field = "memory_mb" if request.memory_per_core_mb is None else "memory_per_core_mb"
        asked = f"{field}: no host has {words(size, joined='together with')}"
        raise Refused("invalid", _too_large(asked, capacity), field)
    raise Refused("invalid", _too_few(nodes, size, fitting, capacity), "nodes")


def _too_few(nodes: int, size: Size, fitting: int, capacity: Capacity) -> str:
    """Some hosts are large enough, so the largest one says nothing."""
    those = f" with {capacity.constraint}" if capacity.constraint else ""
    verb = "is" if fitting == 1 else "are"
    found = f"only {fitting} of the {capacity.hosts} hosts{those} {verb} large enough"
    if fitting == capacity.hosts:
        found = f"there {verb} only {count(fitting, 'host')}{those}"
    return f"nodes: {count(nodes, 'host')} with {words(size)} each are needed, and {found}"


def _tasks(request: JobSubmit) -> str:
    return count(request.tasks, "task")


def _too_large(asked: str, capacity: Capacity) -> str:
    where = f" of those with {capacity.constraint}" if capacity.constraint else ""
    return f"{asked} (the largest{where} is {capacity.largest})"


# ---------------------------------------------------------------------------------------------------- arrays, dependencies


def parse_array(spec: str, units_max: int) -> tuple[tuple[int, ...], int]:
    """Indices (ascending, each once) and throttle (0: none) of ``1-100:2%10,200``.  Raises `Refused`."""
    try:
        return specs.array(spec, units_max)
    except specs.TooMany as error:
        raise Refused("limit", f"array: {error}", "array") from None
    except ValueError as error:
        raise Refused("invalid", f"array: {error}", "array") from None


def parse_after(spec: str) -> tuple[Dependency, ...]:
    """``afterok:12,afterany:13:14``.  Raises `Refused`."""
    try:
        found = specs.dependencies(spec)
    except specs.TooMany as error:
        raise Refused("limit", f"after: {error}", "after") from None
    except ValueError as error:
        raise Refused("invalid", f"after: {error}", "after") from None
    return tuple(Dependency(condition=cast("Any", condition), job=job) for condition, job in found)
