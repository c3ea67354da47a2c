"""Order leases, one pass: who starts together with whom, at the boundaries."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import reasons as because
from services.scheduler.core.policies.order_leases import plan
from tests.support.leases import external, lease, placements, settle, site, until
from tests.support.scheduling import core
from tests.support.world import START, World


def starts(world: World) -> list[str]:
    """Who starts in the next pass."""
    mine = core(world)
    return [start.unit for start in plan(mine.view.situation(world.now, mine.view.room)).starts]


@pytest.mark.parametrize("between", [(), ((280, 5),), ((210, 5), (280, 5))])
def test_slots_that_are_not_near_are_laid_around_who_starts_first(between: tuple[tuple[int, int], ...]) -> None:
    """The first one goes on, on a host where it is in no slot's way for 40 s; so at 300 s the other host has to be free."""
    world = site(2)
    first = external(world)
    settle(world)
    job = lease(world, 100, nodes=2)
    until(world, START + 150)
    world.report(job)
    for at, walltime_s in between:
        lease(world, at - 150, cores=1, walltime_s=float(walltime_s))
    lease(world, 150)
    long = world.submit(cores=4, walltime_s=500.0)
    assert starts(world) == [first], long


def test_slots_behind_the_next_one_are_laid_around_who_starts_first_too() -> None:
    world = site(3)
    first = external(world)
    settle(world)
    job = lease(world, 100, nodes=3)
    until(world, START + 150)
    world.report(job)
    due = lease(world, 0, walltime_s=1000.0)
    lease(world, 60, cores=1, walltime_s=5.0)
    lease(world, 150)
    long = world.submit(cores=4, walltime_s=500.0)
    assert starts(world) == [due, first], long


@pytest.mark.parametrize("size", [{"cores": 4}, {"cores": 1, "exclusive": True}])
def test_a_lease_starts_on_no_host_that_somebody_has_to_leave_for_another_one(size: dict[str, Any]) -> None:
    world = site(2)
    external(world, **size)
    settle(world)
    lease(world, 0, nodes=2, cores=2)
    lease(world, 0, nodes=2, cores=2)
    world.submit(cores=1, walltime_s=10.0)  # for which there is room now
    assert starts(world) == []


def test_how_late_a_lease_starts_is_told_in_milliseconds() -> None:
    world = site(1)
    lease(world, 0)
    world.now += 10.12345
    mine = core(world)
    [start] = plan(mine.view.situation(world.now, mine.view.room)).starts
    assert because.fields(start.reason)["late_s"] == 10.123


@pytest.mark.parametrize(("gap_s", "resumes"), [(39.0, False), (40.0, True)])
def test_who_is_suspended_goes_on_before_a_slot_if_that_is_worth_it(gap_s: float, resumes: bool) -> None:
    """10 s to go on, at least the 20 s that preempting it costs, and 10 s to be suspended again."""
    world = site(1)
    other = external(world)
    settle(world)
    lease(world, 200)
    until(world, START + 200)
    lease(world, 100 + gap_s)
    until(world, START + 300)
    assert ((300, other) in placements(world)) is resumes


@pytest.mark.parametrize("walltime_s", [50.0, 100.0])
def test_who_is_away_when_the_head_starts_spares_it_nothing(walltime_s: float) -> None:
    """At 100 s there are four hosts, of which the head needs three: one may be had for longer."""
    world = site(4)
    world.submit(cores=4, nodes=2, walltime_s=100.0)
    settle(world)
    head = world.submit(cores=4, nodes=3, walltime_s=50.0)
    brief, long = world.submit(cores=4, walltime_s=walltime_s), world.submit(cores=4, walltime_s=500.0)
    assert starts(world) == [brief, long], head


def test_who_waits_behind_a_suspended_lease_starts_in_the_same_pass() -> None:
    world = site(2)
    first = external(world)
    settle(world)
    job = lease(world, 100, nodes=2)
    until(world, START + 150)
    second = external(world)
    world.report(job)
    assert starts(world) == [first, second]


def test_who_is_still_being_saved_does_not_go_on_although_there_is_room() -> None:
    world = site(2)
    other = external(world, memory_mb=3000)
    settle(world)
    job = lease(world, 200, nodes=2)
    until(world, START + 175)
    world.cancel(job)
    assert starts(world) == []
    world.now = START + 200
    assert starts(world) == [other]


def test_what_a_late_lease_and_memory_that_is_being_written_leave_is_nothing() -> None:
    """Together they have more than the host: not even the least job is beside them."""
    world = site(1)
    external(world, cores=2, memory_mb=6000)
    settle(world)
    job = lease(world, 20, cores=1, memory_mb=6000)
    until(world, START + 19)
    world.submit(cores=1, memory_mb=1, walltime_s=10.0)
    world.now = START + 20
    assert starts(world) == [job]


@pytest.mark.parametrize("later_s", [0.0, 1.0, 15.0])
@pytest.mark.parametrize("slots_at_s", [(), (200,)])
def test_who_has_not_begun_keeps_the_head_its_reservation(slots_at_s: tuple[int, ...], later_s: float) -> None:
    """The job's machine boots; the head begins as it ends, before any slot.  However long that takes, nobody comes between."""
    world = site(2)
    world.submit(cores=4, walltime_s=40.0)
    world.settle()  # placed, and not begun
    for at in slots_at_s:
        lease(world, at, cores=1, walltime_s=1000.0)
    world.submit(nodes=2, cores=4, walltime_s=40.0)
    long = external(world, cores=4, walltime_s=100.0)
    world.settle()
    mine = core(world)
    assert plan(mine.view.situation(world.now + later_s, mine.view.room)).starts == [], long
