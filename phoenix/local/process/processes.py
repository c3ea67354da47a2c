"""Which processes belong to a VM, according to the kernel, and the end of them.

Nothing here knows a process by a number that it has kept: a number is read a moment before it is used.  Standard library only:
the nursery (zygote.py) is made of it.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Final

KILL_ROUNDS_MAX: Final = 200  # a fork bomb loses this race long before: its cgroup forbids new processes first


def owned_pids(cgroups: list[str], uid: int | None, marker: str | None) -> list[int]:
    """The processes of one VM: by cgroup if it has one, else by its own uid, else by the marker in the environment."""
    if cgroups:
        return _pids_in(cgroups[0])
    if uid is None and marker is None:
        return []
    return [pid for pid in _all_pids() if pid != os.getpid() and _owned(pid, uid, marker)]


def _owned(pid: int, uid: int | None, marker: str | None) -> bool:
    try:
        if uid is not None:
            return os.stat(f"/proc/{pid}").st_uid == uid and state(pid) not in "ZX"
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return marker is not None and marker.encode() in environ.read().split(b"\0")
    except OSError:
        return False


def purge(cgroups: list[str], uid: int | None, marker: str | None, spare: int = 0) -> None:
    """SIGKILL every process of one VM until none is left; `spare` is a zombie whose reaping is still to come."""
    for path in cgroups:
        _forbid_forks(path)
    for _ in range(KILL_ROUNDS_MAX):
        if not (pids := [pid for pid in owned_pids(cgroups, uid, marker) if pid != spare]):
            return
        for pid in pids:
            kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _forbid_forks(path: str) -> None:
    """Not every group has this limit; and the hypervisor may remove one at any moment, once it is empty."""
    try:
        fd = os.open(path + "/pids.max", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):  # the second: removed since it was found, or opened
            raise


def _pids_in(cgroup: str) -> list[int]:
    try:
        with open(cgroup + "/cgroup.procs") as procs:
            return [int(line) for line in procs.read().split()]
    except OSError:
        return []


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(parent: int) -> list[int]:
    found = []
    for pid in _all_pids():
        try:
            found += [pid] if int(_stat(pid)[1]) == parent else []
        except OSError:
            continue
    return found


def state(pid: int) -> str:
    """One letter, as ps gives it; X for a process that is gone."""
    try:
        return _stat(pid)[0].decode()
    except OSError:
        return "X"


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the state on: state, parent, group, session, …"""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # The child may not have called setsid yet: it cannot have children either.
        kill(pid, number)


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
