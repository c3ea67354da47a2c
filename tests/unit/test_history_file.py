"""The history's file when it cannot be written or read: locked, full, damaged.  Nothing is skipped silently, and nothing that
is whole is thrown away.

A full disk is stood in for by SQLite's own limit of pages, whose error is that of a full disk, and by the system's limit of a
file's size, at which the very write of the log (-wal) fails.  Neither needs a file system of its own.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

from phoenix.local.stack_layout import CONTENT
from services.domain.exits import Stop
from services.monitor.history import backlog, file
from services.monitor.history import takeover as made_anew
from services.monitor.history.file import UNKNOWN, History, StandsStill
from tests.support.full_disk import full

SUBMIT = "INSERT INTO leases VALUES ('1', 'hpc', 'ann', 'advance', 0, 0, 0, 0)"
LARGE = "INSERT INTO leases VALUES (?, hex(randomblob(20000)), 'ann', 'advance', 0, 0, 0, 0)"


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(file, "BUSY_S", 0.01)
    made = History(tmp_path / "history.sqlite")
    made.open("a")
    return made


def position(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT value FROM meta WHERE key = 'position'").fetchone()
    return int(found[0]) if found else 0


def note(history: History, at: int, sql: str = SUBMIT) -> None:
    history._pending.append((sql, ()))
    history.skip_until = (at, 0)


def leases(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [name for (name,) in db.execute("SELECT lease FROM leases ORDER BY CAST(lease AS INTEGER)")]


def large(history: History, *places: int) -> None:
    """Rows that need pages of their own, one a fact."""
    for at in places:
        history._pending.append((LARGE, (str(at),)))
        history.skip_until = (at, 0)


def full_of_pages(history: History) -> AbstractContextManager[None]:
    @contextmanager
    def limited() -> Iterator[None]:
        pages = history.database.execute("PRAGMA page_count").fetchone()[0]
        history.database.execute(f"PRAGMA max_page_count = {pages}")
        yield
        history.database.execute("PRAGMA max_page_count = 1000000")

    return limited()


def full_of_bytes(history: History) -> AbstractContextManager[None]:
    return full(history.path.with_name(history.path.name + "-wal"))


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[History]:
    """A monitor's, whose clock says 1000 first and a second more each time."""
    monkeypatch.setattr(file, "BUSY_S", 0.01)
    monkeypatch.setattr(file, "RETRY_S", 0.0)
    times = count(1000)
    made = History(tmp_path / "history.sqlite", waits=True, clock=lambda: float(next(times)))
    made.open("a")
    yield made
    made._thread.shutdown()
    if made._db is not None:
        made._db.close()


def test_what_a_rebuild_leaves_is_of_the_cloud(tmp_path: Path) -> None:
    """`phoenix down --purge` takes along what it knows (`stack_layout.CONTENT`)."""
    with made_anew._alone(tmp_path / "history.sqlite"):
        left = os.listdir(tmp_path)
    assert [name for name in left if name not in CONTENT] == []
    assert left


def test_what_could_not_be_written_is_never_passed_over(history: History) -> None:
    """A lock for a moment, as another program's write: later commits must not say that the rows are there."""
    with closing(sqlite3.connect(history.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        note(history, 5)
        with pytest.raises(Stop, match=r"history\.sqlite cannot be written: database is locked"):
            history.commit()
        other.rollback()
    note(history, 6)
    with pytest.raises(Stop, match="database is locked"):
        history.commit()
    assert position(history.path) == 0
    again = History(history.path)
    again.open("a")
    assert again.skip_until == (0, 0)


def test_a_disk_that_is_full_ends_it_and_keeps_the_file(history: History) -> None:
    note(history, 5)
    history.commit()
    pages = history.database.execute("PRAGMA page_count").fetchone()[0]
    history.database.execute(f"PRAGMA max_page_count = {pages}")
    note(history, 6, "CREATE TABLE more AS SELECT randomblob(1000000)")
    with pytest.raises(Stop, match="database or disk is full"):
        history.commit()
    assert position(history.path) == 5
    assert not history.path.with_suffix(".broken").exists()


def test_a_damaged_file_is_set_aside_for_the_next_start(history: History) -> None:
    note(history, 5)
    history.commit()
    note(history, 6)  # the same row again: what the file has does not fit the fold
    with pytest.raises(Stop, match="cannot be written: UNIQUE"):
        history.commit()
    assert position(history.path.with_suffix(".broken")) == 5
    again = History(history.path)
    again.open("a")
    assert again.skip_until == (0, 0)


def test_a_file_that_is_locked_is_not_taken_for_a_broken_one(history: History) -> None:
    note(history, 5)
    history.commit()
    history.database.close()
    with closing(sqlite3.connect(history.path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Stop, match=r"history\.sqlite cannot be opened: database is locked"):
            History(history.path).open("a")
    assert position(history.path) == 5
    assert not history.path.with_suffix(".broken").exists()


def test_a_place_where_nothing_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Stop, match=r"file/history\.sqlite cannot be opened: "):
        History(tmp_path / "file" / "history.sqlite").open("a")


def test_what_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"not a database" * 1000)
    made = History(path)
    made.open("a")
    assert made.skip_until == (0, 0)
    assert path.with_suffix(".broken").read_bytes().startswith(b"not a database")


# --------------------------------------------------------------------------------------------------------- it stands still


@pytest.mark.parametrize(
    ("filled", "why"), [(full_of_pages, "database or disk is full"), (full_of_bytes, "disk I/O error")]
)
async def test_on_a_full_disk_a_monitors_history_stands_still_and_catches_up(
    patient: History, filled: Callable[[History], AbstractContextManager[None]], why: str
) -> None:
    large(patient, 1)
    assert await patient.flush()
    with filled(patient):
        large(patient, 2)
        assert not await patient.flush()
        large(patient, 3)
        assert not await patient.flush()
        assert patient.still == (1000.0, why)
        assert (position(patient.path), leases(patient.path)) == (1, ["1"])
        with pytest.raises(StandsStill, match=f"has not been written since 1970-01-01T00:16:40.000Z: {why}"):
            await patient.ask(lambda db: None)
    large(patient, 4)
    assert await patient.flush()
    assert (patient.still, patient.complaint, patient.again) == (None, "", False)
    assert (position(patient.path), leases(patient.path)) == (4, ["1", "2", "3", "4"])
    assert not patient.path.with_suffix(".broken").exists()


async def test_rows_that_do_not_fit_into_memory_are_folded_again_by_the_next_start(
    patient: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "ROWS_MAX", 3)
    monkeypatch.setattr(backlog, "BATCH", 2)
    with full_of_bytes(patient):
        for at in (1, 2, 3, 4, 5):
            large(patient, at)
            assert not await patient.flush()
    assert not await patient.flush()
    assert patient.again, "there is room, and two rows are nowhere"
    large(patient, 6)
    assert not await patient.flush()
    assert (position(patient.path), leases(patient.path)) == (3, ["1", "2", "3"])
    following = History(patient.path, waits=True)
    following.open("a")
    assert following.skip_until == (3, 0)
    large(following, 4, 5, 6)
    assert await following.flush()
    await following.close()
    assert leases(patient.path) == ["1", "2", "3", "4", "5", "6"]


async def test_a_history_that_cannot_be_opened_stands_still_from_the_start(patient: History) -> None:
    large(patient, 7)
    patient.commit()
    patient.database.close()
    with closing(sqlite3.connect(patient.path)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        following = History(patient.path, waits=True)
        following.open("a")
        assert following.still is not None
        assert following.still.why == "database is locked"
        assert following.skip_until == UNKNOWN, "no row is made that the file may have"
        assert not await following.flush()
    assert not await following.flush()
    assert following.again
    await following.close()
    assert position(patient.path) == 7


async def test_it_is_not_tried_with_every_flush(patient: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "RETRY_S", 3600.0)
    with full_of_bytes(patient):
        large(patient, 1)
        assert not await patient.flush()
    assert not await patient.flush()
    assert patient.still is not None
    patient._not_before = 0.0
    assert await patient.flush()
    assert leases(patient.path) == ["1"]


async def test_a_batch_that_the_file_has_is_not_written_again(patient: History) -> None:
    """A commit that was told to have failed, and had happened."""
    large(patient, 1)
    assert await patient.flush()
    patient._commit([(LARGE, ("1",))], (1, 0))
    assert leases(patient.path) == ["1"]


async def test_pages_that_cannot_be_given_back_write_no_row_twice(
    patient: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(_db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(file, "give_back", cannot)
    patient._pending.append((file.TRIM, (10 * 86_400_000,)))
    large(patient, 1)
    assert await patient.flush()
    assert leases(patient.path) == ["1"]


async def test_what_no_room_can_mend_ends_a_monitors_too(patient: History) -> None:
    note(patient, 1, "INSERT INTO nowhere VALUES (1)")
    with pytest.raises(Stop, match="cannot be written: no such table: nowhere"):
        await patient.flush()
    assert patient.still is None


@pytest.mark.parametrize("room", [8192, 40_000])  # for the file's first page alone, and for some of the tables
def test_a_file_that_could_not_be_made_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(file, "RETRY_S", 0.0)
    path = tmp_path / "history.sqlite"
    path.with_suffix(".broken").write_text("of before")
    with full(path, room):
        made = History(path, waits=True)
        made.open("a")
        assert made.still is not None
    made.commit()
    assert made.again
    assert path.with_suffix(".broken").read_text() == "of before"
    again = History(path)
    again.open("a")
    assert again.skip_until == (0, 0)
    assert path.with_suffix(".broken").read_text() == "of before"


def test_a_history_that_nobody_waits_for_ends_where_it_cannot_be_written(history: History) -> None:
    with full_of_bytes(history):
        large(history, 1)
        with pytest.raises(Stop, match="cannot be written: disk I/O error"):
            history.commit()
