"""The read model, its pictures, its history and its events: fed with facts, asked like people ask."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from phoenix.cli import show
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.units import exact, seconds
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.domain.text import sentence, short
from services.monitor.core.monitor import MonitorCore
from services.monitor.events import Publisher
from services.monitor.history import reads as history_reads
from services.monitor.history.file import History
from services.monitor.history.reads import Filter
from services.monitor.history.schema import dump
from services.monitor.http.access import whole
from services.monitor.parts import at_once
from services.monitor.views.views import Views
from tests.unit.test_custody_rules import Step, allocated, closed, granted, job, placed, reported

CONFIG = CloudConfig(
    name="c",
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web", web=WebPolicy()),
    ),
)
ADOPTED: Step = ("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CONFIG))
BEGAN: Step = ("admission", f.AttemptBegan(unit="1", attempt=1))


def shown(views: Views, name: str, now: float | None = None) -> dict[str, Any] | None:
    """A job, as it is answered."""
    found = at_once(views.job(name, now))
    view: dict[str, Any] | None = None if found is None else orjson.loads(whole(found[0], "units", found[1]))
    return view


class Desk:
    """A monitor's fold: facts in, views out; each step is one second."""

    def __init__(self, history: Path | None = None) -> None:
        self.custody = Custody()
        self.publisher = Publisher(self.custody)
        self.history = History(history) if history else None
        if self.history:
            self.history.open()
        self.core = MonitorCore(self.custody, self._watch)
        self.views = Views(self.core)
        self.position = 0

    def _watch(self, fact: f.Fact, meta: Meta) -> None:
        self.publisher.note(fact, meta)
        if self.history:
            self.history.note(self.core, fact, meta)

    def play(self, *steps: Step, at: float | None = None) -> Desk:
        for writer, fact in steps:
            self.position += 1
            now = float(self.position) if at is None else at
            void = fold_fact(self.custody, fact, self.position, 0, writer, now)
            broken = tuple(self.custody.newly_broken)
            meta = Meta(
                position=self.position,
                index=0,
                writer=writer,
                at=self.custody.state.at,
                void=void,
                broken=broken,
                unsaved=tuple(self.custody.newly_unsaved),
            )
            self.core.apply(fact, meta)
            assert self.core.check() == []
        return self

    def queue(self, *args: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = orjson.loads(at_once(self.views.queue(*(args or (None, None)))))["jobs"]
        return rows

    def job(self, name: str, now: float | None = None) -> dict[str, Any] | None:
        return shown(self.views, name, now)

    def state(self, name: str = "1") -> str:
        view = self.job(name)
        assert view is not None
        return str(view["state"])


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([], "pending"),
        ([("admission", f.JobHeld(job="1", user="a"))], "held"),
        ([placed()], "starting"),
        ([placed(), BEGAN], "running"),
        ([placed(), BEGAN, closed()], "pending"),
        ([placed(), BEGAN, closed(disposal=f.Disposal.SUSPEND)], "suspended"),
        ([placed(), BEGAN, ("admission", f.JobCancelled(job="1", user="a"))], "completing"),
        ([placed(), BEGAN, ("executor", f.HostLost(host="h1", reason="x"))], "completing"),
        ([placed(), BEGAN, reported()], "completed"),
        ([placed(), BEGAN, reported(exit=3)], "failed"),
        ([placed(), BEGAN, closed(disposal=f.Disposal.TIMEOUT)], "timeout"),
        ([placed(), BEGAN, closed(disposal=f.Disposal.KILL)], "killed"),
        ([("admission", f.JobCancelled(job="1", user="a"))], "cancelled"),
    ],
)
def test_states_that_people_see(steps: list[Step], state: str) -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), *steps)
    assert desk.state() == state
    over = state in ("completed", "failed", "timeout", "killed", "cancelled")
    assert [row["state"] for row in desk.queue()] == ([] if over else [state])


def test_while_starts_are_paused_whoever_is_to_start_is_told_so() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed())
    paused: Step = ("executor", f.StartsPaused(since=3.0, failed=3, tried=3, why="no datastore"))
    desk.play(paused)
    [row] = desk.queue()
    assert (row["state"], short(row["reason"])) == ("starting", "starts paused")
    assert row["reason"]["paused_since"] == "1970-01-01T00:00:03.000Z"
    assert "since 1970-01-01T00:00:03Z, because they fail on most hosts (no datastore)" in sentence(row["reason"])
    desk.play(("executor", f.StartsResumed(why="a start succeeded")))
    assert short(desk.queue()[0]["reason"]) == "starting"


def test_what_is_held_by_nobody_says_why_until_it_is_released() -> None:
    why = because.Held(failed=5, vm="deploy refused: no datastore")
    desk = Desk().play(ADOPTED, *granted(), job(), ("admission", f.JobHeld(job="1", user="", reason=why)))
    assert short(desk.queue()[0]["reason"]) == "starts failed, held"
    assert "no datastore" in sentence(desk.queue()[0]["reason"])
    desk.play(("admission", f.JobResumed(job="1", user="a")), ("admission", f.JobHeld(job="1", user="a")))
    assert short(desk.queue()[0]["reason"]) == "held"


def test_the_queue_row_follows_every_change() -> None:
    desk = Desk().play(ADOPTED, *granted(), job())
    assert desk.queue()[0]["state"] == "pending"
    desk.play(placed(), BEGAN)
    assert (desk.queue()[0]["state"], desk.queue()[0]["hosts"]) == ("running", ["h1"])


def test_the_queue_is_in_order_of_submission_and_bounded() -> None:
    desk = Desk().play(ADOPTED, job("2"), job("10"), job("11", array=(2, 10)))
    assert [row["unit"] for row in desk.queue()] == ["2", "10", "11_2", "11_10"]
    limited = orjson.loads(at_once(desk.views.queue(None, None, 1)))
    assert (len(limited["jobs"]), limited["total"]) == (1, 4)
    assert desk.queue("web", None) == []
    short = orjson.loads(at_once(desk.views.queue(None, None, user="alice", short=True)))
    assert short["lines"][0] == ["2", "j", "hpc", "alice", "pending", 1, 1, None, {"code": "queue"}]
    assert orjson.loads(at_once(desk.views.queue(None, None, user="bob")))["total"] == 0


def test_a_job_of_a_service_says_so() -> None:
    desk = Desk().play(ADOPTED, job("1", service="bof", best_effort=True), job("2"))
    shown, plain = desk.job("1"), desk.job("2")
    assert shown is not None
    assert plain is not None
    assert (shown["service"], shown["best_effort"]) == ("bof", True)
    assert "service" not in plain
    assert "it is preempted for production" in show.render(show.normal(shown, "1"))


def test_a_job_that_waits_again_has_no_time_of_its_earlier_attempt() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)

    def shown() -> tuple[str, object, object]:
        line = orjson.loads(at_once(desk.views.queue(None, None, short=True)))["lines"][0]
        return line[4], line[7], desk.queue()[0]["started_at"]

    began = desk.position
    assert shown() == ("running", exact(began), exact(began))
    desk.play(closed())
    assert shown() == ("pending", None, None)
    desk.play(placed(attempt=2), ("admission", f.AttemptBegan(unit="1", attempt=2)))
    assert shown()[1] == exact(desk.position)


def test_a_job_tells_the_life_of_each_attempt() -> None:
    steps = [placed(), BEGAN, closed(), placed(attempt=2), ("admission", f.AttemptBegan(unit="1", attempt=2))]
    desk = Desk().play(ADOPTED, *granted(), job(), *steps, reported(2))
    view = desk.job("1")
    assert view is not None
    first, second = view["attempts"]
    assert (first["disposal"], first["why"]["code"], first["ended_at"] is not None) == ("requeue", "reclaimed", True)
    assert (second["exit"], view["exit_code"], view["preempted"]) == (0, 0, 1)
    assert view["submitted_at"] == "1970-01-01T00:00:05.000Z"


@pytest.mark.parametrize(
    ("disposal", "code", "times"),
    [
        (f.Disposal.SUSPEND, because.Reclaimed, 1),
        (f.Disposal.MIGRATE, because.Reclaimed, 1),
        (f.Disposal.SUSPEND, because.Preempted, 1),
        (f.Disposal.KILL, because.Reclaimed, 1),
        (f.Disposal.MIGRATE, because.Balanced, 0),
        (f.Disposal.REQUEUE, because.EndedVm, 0),
    ],
)
def test_preempted_is_whose_hosts_were_wanted(disposal: f.Disposal, code: because.Kind, times: int) -> None:
    ended = ("scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=disposal, why=code()))
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN, ended)
    view = desk.job("1")
    assert view is not None
    assert view["preempted"] == times


def test_the_time_that_is_shown_is_the_one_that_counts_towards_the_limit() -> None:
    """Each step is a second.  It runs for 1 s, is suspended for 2 s, runs for 2 s, and moves."""
    desk = Desk().play(ADOPTED, *granted(), *granted("h2"), job(), placed(), BEGAN)

    def shown() -> tuple[str, float, float | None]:
        line = orjson.loads(at_once(desk.views.queue(None, None, short=True)))["lines"][0]
        view = desk.job("1")
        assert view is not None
        return line[4], view["ran_before_s"], None if line[7] is None else desk.position - (seconds(line[7]) or 0.0)

    idle: Step = ("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CONFIG))
    assert shown() == ("running", 0.0, 0.0)
    desk.play(closed(disposal=f.Disposal.SUSPEND), idle)
    assert shown() == ("suspended", 1.0, None)
    desk.play(placed(attempt=2))
    assert shown() == ("starting", 1.0, None)
    desk.play(("admission", f.AttemptBegan(unit="1", attempt=2)), idle)
    assert shown() == ("running", 1.0, 2.0)
    desk.play(closed(attempt=2, disposal=f.Disposal.MIGRATE), placed(attempt=3, hosts=("h2",)))
    desk.play(("admission", f.AttemptBegan(unit="1", attempt=3)), ("executor", f.HostLost(host="h2", reason="x")))
    assert shown() == ("completing", 3.0, 4.0)
    desk.play(closed(attempt=3))
    assert shown() == ("pending", 0.0, None)  # it starts anew
    desk.play(placed(attempt=4), ("admission", f.AttemptBegan(unit="1", attempt=4)))
    assert shown() == ("running", 0.0, 0.0)


def test_who_is_suspended_is_not_told_to_have_ended() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN, closed(disposal=f.Disposal.SUSPEND))
    assert desk.queue()[0]["reason"]["code"] == "queue"


def test_an_array_with_an_element_that_has_no_exit_code_has_no_good_one() -> None:
    cancelled: Step = ("admission", f.JobCancelled(job="1_2", user="alice"))
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1, 2)), placed("1_1"), cancelled, reported(unit="1_1"))
    shown = desk.job("1")
    assert shown is not None
    assert (shown["state"], shown["exit_code"]) == ("cancelled", None)


def test_an_array_is_one_job_with_many_units() -> None:
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1, 2)), placed("1_1"))
    view = desk.job("1")
    assert view is not None
    assert (view["state"], view["counts"]) == ("starting", {"pending": 1, "starting": 1})


def test_claims_are_measured_from_demand_to_holding() -> None:
    want = ("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2))
    desk = Desk().play(ADOPTED, *granted("h1"), *granted("h2"), want)
    assert desk.views.summary(0.0)["claims_open"][0]["hosts"] == 2
    release = ("scheduler.hpc", f.HostReleased(host="h1"))
    for name in ("h1", "h2"):
        desk.play(("scheduler.hpc", f.HostReleased(host=name)), ("executor", f.HostCleared(host=name)))
        desk.play(("provisioner", f.HostGranted(host=name, dept="web")))
    summary = desk.views.summary(0.0)
    assert summary["claims_open"] == []
    assert summary["claim_max_s"] == 6.0
    assert desk.play(release).views.summary(0.0)["claim_max_s"] == 6.0  # void: it changes nothing


def test_owners_over_time() -> None:
    desk = Desk().play(ADOPTED, *granted("h1"), *granted("h2", dept="web"))
    assert desk.views.overview()["owners"] == {"hpc": 1, "web": 1}
    timeline = desk.views.summary(0.0)["timeline"]
    assert [one["owners"] for one in timeline][-3:] == [{"hpc": 1}, {"(free)": 1, "hpc": 1}, {"hpc": 1, "web": 1}]


def test_a_snapshot_of_the_read_model_gives_the_same_pictures() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)
    other = Desk()
    other.custody.load(desk.custody.dump())
    other.core.load(desk.core.dump())
    assert other.core.dump() == desk.core.dump()
    assert at_once(other.views.queue(None, None)) == at_once(desk.views.queue(None, None))


def test_void_facts_are_counted_and_never_become_events() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed("7"), placed())
    assert [e.kind for e in desk.publisher.ring][-2:] == ["job.submitted", "unit.placed"]
    assert desk.views.overview()["voids"] == {"unit_unknown": 1}


def test_events_go_to_whom_they_concern() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), allocated())
    desk.play(("scheduler.hpc", f.HostReleased(host="h1")))
    found = [(e.kind, e.department) for e in desk.publisher.ring]
    assert found[0] == ("config.adopted", "site")
    assert found[1] == ("host.described", "site")
    assert found[-4:] == [
        ("job.submitted", "hpc"),
        ("unit.placed", "hpc"),
        ("vm.allocated", "hpc"),
        ("host.released", "hpc"),
    ]
    assert [e.position for e in desk.publisher.after(6, "hpc")] == [7, 8]


class TestHistory:
    STEPS = (ADOPTED, *granted(), job(), placed(), BEGAN, closed(), placed(attempt=2), reported(2))

    @pytest.fixture
    async def desk(self, tmp_path: Path) -> AsyncIterator[Desk]:
        desk = Desk(tmp_path / "h.sqlite")
        yield desk
        assert desk.history is not None
        await desk.history.close()

    async def test_jobs_attempts_and_whereabouts(self, desk: Desk) -> None:
        assert desk.history is not None
        found = await desk.play(*self.STEPS).history.ask(history_reads.job, "1", 20_000)  # type: ignore[union-attr]
        assert found is not None
        assert (found["state"], found["exit_code"], found["user"]) == ("completed", 0, "alice")
        assert [(a["attempt"], a["disposal"], a["exit"]) for a in found["attempts"]] == [
            (1, "requeue", None),
            (2, None, 0),
        ]
        rows = sqlite3.connect(desk.history.path).execute(
            "SELECT state, department, since_ms, until_ms FROM whereabouts"
        )
        assert list(rows) == [("absent", "", 2000, 3000), ("free", "", 3000, 4000), ("held", "hpc", 4000, None)]

    async def test_folding_twice_changes_nothing(self, desk: Desk, tmp_path: Path) -> None:
        await desk.play(*self.STEPS).history.flush()  # type: ignore[union-attr]
        once = _content(tmp_path / "h.sqlite")
        again = Desk(tmp_path / "h.sqlite").play(*self.STEPS)
        assert again.history is not None
        await again.history.close()
        assert _content(tmp_path / "h.sqlite") == once

    async def test_it_goes_on_where_it_was(self, desk: Desk, tmp_path: Path) -> None:
        await desk.play(*self.STEPS[:6]).history.flush()  # type: ignore[union-attr]
        whole = Desk(tmp_path / "whole.sqlite").play(*self.STEPS)
        rest = Desk(tmp_path / "h.sqlite").play(*self.STEPS)
        for one in (whole, rest):
            assert one.history is not None
            await one.history.close()
        assert _content(tmp_path / "h.sqlite") == _content(tmp_path / "whole.sqlite")

    async def test_a_broken_file_is_set_aside(self, tmp_path: Path) -> None:
        (tmp_path / "b.sqlite").write_bytes(b"not a database, but long enough to be looked at " * 50)
        desk = Desk(tmp_path / "b.sqlite").play(*self.STEPS)
        assert desk.history is not None
        await desk.history.flush()
        assert len((await desk.history.ask(history_reads.jobs, Filter(department="hpc"), 0))["jobs"]) == 1
        assert (tmp_path / "b.broken").exists()
        await desk.history.close()


def _content(path: Path) -> list[str]:
    return list(dump(sqlite3.connect(path)))


def test_reasons_name_what_custody_knows() -> None:
    desk = Desk().play(ADOPTED, job(held=True))
    assert desk.queue()[0]["reason"]["code"] == "held"
    assert because.fields(because.Held()) == {}
