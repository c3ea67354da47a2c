"""What the read model counts, keeps, and says has changed: one test for each of its promises."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from services.domain.custody import effects
from services.monitor.core import monitor as module
from services.monitor.core.monitor import Claim
from tests.support.closing import closing, left_out
from tests.unit.test_custody_rules import CANCEL, Step, allocated, closed, ended, granted, job, placed, reported
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk

HOUSE = (ADOPTED, *granted(), *granted("h2"))
WEB_H3 = granted("h3", dept="web")
FINAL: dict[str, tuple[Step, ...]] = {
    "completed": (placed(), BEGAN, reported()),
    "failed": (placed(), BEGAN, reported(exit=3)),
    "timeout": (placed(), BEGAN, closed(disposal=f.Disposal.TIMEOUT)),
    "killed": (placed(), BEGAN, closed(disposal=f.Disposal.KILL)),
    "cancelled": (CANCEL,),
}


def began(attempt: int = 1, unit: str = "1") -> Step:
    return "admission", f.AttemptBegan(unit=unit, attempt=attempt)


CLOSED_DEPARTMENT = ("admission", f.DepartmentClosed(dept="hpc"))


def ends(desk: Desk, unit: str = "1") -> list[float | None]:
    return [attempt.ended_at for attempt in desk.core.state.attempts[unit]]


# ------------------------------------------------------------------------------------------------------------------ counts


@pytest.mark.parametrize("how", FINAL)
def test_each_end_is_counted_once_and_only_the_good_ones_have_a_turnaround(how: str) -> None:
    desk = Desk().play(*HOUSE, job())
    submitted = desk.position
    desk.play(*FINAL[how])
    assert desk.core.state.counts == {how: 1}
    assert desk.core.state.turnaround_s == (desk.position - submitted if how == "completed" else 0.0)
    kept = desk.core.state.jobs["1"]
    assert (kept.final, kept.bad, kept.begun) == (1, int(how != "completed"), 1)


def test_the_mean_turnaround_is_that_of_what_completed() -> None:
    desk = Desk().play(*HOUSE, job(), job("2"), placed(), BEGAN, reported())  # 1: 4 s
    desk.play(placed("2"), began(unit="2"), reported(unit="2"))  # 6 s
    assert desk.core.state.counts == {"completed": 2}
    assert desk.views.summary(0.0)["mean_turnaround_s"] == 5.0


@pytest.mark.parametrize(
    ("disposal", "counted"),
    [(f.Disposal.REQUEUE, "requeued"), (f.Disposal.SUSPEND, "suspended"), (f.Disposal.MIGRATE, "migrated")],
)
def test_an_attempt_that_goes_on_is_counted_by_how(disposal: f.Disposal, counted: str) -> None:
    desk = Desk().play(*HOUSE, job(), placed(), BEGAN, closed(disposal=disposal))
    assert desk.core.state.counts == {counted: 1}
    desk.play(placed(attempt=2), began(2), closed(attempt=2, disposal=disposal))
    assert desk.core.state.counts == {counted: 2}


def test_an_attempt_that_fails_and_is_run_again_is_a_retry() -> None:
    desk = Desk().play(*HOUSE, job(retries=1), placed(), BEGAN, reported(exit=1))
    assert desk.core.state.counts == {"retried": 1}
    desk.play(placed(attempt=2), began(2), reported(2, exit=1))
    assert desk.core.state.counts == {"retried": 1, "failed": 1}


def test_a_unit_has_begun_once_however_often_it_does_and_at_the_latest_when_it_ends() -> None:
    desk = Desk().play(*HOUSE, job("1", array=(1, 2, 3)), placed("1_1"), began(unit="1_1"))
    kept = desk.core.state.jobs["1"]
    assert kept.begun == 1
    desk.play(closed("1_1"), placed("1_1", attempt=2), began(2, "1_1"), reported(2, unit="1_1"))
    assert kept.begun == 1
    desk.play(("admission", f.JobCancelled(job="1_2", user="alice")))
    assert (kept.begun, kept.final, kept.bad) == (2, 2, 1)
    desk.play(placed("1_3"), closed("1_3", disposal=f.Disposal.KILL))
    assert (kept.begun, kept.final, kept.bad) == (3, 3, 2)


# ---------------------------------------------------------------------------------------------------------------- attempts


def test_an_attempt_ended_when_it_first_did() -> None:
    """Its host is lost, then it is closed; a report may come later still."""
    desk = Desk().play(*HOUSE, job(), placed(), allocated(), BEGAN, ("executor", f.HostLost(host="h1", reason="x")))
    lost = float(desk.position)
    assert ends(desk) == [lost]
    desk.play(closed())
    assert ends(desk) == [lost]
    desk.play(reported())
    assert (ends(desk), desk.state()) == ([lost], "completed")


def test_of_several_words_on_an_attempts_end_the_first_counts() -> None:
    desk = Desk().play(*HOUSE, job(), placed(), allocated(), BEGAN, closed())
    at = float(desk.position)
    desk.play(ended(), ("executor", f.HostLost(host="h1", reason="x")))
    assert ends(desk) == [at]


def test_an_instance_drains_since_it_was_first_told_to() -> None:
    why = because.Reclaimed()
    desk = Desk().play(*HOUSE, *WEB_H3, placed("web.1", hosts=("h3",)), began(unit="web.1"))
    for until in (99.0, 50.0):
        fact = f.InstanceDraining(unit="web.1", attempt=1, until=until, reason=why)
        desk.play(("scheduler.web", fact))
    assert [a.draining_at for a in desk.core.state.attempts["web.1"]] == [float(desk.position - 1)]


def test_a_checkpoint_of_an_attempt_that_does_not_count_any_more_is_not_shown() -> None:
    def saved(attempt: int, percent: float) -> Step:
        return "admission", f.CheckpointReported(unit="1", attempt=attempt, percent=percent)

    desk = Desk().play(*HOUSE, job(), placed(), BEGAN, saved(1, 10.0))
    desk.play(closed(), placed(attempt=2), began(2), saved(1, 20.0), saved(2, 30.0))
    percents = [a.checkpoint and a.checkpoint.percent for a in desk.core.state.attempts["1"]]
    assert percents == [10.0, 30.0]


def test_so_many_attempts_are_kept_and_they_are_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 2)
    desk = Desk().play(*HOUSE, job())
    for number in (1, 2, 3):
        desk.play(placed(attempt=number), closed(attempt=number))
    assert [a.attempt for a in desk.core.state.attempts["1"]] == [2, 3]


# ----------------------------------------------------------------------------------------------------------------- touched


@pytest.mark.parametrize(
    ("before", "step", "touched"),
    [
        ([], job("1", array=(1, 2)), ["1_1", "1_2"]),
        ([job()], ("admission", f.JobHeld(job="1", user="a")), ["1"]),
        ([job()], placed(), ["1"]),
        ([job(), placed()], BEGAN, ["1"]),
        ([job(), placed(), BEGAN], closed(), ["1"]),
        ([job(), placed(), BEGAN], reported(), ["1"]),
        ([job(), placed(), BEGAN], ("executor", f.HostLost(host="h1", reason="x")), ["1"]),
        ([job(), placed(), allocated(), BEGAN, reported()], ended(), ["1"]),
        ([job()], CANCEL, ["1"]),
        ([job(), *granted("h3", dept="web"), placed("web.1", hosts=("h3",))], CLOSED_DEPARTMENT, ["1"]),
        (
            [job(), job("2"), placed(), placed("2", hosts=("h2",)), began(unit="2")],
            ("executor", f.StartsPaused(since=3.0, failed=3, tried=3, why="no datastore")),
            ["1"],
        ),
    ],
)
def test_whose_picture_changes_is_touched(before: list[Step], step: Step, touched: list[str]) -> None:
    desk = Desk().play(*HOUSE, *before)
    if step is CLOSED_DEPARTMENT:
        desk.play(("provisioner", left_out(desk.core.custody, "hpc")))
    desk.core.touched = {}
    desk.play(step)
    assert sorted(desk.core.touched) == touched


# --------------------------------------------------------------------------------------------------------- held and closed


def test_why_a_job_is_held_is_forgotten_when_it_ends() -> None:
    why = because.Held(failed=5, vm="deploy refused")
    desk = Desk().play(*HOUSE, job(), ("admission", f.JobHeld(job="1", user="", reason=why)))
    assert desk.core.state.holds == {"1": why}
    desk.play(CANCEL)
    assert desk.core.state.holds == {}
    desk.play(job("2"), ("admission", f.JobHeld(job="2", user="", reason=why)), *closing(desk.core.custody, "hpc"))
    assert desk.core.state.holds == {}


def test_a_department_that_closes_ends_what_was_open_there_and_nothing_else() -> None:
    desk = Desk().play(*HOUSE, *WEB_H3, job(), job("2"), job("3"), placed("web.1", hosts=("h3",)))
    desk.play(placed("2"), began(unit="2"), reported(unit="2"), placed("3"))
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2)), *closing(desk.core.custody, "hpc"))
    assert [desk.state(name) for name in ("1", "2", "3")] == ["cancelled", "completed", "cancelled"]
    assert desk.core.state.counts == {"completed": 1, "cancelled": 2}
    assert [desk.core.state.jobs[name].final for name in ("1", "2", "3")] == [1, 1, 1]
    assert (list(desk.core.state.open_claims), desk.core.state.instances) == (["web"], {"web": 2})
    desk.play(*closing(desk.core.custody, "web"))
    assert (desk.core.state.open_claims, desk.core.state.instances, desk.core.state.claims) == ({}, {}, [])


def test_what_ends_in_another_department_at_that_moment_is_not_ended_twice() -> None:
    desk = Desk().play(*HOUSE, *granted("h3", dept="bio"), job(), job("2", dept="bio"))
    desk.play(("admission", f.JobCancelled(job="2", user="a")), *closing(desk.core.custody, "hpc"), at=99.0)
    assert desk.core.state.counts == {"cancelled": 2}


# --------------------------------------------------------------------------------------------------------------- forgotten


def test_what_custody_forgets_is_forgotten_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 1)
    desk = Desk().play(*HOUSE, job("1", array=(1, 2)), job("2"))
    for unit in ("1_1", "1_2"):
        desk.play(placed(unit), began(unit=unit), reported(unit=unit))
    assert (desk.core.state.jobs["1"].gone, list(desk.core.state.attempts)) == (1, ["1_2"])
    desk.core.touched = {}
    desk.play(placed("2"), began(unit="2"), reported(unit="2"))
    assert (list(desk.core.state.jobs), list(desk.core.state.attempts)) == (["2"], ["2"])
    assert sorted(desk.core.touched) == ["1_2", "2"]


def test_who_depended_on_what_is_forgotten_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 1)
    after = (f.Dependency(job="1", condition="afterok"),)
    desk = Desk().play(*HOUSE, job(), job("2", after=after), job("3"), job("4"))
    assert list(desk.core.causes.waiters) == ["1"]
    desk.play(CANCEL)
    assert desk.queue()[0]["reason"]["code"] == "dependency_failed"
    for name in ("2", "3"):
        desk.play(("admission", f.JobCancelled(job=name, user="a")))
    assert list(desk.core.state.jobs) == ["3", "4"]
    assert desk.core.causes.waiters == {}


# ----------------------------------------------------------------------------------------------------- claims and timeline


def claims(desk: Desk) -> list[tuple[int, float, float | None]]:
    return [(claim.hosts, claim.at, claim.met_at) for claim in desk.core.state.claims]


def test_a_claim_for_one_host_is_one_and_is_told_with_the_fact_that_meets_it() -> None:
    desk = Desk().play(ADOPTED, *granted("h1", dept="web"), *granted("h2")[:-1])
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1)))
    assert desk.core.state.open_claims == {}
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=2)))
    opened = float(desk.position)
    assert [(c.hosts, c.at) for c in desk.core.state.open_claims.values()] == [(1, opened)]
    desk.play(("provisioner", f.HostGranted(host="h2", dept="web")))
    assert claims(desk) == [(1, opened, opened + 1)]
    assert [claim.dept for claim in desk.core.met] == ["web"]
    desk.play(job())
    assert desk.core.met == []


def test_claims_are_kept_in_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLAIMS_MAX", 2)
    desk = Desk().play(ADOPTED, *granted("h1", dept="web"))
    for hosts in (2, 1, 3, 1, 4, 1):
        desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=hosts)))
    assert [hosts for hosts, _, _ in claims(desk)] == [2, 3]


def test_the_timeline_is_cut_when_it_is_a_thousand_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMELINE_MAX", 2)
    desk = Desk().play(ADOPTED, *granted("h1")[:-1])
    old: list[Any] = [(float(n), {"hpc": n}) for n in range(-998, 1)]
    desk.core.state.timeline[:0] = old
    assert len(desk.core.state.timeline) == 1001
    desk.play(("provisioner", f.HostGranted(host="h1", dept="web")))
    assert len(desk.core.state.timeline) == 1002
    desk.play(*granted("h2")[:2])
    kept = [owners for _, owners in desk.core.state.timeline]
    assert kept == [{"(free)": 1}, {"web": 1}, {"(free)": 1, "web": 1}]


def test_owners_are_told_by_name() -> None:
    desk = Desk().play(ADOPTED, *granted("h1", dept="web"), *granted("h2"), *granted("h3", dept="bio"))
    owners = desk.core.state.timeline[-1][1]
    assert list(owners.items()) == [("bio", 1), ("hpc", 1), ("web", 1)]


def test_the_check_finds_a_claim_that_was_met_before_it_opened_and_attempts_of_nobody() -> None:
    desk = Desk().play(*HOUSE, job(), placed())
    desk.core.state.claims.append(Claim(dept="web", hosts=1, at=9.0, met_at=9.0))
    desk.core.state.claims.append(Claim(dept="web", hosts=1, at=9.0))
    assert desk.core.check() == []
    desk.core.state.claims.append(Claim(dept="web", hosts=1, at=9.0, met_at=8.0))
    del desk.core.state.jobs["1"]
    assert desk.core.check() == ["1 has attempts but no job", "claim of web met before it opened"]
