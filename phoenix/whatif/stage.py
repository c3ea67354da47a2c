"""The simulator's cloud, fed with what really happened up to a moment and left to itself from then on.

Theory of operation
  Until the period begins the stage only folds: every core has the state that its service had then, whatever the policy
  remembers (fair-share, loans, windows of load).  `begin` puts a configuration in force and gives the model of machines and
  guests what was learned of run times.  From then on `play` lets the cores decide, while what came from outside in the period
  (`events`) comes again at its time: submissions, cancels, holds, people's words on instances, load, hosts that join and fail.

Rules
  1. What a service decided is not played again: that is what differs.  Only what the cloud does not decide is (`OUTSIDE`).
  2. A submission passes admission's own check under the configuration in force; leases, whose times were agreed on, are taken.
  3. Load is offered work: what is observed is utilisation times the ratio of instances that served then to those that serve
     now, at most what was ever seen of the department (a processor is not busier than all the time).
  4. VMs are not modelled, so facts about them are left out; which facts were void was settled with them (`past`).
  5. No service waits in vain for a machine or a guest (`boot_timeout_s`); a signal that was missing is missing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, get_args

import msgspec

from phoenix.simulate.checkpointing import Habit, Life
from phoenix.simulate.cluster import Cluster, End
from phoenix.simulate.engine import ROUNDS_MAX, Restless, Seat, Simulation
from phoenix.simulate.workload import Latencies, Scenario
from phoenix.whatif.books import Books
from phoenix.whatif.lives import Lives, Serving, Unknown
from schemas import facts as f
from schemas.config import CloudConfig, Department
from schemas.dimensions import asking
from schemas.facts import Fact
from schemas.ids import sort_key
from schemas.requests import JobSubmit
from schemas.size import size_of
from services.admission.commands import compose
from services.admission.core.admission import AdmissionCore
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.domain.refusal import Refused
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.plugins import load_named

OUTSIDE: Final = (
    f.JobSubmitted,
    *get_args(f.OfJobs),
    f.LeaseExtended,
    f.ScaleRequested,
    f.ReleaseRequested,
    f.HostCordoned,
    f.HostUncordoned,
    f.HostDescribed,
    f.HostRemoved,
    f.HostLost,
    f.HostQuarantined,
    f.HostCleared,
    f.LoadObserved,
    f.ConfigAdopted,
)
OF_VMS: Final = (
    f.VmAllocated,
    f.VmStarted,
    f.VmEnded,
    f.VmFailed,
    f.VmParked,
    f.VmRefused,
    f.LeaderStarted,
    f.LeaderStopped,
)


class Event(NamedTuple):
    """What came from outside.  `serving`: of load, the instances that it was measured on."""

    at: float
    writer: str
    fact: Fact
    serving: float = 0.0


class Machines(Cluster):
    """The simulator's model of executor and guests, with what was learned of each job."""

    def __init__(self, custody: Custody, latencies: Latencies, *_given: Any) -> None:
        super().__init__(custody, latencies, {})
        self.lives: Lives | None = None
        self.unknown: Unknown = "longest"
        self.assumed: dict[str, None] = {}  # units whose run time is not known, and that ran
        self._hears[f.AttemptReported] = self._reported

    def _reported(self, fact: f.AttemptReported, _meta: Meta) -> None:
        self._forget(fact.unit)

    def _length_s(self, unit: str) -> float:
        return self._outcome(unit)[0]

    def _exit(self, unit: str) -> int:
        return self._outcome(unit)[1]

    def _outcome(self, unit: str) -> tuple[float, int]:
        if self.lives is None:
            return NEVER, 0
        run_s, exit_code, known = self.lives.length_s(unit, self.custody.state.units[unit].failures, self.unknown)
        if not known:
            self.assumed[unit] = None
        return run_s, exit_code

    def begin(self, now: float, lives: Lives, latencies: Latencies, unknown: Unknown) -> None:
        """What was observed until now continues as it was learned."""
        self.lives, self.latencies, self.unknown = lives, latencies, unknown
        self.habits = {unit: Habit(every, 0.0) for unit in lives.saved if (every := lives.habit_s(unit)) > 0}
        self.saves, self.ends = [], []
        for unit, began_at in self._began_at.items():
            known = self.custody.state.units[unit]
            if known.live:
                self._go_on(unit, known.attempt, began_at, now)
        heapq.heapify(self.ends)
        waiting, self._waiting = self._waiting, []
        for due, _, name, attempt in waiting:
            if self._is_due(name, attempt):
                self._wait(max(now, due + (latencies.boot_s if attempt else latencies.end_s)), name, attempt)

    def _go_on(self, unit: str, attempt: int, began_at: float, now: float) -> None:
        length_s, used_s = self._length_s(unit), self._used_s.get(unit, 0.0)
        if unit in self.habits:
            life = self._lives[unit] = Life(length_s, self.habits[unit])
            life.done = int((used_s + now - began_at) // self.habits[unit].every_s)
            self._save_next(life, unit, attempt, began_at)
        self.ends.append(End(max(now, began_at + max(0.0, length_s - used_s)), sort_key(unit), unit, attempt))

    def _is_due(self, name: str, attempt: int) -> bool:
        state = self.custody.state
        if not attempt:
            return name in state.hosts and state.hosts[name].state == "draining"
        unit = state.units.get(name)
        return unit is not None and unit.live and unit.attempt == attempt and unit.began_at is None

    def answers(self, now: float) -> tuple[list[Fact], list[Fact]]:
        cleared, began = super().answers(now)
        hosts = self.custody.state.hosts
        draining = [c for c in cleared if isinstance(c, f.HostCleared) and c.host in hosts]
        return [c for c in draining if hosts[c.host].state == "draining"], began


class Stage(Simulation):
    """`recorder`, `cluster` and every core at the same place of the same journal."""

    recorder: Books
    cluster: Machines

    def __init__(self) -> None:
        nothing = Scenario(label="", config=CloudConfig(name="whatif", departments=()), hosts=0)
        super().__init__(nothing, recorder=Books, cluster=Machines)
        self.admission = Seat("admission", AdmissionCore, self.journal.custody)
        self.seats.append(self.admission)
        self.serving = Serving()
        self.journal.readers = [*(s.core.apply for s in self.seats), self.cluster.hear, self.recorder.hear, self._serve]
        self.until = 0.0
        self.events: Sequence[Event] = ()
        self.submissions: Sequence[Event] = ()
        self.next = self.next_submission = 0
        self.busiest: Mapping[str, float] = {}
        self._seated: dict[str, None] = {}

    # ------------------------------------------------------------------------------------------------------ what happened

    def feed(self, writer: str, facts: Sequence[Fact], at: float) -> None:
        """One envelope of the past: its valid facts."""
        for fact in facts:
            if isinstance(fact, f.ConfigAdopted):
                self._seat(fact.config)
        self.journal.append(writer, facts, at)

    def _seat(self, config: CloudConfig) -> None:
        """A core for each department that has none yet."""
        load_named(config)
        for department in sorted(config.departments, key=lambda d: d.name):
            if department.name not in self._seated:
                self._seated[department.name] = None
                make: Callable[..., Any] = WebCore if department.kind == "web" else BatchCore
                seat = Seat(f"scheduler.{department.name}", partial(make, dept=department.name), self.journal.custody)
                seat.core.load(seat.core.dump())  # its views are made from what custody knows by now
                (self.web if department.kind == "web" else self.batch).append(seat)
                self.seats.append(seat)
                self.journal.readers.insert(0, seat.core.apply)

    def _serve(self, fact: Fact, meta: Meta) -> None:
        """After the books: who is in service now."""
        if isinstance(fact, f.AttemptBegan | f.AttemptClosed | f.InstanceDraining):
            dept, dot, _ = fact.unit.rpartition(".")
            if dot and meta.void is None:
                self.serving.note(dept, self.recorder.serving.get(dept, 0), meta.at)

    # -------------------------------------------------------------------------------------------------------- the period

    def begin(self, since: float, config: CloudConfig, lives: Lives, latencies: Latencies, unknown: Unknown) -> None:
        """`config` is in force from `since` on."""
        self._adopt(config, since)
        self.cluster.begin(since, lives, latencies, unknown)
        self.recorder.begin(since)

    def _adopt(self, config: CloudConfig, at: float) -> None:
        cloud = self.journal.custody.state.cloud
        config = msgspec.structs.replace(config, departments=tuple(map(_patient, config.departments)))
        self.feed("provisioner", [f.ConfigAdopted(cloud=cloud, custody_rules=RULES, config=config)], at)

    def play(self, since: float, until: float, events: Sequence[Event], busiest: Mapping[str, float]) -> None:
        """`busiest`: the highest utilisation that was seen of each department."""
        self.submissions = [e for e in events if isinstance(e.fact, f.JobSubmitted)]
        self.events = [e for e in events if not isinstance(e.fact, f.JobSubmitted)]
        self.until, self.busiest = until, busiest
        now, again = since, 0
        while True:
            self._instant(now)
            due = self._next_due()
            if due >= until:
                return
            again = 0 if due > now else again + 1
            if again > ROUNDS_MAX:
                raise Restless(f"at {now} s a core wants to be woken up at {due} s again and again")
            now = max(now, due)

    def _next_due(self) -> float:
        due = self.cluster.next_due()
        if self.next < len(self.events):
            due = min(due, self.events[self.next].at)
        if self.next_submission < len(self.submissions):
            due = min(due, self.submissions[self.next_submission].at)
        return min([due, *(seat.wake_at for seat in self.seats)])

    def _answers(self, now: float) -> None:
        super()._answers(now)
        self._hear(self.admission, now)

    def _demand(self, now: float) -> bool:
        """What came from outside, but for submissions."""
        first = self.next
        while self.next < len(self.events) and self.events[self.next].at <= now:
            event = self.events[self.next]
            self.next += 1
            if isinstance(event.fact, f.ConfigAdopted):
                self._adopt(event.fact.config, now)
            elif (fact := self._again(event)) is not None:
                self.journal.append(event.writer, [fact], now)
        return self.next > first

    def _again(self, event: Event) -> Fact | None:
        """The event as it is now; None if it says nothing here."""
        fact = event.fact
        if isinstance(fact, f.LoadObserved):
            return self._observed(fact, event.serving)
        if isinstance(fact, f.HostCleared):
            host = self.journal.custody.state.hosts.get(fact.host)
            return fact if host is not None and host.state in ("absent", "lost") else None
        return fact

    def _observed(self, fact: f.LoadObserved, served: float) -> f.LoadObserved | None:
        """Rule 3."""
        department = self.journal.custody.department(fact.dept)
        if department is None or department.kind != "web":
            return None
        now = self.serving.mean(fact.dept, fact.start, fact.end)
        seen, utilisation = fact.utilisation, fact.utilisation
        if seen is not None and now != served:
            most = max(1.0, self.busiest.get(fact.dept, 1.0))
            utilisation = min(most, seen * served / now) if now > 0 else None
        if utilisation is None and fact.requests_per_s is None and fact.claim is None:
            return None
        return msgspec.structs.replace(fact, utilisation=utilisation, quiet=())

    def _submit(self, now: float) -> None:
        while self.next_submission < len(self.submissions) and self.submissions[self.next_submission].at <= now:
            fact = self.submissions[self.next_submission].fact
            self.next_submission += 1
            assert isinstance(fact, f.JobSubmitted)
            why = self._refusal(fact)
            if why:
                self.recorder.refuse(fact, why, now)
            else:
                self.journal.append("admission", [fact], now)

    def _refusal(self, fact: f.JobSubmitted) -> str:
        """Rule 2; empty: it is taken."""
        if fact.lease is not None:
            return ""
        caller = compose.Caller(user=fact.user, department=fact.dept, role="user")
        try:
            compose.submit(self.admission.core, caller, fact.dept, asked_by(fact), "", "", ())
        except Refused as refused:
            return refused.message
        return ""


def asked_by(fact: f.JobSubmitted) -> JobSubmit:
    """The request that this fact came from, as far as a department may refuse it."""
    return JobSubmit(
        tasks=fact.tasks,
        nodes=fact.nodes,
        **{**asking(size_of(fact)), "cpus_per_task": fact.cpus_per_task},
        exclusive=fact.exclusive,
        walltime_s=fact.walltime_s,
        on_reclaim=fact.on_reclaim,
        on_term=fact.on_term,
        grace_s=fact.grace_s,
        array=",".join(map(str, fact.array)) or None,
        service=fact.service,
        best_effort=fact.best_effort,
        short=fact.short,
        quality=fact.quality,
        constraint=fact.constraint,
    )


def _patient(department: Department) -> Department:
    """Rule 5."""
    replace, batch, web = msgspec.structs.replace, department.batch, department.web
    return replace(
        department,
        batch=None if batch is None else replace(batch, boot_timeout_s=NEVER),
        web=None if web is None else replace(web, boot_timeout_s=NEVER),
    )
