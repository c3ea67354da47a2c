"""A rebuilt history, beside the one that is in use, and how the monitor takes it over at its next start.

    history.rebuilding            while it is written
    history.rebuilt               whole; with it the fold's snapshot of the same position (history.rebuilt-snapshot)
    history.rebuild-lock          locked meanwhile; stays

Rules
  1. Nothing of the file in use is touched before the new one is whole: a rebuild that is broken off has changed nothing.
  2. The snapshot goes with it, because the monitor's own is of a later position: with both it continues where the rebuild
     ended, and folds what came since, instead of everything again.
  3. One rebuild at a time: a second one is refused, for both would write into one file.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nats.aio.client import Client

from schemas import facts as f
from schemas.subjects import JOURNAL_STREAM
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.exits import Exit, Stop
from services.monitor.core.monitor import MonitorCore
from services.monitor.history.file import History
from services.monitor.history.retention import Kept
from services.runtime.broker.connect import jetstream
from services.runtime.broker.objects import Objects
from services.runtime.config.tables import Config
from services.runtime.journal import snapshots
from services.runtime.log import Log
from services.runtime.rebuild import replay

_ENDS: Final = ("", "-wal", "-shm")


class Recorder:
    """A monitor's fold that writes `history`, and nothing else."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.core: MonitorCore

    def make(self, custody: Custody) -> MonitorCore:
        self.core = MonitorCore(custody, self._watch)
        return self.core

    def _watch(self, fact: f.Fact, meta: Meta) -> None:
        self.history.note(self.core, fact, meta)


def _rebuilt(path: Path) -> Path:
    return path.with_suffix(".rebuilt")


def _snapshot(path: Path) -> Path:
    return path.with_suffix(".rebuilt-snapshot")


def _remove(path: Path) -> None:
    for end in _ENDS:
        path.with_name(path.name + end).unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Rule 3.  The lock goes with the process, however it ends."""
    lock = path.with_suffix(".rebuild-lock")
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Stop(Exit.FAILED, f"another rebuild of {path} is running: wait for it") from None
        yield


async def make_anew(config: Config, nc: Client, log: Log) -> int:
    """From archive and journal; returns the position up to which it is.  Raises `Stop`, and what the broker raises."""
    with _alone(config.monitor.history_path):
        return await _make_anew(config, nc, log)


async def _make_anew(config: Config, nc: Client, log: Log) -> int:
    js, monitor = jetstream(nc), config.monitor
    journal = str((await js.stream_info(JOURNAL_STREAM)).created)
    path = monitor.history_path.with_suffix(".rebuilding")
    for old in (path, _rebuilt(monitor.history_path), _snapshot(monitor.history_path)):
        _remove(old)
    history = History(path, Kept.of(monitor.history_days, monitor.history_max_mb))
    history.open(journal)
    try:
        fold = await replay(nc, js, None, Recorder(history).make, log, archive=config.journal.archive)
    finally:
        await history.close()
    await asyncio.to_thread(_finish, path)
    content = snapshots.pack(snapshots.take("monitor", journal, fold))
    await asyncio.to_thread(_snapshot(monitor.history_path).write_bytes, content)
    path.replace(_rebuilt(monitor.history_path))
    return fold.position


def _finish(path: Path) -> None:
    """Everything in the one file."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()


async def take_over(path: Path, objects: Objects) -> bool:
    """Replace the history at `path` by a rebuilt one, before it is opened.  False: there is none."""
    new, kept = _rebuilt(path), _snapshot(path)
    if not new.exists() or not kept.exists():
        return False
    await objects.put("monitor", kept.read_bytes())
    _remove(path)
    new.replace(path)
    kept.unlink()
    return True
