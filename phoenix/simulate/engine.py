"""A cloud on a virtual clock: the provisioner, batch and web cores of production, and a model of everything around them.

Theory of operation
  `run` steps from instant to instant.  What happens outside (attempts end, demand changes, jobs are submitted) is written to
  the journal as the facts that admission and the executor would write; then every core that has something to say says it,
  again and again, until none has.  Time passes only between instants, so what takes no time in the model takes none.

Rules
  1. At one instant: checkpoints and ends, then demand and load, then submissions in log order; after each all cores decide.
  2. A batch core makes its scheduling pass when all that belongs to the instant is known; a notice it answers at once.  In
     production a pass comes earlier or later by chance; here it is always the last word: results do not depend on chance.
  3. A core decides again only when the journal has moved or its `wake_at` has come, as in production (`services.runtime`).
  4. Same scenario, same outcome: no clock, no chance, no order of a set is read.  `wall_s` and `cpu_s` are reported beside it.
  5. No policy is here.  A job that the cluster could never hold is refused at the door, as admission does.
  6. Without a window the end comes when the inputs have ended and nothing has happened to a job or an instance for so long that
     nothing will: departments that take turns with hosts that suffice for none of them would do so for ever.
  7. A simulated machine always comes up, in the time that `latencies` say, and a simulated load balancer is never silent: so
     no core gives up waiting for them (`boot_timeout_s`, `signal_timeout_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec

from phoenix.simulate.checkpointing import Habit
from phoenix.simulate.cluster import Cluster
from phoenix.simulate.journal import Journal
from phoenix.simulate.load import Load
from phoenix.simulate.recorder import Recorder
from phoenix.simulate.week import from_monday
from phoenix.simulate.workload import Outcome, Scenario, Work
from schemas import facts as f
from schemas.config import CloudConfig, Department
from schemas.facts import Fact
from schemas.size import size_of
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.domain.sharing.lending import next_change
from services.domain.sharing.service_share import Shares, must_comply
from services.domain.usage_limits import Much, bounds_on
from services.domain.windows import WEEK_S
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.journal.fold import CoreFactory
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.plugins import load_named

CLOUD_ID: Final = "simulation"
USER: Final = "load"  # who asks for the instances of a demand that is given
ROUNDS_MAX: Final = 100_000  # of one instant: cores that never come to rest are a bug, not a long experiment
PATIENCE_S: Final = 3600.0  # of a cloud in which nothing happens, beside what its turns need
Watch: TypeAlias = Callable[[Fact, Meta], None]


class Restless(RuntimeError):
    """The cores write for ever at one instant: a bug in a policy.  The message names the instant and the last writers."""


class Seat:
    """A core and how far it has looked."""

    __slots__ = ("core", "factory", "seen", "wake_at", "writer")

    def __init__(self, writer: str, factory: CoreFactory, custody: Custody) -> None:
        self.writer, self.factory = writer, factory
        self.core: Any = factory(custody)
        self.seen = -1
        self.wake_at = NEVER


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        *,
        watch: Watch | None = None,
        keep: bool = False,
        recorder: type[Recorder] = Recorder,
        cluster: type[Cluster] = Cluster,
    ) -> None:
        """`recorder`, `cluster`: what writes down, and what models; `phoenix.whatif` has its own."""
        self.scenario = scenario
        load_named(scenario.config)
        self.journal = Journal(keep=keep)
        custody = self.journal.custody
        self.works = _in_order(scenario)
        self.submitted = 0
        self.recorder = recorder(custody, scenario)
        habits = {
            str(w.number): Habit(w.checkpoint_s, w.checkpoint_cost_s) for _, w in self.works if w.checkpoint_s > 0
        }
        run_s = {str(work.number): work.run_s for _, work in self.works}
        self.cluster = cluster(custody, scenario.latencies, run_s, habits)
        departments = sorted(scenario.config.departments, key=lambda d: d.name)
        web, batch = ([d.name for d in departments if d.kind == kind] for kind in ("web", "batch"))
        self.web = [Seat(f"scheduler.{name}", partial(WebCore, dept=name), custody) for name in web]
        self.batch = [Seat(f"scheduler.{name}", partial(BatchCore, dept=name), custody) for name in batch]
        self.provisioner = Seat("provisioner", ProvisionerCore, custody)
        self.seats = [*self.web, self.provisioner, *self.batch]
        self.demand = sorted((at, name, n) for name, given in scenario.web.items() for at, n in given.demand)
        self.demanded = 0
        self.given_until = max((given.until_s for given in scenario.web.values()), default=0.0)
        until = self.given_until if scenario.window_s is None else scenario.window_s
        self.loads = [
            Load(name, w.load, scenario.signal_s, until) for name, w in sorted(scenario.web.items()) if w.load
        ]
        # Turns of the provisioner double until one is long enough for hosts to be cleared: that is reached within four such
        # times for each department, and the turn itself may be twice as long.
        clear_s = max(scenario.latencies.end_s, scenario.latencies.suspend_s)
        self.patience_s = PATIENCE_S + (4 * len(self.batch) + 2) * clear_s + _agreed_s(scenario.config)
        readers = [seat.core.apply for seat in self.seats]
        self.journal.readers = [*readers, self.cluster.hear, self.recorder.hear, *([watch] if watch else [])]

    # ---------------------------------------------------------------------------------------------------------- the run

    def run(self) -> float:
        """Until the window is over, or until nothing can happen any more; returns when that was."""
        self._begin()
        window_s = self.scenario.window_s
        now, again = 0.0, 0
        while True:
            self._instant(now)
            due = self._next_due()
            if due == NEVER or due > (self._hopeless_at() if window_s is None else window_s):
                break
            again = 0 if due > now else again + 1
            if again > ROUNDS_MAX:
                raise Restless(f"at {now} s a core wants to be woken up at {due} s again and again")
            now = max(now, due)
        return max(self.given_until, self.recorder.last_s) if window_s is None else window_s

    def _hopeless_at(self) -> float:
        """Rule 6: nothing that happens later happens to a job or an instance."""
        if self.submitted < len(self.works) or self.cluster.at_work():
            return NEVER
        return max(self.given_until, self.recorder.last_s) + self.patience_s

    def _begin(self) -> None:
        scenario = self.scenario
        known = from_monday(_healthy(scenario.config))
        config = msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=CloudConfig)  # 5: 5.0
        adopted = f.ConfigAdopted(cloud=CLOUD_ID, custody_rules=RULES, config=config)
        self.journal.append("provisioner", [adopted], 0.0)
        names = [f"h{number:05}" for number in range(1, scenario.hosts + 1)]
        described = [f.HostDescribed(host=name, one_id=i, **scenario.host.fields()) for i, name in enumerate(names)]
        self.journal.append("executor", described, 0.0)
        self.journal.append("executor", [f.HostCleared(host=name) for name in names], 0.0)

    def _next_due(self) -> float:
        due = self.cluster.next_due()
        if self.submitted < len(self.works):
            due = min(due, self.works[self.submitted][1].submit_s)
        if self.demanded < len(self.demand):
            due = min(due, self.demand[self.demanded][0])
        for load in self.loads:
            due = min(due, load.due)
        for seat in self.seats:
            due = min(due, seat.wake_at)
        return due

    def _instant(self, now: float) -> None:
        """Rules 1 and 2."""
        reports = self.cluster.reports(now)
        if reports:
            self.journal.append("admission", reports, now)
            self._settle(now, passes=False)
        if self._demand(now):
            self._settle(now, passes=False)
        self._submit(now)
        self._settle(now, passes=True)
        for load in self.loads:
            load.serve(self.recorder.serving[load.dept], now)
        self.recorder.note(now)

    def _demand(self, now: float) -> bool:
        first = self.demanded
        while self.demanded < len(self.demand) and self.demand[self.demanded][0] <= now:
            self.demanded += 1
        asked = [
            f.ScaleRequested(dept=name, user=USER, exact=instances)
            for _, name, instances in self.demand[first : self.demanded]
        ]
        if asked:
            self.journal.append("admission", asked, now)
        observed = [load.observe(now) for load in self.loads if load.due <= now]
        for fact in observed:
            if fact is not None:
                self.journal.append(f"scheduler.{fact.dept}", [fact], now)
        return bool(asked or observed)

    def _submit(self, now: float) -> None:
        found: list[Fact] = []
        while self.submitted < len(self.works) and self.works[self.submitted][1].submit_s <= now:
            dept, work = self.works[self.submitted]
            self.submitted += 1
            refused = not self._feasible(dept, work)
            self.recorder.submitted(dept, work, refused=refused)
            if not refused:
                found.append(_submission(dept, work))
        if found:
            self.journal.append("admission", found, now)

    def _feasible(self, dept: str, work: Work) -> bool:
        """Rule 5."""
        department = self.scenario.config.department(dept)
        most = self.scenario.hosts
        if department is not None and department.maximum is not None:
            most = min(most, department.maximum)
        fits = size_of(work).fits_in(self.scenario.host)
        one = Much(1, size_of(work).times(work.nodes), work.nodes)
        bounds = bounds_on(department, work.user, work.quality) if department is not None else ()
        within = all(bound.exceeded(one) is None for bound in bounds)
        return fits and within and work.nodes <= most and self._within_share(department, work, most)

    def _within_share(self, department: Department | None, work: Work, hosts: int) -> bool:
        """False of a job that is larger than its service's share of `hosts` hosts (`order = "svmsched"`)."""
        policy = department.batch if department is not None else None
        if policy is None or policy.order != "svmsched":
            return True
        if not must_comply(policy, work.walltime_s, short=work.short, best_effort=work.best_effort):
            return True
        host = self.scenario.host
        each = host if work.exclusive else size_of(work)
        return Shares(policy, host.times(hosts)).complies(work.service, each.times(work.nodes))

    # -------------------------------------------------------------------------------------------------------- settling

    def _settle(self, now: float, *, passes: bool) -> None:
        """All cores decide in turn until none has anything to say."""
        for _ in range(ROUNDS_MAX):
            position = self.journal.position
            self._answers(now)
            for seat in self.web:
                self._hear(seat, now)
            self._hear(self.provisioner, now)
            for seat in self.batch:
                if passes or seat.core.view.notice():
                    self._hear(seat, now)
            if self.journal.position == position:
                return
        raise Restless(f"at {now} s the cloud does not come to rest: {self.journal.facts} facts so far")

    def _hear(self, seat: Seat, now: float) -> None:
        """Rule 3."""
        if seat.seen == self.journal.position and now < seat.wake_at:
            return
        seat.seen = self.journal.position
        facts = seat.core.decide(now)
        if facts:
            self.journal.append(seat.writer, facts, now)
        else:
            seat.wake_at = seat.core.wake_at()

    def _answers(self, now: float) -> None:
        cleared, began = self.cluster.answers(now)
        if cleared:
            self.journal.append("executor", cleared, now)
        if began:
            self.journal.append("admission", began, now)


def _healthy(config: CloudConfig) -> CloudConfig:
    """Rule 7."""
    return msgspec.structs.replace(config, departments=tuple(map(_patient, config.departments)))


def _patient(department: Department) -> Department:
    replace, batch, web = msgspec.structs.replace, department.batch, department.web
    return replace(
        department,
        batch=None if batch is None else replace(batch, boot_timeout_s=NEVER),
        web=None if web is None else replace(web, boot_timeout_s=NEVER, signal_timeout_s=NEVER),
    )


def _in_order(scenario: Scenario) -> list[tuple[str, Work]]:
    """All jobs by submission; at one instant in log order, which is the order of their numbers."""
    works = [(name, work) for name, given in sorted(scenario.jobs.items()) for work in given]
    works.sort(key=lambda item: (item[1].submit_s, item[1].number))
    for (_, before), (_, work) in pairwise(works):
        if work.number <= before.number:  # custody would take it for one that it knows
            raise ValueError(
                f"job {work.number} is submitted after job {before.number}: numbers must rise in that order"
            )
    return works


def _submission(dept: str, work: Work) -> f.JobSubmitted:
    return f.JobSubmitted(
        job=str(work.number),
        dept=dept,
        user=work.user,
        name=str(work.number),
        payload="",
        nodes=work.nodes,
        **size_of(work).fields(),
        exclusive=work.exclusive,
        walltime_s=float(work.walltime_s),
        priority=work.priority,
        on_reclaim=work.on_reclaim,
        service=work.service,
        best_effort=work.best_effort,
        short=work.short,
        quality=work.quality,
        lease=None if work.lease is None else f.Lease(kind=work.lease, start_at=work.start_s),
    )


def _agreed_s(config: CloudConfig) -> float:
    """For how long what is agreed may keep all jobs waiting: until every window has come, or a loan has been asked back."""
    week_s = 0.0 if next_change(config, 0.0) == NEVER else float(WEEK_S)
    longest = [max(c.deadline_s or 0.0, 0.0) + (c.notice_s or 0.0) for c in config.lending]
    return week_s + max(longest, default=0.0)


def run(scenario: Scenario, *, watch: Watch | None = None) -> Outcome:
    """Simulate.  `watch` gets every fact after all cores have folded it."""
    wall, cpu = time.perf_counter(), time.process_time()
    simulation = Simulation(scenario, watch=watch)
    outcome = simulation.recorder.outcome(simulation.run())
    outcome.facts, outcome.envelopes, outcome.void = (
        simulation.journal.facts,
        simulation.journal.position,
        simulation.journal.void,
    )
    outcome.suspending_s, outcome.resuming_s = simulation.cluster.suspending_s, simulation.cluster.resuming_s
    outcome.wall_s, outcome.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return outcome
