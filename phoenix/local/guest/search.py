"""Which files of a job its patterns mean: `*` stays in one directory, `**` is any number of them.

Theory of operation
  A job chooses both the patterns and the tree, so either may be as bad as it likes.  The tree is walked once for all patterns:
  with each directory goes the set of places at which the patterns have arrived there, so that no pattern, however many `**` it
  has, makes a directory be read twice.

Rules
  1. No symbolic link is followed below the directory, and only regular files of the VM's own user are found.
  2. It ends: after `ENTRIES_MAX` entries, or `SEARCH_S`; deeper than `LEVELS_MAX` nothing is looked for.  Then `whole` is
     False.
  3. It runs in a thread of `THREADS`, beside the hypervisor's loop, and keeps no other thread from it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import stat
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from phoenix.local.guest.workdir import DIRECTORY_FLAGS, UnsafeNameError, relative_name

ENTRIES_MAX: Final = 100_000  # a pattern over a whole file system must end; takes about half a second
SEARCH_S: Final = 3.0  # of a thread that may get a fraction of a core
LEVELS_MAX: Final = 100  # each holds a descriptor
NAMES_MAX: Final = 1000
THREADS: Final = ThreadPoolExecutor(2, thread_name_prefix="search")

_Place = tuple[tuple[str, ...], int]  # the parts of a pattern, and which of them is next


class _EnoughError(Exception):
    """Rule 2."""


@dataclass(slots=True)
class Found:
    """In order, a directory's files before those below it."""

    names: list[str] = field(default_factory=list)
    whole: bool = True


async def search(directory: str, patterns: Iterable[str], uid: int | None) -> Found:
    """Without holding the loop up; what was begun ends by itself when this is cancelled."""
    if not patterns:
        return Found()
    return await asyncio.get_running_loop().run_in_executor(THREADS, matching, directory, list(patterns), uid)


def matching(directory: str, patterns: Iterable[str], uid: int | None) -> Found:
    """Names below `directory` of files of this user (None: of anybody), at most one more than `NAMES_MAX`."""
    walk = _Walk(uid)
    places: set[_Place] = set()
    for pattern in patterns:
        with suppress(UnsafeNameError):
            places |= _from((_plain(relative_name(pattern).parts), 0))
    try:
        fd = os.open(directory, DIRECTORY_FLAGS & ~os.O_NOFOLLOW)
    except OSError:
        return walk.found
    with suppress(_EnoughError):
        walk.look(fd, "", places, 0)  # which closes it
        return walk.found
    walk.found.whole = False
    return walk.found


class _Walk:
    def __init__(self, uid: int | None) -> None:
        self.found = Found()
        self._uid = uid
        self._left = ENTRIES_MAX
        self._until = time.monotonic() + SEARCH_S

    def look(self, fd: int, prefix: str, places: set[_Place], level: int) -> None:
        """Closes `fd`.  Raises `_EnoughError`."""
        try:
            below: list[tuple[str, set[_Place]]] = []
            for name, is_directory in self._entries(fd):
                if is_directory:
                    if inner := self._arrived(name, places):
                        below.append((name, inner))
                elif self._is_wanted(name, places) and self._is_own(fd, name):
                    self.found.names.append(prefix + name)
                    if len(self.found.names) > NAMES_MAX:
                        raise _EnoughError
            if below and level == LEVELS_MAX:
                self.found.whole = False
                return
            for name, inner in below:
                with suppress(OSError):
                    opened = os.open(name, DIRECTORY_FLAGS, dir_fd=fd)
                    self.look(opened, f"{prefix}{name}/", inner, level + 1)
        finally:
            os.close(fd)

    def _entries(self, fd: int) -> list[tuple[str, bool]]:
        entries: list[tuple[str, bool]] = []
        with os.scandir(fd) as listed:
            for entry in listed:
                self._left -= 1
                if self._left < 0:
                    raise _EnoughError
                self._check_time()
                entries.append((entry.name, entry.is_dir(follow_symlinks=False)))
        return sorted(entries)

    def _arrived(self, name: str, places: set[_Place]) -> set[_Place]:
        """Where the patterns are in the directory of this name."""
        inner: set[_Place] = set()
        for parts, index in places:
            if parts[index] == "**":
                inner |= _from((parts, index))
            elif index + 1 < len(parts) and self._fits(name, parts[index]):
                inner |= _from((parts, index + 1))
        return inner

    def _is_wanted(self, name: str, places: set[_Place]) -> bool:
        return any(index + 1 == len(parts) and self._fits(name, parts[index]) for parts, index in places)

    def _fits(self, name: str, part: str) -> bool:
        self._check_time()
        return part == "**" or fnmatch.fnmatchcase(name, part)

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise _EnoughError

    def _is_own(self, fd: int, name: str) -> bool:
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and (self._uid is None or status.st_uid == self._uid)


def _from(place: _Place) -> set[_Place]:
    """`**` may stand for no directory."""
    parts, index = place
    return {place, (parts, index + 1)} if parts[index] == "**" and index + 1 < len(parts) else {place}


def _plain(parts: tuple[str, ...]) -> tuple[str, ...]:
    """`**` after `**` says nothing more."""
    return tuple(part for before, part in zip(("", *parts), parts, strict=False) if (before, part) != ("**", "**"))
