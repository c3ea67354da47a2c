"""The web core (the paper's WS Server): how many instances, on which hosts, and what the department claims.

Theory of operation
  The load arrives as `load.observed` facts; custody has which instances are live, drain, and are in service.  The number of
  instances is a level that this core writes as `demand.changed {instances, hosts}` and reads back: so it survives restarts and
  replays.  `decide` compares levels, stage by stage: attempts that are over; releases; the answer to a notice, or else
  instances that end, the claim, new instances, and hosts that go back.  The stages are those of the configuration in force
  (`_adopted`): what it does not name is not among them.

  A core that had nothing to say rests: it says so again without looking, until a fact concerns it or its wake-up time comes.

Rules
  1. How many instances there should be is decided in `web.autoscaler`; which ones go, and where new ones are placed, in
     `web.hosts`; how they end, in `web.termination`: in service, they drain first.
  2. No signal for `signal_timeout_s` though instances are in service: the number is held, and `demand.changed` says
     `signal_missing`, once; and says something else once signals have come back (`web.signals`).
  3. What counts as one of the wanted is active: it does not drain.  More than wanted there may be while those that are not
     ready are replaced (`web.replacement`).
  4. The claim is `web.claim`'s.  What is not needed goes back at once (paper, II-B).
  5. A failed instance is replaced under a new number: the first time at once, then later and later (`web.failures`).
  6. Notice (held above quota): hosts go back as `web.reclaim` says; nothing is placed meanwhile.
  7. A department that is not configured, or closed, wants no instance and no host.

What it folds
  What a decision needs to be quick (inventory, packing, limits) are views, kept up to date by `apply`, rebuilt by `load`.
  F1. Each handler returns True if a decision may be another one after the fact: then the core does not rest any more.
  F2. What balancers and guests have said of an instance is kept by `web.reports`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Basis
from schemas.config import Department, WebPolicy
from schemas.envelope import FACTS_MAX
from schemas.ids import instance_id
from schemas.reasons import Reason
from services.domain import readiness
from services.domain.core import NEVER, Stage, last_moment
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit
from services.scheduler.core.policies import registry, scale_flaps, scale_steps
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.shape import Shape
from services.scheduler.core.web import answers as web_answers
from services.scheduler.core.web import autoscaler, failures, reclaim, replacement, reports, termination
from services.scheduler.core.web import claim as web_claim
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import release as web_release
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.autoscaler import Autoscaler, Number
from services.scheduler.core.web.claim import Packing, Room
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.inventory import Inventory
from services.scheduler.core.web.release import Roll
from services.scheduler.core.web.rolls import Step
from services.scheduler.core.web.scene import Scene
from services.scheduler.core.web.state import State

PLACED_MAX: Final = 500  # instances of one decision; the rest follow with the next one


@dataclass(slots=True)
class Said:
    """What a decision has to say so far; its envelope has the facts in the order of these lists.  `most`: active instances that
    there may be; `spare`: those of them that stand in for others; `seen`: what is held without those that are closed."""

    at: Scene
    target: int
    number: Number
    step: Step
    seen: Picture
    most: int
    spare: int = 0
    words: list[f.ReleaseChanged] = field(default_factory=list)
    claims: list[f.DemandChanged] = field(default_factory=list)
    closings: list[f.AttemptClosed] = field(default_factory=list)
    ended: list[f.Fact] = field(default_factory=list)
    released: list[f.HostReleased] = field(default_factory=list)
    placed: list[f.UnitPlaced] = field(default_factory=list)

    @property
    def facts(self) -> list[f.Fact]:
        return [*self.words, *self.claims, *self.closings, *self.ended, *self.released, *self.placed]

    def close(self, closings: Iterable[f.AttemptClosed]) -> None:
        """Those of attempts that are not being closed yet."""
        closing, held = {fact.unit for fact in self.closings}, self.seen.held
        new = [fact for fact in closings if fact.unit not in closing]
        self.closings += new
        gone = [fact.unit for fact in new if fact.unit in held.active or fact.unit in held.draining]
        self.seen = self.seen.without([self.at.unit(name) for name in gone], [])

    def end(self, units: list[Unit], why: Reason) -> None:
        """Active instances that are not needed."""
        drain = [unit for unit in units if termination.drains(self.at, unit)]
        self.ended += termination.ends(self.at, units, why)
        self.seen = self.seen.without([unit for unit in units if not termination.drains(self.at, unit)], drain)


class WebCore:
    """The core of web department `dept`."""

    # 3: claims, requests, draining; 4: that starts are paused; 5: what is wanted if idle; 6: readiness; 7: what releases
    # answer; 8: VMs of one host that end together; 9: who reported the load; 10: reasons are types; 11: decisions go by fields
    # of facts; a first start reads them from the journal
    VERSION = 11

    def __init__(self, custody: Custody, dept: str) -> None:
        self.custody, self.dept = custody, dept
        self._writer, self._prefix = f"scheduler.{dept}", f"{dept}."
        self.state = State()
        self._wake_at: float  # while it rests
        self.decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
        self._on = {
            f.LoadObserved: self._on_load,
            f.UnitPlaced: self._on_placed,
            f.AttemptBegan: self._on_began,
            f.InstanceDraining: self._on_draining,
            f.InstanceReported: self._on_reported,
            f.AttemptClosed: self._on_closed,
            f.ReleaseRequested: self._on_release_requested,
            f.ReleaseChanged: self._on_release_changed,
            f.VmAllocated: self._on_vm_allocated,
            f.VmStarted: self._on_vm_started,
            f.VmEnded: self._on_vm_ended,
            f.DemandChanged: self._on_demand,
            f.QuotaChanged: self._on_quota,
            f.ScaleRequested: self._on_scale,
            f.ConfigAdopted: self._on_config,
            f.DepartmentClosed: self._on_department_closed,
            f.StartsPaused: self._on_starts,
            f.StartsResumed: self._on_starts,
            **dict.fromkeys(f.HostFact.__args__, self._on_host),
        }
        self._rebuild()

    # --------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        handler = self._on.get(type(fact))
        if handler is not None and handler(fact, meta):  # type: ignore[operator]
            self._rests = False
        if meta.broken:
            self._on_broken(meta.broken)

    # F1.

    def _on_host(self, fact: f.HostFact, _meta: Meta) -> bool:
        held = self.inventory.host_changed(fact.host)
        return self.packing.host_changed(fact.host) or held

    def _mine(self, unit: str) -> bool:
        return unit.startswith(self._prefix)

    def _on_load(self, fact: f.LoadObserved, meta: Meta) -> bool:
        if fact.dept != self.dept or meta.writer != self._writer:
            return False
        self.state = web_signals.observed(self.state, fact, meta.at, self.policy)
        if fact.quiet:
            self.state.quiet, self.state.quiet_at = fact.quiet, meta.at
        if fact.answers:
            self._on_answers(fact, meta.at)
        return True

    def watches(self, now: float) -> bool:
        """The answers of the wanted release are compared with those of the one before."""
        return web_answers.watched(self.state.roll, self.state.complete_at, self.policy.errors_watch_s, now)

    def _on_answers(self, fact: f.LoadObserved, at: float) -> None:
        state, watch_s = self.state, self.policy.errors_watch_s
        state.answers_at = at
        if self.watches(at):
            state.answers = web_answers.follow(state.answers, state.roll, fact.answers, fact.answers_s, at, watch_s)

    def _on_demand(self, fact: f.DemandChanged, meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        state = self.state
        self._note_change(fact, meta.at)
        state.by_person = fact.basis is Basis.PERSON or (state.by_person and fact.instances == state.target)
        state.target, state.if_idle = fact.instances, fact.if_idle
        if fact.basis is not Basis.HOSTS:
            state.missing = fact.basis is Basis.SILENCE
        return True

    def _note_change(self, fact: f.DemandChanged, at: float) -> None:
        """What step limits and the flap budget are about."""
        state = self.state
        by = (fact.instances or 0) - state.target if state.target is not None else 0
        if by:
            state.changes = scale_steps.follow(state.changes, at, by)
            state.course = scale_flaps.follow(state.course, at, by)

    def _on_quota(self, fact: f.QuotaChanged, _meta: Meta) -> bool:
        return fact.dept == self.dept

    def _on_scale(self, fact: f.ScaleRequested, _meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        self.state.minimum, self.state.exact, self.state.until = fact.minimum, fact.exact, fact.until
        self.state.roll = web_release.spoken(self.state.roll, fact.user)
        return True

    def _on_release_requested(self, fact: f.ReleaseRequested, _meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        self.state.roll = web_release.known(self.state.roll, self.custody.state.releases[self.dept])
        return True

    def _on_release_changed(self, fact: f.ReleaseChanged, meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        self.state.roll = web_release.changed(self.state.roll, fact, self.scene(0.0).live())
        if fact.state in ("rolling", "rolled_back"):
            failures.begin_anew(self.state)
            self.state.answers, self.state.answers_at = {}, 0.0
        elif fact.state == "complete":
            self.state.complete_at = meta.at
        return True

    def _on_vm_allocated(self, fact: f.VmAllocated, _meta: Meta) -> bool:
        return fact.host in self.inventory.hosts and self.inventory.host_changed(fact.host)

    def _on_vm_started(self, fact: f.VmStarted, _meta: Meta) -> bool:
        if fact.unit not in self.custody.index.open.get(self.dept, ()):
            return False
        self.limits.vm_started(fact.unit, fact.attempt)
        return True

    def _on_vm_ended(self, _fact: f.VmEnded, _meta: Meta) -> bool:
        return self.inventory.vm_ended()

    def _on_placed(self, fact: f.UnitPlaced, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.inventory.placed(fact.unit)
        self.limits.placed(fact.unit)
        self.state.to_replace = max(0, self.state.to_replace - 1)
        return True

    def _on_began(self, fact: f.AttemptBegan, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.inventory.began(fact.unit)
        self.limits.began(fact.unit)
        readiness.began(self.state.unready, fact.unit)
        seen = self.scene(0.0).look(self.custody.state.units[fact.unit])
        self.state.roll = web_release.began(self.state.roll, seen)
        self._count()
        return True

    def _on_draining(self, fact: f.InstanceDraining, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.inventory.drains(fact.unit)
        if fact.release is not None:
            self.state.followed[fact.unit] = fact.release
        self._count()
        return True

    def _on_reported(self, fact: f.InstanceReported, meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        unit = self.custody.state.units[fact.unit]
        return reports.reported(self.state, fact, unit, self.inventory, meta.at, self.policy.unreachable_s)

    def _on_closed(self, fact: f.AttemptClosed, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        unit, state, now = self.custody.state.units[fact.unit], self.state, self.custody.state.at
        scene, counts = self.scene(now), failures.counts(state, unit)
        seen = scene.look(unit)
        self._forget(fact.unit)
        state.ended.pop(fact.unit, None)
        state.together.pop(fact.unit, None)
        if counts:
            state.roll = web_release.ended(state.roll, seen, fact, scene.live(), scene.terms, now)
        if fact.cause in web_release.FAILURES and unit.drains_until is None:
            failures.failed(state, seen, fact, now, len(self.inventory.active), counts=counts)
        self._count()
        return True

    def _on_starts(self, fact: f.StartsPaused | f.StartsResumed, meta: Meta) -> bool:
        self.state.paused = isinstance(fact, f.StartsPaused)
        self.state.retry_at = min(self.state.retry_at, meta.at)
        return True

    def _on_broken(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self._mine(name):
                failures.broke(self.state, self.custody.state.units[name], self.custody.state.at)
                self._forget(name)
                self._rests = False
        self._count()

    def _forget(self, name: str) -> None:
        """Its attempt is closed or broken."""
        self.inventory.ended(name)
        self.limits.closed(name)
        reports.forget(self.state, name)

    def _on_config(self, _fact: f.ConfigAdopted, _meta: Meta) -> bool:
        before, rule = self.policy, self.policy.rule
        self._rebuild()
        if not web_rolls.same_content(before, self.policy):
            last = self.custody.state.instance_last.get(self.dept, 0)
            self.state.roll = web_release.configured(self.state.roll, last)
        if (
            self.policy.rule != rule
        ):  # what a rule remembers is its own: a replica that lacks the old rule continues alike
            self.state.samples, self.state.track = [], Track()
        return True

    def _on_department_closed(self, fact: f.DepartmentClosed, _meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        self._rebuild()
        self._count()
        self.state.ended = {}
        self.state.roll = Roll(asked=self.custody.state.release_last.get(self.dept, 0))
        return True

    def _count(self) -> None:
        """The number in service may have changed; if so, the window restarts."""
        serving = self.inventory.serving
        if serving != self.state.serving:
            self.state.serves_at = self.state.serves_at if self.state.serving else self.custody.state.at
            self.state.serving, self.state.since = serving, self.custody.state.at
            self.state.samples = []

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=State)
        self._rebuild()
        for seen in self.scene(0.0).live():  # a snapshot of a version that knew no releases: what serves is good
            self.state.roll = web_release.began(self.state.roll, seen)

    def _rebuild(self) -> None:
        """Rebuild all views from custody and configuration."""
        self.department = self.configured()
        self.policy = (self.department.web if self.department else None) or WebPolicy()
        config = self.custody.state.config
        usual = web_signals.usual(config, self.department) if config is not None and self.department else ()
        self.autoscaler = Autoscaler(self.policy, usual)
        self.shape = Shape(1, self.policy.instance)
        self.inventory = Inventory.of(self.custody, self.dept, self.shape, self.policy.instances_per_host)
        self.packing = Packing(self.custody, self.shape, self.policy.instances_per_host)
        self.limits = Limits(self.custody, lambda _unit: NEVER, lambda: self.policy.boot_timeout_s)
        self.limits.rebuild(self.custody.index.open.get(self.dept, ()))
        self.stages = self._adopted()
        self._rests = False  # True: the last decide had nothing to say, and nothing that concerns it has happened since

    def configured(self) -> Department | None:
        """As configured; None if it is not a web department, or closed."""
        config = self.custody.state.config
        found = config.department(self.dept) if config else None
        closed = self.dept in self.custody.state.closed
        return found if found is not None and found.kind == "web" and not closed else None

    def scene(self, now: float) -> Scene:
        drain_s = self.policy.drain_s if self.department is not None else 0.0
        held, state = self.inventory, self.state
        return Scene(self.custody, self.dept, self.policy, drain_s, held, state, self.limits, state.roll, now)

    def check(self) -> list[str]:
        """The views say what custody and state say; it rests only while it has nothing to say."""
        fresh = WebCore(self.custody, self.dept)
        fresh.load(self.dump())
        return differences(self, fresh)

    # ---------------------------------------------------------------------------------------------------- how many

    def desired(self, now: float) -> Number:
        """The number of instances that should be, and why."""
        return self._desired(self.state, now)

    def would_change(self, fact: f.LoadObserved, now: float, *, whole: bool = False) -> bool:
        """True if the number would be another one with this observation: by its load, if the rule is one that hurries; more by
        requests that were counted for a `whole` second; or more by what is claimed.  Changes nothing: the edge asks before it
        waits."""
        state, number = self.state, self.desired(now)[0]
        after = web_signals.observed(state, msgspec.structs.replace(fact, claim=state.claim), now, self.policy)
        wanted, hurried = self._desired(after, now)[0], registry.rule(self.policy.rule).hurried
        if wanted != number and (hurried or (whole and wanted > number and after.rate is not None)):
            return True
        claims = web_signals.observed(state, web_signals.claim_of(fact), now, self.policy)
        return (fact.claim or 0) > (state.claim or 0) and self._desired(claims, now)[0] > number

    def _desired(self, state: State, now: float) -> Number:
        if self.department is None:
            return Number(0, because.DepartmentRemoved(department=self.dept))
        return self.autoscaler.desired(state, self.most(), now)

    def most(self) -> int:
        """Instances that there may be."""
        return (
            autoscaler.most(self.department, self.policy, self.packing.per_host) if self.department is not None else 0
        )

    @property
    def ready(self) -> int:
        """Instances that serve: in service, not draining, and not reported as not ready."""
        held = self.inventory
        return held.serving - sum(1 for name in self.state.unready if name in held.active and name not in held.starting)

    def missing(self, now: float) -> bool:
        """Rule 2: instances are in service, and no load is reported."""
        return web_signals.missing(self.state, self.policy, now)

    # -------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        if self._rests and self.decided_at <= now < self._wake_at:
            self.decided_at = now
            return []
        self.decided_at = now
        found = self.decide_anew(now)
        self._rests = not found
        if self._rests:
            self._wake_at = self.wake()
        return found

    def decide_anew(self, now: float) -> list[f.Fact]:
        """Whether it rests or not: the stages of the configuration in force, until one of them ends the decision."""
        if self.custody.state.config is None:
            return []
        said = self.said(now)
        for stage in self.stages:
            if stage(said, now):
                break
        return said.facts[:FACTS_MAX]

    def said(self, now: float) -> Said:
        """What a decision begins with."""
        at, number = self.scene(now), self.desired(now)
        return Said(at, number.instances, number, Step(None, at, None), self._picture(at), number.instances)

    def _picture(self, at: Scene) -> Picture:
        """What is held; instances that are not ready have the fewest sessions."""
        first = replacement.not_ready(at) if self.state.unready else []
        if self.state.quiet:
            first += reports.sessions(self.state, self.policy.signal_timeout_s, at.now)
        return Picture(self.inventory, {}, {}, {name: rank for rank, name in enumerate(dict.fromkeys(first))})

    def _adopted(self) -> list[Stage[Said]]:
        """What the configuration in force makes of this core."""
        is_here = self.department is not None
        stages: list[Stage[Said]] = [self._close_ended]
        if is_here and self.policy.unreachable_s:
            stages.append(self._replace_unready)
        stages.append(self._give_up_drained)
        if is_here:
            stages.append(self._judge_release)
        stages.append(self._answer_notice)
        if is_here:
            stages.append(self._advance_release)
        return [*stages, self._end_surplus, self._claim_hosts, self._place, self._return_idle]

    # --------------------------------------------------------------------------------------------------------- stages

    def _close_ended(self, said: Said, now: float) -> bool:
        broken, state = self.custody.index.broken.get(self.dept), self.state
        if broken or self.inventory.draining or state.ended or self.limits.next_due() <= now:
            said.close(termination.closings(said.at))
        return False

    def _replace_unready(self, said: Said, _now: float) -> bool:
        """Rule 3."""
        if self.state.unready:
            most = self.most()
            said.spare = replacement.spare(said.at, said.target, most)
            said.close(replacement.closings(said.at, said.target, most))
        return False

    def _give_up_drained(self, said: Said, _now: float) -> bool:
        if self.inventory.drained:
            said.ended += reclaim.give_up(said.at, said.seen)
        return bool(said.ended)  # the rest follows with the next decision, which sees them gone

    def _judge_release(self, said: Said, _now: float) -> bool:
        """What releases have to say; the facts behind the core's word are those of the state after it."""
        if not said.at.quiet or self.state.answers:
            said.step = web_rolls.step(said.at, said.seen, said.target)
            said.words += said.step.words
        return False

    def _answer_notice(self, said: Said, now: float) -> bool:
        """Rule 6."""
        notice = self.notice()
        if notice:
            said.claims += self._claims(said, Room(said.target, 0), now)  # what drains goes with its host
            said.ended += reclaim.give_back(said.at, said.seen, notice)
        return notice > 0

    def _advance_release(self, said: Said, _now: float) -> bool:
        """Instances of other releases leave."""
        plan, at = said.step.plan, said.step.at
        if plan is not None:
            said.end([at.unit(name) for name in plan.leave], because.Rolling(release=at.roll.wanted))
        return False

    def _end_surplus(self, said: Said, _now: float) -> bool:
        plan = said.step.plan
        said.spare = said.spare if plan is None else 0
        said.most = said.target + said.spare if plan is None else plan.most
        if said.seen.count > said.most:
            surplus = web_hosts.surplus(said.seen, said.most, self.packing.per_host)
            said.end(surplus, self._cause(said.number, up=False))
        return False

    def _claim_hosts(self, said: Said, now: float) -> bool:
        """Rule 4."""
        said.claims += self._claims(said, self._room(said), now)
        return False

    def _place(self, said: Said, _now: float) -> bool:
        """How long to wait with new ones is known once failed ones are closed."""
        if not said.closings:
            said.placed += self._placements(said)
        return False

    def _return_idle(self, said: Said, now: float) -> bool:
        """Rule 4."""
        if said.seen.idle():
            claim = web_claim.claim(said.seen, self.packing, self._room(said))
            hosts = web_hosts.not_needed(said.seen, claim, [fact.hosts[0] for fact in said.placed], now)
            said.released += [f.HostReleased(host=name, reason=self._why_given(name, claim)) for name in hosts]
        return False

    def _why_given(self, host: str, claim: int) -> Reason:
        if host in self.inventory.cordoned:
            return because.Cordoned(hosts=[host])
        return because.NotNeeded(demand=claim)

    def _room(self, said: Said) -> Room:
        return web_claim.room(said.step, said.target, said.most, said.seen.draining)

    def _cause(self, number: Number, *, up: bool) -> Reason:
        """Why an instance comes or goes: a person's word, or the load."""
        target = number.instances
        kept = self.state.by_person and target == self.state.target
        if kept or number.basis is Basis.PERSON:
            return because.ScaledByPerson(instances=target)
        return because.ScaleUp(instances=target, **number.said_by()) if up else because.ScaleDown(instances=target)

    def wake_at(self) -> float:
        return self._wake_at if self._rests else self.wake()

    def wake(self) -> float:
        """When there may be something to say, if no fact concerns it before."""
        state, at = self.state, self.scene(self.decided_at)
        hosts, times = self.custody.state.hosts, [] if state.until is None else [state.until]
        if state.serving and not state.missing:
            times.append(web_signals.missing_at(state, self.policy, at.now))
        times += web_signals.lost_at(state)
        if self.department is not None:
            times.append(self.autoscaler.wake_at(state, at.now))
        times += [state.retry_at, *(hosts[name].quarantine_until for name in self.inventory.quarantined)]
        times += [*termination.moments(at), *reclaim.moments(at)]
        if state.unready and self._replace_unready in self.stages:
            times += replacement.moments(at, self.desired(at.now)[0], self.most())
        times.append(web_rolls.wake_at(at))
        return min([self.limits.next_due(), *(time for time in times if time > at.now)])

    def rests_until(self) -> float | None:
        """None: it does not rest."""
        return self._wake_at if self._rests else None

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def _claims(self, said: Said, room: Room, now: float) -> list[f.DemandChanged]:
        seen, step, target, state = said.seen, said.step, said.target, self.state
        claim, if_idle = web_claim.claim(seen, self.packing, room), 0
        reason, basis = said.number.reason, said.number.basis
        if self.policy.surge == "idle":
            if_idle = web_claim.if_idle(seen, self.packing, step, target, room, claim, state.if_idle)
        hosts = claim - if_idle
        missing = self.missing(now) and self.department is not None
        told = self.custody.state.demands.get(self.dept, 0), state.if_idle, state.target or 0
        if told == (hosts, if_idle, target) and missing == state.missing:
            return []
        if missing and told == (hosts, if_idle, target):
            reason = because.SignalMissing(timeout_s=self.policy.signal_timeout_s, instances=state.serving)
            basis = Basis.SILENCE
        elif self.department is not None and (target, missing) == (state.target, state.missing):
            reason, basis = web_claim.why(seen, step, target, room, told[0] + told[1] - claim), Basis.HOSTS
        level = f.DemandChanged(
            dept=self.dept, hosts=hosts, instances=target, if_idle=if_idle, reason=reason, basis=basis
        )
        return [level]

    def _placements(self, said: Said) -> list[f.UnitPlaced]:
        """New instances, the first ones for those that failed or are not ready."""
        step, target, at, state = said.step, said.target, said.step.at, self.state
        short = web_hosts.shortage(said.seen, target + said.spare) if step.plan is None else step.plan.start
        count, rolls = min(short, PLACED_MAX), at.roll.stage == "rolling"
        retry_at = 0.0 if step.word is not None and rolls else state.retry_at
        if not count or at.now < retry_at:
            return []
        shape, last = self.shape, self.custody.state.instance_last.get(self.dept, 0)
        cause = because.Rolling(release=at.roll.wanted) if rolls else self._cause(said.number, up=True)
        again = because.Replacement(instances=target)
        return [
            f.UnitPlaced(
                unit=instance_id(self.dept, last + 1 + i),
                attempt=1,
                hosts=(host,),
                **shape.size.fields(),
                reason=again if i < state.to_replace + said.spare else cause,
                release=at.roll.wanted,
                image=at.image,
            )
            for i, host in enumerate(web_hosts.places(self.inventory, count, at.now))
        ]


def differences(core: WebCore, fresh: WebCore) -> list[str]:
    """What is wrong with `core`.  Every view, and the stages, should be those of `fresh`, a core of the same state that has
    never rested; and it should rest only if it has nothing to say now, nor any time until it is woken."""
    state, custody = core.state, core.custody
    found = []
    if core.inventory.serving != state.serving:
        found.append(f"{core.inventory.serving} instances are in service, {state.serving} are counted")
    if fresh.inventory.as_data() != core.inventory.as_data():
        found.append("what the department holds differs from custody")
    if fresh.department != core.department:
        found.append("the department is configured otherwise")
    if fresh.packing.as_data() != core.packing.as_data():
        found.append("the capacities differ from custody")
    if fresh.packing.per_host != core.packing.per_host:
        found.append(f"a host carries {fresh.packing.per_host} instances, not {core.packing.per_host}")
    if [stage.__name__ for stage in fresh.stages] != [stage.__name__ for stage in core.stages]:
        found.append("the stages are those of another configuration")
    if any(a.end > b.start + 1e-5 for a, b in pairwise(state.samples)):
        found.append(f"samples overlap: {state.samples}")
    found += reports.check(state, custody.index.open.get(core.dept, {}), core.inventory)
    return found + _rests_wrongly(core, fresh)


def _rests_wrongly(core: WebCore, fresh: WebCore) -> list[str]:
    """Now, and at the last moment."""
    until = core.rests_until()
    if until is None:
        return []
    found = [] if not fresh.decide_anew(core.decided_at) else ["it rests though it has something to say"]
    if fresh.decide_anew(last_moment(core.decided_at, until)):
        found.append(f"it rests until {until} though it has something to say before")
    if core.wake() != until:
        found.append(f"it rests until {until} and should until {core.wake()}")
    return found
