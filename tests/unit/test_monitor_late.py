"""Words that come late, or of what is no longer known: they change nothing that was told; and what is counted of leases."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department
from schemas.facts import Dependency, Disposal
from services.domain.custody.rules import RULES
from services.domain.custody.state import RELEASES_KEPT
from services.monitor.core import monitor as module
from services.monitor.core.series import Gauge
from tests.support.closing import close, closing
from tests.unit.test_custody_rules import Step, allocated, closed, granted, job, placed, release, reported
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk
from tests.unit.test_monitor_goodput import judged
from tests.unit.test_monitor_levels import WEB, changed, serving, why
from tests.unit.test_page_series import T0, Fold
from tests.unit.test_usage import NOON, Office, running

LOST: Step = ("executor", f.HostLost(host="h1", reason="x"))


def began(attempt: int = 1, unit: str = "1") -> Step:
    return "admission", f.AttemptBegan(unit=unit, attempt=attempt)


def test_of_an_attempt_that_is_not_kept_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 1)
    desk = Desk().play(ADOPTED, *granted(), *granted("h2"), job(), placed(), BEGAN, closed())
    desk.play(placed(attempt=2, hosts=("h2",)), began(2))
    measured = f.AttemptMeasured(unit="1", attempt=1, cpu_seconds=9.0, heard_at=1.0)
    saved = f.CheckpointReported(unit="1", attempt=1)
    desk.play(("admission", measured), ("admission", saved), reported(1))
    [kept] = desk.core.state.attempts["1"]
    assert (kept.attempt, kept.cpu_seconds, kept.checkpoint, kept.exit) == (2, None, None, None)
    assert desk.state() == "running"
    assert desk.core.why("1", 1) is None


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([LOST, reported(terminated=True)], because.LostHost),
        ([LOST, reported()], None),
        ([reported(terminated=True)], None),
        ([LOST, closed(), reported(terminated=True)], because.Reclaimed),
    ],
)
def test_of_a_broken_attempt_that_was_told_to_end_its_break_says_why(
    steps: list[Step], told: because.Kind | None
) -> None:
    desk = Desk().play(ADOPTED, *granted(), job(on_term="complete"), placed(), allocated(), BEGAN, *steps)
    said = desk.core.why("1", 1)
    assert (None if said is None else type(said)) == told


def test_who_was_held_by_a_person_is_held_without_a_reason_of_ours() -> None:
    desk = Desk().play(ADOPTED, job(), ("admission", f.JobHeld(job="1", user="a")))
    assert desk.core.state.holds == {}


def test_a_department_that_closes_is_neither_busy_nor_silent() -> None:
    silent = because.SignalMissing()
    missing = ("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1, reason=silent))
    desk = Desk().play(ADOPTED, missing)
    assert desk.core.state.loads.silent == {"web": float(desk.position)}
    beside = because.RoomBeside()
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2, reason=beside)))
    assert list(desk.core.state.loads.silent) == ["web"]
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2, reason=because.WebDemand())))
    assert desk.core.state.loads.silent == {}
    desk.play(missing, *closing(desk.core.custody, "web"))
    assert (desk.core.state.loads.silent, desk.core.state.loads.unheard) == ({}, {})


def test_who_said_no_load_is_silent_since_its_last_word_of_one() -> None:
    desk = Desk().play(ADOPTED, *granted(dept="web"))

    def word(start: float, end: float, **given: Any) -> Step:
        return "scheduler.web", f.LoadObserved(dept="web", start=start, end=end, samples=1, **given)

    desk.play(word(1.0, 2.0, utilisation=0.5), word(3.0, 4.0, requests_per_s=7.0), word(5.0, 5.0, claim=3))
    known = desk.core.state.loads.last["web"]
    assert (known.at, known.told_at, known.utilisation, known.requests_per_s, known.claim) == (5.0, 2.0, None, 7.0, 3)
    silent = because.SignalMissing()
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1, reason=silent)))
    assert desk.core.state.loads.silent == {"web": 2.0}


def test_an_instance_that_begins_again_is_no_longer_said_to_be_unready() -> None:
    unready = ("admission", f.InstanceReported(unit="web.1", attempt=1, state="unready", user="lb"))
    desk = Desk().play(*WEB[:-1], unready, WEB[-1])
    assert (serving(desk), desk.core.levels.state.unready) == (1, {})


def test_short_since_the_first_moment_of_it() -> None:
    desk = Desk().play(*WEB, ("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=2)))
    since = float(desk.position)
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=3, instances=3)))
    assert desk.core.levels.state.short["web"].short_at == since
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1)))
    assert desk.core.levels.state.short["web"].wanted == 3  # of instances nothing was said


# ----------------------------------------------------------------------------------------------------------------- leases


@pytest.mark.parametrize(("kind", "waited"), [("advance", 4.0), ("best-effort", 104.0)])
def test_only_a_lease_with_a_time_of_its_own_waits_from_it_on(kind: Any, waited: float) -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    name = office.world.submit(lease=f.Lease(kind=kind, start_at=NOON + 100), walltime_s=50.0)
    office.world.now += 104
    office.place(name, "h1", cores=1)
    [row] = office.ask("user")["rows"]
    assert row["mean_wait_s"] == waited
    core = office.world.seats["monitor"].core
    assert core.state.tallies.waits["hpc"].sum_s == waited
    assert type(core.reason(office.world.unit(name))) is because.Running


def test_a_lease_with_a_time_of_its_own_says_it_and_no_limit_keeps_it() -> None:
    limits = BatchPolicy(limits=BatchLimits(jobs_running_max=1))
    config = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=limits),))
    adopted: Step = ("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    desk = Desk().play(adopted, *granted(), job("1"), placed("1"))
    for number, kind in (("2", "advance"), ("3", "best-effort")):
        desk.play(job(number, lease=f.Lease(kind=kind, start_at=500.0)))  # type: ignore[arg-type]
    assert [why(desk, unit)["code"] for unit in ("2", "3")] == ["lease_starts_at", "user_limit"]


# -------------------------------------------------------------------------------------------------------------- accounting


@pytest.mark.parametrize(("begins", "expected"), [(True, (10, {}, 0)), (False, (0, {"cancelled": 10}, 0))])
def test_an_instance_of_a_department_that_closes_was_good_if_it_served(begins: bool, expected: Any) -> None:
    office = Office()
    office.world.grant("web", "h1")
    fact = f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=64)
    office.world.write("scheduler.web", fact)
    if begins:
        office.world.begin("web.1", "x:1")
    office.world.now += 10
    close(office.world, "web")
    assert judged(office, "web") == expected


def test_the_history_is_told_each_loss_and_what_was_taken_back_of_it() -> None:
    office = Office()
    name = running(office)
    office.notice(0, claimants=("web",))
    office.close(name, Disposal.REQUEUE)
    accounting = office.world.seats["monitor"].core.accounting
    [(unit, loss, sign)] = accounting.news.losses
    assert (unit, loss.amount, loss.to, sign) == (name, 40_000, ("web",), 1)
    office.world.report(name)
    [(unit, _, sign)] = accounting.news.losses
    assert (unit, sign) == (name, -1)
    office.notice(1)
    assert accounting.news.losses == []


@pytest.mark.parametrize(("code", "column"), [(because.Reclaimed, "lost"), (because.EndedVm, "failed")])
def test_what_a_department_lost_is_what_its_rows_lost(code: because.Kind, column: str) -> None:
    office = Office()
    name = running(office)
    office.close(name, Disposal.REQUEUE, code)
    [bucket] = office.world.seats["monitor"].core.accounting.state.fresh.kept.values()
    assert getattr(bucket.spans["hpc"], column) == sum(getattr(row, column) for row in bucket.rows.values()) == 40_000
    office.world.report(name)
    assert getattr(bucket.spans["hpc"], column) == sum(getattr(row, column) for row in bucket.rows.values()) == 0
    assert bucket.spans["hpc"].recovered == sum(row.recovered for row in bucket.rows.values()) == 40_000


def test_the_first_fact_of_an_hour_closes_the_one_before() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    accounting = office.world.seats["monitor"].core.accounting
    office.world.now = NOON + 3600 - 1
    office.world.quota("hpc", 1)
    assert accounting.news.hours == []
    office.world.now = NOON + 3600
    office.world.quota("hpc", 1)
    [hour] = accounting.news.hours
    assert {begin: bucket.spans["hpc"].held for begin, bucket in hour.kept.items()} == {NOON * 1000: 3_600_000}
    office.world.quota("hpc", 1)  # at that very moment
    assert accounting.news.hours == []


# --------------------------------------------------------------------------------------------- releases, causes, forgetting


def test_releases_are_kept_in_a_bounded_number_and_forgotten_with_their_department() -> None:
    desk = Desk().play(ADOPTED, *(release(number) for number in range(1, RELEASES_KEPT + 3)))
    records = desk.core.state.releases["web"].records
    assert [record.release for record in records] == list(range(2, RELEASES_KEPT + 3))
    assert {record.image for record in records} == {"shop"}
    desk.play(*closing(desk.core.custody, "web"))
    assert desk.core.state.releases == {}


def test_what_is_given_up_later_than_another_was_wanted_changes_nothing_of_that() -> None:
    desk = Desk().play(ADOPTED, release(1), changed(1, "rolling"), release(2), changed(1, "rolled_back", 0))
    found = desk.core.state.releases["web"]
    assert (found.wanted, {r.release: r.state for r in found.records}) == (
        2,
        {0: "rolling", 1: "rolled_back", 2: "requested"},
    )


def test_a_job_that_is_forgotten_leaves_nothing_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.domain.custody.effects.FINALS_MAX", 1)
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1,), throttle=1), job("2"))
    desk.play(placed("1_1"), allocated(unit="1_1"), began(unit="1_1"), reported(unit="1_1"))
    desk.play(("executor", f.VmEnded(unit="1_1", attempt=1, rank=0, why="done")))
    assert list(desk.core.causes.open) == ["1"]
    desk.play(("admission", f.JobCancelled(job="2", user="a")))
    assert list(desk.core.state.jobs) == ["2"]
    assert (desk.core.causes.open, "1" in desk.core.causes.pending_moves) == ({}, False)
    assert "1_1" not in desk.core.idle._on


def test_from_a_snapshot_the_dependents_are_known() -> None:
    after = (Dependency(job="1", condition="afterok"),)
    desk = Desk().play(ADOPTED, *granted(), job("1"), job("2", after=after))
    desk.core.load(desk.core.dump())
    assert desk.core.causes.waiters == {"1": {"2": None}}
    desk.core.touched = {}
    desk.play(placed("1"), BEGAN, reported())
    assert desk.core.causes.restated() == ["2"]


def test_a_series_begins_with_hosts_and_goes_on_without_them() -> None:
    fold = Fold()
    fold.grant(0)
    fold.grant(0, "h2")
    for name in ("h1", "h2"):
        fold.at(1, "executor", f.HostLost(host=name, reason="x"))
        fold.at(1, "executor", f.HostRemoved(host=name))
    fold.at(20, "scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1))
    assert fold.core.state.series.tiers[0].length == 4


def test_what_is_new_counts_from_nought() -> None:
    fold = Fold()
    fold.grant(5)
    fold.core.state.series.gauges["owner/new"] = Gauge(level=1, since=round((T0 + 5) * 1000))
    fold.grant(10, "h2")
    assert fold.core.state.series.tiers[0].columns["owner/new"] == [0, 1]
