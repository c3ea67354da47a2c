"""How VMs are isolated on this machine: chosen once, at the start, by looking; and reported honestly.

uid+cgroup   root: every VM has a uid and a control group of its own
uid          root without usable control groups: limits are rlimits, per process; but of processes, per VM
none         not root: VMs share the hypervisor's user, limits are rlimits, and `why` explains what that means

As root, `auto` never means `none`: jobs would run as root.  That has to be set explicitly.
"""

from __future__ import annotations

import hashlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from phoenix.local.driver import Gpu
from phoenix.local.process.cgroups import Cgroups, CgroupsUnavailableError, Group, tasks_max
from phoenix.local.process.cleanup import Leavings
from phoenix.local.process.spawner import Containment
from phoenix.local.process.users import UID_BASE, Users, UsersExhaustedError

KINDS = ("auto", "uid+cgroup", "uid", "none")
MEGABYTE = 1 << 20


class IsolationUnavailableError(Exception):
    """The isolation that was asked for by name is not possible here."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One VM's containment and what must be given back."""

    held: Containment
    group: Group | None
    department: str


class Isolation:
    """Makes and removes cells. Raises `IsolationUnavailableError` if `wished` by name and impossible."""

    def __init__(self, data_dir: Path, wished: str, uid_base: int = UID_BASE, gpus: tuple[str, ...] = ()) -> None:
        if wished not in KINDS:
            raise IsolationUnavailableError(f"isolate is {wished!r}; it must be one of {', '.join(KINDS)}")
        self.users: Users | None = None
        self.leavings: Leavings | None = None  # with users only: else VMs share the hypervisor's, and its files
        self.cgroups: Cgroups | None = None
        self.why = ""
        if wished != "none":
            self._look(data_dir, uid_base, with_cgroups=wished != "uid")
        if wished == "auto" and self.kind == "none" and os.geteuid() == 0:
            raise IsolationUnavailableError(f'jobs would run as root: {self.why}; to allow that, set isolate = "none"')
        if wished not in ("auto", self.kind):
            raise IsolationUnavailableError(f"isolation {wished!r} is not possible: {self.why}")
        if wished == "none":
            self.why = "switched off in the configuration: VMs share one user and can read each other"
        self.gpus = gpus
        if gpus and self.users is None:
            self.why += "; a job can open every GPU that this user can"

    def _look(self, data_dir: Path, uid_base: int, with_cgroups: bool) -> None:
        if os.geteuid() != 0:
            self.why = "not started as root: VMs share one user and can read each other; memory is limited per process"
            return
        try:
            self.users = Users(data_dir / "uids.json", uid_base)
        except (UsersExhaustedError, OSError) as error:
            self.why = str(error)
            return
        self.leavings = Leavings(self.users.block)
        if not with_cgroups:
            self.why = "control groups are switched off in the configuration: limits hold for each process only"
            return
        try:
            digest = hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]
            self.cgroups = Cgroups(digest)
            if self.cgroups.missing:
                self.why = f"no control group limits for {', '.join(self.cgroups.missing)}"
        except (CgroupsUnavailableError, OSError) as error:
            self.why = str(error)

    @property
    def kind(self) -> str:
        if self.users is None:
            return "none"
        return "uid" if self.cgroups is None else "uid+cgroup"

    @property
    def limits_cpu(self) -> bool:
        return self.cgroups is not None and "cpu" not in self.cgroups.missing

    def status(self) -> dict[str, str]:
        """For people: the kind, and what is weaker than it could be."""
        return {"isolation": self.kind, **({"why": self.why} if self.why else {})}

    def enclose(
        self, name: str, department: str, cores: float, memory_mb: int, marker: str, gpus: tuple[Gpu, ...] = ()
    ) -> Cell:
        """Make the cell of one VM. Raises OSError and `UsersExhaustedError`."""
        uid = self.users.take(department) if self.users is not None else None
        try:
            group = self.cgroups.create(name, cores, memory_mb) if self.cgroups is not None else None
        except OSError:
            self._return_uid(department, uid)
            raise
        rlimits = {}
        if group is None or group.memory is None:
            rlimits["RLIMIT_AS"] = max(64, memory_mb) * MEGABYTE  # an address space holds more than what is used
        if uid is not None and (group is None or group.pids is None):
            rlimits["RLIMIT_NPROC"] = tasks_max(cores)  # of the VM, whose alone the uid is
        given = {gpu.node for gpu in gpus}
        held = Containment(
            cgroups=group.paths if group else (),
            uid=uid,
            rlimits=rlimits,
            marker=marker,
            devices={node: node in given for node in self.gpus} if uid is not None else {},
        )
        return Cell(held, group, department)

    def release(self, cell: Cell) -> None:
        """Give back a cell in which nothing runs any more; raises OSError if its group says otherwise."""
        if cell.group is not None:
            cell.group.remove()
        self._return_uid(cell.department, cell.held.uid)

    def _return_uid(self, department: str, uid: int | None) -> None:
        if self.users is not None and uid is not None:
            self.users.give_back(department, uid)

    def close(self) -> None:
        if self.cgroups is not None:
            self.cgroups.close()
        if self.users is not None:
            self.users.close()


def raise_open_files_limit() -> None:
    """The hypervisor holds a few descriptors per VM."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
