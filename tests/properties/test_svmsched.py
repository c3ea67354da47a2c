"""Whatever is submitted and ends: SVMSched's promises hold (acceptance 1 to 5)."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from services.scheduler.core.batch.core import BatchCore
from tests.support.scheduling import core, reservations
from tests.support.services import shared, used
from tests.support.world import World

WEIGHTS = {"a": 3.0, "b": 2.0, "c": 1.0}
CORES = 6 * 4
SHORT_S = 100.0


class Asked(NamedTuple):
    service: str
    cores: int
    nodes: int
    walltime_s: float
    priority: int
    best_effort: bool
    short: bool


def asked(cores: int = 4, nodes: int = 2) -> st.SearchStrategy[Asked]:
    kinds = st.sampled_from([False, False, True])
    lengths = st.sampled_from([50.0, 100.0, 101.0, 1000.0])
    sizes = (st.integers(1, cores), st.integers(1, nodes))
    return st.builds(Asked, st.sampled_from("abc"), *sizes, lengths, st.integers(0, 1), kinds, kinds)


def steps(what: st.SearchStrategy[Asked]) -> st.SearchStrategy[list[tuple[str, int, Asked]]]:
    acts = st.sampled_from(["submit", "submit", "submit", "end", "begin", "time"])
    return st.lists(st.tuples(acts, st.integers(0, 9), what), max_size=25)


def site(short_s: float = SHORT_S) -> World:
    world = shared(6, services=WEIGHTS, short_s=short_s)
    world.strict = False
    return world


def play(world: World, what: str, number: int, job: Asked) -> None:
    alive: list[Any] = [unit for unit, state in world.states().items() if state == "open"]
    if what == "submit":
        world.submit(**job._asdict())
    elif what == "time":
        world.now += 20 * number
    elif alive and what == "end":
        world.report(alive[number % len(alive)])
    elif alive and what == "begin":
        world.begin(alive[number % len(alive)])


def decided(world: World) -> list[f.Fact]:
    """One decision, written; nothing of it is void."""
    facts = core(world).decide(world.now)
    if facts:
        world.write("scheduler.hpc", *facts)
    assert world.voids == []
    return facts


def share(service: str) -> float:
    return CORES * WEIGHTS[service] / 6


@settings(max_examples=60, deadline=None)
@given(steps(asked()))
def test_with_threshold_0_no_service_ever_has_more_than_its_share(story: list[tuple[str, int, Asked]]) -> None:
    world = site(short_s=0.0)
    for what, number, job in story:
        play(world, what, number, job)
        world.settle()
        assert all(used(world, service) <= share(service) for service in WEIGHTS)
    world.seats["scheduler.hpc"].verify(world.now)


@settings(max_examples=60, deadline=None)
@given(steps(asked()))
def test_only_short_jobs_push_a_service_above_its_share_and_only_best_effort_makes_way(
    story: list[tuple[str, int, Asked]],
) -> None:
    world = site()
    for what, number, job in story:
        play(world, what, number, job)
        before = {service: used(world, service) for service in WEIGHTS}
        jobs = core(world).state.jobs
        for fact in decided(world):
            if isinstance(fact, f.AttemptClosed) and type(fact.why) is because.Preempted:
                assert jobs[fact.unit].best_effort
            elif isinstance(fact, f.UnitPlaced) and not jobs[fact.unit].best_effort:
                mine = jobs[fact.unit]
                before[mine.service] += mine.nodes * mine.size.cores
                is_short = mine.short or mine.walltime_s <= SHORT_S
                assert is_short or before[mine.service] <= share(mine.service)
    world.seats["scheduler.hpc"].verify(world.now)


@settings(max_examples=60, deadline=None)
@given(steps(asked(cores=1, nodes=1)))
def test_who_borrows_has_nobody_within_a_share_waiting(story: list[tuple[str, int, Asked]]) -> None:
    """Of jobs of one core: whoever is within a share could have had the borrower's."""
    world = site()
    for what, number, job in story:
        play(world, what, number, job)
        facts = decided(world)
        if any(isinstance(x, f.UnitPlaced) and x.reason and type(x.reason) is because.Borrows for x in facts):
            mine = core(world)
            waiting = [
                mine.state.jobs[unit] for unit in mine.view.jobs.queue.where if not mine.state.jobs[unit].best_effort
            ]
            assert all(used(world, job.service) + 1 > share(job.service) for job in waiting)


@settings(max_examples=60, deadline=None)
@given(steps(asked()), st.integers(1, 200))
def test_time_alone_starts_nothing(story: list[tuple[str, int, Asked]], wait_s: int) -> None:
    world = site()
    for what, number, job in story:
        play(world, what, number, job)
        world.settle()
        fresh = BatchCore(world.custody, "hpc")
        fresh.load(core(world).dump())
        assert not [x for x in fresh.decide(world.now + wait_s) if isinstance(x, f.UnitPlaced)]


@settings(max_examples=60, deadline=None)
@given(steps(asked()))
def test_room_that_is_kept_for_a_job_is_there_by_its_time(story: list[tuple[str, int, Asked]]) -> None:
    """Of what runs then, only best-effort may be in its way."""
    world = site()
    for what, number, job in story:
        play(world, what, number, job)
        mine = core(world)
        kept = next(iter(reservations(mine.view.order.plan(mine.view.situation(world.now, mine.view.room)))), None)
        decided(world)
        if kept is None:
            continue
        jobs, taken = mine.state.jobs, dict.fromkeys(world.custody.state.hosts, 0)
        for unit in [unit for unit in world.custody.state.units.values() if unit.live]:
            since = unit.began_at if unit.began_at is not None else unit.placed_at or 0.0
            if not jobs[unit.id].best_effort and since + jobs[unit.id].walltime_s > kept.at:
                for host in unit.hosts:
                    taken[host] += unit.size.cores
        head = jobs[kept.unit]
        assert sum(1 for cores in taken.values() if cores + head.size.cores <= 4) >= head.nodes
