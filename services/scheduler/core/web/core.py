"""The web core (the paper's WS Server): how many instances, on which hosts, and what the department claims.

Theory of operation
  The load arrives as `load.observed` facts; custody tells which instances are live, drain, and are in service.  The number of
  instances is a level that this core writes as `demand.changed {instances, hosts}` and reads back: so it survives restarts and
  replays.  `decide` compares levels and returns, in this order: the claim; instances that end; hosts given back; new instances.

  A core that had nothing to say rests: it says so again without looking, until a fact concerns it or its wake-up time comes.

Rules
  1. How many instances there should be is decided in `web.autoscaler`; which ones go, and where new ones are placed, in
     `web.hosts`; how they end, in `web.termination`: in service, they drain first.
  2. No signal for `signal_timeout_s` though instances are in service: the number is held, and `demand.changed` says
     `signal_missing`, once; and says something else once signals have come back (`web.signals`).
  3. What counts as one of the wanted is active: it does not drain.  More than wanted there may be while those that are not
     ready are replaced.
  4. Claim: hosts for all instances, those that drain included, since they take room (where some hosts of the cluster are too
     small, no more than are not); at least those in use; plus held ones that can carry no more (cordoned, and in use; too
     small, while others are short): instances that stay there need no other place.  What is not needed goes back at once
     (paper, II-B), but a host whose instance is closed only when its VM has ended, and it is claimed until then.  A lower claim
     would bring notice, and notice kills.  A rolling update claims no more than `max_surge` allows: where none is left, a
     successor waits for the place of one that drains.  With `surge = "idle"` the hosts for it are no part of the claim: they
     are wanted beside it, if they are idle (`if_idle`), and kept as long as the update needs them.
  5. A failed instance is replaced under a new number: the first time at once, then later and later (F2).
  6. Notice (held above quota): hosts go back as `web.termination` says; nothing is placed meanwhile.
  7. A department that is not configured, or closed, wants no instance and no host.
  8. Where the hosts are others and the number of instances is the same, the reason is that of the hosts (`web.claim`).

What it folds
  What a decision needs to be quick (inventory, capacities, limits) are views, kept up to date by `apply`, rebuilt by `load`.
  F1. Each handler returns True if a decision may be another one after the fact: then the core does not rest any more.
  F2. A failure is an instance whose program or VM ended, that did not come up, or that was not ready for too long, unless it
      was draining.  Failures in a row make a replacement wait longer and longer (`backoff_s`), until one has served for
      STABLE_S.  VMs that were on one host together and end within TOGETHER_S without a guest's word are one failure, to the
      release too: their hypervisor has started again, say, and so many on one host prove no more than one does.
  F3. What balancers and guests have said of an instance (drained, ready or not, ended) is forgotten with the instance; which
      ones have the fewest sessions, after `signal_timeout_s`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import Department, WebPolicy
from schemas.envelope import FACTS_MAX
from schemas.ids import instance_id
from schemas.reasons import Code, Reason, because
from services.domain import readiness
from services.domain.core import NEVER, last_moment
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Broken, Unit
from services.scheduler.core.policies import known, scale_flaps, scale_steps
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.shape import Shape
from services.scheduler.core.web import answers as web_answers
from services.scheduler.core.web import autoscaler, termination
from services.scheduler.core.web import claim as web_claim
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import release as web_release
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.autoscaler import Number, whose
from services.scheduler.core.web.claim import Room
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.inventory import Inventory
from services.scheduler.core.web.release import Roll, Seen
from services.scheduler.core.web.rolls import Releases, Step
from services.scheduler.core.web.state import STABLE_S, State, backoff_s
from services.scheduler.core.web.termination import Scene

TOGETHER_S: Final = 5.0  # OpenNebula is asked once a second or two, and tells of all VMs then
_NOT_READY: Final = (Code.NOT_READY, Code.UNREACHABLE)
PLACED_MAX: Final = 500  # instances of one decision; the rest follow with the next one


class WebCore:
    """The core of web department `dept`."""

    # 3: claims, requests, who drains; 4: that starts are paused; 5: what is wanted if idle; 6: who is not ready; 7: what
    # releases answer; 9: whose word the load is; a first start reads them from the journal
    VERSION = 9

    def __init__(self, custody: Custody, dept: str) -> None:
        self.custody, self.dept = custody, dept
        self._writer, self._prefix = f"scheduler.{dept}", f"{dept}."
        self.state = State()
        self._per_host: int | None  # None: to be worked out again
        self._wake_at: float  # while it rests
        self._decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
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

    # Rule 1.

    def _on_host(self, fact: f.HostFact, _meta: Meta) -> bool:
        held = self.inventory.host_changed(fact.host)
        if self.capacities.update(self.custody, fact.host):
            self._per_host = None
            return True
        return held

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
        code, state = fact.reason.code if fact.reason is not None else None, self.state
        self._note_change(fact, meta.at)
        state.by_person = code is Code.SCALED_BY_PERSON or (state.by_person and fact.instances == state.target)
        state.target, state.if_idle = fact.instances, fact.if_idle
        if code is not Code.ROOM_BESIDE:  # of hosts alone
            state.missing = code is Code.SIGNAL_MISSING
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
        """Another release has not failed yet: its instances do not wait."""
        if fact.dept != self.dept:
            return False
        self.state.roll = web_release.changed(self.state.roll, fact, self.releases(0.0).live())
        if fact.state in ("rolling", "rolled_back"):
            self.state.failures, self.state.to_replace, self.state.retry_at = 0, 0, 0.0
            self.state.answers, self.state.answers_at = {}, 0.0
        elif fact.state == "complete":
            self.state.complete_at = meta.at
        return True

    def releases(self, now: float) -> Releases:
        return Releases(self.custody, self.dept, self.policy, self.inventory, self.state, self.state.roll, now)

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
        seen = self.releases(0.0).look(self.custody.state.units[fact.unit])
        self.state.roll = web_release.began(self.state.roll, seen)
        self._count()
        return True

    def _on_draining(self, fact: f.InstanceDraining, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.inventory.drains(fact.unit)
        if fact.reason.code is Code.ROLLING:
            self.state.followed[fact.unit] = int(str(fact.reason.params.get("release", 0)))
        self._count()
        return True

    def _on_reported(self, fact: f.InstanceReported, meta: Meta) -> bool:
        """Who does not drain has not drained, whatever it is said to; of who is not in service yet its guest alone knows."""
        name, state = fact.unit, self.state
        if not self._mine(name):
            return False
        if self.custody.state.units[name].began_at is None and fact.by != "guest":
            return False
        if fact.state == "drained":
            if name not in self.inventory.draining:
                return False
            state.drained[name] = None
            return True
        if fact.state == "ended":
            state.ended[name] = fact
            return True
        before = name in state.unready
        readiness.reported(state.unready, fact, meta.at, self.policy.unreachable_s)
        if before and name not in state.unready:
            state.ready_at[name] = meta.at
        return True

    def _on_closed(self, fact: f.AttemptClosed, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        unit, now = self.custody.state.units[fact.unit], self.custody.state.at
        releases = self.releases(now)
        seen = releases.look(unit)
        self._forget(fact.unit)
        self.state.ended.pop(fact.unit, None)
        counts = fact.unit not in self.state.together
        self.state.together.pop(fact.unit, None)
        if counts and (unit.began_at is not None or not self.state.paused):
            self.state.roll = web_release.ended(self.state.roll, seen, fact.why, releases.live(), releases.terms, now)
        if fact.why.code in web_release.FAILURES and unit.drains_until is None:
            self._on_failure(seen, fact.why, now, counts)
        self._count()
        return True

    def _on_starts(self, fact: f.StartsPaused | f.StartsResumed, meta: Meta) -> bool:
        """Rule 4."""
        self.state.paused = isinstance(fact, f.StartsPaused)
        self.state.retry_at = min(self.state.retry_at, meta.at)
        return True

    def _on_failure(self, seen: Seen, why: Reason, now: float, counts: bool) -> None:
        """Rule 2.  The successor of one that was not ready is there already, if there was room for it."""
        state = self.state
        state.failed, state.failed_why = seen.unit, why
        if counts and (seen.began_at is not None or not state.paused):
            state.failures = 1 if seen.has_served(STABLE_S, now) else state.failures + 1
            state.retry_at = now + backoff_s(state.failures)
        if why.code in _NOT_READY:
            state.replaced_at = now
        if why.code not in _NOT_READY or len(self.inventory.active) < (state.target or 0):
            state.to_replace += 1

    def _on_broken(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self._mine(name):
                self._note_together(self.custody.state.units[name])
                self._forget(name)
                self._rests = False
        self._count()

    def _note_together(self, unit: Unit) -> None:
        """Rule 2: whether another one ended so on its host, just before and when it was there too."""
        state, now = self.state, self.custody.state.at
        if unit.broken is not Broken.VM_ENDED or unit.id in state.ended or unit.placed_at is None:
            return
        state.taken = {name: at for name, at in state.taken.items() if now <= at + TOGETHER_S}
        first = state.taken.get(unit.hosts[0])
        if first is not None and unit.placed_at < first:
            state.together[unit.id] = None
        else:
            state.taken[unit.hosts[0]] = now

    def _forget(self, name: str) -> None:
        """Its attempt is closed or broken."""
        self.inventory.ended(name)
        self.limits.closed(name)
        self.state.drained.pop(name, None)
        self.state.followed.pop(name, None)
        self.state.unready.pop(name, None)
        self.state.ready_at.pop(name, None)

    def _on_config(self, _fact: f.ConfigAdopted, _meta: Meta) -> bool:
        before, rule = self.policy, self.policy.rule
        self._rebuild()
        if not web_rolls.same_content(before, self.policy):
            last = self.custody.state.instance_last.get(self.dept, 0)
            self.state.roll = web_release.configured(self.state.roll, last)
        if (
            self.policy.rule != rule
        ):  # what a rule remembers is its own: whoever does not have the old one goes on alike
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
        """The number in service may have changed; if so, the window begins anew."""
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
        for seen in self.releases(0.0).live():  # a snapshot of a version that knew no releases: what serves is good
            self.state.roll = web_release.began(self.state.roll, seen)

    def _rebuild(self) -> None:
        """All views anew, from custody and configuration."""
        self.department = self._configured()
        self.policy = (self.department.web if self.department else None) or WebPolicy()
        self._bounds = autoscaler.Bounds.of(self.policy)
        config = self.custody.state.config
        self._usual = web_signals.usual(config, self.department) if config is not None and self.department else ()
        self.shape = Shape(1, self.policy.instance_cores, self.policy.instance_memory_mb, False)
        self.inventory = self._fresh()
        self.capacities = Capacities.of(self.custody)
        self._per_host = None
        self.limits = Limits(self.custody, lambda _unit: NEVER, lambda: self.policy.boot_timeout_s)
        self.limits.rebuild(self.custody.index.open.get(self.dept, ()))
        self._rests = False  # True: the last decide had nothing to say, and nothing that concerns it has happened since

    def _configured(self) -> Department | None:
        """As configured; None if it is not a web department, or closed."""
        config = self.custody.state.config
        found = config.department(self.dept) if config else None
        closed = self.dept in self.custody.state.closed
        return found if found is not None and found.kind == "web" and not closed else None

    def _fresh(self) -> Inventory:
        return Inventory.of(self.custody, self.dept, self.shape, self.policy.instances_per_host)

    def per_host(self) -> int:
        """Instances on a host: as configured, if the smallest usable host can carry them."""
        if self._per_host is None:
            self._per_host = self._carried()
        return self._per_host

    def _carried(self) -> int:
        most = self.policy.instances_per_host
        return min(most, self.capacities.ranks(self.shape) or most)

    def quiet(self, now: float) -> tuple[str, ...]:
        """Rule 3: the instances with the fewest sessions."""
        return self.state.quiet if now < self.state.quiet_at + self.policy.signal_timeout_s else ()

    def _check_views(self) -> list[str]:
        found = []
        if self.inventory.serving != self.state.serving:
            found.append(f"{self.inventory.serving} instances are in service, {self.state.serving} are counted")
        if self._fresh().as_data() != self.inventory.as_data():
            found.append("what the department holds differs from custody")
        if self._configured() != self.department:
            found.append("the department is configured otherwise")
        fresh = Capacities.of(self.custody)
        if (fresh.of_host, fresh.counts) != (self.capacities.of_host, self.capacities.counts):
            found.append("the capacities differ from custody")
        if self.per_host() != self._carried():
            found.append(f"a host carries {self._carried()} instances, not {self.per_host()}")
        if any(a.end > b.start + 1e-5 for a, b in pairwise(self.state.samples)):
            found.append(f"samples overlap: {self.state.samples}")
        return [*found, *self._check_words()]

    def _check_words(self) -> list[str]:
        """Rule 3."""
        live = self.custody.index.open.get(self.dept, ())
        state = self.state
        spoken = [*state.drained, *state.followed, *state.unready, *state.ready_at, *state.ended]
        found = [f"{name} is gone, and what was said of it is not" for name in spoken if name not in live]
        drains = {name for name in live if name in self.inventory.draining}
        found += [f"{name} has drained and does not drain" for name in self.state.drained if name not in drains]
        return found

    def check(self) -> list[str]:
        found = self._check_views()
        if self._rests and self._decide(self._decided_at):
            found.append("it rests though it has something to say")
        if self._rests and self._decide(last_moment(self._decided_at, self._wake_at)):
            found.append(f"it rests until {self._wake_at} though it has something to say before")
        if self._rests and self._wake() != self._wake_at:
            found.append(f"it rests until {self._wake_at} and should until {self._wake()}")
        return found

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
        wanted, hurried = self._desired(after, now)[0], known.rule(self.policy.rule).hurried
        if wanted != number and (hurried or (whole and wanted > number and after.rate is not None)):
            return True
        claims = web_signals.observed(state, web_signals.claim_of(fact), now, self.policy)
        return (fact.claim or 0) > (state.claim or 0) and self._desired(claims, now)[0] > number

    def _desired(self, state: State, now: float) -> Number:
        if self.department is None:
            return 0, because(Code.DEPARTMENT_REMOVED, department=self.dept)
        return autoscaler.desired(
            autoscaler.Situation(state, self.policy, self._bounds, self._most(), now, self._usual)
        )

    def _most(self) -> int:
        """Instances that there may be."""
        return autoscaler.most(self.department, self.policy, self.per_host()) if self.department is not None else 0

    @property
    def ready(self) -> int:
        """Instances that serve: in service, not draining, and nobody says that they are not ready."""
        held = self.inventory
        return held.serving - sum(1 for name in self.state.unready if name in held.active and name not in held.starting)

    def missing(self, now: float) -> bool:
        """Rule 2: instances are in service, and nobody says how busy they are."""
        return web_signals.missing(self.state, self.policy, now)

    # -------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        if self._rests and self._decided_at <= now < self._wake_at:
            self._decided_at = now
            return []
        self._decided_at = now
        found = self._decide(now)
        self._rests = not found
        if self._rests:
            self._wake_at = self._wake()
        return found

    def _decide(self, now: float) -> list[f.Fact]:
        if self.custody.state.config is None:
            return []
        target, reason = self.desired(now)
        scene, notice = self.scene(now), self.notice()
        closings = termination.closings(scene, target, self._most())
        seen = self._picture(scene, closings)
        given_up = termination.give_up(scene, seen)
        if given_up:  # the rest follows with the next decision, which sees them gone
            return [*closings, *given_up][:FACTS_MAX]
        step = self._step(seen, target, now)
        if notice:
            told = self._claim(seen, step, (target, reason), Room(target, 0), now)  # what drains goes with its host
            rest = termination.give_back(scene, seen, notice)
            return [*step.words, *told, *closings, *rest][:FACTS_MAX]
        spare = 0 if step.plan is not None else termination.spare(scene, target, self._most())
        most = target + spare
        ended: list[f.Fact] = []
        if step.plan is not None:
            most, leave = step.plan.most, [scene.unit(name) for name in step.plan.leave]
            ended += termination.ends(scene, leave, because(Code.ROLLING, release=step.at.roll.wanted))
            seen = self._without(scene, seen, leave)
        surplus = web_hosts.surplus(seen, most, self.per_host())
        ended += termination.ends(scene, surplus, self._cause(target, reason, Code.SCALE_DOWN))
        seen = self._without(scene, seen, surplus)
        room = self._room(step, target, most, seen.draining)
        claim = self.claim(seen, *room)
        found = [*step.words, *self._claim(seen, step, (target, reason), room, now), *closings, *ended]
        # How long to wait with new ones is known once failed ones are closed.
        placed = [] if closings else self._placements(step, seen, target, spare, reason)
        hosts = web_hosts.not_needed(seen, claim, [fact.hosts[0] for fact in placed], now)
        found += [f.HostReleased(host=name, reason=self._why_given(name, claim)) for name in hosts]
        return [*found, *placed][:FACTS_MAX]

    def _why_given(self, host: str, claim: int) -> Reason:
        if host in self.inventory.cordoned:
            return because(Code.CORDONED, hosts=[host])
        return because(Code.NOT_NEEDED, demand=claim)

    def _room(self, step: Step, target: int, most: int, draining: int) -> Room:
        """Rule 4."""
        if step.plan is None:
            return Room(most, draining)
        beside = target + step.at.terms.max_surge - step.plan.room
        return Room(step.plan.room, max(0, min(draining, beside)))

    def _step(self, seen: Picture, target: int, now: float) -> Step:
        """What releases have to say."""
        at = self.releases(now)
        return web_rolls.step(at, seen, target) if self.department is not None else Step(None, at, None)

    def _without(self, scene: Scene, seen: Picture, units: list[Unit]) -> Picture:
        """Those are to end."""
        drained = [unit for unit in units if termination.drains(scene, unit)]
        return seen.without([unit for unit in units if not termination.drains(scene, unit)], drained)

    def scene(self, now: float) -> Scene:
        drain_s = self.policy.drain_s if self.department is not None else 0.0
        terms = self.releases(now).terms
        return Scene(self.custody, self.dept, self.policy, drain_s, self.state, self.inventory, self.limits, terms, now)

    def _picture(self, scene: Scene, closings: list[f.AttemptClosed]) -> Picture:
        """What is held without those that are being closed."""
        held = self.inventory
        gone = {fact.unit: None for fact in closings if fact.unit in held.active or fact.unit in held.draining}
        first = dict.fromkeys([*termination.not_ready(scene), *self.quiet(scene.now)])
        return Picture(held, gone, {}, {name: rank for rank, name in enumerate(first)})

    def _cause(self, target: int, reason: Reason, code: Code) -> Reason:
        """Why an instance comes or goes: a person's word, or `code`."""
        kept = self.state.by_person and target == self.state.target
        by_person = kept or reason.code is Code.SCALED_BY_PERSON
        if by_person:
            return because(Code.SCALED_BY_PERSON, instances=target)
        return because(code, instances=target, **(whose(reason) if code is Code.SCALE_UP else {}))

    def wake_at(self) -> float:
        return self._wake_at if self._rests else self._wake()

    def _wake(self) -> float:
        state = self.state
        times = [] if state.until is None else [state.until]
        if state.serving and not state.missing:
            times.append(web_signals.missing_at(state, self.policy, self._decided_at))
        times += web_signals.lost_at(state)
        hosts = self.custody.state.hosts
        if self.department is not None:
            times.append(self._bounds.wake_at(self._decided_at, self.policy))
            times.append(autoscaler.freed_at(state, self.policy, self._bounds, self._decided_at))
        times += [state.retry_at, *(hosts[name].quarantine_until for name in self.inventory.quarantined)]
        target, most = (self.desired(self._decided_at)[0], self._most()) if state.unready else (0, 0)
        times.append(termination.wake_at(self.scene(self._decided_at), target, most))
        times.append(web_rolls.wake_at(self.releases(self._decided_at)))
        return min([self.limits.next_due(), *(time for time in times if time > self._decided_at)])

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def claim(self, seen: Picture, wanted: int, draining: int) -> int:
        """Rule 4: hosts wanted in all.  `draining`: instances that take room beside the wanted ones."""
        return max(self._needed(seen, wanted, draining), len(self.inventory.hosts) - len(seen.idle()))

    def _needed(self, seen: Picture, wanted: int, draining: int) -> int:
        """Of these, what instances need, wherever they are."""
        held, idle = self.inventory, seen.idle()
        beside = max(0, wanted + draining - seen.apart())
        needed, able = -(-beside // self.per_host()), self.capacities.able(self.shape)
        if able < len(self.capacities.of_host):  # more would only bring hosts that carry nothing
            needed = min(needed, able)
        if not needed:
            return 0
        leaving = sum(1 for name in held.cordoned if name not in idle)
        small = len(held.small) if held.useful < needed else 0
        return needed + leaving + small

    def _if_idle(self, seen: Picture, step: Step, target: int, room: Room, claim: int) -> int:
        """Of `claim`, the hosts that are wanted only if they are idle: those of the surge, until they are empty again."""
        if self.policy.surge == "claim":
            return 0
        if step.plan is None:
            return max(0, min(claim - self._needed(seen, *room), self.state.if_idle))
        wanted = min(room.wanted, target)
        firm = self._needed(seen, wanted, max(0, min(room.draining, target - wanted)))
        return max(0, min(claim - firm, -(-step.at.terms.max_surge // self.per_host())))

    def _claim(self, seen: Picture, step: Step, number: Number, room: Room, now: float) -> list[f.DemandChanged]:
        claim, (target, reason) = self.claim(seen, *room), number
        if_idle = self._if_idle(seen, step, target, room, claim)
        hosts = claim - if_idle
        missing = self.missing(now) and self.department is not None
        told = self.custody.state.demands.get(self.dept, 0), self.state.if_idle, self.state.target or 0
        if told == (hosts, if_idle, target) and missing == self.state.missing:
            return []
        if missing and told == (hosts, if_idle, target):
            reason = because(Code.SIGNAL_MISSING, timeout_s=self.policy.signal_timeout_s, instances=self.state.serving)
        elif self.department is not None and (target, missing) == (self.state.target, self.state.missing):  # rule 8
            reason = web_claim.why(seen, step, target, room, told[0] + told[1] - claim)
        return [f.DemandChanged(dept=self.dept, hosts=hosts, instances=target, if_idle=if_idle, reason=reason)]

    def _placements(self, step: Step, seen: Picture, target: int, spare: int, reason: Reason) -> list[f.UnitPlaced]:
        """New instances, `spare` of them for those that are not ready."""
        short = web_hosts.shortage(seen, target + spare) if step.plan is None else step.plan.start
        count, at = min(short, PLACED_MAX), step.at
        retry_at = 0.0 if step.word is not None and step.at.roll.stage == "rolling" else self.state.retry_at
        if not count or at.now < retry_at:
            return []
        shape, last = self.shape, self.custody.state.instance_last.get(self.dept, 0)
        hosts = web_hosts.places(self.inventory, count, at.now)
        replacing = self.state.to_replace + spare
        cause = self._cause(target, reason, Code.SCALE_UP)
        if at.roll.stage == "rolling":
            cause = because(Code.ROLLING, release=at.roll.wanted)
        again = because(Code.REPLACEMENT, instances=target)
        return [
            f.UnitPlaced(
                unit=instance_id(self.dept, last + 1 + i),
                attempt=1,
                hosts=(host,),
                cores=shape.cores,
                memory_mb=shape.memory_mb,
                reason=again if i < replacing else cause,
                release=at.roll.wanted,
                image=at.image,
            )
            for i, host in enumerate(hosts)
        ]
