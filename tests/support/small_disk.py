"""A file system of its own, small enough to be filled: a tmpfs in a user and mount namespace, which needs no rights.

`SmallDisk.run` starts a command in which `directory` is on it; no other process sees it there.  `fill` and `empty` reach it
through a process that lives inside (/proc/PID/root).
"""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

from tests.support.tools import missing, tool

_MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
_ENTER = ("--user", "--map-root-user", "--mount")
_PAGE = b"\0" * 4096
FILLER = "filler"


class SmallDisk:
    """`directory` is made if it is missing."""

    def __init__(self, directory: Path, size_mb: int) -> None:
        self.directory, self._size = directory, f"{size_mb}m"
        directory.mkdir(parents=True, exist_ok=True)

    def inside(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` where the directory is on the small disk."""
        enter = [str(tool("unshare")), *_ENTER]
        if subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
            missing("the right to a user and a mount namespace")
        return [*enter, "sh", "-c", _MOUNT, "sh", self._size, str(self.directory), *argv]

    def seen_by(self, pid: int) -> Path:
        """The directory as a process inside sees it."""
        return Path(f"/proc/{pid}/root{self.directory}")

    def fill(self, pid: int) -> None:
        """To the last page."""
        with (self.seen_by(pid) / FILLER).open("wb", buffering=0) as file:
            try:
                while file.write(_PAGE * 256) == len(_PAGE) * 256:
                    continue
                while True:
                    file.write(_PAGE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def empty(self, pid: int) -> None:
        (self.seen_by(pid) / FILLER).unlink()
