"""Order leases: slots begin on time, who makes way is told in time, and nobody else is in the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits
from schemas.facts import Disposal
from schemas.times import exact
from services.scheduler.lookahead.why import why
from tests.support.leases import closings, external, lease, placements, settle, site, told, until
from tests.support.scheduling import core
from tests.support.world import RULES, START


def test_a_lease_starts_at_its_time_and_ends_with_its_slot() -> None:
    world = site(1)
    job = lease(world, 50)
    until(world, START + 49)
    assert placements(world) == []
    until(world, START + 200)
    assert placements(world) == [(50, job)]
    assert closings(world) == [(150, job, Disposal.STOPPED, because.LeaseEnded)]
    assert world.states()[job] == "stopped"


def test_a_script_that_exits_sooner_completes_its_lease() -> None:
    world = site(1)
    job = lease(world, 0)
    settle(world)
    world.report(job)
    world.settle()
    assert world.states()[job] == "completed"


def test_who_makes_way_is_told_as_long_before_as_its_suspension_takes() -> None:
    world = site(1)
    other = external(world, memory_mb=3000)
    settle(world)
    job = lease(world, 200)
    until(world, START + 400)
    assert closings(world)[0] == (170, other, Disposal.SUSPEND, because.Preempted)
    assert placements(world) == [(0, other), (200, job), (300, other)]


def test_where_nothing_can_be_suspended_it_is_requeued_in_time_to_end() -> None:
    world = site(1, suspend=False, margin_s=2.0)
    other = external(world)
    settle(world)
    job = lease(world, 200)
    until(world, START + 201)
    kill_s = 5.0
    assert closings(world) == [(200 - kill_s - 2, other, Disposal.REQUEUE, because.Preempted)]
    assert (200, job) in placements(world)


def test_production_starts_only_if_it_is_away_in_time() -> None:
    world = site(1, margin_s=10.0)
    job = lease(world, 200)
    long, brief = world.submit(cores=4, walltime_s=191.0), world.submit(cores=4, walltime_s=190.0)
    until(world, START)
    assert placements(world) == [(0, brief)]
    until(world, START + 189)
    world.report(brief)
    until(world, START + 301)
    assert placements(world) == [(0, brief), (200, job), (300, long)]


def test_production_that_runs_already_is_not_ended_for_a_lease() -> None:
    world = site(1)
    long = world.submit(cores=4, walltime_s=1000.0)
    settle(world)
    job = lease(world, 50)
    until(world, START + 60)
    assert type(why(core(world), job, world.now)[0]) is because.LeaseLate
    world.report(long)
    world.settle()
    start = told(world, f.UnitPlaced)[-1][1]
    assert (start.unit, because.fields(start.reason)["late_s"]) == (job, 10)
    until(world, START + 151)
    assert closings(world) == [(150, job, Disposal.STOPPED, because.LeaseEnded)], "its end stays"


def test_a_lease_that_cannot_get_its_hosts_keeps_none_from_one_that_is_due() -> None:
    """Accepted first: 2 hosts from 8 on; then 5 hosts at once, of which the department holds 3."""
    world = site(8, held=3)
    first = lease(world, 8, nodes=2, walltime_s=40.0)
    wide = lease(world, 0, nodes=5, walltime_s=60.0)
    until(world, START + 7)
    late = world.submit(cores=4, walltime_s=100.0)
    until(world, START + 30)
    assert placements(world) == [(8, first)]
    assert world.states()[late] == "pending", "from jobs the third host is kept"
    codes = [(type(reason), because.fields(reason).get("short")) for reason in why(core(world), wide, world.now)]
    assert codes == [(because.LeaseLate, None), (because.WaitsForHosts, 4)]
    until(world, START + 61)
    assert placements(world) == [(8, first), (60, late)]


def test_best_effort_runs_into_a_slot_if_that_is_worth_it() -> None:
    """1,000 MB at 100 MB/s: 10 s to suspend, 20 s of overhead; 30 s are just not enough if 29 are left."""
    world = site(1)
    lease(world, 29)
    external(world)
    settle(world)
    assert placements(world) == []
    world = site(1)
    lease(world, 30)
    other = external(world)
    settle(world)
    assert placements(world) == [(0, other)]


@pytest.mark.parametrize(("begins_at", "suspend", "told_at"), [(80, True, 90), (100, True, 90), (100, False, 95)])
def test_who_begins_late_makes_way_in_time_though_it_would_have_been_away(
    begins_at: int, suspend: bool, told_at: int
) -> None:
    """50 s from 0 on, but its machine is not up by 50: it would still be there at 100.  It takes 10 s to suspend, if that can
    be done and it has begun by then, and else 5 s to end."""
    world = site(1, suspend=suspend)
    other = external(world, walltime_s=50.0)
    world.settle()
    job = lease(world, 100)
    world.settle()
    while (due := core(world).wake_at()) <= START + begins_at:
        world.now = max(world.now, due)
        world.settle()
    world.now = START + begins_at
    until(world, START + 100)
    how = Disposal.SUSPEND if begins_at < told_at else Disposal.REQUEUE
    assert closings(world) == [(told_at, other, how, because.Preempted)]
    assert placements(world) == [(0, other), (100, job)]


def test_without_preemption_best_effort_keeps_away_and_what_runs_makes_the_lease_late() -> None:
    world = site(2, preempt=False)
    external(world, walltime_s=500.0)
    settle(world)
    job, kept = lease(world, 100, nodes=2), external(world, walltime_s=101.0)
    until(world, START + 150)
    assert world.states()[job] == "pending"
    assert world.states()[kept] == "pending"
    until(world, START + 600)
    assert world.states()[job] == "pending"
    assert [type(reason) for reason in why(core(world), job, world.now)] == [because.LeaseOver]
    assert placements(world)[-1] == (200, kept), "a slot that has passed is in nobody's way"


@pytest.mark.parametrize(
    ("victims", "chosen"), [("minimum-waiting-time", "3"), ("minimum-overhead", "1"), ("combined", "2")]
)
def test_each_policy_has_its_victim(victims: str, chosen: str) -> None:
    """Of three on hosts of their own: waited long and small; waited less, hardly larger; not waited, large."""
    world = site(3, held=0, victims=victims, alpha=0.5)
    external(world, memory_mb=1000)
    world.now += 100
    external(world, memory_mb=1100)
    world.now += 80
    external(world, memory_mb=3000)
    world.grant("hpc", "h1", "h2", "h3")
    settle(world)
    lease(world, 500)
    until(world, world.now + 500)
    assert [unit for _, unit, _, _ in closings(world)] == [chosen]


def test_equals_go_youngest_first_and_only_as_many_as_needed() -> None:
    world = site(2)
    for cores in (2, 2, 2, 2):
        external(world, cores=cores)
    settle(world)
    lease(world, 100, cores=3)
    until(world, START + 100)
    assert [unit for _, unit, _, _ in closings(world)] == ["4", "3"]


def test_who_turns_out_not_to_be_needed_stays() -> None:
    """The cheapest goes first in thought, and frees nothing that the lease could use without the other."""
    world = site(2, victims="minimum-overhead")
    small, large = external(world, cores=1, memory_mb=100), external(world, cores=4, memory_mb=4000)
    rest = external(world, cores=3, memory_mb=5000)
    settle(world)
    assert world.unit(small).hosts == world.unit(rest).hosts != world.unit(large).hosts
    lease(world, 100)
    until(world, START + 100)
    assert [unit for _, unit, _, _ in closings(world)] == [large]


def test_suspended_leases_go_on_first_of_all() -> None:
    world = site(1)
    other = external(world)
    settle(world)
    lease(world, 100)
    later = external(world)
    urgent = world.submit(cores=4, priority=9)
    until(world, START + 200)
    assert placements(world)[-1] == (200, other)
    assert [world.states()[unit] for unit in (later, urgent)] == ["pending", "pending"]


def test_around_them_the_others_are_backfilled() -> None:
    world = site(2)
    wide = external(world, nodes=2)
    settle(world)
    job = lease(world, 100)
    brief, long = world.submit(cores=4, walltime_s=90.0), world.submit(cores=4, walltime_s=500.0)
    until(world, START + 100)
    assert placements(world)[1:] == [(100, job), (100, brief)], "it is away by 200 s, when the wide one goes on"
    world.now = START + 170
    world.report(brief)
    until(world, START + 200)
    assert placements(world)[-1] == (200, wide)
    assert world.states()[long] == "pending"


def test_a_lease_may_follow_another_without_a_gap() -> None:
    world = site(1, margin_s=10.0)
    first, second = lease(world, 50), lease(world, 150)
    until(world, START + 150)
    assert placements(world) == [(50, first), (150, second)]


@pytest.mark.parametrize(("walltime_s", "ends_s"), [(300.0, 350), (60.0, 110)])
def test_an_extension_moves_the_end_also_while_it_runs(walltime_s: float, ends_s: float) -> None:
    world = site(1)
    job = lease(world, 50)
    until(world, START + 80)
    world.write("admission", f.LeaseExtended(job=job, walltime_s=walltime_s))
    until(world, START + 400)
    assert closings(world) == [(ends_s, job, Disposal.STOPPED, because.LeaseEnded)]


def test_an_extension_of_one_that_waits_keeps_its_room_longer() -> None:
    world = site(1)
    first = lease(world, 50)
    world.write("admission", f.LeaseExtended(job=first, walltime_s=1000.0))
    external(world, walltime_s=20.0)
    until(world, START + 500)
    assert [unit for at, unit in placements(world) if at > 50] == []


def test_a_best_effort_lease_ends_as_agreed_too() -> None:
    world = site(1)
    job = external(world, walltime_s=30.0)
    until(world, START + 40)
    assert closings(world) == [(30, job, Disposal.STOPPED, because.LeaseEnded)]


def test_who_waits_for_a_lease_to_end_well_goes_on_when_its_time_is_over() -> None:
    world = site(1)
    job = lease(world, 0)
    after = world.submit(after=(f.Dependency(condition="afterok", job=job),))
    until(world, START + 100)
    assert world.states() == {job: "stopped", after: "open"}


def test_hosts_are_asked_for_before_the_slot_and_not_sooner() -> None:
    world = site(4, held=0, lead_s=60.0)
    lease(world, 100, nodes=3)
    until(world, START + 39)
    assert world.custody.state.demands.get("hpc", 0) == 0
    until(world, START + 40)
    assert world.custody.state.demands["hpc"] == 3
    until(world, START + 200)
    assert world.custody.state.demands["hpc"] == 0


def test_a_lease_whose_hosts_are_lacking_has_what_is_there_kept_and_starts_when_they_come() -> None:
    world = site(2, held=1)
    job, long = lease(world, 50, nodes=2), world.submit(cores=4, walltime_s=1000.0)
    until(world, START + 70)
    assert placements(world) == [], long
    reason = why(core(world), job, world.now)[0]
    assert (type(reason), because.fields(reason)["late_s"]) == (because.LeaseLate, 20)
    world.grant("hpc", "h2")
    world.settle()
    assert placements(world) == [(70, job)]


def test_a_lease_whose_host_is_lost_starts_again_within_its_slot() -> None:
    world = site(2)
    job = lease(world, 50)
    until(world, START + 60)
    world.lose(world.unit(job).hosts[0])
    until(world, START + 200)
    assert [unit for _, unit in placements(world)] == [job, job]
    assert closings(world)[-1] == (150, job, Disposal.STOPPED, because.LeaseEnded)


def test_a_slot_ends_although_the_guests_have_not_called() -> None:
    world = site(1)
    job = lease(world, 0)
    world.settle()
    world.now += 100
    world.settle()
    assert closings(world) == [(100, job, Disposal.STOPPED, because.LeaseEnded)]


def test_a_held_lease_has_no_slot_kept() -> None:
    world = site(1)
    job, other = lease(world, 50, held=True), world.submit(cores=4, walltime_s=100.0)
    until(world, START + 60)
    assert placements(world) == [(0, other)]
    assert type(why(core(world), job, world.now)[0]) is because.Held


def test_why_tells_when_a_lease_starts_and_who_leaves_it_the_room() -> None:
    world = site(1)
    job, long = lease(world, 50), world.submit(cores=4, walltime_s=100.0)
    world.settle()
    [reason] = why(core(world), job, world.now)
    assert type(reason) is because.LeaseStartsAt
    assert (because.fields(reason)["starts_at"], because.fields(reason)["in_s"], because.fields(reason)["ends_at"]) == (
        exact(START + 50),
        50,
        exact(START + 150),
    )
    first = why(core(world), long, world.now)[0]
    assert (type(first), because.fields(first)["job"], because.fields(first)["gap_s"]) == (
        because.LeaseKeepsRoom,
        job,
        50,
    )


@pytest.mark.parametrize("order", ["first-fit", "fcfs", "easy", "conservative", "shortest-first"])
def test_elsewhere_a_lease_starts_in_its_slot_first_of_all_and_nobody_makes_way(order: Any) -> None:
    world = site(2, order=order)
    before = world.submit(cores=4, walltime_s=10_000.0)
    job, missed = lease(world, 50), lease(world, 50, nodes=2)
    until(world, START + 49)
    assert placements(world) == [(0, before)]
    world.submit(cores=4, priority=9, after=(f.Dependency(condition="after", job=job),))
    until(world, START + 50)
    assert placements(world) == [(0, before), (50, job)]
    until(world, START + 160)
    assert closings(world) == [(150, job, Disposal.STOPPED, because.LeaseEnded)]
    assert [type(reason) for reason in why(core(world), missed, world.now)] == [because.LeaseOver]


def test_a_snapshot_before_a_slot_misses_nothing() -> None:
    world = site(2)
    external(world, nodes=2)
    settle(world)
    job = lease(world, 100)
    until(world, START + 50)
    twin = world.seats["scheduler.hpc"].twin()
    twin.core.decide(world.now)
    assert twin.core.wake_at() == core(world).wake_at() == START + 80, "2 × 1,000 MB at 100 MB/s"
    until(world, START + 100)
    assert (100, job) in placements(world)


def test_who_cannot_be_away_in_time_is_taken_last() -> None:
    """What starts beside a slot that already has its victims must not make it late."""
    world = site(2, victims="minimum-waiting-time")
    quick, slow = external(world, memory_mb=1000), external(world, memory_mb=8000)
    settle(world)
    lease(world, 40)  # the younger one would go first, and needs 80 s
    until(world, START + 40)
    assert [unit for _, unit, _, _ in closings(world)] == [quick], slow


def test_nobody_makes_way_for_a_lease_that_follows_another_sharp() -> None:
    world = site(2)
    first, other = lease(world, 0), external(world)
    settle(world)
    second = lease(world, 100)
    until(world, START + 150)
    assert placements(world) == [(0, first), (0, other), (100, second)]
    assert [closing[:2] for closing in closings(world)] == [(100, first)]


def test_a_lease_that_waits_for_its_slot_is_kept_when_limits_are_configured() -> None:
    world = site(1)
    job = lease(world, 100)
    settle(world)
    config = world.custody.state.config
    assert config is not None
    department = config.departments[0]
    assert department.batch is not None
    policy = msgspec.structs.replace(department.batch, limits=BatchLimits(jobs_running_max=5))
    config = msgspec.structs.replace(config, departments=(msgspec.structs.replace(department, batch=policy),))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    until(world, START + 150)
    assert placements(world) == [(100, job)]


def test_who_comes_too_late_to_be_ended_in_time_does_not_start_before_the_slot() -> None:
    world = site(1, suspend=False, margin_s=10.0)
    job = lease(world, 100)
    until(world, START + 86)
    other = external(world, memory_mb=100)
    until(world, START + 250)
    assert placements(world) == [(100, job), (200, other)]


def test_a_slot_does_not_move_when_somebody_starts_beside_it() -> None:
    """By best fit the first one would move to where the others are, and the second one lack a host."""
    world = site(3)
    first = lease(world, 100, cores=1, walltime_s=3000.0)
    second = lease(world, 400, cores=3, nodes=2)
    settle(world)
    jobs = [world.submit(nodes=2, cores=1, walltime_s=700.0), world.submit(cores=1, walltime_s=900.0)]
    jobs.append(world.submit(nodes=2, cores=2, walltime_s=150.0))
    until(world, START + 400)
    assert placements(world) == [*((0, job) for job in jobs), (100, first), (400, second)]


def test_who_starts_in_the_same_pass_makes_way_for_slots_too() -> None:
    """Production that comes behind it keeps away from a slot that needs the one before it to go."""
    world = site(3)
    old = external(world, nodes=3, cores=2, memory_mb=2000, walltime_s=1000.0)
    settle(world)
    first = lease(world, 100, nodes=3)
    until(world, START + 150)
    second = lease(world, 450, nodes=2)
    long = world.submit(nodes=2, cores=2, walltime_s=500.0)
    until(world, START + 600)
    assert [at for at, unit in placements(world) if unit == second] == [600]
    assert placements(world)[:3] == [(0, old), (100, first), (200, old)]
    assert (200, long) not in placements(world)


def test_a_lease_that_follows_another_finds_the_room_that_it_leaves() -> None:
    """Else it would stand on the host that a third one needs."""
    world = site(3)
    world.submit(cores=2, walltime_s=900.0)
    settle(world)
    first = lease(world, 100, nodes=2, cores=2)
    second, third = lease(world, 200, nodes=2, cores=1), lease(world, 210)
    until(world, START + 210)
    assert placements(world)[1:] == [(100, first), (200, second), (210, third)]


@pytest.mark.parametrize("order", ["fcfs", "leases"])
def test_a_slot_begins_though_a_notice_came_and_went(order: Any) -> None:
    world = site(2, order=order)
    job = lease(world, 100.0)
    settle(world)
    world.quota("hpc", 1)
    settle(world)
    world.quota("hpc", 2)
    until(world, world.now + 101.0)
    assert world.states()[job] == "open"


@pytest.mark.parametrize("order", ["leases", "fcfs"])
def test_a_lease_whose_slot_has_begun_starts_when_its_host_is_out_of_quarantine(order: Any) -> None:
    world = site(1, order=order)
    mine = lease(world, in_s=10.0)
    world.rest("h1", 60.0)
    world.advance(10.0)
    world.submit("bio")  # somebody is heard: the core is checked
    world.advance(49.0)
    assert world.states()[mine] == "pending"
    world.advance(1.0)
    assert world.states()[mine] == "open"
