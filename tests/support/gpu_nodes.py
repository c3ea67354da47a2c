"""Stand-in device nodes: what reads as zeros stands for a card."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ZERO = os.makedev(1, 5)
AS_ROOT = os.geteuid() == 0


@contextmanager
def gpu_nodes(*modes: int) -> Iterator[tuple[str, ...]]:
    """`gpu0`, `gpu1`, … with these modes, where jobs may look.  Without root: two nodes that are there."""
    if not AS_ROOT:
        yield "/dev/zero", "/dev/full"
        return
    directory = Path(tempfile.mkdtemp(prefix="gpus-"))
    directory.chmod(0o755)
    try:
        for number, mode in enumerate(modes):
            os.mknod(directory / f"gpu{number}", stat.S_IFCHR | mode, _ZERO)
            (directory / f"gpu{number}").chmod(mode)
        yield tuple(str(directory / f"gpu{number}") for number in range(len(modes)))
    finally:
        shutil.rmtree(directory)
