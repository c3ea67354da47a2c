"""What jobs have used, as the monitor folds and shows it: while they run by the word of their guests, later by the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.cli import show
from schemas import facts as f
from schemas.measures import JobMeasured, JobMeasures
from schemas.times import exact
from services.monitor.history import reads
from services.monitor.history.reads import Filter
from services.monitor.views import levels as module
from services.monitor.views.levels import Levels
from services.monitor.views.times import iso
from tests.unit.test_custody_rules import Step, allocated, closed, granted, job, placed, reported
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk

ENDED: Step = ("executor", f.VmEnded(unit="1", attempt=1, rank=0, why="terminated"))


def measured(cpu: float, peak: float | None = None, attempt: int = 1, ranks: int = 1) -> Step:
    fact = f.AttemptMeasured(
        unit="1", attempt=attempt, cpu_seconds=cpu, max_rss_mb=peak, ranks=ranks, heard_at=100.0 + attempt
    )
    return "admission", fact


def said(cpu: float, peak: float | None = None, attempt: int = 1, unit: str = "1") -> bytes:
    one = JobMeasured(unit=unit, attempt=attempt, cpu_seconds=cpu, max_rss_mb=peak, heard_at=exact(50.0))
    return msgspec.json.encode(JobMeasures(jobs=(one,)))


@pytest.fixture
def levels() -> Levels:
    return Levels(lambda: 0.0)


@pytest.fixture
def desk(levels: Levels, tmp_path: Path) -> Desk:
    found = Desk(tmp_path / "history.sqlite").play(ADOPTED, *granted(), job(), placed(), allocated(), BEGAN)
    found.views.measured = levels.job
    return found


def seen(desk: Desk) -> dict[str, Any]:
    view = desk.job("1", 200.0)
    assert view is not None
    return view


def figures(view: dict[str, Any]) -> tuple[float | None, float | None, bool]:
    return view["cpu_seconds"], view["max_rss_mb"], view["so_far"]


def past(desk: Desk) -> dict[str, Any]:
    assert desk.history is not None
    desk.history.commit()
    found = reads.job(desk.history.database, "1", 1 << 50)
    assert found is not None
    return found


def lines(view: dict[str, Any]) -> list[str]:
    text = show.render(show.normal(view, "1")).splitlines()
    return [line.partition(":")[2].strip() for line in text if line.startswith(("CPU time", "peak memory"))]


def test_of_a_job_that_runs_it_is_what_its_guests_said_last(desk: Desk, levels: Levels) -> None:
    assert figures(seen(desk)) == (None, None, False)
    assert lines(seen(desk)) == ["unknown", "unknown"]
    assert "unknown  unknown" in show.render(show.normal(seen(desk), "1"))
    levels.measured_jobs(said(3.0, 100.0))
    levels.measured_jobs(b"rubbish")
    levels.measured_jobs(said(4.5, 100.0))
    assert figures(seen(desk)) == (4.5, 100.0, True)
    assert lines(seen(desk)) == ["4.50s so far", "100.0 MiB so far"]
    assert seen(desk)["attempts"][0]["heard_at"] == iso(50.0)
    assert desk.core.state.tallies.cpu_s == {}  # a level is folded nowhere


def test_what_has_ended_has_used_what_the_journal_says(desk: Desk, levels: Levels) -> None:
    levels.measured_jobs(said(4.5, 100.0))
    desk.play(closed(disposal=f.Disposal.TIMEOUT))
    assert figures(seen(desk)) == (4.5, 100.0, True)  # not final: the fact is still to come
    desk.play(ENDED, measured(7.5, 90.0))
    assert figures(seen(desk)) == (7.5, 90.0, False)
    assert lines(seen(desk)) == ["7.50s", "90.0 MiB"]
    assert desk.core.state.tallies.cpu_s == {"hpc": 7.5}
    assert [past(desk)[name] for name in ("cpu_seconds", "max_rss_mb")] == [7.5, 90.0]


def test_nothing_is_said_of_a_job_that_has_not_begun() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed())
    assert lines(seen(desk)) == []
    assert "unknown" not in show.render(show.normal(seen(desk), "1"))


def test_several_attempts_add_up_and_the_peak_is_that_of_the_largest(desk: Desk, levels: Levels) -> None:
    desk.play(
        closed(), ENDED, measured(5.0, 300.0), placed(attempt=2), ("admission", f.AttemptBegan(unit="1", attempt=2))
    )
    levels.measured_jobs(said(1.5, 80.0, attempt=2))
    assert figures(seen(desk)) == (6.5, 300.0, True)
    desk.play(("admission", f.AttemptReported(unit="1", attempt=2, exit=0, cpu_seconds=2.0, max_rss_mb=81.0)))
    assert figures(seen(desk)) == (7.0, 300.0, False)
    assert [each["cpu_seconds"] for each in seen(desk)["attempts"]] == [5.0, 2.0]
    assert [each["cpu_seconds"] for each in past(desk)["attempts"]] == [5.0, 2.0]
    assert past(desk)["cpu_seconds"] == 7.0
    assert desk.core.state.tallies.cpu_s == {"hpc": 7.0}


def suspended(desk: Desk) -> None:
    """The job goes on in attempt 2, in its VM."""
    saved: Step = ("executor", f.VmEnded(unit="1", attempt=1, rank=0, why=f.SUSPENDED))
    again: Step = ("executor", f.VmAllocated(unit="1", attempt=2, rank=0, vm=7, host="h1"))
    desk.play(closed(disposal=f.Disposal.SUSPEND), saved, placed(attempt=2), again)
    desk.play(
        ("executor", f.VmStarted(unit="1", attempt=2, rank=0)), ("admission", f.AttemptBegan(unit="1", attempt=2))
    )
    assert desk.custody.state.units["1"].life == 1


@pytest.mark.parametrize("late", [False, True])
def test_what_goes_on_in_its_vm_counts_once(desk: Desk, levels: Levels, late: bool) -> None:
    """Guests count from the beginning; also if the fact of the first attempt comes after the end of the second."""
    suspended(desk)
    first = measured(5.0, 100.0)
    if not late:
        desk.play(first)
        levels.measured_jobs(said(6.0, attempt=2))
        assert [each["cpu_seconds"] for each in seen(desk)["attempts"]] == [5.0, 1.0]
    second = f.AttemptReported(unit="1", attempt=2, exit=0, cpu_seconds=8.0, max_rss_mb=120.0)
    desk.play(("admission", second), *([first] if late else []))
    assert [each["cpu_seconds"] for each in seen(desk)["attempts"]] == [5.0, 3.0]
    assert [each["cpu_seconds"] for each in past(desk)["attempts"]] == [5.0, 3.0]
    assert (seen(desk)["cpu_seconds"], past(desk)["cpu_seconds"]) == (8.0, 8.0)
    assert desk.core.state.tallies.cpu_s == {"hpc": 8.0}


def test_ranks_that_were_heard_after_the_report_count(desk: Desk) -> None:
    desk.play(reported(), measured(9.0, 50.0, ranks=2))
    assert (seen(desk)["cpu_seconds"], seen(desk)["attempts"][0]["ranks_heard"]) == (9.0, 2)
    assert desk.core.state.tallies.cpu_s == {"hpc": 9.0}


def test_what_is_folded_survives_a_snapshot(desk: Desk) -> None:
    suspended(desk)
    desk.play(measured(5.0, 100.0))
    before = seen(desk)
    desk.core.load(desk.core.dump())
    assert seen(desk) == before


def test_the_history_has_it_of_each_job(desk: Desk) -> None:
    desk.play(closed(disposal=f.Disposal.KILL), ENDED, measured(7.5, 90.0))
    assert desk.history is not None
    desk.history.commit()
    (row,) = reads.jobs(desk.history.database, Filter(), 1 << 50)["jobs"]
    assert (row["cpu_seconds"], row["max_rss_mb"]) == (7.5, 90.0)


def test_attempts_that_nobody_has_spoken_of_for_long_make_room(levels: Levels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEASURED_MAX", 2)
    for unit in ("1", "2", "1", "3"):
        levels.measured_jobs(said(1.0, unit=unit))
    assert [unit for unit in ("1", "2", "3") if levels.job(unit, 1) is not None] == ["1", "3"]


def test_elapsed_is_the_same_in_memory_and_history(tmp_path: Path) -> None:
    """Also where both times are no whole milliseconds."""
    desk = Desk(tmp_path / "history.sqlite").play(ADOPTED, *granted(), job(), at=1.0)
    desk.play(placed(), at=2.0004).play(BEGAN, at=2.5).play(reported(), at=3.0006)
    assert (seen(desk)["elapsed_s"], past(desk)["elapsed_s"]) == (1.001, 1.001)
