"""What `phoenix usage` shows: the sums of `accounting` over a period, by department, user, service or lease.

Theory of operation
  The buckets that begin within the period are added up, and what still runs is closed off as of now.  A bucket is never
  divided: the period that is shown begins and ends at the edges of buckets, and the answer names them.  Memory has hours of the
  last days and days of the last year; where the period cuts such a day, or begins before them, the history has the hours and
  the years (`gaps`), and its values replace memory's.

Rules
  1. Times leave here in seconds (host-seconds, core-seconds), shares in percent with two digits (`service_share.percent`).
  2. Held, draining, free, lost and absent hosts add up to all hosts at every moment, and so to `hosts_s` here.
  3. A service's usage is what the shares are defined by: w_cpu · its part of the cores + w_mem · its part of the memory, of
     what the department held meanwhile; production alone.  (Chakode 2012, eq. 5.1.)
  4. What a service left of its share is lent as far as others used it: above their shares, or best-effort.  Each lends in
     proportion to what it left, so that lent and borrowed add up to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

from schemas.config import BatchPolicy, CloudConfig
from schemas.dimensions import DIMENSIONS
from services.domain.sharing.service_share import Shares, percent
from services.monitor.core.accounting import Accounting
from services.monitor.core.buckets import (
    BEST_EFFORT,
    DAY_MS,
    DAYS,
    HOUR_MS,
    HOURLY_DAYS,
    OF_HOSTS,
    USED,
    Bucket,
    Row,
    Site,
    Span,
    add,
    measured,
    parts,
)
from services.monitor.views.times import iso

By = Literal["department", "user", "service", "lease"]
BY: Final[tuple[By, ...]] = ("department", "user", "service", "lease")
EVER: Final = 1e14  # UTC seconds: no end
ROWS_MAX: Final = 10_000  # of one answer; the largest are shown, the sums count all


class Older(NamedTuple):
    """What the history says of a gap, and from when until when that is (milliseconds)."""

    sums: Bucket
    since: int
    until: int


class Period(NamedTuple):
    """Milliseconds since 1970: what is shown, and up to when it was closed off."""

    since: int
    until: int


def usage(
    accounting: Accounting,
    by: By,
    department: str | None,
    since_s: float,
    until_s: float,
    now_s: float,
    older: Sequence[Older] | None = None,
) -> dict[str, Any]:
    """The answer.  `department`: only this one's rows; None: all.  `since_s`, `until_s`: UTC seconds; `now_s`: not before the
    last fact.  `older`: what the history says of `gaps`; None: it was not read."""
    state = accounting.state
    now = max(_milliseconds(now_s), state.at)
    sums, period = _collect(accounting, _milliseconds(since_s), _milliseconds(until_s), now, older)
    config = accounting.custody.state.config
    names = [department] if department is not None else _departments(config, sums)
    return {
        "by": by,
        "department": department,
        "since": iso(period.since / 1000),
        "until": iso(period.until / 1000),
        "began": iso((state.began_at or now) / 1000),
        "site": _site(sums),
        "departments": _of_departments(sums, names, config),
        **_ROWS[by](sums, names, config),
    }


def _milliseconds(seconds: float) -> int:
    return round(max(0.0, min(EVER, seconds)) * 1000)


def gaps(accounting: Accounting, since_s: float, until_s: float) -> list[tuple[int, int]]:
    """The parts of the period that memory cannot answer to the hour, or at all; milliseconds, whole hours."""
    state, since, until = accounting.state, _milliseconds(since_s) // HOUR_MS * HOUR_MS, _milliseconds(until_s)
    kept, hourly = (state.book.today - DAYS + 1) * DAY_MS, (state.book.today - HOURLY_DAYS + 1) * DAY_MS
    found, first = [], max(since, kept)
    if max(since, (state.began_at or 0) // HOUR_MS * HOUR_MS) < min(kept, until):
        found.append((since, min(kept, until)))
    if first < min(hourly, until) and first % DAY_MS:
        found.append((first, min(until, _next_day(first))))
        first = _next_day(first)
    if first < until < hourly and until % DAY_MS:
        found.append((until // DAY_MS * DAY_MS, until))
    return found


def _next_day(at: int) -> int:
    return (at // DAY_MS + 1) * DAY_MS


def _collect(
    accounting: Accounting, since: int, until: int, now: int, older: Sequence[Older] | None
) -> tuple[Bucket, Period]:
    """One bucket of everything in the period, and the period."""
    book, sums = accounting.state.book, Bucket()
    extra = accounting.as_of(now)
    first = max(book.begin(since), 0) if since > 0 else 0
    began = accounting.state.began_at or now
    begins, ends = [], []
    cut = {part.since // DAY_MS * DAY_MS for part in older or () if part.until > part.since}
    for part in older or ():
        sums.add(part.sums)
        begins.append(part.since)
        ends.append(part.until)
    for some in (book, accounting.state.fresh, extra):
        for begin, bucket in some.kept.items():
            if first <= begin < until and not (begin in cut and book.length(begin) == DAY_MS):
                sums.add(bucket)
                begins.append(begin)
                ends.append(begin + book.length(begin))
    start = max(began, first if older is None else 0, min(begins, default=now))
    return sums, Period(min(start, now), max(min(start, now), min(now, max(ends, default=now))))


def _departments(config: CloudConfig | None, sums: Bucket) -> list[str]:
    """Configured ones in their order, then those that are not any more."""
    known = [d.name for d in config.departments] if config is not None else []
    return known + [name for name in sorted(sums.spans) if name not in known and _anything(sums.spans[name])]


def _anything(span: Span) -> bool:
    return bool(span.held or span.draining or span.used)


def _site(sums: Bucket) -> dict[str, float]:
    site: Site = sums.site
    return {
        "hosts_s": site.hosts / 1000,
        "cores_s": site.cores / 1000,
        "free_s": site.free / 1000,
        "lost_s": site.lost / 1000,
        "absent_s": site.absent / 1000,
    }


def _of_departments(sums: Bucket, names: list[str], config: CloudConfig | None) -> list[dict[str, Any]]:
    totals = _grouped(sums, names, lambda key: (parts(key)[0], ""))
    return [
        _department(name, sums.spans.get(name) or Span(), totals.get((name, "")) or Row(), config) for name in names
    ]


def _department(name: str, span: Span, total: Row, config: CloudConfig | None) -> dict[str, Any]:
    known = config.department(name) if config is not None else None
    return {
        "department": name,
        "kind": known.kind if known else None,
        "own_s": span.own / 1000,
        "held_s": span.held / 1000,
        "occupied_s": span.occupied / 1000,
        "idle_s": (span.held - span.occupied) / 1000,
        "draining_s": span.draining / 1000,
        "lent_s": span.lent / 1000,
        "borrowed_s": span.borrowed / 1000,
        "held_on_notice_s": span.noticed / 1000,
        "hosts_given_back": span.noticed_hosts,
        "hosts_seized": span.seized_hosts,
        **_seconds("held", span, OF_HOSTS),
        "lost_to": {to: amount / 1000 for to, amount in sorted(span.lost_to.items()) if amount},
        **_work(total),
    }


def _seconds(word: str, sums: Row | Span, names: tuple[str, ...]) -> dict[str, float]:
    """`used_core_s`, `used_gpu_s`: of each dimension that has a word for it."""
    numbers = zip(DIMENSIONS, measured(sums, names), strict=True)
    return {f"{word}_{dimension.hour}_s": number / 1000 for dimension, number in numbers if dimension.hour}


def _work(row: Row) -> dict[str, Any]:
    return {
        **_seconds("used", row, USED),
        "best_effort_core_s": row.best_effort / 1000,
        "lost_core_s": row.lost / 1000,
        "failed_core_s": row.failed / 1000,
        "recovered_core_s": row.recovered / 1000,
        "preempted": row.preempted,
        "submitted": row.submitted,
        "started": row.started,
        "mean_wait_s": row.waited / row.started / 1000 if row.started else None,
        "ended": dict(sorted(row.ended.items())),
    }


# ------------------------------------------------------------------------------------------------------------------- rows


def _grouped(sums: Bucket, names: list[str], group: Callable[[str], tuple[str, str]]) -> dict[tuple[str, str], Row]:
    """Rows of these departments, added up by what `group` makes of their keys."""
    found: dict[tuple[str, str], Row] = {}
    for key, row in sums.rows.items():
        if parts(key)[0] in names:
            add(found.setdefault(group(key), Row()), row)
    return found


def _rows_of(sums: Bucket, names: list[str], index: int, title: str) -> dict[str, Any]:
    """Largest first (unique: department and name)."""
    found = _grouped(sums, names, lambda key: (parts(key)[0], parts(key)[index]))
    used: dict[str, int] = {}
    for (dept, _), row in found.items():
        used[dept] = used.get(dept, 0) + row.used
    order = sorted(found, key=lambda each: (names.index(each[0]), -found[each].used, each))
    rows = [
        {
            "department": dept,
            title: name,
            "used_pct": percent(Fraction(found[dept, name].used, used[dept] or 1)),
            **_work(found[dept, name]),
        }
        for dept, name in order[:ROWS_MAX]
    ]
    return {"rows": rows, "rows_left_out": max(0, len(order) - ROWS_MAX)}


def _by_department(_sums: Bucket, _names: list[str], _config: CloudConfig | None) -> dict[str, Any]:
    return {"rows": [], "rows_left_out": 0}


def _by_user(sums: Bucket, names: list[str], _config: CloudConfig | None) -> dict[str, Any]:
    return _rows_of(sums, names, 1, "user")


def _by_lease(sums: Bucket, names: list[str], _config: CloudConfig | None) -> dict[str, Any]:
    return _rows_of(sums, names, 3, "lease")


def _by_service(sums: Bucket, names: list[str], config: CloudConfig | None) -> dict[str, Any]:
    answer = _rows_of(sums, names, 2, "service")
    for name in names:
        known = config.department(name) if config is not None else None
        policy = known.batch if known is not None else None
        if policy is not None and policy.services:
            _share(answer["rows"], name, policy, sums)
    return answer


def _share(rows: list[dict[str, Any]], dept: str, policy: BatchPolicy, sums: Bucket) -> None:
    """Rules 3 and 4, added to the department's rows; a service that used nothing gets one."""
    span = sums.spans.get(dept) or Span()
    shares = Shares(policy, measured(span, OF_HOSTS))
    found = {name: row for (_, name), row in _grouped(sums, [dept], lambda key: (dept, parts(key)[2])).items()}
    mine = {str(row["service"]): row for row in rows if row["department"] == dept}
    for name in shares.granted:
        if name not in mine:
            mine[name] = {"department": dept, "service": name, "used_pct": 0.0, **_work(Row())}
            rows.append(mine[name])
    used, others = {}, Fraction(0)
    for name in mine:
        row = found.get(name) or Row()
        left_over = measured(row, BEST_EFFORT)
        used[name] = shares.usage(measured(row, USED).minus(left_over))
        others += shares.usage(left_over)
    none = Fraction(0)
    left = {name: max(none, shares.granted.get(name, none) - used[name]) for name in mine}
    borrowed = {name: max(none, used[name] - shares.granted.get(name, none)) for name in mine}
    total = sum(left.values())
    part = min(Fraction(1), (sum(borrowed.values()) + others) / total) if total else none
    for name, told in mine.items():
        told["granted_pct"], told["usage_pct"] = percent(shares.granted.get(name, none)), percent(used[name])
        told["lent_pct"], told["borrowed_pct"] = percent(left[name] * part), percent(borrowed[name])


_ROWS: Final[dict[By, Callable[[Bucket, list[str], CloudConfig | None], dict[str, Any]]]] = {
    "department": _by_department,
    "user": _by_user,
    "service": _by_service,
    "lease": _by_lease,
}
