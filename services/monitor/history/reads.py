"""What is asked of the history: jobs by filter, page by page; one job with its attempts; sums of a period.

Rules
  1. A job is of a period if it was there in it: submitted before its end, and not over before its beginning.
  2. A page has the place where the next one begins (`next`): behind its last row, in the order asked for.  All pages are of
     the moment of the first one, in what is there and in times by which they are ordered: so no row comes twice, and none that
     was there is missed, whatever starts, ends and is added meanwhile.
  3. Newest, longest, largest first, unless `ascending`.  Whose start or end is still to come counts as the newest.  Of those
     that are equal in it the highest number, of a job and then of an element, is first.
  4. Every function reads, and runs in the history's thread.
  5. Of what is not on the page only its place in the order is looked up.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from schemas.ids import job_of
from schemas.size import FIELDS
from schemas.validation import UNREADABLE
from services.domain.custody.state import ENDED_EARLY
from services.monitor.core.buckets import DAY_MS, Bucket, Row, Site, Span, add, key
from services.monitor.history.schema import SUMS
from services.monitor.views.times import iso

LIMIT_MAX: Final = 10_000  # rows of one page; some MB
NEVER_MS: Final = 1 << 62
_Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-NEVER_MS, le=NEVER_MS)]  # what SQLite can hold
_ELAPSED: Final = (  # as of :now, like all that follows
    "(SELECT coalesce(sum(max(0, min(coalesce(a.ended_ms, :now), :now) - a.placed_ms)), 0) FROM attempts AS a"
    " WHERE a.unit = jobs.unit)"
)
_STARTED: Final = (  # as the read model says it (`Views.row`): of the last attempt, once its guests have called
    "(SELECT a.began_ms FROM attempts AS a WHERE a.unit = jobs.unit AND a.attempt = jobs.attempts"
    " AND jobs.state NOT IN ('pending', 'held', 'suspended'))"
)
_WAIT: Final = "(min(coalesce(placed_ms, ended_ms, :now), :now) - submitted_ms)"
_USED: Final = (
    "(SELECT sum(a.cpu_seconds) FROM attempts AS a WHERE a.unit = jobs.unit) AS cpu_s,"
    " (SELECT max(a.max_rss_mb) FROM attempts AS a WHERE a.unit = jobs.unit) AS peak_mb"
)
_SHOWN: Final = f"{_STARTED} AS started_ms, {_WAIT} AS wait_ms, {_ELAPSED} AS elapsed_ms, {_USED}"
SORTS: Final = {
    "submitted": "submitted_ms",
    "started": (
        f"coalesce((SELECT max(a.began_ms) FROM attempts AS a WHERE a.unit = jobs.unit AND a.began_ms <= :now), {NEVER_MS})"
    ),
    "ended": f"CASE WHEN ended_ms <= :now THEN ended_ms ELSE {NEVER_MS} END",
    "wait": _WAIT,
    "elapsed": _ELAPSED,
    "cores": "(nodes * cores)",
}
STATES: Final = (
    *("pending", "held", "suspended", "starting", "running", "completing"),
    *("completed", ENDED_EARLY, "failed", "cancelled", "timeout", "killed"),
)
_NUMBER: Final = ("length(job)", "job", "length(unit)", "unit")  # numbers as text: 4_9 before 4_10
_HOST: Final = (
    "EXISTS (SELECT 1 FROM attempts AS h"
    " WHERE h.unit = jobs.unit AND instr(',' || h.hosts || ',', ',' || :host || ','))"
)


class Filter(msgspec.Struct, kw_only=True):
    """None: any.  `name`: a pattern with * and ?; times in milliseconds."""

    department: str | None = None
    user: str | None = None
    states: tuple[str, ...] = ()
    name: str | None = None
    host: str | None = None
    since: int | None = None
    until: int | None = None
    sort: str = "submitted"
    ascending: bool = False
    after: str | None = None
    limit: int = 100


def jobs(db: sqlite3.Connection, asked: Filter, now: int) -> dict[str, Any]:
    """``{"jobs": [row…], "next": `after` of the next page, or None}``.  ValueError: `after` is of another order."""
    where, values = _where(asked)
    by = SORTS[asked.sort]
    if asked.after:
        values["value"], values["unit"], now = _read_cursor(asked)
        where.append("submitted_ms <= :now")
        values["job"] = job_of(values["unit"])
        last = "(:value, length(:job), :job, length(:unit), :unit)"
        where.append(f"({by}, {', '.join(_NUMBER)}) {'>' if asked.ascending else '<'} {last}")
    order = "ASC" if asked.ascending else "DESC"
    ordered = f"ORDER BY {', '.join(f'{part} {order}' for part in ('sorted_by', *_NUMBER))}"
    page = f"SELECT unit, {by} AS sorted_by FROM jobs WHERE {' AND '.join(where) or '1'} {ordered} LIMIT :limit"
    sql = f"SELECT jobs.*, sorted_by, {_SHOWN} FROM ({page}) JOIN jobs USING (unit) {ordered}"  # rule 5
    limit = max(0, min(asked.limit, LIMIT_MAX))
    found = _select(db, sql, values | {"now": now, "limit": limit + 1})
    more = len(found) > limit
    found = found[:limit]
    following = _cursor(asked, found[-1]["sorted_by"], found[-1]["unit"], now) if more and found else None
    return {"jobs": [_job(row) for row in found], "next": following}


def _where(asked: Filter) -> tuple[list[str], dict[str, Any]]:
    conditions: list[tuple[Any, str, str]] = [
        (asked.department, "department", "department = :department"),
        (asked.user, "user", "user = :user"),
        (asked.name, "name", "name GLOB :name"),
        (asked.host, "host", _HOST),
        (asked.since, "since", "(ended_ms IS NULL OR ended_ms >= :since)"),
        (asked.until, "until", "submitted_ms < :until"),
    ]
    where = [sql for value, _, sql in conditions if value is not None]
    values: dict[str, Any] = {name: value for value, name, _ in conditions if value is not None}
    if asked.states:
        names = {f"state{n}": state for n, state in enumerate(asked.states)}
        where.append(f"state IN ({', '.join(f':{name}' for name in names)})")
        values |= names
    return where, values


def _cursor(asked: Filter, value: int, unit: str, now: int) -> str:
    content = msgspec.json.encode([asked.sort, asked.ascending, value, unit, now])
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _read_cursor(asked: Filter) -> tuple[int, str, int]:
    text = asked.after or ""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        sort, ascending, value, unit, now = msgspec.json.decode(content, type=tuple[str, bool, _Int, str, _Int])
    except (*UNREADABLE, binascii.Error, ValueError):
        raise ValueError("it is no `next` of a page") from None
    if (sort, ascending) != (asked.sort, asked.ascending):
        raise ValueError(f"it is of another order: {sort}, {'ascending' if ascending else 'descending'}")
    return value, unit, now


def job(db: sqlite3.Connection, name: str, now: int) -> dict[str, Any] | None:
    """One job or element with its attempts, or an array with its elements; None if the history knows none."""
    select = f"SELECT *, {_SHOWN} FROM jobs"
    found = _select(db, f"{select} WHERE unit = :name", {"name": name, "now": now})
    if found:
        attempts = _select(db, "SELECT * FROM attempts WHERE unit = ? ORDER BY attempt", (name,))
        return {**_job(found[0]), "attempts": [_attempt(row) for row in attempts], "units": []}
    rows = _select(db, f"{select} WHERE job = :name AND unit <> :name", {"name": name, "now": now})
    elements = [_job(row) for row in sorted(rows, key=lambda row: int(row["unit"].partition("_")[2]))]
    if not elements:
        return None
    states = [row["state"] for row in elements]
    first = elements[0]
    ends = [row["ended_at"] for row in elements]
    return {
        **{name: first[name] for name in ("job", "department", "user", "name", "submitted_at")},
        "unit": name,
        "state": states[0] if len(set(states)) == 1 else "ended" if all(ends) else "running",
        "ended_at": max(ends) if all(ends) else None,
        "counts": {state: states.count(state) for state in sorted(set(states))},
        "attempts": [],
        "units": elements,
    }


def _job(row: dict[str, Any]) -> dict[str, Any]:
    """As people see it; the size of each of its nodes."""
    return {
        **{name: row[name] for name in ("unit", "job", "name", "user", "department", "service", "quality", "state")},
        "lease_kind": row["lease"] or None,
        "best_effort": bool(row["best_effort"]),
        "submitted_at": _iso(row["submitted_ms"]),
        "started_at": _iso(row["started_ms"]),
        "ended_at": _iso(row["ended_ms"]),
        "wait_s": row["wait_ms"] / 1000,
        "elapsed_s": row["elapsed_ms"] / 1000,
        "walltime_s": row["walltime_ms"] / 1000,
        **{name: row[name] for name in ("nodes", *FIELDS)},
        "hosts": row["hosts"].split(",") if row["hosts"] else [],
        "attempt": row["attempts"],
        "exit_code": None if row["ended_ms"] is None else row["exit"],
        "cpu_seconds": None if row["cpu_s"] is None else round(row["cpu_s"], 3),
        "max_rss_mb": row["peak_mb"],
        "reason": msgspec.json.decode(row["reason"]) if row["reason"] else None,
    }


def _attempt(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "attempt": row["attempt"],
        "hosts": row["hosts"].split(","),
        "placed_at": _iso(row["placed_ms"]),
        "began_at": _iso(row["began_ms"]),
        "ended_at": _iso(row["ended_ms"]),
        "why": msgspec.json.decode(row["reason"]) if row["reason"] else None,
        **{name: row[name] for name in ("disposal", "exit", "signal", "seconds", "cpu_seconds", "max_rss_mb", "note")},
    }


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at / 1000)


def _select(db: sqlite3.Connection, sql: str, values: Any) -> list[dict[str, Any]]:
    cursor = db.execute(sql, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


# ------------------------------------------------------------------------------------------------------------------- sums


def collected(db: sqlite3.Connection, since: int, until: int) -> tuple[Bucket, int, int]:
    """Everything measured from `since` until `until` (milliseconds) in one bucket, and from when until when that is: where sums
    are kept by the day, the whole day of `since` is in it."""
    found = db.execute("SELECT value FROM meta WHERE key = 'details_from_ms'").fetchone()
    if since < (int(found[0]) if found else 0):
        since = since // DAY_MS * DAY_MS
    sums = Bucket()
    for row in _sums(db, "site", since, until):
        add(sums.site, Site(*row[2:]))
    for row in _sums(db, "holding", since, until):
        add(sums.span(row[2]), Span(*row[3:]))
    for row in _sums(db, "lost_to", since, until):
        to = sums.span(row[2]).lost_to
        to[row[3]] = to.get(row[3], 0) + row[4]
    for row in _sums(db, "usage", since, until):
        add(sums.rows.setdefault(key(*row[2:6]), Row()), Row(*row[6:]))
    for row in _sums(db, "ended", since, until):
        ended = sums.rows.setdefault(key(*row[2:6]), Row()).ended
        ended[row[6]] = ended.get(row[6], 0) + row[7]
    sql = "SELECT min(begin_ms), max(begin_ms + length_ms) FROM {} WHERE begin_ms >= ? AND begin_ms < ?"
    begins, ends = zip(*(db.execute(sql.format(table), (since, until)).fetchone() for table in SUMS), strict=True)
    return (
        sums,
        min((at for at in begins if at is not None), default=since),
        max((at for at in ends if at), default=since),
    )


def _sums(db: sqlite3.Connection, table: str, since: int, until: int) -> sqlite3.Cursor:
    """Rows by the whole; added up here, because SQLite's own sums end at 64 bits."""
    return db.execute(f"SELECT * FROM {table} WHERE begin_ms >= ? AND begin_ms < ?", (since, until))
