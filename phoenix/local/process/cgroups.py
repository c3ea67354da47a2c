"""Control groups: what one VM may use, what it did use, and the certain list of its processes.

Theory of operation. Every VM gets a fresh group (making and removing one costs a twentieth of a millisecond per
hierarchy), so its counters start at zero and its removal proves that nothing is left. The groups are made *below the
group the hypervisor itself is in*: limits set on the hypervisor from outside keep holding for everything it runs.

1. Version 1 has one directory per hierarchy, version 2 one for all; which it is, is looked up, not configured.
2. A kind of limit whose controller is missing is named in `why`; the others are still used.
3. CPU: `cores × core_share` of a real core, as quota per 100 ms. Memory: a hard limit without extra swap.
4. Version 2 forbids processes beside child groups: the hypervisor first moves itself to a leaf `hypervisor`.

Sources: Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CPU_PERIOD_US = 100_000  # the kernel's default
CPU_QUOTA_MIN_US = 1_000  # the kernel refuses less
MEMORY_MIN_MB = 4  # an interpreter does not even start below
PIDS_BASE, PIDS_PER_CORE = 256, 64  # a wide make or an MPI rank per core fits, a fork bomb does not
REMOVE_DEADLINE_S = 2.0  # a killed process leaves its group a moment after the signal
MEGABYTE = 1 << 20


class CgroupsUnavailableError(Exception):
    """This process cannot make control groups here; the message says why."""


@dataclass(frozen=True, slots=True)
class Group:
    """One VM's group: `paths` are the directories a process must enter (one per hierarchy; the first lists all)."""

    paths: tuple[str, ...]
    cpu: str | None
    memory: str | None
    pids: str | None
    version: int

    def oom_kills(self) -> int:
        """How often the kernel has killed in this group for lack of memory."""
        if self.memory is None:
            return 0
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return _field(self.memory, name, "oom_kill")

    def cpu_seconds(self) -> float | None:
        """CPU time of everything that ever ran in the group; None if it is not counted."""
        if self.version == 2:
            return _field(self.paths[0], "cpu.stat", "usage_usec") / 1e6
        for path in self.paths:
            text = _read(path, "cpuacct.usage")
            if text is not None:
                return int(text) / 1e9
        return None

    def memory_kb(self) -> int | None:
        """Memory charged to the group now."""
        return self._memory("memory.usage_in_bytes", "memory.current")

    def resident_kb(self) -> int | None:
        """What processes of the group hold now, without files that the kernel keeps in memory for them."""
        if self.memory is None:
            return None
        return _field(self.memory, "memory.stat", "total_rss" if self.version == 1 else "anon") // 1024

    def _memory(self, name_v1: str, name_v2: str) -> int | None:
        text = None if self.memory is None else _read(self.memory, name_v1 if self.version == 1 else name_v2)
        return None if text is None else int(text) // 1024

    def try_remove(self) -> bool:
        """Remove the group without waiting; False if something is still in it."""
        for path in self.paths:
            try:
                os.rmdir(path)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def limit_cpu(self, cores: float | None) -> None:
        """Set the limit in real cores; None lifts it."""
        quota_us = None if cores is None else max(CPU_QUOTA_MIN_US, round(cores * CPU_PERIOD_US))
        if self.version == 1:
            _write(self.cpu, "cpu.cfs_quota_us", "-1" if quota_us is None else str(quota_us))
        else:
            _write(self.cpu, "cpu.max", f"{'max' if quota_us is None else quota_us} {CPU_PERIOD_US}", optional=True)

    def remove(self) -> None:
        """Remove the group. Blocks shortly while the last killed process leaves; raises OSError if one does not."""
        for path in self.paths:
            _remove(path)


class Cgroups:
    """Makes the groups of one hypervisor below `phoenix-<name>`.

    Raises `CgroupsUnavailableError` when that is impossible here.
    """

    def __init__(self, name: str) -> None:
        self._leaf = f"phoenix-{name}"
        mounts = Path("/proc/self/mounts").read_text()
        self.version, self._roots = find_roots(mounts, Path("/proc/self/cgroup").read_text())
        self.missing = tuple(kind for kind in ("cpu", "memory", "pids") if kind not in self._roots)
        if self.version == 2:
            _enable_v2(self._roots)
        for base in self._bases():
            try:
                base.mkdir(exist_ok=True)
            except OSError as error:
                raise CgroupsUnavailableError(f"cannot make the control group {base}: {error.strerror}") from error
        if self.version == 2:
            self.missing = _delegate_v2(self._bases()[0])

    def create(self, name: str, cores: float, memory_mb: int) -> Group:
        """Make the group of one VM. `cores` are real cores it may use, already multiplied by its share."""
        parts: dict[str, str] = {}
        for kind, base in self._named_bases():
            path = base / name
            path.mkdir(parents=True, exist_ok=True)
            parts[kind] = str(path)
        group = Group(
            paths=tuple(dict.fromkeys(parts.values())),
            cpu=parts.get("cpu"),
            memory=parts.get("memory"),
            pids=parts.get("pids"),
            version=self.version,
        )
        self._limit(group, cores, memory_mb)
        return group

    def leftovers(self) -> list[str]:
        """The directories of groups that exist: after a crash, whatever the last run left."""
        found = []
        for base in self._bases():
            with contextlib.suppress(FileNotFoundError):
                found += sorted(str(entry) for entry in base.iterdir() if entry.is_dir())
        return found

    def close(self) -> None:
        """Remove the hypervisor's own (empty) directories."""
        for base in self._bases():
            with contextlib.suppress(OSError):
                base.rmdir()

    def _limit(self, group: Group, cores: float, memory_mb: int) -> None:
        memory = str(max(MEMORY_MIN_MB, memory_mb) * MEGABYTE)
        tasks = str(tasks_max(cores))
        if self.version == 1:
            _write(group.cpu, "cpu.cfs_period_us", str(CPU_PERIOD_US))
        group.limit_cpu(cores)
        if self.version == 1:
            _write(group.memory, "memory.limit_in_bytes", memory)
            _write(group.memory, "memory.memsw.limit_in_bytes", memory, optional=True)
        else:
            _write(group.memory, "memory.max", memory, optional=True)
            _write(group.memory, "memory.swap.max", "0", optional=True)
            _write(group.memory, "memory.oom.group", "1", optional=True)
        _write(group.pids, "pids.max", tasks, optional=self.version == 2)

    def _named_bases(self) -> Iterator[tuple[str, Path]]:
        # cpuacct first: it lists the processes even where the limits' hierarchies are missing.
        for kind in ("cpuacct", "cpu", "memory", "pids"):
            if kind in self._roots:
                yield kind, self._roots[kind] / self._leaf

    def _bases(self) -> list[Path]:
        return list(dict.fromkeys(base for _, base in self._named_bases()))


def tasks_max(cores: float) -> int:
    """Processes and threads of a VM with this many real cores."""
    return PIDS_BASE + PIDS_PER_CORE * max(1, round(cores))


def find_roots(mounts_text: str, own_text: str) -> tuple[int, dict[str, Path]]:
    """Which version, and below which directory per controller a process may make groups.

    From the texts of /proc/self/mounts and /proc/self/cgroup. Raises `CgroupsUnavailableError`.
    """
    mounts = _mounts(mounts_text)
    own = dict(_own_groups(own_text))
    if "" in own and "" in mounts and not any(kind in mounts for kind in ("cpu", "memory", "pids")):
        root = mounts[""] / own[""].lstrip("/")
        return 2, dict.fromkeys(("cpuacct", "cpu", "memory", "pids"), root)
    roots: dict[str, Path] = {
        kind: mounts[kind] / own[kind].lstrip("/")
        for kind in ("cpuacct", "cpu", "memory", "pids")
        if kind in mounts and kind in own
    }
    if not roots:
        raise CgroupsUnavailableError("no control group hierarchy with cpu, memory or pids is mounted")
    return 1, roots


def _mounts(text: str) -> dict[str, Path]:
    """Mount point by controller; the version 2 hierarchy has the empty name."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.setdefault("", Path(point))
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, Path(point))
    return found


def _own_groups(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _enable_v2(roots: dict[str, Path]) -> None:
    """Give the children of our own group their controllers; make room by moving into a leaf if the kernel asks."""
    root = roots["cpu"]
    try:
        _switch_on(root)
    except OSError:
        try:
            leaf = root / "hypervisor"
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(str(os.getpid()))
            _switch_on(root)
        except OSError as error:
            raise CgroupsUnavailableError(f"cannot delegate controllers in {root}: {error.strerror}") from error


def _switch_on(root: Path) -> None:
    for kind in (root / "cgroup.controllers").read_text().split():
        if kind in ("cpu", "memory", "pids"):
            (root / "cgroup.subtree_control").write_text(f"+{kind}")


def _delegate_v2(base: Path) -> tuple[str, ...]:
    """Pass the controllers on to the VMs' groups; returns those that are missing."""
    try:
        _switch_on(base)
        available = (base / "cgroup.subtree_control").read_text().split()
    except OSError as error:
        raise CgroupsUnavailableError(f"cannot delegate controllers in {base}: {error.strerror}") from error
    return tuple(kind for kind in ("cpu", "memory", "pids") if kind not in available)


def _remove(path: str) -> None:
    deadline = time.monotonic() + REMOVE_DEADLINE_S
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)


def _write(directory: str | None, name: str, value: str, *, optional: bool = False) -> None:
    if directory is None:
        return
    try:
        with open(f"{directory}/{name}", "w") as file:
            file.write(value)
    except OSError:
        if not optional:
            raise


def _read(directory: str, name: str) -> str | None:
    try:
        with open(f"{directory}/{name}") as file:
            return file.read()
    except OSError:
        return None


def _field(directory: str, name: str, key: str) -> int:
    for line in (_read(directory, name) or "").splitlines():
        if line.startswith(key + " "):
            return int(line.split()[1])
    return 0
