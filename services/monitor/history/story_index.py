"""Where each entity's facts are in the journal: a table of the history (`phoenix story`).

    story (entity, position, number, kind)      entity: 17, 18_3, web.7; host:host003; department:hpc

Rules
  1. Places alone: the facts there are read from stream or archive (`journal_facts`).  A row is some 30 bytes, and a fact
     has 1.3 of them.
  2. A fact is of every entity whose life it is a step of: a placement of the unit and of its hosts, a grant of the host and of
     the department; of units that a host's loss has broken too.  Measurements belong to no entity: there is one a second.
  3. Rows follow from the fact and the fold after it, as all rows of the history (`history.rows`).
  4. Rows go with the days that details are kept for: `story_days` has where a day began.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from schemas import facts as f
from schemas.ids import ELEMENT
from services.domain.custody.meta import Meta
from services.monitor.core.buckets import DAY_MS
from services.monitor.core.monitor import MonitorCore

SCHEMA: Final = """
CREATE TABLE story (entity TEXT NOT NULL, position INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
  PRIMARY KEY (entity, position, number)) WITHOUT ROWID;
CREATE TABLE story_days (day_ms INTEGER PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
"""
HOST: Final = "host:"
DEPARTMENT: Final = "department:"
# rows of this table as large as one of the others: 30 bytes each, measured (docs/reference/explain.md)
WEIGHT: Final = 8
Statement = tuple[str, tuple[Any, ...]]
_ADD: Final = "INSERT INTO story VALUES (?, ?, ?, ?)"
_DAY: Final = "INSERT OR IGNORE INTO story_days VALUES (?, ?)"
_OF_DEPARTMENT: Final = frozenset(
    {
        f.DemandChanged,
        f.QuotaChanged,
        f.ScaleRequested,
        f.ReleaseRequested,
        f.ReleaseChanged,
        f.DepartmentClosed,
    }
)
_HANDS: Final = frozenset({f.HostGranted, f.HostReleased, f.HostSeized, f.HostLost})
_ENDS: Final = frozenset({f.AttemptClosed, f.AttemptReported})
_OF_NOBODY: Final = frozenset({f.LoadObserved, f.HostObserved})


class Place(NamedTuple):
    """A row; natural order: that of the journal."""

    position: int
    number: int
    kind: str
    entity: str


def entities(core: MonitorCore, fact: f.Fact, meta: Meta) -> dict[str, None]:
    """Whose step it is (rule 2)."""
    kind = type(fact)  # asked of every fact: isinstance takes ten times as long
    if kind in _OF_NOBODY:
        return {}
    found = dict.fromkeys(meta.broken)
    unit = getattr(fact, "unit", None) or getattr(fact, "job", None)
    if unit is not None:
        found[unit] = None
    host = getattr(fact, "host", None)
    if host is not None and kind is not f.VmAllocated:
        found[HOST + host] = None
        known = core.custody.state.hosts.get(host)
        if kind in _HANDS and known is not None and known.dept is not None:
            found[DEPARTMENT + known.dept] = None
    if type(fact) is f.UnitPlaced:
        found |= {HOST + name: None for name in fact.hosts}
    elif kind in _ENDS:
        attempts = core.state.attempts.get(unit, ())  # type: ignore[arg-type]
        there = next((a.hosts for a in reversed(attempts) if a.attempt == fact.attempt), ())  # type: ignore[union-attr]
        found |= {HOST + name: None for name in there}
    elif kind in _OF_DEPARTMENT:
        found[DEPARTMENT + fact.dept] = None  # type: ignore[union-attr]
    return found


def rows(core: MonitorCore, fact: f.Fact, meta: Meta) -> list[Statement]:
    """What a valid fact that `core` has folded adds."""
    kind = f.kind_of(fact)
    found: list[Statement] = [
        (_ADD, (entity, meta.position, meta.index, kind)) for entity in entities(core, fact, meta)
    ]
    if found and meta.index == 0:
        found.append((_DAY, (int(meta.at * 1000) // DAY_MS * DAY_MS, meta.position)))
    return found


def cut(db: sqlite3.Connection, until_ms: int) -> None:
    """Rule 4: what was before that day goes."""
    first = db.execute("SELECT min(position) FROM story_days WHERE day_ms >= ?", (until_ms,)).fetchone()[0]
    if first is not None:
        db.execute("DELETE FROM story WHERE position < ?", (first,))
    db.execute("DELETE FROM story_days WHERE day_ms < ?", (until_ms,))


def size(db: sqlite3.Connection) -> int:
    """In rows of the other tables."""
    return int(db.execute("SELECT count(*) FROM story").fetchone()[0]) // WEIGHT


# ----------------------------------------------------------------------------------------------------------------- reading


def of(db: sqlite3.Connection, entity: str, before: tuple[int, int], most: int) -> list[Place]:
    """The last `most` places of an entity before a place, in order; of an array's element also those of the array, of an array
    also those of its elements."""
    names, element = [entity], ELEMENT.match(entity)
    if element:
        names.append(element[1])
    marks = ",".join("?" * len(names))
    where, given = f"entity IN ({marks})", [*names]
    if not element and entity.isdecimal():
        where, given = "(entity = ? OR (entity > ? AND entity < ?))", [entity, f"{entity}_", f"{entity}_:"]
    sql = (
        f"SELECT position, number, kind, entity FROM story WHERE {where} AND (position, number) < (?, ?)"
        " ORDER BY position DESC, number DESC LIMIT ?"
    )
    found = [Place(*row) for row in db.execute(sql, (*given, *before, most))]
    return found[::-1]


def last(db: sqlite3.Connection, asked: Sequence[tuple[str, tuple[str, ...]]], before: tuple[int, int]) -> Place | None:
    """The newest of the places before `before` that are one of these entities' and of one of these kinds."""
    found = [place for entity, kinds in asked if (place := _last(db, entity, kinds, before)) is not None]
    return max(found, default=None)


def _last(db: sqlite3.Connection, entity: str, kinds: tuple[str, ...], before: tuple[int, int]) -> Place | None:
    sql = (
        f"SELECT position, number, kind, entity FROM story WHERE entity = ? AND kind IN ({','.join('?' * len(kinds))})"
        " AND (position, number) < (?, ?) ORDER BY position DESC, number DESC LIMIT 1"
    )
    row = db.execute(sql, (entity, *kinds, *before)).fetchone()
    return Place(*row) if row is not None else None
