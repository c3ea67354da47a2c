"""History in SQLite: every job, attempt and host's whereabouts, work lost, and sums by the hour, as far as the journal has
them.

Theory of operation
  Rows follow from facts alone (`rows`), and what goes again does too (`retention`).  The position of the last fact
  and the rows that it caused are committed together, so after any crash the file is at one position of the journal and what
  comes before it is skipped: folding twice changes nothing.  A file that is lost, broken, of another journal or of another form
  of the tables is made again by folding from the start, archive first.

Rules
  1. One writer thread; the event loop waits for it only when it is two batches behind, as in a long fold.
  2. Commits are grouped: at most one in `COMMIT_S` seconds, or `BATCH` rows.
  3. The file is readable while it is written (WAL).
  4. A file that is damaged is set aside and the process ends, so that the next start makes it again.  One that is locked, or on
     a disk that is full or not readable, is not damaged: it stays where it is, and the message names the problem.
  5. Where nothing can be written the history of a monitor (`waits`) stands still, and nothing else does: rows wait in memory
     (`backlog`), reads of the file are refused, and every `RETRY_S` the oldest rows are tried again.  When all are stored it
     continues; if memory did not hold all, or the file could not be opened at the start, the monitor has to start `again`.
  6. Any other history ends at the first commit that fails: no reader waits for it.  So a rebuild says that it has failed.
  7. A batch whose position the file has is not written again: whether a commit that was reported as failed has happened, only
     the file knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from schemas import facts as f
from schemas.size import FIELDS, Size
from services.domain.custody.meta import Meta
from services.domain.exits import Exit, Stop
from services.monitor.core.accounting_state import Whereabouts
from services.monitor.core.monitor import MonitorCore
from services.monitor.history import story_index
from services.monitor.history.backlog import BATCH, Backlog
from services.monitor.history.retention import Kept, give_back, trim
from services.monitor.history.rows import Statement, Where, rows, sums
from services.monitor.history.schema import SCHEMA, VERSION
from services.monitor.views.times import iso
from services.runtime.clock import Clock, system_clock

COMMIT_S: Final = 0.5  # loss after a crash is nothing but work: the facts are folded again
BUSY_S: Final = 5.0
RETRY_S: Final = 5.0  # a try on a full disk costs up to a tenth of a second, on a locked file BUSY_S of the thread
CACHED: Final = 64  # statements that SQLite keeps ready: all that there are
TRIM: Final = "trim"  # a statement that is none: `retention` looks back
EVERYTHING: Final = Kept(days=36_500, rows=0)
UNKNOWN: Final = (1 << 62, 0)  # where a file is that cannot be opened: no row is made that it may have
Answer = TypeVar("Answer")


class StandsStill(Exception):
    """Rule 5: what the file has is not all; the message says since when, and why."""


class Still(NamedTuple):
    """Rule 5.  `since`: UTC seconds."""

    since: float
    why: str


class History:
    """Owns the file.  `note` collects, `flush` commits in its thread; `ask` reads there.  `waits`: rule 5."""

    def __init__(
        self, path: Path, kept: Kept = EVERYTHING, *, waits: bool = False, clock: Clock = system_clock
    ) -> None:
        self.path, self.kept, self.waits, self.clock = path, kept, waits, clock
        self.still: Still | None = None
        self.again = False  # there is room, and a new start has to fold what is not here
        self.skip_until = (0, 0)  # position and index already in the file, or on their way
        self._journal = ""
        self._pending: list[Statement] = []
        self._backlog = Backlog()  # the thread's own
        self._thread = ThreadPoolExecutor(1, "history")
        self._commit_done: Future[bool] | None = None
        self._db: sqlite3.Connection | None = None
        self._failure = ""  # rule 6: why nothing is written any more
        self._not_before = 0.0  # monotonic: the next try
        self._where: Where = {}

    def open(self, journal: str = "") -> None:
        """Open or create the file, of the journal that was created at `journal`; what cannot be used is set aside and made
        again.  Raises `Stop` (rules 4 and 5)."""
        self._journal = journal
        try:
            self._open()
        except (sqlite3.OperationalError, OSError) as error:
            self._refused(error, "opened")
            self.skip_until, self._backlog.lost = UNKNOWN, True

    def _open(self) -> None:
        try:
            self._make_usable()
        except (sqlite3.OperationalError, OSError):
            if self._db is not None:
                self._db.close()
            self._db = None
            raise

    def _make_usable(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._connect()
            is_new = not self.database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            usable = (self._meta("version"), self._meta("journal")) == (str(VERSION), self._journal)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            is_new, usable = False, False
        if not usable:
            if not is_new:
                self._set_aside()
                self._db = self._connect()
            self._create()
        self.skip_until = (self._number("position"), self._number("index"))
        sql = f"SELECT host, state, department, {', '.join(FIELDS)} FROM whereabouts WHERE until_ms IS NULL"
        rows = self.database.execute(sql)
        self._where = {host: Whereabouts(state, dept, Size(*size)) for host, state, dept, *size in rows}

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_S, check_same_thread=False, cached_statements=CACHED)
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file; an old one stays as it is
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    def _create(self) -> None:
        """All or nothing, so that what a full disk leaves is not taken for a file."""
        db = self.database
        try:
            db.executescript(f"BEGIN;\n{SCHEMA}")
            db.executemany("INSERT INTO meta VALUES (?, ?)", [("version", str(VERSION)), ("journal", self._journal)])
            db.commit()
        except sqlite3.Error:
            db.rollback()
            raise

    def _set_aside(self) -> None:
        """The newest of them is kept, for callers that need it."""
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

    def _number(self, key: str) -> int:
        return int(self._meta(key) or 0)

    @property
    def database(self) -> sqlite3.Connection:
        if self._db is None:
            raise RuntimeError("the history is not open")
        return self._db

    # ------------------------------------------------------------------------------------------------------- following

    def note(self, core: MonitorCore, fact: f.Fact, meta: Meta) -> None:
        """Collect the rows that `fact`, which `core` has just folded, causes."""
        if meta.void is not None or (meta.position, meta.index) <= self.skip_until or self._backlog.lost:
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

    def _begin_commit(self) -> Future[bool]:
        pending, self._pending = self._pending, []
        return self._thread.submit(self._commit, pending, self.skip_until)

    def commit(self) -> None:
        """Commit what has been noted, here and now: for folds without a waiting reader."""
        self._begin_commit().result()

    async def flush(self) -> bool:
        """Commit what has been noted, in the writer thread.  True: the file has all of it."""
        return await asyncio.wrap_future(self._begin_commit())

    def _commit(self, statements: list[Statement], at: tuple[int, int]) -> bool:
        """Rules 4 to 6: raises `Stop`, and from then on always."""
        if self._failure:
            raise Stop(Exit.FAILED, self._failure)
        self._backlog.add(statements, at)
        if self.again or (self.still is not None and time.monotonic() < self._not_before):
            return False
        try:
            if self._db is None:
                self._open()
            while (batch := self._backlog.first) is not None:
                self._write(batch.statements, batch.at)
                self._backlog.stored()
        except (sqlite3.Error, OSError) as error:
            self._refused(error, "written")
            return False
        self.again = self._backlog.lost
        if not self.again:
            self.still = None
        return not self.again

    def _refused(self, error: Exception, what: str) -> None:
        """The history stands still, or `Stop` is raised."""
        if self.waits and _passes(error):
            self.still = Still(self.still.since if self.still else self.clock(), str(error))
            self._not_before = time.monotonic() + RETRY_S
            return
        self._failure = f"the history {self.path} cannot be {what}: {error}"
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.OperationalError):
            self._set_aside()
        raise Stop(Exit.FAILED, self._failure) from error

    def _write(self, statements: list[Statement], at: tuple[int, int]) -> None:
        db, trimmed = self.database, False
        if (self._number("position"), self._number("index")) >= at:  # rule 7
            return
        with db:
            for sql, row in statements:
                if sql is TRIM:
                    trimmed = trim(db, row[0], self.kept) or trimmed
                else:
                    db.execute(sql, row)
            for key, value in zip(("position", "index"), at, strict=True):
                db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, str(value)))
        if trimmed:
            with contextlib.suppress(sqlite3.OperationalError):  # the rows are stored; the pages go another day
                give_back(db)

    @property
    def complaint(self) -> str:
        """What to tell people while the history stands still; empty: it does not."""
        if self.still is None:
            return ""
        since = iso(self.still.since)
        return f"the history has not been written since {since}: {self.still.why}; it resumes by itself, and nothing is lost"

    # --------------------------------------------------------------------------------------------------------- reading

    async def ask(self, question: Callable[..., Answer], *args: Any) -> Answer:
        """`question(database, *args)`, in the thread, after everything that was noted is committed.  Raises `StandsStill`
        while that cannot be: an answer without what has come since would look like a whole one."""
        if not await self.flush():
            raise StandsStill(self.complaint)
        return await asyncio.get_running_loop().run_in_executor(self._thread, question, self.database, *args)

    async def close(self) -> None:
        try:
            await self.flush()
        finally:
            self._thread.shutdown(wait=True)
            if self._db is not None:
                self._db.close()


def _passes(error: Exception) -> bool:
    """Whether it may be well later, without anybody's doing but room, a lock given back or a disk that answers: not so of SQL
    that is wrong, or of a file that is damaged."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR
    return isinstance(error, OSError)
