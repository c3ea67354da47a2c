"""The batch core (the paper's ST Server): queue, placement, time limits, and what ends when hosts must be given back.

Theory of operation
  The core folds its department's jobs; everything else (who holds what, which attempt is live) it reads from custody.  What a
  decision needs to be quick (lanes of the queue, room, limits) are views.  `decide` compares levels, stage by stage: attempts
  that must end; the answer to a notice, or else new placements; demand.  The stages are those of the configuration in force
  (`_adopted`): what it does not name is not among them.

Rules
  1. Broken attempts are closed at once: preempted ones by `on_reclaim`, lost ones and ended VMs go back into the queue
     (`endings`).  A cancelled one is closed as cancelled, one over its walltime as timeout.
  2. Notice (held above quota): hosts go back at once, in one envelope with the closing of their attempts; nothing is placed
     meanwhile (paper, II-B: "release resources immediately with the size demanded"); on a contract's longer notice jobs have
     until the policy's is left of it (`notice`).  Only who moves is placed (`moving`), on hosts that stay.
  3. The order of the queue is priority, then entry (`book`).  Which of the units that fit start is the policy's
     (`policies/order_*`); on which hosts is `Room`'s: best fit, different hosts, and among equal ones `affinity`'s.
  4. Never placed: what is held, cancelled, over its throttle or a limit, or waits for others; nothing on cordoned or
     quarantined hosts.
  5. `demand.changed` is a level over running and eligible units (`demand`).
  6. Best-effort jobs make way for production (`make_way`), suspended if that can be done; within bounds (`guards`).  Who makes
     way ahead of time for a lease's slot (`Agenda.clear`) is closed in a decision of its own; what starts follows.
  7. While nothing else is to be said and nobody waits, jobs may move from crowded hosts to idle ones (`balancing`).
  8. An idle host that is set apart for longer than `KEPT_S` (disabled, say) goes back: the department gets another one for it.
     A cordoned one goes back as soon as it is idle; a drained one at its deadline, and what still runs there then ends as on
     notice.  No notice is answered with cordoned hosts: they serve nobody else.
  9. A department that the configuration does not name, or that is closed, places nothing and demands nothing; it still
     answers notices and closes what is broken.

What it remembers and derives
  1. Told of each fact after custody has folded it, it keeps `State` and the views in step: the book with its queue, room on
     hosts, limits, capacities, who is open.  Each view is made from custody and `State` by `_rebuild`, and holds nothing that
     these do not say (`batch.check` compares).
  2. A fact that may give the core something to say ends its rest (`_rests`); one that concerns nobody here does not.
  3. What a pass over the queue found fruitless is looked at again only once a flag says so: `queue.grew`, `room.grew`,
     `_shifted` (a host or an expected end has changed), or its moment has come (`_due`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, get_args

import msgspec

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig
from schemas.envelope import FACTS_MAX
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Code, Reason, because
from services.domain import grace
from services.domain.core import NEVER, Stage
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Broken, vm_key
from services.domain.saving import save_s
from services.scheduler.core.batch import lease_times, make_way, reclaim
from services.scheduler.core.batch import notice as notices
from services.scheduler.core.batch.affinity import Unexchanged, settle
from services.scheduler.core.batch.balancing import Balancing
from services.scheduler.core.batch.book import Book
from services.scheduler.core.batch.check import check
from services.scheduler.core.batch.demand import hosts_wanted, preferred
from services.scheduler.core.batch.endings import Endings
from services.scheduler.core.batch.guards import Guards
from services.scheduler.core.batch.moving import moves
from services.scheduler.core.batch.preempting import Preempting
from services.scheduler.core.batch.state import Paused, Refused, State
from services.scheduler.core.policies import leases_elsewhere, registry
from services.scheduler.core.policies.order import Order, Plan, Situation, Start, nobody
from services.scheduler.core.policies.order_multi_factor import order_below
from services.scheduler.core.policies.victims import Choice
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.forecast import Forecast
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape

NOBODY: Final = Plan([])  # what a pass finds where nobody waits
KEPT_S: Final = 300.0  # a host that failed starts is tried again sooner; to move it to and fro would gain nothing
STARTS_MAX: Final = 1000  # placements of one decision; the rest follow with the next one, a millisecond later


@dataclass(slots=True)
class Said:
    """What a decision has to say so far.  `closing`: attempts that end with it; `starts`: units that are placed."""

    facts: list[f.Fact]
    closing: dict[str, None]
    starts: list[Start]


class Adopted(NamedTuple):
    """A configuration, its stages, and its order.  What it does not name is not among the stages."""

    config: CloudConfig | None
    stages: list[Stage[Said]]
    order: Order


class Passed(NamedTuple):
    """A pass, and the position in the journal that it was made at."""

    plan: Plan
    position: int

    def serves(self, position: int, now: float) -> bool:
        """True if neither a fact nor a stated moment has come since."""
        return position == self.position and now < self.plan.due


class BatchCore:
    """The core of batch department `dept`."""

    # 1 did not know what users have used, 2 no checkpoints, leases, qualities and bounds, 3 no moves, 4 no failed starts
    VERSION = 5

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
        self._adoption: Adopted | None = None  # that configuration's
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
        self._passed: Passed | None = None  # the last pass, which explains who waits; decisions do not read it

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
        """The stages of the configuration in force, in their order, until one of them ends the decision."""
        if self.custody.state.config is None:
            return []
        said = Said([], {}, [])
        for stage in self._adopted().stages:
            if stage(said, now):
                break
        return said.facts[:FACTS_MAX]

    def _adopted(self) -> Adopted:
        """What the configuration in force makes of this core."""
        config = self.custody.state.config
        if self._adoption is None or self._adoption.config is not config:
            stages: list[Stage[Said]] = [
                self._close_ended,
                self._give_up_cordoned,
                self._answer_notice,
                self._start_jobs,
            ]
            stages += [self._return_useless, self._report_demand]
            if self.policy.balance.enabled:
                stages.append(self._rebalance)
            self._adoption = Adopted(config, stages, registry.order(order_below(self.policy)))
        return self._adoption

    # --------------------------------------------------------------------------------------------------------- stages

    def _close_ended(self, said: Said, now: float) -> bool:
        closings = self._closings(now)
        said.facts += closings
        said.closing |= dict.fromkeys(closing.unit for closing in closings)
        return False

    def _give_up_cordoned(self, said: Said, now: float) -> bool:
        """Rule 8."""
        if not self.room.cordoned:
            return False
        idle, drained = self._give_up(said.closing, now)
        said.facts += [*idle, *drained]
        return bool(drained)  # the rest follows with the next decision, which sees who is back in the queue

    def _answer_notice(self, said: Said, now: float) -> bool:
        """Rule 2."""
        notice = self.notice()
        if not notice:
            return False
        self._due, self.book.queue.grew = NEVER, True  # the next pass finds the moment again
        said.facts += self._give_back(notice, said.closing, now)
        return True

    def _start_jobs(self, said: Said, now: float) -> bool:
        """Rules 3, 4 and 6."""
        way, said.starts = self._moves(now, said.closing)
        for lease, victims in way.items():
            said.facts += self.endings.made_way(victims, lease, said.closing)
        for start in said.starts:
            if start.victims:
                said.facts += self.endings.made_way(start.victims, start.unit, said.closing)
            said.facts.append(self._placement(start))
        return False

    def _return_useless(self, said: Said, now: float) -> bool:
        """Rule 8."""
        if self.room.resting:
            hosts = self.custody.state.hosts
            idle = sorted(n for n, until in self.room.resting.items() if until > now + KEPT_S and not hosts[n].units)
            why = [because(Code.NOT_NEEDED, quarantine=hosts[name].quarantine or "") for name in idle]
            said.facts += [f.HostReleased(host=name, reason=reason) for name, reason in zip(idle, why, strict=True)]
        return False

    def _report_demand(self, said: Said, now: float) -> bool:
        """Rule 5."""
        said.facts += self._demand_facts(said.starts, now)
        return False

    def _rebalance(self, said: Said, now: float) -> bool:
        """Rule 7."""
        if not said.facts:
            said.facts += self.balancing.facts(self.policy.balance, now)
        return False

    def wake_at(self) -> float:
        due = min(self.limits.next_moment(self.decided_at), self.book.next_moment(self.decided_at), self._due)
        due = min(due, self.book.launches.next_due())
        due = min(due, notices.next_due(self.custody, self.dept, self.decided_at))
        if self.book.queue.bookings:
            bookings, settings = self.book.queue.bookings.values(), self.policy.leases
            due = min(due, lease_times.next_moment(bookings, settings, self.decided_at))
        times = [*self.room.cordoned.values()]
        if self.book.queue.where or self.book.queue.bookings:
            times += self.room.resting.values()
            if self.best_effort:
                due = min(due, self.guards.next_moment(self.best_effort, self.decided_at))
        return min([due, *(until for until in times if until > self.decided_at)])

    def rests_until_woken(self) -> bool:
        """True if the last `decide` had nothing to say, and nothing that concerns it has happened since."""
        return self._rests and max(self.decided_at, self.custody.state.at) < self.wake_at()

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def _closings(self, now: float) -> list[f.AttemptClosed]:
        broken = sorted(self.custody.index.broken.get(self.dept, ()), key=sort_key)
        if not (broken or self.cancelling or self.limits.any_due(now)):
            return []
        found = {name: self.endings.broken(name) for name in broken}
        for name in sorted(self.cancelling, key=sort_key):
            if name not in found:
                found[name] = self.endings.close(name, Disposal.CANCELLED, because(Code.CANCELLED))
        for limit in self.limits.overdue(now):
            if limit.unit not in found:
                found[limit.unit] = self.endings.overdue(limit)
        return list(found.values())

    def _give_back(self, count: int, closing: dict[str, None], now: float) -> list[f.Fact]:
        """Rule 2: `count` hosts go back; attempts in `closing` end anyway."""
        held, quota = self.custody.held(self.dept), self.custody.quota(self.dept).hosts
        notice = because(Code.NOTICE, department=self.dept, held=held, quota=quota)
        must = notices.due(self.custody, self.dept, now)
        if must < count:  # a contract's notice: so many may wait for their jobs
            must = max(must, self._due_for_grace(closing, now))
            count = max(must, min(count, self._idle_hosts(closing)))
            if not count:
                return [*self._demand_facts([], now)]
        idle = None if closing else self._idle(count)
        if idle is not None:
            return [f.HostReleased(host=name, reason=notice) for name in idle]
        hosts = reclaim.loads(self.custody, self.dept, closing)
        candidates = self.preempting.on_notice(hosts, now)
        choice, kept_s = registry.victims(self.policy.victims)(hosts, candidates, count), self.endings.kept_s
        why = {u: reclaim.why_victim(candidates[u], count, kept_s(u), self.policy.victims) for u in choice.victims}
        return self._hand_back(choice, why, notice)

    def _due_for_grace(self, closing: dict[str, None], now: float) -> int:
        """Hosts that must go back now since those who would be victims have asked for time (`notice`, rule 3)."""
        late_s = max(notices.latenesses(self.custody, self.dept), default=0.0)
        count = notices.due(self.custody, self.dept, now + late_s)
        if not count:
            return 0
        hosts = reclaim.loads(self.custody, self.dept, closing)
        candidates = self.preempting.on_notice(hosts, now)
        victims = registry.victims(self.policy.victims)(hosts, candidates, count).victims
        late_s = max((candidates[unit].late_s for unit in victims), default=0.0)
        return notices.due(self.custody, self.dept, now + late_s)

    def _give_up(self, closing: dict[str, None], now: float) -> tuple[list[f.Fact], list[f.Fact]]:
        """Rule 8: the cordoned hosts that go back whatever the quota says: idle ones, and drained ones with those whose end it
        is.  Attempts in `closing` end anyway."""
        hosts, due = self.custody.state.hosts, self.room.cordoned
        on = {name: [u for u in hosts[name].units if u not in closing] for name in sorted(due)}
        idle: list[f.Fact] = [
            f.HostReleased(host=name, reason=because(Code.CORDONED, hosts=[name])) for name in on if not on[name]
        ]
        drained = [name for name in on if on[name] and due[name] <= now]
        if not drained:
            return idle, []
        why = {unit: because(Code.HOST_DRAINED, host=name) for name in drained for unit in on[name]}
        choice = Choice(sorted(why, key=sort_key), drained)
        return idle, self._hand_back(choice, why, because(Code.HOST_DRAINED, host=drained[0]))

    def _hand_back(self, choice: Choice, why: dict[str, Reason], reason: Reason) -> list[f.Fact]:
        """The victims end or move, and their hosts go back.  `why` each of them ends; `reason` of the releases."""
        moves = self._moving(choice)
        closings = {}
        for unit in choice.victims:
            ended = self.endings.preempted(unit, why[unit], saved=self.endings.saved(unit))
            closings[unit] = self.endings.moved(unit, why[unit]) if unit in moves else ended
        placements = {
            unit: self._placement(Start(unit, self.book.shape(unit), hosts, because(Code.MIGRATES)))
            for unit, hosts in moves.items()
        }
        return reclaim.interleave(self.custody, choice, closings, placements, reason)

    def _moving(self, choice: Choice) -> dict[str, tuple[str, ...]]:
        """Which victims go on at once on hosts that stay."""
        wishing = [unit for unit in choice.victims if self.endings.wishes_to_move(unit)] if self.active else []
        return moves(self.custody, self.room, wishing, choice.hosts, self.book.shape) if wishing else {}

    def _idle_hosts(self, closing: dict[str, None]) -> int:
        hosts = reclaim.loads(self.custody, self.dept, closing)
        return sum(1 for host in hosts if not host.units)

    def _idle(self, count: int) -> list[str] | None:
        """`count` idle hosts to give back, those that every order of victims would choose: the first ones by name, those with
        parked VMs last.  None if somebody has to end, or if not all hosts are alike in that (cordoned, in quarantine): then
        the order itself is asked."""
        if self.custody.index.apart or self.custody.held(self.dept) - len(self.room.busy) < count:
            return None
        names = [names for free, names in self.room.classes.items() if free.empty]
        parked = self.custody.index.parked
        if parked:
            return sorted((name for each in names for name in each), key=lambda name: (name in parked, name))[:count]
        return names[0][:count] if len(names) == 1 else list(islice(heapq.merge(*names), count))

    def _moves(self, now: float, closing: dict[str, None]) -> tuple[dict[str, list[str]], list[Start]]:
        """Who makes way now (lease -> attempts), or what starts; with slots, nothing beside `closing`.  A fruitless pass is not
        repeated until something has changed that could bear fruit, or a moment has come (`policies.order`, rules 1 to 3)."""
        room = self.room.rested(self.custody, now)
        queue = self.book.ranked(now, None if self.best_effort else room)  # nothing fits, and somebody may make way
        if not self.active or not (queue.where or queue.bookings):
            self._due = NEVER
            return {}, []
        if closing and queue.bookings:  # theirs may be the room that a slot needs: in a moment it is known to be free
            self._due, queue.grew = NEVER, True
            return {}, []
        if not self._may_bear_fruit(now, room):
            return {}, []
        plan = self._pass(now, room)
        self._due = plan.due
        way: dict[str, list[str]] = {}
        for unit, lease in plan.clear:
            way.setdefault(lease, []).append(unit)
        starts = [] if way else plan.starts
        if queue.budgets is not None:
            booked, rest = [s for s in starts if s.unit in queue.bookings], [s for s in starts if s.unit in queue.where]
            starts = booked + queue.budgets.cut(rest, self.book.owner, self.book.shape)  # accepted ones: not again
        index = self.custody.index
        if starts and (index.parked or index.saved or self.state.again):
            starts = settle(starts, room, self._affinity)
        if not (starts or way):
            queue.grew = self.room.grew = self._shifted = False
            self._passed_at = now
        return way, starts

    def _may_bear_fruit(self, now: float, room: Room) -> bool:
        """True if something has changed since the last fruitless pass that another one could start something for."""
        if room is not self.room or self.book.queue.grew or self.room.grew or now >= self._due:
            return True
        left = self.guards.left(now) if self.best_effort else None
        if self._shifted and (self.order.foresees or left is not None):  # who is gone may leave fewer to end
            return True
        return bool(self.best_effort) and self.guards.next_moment(self.best_effort, self._passed_at) <= now

    def last_pass(self, now: float) -> Plan:
        """What the last pass over the queue found.  Where it may not hold any more, as the core has yet to decide or may place
        nobody (on notice): what a pass finds now.  It serves until the next fact; the next decision makes one of its own."""
        room = self.room.rested(self.custody, now)
        self.book.ranked(now)
        made = self._passed
        if made is not None and (not self._may_bear_fruit(now, room) or made.serves(self.custody.state.position, now)):
            return made.plan
        queue = self.book.queue
        return self._pass(now, room) if self.active and (queue.where or queue.bookings) else NOBODY

    def _pass(self, now: float, room: Room) -> Plan:
        plan = self._plan(self.order, self.situation(now, room))
        self._passed = Passed(plan, self.custody.state.position)
        return plan

    def _plan(self, order: Order, situation: Situation) -> Plan:
        queue = situation.queue
        slots = leases_elsewhere.plan(situation) if queue.bookings and not order.keeps_slots else Plan([])
        if slots.starts:
            return slots
        if self.best_effort or any(key.kind.best_effort for key in queue.lanes):
            plan = make_way.plan(order, situation, self.preempting.best_effort(situation.now))
        else:
            plan = order.plan(situation)
        return plan if slots.due == NEVER else plan._replace(due=min(plan.due, slots.due))

    @property
    def order(self) -> Order:
        """Of the configuration in force."""
        return self._adopted().order

    def situation(self, now: float, room: Room) -> Situation:
        turns = (self.state.turn, self.state.turn_best_effort)
        return Situation(
            self.book.queue,
            room,
            now,
            STARTS_MAX,
            self.foresee,
            self.policy,
            turns,
            self.preempting.guarded_at(now) if self.best_effort else nobody,
            self._clearing_s,
        )

    @property
    def _affinity(self) -> Unexchanged:
        ahead, policy = self.order.foresees or bool(self.book.queue.bookings), self.policy
        custody, state = self.custody, self.state
        book = self.book
        return Unexchanged(custody, self.dept, policy.warm, book.user, state.warm, book.origin, book.shuns, ahead)

    def _clearing_s(self, name: str) -> float:
        unit, saved = self.custody.state.units[name], self.endings.saved(name)
        later = self.endings.saves_later(name)
        return lease_times.clearing_s(self.custody, unit, self.policy.leases, saved=saved, saves_later=later)

    def _placement(self, start: Start) -> f.UnitPlaced:
        unit, shape = self.custody.state.units[start.unit], start.shape
        return f.UnitPlaced(
            unit=start.unit,
            attempt=unit.attempt + 1,
            hosts=start.hosts,
            cores=shape.cores,
            memory_mb=shape.memory_mb,
            exclusive=shape.exclusive,
            reason=start.reason,
        )

    def _demand_facts(self, starts: list[Start], now: float) -> list[f.DemandChanged]:
        queue = self.book.queue
        wanted = self._wanted(starts) if self.active else 0
        if self.active and queue.bookings:
            leases = lease_times.hosts_wanted(self.book, self.open, self.capacities, self.policy.leases, now)
            wanted = max(wanted, leases)
        prefer = preferred(queue) if self.book.constraints and self.active else ()
        if wanted == self.custody.state.demands.get(self.dept, 0) and prefer == self.state.prefer:
            return []
        pending = len(queue) + len(queue.bookings) - len(starts)
        reason = because(Code.QUEUE, pending=pending, running=len(self.open) + len(starts))
        return [f.DemandChanged(dept=self.dept, hosts=wanted, prefer=prefer, reason=reason)]

    def _wanted(self, starts: list[Start]) -> int:
        """Hosts that the department could use once `starts` are placed."""
        if not starts and self._demand is not None:
            return self._demand
        starting: dict[Shape, int] = {}
        for start in starts:
            starting[start.shape] = starting.get(start.shape, 0) + 1
        busy = self.room.busy
        apart = sum(1 for name in self.room.cordoned if name in busy)  # used beside what is divided
        more = {name: None for start in starts for name in start.hosts if name not in busy}
        idle = {c: sum(n not in more for n in names) for c, names in self.room.classes.items() if c.empty}
        wanted = hosts_wanted(self.book.queue, self.capacities, len(busy) - apart + len(more), starting, idle)
        if self.order.hosts is not None:
            ask = self.order.hosts(self.situation(0.0, self.room), list(self.capacities.counts))
            wanted = max(wanted, min(ask, len(self.capacities.of_host)))
        wanted += apart
        if not starts:
            self._demand = wanted
        return wanted

    def check(self) -> list[str]:
        """The views say what custody and state say; nobody waits who is over (`batch.check`)."""
        dump, fresh, later = self.dump(), BatchCore(self.custody, self.dept), BatchCore(self.custody, self.dept)
        fresh.load(dump)
        later.load(dump)
        return check(self, fresh, later)
