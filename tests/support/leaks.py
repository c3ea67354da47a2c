"""Where a word that nobody may know is to be found all the same."""

from __future__ import annotations

from pathlib import Path


def places(word: bytes, *directories: Path) -> list[Path]:
    """Command lines of all processes that one may look at, and files below `directories`, that hold it."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return sorted(path for path in [*Path("/proc").glob("[0-9]*/cmdline"), *files] if word in _content(path))


def _content(path: Path) -> bytes:
    """Of a process or a file that may be gone by now: nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
