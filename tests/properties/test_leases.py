"""Whatever is submitted beside them: leases that were accepted begin and end on time, and nobody makes way for nothing.

P74  What admission would accept begins on time and ends on time, beside any best-effort and production.
P75  Only best-effort makes way, only for a lease; none of those who made way at one time could have stayed.
P76  With suspension no work of best-effort is done twice, and when all slots are over everybody runs in the end.
P77  alpha 0 is minimum waiting time, alpha 1 is minimum overhead; the order of the candidates changes nothing.
P78  Between its stated moments time starts nothing and makes nobody go.
P79  A lease that never gets its hosts keeps none from others: those begin and end on time, and nobody makes way for it.
P80  In a simulated cloud, where machines take time to be saved and to go on, accepted leases begin on time all the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from phoenix.simulate import engine
from phoenix.simulate.workload import Latencies, Scenario, Work
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Leases
from schemas.facts import Disposal
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.shape import Shape
from services.domain.timetable import Ground, Slot, Timetable
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.order_leases_seats import Seats
from services.scheduler.core.policies.preemption_costs import Cost, cheapest_first
from tests.support.examples import few
from tests.support.leases import external, lease, settle, site, told, until
from tests.support.scheduling import core
from tests.support.world import START, World

HOSTS, CORES, MEMORY_MB = 3, 4, 8192
AHEAD_S = 400  # from its submission to its start: longer than any suspension here
POLICIES = st.sampled_from(["minimum-waiting-time", "minimum-overhead", "combined"])


class Step(NamedTuple):
    what: str
    nodes: int
    cores: int
    memory_mb: int
    length_s: int
    wait_s: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["lease", "external", "external", "production", "end"]),
        st.integers(1, HOSTS),
        st.integers(1, CORES),
        st.sampled_from([100, 500, 1000, 2000]),
        st.sampled_from([40, 150, 600, 5000]),
        st.integers(0, 200),
    ),
    max_size=14,
)


class Story:
    """The world and the timetable that admission would keep."""

    def __init__(self, world: World) -> None:
        self.world, self.slots = world, list[Slot]()

    def play(self, step: Step) -> None:
        world = self.world
        until(world, world.now + step.wait_s)
        size: dict[str, Any] = {"nodes": step.nodes, "cores": step.cores, "memory_mb": step.memory_mb}
        if step.what == "lease":
            self.ask(step, size)
        elif step.what == "external":
            external(world, walltime_s=float(step.length_s), **size)
        elif step.what == "production":
            # What runs already when a lease is accepted is not ended for it: so it is away before any later lease begins.
            world.submit(walltime_s=float(min(step.length_s, AHEAD_S)), **size)
        else:
            running = [unit for unit, state in world.states().items() if state == "open" and world.unit(unit).began_at]
            if running:
                world.report(running[step.length_s % len(running)])

    def ask(self, step: Step, size: dict[str, Any]) -> None:
        start = self.world.now + AHEAD_S
        name = str(self.world.custody.state.job_last + 1)
        slot = Slot(name, start, start + step.length_s, Shape(step.nodes, Size(step.cores, step.memory_mb), False))
        if Timetable(Ground([Size(CORES, MEMORY_MB)] * HOSTS), self.slots).collision(slot) is None:
            self.slots.append(slot)
            assert lease(self.world, AHEAD_S, walltime_s=float(step.length_s), **size) == name

    def too_wide(self, step: Step) -> str:
        """A lease of more hosts than the department holds, from now or from about when others are to begin."""
        size: dict[str, Any] = {"nodes": HOSTS + 1, "cores": step.cores, "memory_mb": step.memory_mb}
        return lease(self.world, (step.wait_s * 2.0) % (AHEAD_S + 20), walltime_s=float(step.length_s), **size)


def told_story(steps: list[Step], **policy: Any) -> Story:
    story = Story(site(HOSTS, **policy))
    for step in steps:
        story.play(step)
        assert story.world.voids == []
    until(story.world, story.world.now + AHEAD_S + 5000)
    return story


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, POLICIES, st.booleans())
def test_p74_accepted_leases_begin_and_end_on_time(steps: list[Step], victims: str, suspend: bool) -> None:
    story = told_story(steps, victims=victims, suspend=suspend)
    began = {fact.unit: at for at, fact in told(story.world, f.AttemptBegan)}
    ended = {fact.unit: at for at, fact in told(story.world, f.AttemptClosed) if fact.disposal is Disposal.STOPPED}
    reported = {fact.unit: at for at, fact in told(story.world, f.AttemptReported)}
    for slot in story.slots:
        assert began[slot.lease] == slot.start - START
        assert ended.get(slot.lease, reported.get(slot.lease)) is not None
        assert slot.lease not in ended or ended[slot.lease] == slot.end - START


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, st.lists(st.booleans(), min_size=14, max_size=14), POLICIES, st.booleans())
def test_p79_a_lease_that_is_too_wide_keeps_nobody(
    steps: list[Step], beside: list[bool], victims: str, suspend: bool
) -> None:
    story = Story(site(HOSTS + 1, held=HOSTS, victims=victims, suspend=suspend))
    world, wide = story.world, list[str]()
    for step, also in zip(steps, beside, strict=False):
        story.play(step)
        wide += [story.too_wide(step)] if also else []
        settle(world)
        assert core(world).check() == []
    until(world, world.now + AHEAD_S + 5000)
    began = {fact.unit: at for at, fact in told(world, f.AttemptBegan)}
    assert {slot.lease: began.get(slot.lease) for slot in story.slots} == {
        slot.lease: slot.start - START for slot in story.slots
    }
    assert not any(unit in began for unit in wide)
    assert not any(because.fields(x.why).get("job") in wide for _, x in told(world, f.AttemptClosed))


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, POLICIES)
def test_p75_only_best_effort_makes_way_and_no_more_than_needed(steps: list[Step], victims: str) -> None:
    story = Story(site(HOSTS, victims=victims))
    world = story.world
    for step in steps:
        story.play(step)
        nobody_could_stay(core(world), world.now)
    until(world, world.now + AHEAD_S + 5000)
    every = {fact.job: fact for fact in world.facts(f.JobSubmitted)}
    leases = {slot.lease: slot for slot in story.slots}
    for _, fact in told(world, f.AttemptClosed):
        if type(fact.why) is because.Preempted:
            assert every[fact.unit].best_effort
            assert because.fields(fact.why)["job"] in leases
            assert fact.disposal is Disposal.SUSPEND


def nobody_could_stay(scheduler: BatchCore, now: float) -> None:
    """With any one of a slot's victims back, the lease would not fit where it is seated, or not in time."""
    seats = Seats(scheduler.view.situation(now, scheduler.view.room))
    for seat in seats.walk():
        in_time = all(min(seats.unwritten(name, seat.at).size) >= 0 for name in seat.hosts)
        offered = seats.unwritten if in_time else seats.free
        for unit in seat.victims:
            since = seats.gone.pop(unit)
            assert any(min(offered(name, seat.at).size) < 0 for name in seat.hosts)
            seats.gone[unit] = since


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, POLICIES)
def test_p76_nothing_is_lost_and_everybody_runs_in_the_end(steps: list[Step], victims: str) -> None:
    story = told_story(steps, victims=victims)
    world = story.world
    requeued = [fact.unit for _, fact in told(world, f.AttemptClosed) if fact.disposal is Disposal.REQUEUE]
    assert requeued == []
    until(world, world.now + 20 * 5000)
    assert [unit for unit, state in world.states().items() if state in ("pending", "open")] == []


COSTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(COSTS, st.randoms(use_true_random=False), st.floats(0, 1))
def test_p77_the_ends_of_alpha_are_the_simple_policies(pairs: list[tuple[int, int]], chance: Any, alpha: float) -> None:
    costs = [Cost(str(number), float(w), float(v)) for number, (w, v) in enumerate(pairs, start=1)]
    shuffled = list(costs)
    chance.shuffle(shuffled)
    for victims, same in (("minimum-waiting-time", 0.0), ("minimum-overhead", 1.0)):
        simple = cheapest_first(costs, Leases(victims=victims))  # type: ignore[arg-type]
        assert simple == cheapest_first(shuffled, Leases(victims="combined", alpha=same))
    both = Leases(victims="combined", alpha=alpha)
    assert cheapest_first(costs, both) == cheapest_first(shuffled, both)


@settings(max_examples=few(30, searching=60), deadline=None)
@given(STEPS, POLICIES, st.floats(0, 1))
def test_p78_between_its_moments_time_starts_nothing(steps: list[Step], victims: str, part: float) -> None:
    story = Story(site(HOSTS, victims=victims))
    world = story.world
    for step in steps:
        story.play(step)
        settle(world)
        world.settle()
        fresh = BatchCore(world.custody, "hpc")
        fresh.load(core(world).dump())
        assert fresh.decide(world.now) == []
        later = min(fresh.wake_at(), world.now + 1000)
        between = world.now + part * (later - world.now)
        if between < later:
            again = BatchCore(world.custody, "hpc")
            again.load(core(world).dump())
            assert again.decide(between) == []


class Ask(NamedTuple):
    what: str
    nodes: int
    memory_mb: int
    length_s: int
    wait_s: int


ASKS = st.lists(
    st.builds(
        Ask,
        st.sampled_from(["lease", "external", "external", "production"]),
        st.integers(1, HOSTS),
        st.sampled_from([100, 500, 1000, 2000]),
        st.sampled_from([20, 60, 100, 600, 5000]),
        st.sampled_from([0, 0, 10, 60, 300, 900]),
    ),
    max_size=20,
)


def asked_for(asks: list[Ask]) -> tuple[Work, ...]:
    """Whole hosts, so that nobody is beside machines that are being saved; leases as admission accepts them."""
    found: list[Work] = []
    slots: list[Slot] = []
    now = 0.0
    for number, ask in enumerate(asks, start=1):
        now += ask.wait_s
        size: dict[str, Any] = {"nodes": ask.nodes, "cores": CORES, "memory_mb": ask.memory_mb}
        times: dict[str, Any] = {"number": number, "submit_s": now, "run_s": ask.length_s, "walltime_s": ask.length_s}
        if ask.what == "lease":
            slot = Slot(
                str(number),
                now + AHEAD_S,
                now + AHEAD_S + ask.length_s,
                Shape(ask.nodes, Size(CORES, ask.memory_mb), False),
            )
            if Timetable(Ground([Size(CORES, MEMORY_MB)] * HOSTS), slots).collision(slot) is None:
                slots.append(slot)
                found.append(Work(**size, **times, lease="advance", start_s=slot.start))
        elif ask.what == "external":
            found.append(Work(**size, **times, best_effort=True, lease="best-effort"))
        else:
            times["walltime_s"] = times["run_s"] = min(ask.length_s, AHEAD_S)
            found.append(Work(**size, **times))
    return tuple(found)


# Each began 10 s late: it took the host where somebody was still being saved for the slot after it.
NEXT_SLOTS_HOST = [
    [
        Ask("lease", 2, 100, 20, 0),
        Ask("external", 1, 2000, 600, 10),
        Ask("lease", 1, 100, 20, 0),
        Ask("external", 1, 100, 600, 0),
    ],
    [
        Ask("external", 2, 500, 5000, 0),
        Ask("lease", 1, 100, 20, 0),
        Ask("lease", 1, 100, 20, 10),
        Ask("external", 1, 100, 100, 310),
    ],
    [
        Ask("external", 2, 500, 5000, 0),
        Ask("external", 1, 100, 5000, 0),
        Ask("lease", 1, 100, 20, 0),
        Ask("lease", 1, 100, 20, 10),
    ],
]


@settings(max_examples=80, deadline=None)
@given(ASKS, POLICIES, st.booleans())
@example(NEXT_SLOTS_HOST[0], "minimum-overhead", True)
@example(NEXT_SLOTS_HOST[1], "minimum-waiting-time", True)
@example(NEXT_SLOTS_HOST[2], "combined", True)
def test_p80_where_suspending_takes_time_slots_begin_on_time(asks: list[Ask], victims: str, suspend: bool) -> None:
    leases = Leases(victims=victims, suspend_mb_per_s=40.0, resume_mb_per_s=40.0, margin_s=0.0)  # type: ignore[arg-type]
    department = Department(name="hpc", kind="batch", batch=BatchPolicy(order="leases", leases=leases))
    works = asked_for(asks)
    scenario = Scenario(
        label="leases",
        config=CloudConfig(name="leases", departments=(department,), capabilities=ALL if suspend else ()),
        hosts=HOSTS,
        host_cores=CORES,
        host_memory_mb=MEMORY_MB,
        jobs={"hpc": works},
        latencies=Latencies(suspend_mb_per_s=40.0, resume_mb_per_s=40.0),
    )
    slots = {work.number: work.start_s for work in works if work.lease == "advance"}
    for record in engine.run(scenario).jobs:
        if record.number in slots:
            assert record.start_s is not None
            assert abs(record.start_s - slots[record.number]) < 0.001
        else:
            assert record.end == "completed"
