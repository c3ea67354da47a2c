"""Order leases where memory is being written: hosts are not free before it is saved, and slots begin on time all the same."""

from __future__ import annotations

from schemas import reasons as because
from tests.support.leases import closings, external, lease, placements, settle, site, until
from tests.support.world import START


def test_where_machines_are_being_saved_nobody_starts_but_the_lease() -> None:
    world = site(1)
    other = external(world, memory_mb=3000)
    settle(world)
    job = lease(world, 200)
    brief, briefer = external(world, walltime_s=20.0), world.submit(cores=4, walltime_s=30.0)
    until(world, START + 200)
    assert placements(world) == [(0, other), (200, job)], "from 170 s on the host is being cleared"
    world.report(job)
    until(world, START + 200)
    assert placements(world)[2:] == [(200, other)], "who made way is saved by then"
    assert {world.states()[unit] for unit in (brief, briefer)} == {"pending"}


def test_who_is_resumed_stays_as_long_as_that_takes_too() -> None:
    world = site(1)
    other = external(world, memory_mb=3000, walltime_s=215.0)
    settle(world)
    first = lease(world, 200)
    until(world, START + 200)
    second = lease(world, 140)
    until(world, START + 300)
    assert placements(world) == [(0, other), (200, first)], "45 s are left, and 30 s it takes to go on: 15 s too late"
    until(world, START + 440)
    assert placements(world)[2:] == [(340, second), (440, other)]


def test_a_host_that_is_being_cleared_is_left_to_the_slot_that_it_is_cleared_for() -> None:
    world = site(2)
    other = external(world, memory_mb=1500)
    settle(world)
    first, second = lease(world, 100), lease(world, 110)
    until(world, START + 110)
    assert placements(world) == [(0, other), (100, first), (110, second)]
    assert world.unit(first).hosts == ("h2",), "on h1 memory is written until 110 s"


def test_a_host_where_machines_are_still_being_saved_spares_nobody_who_can_be_away_in_time() -> None:
    """From 70 s on the first one would have been laid on the host that is cleared for the second, and begin 30 s late."""
    world = site(2, victims="minimum-overhead")
    slow, quick = external(world, memory_mb=6000), external(world, memory_mb=1000)
    settle(world)
    first, second = lease(world, 100), lease(world, 130)
    until(world, START + 130)
    assert [(at, unit) for at, unit, _, _ in closings(world)] == [(70, slow), (90, quick)]
    assert placements(world)[2:] == [(100, first), (130, second)]
    assert (world.unit(first).hosts, world.unit(second).hosts) == (("h2",), ("h1",))


def test_beside_what_is_being_saved_a_small_lease_has_room_and_nobody_else_goes() -> None:
    world = site(2, victims="minimum-overhead")
    other, dear = external(world, memory_mb=6000, cores=2), external(world, memory_mb=7000)
    settle(world)
    first, second = lease(world, 100, cores=1, walltime_s=20.0), lease(world, 130)
    until(world, START + 130)
    assert [(at, unit) for at, unit, _, _ in closings(world)][:1] == [(70, other)]
    assert placements(world)[2:] == [(100, first), (130, second)]
    assert world.unit(dear).live


def test_a_lease_that_is_late_whoever_goes_waits_for_what_is_being_saved_already() -> None:
    world = site(2, victims="minimum-overhead")
    other, dear = external(world, memory_mb=6000), external(world, memory_mb=7000)
    settle(world)
    second = lease(world, 130)
    until(world, START + 80)
    first = lease(world, 20, walltime_s=30.0)
    until(world, START + 130)
    assert [unit for _, unit, _, code in closings(world) if code is because.Preempted] == [other], dear
    assert placements(world)[2:] == [(100, first), (130, second)]


def test_who_is_beside_machines_that_are_being_saved_makes_way_if_that_is_in_time() -> None:
    world = site(2, victims="minimum-waiting-time")
    old, beside = external(world), external(world, cores=2)
    slow = external(world, cores=2, memory_mb=6000)
    settle(world)
    second = lease(world, 130, cores=2)
    until(world, START + 75)
    first = lease(world, 25, cores=2)
    until(world, START + 130)
    assert [(at, unit) for at, unit, _, _ in closings(world)] == [(70, slow), (90, beside)], "youngest first"
    assert placements(world)[3:] == [(100, first), (130, second)]
    assert world.unit(old).live
