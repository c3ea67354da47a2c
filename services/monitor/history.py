"""History in SQLite: every job, attempt and host's whereabouts since the beginning, as far as the journal tells.

Theory of operation
  Rows follow from facts alone.  The position of the last fact and the rows that it caused are committed together, so after any
  crash the file is at one position of the journal and what comes before it is skipped: folding twice changes nothing.  A lost
  or broken file is made again by folding from the start.

Rules
  1. One writer thread; the event loop never waits for the disk.
  2. Commits are grouped: at most one in `COMMIT_S` seconds.
  3. The file is readable while it is written (WAL).
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from schemas import facts as f
from schemas.custody import Custody
from schemas.ids import element_id, is_instance
from schemas.meta import Meta

COMMIT_S: Final = 0.5  # loss after a crash is nothing but work: the facts are folded again
BUSY_S: Final = 5.0
ROWS_MAX: Final = 10_000  # of one answer
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (unit TEXT PRIMARY KEY, job TEXT, department TEXT, user TEXT, name TEXT, nodes INTEGER,
  cores INTEGER, memory_mb INTEGER, walltime_s REAL, submitted_at REAL, ended_at REAL, state TEXT, exit INTEGER);
CREATE INDEX IF NOT EXISTS jobs_by_department ON jobs (department, submitted_at);
CREATE TABLE IF NOT EXISTS attempts (unit TEXT, attempt INTEGER, hosts TEXT, cores INTEGER, placed_at REAL, began_at REAL,
  ended_at REAL, disposal TEXT, why TEXT, exit INTEGER, seconds REAL, cpu_seconds REAL, max_rss_mb REAL,
  PRIMARY KEY (unit, attempt));
CREATE TABLE IF NOT EXISTS whereabouts (host TEXT, state TEXT, department TEXT, since REAL, until REAL);
CREATE INDEX IF NOT EXISTS whereabouts_open ON whereabouts (host) WHERE until IS NULL;
"""
Statement = tuple[str, tuple[Any, ...]]


class History:
    """Owns the file.  `note` collects, `flush` commits in its thread."""

    def __init__(self, path: Path, custody: Custody) -> None:
        self.path, self.custody = path, custody
        self._pending: list[Statement] = []
        self._position = 0  # of the last fact noted
        self._thread = ThreadPoolExecutor(1, "history")
        self._db: sqlite3.Connection | None = None
        self._where: dict[str, tuple[str, str | None]] = {}
        self.skip_until = (0, 0)  # position and index already in the file

    def open(self) -> None:
        """Open or create the file; a file that SQLite cannot read is set aside and made again."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._connect()
        except sqlite3.DatabaseError:
            self.path.replace(self.path.with_suffix(".broken"))
            self._db = self._connect()
        self.skip_until = (self._meta("position"), self._meta("index"))
        rows = self._db.execute("SELECT host, state, department FROM whereabouts WHERE until IS NULL")
        self._where = {host: (state, dept) for host, state, dept in rows}

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(SCHEMA)
        return db

    def _meta(self, key: str) -> int:
        row = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row else 0

    @property
    def _database(self) -> sqlite3.Connection:
        if self._db is None:
            raise RuntimeError("the history is not open")
        return self._db

    # ------------------------------------------------------------------------------------------------------- following

    def note(self, fact: f.Fact, meta: Meta) -> None:
        """Collect the rows that `fact` causes; to be called after custody has folded it."""
        if meta.void is not None or (meta.position, meta.index) <= self.skip_until:
            return
        make = _ROWS.get(type(fact))
        if make is not None:
            self._pending += make(self, fact, meta)
        host = getattr(fact, "host", None)
        if host is not None and fact.custody:
            self._pending += self._moved(host, meta.at)
        self._position = meta.position
        self.skip_until = (meta.position, meta.index)

    def _moved(self, name: str, at: float) -> list[Statement]:
        host = self.custody.state.hosts.get(name)
        now = (host.state, host.dept if host.state in ("held", "draining") else None) if host else None
        if self._where.get(name) == now:
            return []
        found: list[Statement] = [("UPDATE whereabouts SET until = ? WHERE host = ? AND until IS NULL", (at, name))]
        if now is None:
            self._where.pop(name, None)
        else:
            self._where[name] = now
            found.append(("INSERT INTO whereabouts VALUES (?, ?, ?, ?, NULL)", (name, *now, at)))
        return found

    def _submitted(self, fact: f.JobSubmitted, meta: Meta) -> list[Statement]:
        units = [element_id(fact.job, i) for i in fact.array] or [fact.job]
        row = (
            fact.job,
            fact.dept,
            fact.user,
            fact.name,
            fact.nodes,
            fact.cores,
            fact.memory_mb,
            fact.walltime_s,
            meta.at,
        )
        sql = "INSERT OR REPLACE INTO jobs VALUES (?,?,?,?,?,?,?,?,?,?,NULL,'pending',NULL)"
        return [(sql, (unit, *row)) for unit in units]

    def _placed(self, fact: f.UnitPlaced, meta: Meta) -> list[Statement]:
        row = (fact.unit, fact.attempt, ",".join(fact.hosts), fact.cores, meta.at)
        sql = "INSERT OR REPLACE INTO attempts (unit, attempt, hosts, cores, placed_at) VALUES (?,?,?,?,?)"
        return [(sql, row)]

    def _began(self, fact: f.AttemptBegan, meta: Meta) -> list[Statement]:
        sql = "UPDATE attempts SET began_at = coalesce(began_at, ?) WHERE unit = ? AND attempt = ?"
        return [(sql, (meta.at, fact.unit, fact.attempt))]

    def _closed(self, fact: f.AttemptClosed, meta: Meta) -> list[Statement]:
        sql = (
            "UPDATE attempts SET ended_at = coalesce(ended_at, ?), disposal = ?, why = ? WHERE unit = ? AND attempt = ?"
        )
        row = (meta.at, fact.disposal.value, fact.why.code.value, fact.unit, fact.attempt)
        return [(sql, row), *self._ended(fact.unit, meta)]

    def _reported(self, fact: f.AttemptReported, meta: Meta) -> list[Statement]:
        sql = (
            "UPDATE attempts SET ended_at = coalesce(ended_at, ?), exit = ?, seconds = ?, cpu_seconds = ?, max_rss_mb = ?"
            " WHERE unit = ? AND attempt = ?"
        )
        row = (meta.at, fact.exit, fact.seconds, fact.cpu_seconds, fact.max_rss_mb, fact.unit, fact.attempt)
        return [(sql, row), *self._ended(fact.unit, meta)]

    def _cancelled(self, fact: f.JobCancelled, meta: Meta) -> list[Statement]:
        return self._ended(fact.job, meta)

    def _extended(self, fact: f.LeaseExtended, _meta: Meta) -> list[Statement]:
        return [("UPDATE jobs SET walltime_s = ? WHERE unit = ?", (fact.walltime_s, fact.job))]

    def _department_closed(self, fact: f.DepartmentClosed, meta: Meta) -> list[Statement]:
        sql = "UPDATE jobs SET ended_at = ?, state = 'cancelled' WHERE department = ? AND ended_at IS NULL"
        return [(sql, (meta.at, fact.dept))]

    def _ended(self, name: str, meta: Meta) -> list[Statement]:
        unit = self.custody.state.units.get(name)
        if unit is None or unit.state != "final" or is_instance(name):
            return []
        sql = "UPDATE jobs SET ended_at = ?, state = ?, exit = ? WHERE unit = ?"
        return [(sql, (unit.ended_at or meta.at, unit.final, unit.exit, name))]

    # ------------------------------------------------------------------------------------------------- committing, reading

    async def flush(self) -> None:
        """Commit what has been noted, in the writer thread."""
        pending, self._pending = self._pending, []
        if pending or self._position:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, pending, self.skip_until)

    def _commit(self, statements: list[Statement], at: tuple[int, int]) -> None:
        db = self._database
        with db:
            for sql, row in statements:
                db.execute(sql, row)
            for key, value in zip(("position", "index"), at, strict=True):
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    async def jobs(self, department: str | None, state: str | None, limit: int) -> list[dict[str, Any]]:
        """Jobs of the history, newest first; `limit` at most `ROWS_MAX`."""
        sql = (
            "SELECT * FROM jobs WHERE (? IS NULL OR department = ?) AND (? IS NULL OR state = ?)"
            " ORDER BY submitted_at DESC, unit LIMIT ?"
        )
        row = (department, department, state, state, min(limit, ROWS_MAX))
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._select, sql, row)

    async def job(self, unit: str) -> dict[str, Any] | None:
        """One job or element as the history knows it, with its attempts; None if it never was."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._select, "SELECT * FROM jobs WHERE unit = ?", (unit,))
        if not found:
            return None
        sql = "SELECT * FROM attempts WHERE unit = ? ORDER BY attempt"
        attempts = await loop.run_in_executor(self._thread, self._select, sql, (unit,))
        return {**found[0], "attempts": attempts}

    def _select(self, sql: str, row: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._database.execute(sql, row)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, values, strict=True)) for values in cursor]

    async def close(self) -> None:
        await self.flush()
        self._thread.shutdown(wait=True)
        self._database.close()


_ROWS: dict[type, Any] = {
    f.JobSubmitted: History._submitted,
    f.UnitPlaced: History._placed,
    f.AttemptBegan: History._began,
    f.AttemptClosed: History._closed,
    f.AttemptReported: History._reported,
    f.JobCancelled: History._cancelled,
    f.LeaseExtended: History._extended,
    f.DepartmentClosed: History._department_closed,
}
