"""Directories for locks that concern a whole machine: only their owner may enter.

Where others may make files, as in /run/lock or among abstract sockets, a job could take every lock, and so keep clouds from
starting, or instances.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

PLACES: Final = ("/run", "/var/lib")  # of which one is there, and root's, on every machine


class NotClosedError(OSError):
    """The directory cannot be had, or is not its owner's alone; the message says why."""


def closed_directory(name: str) -> Path:
    """It is made if it is missing.  Root's is below `PLACES`, anybody else's in their run-time directory.  Raises
    `NotClosedError`."""
    path = _place() / name if os.geteuid() == 0 else _own() / f"{name}-{os.geteuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise NotClosedError(f"{path}, for locks, cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise NotClosedError(
            f"{path}, for locks, is not {'root' if os.geteuid() == 0 else 'its owner'}'s alone: remove it"
        )
    return path


def _place() -> Path:
    return Path(next((place for place in PLACES if os.access(place, os.W_OK)), PLACES[0]))


def _own() -> Path:
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
