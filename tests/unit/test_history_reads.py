"""Jobs of the history by filter and page by page, one job, an array; and a file that another version wrote."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from services.monitor.core.monitor import ATTEMPTS_MAX
from services.monitor.history import reads as history_reads
from services.monitor.history.file import History
from services.monitor.history.reads import SORTS, Filter
from services.monitor.views.views import Views
from tests.properties.test_accounting import house
from tests.properties.test_history import Written
from tests.unit.test_monitor_core import shown

HOUR = 3600.0


@pytest.fixture(scope="module")
def written() -> Written:
    """Ten jobs of hpc: six of ann and an array of four of bob; some ended, one failed, some wait."""
    world = house()
    for number in range(6):
        world.submit(user="ann", name=f"train-{number}", cores=4, walltime_s=7200.0)
        world.now += 60.0 * (number % 2)
    world.submit(user="bob", name="sweep", array=(2, 9, 10, 100), cores=4)
    world.settle()
    for unit, code in (("1", 0), ("2", 3)):
        world.begin(unit)
        world.now += 100.0
        world.report(unit, exit=code)
    world.settle()
    return Written().fold(world)


def asked(written: Written, **fields: Any) -> dict[str, Any]:
    return history_reads.jobs(written.db, Filter(**fields), round(written.core.custody.state.at * 1000))


def units(found: dict[str, Any]) -> list[str]:
    return [job["unit"] for job in found["jobs"]]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("ascending", [True, False])
def test_pages_are_the_whole_in_order_and_none_comes_twice(written: Written, sort: str, ascending: bool) -> None:
    order: dict[str, Any] = {"sort": sort, "ascending": ascending}
    whole, pages, cursor = units(asked(written, **order)), [], None
    assert len(whole) == len(set(whole)) == 10
    for _ in range(4):
        page = asked(written, **order, limit=3, after=cursor)
        pages += units(page)
        cursor = page["next"]
    assert (pages, cursor) == (whole, None)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("ascending", [True, False])
def test_pages_are_of_the_first_ones_moment_whatever_happens_meanwhile(sort: str, ascending: bool) -> None:
    """Between the pages jobs start, end, run on, and are submitted."""
    world = house()
    for number in range(8):
        world.submit(user="ann", name=f"train-{number}", cores=1 + number % 4, walltime_s=7200.0)
        world.now += 10.0
    world.settle()
    running = [name for name, unit in world.custody.state.units.items() if unit.live]
    for unit in running:
        world.begin(unit)
        world.now += 7.0
    written, order = Written().fold(world), {"sort": sort, "ascending": ascending}
    whole = units(asked(written, **order))
    page = asked(written, **order, limit=3)
    pages = units(page)
    while page["next"]:
        world.now += 50.0
        if running:
            world.report(running.pop(), exit=0)
        world.submit(user="bob", name="late", cores=1)
        world.settle()
        page = asked(written.fold(world), **order, limit=3, after=page["next"])
        pages += units(page)
    assert pages == whole


@pytest.mark.parametrize("sort", ["submitted", "cores"])
def test_of_equal_ones_numbers_decide_not_text(written: Written, sort: str) -> None:
    found = units(asked(written, sort=sort, ascending=True))
    assert found == ["1", "2", "3", "4", "5", "6", "7_2", "7_9", "7_10", "7_100"]
    assert units(asked(written, sort=sort)) == found[::-1]


def test_filters(written: Written) -> None:
    assert sorted(units(asked(written, user="ann"))) == ["1", "2", "3", "4", "5", "6"]
    assert units(asked(written, states=("failed",))) == ["2"]
    assert units(asked(written, states=("failed", "completed"), ascending=True)) == ["1", "2"]
    assert units(asked(written, name="train-[12]", ascending=True)) == ["2", "3"]
    assert asked(written, department="web")["jobs"] == []
    [host] = asked(written, states=("completed",))["jobs"][0]["hosts"]
    assert "1" in units(asked(written, host=host))
    assert asked(written, host=host[:1])["jobs"] == []
    first = asked(written, ascending=True, limit=1)["jobs"][0]
    assert (first["unit"], first["exit_code"], first["wait_s"]) == ("1", 0, 180.0)
    assert first["elapsed_s"] == 100.0


def test_a_job_is_of_a_period_if_it_was_there_in_it(written: Written) -> None:
    now = round(written.core.custody.state.at * 1000)
    assert "1" not in units(asked(written, since=now))
    assert len(asked(written, until=now + 1)["jobs"]) == 10
    assert asked(written, until=1_000_000_000)["jobs"] == []


def test_a_cursor_of_another_order_is_refused(written: Written) -> None:
    cursor = asked(written, limit=1)["next"]
    with pytest.raises(ValueError, match="of another order: submitted, descending"):
        asked(written, after=cursor, sort="wait")
    large = base64.urlsafe_b64encode(f'["submitted",false,{10**25},"1",0]'.encode()).decode()
    for nonsense in ("x", "AAAA", "é", large):
        with pytest.raises(ValueError, match="next"):
            asked(written, after=nonsense)


def test_an_array_is_told_with_its_elements(written: Written) -> None:
    found = history_reads.job(written.db, "7", 0)
    assert found is not None
    assert [unit["unit"] for unit in found["units"]] == ["7_2", "7_9", "7_10", "7_100"]
    assert (found["user"], found["ended_at"]) == ("bob", None)
    assert history_reads.job(written.db, "99", 0) is None


def test_a_file_of_another_form_or_journal_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    for journal, change in (("a", "UPDATE meta SET value = '0' WHERE key = 'version'"), ("b", "")):
        history = History(path)
        history.open(journal)
        assert history.skip_until == (0, 0)
        history.database.execute("INSERT OR REPLACE INTO meta VALUES ('position', '7')")
        history.database.execute(change)
        history.database.commit()
        history.database.close()
        history = History(path)
        history.open("b")
        assert history.skip_until == ((0, 0) if change else (7, 0))
        history.database.close()
        assert sqlite3.connect(tmp_path / "history.broken").execute("SELECT value FROM meta WHERE key = 'position'")


def test_a_job_is_told_alike_by_the_read_model_and_by_the_history_whatever_it_goes_through(tmp_path: Path) -> None:
    """What both say means the same: of a job that is held, or is placed, boots, fails, waits and is tried again."""
    world, told = house(), []
    job, other = world.submit(user="ann", cores=4, walltime_s=7200.0, retries=2), world.submit(user="ann", held=True)

    def same() -> None:
        written, now = Written().fold(world), world.now + 1.5
        for name in (job, other):
            live = shown(Views(written.core), name, now)
            kept = history_reads.job(written.db, name, round(now * 1000))
            assert live is not None
            assert kept is not None
            both = (
                "state",
                "submitted_at",
                "started_at",
                "ended_at",
                "elapsed_s",
                "attempt",
                "exit_code",
                "walltime_s",
            )
            assert {key: live[key] for key in both} == {key: kept[key] for key in both}
            attempts = ("attempt", "placed_at", "began_at", "ended_at", "disposal", "exit", "hosts")
            assert [{k: a[k] for k in attempts} for a in live["attempts"]] == [
                {k: a[k] for k in attempts} for a in kept["attempts"]
            ]
            told.append((live["state"], live["started_at"] is not None, live["attempt"]))

    same()
    for code in (3, 4, 0):
        world.settle()
        same()
        world.now += 7.0004
        world.begin(job)
        same()
        world.now += 90.0006
        world.report(job, exit=code)
        same()
    assert ("starting", False, 2) in told, "the first attempt's beginning is not the second's"
    assert ("completed", True, 3) in told
    assert ("pending", False, 1) in told


def test_what_not_all_attempts_are_remembered_of_is_left_out_and_not_told_too_small() -> None:
    world = house()
    job = world.submit(user="ann", cores=4, walltime_s=7200.0, retries=ATTEMPTS_MAX)
    for number in range(ATTEMPTS_MAX + 1):
        world.settle()
        world.begin(job)
        world.now += 1.0
        core = Written().fold(world).core if number >= ATTEMPTS_MAX - 1 else None
        view = shown(Views(core), job, world.now) if core is not None else None
        assert view is None or ("elapsed_s" in view) == (view["attempt"] == ATTEMPTS_MAX)
        world.report(job, exit=1)
    assert view is not None
    assert view["attempt"] == ATTEMPTS_MAX + 1
