"""Many units that wait and then do not: what the monitor does for each, and what it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas import facts as f
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.monitor.events import Entry, Publisher
from services.monitor.history import reads as history_reads
from services.monitor.history.reads import Filter
from services.monitor.http import access
from services.monitor.parts import NOTED, PART, RENDERED, WRITTEN, Answer, Parts, at_once
from services.monitor.views.ordered import SLACK
from services.monitor.views.rows import Rows
from services.monitor.views.views import Views
from services.monitor.views.waiting import One, Waiting
from tests.support.page import CLOUD, adopted
from tests.unit.test_custody_rules import Step, granted, job
from tests.unit.test_monitor_core import Desk

MANY = 3 * SLACK


def test_who_waits_no_more_is_passed_and_taken_out_in_the_end() -> None:
    waiting = Waiting()
    one = One("hpc", 1.0, {"code": "queue"})
    for number in range(MANY):
        waiting.note(str(number), "pending", one)
    for number in range(0, MANY, 2):
        waiting.drop(str(number))
    assert waiting.first("hpc", 3) == ["1", "3", "5"]
    waiting.note("2", "pending", one)  # again, in its own place
    assert waiting.first("hpc", 3) == ["1", "2", "3"]
    for number in range(MANY):
        waiting.drop(str(number))
    assert waiting.first("hpc", 3) == []
    assert waiting._order["hpc"].held <= SLACK
    assert waiting.reasons("hpc") == []


class Counted:
    """Work of the monitor, counted: rows rendered, units looked at, changes taken in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rendered = self.seen = self.noted = 0
        row, seen, note, rendered = Views.row, Rows._seen, Rows._note, Views.rendered

        def counted_row(views: Views, unit: Unit) -> dict[str, Any]:
            self.rendered += 1
            return row(views, unit)

        def counted_seen(rows: Rows, *args: Any) -> bytes | None:
            self.seen += 1
            return seen(rows, *args)

        def counted_note(rows: Rows, name: str) -> None:
            self.noted += 1
            note(rows, name)

        def counted_rendered(views: Views, name: str) -> bytes:
            self.seen += 1
            return rendered(views, name)

        monkeypatch.setattr(Views, "row", counted_row)
        monkeypatch.setattr(Views, "rendered", counted_rendered)
        monkeypatch.setattr(Rows, "_seen", counted_seen)
        monkeypatch.setattr(Rows, "_note", counted_note)

    def of(self, work: Parts[Answer]) -> tuple[Answer, list[tuple[int, int, int]]]:
        """Its answer, and how much each of its parts rendered, looked at and took in."""
        counts = []
        while True:
            self.rendered = self.seen = self.noted = 0
            try:
                next(work)
            except StopIteration as end:
                counts.append((self.rendered, self.seen, self.noted))
                return end.value, counts
            counts.append((self.rendered, self.seen, self.noted))


def many(desk: Desk, count: int) -> Desk:
    """An array, whose elements wait, and a job besides."""
    return desk.play(adopted(CLOUD), *granted(), job("1", array=tuple(range(count))), job("2"))


def cancelled(count: int) -> list[Step]:
    return [("admission", f.JobCancelled(job=f"1_{number}", user="alice")) for number in range(count)]


def test_no_read_however_large_does_more_than_a_part_before_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, counted = many(Desk(), 3_000), Counted(monkeypatch)
    reads: list[Callable[[], Parts[Any]]] = [
        desk.views.refreshing,
        lambda: desk.views.job("1"),
        lambda: desk.views.queue(None, None),
        lambda: desk.views.queue("hpc", None, user="nobody"),
        lambda: desk.views.queue("hpc", frozenset(("held",))),
    ]
    for read in reads:
        for _ in range(2):  # also when all is there
            _, parts = counted.of(read())
            rendered, seen, noted = map(max, zip(*parts, strict=True))
            assert rendered <= PART // RENDERED + 1
            assert seen <= PART
            assert noted <= PART // NOTED
    body, parts = counted.of(access._written({"jobs": [{"unit": "1"}] * 3_000, "cursor": None}, "jobs"))
    assert orjson.loads(body) == {"jobs": [{"unit": "1"}] * 3_000, "cursor": None}
    assert len(parts) >= 3_000 * WRITTEN / PART
    assert len(desk.job("1")["units"]) == 3_000  # type: ignore[index]


def test_a_page_of_a_queue_costs_a_page_however_many_wait_or_have_been_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, counted = many(Desk(), 300), Counted(monkeypatch)
    at_once(desk.views.refreshing())
    for gone, first in ((0, "1_0"), (100, "1_100"), (290, "1_290")):
        desk.play(*cancelled(gone))
        at_once(desk.views.refreshing())
        page, parts = counted.of(desk.views.queue(None, None, 5))
        assert [row["unit"] for row in orjson.loads(page)["jobs"]][:1] == [first]
        assert orjson.loads(page)["total"] == 301 - gone
        assert sum(seen for _, seen, _ in parts) == 5
        assert sum(rendered for rendered, _, _ in parts) <= 5
        counted.of(desk.views.job("2"))
        assert counted.seen == 0


def test_what_changes_while_it_is_taken_in_is_left_for_the_next_read() -> None:
    """In a rush of facts there would be no end of it."""
    desk = many(Desk(), 2_000)
    work, parts = desk.views.refreshing(), 0
    for _ in work:
        parts += 1
        desk.core.touched |= {f"1_{number}": None for number in range(2_000)}
    assert parts == 2_001 * NOTED // PART
    assert len(desk.core.touched) == 2_000


def test_who_goes_while_a_queue_is_read_is_left_out() -> None:
    desk = many(Desk(), 200)
    work = desk.views.queue(None, None)
    at_once(desk.views.refreshing())
    next(work)
    desk.play(*cancelled(200))
    at_once(desk.views.refreshing())
    for name in [f"1_{number}" for number in range(100, 200)]:
        del desk.custody.state.units[name]
    rows = orjson.loads(at_once(work))["jobs"]
    assert {row["state"] for row in rows} == {"pending"}
    assert rows[-1]["unit"] == "2"
    assert "1_150" not in [row["unit"] for row in rows]


def test_a_page_of_events_looks_at_a_page_of_events() -> None:
    publisher, looked = Publisher(Custody()), []

    class Looked(str):
        def __eq__(self, other: object) -> bool:
            looked.append(other)
            return str(self) == other

        __hash__ = str.__hash__

    publisher.ring.extend(Entry(n, 0, Looked("hpc"), "k", b"") for n in range(1, 5_001))
    for oldest in (True, False):
        looked.clear()
        page = at_once(publisher.page(2_500, "hpc", (), 10, oldest=oldest))
        assert [entry.position for entry in page] == list(range(2_501, 2_511) if oldest else range(4_991, 5_001))
        assert len(looked) <= 12
    parts = 0
    for _ in publisher.page(0, "web", (), 10, oldest=True):
        parts += 1
    assert parts == 5_000 // PART


async def test_of_what_is_over_nothing_is_rendered_until_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, rendered = Desk(tmp_path / "h.sqlite"), []
    desk.play(adopted(CLOUD), *granted(), job("1"), job("2"))
    plain = Views.row

    def row(self: Views, unit: Unit) -> dict[str, Any]:
        rendered.append(unit.id)
        return plain(self, unit)

    monkeypatch.setattr(Views, "row", row)
    desk.play(("admission", f.JobCancelled(job="1", user="alice")))
    queue = orjson.loads(at_once(desk.views.queue(None, None)))
    assert ([one["unit"] for one in queue["jobs"]], queue["total"]) == (["2"], 1)
    assert rendered == ["2"]
    over = orjson.loads(at_once(desk.views.queue(None, frozenset(("cancelled",)))))
    assert [one["state"] for one in over["jobs"]] == ["cancelled"]
    assert rendered == ["2", "1"]


async def test_a_queue_has_no_more_rows_than_fit_and_tells_how_many_there_are(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "h.sqlite")
    desk.play(adopted(CLOUD), *granted(), job("1"), job("2"), job("3"))
    whole = orjson.loads(at_once(desk.views.queue(None, None)))
    row = len(orjson.dumps(whole["jobs"][0]))
    some = orjson.loads(at_once(desk.views.queue(None, None, bytes_max=row)))
    assert (len(some["jobs"]) < 3, some["total"]) == (True, 3)


def test_of_jobs_of_the_history_that_are_on_another_page_only_their_place_is_looked_up(tmp_path: Path) -> None:
    """Counted in steps of SQLite's machine: what a row shows takes some hundred."""
    desk, steps = many(Desk(tmp_path / "h.sqlite"), 2_000), [0]
    assert desk.history is not None
    desk.history.commit()
    db = desk.history.database

    def hundred() -> int:
        steps[0] += 100
        return 0

    db.set_progress_handler(hundred, 100)
    assert len(history_reads.jobs(db, Filter(limit=10), 10_000)["jobs"]) == 10
    db.set_progress_handler(None, 0)
    assert steps[0] < 50 * 2_000
