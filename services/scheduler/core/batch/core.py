"""The batch core (the paper's ST Server): queue, placement, time limits, and what ends when hosts must be given back.

Theory of operation
  The core folds its department's jobs; everything else (who holds what, which attempt is live) it reads from custody.  What a
  decision needs to be quick (lanes of the queue, room, limits) are views (`view`).  `decide` compares levels, stage by stage
  (`stage`): attempts that must end; the answer to a notice, or else new placements; demand.  The stages are those of the
  configuration in force (`_adopt`): what it does not name is not among them.

Stages
  1. `close_ended`: broken attempts, cancelled ones, those over a limit.
  2. `reclaim`: cordoned hosts go back.  On a notice (held above quota) hosts go back in one envelope with the closing of their
     attempts, and the decision ends: nothing is placed meanwhile.  Useless hosts go back too.
  3. `start_jobs`: what the department's order starts, and the preemption of best-effort for it.
  4. `demand`: `demand.changed` is a level over running and eligible units.
  5. `rebalance`, where configured: while no other fact is due and no job waits, jobs may move from crowded hosts to idle ones.
  A department that the configuration does not name, or that is closed, places nothing and demands nothing; it still answers
  notices and closes what is broken.

What it remembers and derives
  1. After custody has folded a fact, the core brings `State` and the view up to date, and notifies a stage when something that
     the stage remembers may no longer hold.
  2. A fact that may give the core something to say ends its rest (`_rests`); a fact that concerns nothing here does not.
  3. Nothing that is remembered, here or by a stage, is more than what a core that has just been loaded would find
     (`batch.check` compares).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec

from schemas import facts as f
from schemas.envelope import FACTS_MAX
from services.domain.core import last_moment
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Broken, vm_key
from services.scheduler.core.batch.check import differences, remembered
from services.scheduler.core.batch.close_ended import CloseEnded
from services.scheduler.core.batch.demand import ReportDemand
from services.scheduler.core.batch.rebalance import Rebalance
from services.scheduler.core.batch.reclaim import AnswerNotice, GiveUpCordoned, ReturnUseless
from services.scheduler.core.batch.stage import Said, Stage
from services.scheduler.core.batch.start_jobs import StartJobs
from services.scheduler.core.batch.state import Paused, Refused, State
from services.scheduler.core.batch.view import View


class BatchCore:
    """The core of batch department `dept`."""

    # 1 did not know what users have used, 2 no checkpoints, leases, qualities and bounds, 3 no moves, 4 no failed starts,
    # 5 and 6 reasons of another form, and decisions that went by them, 7 usage of cores alone
    VERSION = 8

    _rested_at: float  # when the next host has rested

    def __init__(self, custody: Custody, dept: str) -> None:
        self.custody, self.dept = custody, dept
        self.state = State()
        self._on = {
            f.JobSubmitted: self._on_submitted,
            **dict.fromkeys(get_args(f.Held), self._on_held),
            **dict.fromkeys(get_args(f.Resumed), self._on_resumed),
            **dict.fromkeys(get_args(f.Cancelled), self._on_cancelled),
            f.LeaseExtended: self._on_extended,
            f.UnitPlaced: self._on_placed,
            f.AttemptBegan: self._on_began,
            f.AttemptClosed: self._on_closed,
            f.AttemptReported: self._on_reported,
            f.CheckpointReported: self._on_checkpoint,
            f.VmAllocated: self._on_vm_allocated,
            f.VmStarted: self._on_vm_started,
            f.VmRefused: self._on_vm_refused,
            f.StartsPaused: self._on_starts,
            f.StartsResumed: self._on_starts,
            f.VmEnded: self._on_vm_ended,
            f.VmFailed: self._on_vm_failed,
            f.HostObserved: self._on_observed,
            f.ConfigAdopted: self._on_config,
            f.DepartmentClosed: self._on_department_closed,
            f.QuotaChanged: self._on_level,
            f.DemandChanged: self._on_level,
            **dict.fromkeys(f.HostFact.__args__, self._on_host),
        }
        self.decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
        self._rebuild()

    # --------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.at >= self._rested_at:
            self.view.room.wake(self.custody, self.dept)
            self._rested_at, self._rests = self.view.room.next_rested(), False
        if meta.void is not None:
            self._rests = False  # it may be its own: what it wanted to say is to be said again
            return
        handler = self._on.get(type(fact))
        if handler is not None:
            handler(fact)  # type: ignore[operator]
        if self.view.jobs.constrained_anew:
            self.view.constrain()
        for name in meta.unsaved:
            if self.view.jobs.has(name):
                self.view.jobs.unsaved(name)
                self._stir()
        for name in meta.broken:
            if name in self.view.open:
                self.view.limits.closed(name)
                self._touch(self.view.open[name])  # its room is free again, on all its hosts
                self._expect(name)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=State)
        self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild view and stages from custody and state."""
        self.view = View(self.custody, self.dept, self.state)
        self.rebalance = Rebalance(self.view)
        self._rested_at = self.view.room.next_rested()
        self._rests = False  # True: the last decide had nothing to say, and nothing that concerns it has happened since
        self._adopt()

    def _no_longer_open(self, name: str) -> None:
        hosts = self.view.no_longer_open(name)
        if hosts:
            self._touch(hosts)
            self._expect(name)

    def _touch(self, hosts: tuple[str, ...]) -> None:
        """These hosts may have changed."""
        self.view.hosts_changed(hosts)
        self._rested_at = self.view.room.next_rested()
        self.start.shifted = True
        self._stir()

    def _stir(self) -> None:
        """Queue or hosts have changed: there may be something to say."""
        self.report.look_again()
        self._rests = False

    def look(self, now: float) -> None:
        """Time passes: a unit may have become eligible again."""
        if self.view.jobs.look(now):
            self._stir()

    def _expect(self, unit: str) -> None:
        """The expected end of the unit's attempt may have changed."""
        self.view.end_changed(unit)
        self.start.shifted = True

    def _on_submitted(self, fact: f.JobSubmitted) -> None:
        if fact.dept == self.dept:
            self.view.jobs.submitted(fact)
            self._stir()

    def _on_held(self, fact: f.Held) -> None:
        if self.view.jobs.has(fact.job):
            for unit in self.custody.changed:
                self.view.jobs.held(unit)
            self._stir()

    def _on_resumed(self, fact: f.Resumed) -> None:
        if self.view.jobs.has(fact.job):
            for unit in self.custody.changed:
                self.view.jobs.resumed(unit)
            self._stir()

    def _on_cancelled(self, _fact: f.Cancelled) -> None:
        for unit in self.custody.changed:
            if unit in self.view.open:
                self.view.cancelling[unit] = None
                self._rests = False
            elif self.view.jobs.has(unit):
                self.view.jobs.over(unit, None)
                self._stir()

    def _on_extended(self, fact: f.LeaseExtended) -> None:
        if self.view.jobs.has(fact.job):
            self.view.jobs.extended(fact.job, fact.walltime_s)
            if fact.job in self.view.open:
                self.view.limits.changed(fact.job)
            self._expect(fact.job)
            self._stir()

    def _on_placed(self, fact: f.UnitPlaced) -> None:
        self.rebalance.forget(fact)
        if self.view.jobs.has(fact.unit):
            self.view.jobs.refresh(fact.unit)
            self.view.jobs.placed(fact.unit)
            self.view.note_open(fact.unit)
            self.view.limits.placed(fact.unit)
            self._touch(fact.hosts)
            self._expect(fact.unit)

    def _on_began(self, fact: f.AttemptBegan) -> None:
        if self.view.jobs.has(fact.unit):
            self._may_move()
            self.state.refused.pop(fact.unit, None)
            self.view.limits.began(fact.unit)
            self.view.jobs.began(fact.unit)
            self._expect(fact.unit)
            if self.view.jobs.queue.grew or self.view.foresaw:  # it may have let others into the queue, or ahead
                self._stir()

    def _on_closed(self, fact: f.AttemptClosed) -> None:
        if self.view.jobs.has(fact.unit):
            hosts = self.view.open.get(fact.unit, ())
            self._no_longer_open(fact.unit)
            self.view.guards.ended(fact.cause)
            self.view.jobs.over(fact.unit, fact, hosts)

    def _on_reported(self, fact: f.AttemptReported) -> None:
        if self.view.jobs.has(fact.unit):
            self._no_longer_open(fact.unit)
            unit = self.custody.state.units[fact.unit]
            if self.view.policy.warm.idle_s and unit.final == "completed" and unit.nodes == 1 and unit.vms_open:
                self.state.warm[fact.unit] = self.view.jobs.user(fact.unit)  # its job is forgotten when it has ended
            self.view.jobs.over(fact.unit, None)
            self._stir()

    def _on_checkpoint(self, fact: f.CheckpointReported) -> None:
        if self.view.jobs.has(fact.unit):
            self.view.jobs.checkpointed(fact)
            self._rests = False  # what it would lose may be asked for

    def _on_vm_allocated(self, fact: f.VmAllocated) -> None:
        if self.state.warm:  # as a rule: be quick
            vm = self.custody.state.vms.get(vm_key(fact.unit, fact.attempt, fact.rank))
            self.state.warm.pop(vm.was.partition("/")[0] if vm is not None else "", None)  # it has found its next job

    def _on_vm_ended(self, fact: f.VmEnded) -> None:
        self.state.warm.pop(fact.unit, None)
        self._on_vm_failed(fact)

    def _on_vm_failed(self, fact: f.VmFailed | f.VmEnded) -> None:
        """What broke the attempt, in words."""
        if fact.unit not in self.view.open:
            return
        unit = self.custody.state.units[fact.unit]
        if (unit.attempt, unit.broken) == (fact.attempt, Broken.VM_ENDED):
            known = self.state.refused.get(fact.unit)  # of several ranks the first one broke it
            if known is None or known.attempt != fact.attempt or known.failure:
                self.state.refused[fact.unit] = Refused(attempt=fact.attempt, failure="", why=fact.why)

    def _on_starts(self, fact: f.StartsPaused | f.StartsResumed) -> None:
        self.state.paused = Paused(since=fact.since, why=fact.why) if isinstance(fact, f.StartsPaused) else None
        if self.state.paused is None:
            self.view.jobs.starts_resumed()
            self._stir()

    def _on_vm_started(self, fact: f.VmStarted) -> None:
        if fact.unit in self.view.open:
            self.view.limits.vm_started(fact.unit, fact.attempt)
            self._may_move()

    def _on_vm_refused(self, fact: f.VmRefused) -> None:
        """For explanations only (`lookahead.why`): the attempt's limits decide what becomes of it."""
        if fact.unit in self.view.open and self.custody.live(fact.unit, fact.attempt):
            self.state.refused[fact.unit] = Refused(attempt=fact.attempt, failure=fact.failure, why=fact.why)

    def _on_observed(self, fact: f.HostObserved) -> None:
        self.rebalance.observed(fact)
        self._may_move()

    def _may_move(self) -> None:
        """A running job may move now that could not before."""
        if self.view.policy.balance.enabled:
            self._rests = False

    def _on_host(self, fact: f.HostFact) -> None:
        """Of a host that leaves this department custody still says whose it was."""
        self.rebalance.forget(fact)
        counts_otherwise, host = (
            self.view.capacities.update(self.custody, fact.host),
            self.custody.state.hosts.get(fact.host),
        )
        relabelled = bool(self.view.jobs.constraints) and isinstance(fact, f.HostDescribed)
        if counts_otherwise or relabelled or host is None or host.dept == self.dept:
            self._touch((fact.host,))

    def _on_level(self, fact: f.QuotaChanged | f.DemandChanged) -> None:
        if fact.dept == self.dept:
            self._rests = False
            if isinstance(fact, f.DemandChanged):
                self.state.prefer, self.state.sizes = fact.prefer, fact.sizes

    def _on_config(self, _fact: f.ConfigAdopted) -> None:
        self.view.adopt()
        self.view.limits.rebuild(self.view.open)
        self.view.jobs.configured(self.view.open)
        self.view.room.grew = True
        self._adopt()
        self._stir()

    def _on_department_closed(self, fact: f.DepartmentClosed) -> None:
        if fact.dept == self.dept:
            for name in list(self.view.open):
                self._no_longer_open(name)
            self.view.jobs.closed()
            self.view.adopt()
            self._stir()

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        if self._rests and now < self.wake_at():
            return []
        self.decided_at = now
        self.look(now)
        found = self._decide(now)
        self._rests = not found
        return found

    def _decide(self, now: float) -> list[f.Fact]:
        """The stages in their order, until one of them ends the decision."""
        if self.custody.state.config is None:
            return []
        said = Said([], {}, [])
        for occasion, stage in self.stages:
            if occasion(now) and stage(said, now):
                break
        return said.facts[:FACTS_MAX]

    def _adopt(self) -> None:
        """The stages of the configuration in force; one whose occasion has not come is not entered."""
        view, index, room = self.view, self.custody.index, self.view.room
        self.start, self.report = StartJobs(view), ReportDemand(view)
        self.stages: list[tuple[Callable[[float], object], Stage]] = [
            (lambda now: index.broken.get(self.dept) or view.cancelling or view.limits.any_due(now), CloseEnded(view)),
            (lambda _: room.cordoned, GiveUpCordoned(view)),
            (lambda _: view.notice(), AnswerNotice(view, self.report, self.start.look_again)),
            (lambda _: True, self.start),
            (lambda _: room.resting, ReturnUseless(view)),
            (lambda _: True, self.report),
        ]
        if view.policy.balance.enabled:
            self.stages.append((lambda _: True, self.rebalance))

    def wake_at(self) -> float:
        return min(stage.next_moment(self.decided_at) for _, stage in self.stages)

    def rests_until_woken(self) -> bool:
        """True if the last `decide` had nothing to say, and nothing that concerns it has happened since."""
        return self._rests and max(self.decided_at, self.custody.state.at) < self.wake_at()

    def check(self) -> list[str]:
        """What is derived and remembered is what a core that has just loaded the same state would have (`batch.check`)."""
        dump, fresh, later = self.dump(), BatchCore(self.custody, self.dept), BatchCore(self.custody, self.dept)
        fresh.load(dump)
        later.load(dump)
        now = max(self.decided_at, self.custody.state.at)
        found = remembered(self.view)
        for one in (self, fresh):
            one.look(now)
        found += differences(self.view, fresh.view)
        found += self.start.check(fresh.start, now) + self.report.check(fresh.report)
        return found + self._rests_wrongly(fresh, later, now)

    def _rests_wrongly(self, fresh: BatchCore, later: BatchCore, now: float) -> list[str]:
        """`fresh`, `later`: cores of the same state that have never rested.  Asked now, and at the last moment of the rest."""
        if not self.rests_until_woken():
            return []
        then = last_moment(now, self.wake_at())
        found = [f"it rests though it has to say {fact}" for fact in fresh.decide(now)]
        return found or [f"it rests beyond {then} though it has to say {fact}" for fact in later.decide(then)]
