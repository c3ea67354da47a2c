"""What a VM's user has left outside its room: removed before that uid runs anything else.

Theory of operation. A uid is used again, for the next job of the department, perhaps another person's. Whatever its files are
closed to, they are open to their owner, so what one job left in a directory where every user may write would be the next
one's to read. The same holds for System V's shared memory, queues and semaphores, which belong to a uid and outlive processes.

1. It looks at the entries of the machine's shared directories, and at nothing below what is another user's.
2. Nothing of the uid runs any more: so no name changes hands between the look and the removal (the directories are sticky).
3. What cannot be removed is an OSError: then the uid must not be given to anybody.
4. What cannot be looked at (a mount whose server is gone) is passed over: else it would be in the way of every uid.
5. A directory in which nothing was made, renamed or removed since the last look (by its mtime) is not looked through
   again: whose things were left in it is known from then.  That holds only for a look that came so long after the change before
   it that a later one must show (as git's index does it); and only root could give a file to another owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final

from phoenix.local.process.removal import remove

SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108  (to clean them, not to write there)
IPC_RMID = 0
SETTLED_NS = 2_000_000_000  # no file system counts time in longer steps (FAT: two seconds; most: the kernel's tick)

_libc = ctypes.CDLL(None, use_errno=True)
IPC: Final[Mapping[str, tuple[str, Callable[[int], int]]]] = {  # the heading of its numbers, and what removes one
    "shm": ("shmid", lambda number: int(_libc.shmctl(number, IPC_RMID, None))),
    "msg": ("msqid", lambda number: int(_libc.msgctl(number, IPC_RMID, None))),
    "sem": ("semid", lambda number: int(_libc.semctl(number, 0, IPC_RMID))),
}


@dataclass(frozen=True, slots=True)
class _Look:
    """A directory as it was when it was looked through, and who had left something in it."""

    mark: tuple[int, int, int]
    owners: frozenset[int]


class Leavings:
    """What the users of one hypervisor, `ours`, have left in the machine's shared places.  Threads may use it together."""

    def __init__(self, ours: Container[int]) -> None:
        self._ours = ours
        self._places = tuple(dict.fromkeys((*SHARED, tempfile.gettempdir())))
        self._looks: dict[str, _Look] = {}

    def none_of(self, uid: int) -> bool:
        """Whether this user has certainly left nothing, which a few system calls show; if False, `remove` has to look.
        Raises OSError."""
        uids = (uid,)
        return all(self._is_free(place, uids) for place in self._places) and not any(_owned(kind, uids) for kind in IPC)

    def remove(self, uids: Container[int]) -> None:
        """Everything that these users own in the machine's shared places. Raises OSError."""
        for place in self._places:
            if not self._is_free(place, uids):
                self._empty(place, uids)
        for kind, (_, end) in IPC.items():
            for number in _owned(kind, uids):
                if end(number) != 0:
                    error = ctypes.get_errno()
                    raise OSError(error, f"{kind} {number} cannot be removed: {os.strerror(error)}")

    @property
    def on_disk(self) -> tuple[str, ...]:
        """Those places that are not memory."""
        return tuple(place for place in self._places if not place.startswith("/dev/"))

    def of(self, uids: Container[int]) -> dict[int, list[str]]:
        """What each of these users has on disk now, outside its room."""
        found: dict[int, list[str]] = {}
        for place in self.on_disk:
            if self._is_free(place, uids):
                continue
            with contextlib.suppress(OSError), os.scandir(place) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        uid = entry.stat(follow_symlinks=False).st_uid
                        if uid in uids:
                            found.setdefault(uid, []).append(entry.path)
        return found

    def _is_free(self, place: str, uids: Container[int]) -> bool:
        """Rule 5."""
        try:
            mark = _mark(place)
        except FileNotFoundError:
            return True
        look = self._looks.get(place)
        return look is not None and look.mark == mark and not any(uid in uids for uid in look.owners)

    def _empty(self, place: str, uids: Container[int]) -> None:
        began_ns = time.time_ns()
        try:
            mark = _mark(place)
            mine, owners = _look_through(place, uids, self._ours)
        except (FileNotFoundError, NotADirectoryError):
            return
        for path in mine:
            remove(path)
        if owners is not None and began_ns - mark[-1] > SETTLED_NS:
            self._looks[place] = _Look(mark, owners)


def _mark(place: str) -> tuple[int, int, int]:
    """It changes with whatever is made in a directory."""
    status = os.stat(place)
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _look_through(place: str, uids: Container[int], ours: Container[int]) -> tuple[list[str], frozenset[int] | None]:
    """What these users own there; and which of our users own something there, None if something cannot be looked at."""
    mine: list[str] = []
    owners: set[int] = set()
    complete = True
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # rule 4
                complete = False
                continue
            if status.st_uid in uids:
                mine.append(entry.path)
            if status.st_uid in ours:
                owners.add(status.st_uid)
    return mine, frozenset(owners) if complete else None


def _owned(kind: str, uids: Container[int]) -> list[int]:
    """The numbers of what these users own or have made in one table of System V IPC."""
    try:
        with open(f"/proc/sysvipc/{kind}") as table:
            heading, *lines = table.read().splitlines()
    except OSError:
        return []  # a kernel without them
    if not lines:
        return []
    columns = heading.split()
    number, owner, maker = (columns.index(name) for name in (IPC[kind][0], "uid", "cuid"))
    rows = [list(map(int, line.split())) for line in lines]
    return [row[number] for row in rows if row[owner] in uids or row[maker] in uids]
