"""What a web department's scheduler remembers, and the views on it: the folding half of the web core (`web`).

Theory of operation
  What a decision needs to be quick (holdings, capacities, limits) are views, kept up to date by `apply`, rebuilt by `load`.

Rules
  1. Each handler returns True if a decision may be another one after the fact: then the core does not rest any more.
  2. A failure is an instance whose program or VM ended, that did not come up, or that was not ready for too long, unless it was
     draining.  Failures in a row make a replacement wait longer and longer (`backoff_s`), until one has served for STABLE_S.
     VMs that were on one host together and end within TOGETHER_S without a guest's word are one failure, to the release too:
     their hypervisor has started again, say, and so many on one host prove no more than one does.
  3. What balancers and guests have said of an instance (drained, ready or not, ended) is forgotten with the instance; which
     ones have the fewest sessions, after `signal_timeout_s`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import Department, WebPolicy
from schemas.reasons import Code, Reason
from services.domain import readiness
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Broken, Unit
from services.scheduler.core.policies import scale_flaps, scale_steps
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.state.shape import Shape
from services.scheduler.core.web import answers as web_answers
from services.scheduler.core.web import number as web_number
from services.scheduler.core.web import release as web_release
from services.scheduler.core.web import rolls as web_rolls
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.holdings import Holdings
from services.scheduler.core.web.release import Roll, Seen
from services.scheduler.core.web.rolls import Releases
from services.scheduler.core.web.state import STABLE_S, State, backoff_s

TOGETHER_S: Final = 5.0  # OpenNebula is asked once a second or two, and tells of all VMs then
_NOT_READY: Final = (Code.NOT_READY, Code.UNREACHABLE)


class WebFold:
    """All that is folded for web department `dept`, and nothing that is decided."""

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
        held = self.holdings.host_changed(fact.host)
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
        return Releases(self.custody, self.dept, self.policy, self.holdings, self.state, self.state.roll, now)

    def _on_vm_allocated(self, fact: f.VmAllocated, _meta: Meta) -> bool:
        return fact.host in self.holdings.hosts and self.holdings.host_changed(fact.host)

    def _on_vm_started(self, fact: f.VmStarted, _meta: Meta) -> bool:
        if fact.unit not in self.custody.index.open.get(self.dept, ()):
            return False
        self.limits.vm_started(fact.unit, fact.attempt)
        return True

    def _on_vm_ended(self, _fact: f.VmEnded, _meta: Meta) -> bool:
        return self.holdings.vm_ended()

    def _on_placed(self, fact: f.UnitPlaced, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.holdings.placed(fact.unit)
        self.limits.placed(fact.unit)
        self.state.to_replace = max(0, self.state.to_replace - 1)
        return True

    def _on_began(self, fact: f.AttemptBegan, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.holdings.began(fact.unit)
        self.limits.began(fact.unit)
        readiness.began(self.state.unready, fact.unit)
        seen = self.releases(0.0).look(self.custody.state.units[fact.unit])
        self.state.roll = web_release.began(self.state.roll, seen)
        self._count()
        return True

    def _on_draining(self, fact: f.InstanceDraining, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.holdings.drains(fact.unit)
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
            if name not in self.holdings.draining:
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
        if why.code not in _NOT_READY or len(self.holdings.active) < (state.target or 0):
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
        self.holdings.ended(name)
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
        serving = self.holdings.serving
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
        self._bounds = web_number.Bounds.of(self.policy)
        config = self.custody.state.config
        self._usual = web_signals.usual(config, self.department) if config is not None and self.department else ()
        self.shape = Shape(1, self.policy.instance_cores, self.policy.instance_memory_mb, False)
        self.holdings = self._fresh()
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

    def _fresh(self) -> Holdings:
        return Holdings.of(self.custody, self.dept, self.shape, self.policy.instances_per_host)

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

    def check(self) -> list[str]:
        found = []
        if self.holdings.serving != self.state.serving:
            found.append(f"{self.holdings.serving} instances are in service, {self.state.serving} are counted")
        if self._fresh().as_data() != self.holdings.as_data():
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
        drains = {name for name in live if name in self.holdings.draining}
        found += [f"{name} has drained and does not drain" for name in self.state.drained if name not in drains]
        return found
