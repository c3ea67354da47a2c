"""The file of a search's trials: JSON lines, one for each trial as it finishes, after a head that says which search it is.

Theory of operation
  The head has the parts that the results follow from (space, experiment, inputs, goal, …), each as a short text or a digest.
  A trial is written with one call: a process that is killed leaves whole lines, and at most the last one torn.

Rules
  1. What is in the file is not simulated again.  A trial is known by its point and by what it ran on (`on`).
  2. A file whose head differs is refused, with the parts that do; it is never written to.
  3. A last line without an end is dropped and said.  Any other line that cannot be read is an error with its number: nothing
     is left out in silence.
  4. One process writes at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.cli.errors import FAILED, CliError, usage
from phoenix.search.space import Point, key

FORMAT: Final = 1
_SHOWN_MAX: Final = 60  # characters of a part that differs


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Which search it is; `parts`: what results follow from."""

    search: str
    parts: dict[str, str]
    format: int = FORMAT


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One point, and what came of it.  `on`: beside the point, what it ran on (a log, a seed); `result`: the same whenever it
    runs again; `cpu_s`: how long it took."""

    number: int
    point: dict[str, Any]
    on: str = ""
    result: dict[str, Any]
    cpu_s: float = 0.0


def digest(*contents: object) -> str:
    """Of anything that msgspec can write, in a few letters: equal contents have equal ones, whatever the order of keys."""
    found = hashlib.sha256()
    for each in contents:
        found.update(msgspec.json.encode(each, order="sorted"))
    return found.hexdigest()[:16]


class Trials:
    """The trials of a file, and a place for more."""

    def __init__(self, rows: list[Trial], notes: list[str], fd: int, path: Path) -> None:
        self.rows, self.notes, self.path = rows, notes, path
        self._fd = fd
        self._known = {(key(row.point), row.on): row for row in rows}

    def known(self, point: Point, on: str = "") -> Trial | None:
        """Rule 1."""
        return self._known.get((key(point), on))

    def add(self, point: Point, result: dict[str, Any], *, on: str = "", cpu_s: float = 0.0) -> Trial:
        """Write a trial that has finished.  CliError if it cannot be written."""
        row = Trial(number=len(self.rows) + 1, point=point, on=on, result=result, cpu_s=cpu_s)
        _write(self._fd, self.path, row)
        self.rows.append(row)
        self._known[key(point), on] = row
        return row


@contextlib.contextmanager
def opened(path: Path, head: Head) -> Iterator[Trials]:
    """The file, made if it is not there, held for this process.  Raises CliError (rules 2 to 4)."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise usage(f"{path} cannot be opened: {error.strerror}", "name a file that you may write") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise usage(f"{path}: another search is writing to it", "wait for it, or name another file") from None
        data = path.read_bytes()
        kept = data[: data.rfind(b"\n") + 1]
        notes = []
        if kept:
            there, rows = _parsed(path, kept)
            _check_same(path, there, head)
        if len(kept) < len(data):
            notes.append(f"{path}: its last line is torn ({len(data) - len(kept)} bytes): dropped")
            os.ftruncate(fd, len(kept))
        if not kept:
            rows = []
            _write(fd, path, head)
        _held.add(fd)
        yield Trials(rows, notes, fd, path)
    finally:
        _held.discard(fd)
        os.close(fd)


_held: set[int] = set()  # files that this process writes to


def _let_go() -> None:
    """In a worker: one that outlives its parent for a moment must not keep the file from the next process (rule 4)."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


def read(path: Path) -> tuple[Head, list[Trial]]:
    """A file to read only: its head, and the trials that are whole.  Raises CliError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise usage(f"{path} cannot be read: {error.strerror}", "name a file of trials") from error
    return _parsed(path, data[: data.rfind(b"\n") + 1])


def _parsed(path: Path, data: bytes) -> tuple[Head, list[Trial]]:
    first, *lines = data.splitlines() or [b""]
    try:
        head = msgspec.json.decode(first, type=Head)
    except msgspec.DecodeError as error:
        raise usage(
            f"{path}: this is no file of trials (line 1: {error})", "name a new file, or one of trials"
        ) from error
    if head.format != FORMAT:
        raise usage(f"{path} has format {head.format}, this program reads {FORMAT}", "name a new file")
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            rows.append(msgspec.json.decode(line, type=Trial))
        except msgspec.DecodeError as error:
            raise usage(
                f"{path}:{number}: no trial: {error}", "repair or remove that line, or name a new file"
            ) from error
    return head, rows


def _check_same(path: Path, there: Head, wanted: Head) -> None:
    """Rule 2."""
    if there == wanted:
        return
    if there.search != wanted.search:
        raise usage(f"{path} has trials of {there.search}, not of {wanted.search}", "name another file")
    parts = dict.fromkeys([*there.parts, *wanted.parts])
    told = [_difference(part, there.parts, wanted.parts) for part in parts]
    raise usage(
        f"{path} has trials of another search: {'; '.join(filter(None, told))}",
        "name another file, or continue with what it was made from",
    )


def _difference(part: str, there: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    before, now = there.get(part, "none"), wanted.get(part, "none")
    return "" if before == now else f"{part}: {_short(before)} there, {_short(now)} here"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def _write(fd: int, path: Path, row: Head | Trial) -> None:
    line = msgspec.json.encode(row) + b"\n"
    try:
        written = os.write(fd, line)
    except OSError as error:
        raise CliError(FAILED, f"{path} cannot be written: {error.strerror}", "what is in it stays") from error
    if written < len(line):
        raise CliError(FAILED, f"{path} cannot be written: no room is left", "make room; the same command continues")
