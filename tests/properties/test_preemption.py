"""Properties of preemption for jobs, with the real core, whatever the order.

G1  No jobs can end each other for ever: production is ended for nobody, and whoever makes way does so for a production unit
    that starts with the same decision.  So between two ends of jobs no more is ended than production that waited can ask for.
G2  The bounds hold: nobody is ended for a job before it has run `min_run_s`, or after it was preempted `preemptions_max` times;
    no hour has more than `preemptions_per_hour_max`.  Left alone with them, everything that can run does.
G3  Nobody makes way who could have stayed beside the one that starts.
G4  Production starts as if best-effort were not there (on whole hosts, without bounds).  Not so of `conservative`: there a
    reservation names its hosts, and production may stand on other ones than it would alone.
G5  Who is preempted keeps its place: whatever is taken from whom, the queue is in the order of submission, production first.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.ids import sort_key
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.registry import ORDERS
from tests.support.examples import few
from tests.support.world import World, batch, cloud

NAMES = sorted(({*ORDERS} - {"leases"}) | {"multi-factor"})  # there best-effort makes way for leases alone
HOSTS = 4
JOB = st.tuples(st.booleans(), st.integers(1, 4), st.integers(1, 3), st.sampled_from((50.0, 500.0, 5000.0)))
MOVE = st.tuples(st.sampled_from(("end", "time", "begin", "churn")), st.integers(0, 9))
STEPS = st.lists(st.one_of(JOB, JOB, MOVE), min_size=4, max_size=30)
BOUNDS = st.fixed_dictionaries(
    {
        "min_run_s": st.sampled_from((0.0, 40.0)),
        "preemptions_max": st.integers(0, 2),
        "preemptions_per_hour_max": st.integers(0, 2),
    }
)


class Played:
    """A department at the table, judged at each of its decisions."""

    def __init__(self, order: str, **policy: Any) -> None:
        shared: dict[str, Any] = {"services": {"a": 1.0}, "short_s": 1e6} if order == "svmsched" else {}
        self.service = {"service": "a"} if shared else {}
        settings_ = {"requeues_max": 1_000_000, "boot_timeout_s": 1e6, **shared, **policy}
        self.world = World(cloud(batch("hpc", order=order, **settings_)))
        names = self.world.hosts(HOSTS)
        self.seat = self.world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
        self.world.grant("hpc", *names)
        self.production: dict[str, None] = {}
        self.ended: list[float] = []
        self.preempted: dict[str, int] = {}

    @property
    def core(self) -> BatchCore:
        found: BatchCore = self.seat.core
        return found

    def submit(self, best_effort: bool, cores: int, nodes: int, walltime_s: float, **fields: Any) -> str:
        job = self.world.submit(
            best_effort=best_effort, cores=cores, nodes=nodes, walltime_s=walltime_s, **self.service, **fields
        )
        if not best_effort:
            self.production[job] = None
        return job

    def running(self) -> list[str]:
        return [name for name, state in self.world.states().items() if state == "open"]

    def begin(self) -> None:
        for name in self.running():
            if self.world.unit(name).began_at is None:
                self.world.begin(name)

    def settle(self) -> int:
        """Returns how many were ended for a job."""
        count = 0
        for _ in range(200):
            facts = self.core.decide(self.world.now)
            if not facts:
                return count
            count += self.judge(facts)
            self.world.write("scheduler.hpc", *facts)
            assert not self.world.voids
        raise AssertionError("it never comes to rest")

    def judge(self, facts: list[f.Fact]) -> int:
        """G1, G2, G3 of one decision."""
        placed = {fact.unit: fact for fact in facts if isinstance(fact, f.UnitPlaced)}
        victims: dict[str, list[str]] = {}
        for fact in facts:
            if isinstance(fact, f.AttemptClosed) and type(fact.why) is because.Preempted:
                assert fact.unit not in self.production  # G1
                starts = str(because.fields(fact.why)["job"])
                assert starts in self.production
                assert starts in placed
                victims.setdefault(starts, []).append(fact.unit)
                self.note(fact.unit)
        for starts, gone in victims.items():
            self.judge_minimal(placed[starts], gone, [unit for units in victims.values() for unit in units])
        return sum(map(len, victims.values()))

    def note(self, unit: str) -> None:
        """G2."""
        policy, now = self.core.view.policy, self.world.now
        began_at = self.world.unit(unit).began_at
        assert not policy.min_run_s or (began_at is not None and now >= began_at + policy.min_run_s)
        self.preempted[unit] = self.preempted.get(unit, 0) + 1
        assert not policy.preemptions_max or self.preempted[unit] <= policy.preemptions_max
        self.ended.append(now)
        hour = [at for at in self.ended if at + 3600.0 > now]
        assert not policy.preemptions_per_hour_max or len(hour) <= policy.preemptions_per_hour_max

    def judge_minimal(self, start: f.UnitPlaced, gone: list[str], ended: list[str]) -> None:
        """G3: with any one of its victims still there, the unit would not fit on its hosts."""
        hosts = self.world.custody.state.hosts
        for victim in gone:
            stays = self.world.unit(victim)
            for name in start.hosts:
                left = [unit for unit in hosts[name].units if unit not in ended or unit == victim]
                used = sum(self.world.unit(unit).size.cores for unit in left)
                if name in stays.hosts and used + start.cores > hosts[name].size.cores:
                    break
            else:
                raise AssertionError(f"{victim} could have stayed beside {start.unit}")


def play(played: Played, step: Any) -> None:
    world = played.world
    if len(step) == 4:
        played.submit(*step)
    elif step[0] == "time":
        world.now += (0.5, 10.0, 45.0, 1000.0)[step[1] % 4]
    elif step[0] == "begin":
        played.begin()
    elif step[0] == "churn":
        churn(played, 1 + step[1] % HOSTS)
    elif played.running():
        world.report(played.running()[step[1] % len(played.running())])


def churn(played: Played, nodes: int) -> None:
    """A production job that comes and goes."""
    job = played.submit(False, 4, nodes, 50.0)
    played.begin()
    played.settle()
    if job in played.running():
        played.world.report(job)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), BOUNDS, STEPS)
def test_no_jobs_can_end_each_other_for_ever(order: str, bounds: dict[str, Any], steps: list[Any]) -> None:
    played = Played(order, **bounds)
    for step in steps:
        waiting = [n for n, s in played.world.states().items() if s == "pending" and n in played.production]
        play(played, step)
        count = played.settle()
        asked = len(waiting) + 1
        assert count <= asked * HOSTS * 4  # a host holds four attempts at most
    world = played.world
    for _ in range(4 * len(steps) + 10):  # G2: alone, everything that can run does
        played.begin()
        world.now += 4000.0  # past every bound that time lifts
        played.settle()
        for name in sorted(played.running(), key=sort_key)[:1]:
            world.report(name)
    assert set(world.states().values()) <= {"completed", "timeout"}


@settings(max_examples=few(60, searching=120), deadline=None)
@given(st.sampled_from([name for name in NAMES if name != "conservative"]), STEPS)
def test_production_starts_as_if_best_effort_were_not_there(order: str, steps: list[Any]) -> None:
    """G4.  In the second world the same best-effort is held."""
    with_it, without = Played(order), Played(order)
    for step in steps:
        if len(step) == 4:
            best_effort, _, nodes, walltime_s = step
            with_it.submit(best_effort, 4, nodes, walltime_s)
            without.submit(best_effort, 4, nodes, walltime_s, held=best_effort)
        elif step[0] == "time":
            for played in (with_it, without):
                played.world.now += (0.5, 10.0, 45.0, 1000.0)[step[1] % 4]
        elif step[0] == "end" and without.running():
            name = without.running()[step[1] % len(without.running())]
            for played in (with_it, without):
                played.world.report(name)
        for played in (with_it, without):
            played.settle()
            played.begin()
            played.settle()
        assert [name for name in with_it.running() if name in with_it.production] == without.running()


TAKEN = st.tuples(st.sampled_from(("notice", "grant", "seize", "lose", "end", "begin", "time")), st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ORDERS)), st.lists(st.one_of(JOB, TAKEN), min_size=6, max_size=30))
def test_whoever_is_preempted_is_never_behind_one_that_was_behind_it(order: str, steps: list[Any]) -> None:
    """G5."""
    played = Played(order)
    world = played.world
    for step in steps:
        if step[0] in ("notice", "grant", "seize", "lose"):
            take(world, *step)
        else:
            play(played, step)
        world.settle()
        waiting = [place.unit for place in played.core.view.jobs.queue.in_order()]
        assert waiting == sorted(waiting, key=lambda unit: (unit not in played.production, sort_key(unit)))


def take(world: World, what: str, which: int) -> None:
    """Hosts of the department are asked for, taken or lost, or come."""
    hosts = world.custody.state.hosts
    held = [name for name, host in hosts.items() if host.state == "held"]
    free = [name for name, host in hosts.items() if host.state == "draining"]
    if what == "grant" and free:
        world.write("executor", f.HostCleared(host=free[0]))
        world.grant("hpc", free[0])
    elif what == "notice":
        world.quota("hpc", max(0, len(held) - 1 - which % 2))
    elif what == "seize" and held:
        world.quota("hpc", len(held) - 1)
        world.write("provisioner", f.HostSeized(host=held[which % len(held)], dept="hpc"))
    elif what == "lose" and held:
        world.lose(held[which % len(held)])
