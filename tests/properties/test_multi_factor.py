"""Properties of multi-factor priority and of the usage that it is made of.

M1  Usage is what attempts used: the sum over all attempts of the journal, each integrated second by second in closed form;
    without decay plain core-seconds, to which memory and GPUs add what they are worth.  Nothing is credited twice,
    nothing is forgotten.  So are standings, as of their moment.
M2  Replay = live: a core that folds the journal from its beginning, or goes on from a snapshot of any moment, has the same
    usage, to the byte, the same order, and decides the same.
M3  Between two moments nobody's place changes by time; at each the queue is what a sort by points makes of it.
"""

from __future__ import annotations

import math
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import MultiFactor, User
from schemas.envelope import decode
from schemas.size import Size, size_of
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import order_multi_factor as multi
from services.scheduler.lookahead.why import queue_view, why
from tests.support.scheduling import cluster, core, decide
from tests.support.world import START, World, batch, cloud

USERS = ("ann", "bob", "cyd")
HOST = Size(4, 8192, 4)  # no job waits for GPUs longer than for cores
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "begin", "end", "fail", "lose", "hold", "quota", "time", "cancel", "decide", "run"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=5,
    max_size=40,
)


def world_of(**settings_: Any) -> World:
    world = World(cloud(batch("hpc", order="multi-factor", multi_factor=MultiFactor(**settings_))))
    world.strict = False
    world.hosts(3, gpus=HOST.gpus)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", "h1", "h2", "h3")
    return world


def play(world: World, what: str, a: int, b: int) -> None:
    alive = [unit for unit, state in world.states().items() if state == "open"]
    waiting = [unit for unit, state in world.states().items() if state == "pending"]
    if what == "submit":
        fields: dict[str, Any] = {"user": USERS[a % 3], "priority": b - 3, "walltime_s": 1e5}
        world.submit(nodes=1 + a % 2, cores=1 + b % 4, gpus=b // 4, exclusive=b == 7, **fields)
    elif (
        what == "run"
    ):  # from submission to its end, if there is room: chance alone seldom has two of a user, far apart
        unit = world.submit(user=USERS[a % 3], cores=1 + b % 4, walltime_s=1e5)
        world.settle()
        if world.unit(unit).live:
            world.begin(unit)
            world.now += (40.0, 350.0)[b % 2]
            world.report(unit)
    elif what == "time":
        world.now += (1.0, 40.0, 100.0, 350.0)[a % 4]
    elif what == "quota":
        world.quota("hpc", a % 4)
    elif what == "lose" and b == 0:
        world.lose("h3")
    elif what == "hold" and waiting:
        kind = f.JobHeld if b % 2 else f.JobResumed
        world.write("admission", kind(job=waiting[a % len(waiting)], user="ann"))
    elif what == "cancel" and alive + waiting:
        world.cancel((alive + waiting)[a % len(alive + waiting)])
    elif alive and world.unit(alive[a % len(alive)]).live:
        if what == "begin":
            world.begin(alive[a % len(alive)])
        elif what in ("end", "fail"):
            world.report(alive[a % len(alive)], exit=int(what == "fail"))
    if what == "decide" or b % 2:
        world.settle()


class Ledger:
    """What attempts used, from facts alone: (user, cores or what that is worth, from, to)."""

    def __init__(self, world: World, core: float = 1.0, gb: float = 0.0, gpu: float = 0.0) -> None:
        self.open: dict[str, tuple[str, float, float]] = {}
        self.over: list[tuple[str, float, float, float]] = []
        jobs: dict[str, f.JobSubmitted] = {}
        for at, fact in told(world):
            if isinstance(fact, f.JobSubmitted):
                jobs[fact.job] = fact
            elif isinstance(fact, f.UnitPlaced):
                each = HOST if fact.exclusive else size_of(fact)
                worth = core * each.cores + gb * each.memory_mb / 1024 + gpu * each.gpus
                self.open[fact.unit] = (jobs[fact.unit].user, len(fact.hosts) * worth, at)
            elif isinstance(fact, f.AttemptClosed | f.AttemptReported) and fact.unit in self.open:
                self.over.append((*self.open.pop(fact.unit), at))

    def by(self, user: str, at: float, half_life_s: float) -> float:
        """What the user had used by then."""
        every = [*self.over, *((*entry, at) for entry in self.open.values())]
        spans = [(name, cores, a, min(b, at)) for name, cores, a, b in every if a < at]
        return math.fsum(cores * weigh(a, b, at, half_life_s) for name, cores, a, b in spans if name == user)


def told(world: World) -> list[tuple[float, f.Fact]]:
    """All facts, with the fold's time; none of them is void."""
    assert not world.voids
    found: list[tuple[float, f.Fact]] = []
    latest = 0.0
    for writer, data in world.journal:
        envelope = decode(data, writer)
        latest = max(latest, envelope.at)
        found += [(latest, fact) for fact in envelope.facts]  # type: ignore[misc]
    return found


def weigh(a: float, b: float, at: float, half_life_s: float) -> float:
    """Seconds from a to b, each worth half for each half-life that has passed since."""
    if not half_life_s:
        return b - a
    rate = math.log(2) / half_life_s
    return (math.exp(-rate * (at - b)) - math.exp(-rate * (at - a))) / rate


@settings(max_examples=120, deadline=None)
@given(STEPS, st.sampled_from([0.0, 50.0, 600.0, 1e6]), st.sampled_from([(), (0.5, 2.0, 8.0)]))
def test_usage_is_what_attempts_used(
    steps: list[tuple[str, int, int]], half_life_s: float, weights: tuple[float, ...]
) -> None:
    named = dict(zip(("usage_per_core", "usage_per_gb", "usage_per_gpu"), weights, strict=False))
    world = world_of(half_life_s=half_life_s, period_s=100, **named)
    for step in steps:
        play(world, *step)
    mine, at = core(world), world.now
    ledger = Ledger(world, *weights)
    assert sorted(ledger.open) == sorted(mine.view.open)
    found = mine.state.usage.as_of(at, mine.view.jobs.priorities._open(), half_life_s)
    for user in USERS:
        assert found.get(user, 0.0) == pytest.approx(ledger.by(user, at, half_life_s), rel=1e-6, abs=1e-6)
    mine.view.jobs.ranked(at)
    standing = mine.view.jobs.priorities._standing(mine.view.jobs.priorities.at)
    for user in USERS:
        assert standing.get(user, 0.0) == pytest.approx(
            ledger.by(user, mine.view.jobs.priorities.at, half_life_s), rel=1e-6, abs=1e-6
        )


@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(0, 40))
@example([*[("submit", 0, 0)] * 5, ("submit", 0, 3), ("lose", 0, 0), ("submit", 0, 1)], 0)  # 5 is to be tried again
def test_replay_is_live(steps: list[tuple[str, int, int]], cut: int) -> None:
    world = world_of(half_life_s=600, period_s=100)
    kept = None
    for number, step in enumerate(steps):
        if number == cut:
            kept = world.seats["scheduler.hpc"].twin()
        play(world, *step)
    live = world.seats["scheduler.hpc"]
    live.verify(world.now)
    replayed = world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"), "again")
    if kept is not None:
        kept.fold(world.journal)
    for other in (replayed, kept):
        if other is not None:
            assert other.core.dump() == live.core.dump()
            for each in (live, other):
                each.core.look(world.now)  # as whoever decides does first: who waited to be tried again is eligible
                each.core.view.jobs.ranked(world.now)
            assert other.core.view.jobs.queue.in_order() == live.core.view.jobs.queue.in_order()
            assert other.core.decide(world.now) == live.core.decide(world.now)


@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(1, 250))
def test_places_change_at_moments_alone(steps: list[tuple[str, int, int]], wait_s: int) -> None:
    world = world_of(half_life_s=300, period_s=100, age_full_s=400)
    for step in steps:
        play(world, *step)
    world.settle()
    mine = core(world)
    mine.view.jobs.ranked(world.now)
    before, moment, due = mine.view.jobs.queue.in_order(), mine.view.jobs.priorities.at, mine.wake_at()
    later = world.now + wait_s
    mine.view.jobs.ranked(later)
    ranking = mine.view.jobs.priorities
    if ranking.at == moment:
        assert mine.view.jobs.queue.in_order() == before
        fresh = BatchCore(world.custody, "hpc")
        fresh.load(mine.dump())
        assert not [x for x in fresh.decide(later) if isinstance(x, f.UnitPlaced)]
    elif [place.unit for place in mine.view.jobs.queue.in_order()] != [place.unit for place in before]:
        assert due <= ranking.at, "nobody would have woken it"
    points = {name: ranking.points(mine.view.jobs.job(name)).priority for name in mine.view.jobs.queue.where}
    entered = {name: place.entered for name, (_, place) in mine.view.jobs.queue.where.items()}
    expected = sorted(points, key=lambda name: (-points[name], entered[name]))
    assert [place.unit for place in mine.view.jobs.queue.in_order()] == expected
    for lane in mine.view.jobs.queue.lanes.values():
        ranks = [ranking.rank(place.unit) for place in lane.places]
        assert ranking.ranks(lane.places) == ranks == [place.rank for place in lane.places]


# ---------------------------------------------------------------------------------------------------------------- examples

S = MultiFactor(
    weight_age=100,
    weight_fair_share=1000,
    weight_size=10,
    weight_quality=500,
    age_full_s=1000,
    size_full_cores=8,
    priority_full=10,
)


def test_points_by_hand() -> None:
    assert multi.points(S, 250, 0.5, 4, 5) == (25, 500, 5, 250, 0, 0)
    assert multi.points(S, 250, 0.5, 4, 5).priority == 780
    assert multi.points(S, 9999, 1.0, 99, -99) == (100, 1000, 10, -500, 0, 0)
    more = msgspec.structs.replace(S, weight_user=50.0, users={"ann": 0.5, "bob": -1.0}, weight_department=40.0)
    assert multi.points(more, 0, 0, 0, 0, "ann", 0.25)[4:] == (25, 10)
    assert multi.points(more, 0, 0, 0, 0, "bob", 1.0)[4:] == (-50, 40)
    assert multi.points(more, 0, 0, 0, 0, "cyd").user == 0


def test_fair_share_by_hand() -> None:
    found = multi.fair(MultiFactor(shares={"ann": 3.0, "eve": 0.0}), {"ann": 600.0, "bob": 200.0}, ["cyd"])
    assert {name: (x.used, x.share) for name, x in found.items()} == {
        "ann": (0.75, 0.6),
        "bob": (0.25, 0.2),
        "cyd": (0.0, 0.2),
        "eve": (0.0, 0.0),
    }
    assert found["ann"].factor == pytest.approx(2 ** -(0.75 / 0.6))
    assert (found["cyd"].factor, found["eve"].factor) == (1.0, 0.0)
    even = multi.fair(MultiFactor(), {"ann": 1.0, "bob": 1.0}, [])
    assert even["ann"].factor == 0.5


def ran(world: World, user: str, seconds: float, **fields: Any) -> None:
    job = world.submit(user=user, nodes=1, cores=4, **fields)
    world.settle()
    world.begin(job)
    world.now += seconds
    world.report(job)
    world.settle()


def one_host(**settings_: Any) -> World:
    return cluster(1, order="multi-factor", multi_factor=MultiFactor(**settings_))


def test_who_has_used_less_goes_first_and_why_says_so() -> None:
    world = one_host(period_s=10)
    ran(world, "ann", 100)
    ran(world, "bob", 50)
    world.submit(user="cyd", cores=4)
    world.settle()
    first, second = world.submit(user="ann", cores=4), world.submit(user="bob", cores=4)
    world.now += 10
    told = {type(x): because.fields(x) for x in why(core(world), second, world.now)}
    assert told[because.Priority]["user"] == "bob"
    assert 0.30 < told[because.Priority]["used"] < 0.34
    assert told[because.Priority]["share"] == 0.3333
    assert [entry.unit for entry in queue_view(core(world)).queue] == [second, first]
    world.report("3")
    world.settle()
    assert world.states()[second] == "open"


def test_a_department_gives_shares_and_configured_members_count() -> None:
    config = cloud(batch("hpc", order="multi-factor", multi_factor=MultiFactor(shares={"ann": 8.0})))
    config = type(config)(
        name="test",
        departments=config.departments,
        users=(User(name="bob", department="hpc"), User(name="x", department="y")),
    )
    world = World(config)
    seat = world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    job = world.submit(user="ann")
    why(seat.core, job, world.now)
    assert {name: fair.share for name, fair in seat.core.view.jobs.priorities.fair.items()} == {
        "ann": 8 / 9,
        "bob": 1 / 9,
    }


def test_age_overtakes_at_a_moment_and_the_core_wakes_for_it() -> None:
    world = one_host(
        weight_age=1000, weight_quality=0, weight_size=1000, size_full_cores=8, age_full_s=1000, period_s=100
    )
    ran(world, "ann", 3)
    world.submit(user="ann", cores=4, walltime_s=1e4)
    world.settle()
    old, large = world.submit(user="ann", cores=1), "4"
    world.now += 450
    assert world.submit(user="ann", cores=4) == large
    world.settle()
    assert [entry.unit for entry in queue_view(core(world)).queue] == [old, large]  # 400 + 125 points against 500
    assert core(world).wake_at() % 100 == 0
    assert 0 < core(world).wake_at() - world.now <= 100


def test_nothing_to_wait_for_wakes_nobody() -> None:
    world = one_host(age_full_s=500, period_s=100)
    wide = world.submit(nodes=2)
    world.settle()
    assert core(world).wake_at() == START // 100 * 100 + 100
    world.advance(900)
    assert core(world).wake_at() == math.inf
    assert world.states()[wide] == "pending"


def test_a_job_does_not_grow_older_while_it_is_held_or_waits_for_another() -> None:
    world = one_host(weight_age=1e6, age_full_s=1e6, period_s=1, weight_fair_share=0, weight_size=0)
    ran(world, "ann", 1)
    first = world.submit(user="ann", cores=4, walltime_s=1e5)
    world.settle()
    kept = world.submit(user="ann", cores=4)
    world.write("admission", f.JobHeld(job=kept, user="ann"))
    after = world.submit(user="ann", cores=4, after=(f.Dependency(condition="after", job=first),))
    plain = world.submit(user="ann", cores=4)
    world.now += 100
    world.write("admission", f.JobResumed(job=kept, user="ann"))
    world.now += 50
    world.begin(first)
    world.now += 7
    core(world).view.jobs.ranked(world.now)
    assert [(entry.unit, entry.priority) for entry in queue_view(core(world)).queue] == [
        (plain, 157),
        (kept, 57),
        (after, 7),
    ]


def test_to_let_a_running_job_go_takes_nothing_of_its_age() -> None:
    """Found by chaos (seed 685): whoever is preempted after that would have waited for nothing."""
    world = one_host(weight_age=1e6, age_full_s=1e6, period_s=1)
    running = world.submit(user="ann", cores=4)
    world.settle()
    since = core(world).state.jobs[running].since
    world.now += 100
    world.write("admission", f.JobResumed(job=running, user="ann"))
    assert core(world).state.jobs[running].since == since


@pytest.mark.parametrize(
    ("backfill", "starts"), [("none", []), ("first-fit", ["3"]), ("easy", []), ("conservative", [])]
)
def test_what_is_underneath_is_a_setting(backfill: str, starts: list[str]) -> None:
    world = cluster(2, order="multi-factor", multi_factor=MultiFactor(backfill=backfill))
    world.submit(cores=4, walltime_s=50)
    world.settle()
    world.submit(nodes=2, cores=4, walltime_s=10)
    world.submit(cores=4, walltime_s=1000)
    found = [fact.unit for fact in core(world).decide(world.now) if isinstance(fact, f.UnitPlaced)]
    assert found == starts


def test_a_new_setting_counts_at_once() -> None:
    world = cluster(1, order="first-fit")
    world.submit(cores=4)
    world.settle()
    small, large = world.submit(cores=1), world.submit(cores=4)
    config = cloud(batch("hpc", order="multi-factor", multi_factor=MultiFactor(weight_size=1e6)))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=world.custody.state.rules, config=config))
    core(world).view.jobs.ranked(world.now)
    assert [entry.unit for entry in queue_view(core(world)).queue] == [large, small]
    world.write(
        "provisioner", f.ConfigAdopted(cloud="c1", custody_rules=world.custody.state.rules, config=cloud(batch("hpc")))
    )
    core(world).view.jobs.ranked(world.now)
    assert [entry.unit for entry in queue_view(core(world)).queue] == [small, large]


DECIDE_MAX_S = 0.010  # measured: 0.1 ms


def test_at_a_moment_with_nothing_startable_ten_thousand_jobs_cost_no_time() -> None:
    world = World(cloud(batch("hpc", order="multi-factor", boot_timeout_s=1e6)))
    world.strict = False
    names = world.hosts(1000, cores=8)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    mine = core(world)
    world.submit(array=tuple(range(1000)), cores=8)
    world.settle()
    for number in range(10_000):
        world.submit(nodes=1 + number % 4, cores=1 + number % 8, user=f"u{number % 50}", walltime_s=60.0 + number % 100)
    world.settle()
    found = []
    for _ in range(3):
        world.now += 300
        mine.view.room.grew = True
        began = time.perf_counter()
        assert mine.decide(world.now) == []
        found.append(time.perf_counter() - began)
    assert min(found) < DECIDE_MAX_S, found


def test_at_a_new_moment_the_views_agree_with_those_of_a_fresh_core() -> None:
    world = cluster(3, order="multi-factor", multi_factor=MultiFactor(period_s=10, age_full_s=1000))
    world.submit(nodes=2, cores=4, walltime_s=900, user="ann")
    world.settle()
    world.submit(nodes=3, cores=4, walltime_s=900, user="bob")
    for number in range(3):
        world.submit(cores=4, walltime_s=1000.0 + number, user=USERS[number])
    world.settle()
    assert any(lane.lengths is not None for lane in core(world).view.jobs.queue.lanes.values())
    for _ in range(3):
        world.now += 17
        core(world).view.room.grew = True
        assert decide(world) == []
        world.seats["scheduler.hpc"].verify(world.now)
