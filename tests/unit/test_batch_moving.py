"""on_reclaim = migrate: victims of a notice go on at once where there is room, and are suspended where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Capability
from schemas.facts import Disposal
from services.scheduler.lookahead.why import why
from tests.support.scheduling import able, closed, cluster, core, decide, running
from tests.support.world import World

LIVE: Capability = "live_migration"


def kinds(world: World) -> list[str]:
    """What the next decision says, in order."""
    return [f.KIND[type(fact)] for fact in decide(world)]


def test_the_placement_stands_between_the_closing_and_the_release() -> None:
    world = able(2)
    job = running(world, on_reclaim="migrate", after_s=7)
    (home,) = world.unit(job).hosts
    world.drain(home)
    closing, placement, release, *_ = decide(world)
    assert isinstance(closing, f.AttemptClosed)
    assert isinstance(placement, f.UnitPlaced)
    assert isinstance(release, f.HostReleased)
    assert (closing.disposal, type(closing.why), "asked" in because.fields(closing.why)) == (
        Disposal.MIGRATE,
        because.HostDrained,
        False,
    )
    assert (placement.attempt, placement.hosts, type(placement.reason)) == (2, ("h2",), because.Migrates)
    assert release.host == home


def test_who_has_moved_goes_on_with_what_is_left_of_its_time() -> None:
    world = able(2)
    job = running(world, on_reclaim="migrate", walltime_s=100.0, after_s=60)
    world.drain(world.unit(job).hosts[0])
    world.settle()
    assert (world.unit(job).state, world.unit(job).hosts) == ("open", ("h2",))
    assert world.voids == []
    assert core(world).view.jobs.length_s(job) == 40
    world.start_vms(job)
    world.begin(job)
    world.now += 40
    assert closed(world) == {job: (Disposal.TIMEOUT, because.Walltime)}


def test_without_room_it_is_suspended_and_told_so() -> None:
    world = able(2)
    stays = running(world, on_reclaim="kill", after_s=100)
    job = running(world, on_reclaim="migrate", after_s=7)
    world.quota("hpc", 1)
    found = {fact.unit: fact for fact in decide(world) if isinstance(fact, f.AttemptClosed)}
    assert list(found) == [job]
    assert found[job].disposal is Disposal.SUSPEND
    assert (because.fields(found[job].why)["asked"], because.fields(found[job].why)["instead"]) == (
        "migrate",
        "suspend",
    )
    assert world.unit(stays).state == "open"


def test_where_nothing_can_be_suspended_it_is_requeued() -> None:
    world = able(1, LIVE)
    job = running(world, on_reclaim="migrate", after_s=7)
    world.quota("hpc", 0)
    assert closed(world) == {job: (Disposal.REQUEUE, because.Reclaimed)}


def test_live_migration_alone_is_enough_to_move() -> None:
    world = able(2, LIVE)
    job = running(world, on_reclaim="migrate", after_s=7)
    world.drain(world.unit(job).hosts[0])
    assert closed(world) == {job: (Disposal.MIGRATE, because.HostDrained)}


@pytest.mark.parametrize("wish", ["kill", "requeue", "suspend"])
def test_who_does_not_wish_it_stays_away_from_free_hosts(wish: Any) -> None:
    world = able(2)
    job = running(world, on_reclaim=wish, after_s=7)
    world.drain(world.unit(job).hosts[0])
    assert "unit.placed" not in kinds(world)


def test_who_has_not_begun_has_nothing_to_move() -> None:
    world = able(2)
    job = world.submit(cores=4, on_reclaim="migrate")
    world.settle()
    world.drain(world.unit(job).hosts[0])
    assert closed(world) == {job: (Disposal.REQUEUE, because.HostDrained)}


def test_a_held_job_is_suspended_where_it_could_move() -> None:
    world = able(2)
    job = running(world, on_reclaim="migrate", after_s=7)
    world.write("admission", f.JobHeld(job=job, user="ann"))
    world.drain(world.unit(job).hosts[0])
    assert closed(world) == {job: (Disposal.SUSPEND, because.HostDrained)}


def test_a_gang_keeps_the_hosts_that_stay_and_moves_as_a_whole_or_not_at_all() -> None:
    world = able(4)
    wide = running(world, nodes=3, on_reclaim="migrate", after_s=7)
    assert world.unit(wide).hosts == ("h1", "h2", "h3")
    world.drain("h2")
    world.settle()
    assert (world.unit(wide).attempt, world.unit(wide).hosts) == (2, ("h1", "h4", "h3"))
    world.start_vms(wide)
    world.begin(wide)
    world.drain("h1")
    assert closed(world) == {wide: (Disposal.SUSPEND, because.HostDrained)}  # three nodes, two hosts


def test_two_victims_do_not_take_the_same_room() -> None:
    world = able(3)
    first, second = (running(world, on_reclaim="migrate", after_s=7) for _ in range(2))
    for name in ("h1", "h2"):
        world.drain(name)
    found = closed(world)
    assert sorted(d for d, _ in found.values()) == [Disposal.MIGRATE, Disposal.SUSPEND]
    world.settle()
    assert world.voids == []
    assert [world.unit(job).state for job in (first, second)].count("open") == 1


def test_a_host_whose_machines_are_on_their_way_out_comes_last() -> None:
    world = able(3)
    job, over = (running(world, on_reclaim="migrate", after_s=7) for _ in range(2))
    world.report(over)  # its VM is still there
    world.drain("h1")
    world.settle()
    assert world.unit(job).hosts == ("h3",)


def test_moving_spends_no_retry_and_no_requeue() -> None:
    world = able(2, requeues_max=0)
    job = running(world, on_reclaim="migrate", retries=1, after_s=1)
    for host in ("h1", "h2"):
        other = "h2" if host == "h1" else "h1"
        world.drain(host)
        world.settle()
        assert world.unit(job).hosts == (other,)
        world.start_vms(job)
        world.begin(job)
        world.now += 1
        world.write("admission", f.HostUncordoned(host=host, reason="", user="root"))
        world.write("executor", f.HostCleared(host=host))
        world.grant("hpc", host)
    assert world.unit(job).failures == 0
    world.report(job, 1)
    assert (world.unit(job).state, world.unit(job).failures) == ("pending", 1)


def test_who_makes_way_for_a_job_does_not_move() -> None:
    world = able(2, order="svmsched", services={"a": 1.0})
    away = running(world, on_reclaim="migrate", best_effort=True, after_s=7)
    world.submit(nodes=2, cores=4, service="a", on_reclaim="kill")
    assert closed(world) == {away: (Disposal.SUSPEND, because.Preempted)}


def test_a_cloud_that_cannot_move_says_what_it_did_instead() -> None:
    world = cluster(2)
    job = running(world, on_reclaim="migrate", after_s=7)
    world.drain("h1")
    (closing,) = (fact for fact in decide(world) if isinstance(fact, f.AttemptClosed))
    assert (closing.disposal, because.fields(closing.why)["instead"]) == (Disposal.REQUEUE, "requeue")
    world.settle()
    assert type(why(core(world), job, world.now)[0]) is because.Starting
