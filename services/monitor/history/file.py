"""History in SQLite: every job, attempt and host's whereabouts, work lost, and sums by the hour, as far as the journal tells.

Theory of operation
  Rows follow from facts alone (`rows`), and what goes again does too (`kept`).  The position of the last fact
  and the rows that it caused are committed together, so after any crash the file is at one position of the journal and what
  comes before it is skipped: folding twice changes nothing.  A file that is lost, broken, of another journal or of another form
  of the tables is made again by folding from the start, archive first.

Rules
  1. One writer thread; the event loop waits for it only when it is two batches behind, as in a long fold.
  2. Commits are grouped: at most one in `COMMIT_S` seconds, or `BATCH` rows.
  3. The file is readable while it is written (WAL).
  4. A commit that failed is the last: its rows are nowhere else, and with later ones the file would say that it has them.  The
     process ends, and the next one folds again what the file lacks.
  5. A file that is damaged is set aside, so that the next start makes it again.  One that is locked, or on a disk that is full
     or not readable, is not damaged: it stays where it is, and the message says what is wrong.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from schemas import facts as f
from schemas.meta import Meta
from services.monitor.core import MonitorCore
from services.monitor.history import story_index
from services.monitor.history.kept import Kept, give_back, trim
from services.monitor.history.rows import Statement, Where, rows, sums
from services.monitor.history.schema import SCHEMA, VERSION
from services.monitor.model.accounting_state import Whereabouts
from services.runtime.exits import Exit, Stop

COMMIT_S: Final = 0.5  # loss after a crash is nothing but work: the facts are folded again
BUSY_S: Final = 5.0
BATCH: Final = 20_000  # statements of one commit: about a tenth of a second
CACHED: Final = 64  # statements that SQLite keeps ready: all that there are
TRIM: Final = "trim"  # a statement that is none: `kept` looks back
EVERYTHING: Final = Kept(days=36_500, rows=0)
Answer = TypeVar("Answer")


class History:
    """Owns the file.  `note` collects, `flush` commits in its thread; `ask` reads there."""

    def __init__(self, path: Path, kept: Kept = EVERYTHING) -> None:
        self.path, self.kept = path, kept
        self._pending: list[Statement] = []
        self._thread = ThreadPoolExecutor(1, "history")
        self._commit_done: Future[None] | None = None
        self._db: sqlite3.Connection | None = None
        self._failure = ""  # rule 4: why nothing is written any more
        self._where: Where = {}
        self.skip_until = (0, 0)  # position and index already in the file, or on their way

    def open(self, journal: str = "") -> None:
        """Open or create the file, of the journal that was created at `journal`; what cannot be used is set aside and made
        again.  Raises `Stop` (rule 5)."""
        try:
            self._open(journal)
        except (sqlite3.OperationalError, OSError) as error:
            raise Stop(Exit.FAILED, f"the history {self.path} cannot be opened: {error}") from error

    def _open(self, journal: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        try:
            self._db = self._connect()
            usable = not is_new and (self._meta("version"), self._meta("journal")) == (str(VERSION), journal)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            usable = False
        if not usable:
            if not is_new:
                self._set_aside()
                self._db = self._connect()
            self._create(journal)
        self.skip_until = (int(self._meta("position") or 0), int(self._meta("index") or 0))
        sql = "SELECT host, state, department, cores, memory_mb FROM whereabouts WHERE until_ms IS NULL"
        self._where = {host: Whereabouts(*rest) for host, *rest in self.database.execute(sql)}

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, cached_statements=CACHED)
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file; an old one stays as it is
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    def _create(self, journal: str) -> None:
        with self.database as db:
            db.executescript(SCHEMA)
            db.executemany("INSERT INTO meta VALUES (?, ?)", [("version", str(VERSION)), ("journal", journal)])

    def _set_aside(self) -> None:
        """The newest of them is kept, for whoever wants to know."""
        if self._db is not None:
            self._db.close()
        for end in ("-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        self.path.replace(self.path.with_suffix(".broken"))

    def _meta(self, key: str) -> str | None:
        try:
            row = self.database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return None  # no such table: of another program, or not finished
        return str(row[0]) if row else None

    @property
    def database(self) -> sqlite3.Connection:
        if self._db is None:
            raise RuntimeError("the history is not open")
        return self._db

    # ------------------------------------------------------------------------------------------------------- following

    def note(self, core: MonitorCore, fact: f.Fact, meta: Meta) -> None:
        """Collect the rows that `fact`, which `core` has just folded, causes."""
        if meta.void is not None or (meta.position, meta.index) <= self.skip_until:
            return
        for hours in core.accounting.news.hours:
            self._pending += sums(hours)
        if core.accounting.news.hours:
            self._pending.append((TRIM, (core.accounting.state.at,)))
        self._pending += rows(core, self._where, fact, meta) + story_index.rows(core, fact, meta)
        self.skip_until = (meta.position, meta.index)
        if len(self._pending) >= BATCH:  # a long fold, or a rush: rule 1
            if self._commit_done is not None:
                self._commit_done.result()
            self._commit_done = self._begin_commit()

    def _begin_commit(self) -> Future[None]:
        pending, self._pending = self._pending, []
        return self._thread.submit(self._commit, pending, self.skip_until)

    def commit(self) -> None:
        """Commit what has been noted, here and now: for folds that nobody waits for."""
        self._begin_commit().result()

    async def flush(self) -> None:
        """Commit what has been noted, in the writer thread."""
        await asyncio.wrap_future(self._begin_commit())

    def _commit(self, statements: list[Statement], at: tuple[int, int]) -> None:
        """Rules 4 and 5: raises `Stop`, and from then on always."""
        if self._failure:
            raise Stop(Exit.FAILED, self._failure)
        try:
            self._write(statements, at)
        except sqlite3.Error as error:
            self._failure = f"the history {self.path} cannot be written: {error}"
            if not isinstance(error, sqlite3.OperationalError):
                self._set_aside()
            raise Stop(Exit.FAILED, self._failure) from error

    def _write(self, statements: list[Statement], at: tuple[int, int]) -> None:
        db, trimmed = self.database, False
        with db:
            for sql, row in statements:
                if sql is TRIM:
                    trimmed = trim(db, row[0], self.kept) or trimmed
                else:
                    db.execute(sql, row)
            for key, value in zip(("position", "index"), at, strict=True):
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value)))
        if trimmed:
            give_back(db)

    # --------------------------------------------------------------------------------------------------------- reading

    async def ask(self, question: Callable[..., Answer], *args: Any) -> Answer:
        """`question(database, *args)`, in the thread, after everything that was noted is committed."""
        await self.flush()
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, self.database, *args)

    async def close(self) -> None:
        try:
            await self.flush()
        finally:
            self._thread.shutdown(wait=True)
            self.database.close()
