"""Files that their owner alone can read, whole at every moment: written beside their place, on disk, and then put there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

MODE: Final = 0o600


def beside(path: Path, content: bytes) -> Path:
    """A new file beside `path` with `content`, which the caller puts in its place.  Nothing is left of it if it cannot be
    written (OSError)."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def replace(path: Path, content: bytes) -> None:
    """Raises OSError; then the old content stands."""
    new = beside(path, content)
    try:
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
