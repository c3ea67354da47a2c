"""What a VM's user has left outside its room: removed before that uid runs anything else.

Theory of operation. A uid is used again, for the next job of the department, perhaps another person's. Whatever its files are
closed to, they are open to their owner, so what one job left in a directory where everybody may write would be the next
one's to read. The same holds for System V's shared memory, queues and semaphores, which belong to a uid and outlive processes.

1. It looks at the entries of the machine's shared directories, and at nothing below what is another user's.
2. Nothing of the uid runs any more: so no name changes hands between the look and the removal (the directories are sticky).
3. What cannot be removed is an OSError: then the uid must not be given to anybody.
4. What cannot be looked at (a mount whose server is gone) is passed over: else it would be in the way of every uid.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108  (to clean them, not to write there)
IPC_RMID = 0


def remove(uids: Container[int]) -> None:
    """Everything that these users own in the machine's shared places. Raises OSError."""
    for directory in dict.fromkeys(os.path.realpath(place) for place in (*SHARED, tempfile.gettempdir())):
        _empty(directory, uids)
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, end in (
        ("shm", lambda number: libc.shmctl(number, IPC_RMID, None)),
        ("msg", lambda number: libc.msgctl(number, IPC_RMID, None)),
        ("sem", lambda number: libc.semctl(number, 0, IPC_RMID)),
    ):
        _end_all(kind, end, uids)


def _empty(directory: str, uids: Container[int]) -> None:
    mine: list[tuple[str, bool]] = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # rule 4
                status = entry.stat(follow_symlinks=False)
                mine.extend([(entry.path, stat.S_ISDIR(status.st_mode))] if status.st_uid in uids else [])
    for path, is_directory in mine:
        with suppress(FileNotFoundError):
            (shutil.rmtree if is_directory else os.unlink)(path)


def _end_all(kind: str, end: Callable[[int], int], uids: Container[int]) -> None:
    try:
        heading, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except OSError:
        return  # a kernel without them
    columns = heading.split()
    number, owner, maker = (
        columns.index(f"{'msq' if kind == 'msg' else kind}id"),
        columns.index("uid"),
        columns.index("cuid"),
    )
    for line in lines:
        fields = line.split()
        if (int(fields[owner]) in uids or int(fields[maker]) in uids) and end(int(fields[number])) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{kind} {fields[number]} cannot be removed: {os.strerror(error)}")
