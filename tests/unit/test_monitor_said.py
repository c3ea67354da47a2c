"""What the read model says where one thing could be taken for another: a moment, nought, one's own and somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department, Power, WebPolicy
from schemas.facts import Dependency, Disposal
from schemas.times import exact
from services.domain.custody.rules import RULES
from services.monitor.core import buckets
from services.monitor.core.buckets import HOUR_MS, Buckets, key
from tests.support.closing import close, closing
from tests.unit.test_custody_rules import CANCEL, Step, allocated, closed, granted, host, job, placed, release, reported
from tests.unit.test_monitor_buckets import NOON as NOON_MS
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk
from tests.unit.test_monitor_levels import WEB, changed, level, limited, serving, stages, why
from tests.unit.test_page_series import T0, Fold
from tests.unit.test_usage import NOON, Office, running

LEASE = f.Lease(kind="advance", start_at=500.0)
GONE: Step = ("executor", f.VmEnded(unit="1", attempt=1, rank=0, why="gone"))


def test_an_attempt_has_begun_when_it_did_first() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)
    at = float(desk.position)
    desk.play(BEGAN)
    assert [attempt.began_at for attempt in desk.core.state.attempts["1"]] == [at]


def test_what_runs_waits_for_nothing_though_its_array_is_full() -> None:
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1, 2), throttle=1), placed("1_1"))
    desk.play(("admission", f.AttemptBegan(unit="1_1", attempt=1)))
    assert [why(desk, unit)["code"] for unit in ("1_1", "1_2")] == ["running", "array_throttle"]


def test_of_one_moment_the_timeline_has_its_end() -> None:
    desk = Desk().play(ADOPTED, *host("h1"), ("provisioner", f.HostGranted(host="h1", dept="hpc")), at=7.0)
    assert desk.core.state.timeline == [(7.0, {"hpc": 1})]


def test_a_lease_says_from_when_to_when_and_one_without_a_time_waits_as_a_job() -> None:
    desk = Desk().play(ADOPTED, job("1", lease=LEASE, walltime_s=60.0), job("2", lease=f.Lease(kind="best-effort")))
    assert why(desk, "1") == {"code": "lease_starts_at", "starts_at": exact(500.0), "ends_at": exact(560.0)}
    assert why(desk, "2")["code"] == "queue"


# -------------------------------------------------------------------------------------------------------------- accounting


def test_an_attempt_that_is_over_occupies_nothing() -> None:
    for step in (reported(), closed(), None):
        desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)
        assert level(desk)["occupied"] == 1
        desk.play(*([step] if step is not None else closing(desk.core.custody, "hpc")))
        assert "occupied" not in level(desk)


def test_a_seized_host_is_counted_where_it_was_taken() -> None:
    office = Office()
    office.world.grant("hpc", "h1", "h2")
    office.notice(1)
    office.world.now += 9
    office.world.write("provisioner", f.HostSeized(host="h1", dept="hpc"))
    office.world.now += 5
    one = office.of()
    assert (one["hosts_seized"], one["hosts_given_back"], one["held_s"], one["draining_s"]) == (1, 0, 23.0, 5.0)


def test_who_is_placed_at_once_has_not_waited_and_who_is_closed_at_once_has_lost_nothing() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    name = office.world.submit()
    office.place(name, "h1")
    office.close(name, Disposal.REQUEUE)
    [row] = office.ask("user")["rows"]
    assert (row["mean_wait_s"], office.of()["lost_core_s"]) == (0.0, 0.0)
    assert office.world.seats["monitor"].core.state.tallies.waits["hpc"].sum_s == 0.0


def test_what_was_suspended_is_lost_with_an_attempt_that_never_began() -> None:
    office = Office()
    name = running(office)
    office.close(name, Disposal.SUSPEND)
    office.place(name, "h1", begin=False)
    office.world.now += 5
    office.close(name, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 40.0


def test_a_department_that_closes_with_nothing_open_cancels_nothing() -> None:
    office = Office()
    office.world.report(running(office))
    close(office.world, "hpc")
    assert office.of()["ended"] == {"completed": 1}


def test_days_of_a_long_run_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "DAYS", 5)
    office = Office()
    office.world.grant("hpc", "h1")
    for _ in range(9):
        office.world.now += 86_400
        office.world.quota("hpc", 1)
    state = office.world.seats["monitor"].core.accounting.state
    assert min(state.book.kept) == round((NOON - 43_200 + 5 * 86_400) * 1000)
    assert state.book.before["hpc"].held == round(4.5 * 86_400_000)
    assert office.of()["held_s"] == 4.5 * 86_400  # what is kept


@pytest.mark.parametrize(("claimants", "to"), [(("bio", "chem"), ("bio", "chem")), ((), ("(no claimant)",))])
def test_for_whom_a_share_is_given_back(claimants: tuple[str, ...], to: tuple[str, ...]) -> None:
    kinds = {"hpc": "batch", "bio": "batch", "chem": "batch", "web": "web"}
    config = CloudConfig(name="c", departments=tuple(_department(name, kind) for name, kind in kinds.items()))
    desk = Desk().play(("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config)), *granted())
    why = because.BatchShare()
    desk.play(("provisioner", f.QuotaChanged(dept="hpc", hosts=0, by=1.0, claimants=claimants, reason=why)))
    assert desk.core.accounting.state.claimants["hpc"] == to


def _department(name: str, kind: Any) -> Department:
    return Department(name=name, kind=kind, **({"batch": BatchPolicy()} if kind == "batch" else {"web": WebPolicy()}))


def test_the_check_of_accounting_names_rows_that_do_not_add_up() -> None:
    office = Office()
    office.world.report(running(office))
    core = office.world.seats["monitor"].core
    [bucket] = core.accounting.state.fresh.kept.values()
    next(iter(bucket.rows.values())).used += 1
    assert core.check() == [f"usage of hpc at {round(NOON * 1000)} is 40000 and its rows say 40001"]


def test_names_are_kept_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "ROWS_MAX", 20)
    mine = Buckets(today=NOON_MS // buckets.DAY_MS)
    for number in range(20):
        mine.row(NOON_MS - number % 4 * HOUR_MS, key("hpc", f"u{number}", "", "")).used += 1
    assert sorted(name for one in mine.kept.values() for name in one.rows) == sorted(
        key("hpc", f"u{number}", "", "") for number in range(20)
    )
    monkeypatch.setattr(buckets, "ROWS_MAX", 1)
    full = Buckets(today=NOON_MS // buckets.DAY_MS)
    full.row(NOON_MS, key("hpc", "ann", "", ""))
    full.row(NOON_MS, key("bio", "bob", "", ""))
    assert list(full.kept[NOON_MS].rows) == [key("hpc", "ann", "", ""), key("bio", buckets.OTHERS, "", "")]


# ---------------------------------------------------------------------------------------------------------- causes, limits


@pytest.mark.parametrize(
    ("condition", "exit", "code"),
    [
        ("afterok", 0, because.Queue),
        ("afterok", 1, because.DependencyFailed),
        ("afternotok", 0, because.DependencyFailed),
        ("afternotok", 1, because.Queue),
        ("afterany", 1, because.Queue),
    ],
)
@pytest.mark.parametrize("unit", ["1", "1_1"])
def test_what_a_dependency_says_when_it_is_over(condition: Any, exit: int, code: because.Kind, unit: str) -> None:
    array = (1,) if "_" in unit else ()
    after = (Dependency(job=unit, condition=condition),)
    desk = Desk().play(ADOPTED, *granted(), job("1", array=array), job("2", after=after), placed(unit))
    assert why(desk, "2")["code"] == "dependency"
    desk.play(reported(unit=unit, exit=exit))
    assert why(desk, "2")["code"] == because.tag(code)


def test_a_limit_counts_what_runs_now_however_often_it_began() -> None:
    desk = limited(limits=BatchLimits(jobs_running_max=1)).play(job("1"), job("2"))
    for attempt in (1, 2, 3):
        assert why(desk, "2")["code"] == "queue"
        desk.play(placed(attempt=attempt))
        assert why(desk, "2")["code"] == "user_limit"
        assert why(desk, "2")["limit"] == "jobs_running_max"
        desk.play(closed(attempt=attempt))


def test_what_is_forgotten_is_bounded_by_no_limit_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.domain.custody.effects.FINALS_MAX", 1)
    desk = limited(limits=BatchLimits(jobs_running_max=1)).play(job("1"), job("2"), job("3"), placed("2"))
    desk.core.causes.restated()
    assert sorted(desk.core.causes._told) == ["1", "2", "3"]
    desk.play(CANCEL, ("admission", f.JobCancelled(job="3", user="a")))
    [names] = desk.core.causes.limited._jobs.values()
    assert (sorted(names), sorted(desk.core.causes._told)) == (["2", "3"], ["2", "3"])


# -------------------------------------------------------------------------------------------------------- the other parts


def test_candidates_are_told_by_name_and_from_the_end_of_a_quarantine_on() -> None:
    desk = Desk().play(ADOPTED, *host("h2"), *host("h1"))
    power = Power(idle_s=1.0)
    assert desk.core.idle.candidates(power, 100.0) == ["h1", "h2"]
    desk.play(("executor", f.HostQuarantined(host="h1", reason="x", until=100.0)))
    assert [desk.core.idle.candidates(power, now) for now in (99.9, 100.0)] == [["h2"], ["h1", "h2"]]


def test_a_host_with_an_attempt_that_has_no_vm_yet_is_not_empty() -> None:
    desk = Desk().play(ADOPTED, *granted(), job())
    assert list(desk.core.state.idle) == ["h1"]
    desk.play(placed())
    assert desk.core.state.idle == {}


def test_what_is_asked_for_waits_while_another_release_completes() -> None:
    told = stages(release(1), changed(1, "rolling"), release(2), changed(1, "complete"))
    assert told == (2, {0: "replaced", 1: "complete", 2: "requested"})


def test_an_instance_serves_from_its_beginning_until_it_breaks() -> None:
    desk = Desk().play(*WEB[:-1])
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1)))
    unready: Step = ("admission", f.InstanceReported(unit="web.1", attempt=1, state="unready", user="lb"))
    desk.play(allocated(unit="web.1"))
    assert serving(desk) == 0
    desk.play(WEB[-1])
    assert serving(desk) == 1
    desk.play(unready, ("executor", f.HostLost(host="h1", reason="x")))
    assert (serving(desk), desk.core.levels.state.unready) == (0, {})


def test_an_instance_that_makes_way_is_no_preempted_job() -> None:
    stopped = f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.KILL, why=because.Reclaimed())
    desk = Desk().play(*WEB, ("scheduler.web", stopped))
    assert desk.core.state.tallies.preempted == {}


def test_groups_of_three_stay_together_too() -> None:
    fold = Fold()
    fold.grant(5)
    whole, later = fold.timeline(0, 30, 2), fold.timeline(0, 35, 3)
    assert whole["at"] == [T0 + 15, T0 + 30]
    assert later["at"] == [T0 + 15, T0 + 30, T0 + 35]
    assert list(whole["owners"]) == ["(free)", "hpc"]


def test_owners_of_a_timeline_are_told_by_name() -> None:
    fold = Fold()
    fold.grant(0, "h2", "web")
    fold.grant(5, "h1", "hpc")
    assert list(fold.timeline(0, 10)["owners"]) == ["(free)", "hpc", "web"]
