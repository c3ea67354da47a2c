"""Sums by hour and by day: where accounting puts what it has measured, for as long as it is kept.

Theory of operation
  A bucket holds the sums of one hour (UTC) or one day.  Today and the days just before it are kept by the hour; when a day
  begins, the oldest of them becomes one bucket, and what is older than the retention is added to totals that never end.  What
  is measured over a span of time is cut at the edges of buckets, so a span of ten days is ten pieces, not one fact's affair.

Rules
  1. Times are whole milliseconds, and sums are whole numbers of them: they are exact, whatever the order of adding, and parts
     add up to the whole.  64 bits hold a day of a hundred million cores.
  2. What is measured within the hour that runs is kept apart (`accounting`), and `absorb`ed when the hour is over.
  3. Everything is bounded: `DAYS` days, and `ROWS_MAX` rows in all.  Beyond them the users of the oldest buckets become one row
     per department (`OTHERS`): sums stay, names go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from schemas.dimensions import DIMENSIONS
from schemas.size import Size

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
HOURLY_DAYS: Final = 3  # days kept by the hour, today's included: "the last 24 hours", and a look at the day before
DAYS: Final = 400  # a year, and the month in which one looks back at it
ROWS_MAX: Final = 100_000  # about 40 MB: 250 users a day, every day
OTHERS: Final = "(others)"


class Row(msgspec.Struct, array_like=True):
    """What the attempts of one user, service and lease in one department used.  Core-milliseconds and MiB-milliseconds, unless
    it says otherwise.  `best_effort*`: the part that is not production.  `lost`: run and thrown away by preemption; `failed`:
    … because a host or VM failed; `recovered`: was in one of these until a late success or checkpoint."""

    used: int = 0
    memory: int = 0
    best_effort: int = 0
    best_effort_memory: int = 0
    lost: int = 0
    recovered: int = 0
    failed: int = 0
    preempted: int = 0  # attempts
    submitted: int = 0  # units, and so are the next two
    started: int = 0  # for the first time
    waited: int = 0  # milliseconds, of those that started, from submission to their first attempt
    ended: dict[str, int] = {}  # units, by outcome
    gpus: int = 0  # GPU-milliseconds, and so is the next
    best_effort_gpus: int = 0


class Span(msgspec.Struct, array_like=True):
    """What one department had.  Host-milliseconds, unless it says otherwise.  `occupied`: held hosts with a live attempt;
    `draining`: hosts that it gave back and that are not cleared; `noticed`: held above the quota; `cores`, `memory`: of held
    hosts, core- and MiB-milliseconds; `used`, `lost`, `recovered`, `failed`: the sums of its rows."""

    held: int = 0
    occupied: int = 0
    draining: int = 0
    own: int = 0
    lent: int = 0
    borrowed: int = 0
    noticed: int = 0
    cores: int = 0
    memory: int = 0
    used: int = 0
    lost: int = 0
    recovered: int = 0
    failed: int = 0
    noticed_hosts: int = 0  # hosts given back because of a notice
    seized_hosts: int = 0  # hosts taken after one
    lost_to: dict[str, int] = {}  # of `lost`: to whose claim
    gpus: int = 0  # of held hosts, GPU-milliseconds


class Site(msgspec.Struct, array_like=True):
    """What had no holder, and what there was.  Host-milliseconds; `cores`: core-milliseconds of all hosts but lost and
    absent."""

    hosts: int = 0
    free: int = 0
    lost: int = 0
    absent: int = 0
    cores: int = 0


Sums = TypeVar("Sums", Row, Span, Site)
# The sums of each dimension: what attempts used, the best-effort part of it, what held hosts had.
USED, BEST_EFFORT, OF_HOSTS = zip(*(dimension.history for dimension in DIMENSIONS), strict=True)


def measure(into: Row | Span, names: tuple[str, ...], size: Size, length: int) -> None:
    """`size` for `length` milliseconds."""
    for name, number in zip(names, size, strict=True):
        if number:
            setattr(into, name, getattr(into, name) + number * length)


def measured(sums: Row | Span, names: tuple[str, ...]) -> Size:
    return Size._make(getattr(sums, name) for name in names)


def add(into: Sums, more: Sums) -> None:
    """Field by field."""
    for name in into.__struct_fields__:
        value: Any = getattr(more, name)
        if not value:  # most are 0
            continue
        mine: Any = getattr(into, name)
        if isinstance(value, int):
            setattr(into, name, mine + value)
        else:
            for key, count in value.items():
                mine[key] = mine.get(key, 0) + count


class Bucket(msgspec.Struct, array_like=True):
    """`rows` by `key`."""

    spans: dict[str, Span] = {}
    rows: dict[str, Row] = {}
    site: Site = msgspec.field(default_factory=Site)

    def span(self, dept: str) -> Span:
        found = self.spans.get(dept)
        if found is None:
            found = self.spans[dept] = Span()
        return found

    def add(self, other: Bucket) -> None:
        add(self.site, other.site)
        for dept, span in other.spans.items():
            add(self.span(dept), span)
        for name, row in other.rows.items():
            add(self.rows.setdefault(name, Row()), row)


def key(dept: str, user: str, service: str, lease: str) -> str:
    """Names hold no slash; a service may hold anything, so it comes last."""
    return f"{dept}/{user}/{lease}/{service}"


def parts(name: str) -> tuple[str, str, str, str]:
    """Department, user, service, lease of a `key`."""
    dept, user, lease, service = name.split("/", 3)
    return dept, user, service, lease


def department(name: str) -> str:
    """Of a `key`."""
    return name.partition("/")[0]


class Buckets(msgspec.Struct, kw_only=True):
    """`today`: days since 1970.  `kept`: bucket by its begin (milliseconds).  `before`: department -> what is kept no more."""

    today: int = 0
    kept: dict[int, Bucket] = {}
    before: dict[str, Span] = {}
    rows: int = 0

    def turn(self, now: int) -> None:
        """Time has come to `now`: if that is another day, make old hours a day and give up what is too old."""
        day = now // DAY_MS
        if day <= self.today:
            return
        self.today = day
        for start in sorted(self.kept):
            begin = self.begin(start)
            if begin < 0:
                gone = self.kept.pop(start)
                self.rows -= len(gone.rows)
                for dept, span in gone.spans.items():
                    add(self._before(dept), span)
            elif begin != start:
                merged, old = self.bucket(begin), self.kept.pop(start)
                self.rows -= len(merged.rows) + len(old.rows)
                merged.add(old)
                self.rows += len(merged.rows)

    def absorb(self, other: Buckets) -> None:
        """Add what was measured elsewhere.  What is taken back from a row that has lost its name is taken from the row without
        one."""
        for begin, bucket in other.kept.items():
            mine = self.bucket(begin)
            add(mine.site, bucket.site)
            for dept, span in bucket.spans.items():
                add(mine.span(dept), span)
            for name, row in bucket.rows.items():
                takes_back = min(row.lost, row.failed) < 0
                add(self.row(begin, nobody(name) if takes_back and name not in mine.rows else name), row)
        for dept, span in other.before.items():
            add(self._before(dept), span)

    def _before(self, dept: str) -> Span:
        return self.before.setdefault(dept, Span())

    def begin(self, at: int) -> int:
        """Begin of the bucket that holds `at`; -1: too old to be kept."""
        day = at // DAY_MS
        if day > self.today - HOURLY_DAYS:
            return at // HOUR_MS * HOUR_MS
        return day * DAY_MS if day > self.today - DAYS else -1

    def length(self, begin: int) -> int:
        """Milliseconds of the bucket that begins there."""
        return HOUR_MS if begin // DAY_MS > self.today - HOURLY_DAYS else DAY_MS

    def bucket(self, begin: int) -> Bucket:
        found = self.kept.get(begin)
        if found is None:
            found = self.kept[begin] = Bucket()
        return found

    def pieces(self, since: int, until: int) -> Iterator[tuple[int, int]]:
        """The span, cut at the edges of buckets: (begin of the bucket, milliseconds).  -1: what is too old to be kept."""
        oldest = (self.today - DAYS + 1) * DAY_MS
        if since < oldest:
            yield -1, min(until, oldest) - since
            since = oldest
        while since < until:
            begin = self.begin(since)
            end = min(until, begin + self.length(begin))
            yield begin, end - since
            since = end

    def span(self, begin: int, dept: str) -> Span:
        """Where to add something of this department."""
        return self._before(dept) if begin < 0 else self.bucket(begin).span(dept)

    def row(self, begin: int, name: str) -> Row:
        """The row to add to (rule 3).  Of what is not kept only departments have totals: that row goes nowhere."""
        if begin < 0:
            return Row()
        rows = self.bucket(begin).rows
        found = rows.get(name)
        if found is None and self.rows >= ROWS_MAX:
            self._forget_names()
            if self.rows >= ROWS_MAX:
                name = nobody(name)
                found = rows.get(name)
        if found is None:
            found = rows[name] = Row()
            self.rows += 1
        return found

    def used(self) -> dict[str, int]:
        """By department, all that was ever added."""
        found: dict[str, int] = {}
        for spans in (self.before, *(bucket.spans for bucket in self.kept.values())):
            for dept, span in spans.items():
                found[dept] = found.get(dept, 0) + span.used
        return found

    def _forget_names(self) -> None:
        """Oldest buckets first, until there is room for a tenth more: not at each new row."""
        for start in sorted(self.kept):
            if self.rows <= ROWS_MAX - ROWS_MAX // 10:
                return
            bucket = self.kept[start]
            before, named = len(bucket.rows), list(bucket.rows.items())
            bucket.rows.clear()  # in place: callers that add to the bucket hold this dict
            for name, row in named:
                add(bucket.rows.setdefault(nobody(name), Row()), row)
            self.rows += len(bucket.rows) - before


def nobody(name: str) -> str:
    """The key of the row that a row without names is added to."""
    return key(department(name), OTHERS, "", "")
