"""How long the history is kept: details for some days, sums by the day for years, and no more rows than fit.

Theory of operation
  With every day that is over the history looks back.  What ended before a day that is old enough goes, and sums by the hour of
  that time become sums by the day.  If there are more rows than the file may hold, the day from which on details are kept moves
  on until they are few enough.

Rules
  1. Everything here follows from the fold's time, the file's rows and the two limits, never from a clock or from bytes: a file
     that is made again under the same limits loses the same rows.
  2. A job goes with its attempts, its lease and its losses once it is over; what is not over stays, however old.
  3. Sums by the day go after `SUMS_DAYS`.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from services.monitor.core.buckets import DAY_MS, HOUR_MS
from services.monitor.history import story_index
from services.monitor.history.schema import DETAILS, SUMS, add_into

SUMS_DAYS: Final = 3660  # ten years: what a department costs is compared with years ago
# of a row and its share of indices: 114 measured (docs/reference/history.md), names may be longer
ROW_BYTES: Final = 150
RELIEF: Final = 0.9  # so far down at once, so that the next day does not have to again
FREE_PAGES: Final = 2_000  # given back to the disk at a time: some milliseconds


class Kept(NamedTuple):
    """`days`: of details, and of sums by the hour; `rows`: of all tables, 0: any number."""

    days: int
    rows: int

    @classmethod
    def of(cls, days: int, max_mb: int) -> Kept:
        return cls(days, max_mb * 1_000_000 // ROW_BYTES)


def trim(db: sqlite3.Connection, now: int, kept: Kept) -> bool:
    """An hour is over at `now` (milliseconds): if it is the first of its day, look back.  Within the caller's transaction.
    True if something may have gone."""
    today = now // DAY_MS * DAY_MS
    if db.execute("INSERT OR IGNORE INTO meta VALUES ('day_ms', '0')").rowcount == 0 and _meta(db, "day_ms") >= today:
        return False
    db.execute("UPDATE meta SET value = ? WHERE key = 'day_ms'", (str(today),))
    before = _meta(db, "details_from_ms")
    until = today - kept.days * DAY_MS
    if until > before:
        _cut(db, until)
        before = until
    for table in SUMS:
        db.execute(f"DELETE FROM {table} WHERE length_ms = ? AND begin_ms < ?", (DAY_MS, today - SUMS_DAYS * DAY_MS))
    if kept.rows:
        _relieve(db, max(before, _oldest(db, today)), today, kept.rows)
    return True


def _relieve(db: sqlite3.Connection, day: int, today: int, most: int) -> None:
    """Day by day, until there are few enough; the day that runs stays.  Counting reads the whole file, so it is done again only
    when enough rows were changed that there may be few enough."""
    left, changes = rows(db), db.total_changes
    if left <= most:
        return
    while day < today and left > most * RELIEF:
        _cut(db, day + DAY_MS)
        day += DAY_MS
        if left - (db.total_changes - changes) <= most * RELIEF:
            left, changes = rows(db), db.total_changes


def rows(db: sqlite3.Connection) -> int:
    counted = sum(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in (*DETAILS, *SUMS))
    return int(counted) + story_index.size(db)


def _oldest(db: sqlite3.Connection, today: int) -> int:
    """The day of the oldest thing that can go."""
    asked = [("jobs", "ended_ms"), ("attempts", "ended_ms"), ("whereabouts", "until_ms"), ("usage", "begin_ms")]
    found = [db.execute(f"SELECT min({column}) FROM {table}").fetchone()[0] for table, column in asked]
    found += [db.execute("SELECT min(begin_ms) FROM holding WHERE length_ms = ?", (HOUR_MS,)).fetchone()[0]]
    return min((at for at in found if at is not None), default=today) // DAY_MS * DAY_MS


def _meta(db: sqlite3.Connection, key: str) -> int:
    found = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return int(found[0]) if found else 0


def _cut(db: sqlite3.Connection, until: int) -> None:
    """Details of what was over before `until` go; its sums by the hour become sums by the day."""
    db.execute(
        "DELETE FROM attempts WHERE ended_ms < ? AND (instr(unit, '.') OR unit IN"
        " (SELECT unit FROM jobs WHERE ended_ms < ?))",
        (until, until),
    )
    db.execute("DELETE FROM leases WHERE lease IN (SELECT unit FROM jobs WHERE ended_ms < ?)", (until,))
    db.execute("DELETE FROM jobs WHERE ended_ms < ?", (until,))
    db.execute("DELETE FROM losses WHERE told_ms < ?", (until,))
    db.execute("DELETE FROM whereabouts WHERE until_ms < ?", (until,))
    db.execute("DELETE FROM claims WHERE met_ms < ?", (until,))
    story_index.cut(db, until)
    for table, (key, numbers) in SUMS.items():
        names = "".join(f", {name}" for name in key)
        added = ", ".join(f"sum({name})" for name in numbers)
        source = (
            f"SELECT begin_ms / {DAY_MS} * {DAY_MS}, {DAY_MS}{names}, {added} FROM {table}"
            f" WHERE length_ms = {HOUR_MS} AND begin_ms < {until} GROUP BY begin_ms / {DAY_MS}{names}"
        )
        db.execute(add_into(table, source))
        db.execute(f"DELETE FROM {table} WHERE length_ms = ? AND begin_ms < ?", (HOUR_MS, until))
    db.execute("INSERT OR REPLACE INTO meta VALUES ('details_from_ms', ?)", (str(until),))


def give_back(db: sqlite3.Connection) -> None:
    """Pages that nothing is on any more, to the disk."""
    db.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
