"""Properties of the conservative order, on a room, a queue and a forecast of its own.

C1  With whole hosts it starts and reserves as a plain search through all moments and hosts does; the first one that waits, with
    shared hosts too, is promised what EASY promises it.
C2  With shared hosts, exclusive ones, hosts of two sizes: nobody before a started unit gets a later reservation by its start,
    and nobody's host is over its capacity when all begin as reserved.
C3  Time alone starts nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import reasons as because
from schemas.config import BatchPolicy, MultiFactor
from services.domain.text import sentence
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import order_conservative as conservative
from services.scheduler.core.policies import order_easy
from services.scheduler.lookahead.why import why
from tests.properties.test_easy import (
    CORES,
    RUNS,
    STEPS,
    Run,
    given_runs,
    queue_up,
    starts,
    starts_nothing_by_time,
)
from tests.support.scheduling import cluster, core, reservations
from tests.support.world import World, batch, cloud


def by_hand(world: World, waiting: list[str], hosts: int) -> dict[str, float]:
    """When each starts, with whole hosts: of all moments the first one at which enough hosts stay free."""
    units, jobs, now = world.custody.state.units, core(world).state.jobs, world.now
    busy: dict[str, list[tuple[float, float]]] = {f"h{n}": [] for n in range(1, hosts + 1)}
    for unit in units.values():
        for host in unit.hosts:
            busy[host].append((float("-inf"), (unit.placed_at or 0.0) + jobs[unit.id].walltime_s))
    found: dict[str, float] = {}
    for name in waiting:
        length_s = jobs[name].walltime_s
        ends = [end for slots in busy.values() for _, end in slots]
        for at in sorted({now, *(end for end in ends if end > now)}):
            free = [h for h, slots in busy.items() if not any(a < at + length_s and at < b for a, b in slots)]
            if len(free) >= jobs[name].nodes:
                found[name] = at
                for host in free[: jobs[name].nodes]:
                    busy[host].append((at, at + length_s))
                break
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(RUNS, max_size=5), st.lists(RUNS, min_size=1, max_size=6), st.integers(1, 4))
def test_the_first_one_is_promised_what_easy_promises_it(ran: list[Run], runs: list[Run], hosts: int) -> None:
    world = cluster(hosts, order="easy")
    world.strict = False
    given_runs(world, ran, whole=False)
    queue_up(world, runs, whole=False)
    world.settle()
    mine = core(world)
    situation = mine.view.situation(world.now, mine.view.room)
    for kept in reservations(order_easy.plan(situation)):
        assert {each.unit: each.at for each in conservative.reservations(situation)}[kept.unit] == kept.at


@settings(max_examples=150, deadline=None)
@given(st.lists(RUNS, max_size=4), st.lists(RUNS, min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 3))
def test_with_whole_hosts_it_starts_and_reserves_as_by_hand(
    ran: list[Run], runs: list[Run], hosts: int, late_s: int
) -> None:
    world = cluster(hosts, order="conservative")
    world.strict = False
    given_runs(world, ran, whole=True)
    world.now += late_s
    waiting = queue_up(world, runs, whole=True)
    expected, mine = by_hand(world, waiting, hosts), core(world)
    assert [start.unit for start in starts(world)] == [name for name in waiting if expected.get(name) == world.now]
    found = {each.unit: each.at for each in conservative.reservations(mine.view.situation(world.now, mine.view.room))}
    assert found == {name: expected[name] for name in waiting if name in expected}


ODD: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    nodes=st.integers(1, 3),
    cores=st.integers(1, CORES),
    memory_mb=st.sampled_from([0, 4096, 8192]),
    walltime_s=st.integers(1, 40).map(float),
    exclusive=st.booleans(),
)


def odd_world(ran: list[dict[str, Any]], runs: list[dict[str, Any]]) -> tuple[World, list[str]]:
    """Three small hosts and two large ones."""
    world = World(cloud(batch("hpc", order="conservative")))
    world.strict = False
    names = world.hosts(3, cores=CORES) + world.hosts(2, cores=2 * CORES, memory_mb=16384, first=4)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    for fields in ran:
        world.submit(**fields | {"walltime_s": fields["walltime_s"] + 10})
        world.step()
        world.now += 1
    for unit in [unit for unit, state in world.states().items() if state == "pending"]:
        world.cancel(unit)
    return world, [world.submit(**fields) for fields in runs]


def turns(world: World, names: list[str]) -> dict[str, float | None]:
    mine = core(world)
    found = {each.unit: each.at for each in conservative.reservations(mine.view.situation(world.now, mine.view.room))}
    return {name: found.get(name) for name in names}


@settings(max_examples=150, deadline=None)
@given(st.lists(ODD, max_size=6), st.lists(ODD, min_size=1, max_size=8))
def test_no_start_delays_anybody_before_it(ran: list[dict[str, Any]], runs: list[dict[str, Any]]) -> None:
    world, waiting = odd_world(ran, runs)
    for start in starts(world):
        before = turns(world, waiting)
        world.write("scheduler.hpc", start)
        ahead = waiting[: waiting.index(start.unit)]
        after = turns(world, [name for name in ahead if world.states()[name] == "pending"])
        assert after == {name: before[name] for name in after}
        waiting.remove(start.unit)
    assert world.voids == []
    mine = core(world)
    passing = conservative._Pass(mine.view.situation(world.now, mine.view.room))
    passing.run()
    for line in passing.lines:
        for free in line.free:
            assert free == conservative.NO_ROOM or min(free.size) >= 0


@settings(max_examples=100, deadline=None)
@given(STEPS, st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_time_alone_starts_nothing(steps: list[tuple[str, int, Run]], waits: list[int]) -> None:
    starts_nothing_by_time("conservative", steps, waits)


# ---------------------------------------------------------------------------------------------------------------- examples


def busy() -> tuple[World, str, str]:
    """Of four hosts two run for 100 s; a job of four waits for them, and behind it one of three."""
    world = cluster(4, order="conservative")
    world.submit(nodes=2, cores=CORES, walltime_s=100)
    world.settle()
    wide, next_ = world.submit(nodes=4, cores=CORES, walltime_s=50), world.submit(nodes=3, cores=CORES, walltime_s=50)
    world.settle()
    return world, wide, next_


def test_everybody_has_a_reservation_and_why_tells_it() -> None:
    world, wide, next_ = busy()
    long, short = world.submit(cores=CORES, walltime_s=101), world.submit(cores=CORES, walltime_s=100)
    assert [(x.unit, type(x.reason), because.fields(x.reason)) for x in starts(world) if x.reason] == [
        (short, because.Backfill, {"reserved": 3})
    ]
    world.settle()
    told = {name: why(core(world), name, world.now)[0] for name in (wide, next_, long)}
    assert {name: because.fields(reason)["reserved_in_s"] for name, reason in told.items()} == {
        wide: 100,
        next_: 150,
        long: 150,
    }
    assert type(told[long]) is because.WaitsBehind


def test_it_keeps_room_for_the_second_one_too_where_easy_does_not() -> None:
    for order, started in (("easy", ["4"]), ("conservative", [])):
        world = cluster(4, order=order)
        world.submit(nodes=3, cores=CORES, walltime_s=100)
        world.submit(nodes=2, cores=CORES, walltime_s=50)
        world.submit(nodes=4, cores=CORES, walltime_s=50)  # has its turn in 150 s
        world.submit(cores=CORES, walltime_s=200)
        assert [start.unit for start in starts(world)] == ["1", *started]
        world.settle()


def test_a_start_beside_others_moves_nobodys_reservation_to_a_host_that_somebody_else_needs() -> None:
    """By best fit the first one would move to the large host once the third has made that the fuller one."""
    world = World(cloud(batch("hpc", order="conservative")))
    names = world.hosts(1, cores=4, memory_mb=8) + world.hosts(1, cores=8, memory_mb=16, first=2)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    world.submit(cores=4, memory_mb=8, walltime_s=10)
    world.submit(cores=1, memory_mb=16, walltime_s=10)
    world.settle()
    first, second = world.submit(cores=2, memory_mb=8), world.submit(cores=1, memory_mb=16)
    assert turns(world, [first, second]) == {first: world.now + 10, second: world.now + 10}
    long = world.submit(cores=5, memory_mb=0)
    world.settle()
    assert world.states()[long] == "open"
    assert turns(world, [first, second]) == {first: world.now + 10, second: world.now + 10}


@pytest.mark.parametrize("most", [1, 7, 100])
@pytest.mark.parametrize(
    "policy",
    [{"order": "conservative"}, {"order": "multi-factor", "multi_factor": MultiFactor(backfill="conservative")}],
)
def test_beyond_the_last_reservation_everybody_waits_and_is_told_so(most: int, policy: dict[str, Any]) -> None:
    world = cluster(2, **policy, reservations_max=most)
    world.strict = False
    world.submit(cores=CORES, walltime_s=100)
    world.settle()
    waiting = [world.submit(nodes=2, cores=CORES, walltime_s=10) for _ in range(most)]
    short = world.submit(cores=CORES, walltime_s=1)
    wide = world.submit(nodes=2, cores=CORES, walltime_s=1)
    world.settle()
    assert world.states()[short] == "pending"
    assert "reserved_in_s" in because.fields(why(core(world), waiting[-1], world.now)[0])
    for behind in (short, wide):
        reason = why(core(world), behind, world.now)[0]
        assert (because.fields(reason).get("reservations_max"), because.fields(reason).get("reserved_in_s")) == (
            most,
            None,
        )
        told = sentence(msgspec.to_builtins(reason))
        assert f"; room is kept for {most} at a time (reservations_max), and it is behind them" in told
    world.cancel("2")
    world.cancel(wide)
    world.settle()
    assert world.states()[short] == "open"


def test_a_pass_over_ten_thousand_jobs_is_bounded() -> None:
    world = World(cloud(batch("hpc", order="conservative")))
    world.strict = False
    names = world.hosts(100, cores=8)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    for number in range(99):
        world.submit(cores=8, walltime_s=1000.0 + 7 * number)
    world.settle()
    for number in range(1000):
        world.submit(array=tuple(range(10)), nodes=2 + number % 4, cores=8, walltime_s=300.0 + number % 50)
    world.submit(cores=8, walltime_s=1e6)
    mine = core(world)
    assert len(mine.view.jobs.queue) == 10_001
    passing = conservative._Pass(mine.view.situation(world.now, mine.view.room))
    passing.run()
    assert passing.reserved == len(passing.given) == BatchPolicy().reservations_max == 100
    hopeful = conservative._Pass(mine.view.situation(world.now, mine.view.room))
    hopeful.hope([])
    hopeful.run()
    assert hopeful.given == []  # nobody can start: nobody needs a reservation
