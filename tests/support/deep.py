"""Directories in each other, deeper than a path can say."""

from __future__ import annotations

import os
from pathlib import Path


def nested(top: Path, depth: int) -> None:
    """`top` with a file and a directory in each of this many levels."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, dir_fd=here))
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
