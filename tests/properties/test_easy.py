"""Properties of the EASY order, on a room, a queue and a forecast of its own.

E1  With whole hosts it starts exactly the units that the textbook's EASY starts (Mu'alem and Feitelson 2001).
E2  With shared hosts: whatever it starts fits, and at the shadow time the head still fits beside all that runs then.
E3  Time alone starts nothing: after a fruitless pass, no later one bears fruit unless a fact has come.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import order_easy
from tests.support.scheduling import cluster, core, reservations
from tests.support.world import World

CORES = 4


class Run(NamedTuple):
    nodes: int
    cores: int
    walltime_s: float


RUNS = st.builds(Run, st.integers(1, 4), st.integers(1, CORES), st.integers(1, 12).map(float))


def given_runs(world: World, runs: list[Run], *, whole: bool) -> None:
    """Each starts as soon as it fits, a second after the one before it."""
    for run in runs:
        world.submit(nodes=run.nodes, cores=CORES if whole else run.cores, walltime_s=2 * run.walltime_s + 8)
        world.step()
        world.now += 1
    for unit in [unit for unit, state in world.states().items() if state == "pending"]:
        world.cancel(unit)


def queue_up(world: World, runs: list[Run], *, whole: bool) -> list[str]:
    return [
        world.submit(nodes=run.nodes, cores=CORES if whole else run.cores, walltime_s=3 * run.walltime_s)
        for run in runs
    ]


def starts(world: World) -> list[f.UnitPlaced]:
    return [fact for fact in core(world).decide(world.now) if isinstance(fact, f.UnitPlaced)]


def textbook(world: World, waiting: list[str], hosts: int) -> list[str]:
    """EASY on whole nodes: one that is wider than the machine is no head."""
    units, jobs = world.custody.state.units, core(world).state.jobs
    open_ = [unit for unit in units.values() if unit.state == "open"]
    ends = [(unit.placed_at + jobs[unit.id].walltime_s, unit.nodes) for unit in open_ if unit.placed_at is not None]
    free, found = hosts - sum(nodes for _, nodes in ends), []
    queue = [job for job in waiting if jobs[job].nodes <= hosts]
    while queue and jobs[queue[0]].nodes <= free:
        job = queue.pop(0)
        found.append(job)
        free -= jobs[job].nodes
        ends.append((world.now + jobs[job].walltime_s, jobs[job].nodes))
    if not queue:
        return found
    shadow, then = 0.0, free
    for end, nodes in sorted(ends):
        if then >= jobs[queue[0]].nodes and end > shadow:
            break
        shadow, then = end, then + nodes
    extra = then - jobs[queue[0]].nodes
    for job in queue[1:]:
        short = world.now + jobs[job].walltime_s <= shadow
        if jobs[job].nodes <= free and (short or jobs[job].nodes <= extra):
            found.append(job)
            free -= jobs[job].nodes
            extra -= 0 if short else jobs[job].nodes
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(RUNS, max_size=4), st.lists(RUNS, min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 8))
def test_with_whole_hosts_it_is_the_textbooks_easy(ran: list[Run], runs: list[Run], hosts: int, late_s: int) -> None:
    world = cluster(hosts, order="easy")
    world.strict = False
    given_runs(world, ran, whole=True)
    world.now += late_s
    waiting = queue_up(world, runs, whole=True)
    assert [start.unit for start in starts(world)] == textbook(world, waiting, hosts)


@settings(max_examples=150, deadline=None)
@given(st.lists(RUNS, max_size=5), st.lists(RUNS, min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 8))
def test_the_head_still_fits_at_the_shadow_time(ran: list[Run], runs: list[Run], hosts: int, late_s: int) -> None:
    world = cluster(hosts, order="easy")
    world.strict = False
    given_runs(world, ran, whole=False)
    world.now += late_s
    queue_up(world, runs, whole=False)
    mine: BatchCore = core(world)
    kept = next(iter(reservations(order_easy.plan(mine.view.situation(world.now, mine.view.room)))), None)
    placed = starts(world)
    assert list(dict.fromkeys(start.unit for start in placed)) == [start.unit for start in placed]
    world.write("scheduler.hpc", *placed)
    assert world.voids == []
    if kept is not None:
        jobs = mine.state.jobs
        assert kept.unit not in [start.unit for start in placed]
        used = dict.fromkeys(world.custody.state.hosts, 0)
        for unit in [unit for unit in world.custody.state.units.values() if unit.state == "open"]:
            if (unit.placed_at or 0.0) + jobs[unit.id].walltime_s > kept.at:
                for host in unit.hosts:
                    used[host] += unit.size.cores
        head = jobs[kept.unit]
        assert sum(1 for cores in used.values() if cores + head.size.cores <= CORES) >= head.nodes


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "end", "begin", "cordon", "lose", "time"]), st.integers(0, 7), RUNS)
)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.lists(st.integers(1, 15), min_size=1, max_size=4))
def test_time_alone_starts_nothing(steps: list[tuple[str, int, Run]], waits: list[int]) -> None:
    starts_nothing_by_time("easy", steps, waits)


def starts_nothing_by_time(order: str, steps: list[tuple[str, int, Run]], waits: list[int]) -> None:
    """Whatever has happened, a core that has come to rest places nothing merely because it is asked later."""
    world = cluster(4, order=order)
    world.strict = False
    for what, number, run in steps:
        play(world, what, number, run)
        world.settle()
        for wait_s in waits:
            fresh = BatchCore(world.custody, "hpc")
            fresh.load(core(world).dump())
            assert not [x for x in fresh.decide(world.now + wait_s) if isinstance(x, f.UnitPlaced)]
    world.seats["scheduler.hpc"].verify(world.now)


def play(world: World, what: str, number: int, run: Run) -> None:
    alive: list[Any] = [unit for unit, state in world.states().items() if state == "open"]
    if what == "submit":
        world.submit(nodes=run.nodes, cores=run.cores, walltime_s=run.walltime_s + 40, priority=number % 2)
    elif what == "time":
        world.now += number
    elif what == "cordon":
        world.cordon(f"h{1 + number % 4}")
    elif what == "lose" and number == 0:
        world.lose("h4")
    elif alive and what == "end":
        world.report(alive[number % len(alive)])
    elif alive and what == "begin" and world.unit(alive[number % len(alive)]).live:
        world.begin(alive[number % len(alive)])


# ---------------------------------------------------------------------------------------------------------------- examples


def busy() -> World:
    """Two of three hosts run for 100 s."""
    world = cluster(3, order="easy")
    world.submit(nodes=2, cores=CORES, walltime_s=100)
    world.settle()
    return world


def test_a_short_job_overtakes_and_a_long_one_does_not() -> None:
    world = busy()
    wide = world.submit(nodes=3, cores=CORES)
    long, short = world.submit(cores=CORES, walltime_s=101), world.submit(cores=CORES, walltime_s=100)
    world.submit(cores=CORES, walltime_s=101)
    assert [(x.unit, type(x.reason), because.fields(x.reason)) for x in starts(world) if x.reason] == [
        (short, because.Backfill, {"head": wide, "gap_s": 100.0})
    ]
    world.settle()
    assert world.states()[long] == "pending"


def test_a_long_job_takes_hosts_that_the_head_can_spare() -> None:
    world = busy()
    head, long = world.submit(nodes=2, cores=CORES), world.submit(cores=CORES, walltime_s=9999)
    assert [(x.unit, because.fields(x.reason)) for x in starts(world) if x.reason] == [
        (long, {"head": head, "spare": 0})
    ]


def test_a_head_that_the_hosts_held_could_never_hold_keeps_nobody_back() -> None:
    world = cluster(4, held=3, order="easy")
    wide, long = world.submit(nodes=4, cores=CORES), world.submit(cores=CORES, walltime_s=9999)
    assert [(x.unit, type(x.reason), because.fields(x.reason)) for x in starts(world) if x.reason] == [
        (long, because.FirstFit, {"passed_over": wide})
    ]


def test_a_head_that_needs_a_whole_host_is_not_delayed_by_a_core() -> None:
    world = cluster(1, order="easy")
    world.submit(cores=3, walltime_s=100)
    world.settle()
    world.submit(cores=1, exclusive=True)
    world.submit(cores=1, walltime_s=101)
    assert starts(world) == []
    short = world.submit(cores=1, walltime_s=99)
    assert [start.unit for start in starts(world)] == [short]


def test_a_long_job_starts_beside_the_head_where_both_fit() -> None:
    """Of the four cores one is left when the head has its three, and no more than one."""
    world = cluster(1, order="easy")
    world.submit(cores=3, walltime_s=100)
    world.settle()
    world.submit(cores=3)
    long = world.submit(cores=1, walltime_s=9999)
    assert [start.unit for start in starts(world)] == [long]


def test_an_array_is_held_to_its_throttle_when_it_fills_a_gap() -> None:
    world = busy()
    world.submit(nodes=3, cores=CORES)
    array = world.submit(array=tuple(range(5)), cores=1, walltime_s=50, throttle=2)
    assert [start.unit for start in starts(world)] == [f"{array}_0", f"{array}_1"]


def test_when_attempts_begin_late_the_gap_is_longer() -> None:
    world = busy()
    world.submit(nodes=3, cores=CORES)
    world.now += 5
    long = world.submit(cores=CORES, walltime_s=98)
    world.settle()
    assert world.states()[long] == "pending"  # 95 s are left before the head's turn
    world.begin("1")
    assert [start.unit for start in starts(world)] == [long]  # now it is 100 s


def test_when_the_heads_turn_comes_later_because_a_host_goes_the_gap_is_longer() -> None:
    world = cluster(4, order="easy")
    world.submit(nodes=2, cores=CORES, walltime_s=100)
    world.submit(nodes=1, cores=CORES, walltime_s=200)
    world.submit(nodes=3, cores=CORES)
    long = world.submit(cores=CORES, walltime_s=150)
    world.settle()
    assert world.states()[long] == "pending"
    world.cordon("h1")  # of the first one: the head has to wait for the second as well
    assert [start.unit for start in starts(world)] == [long]


def test_shortest_first_starts_by_priority_and_then_by_time_limit() -> None:
    world = cluster(1, order="shortest-first")
    world.submit(cores=1, walltime_s=30)
    world.submit(cores=1, walltime_s=10)
    world.submit(cores=1, walltime_s=20)
    world.submit(cores=1, walltime_s=20)
    urgent = world.submit(cores=1, walltime_s=99, priority=1)
    assert [start.unit for start in starts(world)] == [urgent, "2", "3", "4"]
    assert {type(start.reason) for start in starts(world) if start.reason} == {because.ShortestFirst}


def test_shortest_first_passes_over_what_does_not_fit_and_keeps_a_throttle() -> None:
    world = cluster(2, order="shortest-first")
    world.submit(nodes=3, cores=1, walltime_s=1)
    array = world.submit(array=(0, 1, 2), cores=1, walltime_s=2, throttle=2)
    last = world.submit(cores=1, walltime_s=3)
    assert [start.unit for start in starts(world)] == [f"{array}_0", f"{array}_1", last]
