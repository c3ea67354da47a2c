"""Removing what a stranger has left, whatever its shape: directories nested so deep that no path reaches them, or closed ones.

`shutil.rmtree` calls itself for each level, or keeps a descriptor open in each: a job that makes 1,500 directories, one in the
other, would end the process that clears up after it.

Rules
  1. It goes down by a name and up by `..`, so one descriptor is open however deep it is; what `..` leads to must be what it
     came from.
  2. No symbolic link is followed, at any level.
  3. What cannot be removed is passed over, and reported at the end: everything else is gone then.
  4. No process that owns the tree runs any longer: names do not change hands meanwhile.
"""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Level(NamedTuple):
    """A directory on the way down: its name in the one above, what it is, and the directories in it that are still there."""

    name: str
    ident: tuple[int, int]
    inner: list[str]


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, a link, or a directory with all that is in it; nothing happens if there is none.  Raises the first OSError
    of rule 3."""
    holder, name = os.path.split(os.path.abspath(path))
    failed: list[OSError] = []
    try:
        here = os.open(holder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        there = os.path.lexists(path) and _is_directory(here, name, failed)
        way = [_Level("", _ident(here), [name] if there else [])]
        while way[-1].inner or len(way) > 1:  # rule 1
            level = way[-1]
            if level.inner:
                name = level.inner.pop()
                try:
                    below = _opened(here, name)
                except OSError as error:
                    failed.append(error)
                    continue
                os.close(here)
                here = below
                way.append(_Level(name, _ident(here), _directories(here, failed)))
                continue
            way.pop()
            above = os.open("..", _OPEN, dir_fd=here)
            os.close(here)
            here = above
            if _ident(here) != way[-1].ident:
                raise OSError(f"{level.name} was moved while it was removed")
            try:
                os.rmdir(level.name, dir_fd=here)
            except OSError as error:
                failed.append(error)
    finally:
        os.close(here)
    if failed:
        raise failed[0]


def _directories(here: int, failed: list[OSError]) -> list[str]:
    """Removes everything else."""
    try:
        names = os.listdir(here)
    except OSError as error:
        failed.append(error)
        return []
    return [name for name in names if _is_directory(here, name, failed)]


def _is_directory(here: int, name: str, failed: list[OSError]) -> bool:
    """True if it is one; anything else is removed."""
    try:
        os.unlink(name, dir_fd=here)
    except (IsADirectoryError, PermissionError) as error:
        if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            return True
        failed.append(error)
    except OSError as error:
        failed.append(error)
    return False


def _opened(here: int, name: str) -> int:
    """What its owner has closed to itself is opened; root needs none of that."""
    if os.geteuid() != 0:
        mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(name, stat.S_IRWXU, dir_fd=here)
    return os.open(name, _OPEN, dir_fd=here)


def _ident(here: int) -> tuple[int, int]:
    status = os.fstat(here)
    return status.st_dev, status.st_ino
