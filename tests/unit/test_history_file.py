"""The history's file when it cannot be written or read: locked, full, damaged.  Nothing is skipped silently, and nothing that
is whole is thrown away."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from services.monitor.history import file
from services.monitor.history.file import History
from services.runtime.exits import Stop

SUBMIT = "INSERT INTO leases VALUES ('1', 'hpc', 'ann', 'advance', 0, 0, 0, 0)"


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
