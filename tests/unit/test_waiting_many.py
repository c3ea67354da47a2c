"""Many units that wait and then do not: what the monitor does for each, and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas import facts as f
from schemas.custody_state import Unit
from services.monitor.pictures.views import Views
from services.monitor.pictures.waiting import SLACK, One, Waiting
from tests.support.page import CLOUD, adopted
from tests.unit.test_custody_rules import granted, job
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
    assert len(waiting._order["hpc"]) <= SLACK
    assert waiting.reasons("hpc") == []


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
    queue = orjson.loads(desk.views.queue(None, None))
    assert ([one["unit"] for one in queue["jobs"]], queue["total"]) == (["2"], 1)
    assert rendered == ["2"]
    over = orjson.loads(desk.views.queue(None, frozenset(("cancelled",))))
    assert [one["state"] for one in over["jobs"]] == ["cancelled"]
    assert rendered == ["2", "1"]


async def test_a_queue_has_no_more_rows_than_fit_and_tells_how_many_there_are(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "h.sqlite")
    desk.play(adopted(CLOUD), *granted(), job("1"), job("2"), job("3"))
    whole = orjson.loads(desk.views.queue(None, None))
    row = len(orjson.dumps(whole["jobs"][0]))
    some = orjson.loads(desk.views.queue(None, None, bytes_max=row))
    assert (len(some["jobs"]) < 3, some["total"]) == (True, 3)
