"""A room: the directory that is a VM's whole world, and the rules for a privileged guest that reads and writes in it.

    <room>/script  token  stdout  stderr  note     what guest and job exchange
    <room>/work/                                   working directory and HOME
    <room>/tmp/                                    TMPDIR

The guest may be root while the room belongs to the job's uid, so every name in it is hostile once a job has run:

1. A file is created with O_EXCL and without following links, then given to the job's uid.
2. What is read back is a regular file, reached without following any link, owned by the VM's own uid.
   So a link to (or a directory full of) other people's files gives nothing away.
3. Opening never blocks (a FIFO would stop the hypervisor).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

NOTE_BYTES_MAX = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeNameError(ValueError):
    """A relative file name that is absolute, empty, climbs out of its directory, or has control characters."""


def relative_name(name: str) -> PurePosixPath:
    """Check a file name that came from outside; raises `UnsafeNameError`."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise UnsafeNameError(f"{name!r} is not a relative file name inside the working directory")
    if _CONTROL.search(name):  # the door takes none either
        raise UnsafeNameError("its name has control characters")
    return path


def collide(one: str, other: str) -> bool:
    """True if two relative names cannot both be files: they are the same, or one is the other's directory."""
    mine, theirs = PurePosixPath(one).parts, PurePosixPath(other).parts
    shorter = min(len(mine), len(theirs))
    return mine[:shorter] == theirs[:shorter]


@dataclass(frozen=True, slots=True)
class Room:
    """One VM's directory. `uid` is the user it belongs to, None when everything runs as one user."""

    path: str
    uid: int | None

    @property
    def work(self) -> str:
        return self.file("work")

    @property
    def tmp(self) -> str:
        return self.file("tmp")

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def build(self) -> None:
        """Make the room; it must not exist."""
        os.mkdir(self.path, 0o700)
        for directory in (self.work, self.tmp):
            os.mkdir(directory, 0o700)
            self._give(directory)
        self._give(self.path)

    def seal(self) -> None:
        """Close a room whose VM has ended: its uid may soon belong to another VM of the department."""
        if self.uid is not None:
            with suppress(FileNotFoundError):
                os.chown(self.path, 0, 0)

    def create(self, name: str, mode: int = 0o600) -> int:
        """Create a new file of the job's in the room and open it for reading and appending."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.file(name), flags, mode)
        os.fchmod(fd, mode)
        if self.uid is not None:
            os.fchown(fd, self.uid, self.uid)
        return fd

    def write(self, name: str, content: bytes, mode: int = 0o600) -> None:
        fd = self.create(name, mode)
        with open(fd, "wb") as file:
            file.write(content)

    def create_input(self, name: str) -> int:
        """Open a new file in the working directory; its parent directories are made. Before any job has run only."""
        path = PurePosixPath("work") / relative_name(name)
        for parent in list(reversed(path.parents))[2:]:
            with suppress(FileExistsError):
                os.mkdir(self.file(str(parent)), 0o700)
                self._give(self.file(str(parent)))
        return self.create(str(path))

    def note(self) -> str | None:
        """What the machine noted when it started the script."""
        try:
            fd = os.open(self.file("note"), READ_FLAGS)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return os.read(fd, NOTE_BYTES_MAX).decode(errors="replace")
        finally:
            os.close(fd)

    def _give(self, path: str) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)

    @contextmanager
    def open_kept(self, directory: str, name: str) -> Iterator[int]:
        """Open one of the names that `search` gave, by rule 2. Raises OSError."""
        fd = os.open(directory, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
        parts = relative_name(name).parts
        try:
            for part in parts[:-1]:
                inner = os.open(part, DIRECTORY_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = inner
            file = os.open(parts[-1], READ_FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or (self.uid is not None and status.st_uid != self.uid):
                raise PermissionError(f"{name} is not a regular file of this job")
            yield file
        finally:
            os.close(file)
