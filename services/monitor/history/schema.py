"""The tables of the history (described in docs/reference/history.md): details of jobs and hosts, sums, and where the file is.

Rules
  1. Times are whole milliseconds since 1970 and end in `_ms`; so are durations.  Core-milliseconds are `core_ms`.  Whole
     numbers add up exactly, and what is added here agrees with the sums of `accounting` to the last one.
  2. Sums are columns of the same names as the fields of `buckets.Row`, `Span` and `Site`, which say what they are.
  3. A row follows from the journal's order alone: no rowid, no clock, no randomness.  So a file that is made again has the same
     rows (`dump`).
  4. Another form of the tables is another `VERSION`: a file of another one is made again from archive and journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

from schemas.size import FIELDS
from services.monitor.core.buckets import Row, Site, Span
from services.monitor.history import story_index

# 3: a job's reason is of its last attempt; 4: the time of a loss, kinds of departments; 5: cordoned hosts are not borrowed;
# 6: reasons are types; 7: GPUs
VERSION: Final = 7
_TEXT: Final = "TEXT NOT NULL DEFAULT ''"
_SIZE: Final = ", ".join(f"{field} INTEGER NOT NULL" for field in FIELDS)
_BUCKET: Final = "begin_ms INTEGER NOT NULL, length_ms INTEGER NOT NULL"


def counts(sums: type) -> tuple[str, ...]:
    """The fields that are numbers: the others are tables of their own (`ended`, `lost_to`)."""
    return tuple(name for name in sums.__struct_fields__ if name not in ("ended", "lost_to"))  # type: ignore[attr-defined]


KEY_ROW: Final = ("department", "user", "service", "lease")
SUMS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {  # table -> what its rows are of, and its numbers
    "usage": (KEY_ROW, counts(Row)),
    "ended": ((*KEY_ROW, "outcome"), ("units",)),
    "holding": (("department",), counts(Span)),
    "lost_to": (("department", "claimant"), ("core_ms",)),
    "site": ((), counts(Site)),
}
DETAILS: Final = ("jobs", "attempts", "losses", "whereabouts", "claims", "leases")
_DETAILS: Final = f"""
CREATE TABLE jobs (unit TEXT PRIMARY KEY, job TEXT NOT NULL, department TEXT NOT NULL, user {_TEXT}, name {_TEXT},
  service {_TEXT}, quality {_TEXT}, best_effort INTEGER NOT NULL, lease {_TEXT}, nodes INTEGER NOT NULL, {_SIZE},
  walltime_ms INTEGER NOT NULL, submitted_ms INTEGER NOT NULL, placed_ms INTEGER, began_ms INTEGER,
  ended_ms INTEGER, ran_ms INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, hosts {_TEXT},
  exit INTEGER, reason TEXT) WITHOUT ROWID;
CREATE INDEX jobs_by_time ON jobs (submitted_ms, unit);
CREATE INDEX jobs_by_department ON jobs (department, submitted_ms, unit);
CREATE INDEX jobs_by_end ON jobs (ended_ms);
CREATE TABLE attempts (unit TEXT NOT NULL, attempt INTEGER NOT NULL, department TEXT NOT NULL, user {_TEXT},
  hosts TEXT NOT NULL,
  {_SIZE}, placed_ms INTEGER NOT NULL, began_ms INTEGER, broken_ms INTEGER,
  ended_ms INTEGER, disposal TEXT, reason TEXT, exit INTEGER, signal INTEGER, seconds REAL, cpu_seconds REAL, max_rss_mb REAL,
  note TEXT, PRIMARY KEY (unit, attempt)) WITHOUT ROWID;
CREATE INDEX attempts_by_end ON attempts (ended_ms);
CREATE TABLE losses (position INTEGER, number INTEGER, at_ms INTEGER NOT NULL, told_ms INTEGER NOT NULL,
  unit TEXT NOT NULL, attempt INTEGER NOT NULL, department TEXT NOT NULL, user {_TEXT}, service {_TEXT}, lease {_TEXT},
  claimant TEXT, core_ms INTEGER NOT NULL,
  PRIMARY KEY (position, number)) WITHOUT ROWID;
CREATE INDEX losses_by_time ON losses (told_ms);
CREATE TABLE whereabouts (host TEXT NOT NULL, position INTEGER NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
  department {_TEXT}, {_SIZE}, since_ms INTEGER NOT NULL, until_ms INTEGER,
  PRIMARY KEY (host, position, number)) WITHOUT ROWID;
CREATE INDEX whereabouts_by_end ON whereabouts (until_ms);
CREATE TABLE claims (position INTEGER, number INTEGER, department TEXT, hosts INTEGER NOT NULL, opened_ms INTEGER NOT NULL,
  met_ms INTEGER NOT NULL, PRIMARY KEY (position, number, department)) WITHOUT ROWID;
CREATE TABLE leases (lease TEXT PRIMARY KEY, department TEXT NOT NULL, user TEXT NOT NULL, kind TEXT NOT NULL,
  start_ms INTEGER NOT NULL, duration_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL, extended INTEGER NOT NULL DEFAULT 0)
  WITHOUT ROWID;
CREATE TABLE departments (department TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, since_ms INTEGER NOT NULL,
  PRIMARY KEY (department, position)) WITHOUT ROWID;
"""


def _sums() -> Iterator[str]:
    for table, (key, numbers) in SUMS.items():
        columns = [
            _BUCKET,
            *(f"{name} TEXT NOT NULL" for name in key),
            *(f"{name} INTEGER NOT NULL" for name in numbers),
        ]
        primary = ", ".join(("begin_ms", "length_ms", *key))
        yield f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({primary})) WITHOUT ROWID;"


SCHEMA: Final = "\n".join(
    [
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
        _DETAILS,
        *_sums(),
        story_index.SCHEMA,
    ]
)


def add_into(table: str, source: str = "") -> str:
    """SQL that adds a row to a table of sums, or all rows that `source` selects."""
    key, numbers = SUMS[table]
    columns = ("begin_ms", "length_ms", *key, *numbers)
    values = source or f"VALUES ({','.join('?' * len(columns))})"
    grown = ", ".join(f"{name} = {name} + excluded.{name}" for name in numbers)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) {values} ON CONFLICT ({', '.join(columns[: 2 + len(key)])})"
        f" DO UPDATE SET {grown}"
    )


def tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def dump(db: sqlite3.Connection) -> Iterator[str]:
    """Every row of every table, in an order of its own: two histories are the same if these are."""
    for table in tables(db):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for row in db.execute(f"SELECT * FROM {table} ORDER BY {', '.join(columns)}"):
            yield f"{table} {row!r}\n"
