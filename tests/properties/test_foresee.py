"""Properties of predicted starts, in worlds that run on by themselves: nothing comes, nobody claims a host.

F1  Whatever the order and the shapes, with throttled arrays and dependencies: if each job runs to its limit, who was told
    `by_walltimes` starts at that very moment and on those hosts, and who was told `planned` starts no later.
F2  Room that `easy` and `leases` keep is kept: for whom it was planned starts no later, however early the others end.
F3  In strict order on whole hosts every predicted start is a bound, however early the others end.
F4  Asking changes nothing: not a byte of what the core knows.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas.facts import Dependency
from schemas.start_estimate import Sure
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.start_estimate import Start, foresee
from tests.support.world import World, batch, cloud

EXAMPLES = 60
CORES = 4
HOSTS = 4
ORDERS = ("fcfs", "first-fit", "shortest-first", "easy", "conservative", "svmsched", "leases")


class Run(NamedTuple):
    nodes: int
    cores: int
    walltime_s: float
    share: float  # of its walltime that it really runs
    elements: int = 0  # of an array of which one runs at a time
    follows: bool = False  # the job before it


RUNS = st.lists(
    st.builds(
        Run,
        st.integers(1, HOSTS),
        st.integers(1, CORES),
        st.integers(1, 12).map(float),
        st.sampled_from((0.1, 0.5, 0.9, 1.0)),
        st.sampled_from((0, 0, 0, 3)),
        st.sampled_from((False, False, True)),
    ),
    min_size=1,
    max_size=10,
)


class Site:
    """A department whose jobs run; `early`: they end before their limits."""

    def __init__(self, order: str, *, early: bool, whole: bool) -> None:
        self.early, self.whole = early, whole
        self.world = World(cloud(batch("hpc", order=order)))
        self.world.strict = False
        self.run_s: dict[str, float] = {}
        names = self.world.hosts(HOSTS, cores=CORES)
        self.world.executor()
        self.world.guests(run_s=self.run_s)
        self.core: BatchCore = self.world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc")).core
        self.world.grant("hpc", *names)

    def submit(self, runs: list[Run]) -> None:
        for run in runs:
            last = str(self.world.custody.state.job_last)
            after = (Dependency(condition="afterok", job=last),) if run.follows and last != "0" else ()
            array = tuple(range(run.elements))
            job = self.world.submit(
                nodes=run.nodes,
                cores=CORES if self.whole else run.cores,
                walltime_s=run.walltime_s,
                array=array,
                throttle=1 if array else 0,
                after=after,
            )
            seconds = run.walltime_s * (run.share if self.early else 1.0)
            self.run_s.update(dict.fromkeys([f"{job}_{i}" for i in array] or [job], seconds))
            self.world.step()

    def foreseen(self) -> dict[str, Start]:
        self.world.settle()
        known = self.core.custody.dump(), self.core.dump()
        found = foresee(self.core, self.world.now, list(self.run_s))
        assert (self.core.custody.dump(), self.core.dump()) == known  # F4
        return found

    def starts(self) -> dict[str, tuple[float, tuple[str, ...]]]:
        """Let everything run; unit -> when and where it was placed last."""
        self.world.advance(2_000.0)
        assert {unit.state for unit in self.world.custody.state.units.values()} <= {"final"}
        placed = {fact.unit: fact.hosts for fact in self.world.facts(f.UnitPlaced)}
        units = self.world.custody.state.units
        return {unit: (units[unit].placed_at or 0.0, hosts) for unit, hosts in placed.items()}


@settings(max_examples=EXAMPLES, deadline=None)
@given(order=st.sampled_from(ORDERS), before=RUNS, pause=st.integers(0, 20), waiting=RUNS)
def test_what_runs_to_its_limits_starts_as_foreseen(
    order: str, before: list[Run], pause: int, waiting: list[Run]
) -> None:
    site = Site(order, early=False, whole=False)
    site.submit(before)
    site.world.advance(float(pause))
    site.submit(waiting)
    found, real = site.foreseen(), site.starts()
    for unit, word in found.items():
        assert word.start_at is not None, (unit, word)
        assert real[unit][0] < word.start_at + 1e-3, (unit, word, real[unit])
        if word.sure is Sure.BY_WALLTIMES:
            assert real[unit][0] > word.start_at - 1e-3, (unit, word, real[unit])
            assert word.hosts == real[unit][1]


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(before=RUNS, waiting=RUNS, order=st.sampled_from(("easy", "leases")))
def test_room_that_is_kept_is_kept(before: list[Run], waiting: list[Run], order: str) -> None:
    site = Site(order, early=True, whole=False)
    site.submit([*before, *waiting])
    planned = {unit: word for unit, word in site.foreseen().items() if word.sure is Sure.PLANNED}
    real = site.starts()
    for unit, word in planned.items():
        assert word.start_at is not None
        assert real[unit][0] <= word.start_at + 1e-3


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(before=RUNS, waiting=RUNS)
def test_in_strict_order_on_whole_hosts_every_prediction_is_a_bound(before: list[Run], waiting: list[Run]) -> None:
    site = Site("fcfs", early=True, whole=True)
    site.submit([run._replace(elements=0, follows=False) for run in [*before, *waiting]])
    found, real = site.foreseen(), site.starts()
    for unit, word in found.items():
        assert word.start_at is not None
        assert real[unit][0] <= word.start_at + 1e-3
