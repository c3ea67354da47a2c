"""Where output is to go, looked at before anything is simulated: an hour of simulating must not end at a mistyped path.

Rules
  1. Nothing is made or written here.
  2. A file's directory has to be there: a mistyped one is not made.  A directory of plots is made, with those above it.
  3. What can be seen only by writing (a full disk) is reported when it happens (`report`).
"""

from __future__ import annotations

import os
from pathlib import Path

from phoenix.cli import files
from phoenix.cli.errors import usage


def check_file(option: str, path: Path) -> None:
    """Raises CliError (exit code 2) if no file can be written there."""
    if path == files.STDOUT:
        return
    if path.is_dir():
        raise usage(f"{option} {path}: that is a directory", f"name a file in it: {option} {path / 'jobs.csv'}")
    if not path.parent.is_dir():
        raise usage(f"{option} {path}: there is no directory {path.parent}", "make it first, or name another")
    _check_writable(option, path, path.parent)
    if path.exists() and not path.is_file():
        raise usage(f"{option} {path}: that is no file", f"for a pipe, name a file and read that: {option} jobs.csv")


def check_directory(option: str, path: Path) -> None:
    """Raises CliError (exit code 2) if no files can be written in there."""
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise usage(f"{option} {path}: {there} is a file", "name a directory; it is made if it is not there")
    _check_writable(option, path, there)


def _check_writable(option: str, path: Path, directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise usage(f"{option} {path}: you may not write in {directory}", "name a place that you may write to")
