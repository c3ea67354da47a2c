"""A disk that is full, for this process and a file's growth: the system's limit of a file's size, lowered and lifted again.

The write itself fails, as on a full disk, with EFBIG instead of ENOSPC (Python ignores the signal that goes with it).  It needs
no file system of its own and no rights.  Files that are smaller can be written as before.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full(path: Path, size: int | None = None) -> Iterator[None]:
    """No file of this process grows beyond `size`, or what `path` has now."""
    most = size if size is not None else path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
