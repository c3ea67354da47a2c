"""Counts from the journal: ends, waits, who made way and why, hosts that change hands."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.monitor.core import counters
from services.monitor.core.counters import FLAP_WINDOW_S, FLAPS, State
from tests.unit.test_custody_rules import Step, granted, host, job, placed, reported
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk


def told(desk: Desk) -> State:
    return desk.core.state.tallies


def notice(code: because.Kind, hosts: int = 0) -> Step:
    return ("provisioner", f.QuotaChanged(dept="hpc", hosts=hosts, by=0.0, reason=code()))


def closed(code: because.Kind, disposal: Disposal = Disposal.REQUEUE) -> Step:
    return ("scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=disposal, why=code()))


@pytest.fixture
def desk() -> Desk:
    """Job 1 runs on h1, which hpc holds; each step takes a second."""
    return Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN)


def test_a_unit_ends_once(desk: Desk) -> None:
    desk.play(reported(), reported())
    assert told(desk).outcomes == {"hpc": {"completed": 1}}


def test_an_attempt_that_failed_and_was_not_the_last_is_a_retry() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(retries=1), placed(), BEGAN, reported(exit=1))
    assert (told(desk).retries, told(desk).outcomes) == ({"hpc": 1}, {})


def test_a_wait_ends_with_the_first_attempt_and_is_no_second_time() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), ("admission", f.JobHeld(job="1", user="a")))
    desk.play(
        ("admission", f.JobResumed(job="1", user="a")), placed(), BEGAN, closed(because.Reclaimed), placed(attempt=2)
    )
    waits = told(desk).waits["hpc"]
    assert (waits.sum_s, sum(waits.counts)) == (3.0, 1)


@pytest.mark.parametrize(
    ("noticed", "code", "cause"),
    [
        (because.WebDemand, because.Reclaimed, "web_demand"),
        (because.BatchShare, because.HostTaken, "batch_share"),
        (because.WebDemand, because.Preempted, "preempted"),
        (None, because.Reclaimed, "reclaimed"),
    ],
)
def test_who_made_way_did_so_for_what_the_notice_said(
    desk: Desk, noticed: because.Kind | None, code: because.Kind, cause: str
) -> None:
    desk.play(*([notice(noticed)] if noticed else []), closed(code))
    assert told(desk).preempted == {"hpc": {cause: 1}}


@pytest.mark.parametrize("disposal", [Disposal.SUSPEND, Disposal.MIGRATE, Disposal.KILL])
def test_who_goes_on_elsewhere_or_not_at_all_made_way_too(desk: Desk, disposal: Disposal) -> None:
    desk.play(notice(because.Lending), closed(because.Reclaimed, disposal))
    assert told(desk).preempted == {"hpc": {"lending": 1}}


@pytest.mark.parametrize("code", [because.EndedVm, because.LostHost, because.Balanced])
def test_what_fails_or_is_balanced_makes_no_way(desk: Desk, code: because.Kind) -> None:
    desk.play(notice(because.WebDemand), closed(code))
    assert told(desk).preempted == {}


def test_a_quota_that_leaves_what_is_held_is_no_notice(desk: Desk) -> None:
    desk.play(notice(because.WebDemand, hosts=1), closed(because.Reclaimed))
    assert told(desk).preempted == {"hpc": {"reclaimed": 1}}


def goes(*departments: str) -> list[Step]:
    """h1, which is free, is granted to each in turn; three steps each."""
    steps: list[Step] = []
    for dept in departments:
        steps += [
            ("provisioner", f.HostGranted(host="h1", dept=dept)),
            (f"scheduler.{dept}", f.HostReleased(host="h1")),
            ("executor", f.HostCleared(host="h1")),
        ]
    return steps


def test_a_move_is_a_grant_to_another_than_the_last_holder() -> None:
    desk = Desk().play(ADOPTED, *host(), *goes("hpc", "hpc", "web", "hpc"))
    assert told(desk).moves == {"": {"hpc": 1}, "hpc": {"web": 1}, "web": {"hpc": 1}}
    assert desk.core.tallies.flapping(desk.custody.state.at) == 0


def test_a_host_flaps_that_changes_hands_again_and_again_until_it_stays() -> None:
    desk = Desk().play(ADOPTED, *host(), *goes(*("hpc", "web") * FLAPS))
    held = told(desk).hosts["h1"]
    assert len(held.changed) == FLAPS
    assert desk.core.tallies.flapping(held.changed[0] + FLAP_WINDOW_S) == 1
    assert desk.core.tallies.flapping(held.changed[0] + FLAP_WINDOW_S + 1) == 0
    desk.play(("executor", f.HostRemoved(host="h1")))
    assert told(desk).hosts == {}


def test_cpu_that_guests_reported_adds_up(desk: Desk) -> None:
    desk.play(("admission", f.AttemptReported(unit="1", attempt=1, exit=0, seconds=10.0, cpu_seconds=7.5)))
    assert told(desk).cpu_s == {"hpc": 7.5}


def test_what_is_folded_survives_a_snapshot(desk: Desk) -> None:
    desk.play(notice(because.WebDemand))
    before = desk.core.dump()
    desk.core.load(before)
    assert desk.core.dump() == before
    desk.play(closed(because.Reclaimed))
    assert told(desk).preempted == {"hpc": {"web_demand": 1}}


def test_every_outcome_and_cause_is_a_label_that_is_declared() -> None:
    assert set(counters.CAUSES) <= set(because.BY_CODE)
    assert set(counters.OUTCOMES) == {"completed", "ended_early", "failed", "timeout", "cancelled", "killed"}
