"""Users for VMs: which uid a VM runs under, without ever creating an account.

Theory of operation. Each VM that runs has a uid of its own, so VMs are protected from each other even inside a
department. A uid is bound to its department for ever (a counter, recorded in a file) and is used again only for that
department, when what was left outside its room, say in /tmp, is removed (leavings.py).

Several clouds may run on one machine, so the range is cut into blocks; a hypervisor owns a block while it holds a lock
on a file, and comes back to its block when it can. The files are in a directory that is root's alone (`locks`): else jobs could
take every block, and so the isolation of the next cloud.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from pathlib import Path

from phoenix.local.locks import NotClosedError, closed_directory

UID_BASE = 200_000  # above what useradd and most directories hand out, below systemd's and container ranges (524288)
BLOCK_UIDS = 4_000  # VMs of one cloud at once, all departments together
BLOCKS = 64
LOCK_DIRECTORY = "phoenix-uids"


class UsersExhaustedError(Exception):
    """No block, or no uid in the block, is left."""


class Users:
    """Hands out uids to VMs by department. One instance per data directory."""

    def __init__(self, record: Path, base: int = UID_BASE) -> None:
        self._record = record
        saved = json.loads(record.read_text()) if record.exists() else {}
        self._block, self._lock = _own_block(base, saved.get("block"))
        self.first = base + self._block * BLOCK_UIDS
        # Another block's numbers belong to another cloud: start over.
        kept = saved.get("departments", {}) if saved.get("block") == self._block and saved.get("base") == base else {}
        self._base = base
        self._departments: dict[str, list[int]] = defaultdict(list, kept)
        self._free = {department: sorted(uids, reverse=True) for department, uids in self._departments.items()}
        self._next = self.first + sum(map(len, self._departments.values()))

    @property
    def block(self) -> range:
        """All uids that are ours to hand out."""
        return range(self.first, self.first + BLOCK_UIDS)

    def take(self, department: str) -> int:
        """A uid of this department that no VM uses. Raises `UsersExhaustedError`."""
        free = self._free.setdefault(department, [])
        if free:
            return free.pop()
        if self._next >= self.first + BLOCK_UIDS:
            raise UsersExhaustedError(f"all {BLOCK_UIDS} uids from {self.first} on are in use")
        uid, self._next = self._next, self._next + 1
        self._departments[department].append(uid)
        self._save()
        return uid

    def give_back(self, department: str, uid: int) -> None:
        self._free[department].append(uid)

    def close(self) -> None:
        """Give the block back; calling it again is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _save(self) -> None:
        content = {"base": self._base, "block": self._block, "departments": self._departments}
        temporary = self._record.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self._record)


def _own_block(base: int, wished: int | None) -> tuple[int, int]:
    """Lock a block: the one of last time if possible. Returns its number and the lock's descriptor. Raises
    `UsersExhaustedError`."""
    try:
        directory = closed_directory(LOCK_DIRECTORY)
    except NotClosedError as error:
        raise UsersExhaustedError(str(error)) from error
    numbers = list(range(BLOCKS))
    if wished in numbers:
        numbers.remove(wished)
        numbers.insert(0, wished)
    for number in numbers:
        path = f"{directory}/phoenix-uids-{base}-{number}.lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        if os.fstat(fd).st_uid == 0:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return number, fd
            except BlockingIOError:
                pass
        os.close(fd)
    raise UsersExhaustedError(f"all {BLOCKS} blocks of uids from {base} on are in use on this machine")
