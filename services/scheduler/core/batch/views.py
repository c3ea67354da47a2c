"""What the batch core remembers and derives: its jobs, and the views that a decision needs to be quick.

Theory of operation
  Told of each fact after custody has folded it, it keeps `State` and the views in step: the book with its queue, room on hosts,
  limits, capacities, who is open.  Each view is made from custody and `State` by `_rebuild`, and holds nothing that these do
  not say (`batch.check` compares).

Rules
  1. A fact that may give the core something to say ends its rest (`_rests`); one that concerns nobody here does not.
  2. What a pass over the queue found fruitless is looked at again only once a flag says so: `queue.grew`, `room.grew`,
     `_shifted` (a host or an expected end has changed), or its moment has come (`_due`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.fold import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Broken, vm_key
from services.domain.saving import save_s
from services.scheduler.core.batch.balancing import Balancing
from services.scheduler.core.batch.book import Book
from services.scheduler.core.batch.endings import Endings
from services.scheduler.core.batch.guards import Guards
from services.scheduler.core.batch.preempting import Preempting
from services.scheduler.core.batch.state import Paused, Refused, State
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.room import Room


class BatchViews:
    """Of batch department `dept`."""

    _rested_at: float  # when the next host has rested
    # Of fruitless passes; before the first one nobody asks:
    _shifted: bool  # since the flag was last taken down: a host or an expected end has changed
    _passed_at: float  # `now` of the last one

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
            f.HostObserved: self._on_observed,
            f.ConfigAdopted: self._on_config,
            f.DepartmentClosed: self._on_department_closed,
            f.QuotaChanged: self._on_level,
            f.DemandChanged: self._on_level,
            **dict.fromkeys(f.HostFact.__args__, self._on_host),
        }
        self._policy_of: tuple[CloudConfig | None, BatchPolicy] = (None, BatchPolicy())  # that configuration's
        self.decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
        self._rebuild()

    # --------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.at >= self._rested_at:
            self.room.wake(self.custody, self.dept)
            self._rested_at, self._rests = self.room.next_rested(), False
        if meta.void is not None:
            self._rests = False  # it may be its own: what it wanted to say is to be said again
            return
        handler = self._on.get(type(fact))
        if handler is not None:
            handler(fact)  # type: ignore[operator]
        if self.book.constrained_anew:
            self._constrain()
        for name in meta.unsaved:
            if self.book.has(name):
                self.book.unsaved(name)
                self._stir()
        for name in meta.broken:
            if name in self.open:
                self.limits.closed(name)
                self._touch(self.open[name])  # its room is free again, on all its hosts
                self._expect(name)

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=State)
        self._rebuild()

    def _rebuild(self) -> None:
        """All views anew, from custody and state."""
        custody, dept = self.custody, self.dept
        self.book = Book(custody, dept, self.state)
        self.room = Room.of(custody, dept, tuple(sorted(self.book.constraints)))
        self.capacities = Capacities.of(custody)
        self.limits = Limits(
            *(custody, self.book.length_s, lambda: self.policy.boot_timeout_s, self.book.slot_ends_at),
            save_s=lambda: save_s(custody.state.config, dept),
            grace_s=lambda: grace.longest_s(custody.state.config, dept),
        )
        self.endings = Endings(custody, self.book, lambda: self.policy)
        self.guards = Guards(custody, self.state, lambda: self.policy)
        self.open: dict[str, tuple[str, ...]] = {}  # units with an open attempt -> its hosts
        self.cancelling: dict[str, None] = {}  # those of them that are cancelled
        self.best_effort: dict[str, None] = {}  # those of them that are best-effort
        self.balancing = Balancing(custody, dept, self.state, self.book, self.room)
        self.preempting = Preempting(custody, self.book, self.endings, self.guards, self.best_effort)
        for name in custody.index.open.get(dept, ()):
            if self.book.has(name):  # not so while a snapshot is being loaded: custody comes first
                self._note_open(name)
        self.limits.rebuild(self.open)
        self._rested_at = self.room.next_rested()
        self._demand: int | None = None  # None: to be worked out again
        self._due = NEVER  # when time alone may start something, as the last pass saw it
        self._rests = False  # True: the last decide had nothing to say, and nothing that concerns it has happened since
        self._forecast: Forecast | None = None  # made when an order asks for it

    def _constrain(self) -> None:
        """Jobs may have other constraints than before: then hosts fall into other classes."""
        constraints, self.book.constrained_anew = tuple(sorted(self.book.constraints)), False
        if constraints != self.room.constraints:
            self.room.constrain(self.custody, self.dept, constraints)
            self._forecast = None

    def _note_open(self, name: str) -> None:
        unit = self.custody.state.units[name]
        self.open[name] = unit.hosts
        if unit.cancelled:
            self.cancelling[name] = None
        if self.book.job(name).best_effort:
            self.best_effort[name] = None
        self.book.opened(name, 1)

    def _no_longer_open(self, name: str) -> None:
        hosts = self.open.pop(name, ())
        if hosts:
            self.cancelling.pop(name, None)
            self.best_effort.pop(name, None)
            self.limits.closed(name)
            self.book.opened(name, -1, hosts)
            self._touch(hosts)
            self._expect(name)

    def _touch(self, hosts: Sequence[str]) -> None:
        self.room.update(self.custody, self.dept, hosts)
        if self._forecast is not None:
            for name in hosts:
                self._forecast.host_changed(name)
        self._rested_at = self.room.next_rested()
        self._shifted = True
        self._stir()

    def _stir(self) -> None:
        """Queue or hosts have changed: there may be something to say."""
        self._demand, self._rests = None, False

    def look(self, now: float) -> None:
        """Time passes: somebody may be eligible again."""
        if self.book.look(now):
            self._stir()

    def _expect(self, unit: str) -> None:
        """The expected end of the unit's attempt may have changed."""
        self._shifted = True
        if self._forecast is not None:
            self._forecast.unit_changed(unit)

    def _on_submitted(self, fact: f.JobSubmitted) -> None:
        if fact.dept == self.dept:
            self.book.submitted(fact)
            self._stir()

    def _on_held(self, fact: f.Held) -> None:
        if self.book.has(fact.job):
            for unit in self.custody.changed:
                self.book.held(unit)
            self._stir()

    def _on_resumed(self, fact: f.Resumed) -> None:
        if self.book.has(fact.job):
            for unit in self.custody.changed:
                self.book.resumed(unit)
            self._stir()

    def _on_cancelled(self, _fact: f.Cancelled) -> None:
        for unit in self.custody.changed:
            if unit in self.open:
                self.cancelling[unit] = None
                self._rests = False
            elif self.book.has(unit):
                self.book.over(unit, None)
                self._stir()

    def _on_extended(self, fact: f.LeaseExtended) -> None:
        if self.book.has(fact.job):
            self.book.extended(fact.job, fact.walltime_s)
            if fact.job in self.open:
                self.limits.changed(fact.job)
            self._expect(fact.job)
            self._stir()

    def _on_placed(self, fact: f.UnitPlaced) -> None:
        self.balancing.forget(fact)
        if self.book.has(fact.unit):
            self.book.refresh(fact.unit)
            self.book.placed(fact.unit)
            self._note_open(fact.unit)
            self.limits.placed(fact.unit)
            self._touch(fact.hosts)
            self._expect(fact.unit)

    def _on_began(self, fact: f.AttemptBegan) -> None:
        if self.book.has(fact.unit):
            self._may_move()
            self.state.refused.pop(fact.unit, None)
            self.limits.began(fact.unit)
            self.book.began(fact.unit)
            self._expect(fact.unit)
            if self.book.queue.grew or self._forecast is not None:  # it may have let others into the queue, or ahead
                self._stir()

    def _on_closed(self, fact: f.AttemptClosed) -> None:
        if self.book.has(fact.unit):
            hosts = self.open.get(fact.unit, ())
            self._no_longer_open(fact.unit)
            self.guards.ended(fact.why)
            self.book.over(fact.unit, fact.why, hosts)

    def _on_reported(self, fact: f.AttemptReported) -> None:
        if self.book.has(fact.unit):
            self._no_longer_open(fact.unit)
            unit = self.custody.state.units[fact.unit]
            if self.policy.warm.idle_s and unit.final == "completed" and unit.nodes == 1 and unit.vms_open:
                self.state.warm[fact.unit] = self.book.user(fact.unit)  # its job is forgotten when it has ended
            self.book.over(fact.unit, None)
            self._stir()

    def _on_checkpoint(self, fact: f.CheckpointReported) -> None:
        if self.book.has(fact.unit):
            self.book.checkpointed(fact)
            self._rests = False  # what it would lose may be asked for

    def _on_vm_allocated(self, fact: f.VmAllocated) -> None:
        if self.state.warm:  # as a rule: be quick
            vm = self.custody.state.vms.get(vm_key(fact.unit, fact.attempt, fact.rank))
            self.state.warm.pop(vm.was.partition("/")[0] if vm is not None else "", None)  # it has found its next job

    def _on_vm_ended(self, fact: f.VmEnded) -> None:
        self.state.warm.pop(fact.unit, None)
        if fact.unit not in self.open:
            return
        unit = self.custody.state.units[fact.unit]
        if (unit.attempt, unit.broken) == (fact.attempt, Broken.VM_ENDED):
            known = self.state.refused.get(fact.unit)  # of several ranks the first one broke it
            if known is None or known.attempt != fact.attempt or known.failure:
                self.state.refused[fact.unit] = Refused(attempt=fact.attempt, failure="", why=fact.why)

    def _on_starts(self, fact: f.StartsPaused | f.StartsResumed) -> None:
        self.state.paused = Paused(since=fact.since, why=fact.why) if isinstance(fact, f.StartsPaused) else None
        if self.state.paused is None:
            self.book.starts_resumed()
            self._stir()

    def _on_vm_started(self, fact: f.VmStarted) -> None:
        if fact.unit in self.open:
            self.limits.vm_started(fact.unit, fact.attempt)
            self._may_move()

    def _on_vm_refused(self, fact: f.VmRefused) -> None:
        """It is only told (`lookahead.why`): the attempt's limits decide what becomes of it."""
        if fact.unit in self.open and self.custody.live(fact.unit, fact.attempt):
            self.state.refused[fact.unit] = Refused(attempt=fact.attempt, failure=fact.failure, why=fact.why)

    def _on_observed(self, fact: f.HostObserved) -> None:
        self.balancing.observed(fact)
        self._may_move()

    def _may_move(self) -> None:
        """A running job may move now that could not before."""
        if self.policy.balance.enabled:
            self._rests = False

    def _on_host(self, fact: f.HostFact) -> None:
        """Of a host that leaves this department custody still says whose it was."""
        self.balancing.forget(fact)
        counts_otherwise, host = (
            self.capacities.update(self.custody, fact.host),
            self.custody.state.hosts.get(fact.host),
        )
        relabelled = bool(self.book.constraints) and isinstance(fact, f.HostDescribed)
        if counts_otherwise or relabelled or host is None or host.dept == self.dept:
            self._touch((fact.host,))

    def _on_level(self, fact: f.QuotaChanged | f.DemandChanged) -> None:
        if fact.dept == self.dept:
            self._rests = False
            if isinstance(fact, f.DemandChanged):
                self.state.prefer = fact.prefer

    def _on_config(self, _fact: f.ConfigAdopted) -> None:
        self.limits.rebuild(self.open)
        self.book.configured(self.open)
        self.room.grew = True
        self._stir()
        self._forecast = None  # the order may be another one that needs none

    def _on_department_closed(self, fact: f.DepartmentClosed) -> None:
        if fact.dept == self.dept:
            for name in list(self.open):
                self._no_longer_open(name)
            self.book.closed()
            self._stir()

    # ------------------------------------------------------------------------------------------------------- settings

    @property
    def active(self) -> bool:
        """True if the department is configured as a batch department and not closed."""
        config = self.custody.state.config
        department = config.department(self.dept) if config else None
        return department is not None and department.kind == "batch" and self.dept not in self.custody.state.closed

    @property
    def policy(self) -> BatchPolicy:
        config = self.custody.state.config
        if config is not self._policy_of[0]:
            department = config.department(self.dept) if config else None
            self._policy_of = config, (department.batch if department else None) or BatchPolicy()
        return self._policy_of[1]

    @property
    def foresaw(self) -> bool:
        """True if the forecast has been asked for."""
        return self._forecast is not None

    def foresee(self) -> Forecast:
        """Live attempts with their hosts and expected ends; worked out when first asked for, then kept up to date."""
        if self._forecast is None:
            book = self.book
            self._forecast = Forecast(
                self.custody, self.dept, book.ends_at, self.open, book.said, book.waited_s, self.room.serves
            )
        return self._forecast
