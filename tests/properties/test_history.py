"""Properties of the history: what the file says is what the fold says, and it can be made again.

H1  It agrees with accounting, to the millisecond: its sums with the book, its attempts with what was used, its whereabouts with
    who held hosts, its losses with what was lost to whom, its jobs with how they ended and why their last attempt was closed,
    and the CPU time of its attempts with what is counted.
H2  A file that was written in pieces, with restarts from a snapshot of any moment between them, is the same, byte for byte, as
    one made again from the beginning; also under limits, which cut both alike.
H3  What goes with time takes no sum along: those of days are what those of their hours were.
H4  What was held in any hours is the same in the answer of `phoenix usage`, where memory has days alone, and in whereabouts.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.monitor.core.buckets import DAY_MS, Bucket, Buckets, Row, Span, add
from services.monitor.core.monitor import MonitorCore
from services.monitor.history.file import EVERYTHING, History
from services.monitor.history.reads import collected
from services.monitor.history.retention import Kept
from services.monitor.history.schema import dump
from services.monitor.views.usage import Older, gaps, usage
from tests.properties.test_accounting import STEPS, house, step
from tests.support.examples import few
from tests.support.world import Seat, World

EVER = 1 << 60


class Written:
    """A monitor with a history in memory, on a world's journal."""

    def __init__(self, kept: Kept = EVERYTHING) -> None:
        self.history = History(Path(":memory:"), kept)
        self.history.open()
        self.core: MonitorCore
        self.seat = Seat("monitor", self._make)

    def _make(self, custody: Custody) -> MonitorCore:
        self.core = MonitorCore(custody, self._watch)
        return self.core

    def _watch(self, fact: f.Fact, meta: Meta) -> None:
        self.history.note(self.core, fact, meta)

    def fold(self, world: World) -> Written:
        self.seat.fold(world.journal)
        self.history.commit()
        return self

    def restart(self) -> None:
        """From its snapshot, with the file as it is."""
        before = self.core
        self.seat = self.seat.twin()
        assert self.core is not before

    @property
    def db(self) -> sqlite3.Connection:
        return self.history.database

    def dump(self) -> list[str]:
        return list(dump(self.db))


def whole(book: Buckets) -> Bucket:
    found = Bucket()
    for bucket in book.kept.values():
        found.add(bucket)
    for dept, span in book.before.items():
        add(found.span(dept), span)
    return found


def plain(bucket: Bucket) -> tuple[object, ...]:
    """Without rows of nothing, and the order in which things came."""
    spans = {dept: span for dept, span in sorted(bucket.spans.items()) if span != Span()}
    for span in spans.values():
        span.lost_to = {to: amount for to, amount in sorted(span.lost_to.items()) if amount}
    rows = {name: row for name, row in sorted(bucket.rows.items()) if row != Row()}
    return bucket.site, spans, rows


def played(steps: list[tuple[str, int, int]], on_reclaim: str = "requeue") -> World:
    world = house(on_reclaim)
    for each in steps:
        step(world, *each)
    return world


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from(["requeue", "kill", "suspend", "migrate"]))
def test_it_agrees_with_accounting(steps: list[tuple[str, int, int]], on_reclaim: str) -> None:
    world = played(steps, on_reclaim)
    written = Written().fold(world)
    accounting, db = written.core.accounting, written.db
    kept, _, _ = collected(db, 0, EVER)
    assert plain(kept) == plain(whole(accounting.state.book))
    now = accounting.state.at
    total = whole(accounting.state.book)
    total.add(whole(accounting.state.fresh))
    total.add(whole(accounting.as_of(now)))
    used = dict(
        db.execute(
            "SELECT department, sum(cores * (coalesce(ended_ms, ?) - placed_ms)) FROM attempts GROUP BY department",
            (now,),
        )
    )
    assert {dept: amount for dept, amount in used.items() if amount} == {
        dept: span.used for dept, span in total.spans.items() if span.used
    }
    where: dict[tuple[str, str], int] = {}
    for state, dept, length in db.execute(
        "SELECT state, department, coalesce(until_ms, ?) - since_ms FROM whereabouts", (now,)
    ):
        where[state, dept] = where.get((state, dept), 0) + length
    for dept, span in total.spans.items():
        assert where.get(("held", dept), 0) == span.held
        assert where.get(("draining", dept), 0) == span.draining
        lost = "SELECT claimant, sum(core_ms) FROM losses WHERE department = ? GROUP BY claimant"
        told = {to: amount for to, amount in db.execute(lost, (dept,)) if amount}
        assert told.pop(None, 0) == span.failed
        assert told == {to: amount for to, amount in span.lost_to.items() if amount}
    site = {state: amount for (state, dept), amount in where.items() if not dept}
    assert (site.get("free", 0), site.get("lost", 0), site.get("absent", 0)) == (
        total.site.free,
        total.site.lost,
        total.site.absent,
    )
    cpu = dict(db.execute("SELECT department, sum(cpu_seconds) FROM attempts GROUP BY department"))
    counted = written.core.state.tallies.cpu_s
    assert {dept: amount for dept, amount in cpu.items() if amount} == pytest.approx(counted)
    ends = dict(db.execute("SELECT state, count(*) FROM jobs WHERE ended_ms IS NOT NULL GROUP BY state"))
    ended: dict[str, int] = {}
    for row in total.rows.values():
        for how, units in row.ended.items():
            ended[how] = ended.get(how, 0) + units
    assert ends == ended
    length = "SELECT sum(ended_ms - placed_ms) FROM attempts AS a WHERE a.unit = jobs.unit AND a.ended_ms"
    ran = db.execute(f"SELECT unit, ran_ms, ({length}) FROM jobs")
    assert all(length == (attempts or 0) for _, length, attempts in ran)
    early = "jobs.state = 'ended_early'"
    last = f"FROM attempts AS a WHERE a.unit = jobs.unit AND a.attempt = jobs.attempts AND (a.exit IS NULL OR {early})"
    assert not db.execute(f"SELECT unit FROM jobs WHERE reason IS NOT (SELECT a.reason {last})").fetchall()


LIMITS = st.sampled_from([EVERYTHING, Kept(days=1, rows=0), Kept(days=20, rows=0), Kept(days=400, rows=12)])


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.integers(0, 50), max_size=3), LIMITS)
def test_a_file_made_again_is_the_same(steps: list[tuple[str, int, int]], cuts: list[int], kept: Kept) -> None:
    world, live = house(), Written(kept)
    for number, each in enumerate(steps):
        step(world, *each)
        if number in cuts:
            live.fold(world).restart()
    live.fold(world)
    assert live.dump() == Written(kept).fold(world).dump()


@pytest.mark.long
@settings(max_examples=few(20, searching=60), deadline=None)  # half a second each: months pass, hour by hour
@given(STEPS, LIMITS)
def test_what_goes_takes_no_sum_along(steps: list[tuple[str, int, int]], kept: Kept) -> None:
    world = played([*steps, ("long", 1, 0), ("submit", 0, 0), ("long", 2, 0), ("submit", 0, 0)])
    cut, uncut = Written(kept).fold(world), Written().fold(world)
    assert plain(collected(cut.db, 0, EVER)[0]) == plain(collected(uncut.db, 0, EVER)[0])
    if kept is not EVERYTHING:
        details_from = int(cut.db.execute("SELECT value FROM meta WHERE key = 'details_from_ms'").fetchone()[0])
        assert details_from % DAY_MS == 0
        left = "SELECT count(*) FROM {} WHERE {} < ?"
        for table, end in (
            ("jobs", "ended_ms"),
            ("whereabouts", "until_ms"),
            ("losses", "told_ms"),
            ("claims", "met_ms"),
        ):
            assert cut.db.execute(left.format(table, end), (details_from,)).fetchone()[0] == 0
            after = f"SELECT * FROM {table} WHERE coalesce({end}, {EVER}) >= ?"
            assert set(cut.db.execute(after, (details_from,))) == set(uncut.db.execute(after, (details_from,)))


@settings(max_examples=few(15, searching=30), deadline=None)
@given(STEPS, st.integers(0, 2000), st.integers(1, 2000))
def test_usage_of_any_hours_is_their_sum(steps: list[tuple[str, int, int]], first: int, count: int) -> None:
    """Also where memory has the day alone, or nothing."""
    world = played([*steps, ("long", 2, 0), ("submit", 0, 0)])
    written = Written().fold(world)
    accounting, db = written.core.accounting, written.db
    since, until = 3600.0 * (277 + first), 3600.0 * (277 + first + count)  # the worlds begin at hour 277
    asked = gaps(accounting, since, until)
    older = [Older(*collected(db, *gap)) for gap in asked]
    now = world.now
    found = usage(accounting, "user", None, since, until, now, older)
    held = {one["department"]: one["held_s"] for one in found["departments"]}
    for dept in ("hpc", "web", "bio"):
        sql = (
            "SELECT sum(max(0, min(coalesce(until_ms, :now), :until) - max(since_ms, :since))) FROM whereabouts"
            " WHERE state = 'held' AND department = :dept"
        )
        values = {"now": round(now * 1000), "since": since * 1000, "until": until * 1000, "dept": dept}
        assert round(held[dept] * 1000) == (db.execute(sql, values).fetchone()[0] or 0)
