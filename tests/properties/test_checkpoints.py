"""What is saved and what would be lost, whatever happens to a job in whatever order.

K1  0 ≤ lost ≤ run time of the life that runs; saved work never shrinks; the base of a life is never above what is saved.
K2  What is saved is never more than what the unit has run in all its attempts.
K3  A checkpoint survives a restart, and the core rests and decides as a fresh one (asserted by `World` after each envelope).
K4  Against a model that counts seconds: at every moment `lost` is what was run since the last checkpoint that counts.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.custody.checkpoints import counts
from tests.support.examples import few
from tests.support.scheduling import cluster, core
from tests.support.world import World
from tests.unit.test_checkpoints import candidate, says

KINDS = ("save", "save", "late", "begin", "time", "time", "requeue", "suspend", "lose", "place", "fail", "anew", "anew")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), min_size=10, max_size=60)


class Truth:
    """What a person with a stopwatch would say of one job."""

    def __init__(self) -> None:
        self.total_s = 0.0  # run in all attempts
        self.life_s = 0.0  # run in this life
        self.since_s = 0.0  # run since the last checkpoint of this life

    def ran(self, seconds: float) -> None:
        self.total_s += seconds
        self.life_s += seconds
        self.since_s += seconds

    def new_life(self) -> None:
        self.life_s = self.since_s = 0.0


def runs(world: World, job: str) -> bool:
    unit = world.unit(job)
    return unit.live and unit.began_at is not None


def close(world: World, job: str, disposal: Disposal) -> None:
    fact = f.AttemptClosed(unit=job, attempt=world.unit(job).attempt, disposal=disposal, why=because.Reclaimed())
    world.write("scheduler.hpc", fact)


def act(world: World, job: str, truth: Truth, what: str, number: int) -> None:
    unit = world.unit(job)
    if what == "time":
        seconds = (0.5, 1, 3, 10, 100, 1000)[number]
        counted = unit.state == "open" and unit.began_at is not None  # a broken attempt's time ends when it is closed
        truth.ran(seconds if counted else 0.0)
        world.now += seconds
    elif what in ("save", "late"):
        attempt = max(1, unit.attempt - (what == "late"))
        if counts(unit, attempt):
            truth.since_s = 0.0
        says(world, job, attempt)
    elif what == "begin" and unit.live and unit.began_at is None:
        if not core(world).view.jobs.used_s(job):
            truth.new_life()
        world.begin(job)
    elif what in ("requeue", "suspend") and unit.live:
        close(world, job, Disposal.REQUEUE if what == "requeue" else Disposal.SUSPEND)
    elif what == "lose" and unit.live:
        world.lose(unit.hosts[0])
        world.write("executor", f.HostCleared(host=unit.hosts[0] if unit.hosts else "h1"))
        world.grant("hpc", unit.hosts[0] if unit.hosts else "h1")
    elif what == "fail" and runs(world, job):
        world.report(job, exit=1)
    elif what == "place":
        world.settle()
    elif what == "anew":  # what often takes four steps
        for each in ("requeue", "place", "begin", "time"):
            act(world, job, truth, each, number)


# A life that was suspended the moment it began has run for nothing: the one before it is over, and counts no more.
NO_LIFE = [(what, 0) for what in ("anew", "save", "requeue", "place", "begin", "suspend", "save")]


@settings(max_examples=few(75, searching=150), deadline=None)
@example(steps=NO_LIFE)
@given(steps=STEPS)
def test_what_is_lost_is_what_was_run_since_the_last_checkpoint(steps: list[tuple[str, int]]) -> None:
    world = cluster(2, requeues_max=1000, boot_timeout_s=1e9)
    job, truth, saved_s = world.submit(retries=1000, walltime_s=1e9), Truth(), 0.0
    world.settle()
    for what, number in steps:
        act(world, job, truth, what, number)
        assert world.unit(job).state != "final"
        known = core(world).state.checkpoints.get(job)
        if known is not None:
            assert saved_s <= known.saved_s <= truth.total_s + 1e-6  # K1, K2
            assert 0 <= known.base_s <= known.saved_s
            saved_s = known.saved_s
            assert counts(world.unit(job), known.attempt) or known.attempt < world.unit(job).attempt
        if world.unit(job).live:
            found = candidate(world, job)
            assert 0 <= found.lost_s <= found.running_s  # K1
            if runs(world, job):
                assert abs(found.lost_s - truth.since_s) < 1e-6, (found, truth.since_s)  # K4
