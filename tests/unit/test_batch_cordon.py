"""Hosts that are set apart, as a batch department sees them: what runs there stays; a drained one goes at its deadline."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.custody.meta import Void
from tests.support.scheduling import able, closed, cluster, core, decide, demand, placed, released, running
from tests.support.world import World


def given_back(world: World) -> list[tuple[str, because.Kind]]:
    """What the next decision gives back, and why."""
    return [(x.host, type(x.reason)) for x in decide(world) if isinstance(x, f.HostReleased) and x.reason]


@pytest.mark.parametrize("drain", [False, True])
def test_what_runs_on_a_cordoned_host_runs_on_and_nothing_comes_beside_it(drain: bool) -> None:
    world = cluster(2)
    job = running(world, cores=2)
    (home,) = world.unit(job).hosts
    world.drain(home, None) if drain else world.cordon(home)
    assert decide(world) == []
    small = world.submit(cores=1)  # it would be placed beside the other one
    assert placed(world)[small] != (home,)
    world.settle()
    world.advance(3000)
    assert world.unit(job).state == "open"


def test_a_cordoned_host_goes_back_when_the_last_job_there_has_ended() -> None:
    world = cluster(2)
    first, second = running(world, cores=2), running(world, cores=2)
    assert world.unit(first).hosts == world.unit(second).hosts == ("h1",)
    world.cordon("h1")
    world.report(first)
    assert released(world) == []
    world.report(second)
    assert given_back(world) == [("h1", because.Cordoned)]


def test_an_idle_cordoned_host_goes_back_at_once() -> None:
    world = cluster(2)
    world.settle()
    world.cordon("h2")
    assert given_back(world) == [("h2", because.Cordoned)]


def test_a_notice_is_answered_without_cordoned_hosts() -> None:
    """They serve nobody else: to end what runs there would help nobody."""
    world = cluster(2)
    cheap, dear = running(world, after_s=1), running(world, after_s=50)
    world.cordon(world.unit(cheap).hosts[0])
    world.quota("hpc", 1)
    assert closed(world) == {dear: (Disposal.REQUEUE, because.Reclaimed)}
    assert released(world) == list(world.unit(dear).hosts)


def test_at_the_deadline_what_still_runs_ends_as_on_notice() -> None:
    world = cluster(2, held=1)
    stays = running(world)
    world.drain("h1", 30.0)
    assert decide(world) == []
    assert core(world).wake_at() <= world.now + 30
    world.now += 29.9
    assert decide(world) == []
    world.now += 0.1
    assert closed(world) == {stays: (Disposal.REQUEUE, because.HostDrained)}
    assert given_back(world) == [("h1", because.HostDrained)]
    world.settle()
    assert world.voids == []
    again = core(world).state.again[stays]
    assert (again.requeues, again.faults, world.unit(stays).failures) == (1, 0, 0)  # no fault of the job's


@pytest.mark.parametrize("undone", ["uncordon", "cordon", "drain"])
def test_the_last_word_counts(undone: str) -> None:
    world = cluster(1)
    job = running(world)
    world.drain("h1", 30.0)
    world.settle()
    if undone == "uncordon":
        world.write("admission", f.HostUncordoned(host="h1", reason="", user="root"))
    elif undone == "cordon":
        world.cordon("h1")
    else:
        world.drain("h1", None)
    world.now += 60
    assert decide(world) == []
    assert world.unit(job).state == "open"


def test_a_cordoned_host_in_use_is_wanted_beside_what_others_could_be() -> None:
    world = cluster(3)
    running(world)
    assert demand(world) == 1
    world.cordon("h1")
    assert demand(world) == 1
    for _ in range(3):
        world.submit(cores=4)
    assert demand(world) == 3  # the two that there are, and the one that is still in use


def test_a_placement_that_was_decided_before_the_cordon_is_void_and_goes_elsewhere() -> None:
    world = cluster(2)
    world.settle()
    job = world.submit(cores=4)
    (start,) = (fact for fact in decide(world) if isinstance(fact, f.UnitPlaced))
    world.cordon(start.hosts[0])
    world.write("scheduler.hpc", start)
    assert [meta.void for _, meta in world.voids] == [Void.HOST_CORDONED]
    world.settle()
    assert (world.unit(job).state, world.unit(job).hosts != start.hosts) == ("open", True)


def test_a_gang_keeps_its_rank_on_a_cordoned_host_when_another_one_is_drained() -> None:
    world = able(4)
    wide = running(world, nodes=3, on_reclaim="migrate", after_s=7)
    world.cordon("h1")
    world.drain("h2")
    world.settle()
    assert (world.unit(wide).attempt, world.unit(wide).hosts, world.voids) == (2, ("h1", "h4", "h3"), [])
