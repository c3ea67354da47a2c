"""The web core (the paper's WS Server): how many instances, on which hosts, and what the department claims.

Theory of operation
  The load arrives as `load.observed` facts; custody tells which instances are live and in service.  The number of instances is
  a level that this core writes as `demand.changed {instances, hosts}` and reads back: so it survives restarts and replays.
  `decide` compares levels and returns, in this order: the claim; instances that must end; hosts given back; new instances.

  What a decision needs to be quick (holdings, capacities, limits) are views, kept up to date by `apply`, rebuilt by `load`.
  A core that had nothing to say rests: it says so again without looking, until a fact concerns it or its wake-up time comes.

Rules
  1. How many instances there should be is decided in `web_number`, from what is folded here.
  2. No signal for `signal_timeout_s` though instances are in service: the number is held, and `demand.changed` says
     `signal_missing`, once; and says something else once signals have come back (`web_signals`).
  3. Claim: hosts for all instances (where some hosts of the cluster are too small, no more than are not); at least those in
     use; plus held ones that can carry none (cordoned; too small, while others are short).  What is not needed goes back at
     once (paper, II-B), but a host whose instance was closed by rule 1 only when its VM has ended, and it is claimed until
     then: it has `drain_s` for the requests under way.  A lower claim would bring notice, and notice kills.
  4. A broken instance is closed and replaced under a new number; one that has not come up in time too (`limits`).  The first
     replacement is at once, further ones wait longer and longer (`backoff_s`), until one has served for STABLE_S.
  5. Notice (held above quota): hosts go back at once with their instances closed; nothing is placed meanwhile.
  6. A department that is not configured, or closed, wants no instance and no host.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import Department, WebPolicy
from schemas.custody import Custody
from schemas.custody_state import Broken, Unit
from schemas.envelope import FACTS_MAX
from schemas.facts import Disposal
from schemas.ids import instance_id, sort_key
from schemas.meta import Meta
from schemas.reasons import Code, Reason, because
from services.runtime.core import NEVER
from services.scheduler import web_hosts, web_number, web_signals
from services.scheduler.demand import Capacities
from services.scheduler.limits import Limits
from services.scheduler.policies import known, scale_flaps, scale_steps
from services.scheduler.policies.scale import Track
from services.scheduler.reclaim import why_broken
from services.scheduler.shape import Shape
from services.scheduler.web_holdings import Holdings
from services.scheduler.web_hosts import Picture
from services.scheduler.web_number import Number
from services.scheduler.web_state import STABLE_S, State, backoff_s

PLACED_MAX: Final = 500  # instances of one decision; the rest follow with the next one
_FAILURES: Final = (Code.VM_ENDED, Code.BOOT_TIMEOUT)


class WebCore:
    """The core of web department `dept`."""

    VERSION = (
        3  # 2: remembers the load of the last days; 3: claims and requests.  A first start reads them from the journal
    )

    def __init__(self, custody: Custody, dept: str) -> None:
        self.custody, self.dept = custody, dept
        self._writer, self._prefix = f"scheduler.{dept}", f"{dept}."
        self.state = State()
        self._per_host: int | None  # None: to be worked out again
        self._decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
        self._on = {
            f.LoadObserved: self._on_load,
            f.UnitPlaced: self._on_placed,
            f.AttemptBegan: self._on_began,
            f.AttemptClosed: self._on_closed,
            f.VmAllocated: self._on_vm_allocated,
            f.VmStarted: self._on_vm_started,
            f.VmEnded: self._on_vm_ended,
            f.DemandChanged: self._on_demand,
            f.QuotaChanged: self._on_quota,
            f.ScaleRequested: self._on_scale,
            f.ConfigAdopted: self._on_config,
            f.DepartmentClosed: self._on_department_closed,
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

    # Each handler returns True if a decision may be another one after the fact.

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
        return True

    def _on_demand(self, fact: f.DemandChanged, meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        code, state = fact.reason.code if fact.reason is not None else None, self.state
        self._note_change(fact, meta.at)
        state.by_person = code is Code.SCALED_BY_PERSON or (state.by_person and fact.instances == state.target)
        state.target, state.missing = fact.instances, code is Code.SIGNAL_MISSING
        return True

    def _note_change(self, fact: f.DemandChanged, at: float) -> None:
        """What step limits and the flap budget are about."""
        state = self.state
        by = (fact.instances or 0) - state.target if state.target is not None else 0
        if by:
            state.changes = scale_steps.follow(state.changes, at, by)
            state.course = scale_flaps.follow(state.course, at, by)

    def _by_person(self, target: int, reason: Reason) -> bool:
        return reason.code is Code.SCALED_BY_PERSON or (self.state.by_person and target == self.state.target)

    def _on_quota(self, fact: f.QuotaChanged, _meta: Meta) -> bool:
        return fact.dept == self.dept

    def _on_scale(self, fact: f.ScaleRequested, _meta: Meta) -> bool:
        if fact.dept != self.dept:
            return False
        self.state.minimum, self.state.exact, self.state.until = fact.minimum, fact.exact, fact.until
        return True

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
        self._count()
        return True

    def _on_closed(self, fact: f.AttemptClosed, _meta: Meta) -> bool:
        if not self._mine(fact.unit):
            return False
        self.holdings.ended(fact.unit)
        self.limits.closed(fact.unit)
        if fact.why.code in _FAILURES:
            began_at, now = self.custody.state.units[fact.unit].began_at, self.custody.state.at
            stable = began_at is not None and now - began_at >= STABLE_S
            self.state.failures = 1 if stable else self.state.failures + 1
            self.state.to_replace += 1
            self.state.retry_at = now + backoff_s(self.state.failures)
        self._count()
        return True

    def _on_broken(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self._mine(name):
                self.holdings.ended(name)
                self.limits.closed(name)
                self._rests = False
        self._count()

    def _on_config(self, _fact: f.ConfigAdopted, _meta: Meta) -> bool:
        rule = self.policy.rule
        self._rebuild()
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
        return True

    def _count(self) -> None:
        """The number in service may have changed; if so, the window begins anew."""
        serving = self.holdings.serving
        if serving != self.state.serving:
            self.state.serving, self.state.since = serving, self.custody.state.at
            self.state.samples = []

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=State)
        self._rebuild()

    def _rebuild(self) -> None:
        """All views anew, from custody and configuration."""
        self.department = self._configured()
        self.policy = (self.department.web if self.department else None) or WebPolicy()
        self._bounds = web_number.Bounds.of(self.policy)
        self.shape = Shape(1, self.policy.instance_cores, self.policy.instance_memory_mb, False)
        self.holdings = self._fresh()
        self.capacities = Capacities.of(self.custody)
        self._per_host = None
        self.limits = Limits(self.custody, lambda _unit: NEVER, lambda: self.policy.boot_timeout_s)
        self.limits.rebuild(sorted(self.custody.index.open.get(self.dept, ()), key=sort_key))
        self._rests = False  # True: the last decide had nothing to say, and nothing that concerns it has happened since
        self._wake_at = 0.0  # while it rests

    def _configured(self) -> Department | None:
        """As configured; None if it is not a web department, or closed."""
        config = self.custody.state.config
        found = config.department(self.dept) if config else None
        closed = self.dept in self.custody.state.closed
        return found if found is not None and found.kind == "web" and not closed else None

    def _fresh(self) -> Holdings:
        return Holdings.of(self.custody, self.dept, self.shape, self.policy.instances_per_host)

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
        if self._rests and self._decide(self._decided_at):
            found.append("it rests though it has something to say")
        if self._rests and self._wake() != self._wake_at:
            found.append(f"it rests until {self._wake_at} and should until {self._wake()}")
        return found

    # ---------------------------------------------------------------------------------------------------- how many

    def per_host(self) -> int:
        """Instances on a host: as configured, if the smallest usable host can carry them."""
        if self._per_host is None:
            self._per_host = self._carried()
        return self._per_host

    def _carried(self) -> int:
        most = self.policy.instances_per_host
        return min(most, self.capacities.ranks(self.shape) or most)

    def desired(self, now: float) -> Number:
        """The number of instances that should be, and why."""
        return self._desired(self.state, now)

    def would_change(self, fact: f.LoadObserved, now: float) -> bool:
        """True if the number would be another one with this observation: by its load, if the rule is one that hurries, or
        because more are claimed.  Changes nothing: the edge asks before it waits."""
        state, number = self.state, self.desired(now)[0]
        if known.rule(self.policy.rule).hurried:
            after = web_signals.observed(state, msgspec.structs.replace(fact, claim=state.claim), now, self.policy)
            if self._desired(after, now)[0] != number:
                return True
        claims = web_signals.observed(state, web_signals.claim_of(fact), now, self.policy)
        return (fact.claim or 0) > (state.claim or 0) and self._desired(claims, now)[0] > number

    def _desired(self, state: State, now: float) -> Number:
        if self.department is None:
            return 0, because(Code.DEPARTMENT_REMOVED, department=self.dept)
        most = web_number.most(self.department, self.policy, self.per_host())
        return web_number.desired(web_number.Situation(state, self.policy, self._bounds, most, now))

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
        self._wake_at = self._wake() if self._rests else 0.0
        return found

    def _decide(self, now: float) -> list[f.Fact]:
        if self.custody.state.config is None:
            return []
        target, reason = self.desired(now)
        closings = self._closings(now)
        seen = Picture(self.holdings, {c.unit: None for c in closings if c.unit in self.holdings.live})
        notice = self.notice()
        if notice:
            rest = self._give_back(seen, notice)
            found: list[f.Fact] = [*self._claim(target, self.claim(seen, target), reason, now), *closings, *rest]
            return found[:FACTS_MAX]
        surplus = web_hosts.surplus(seen, target)
        seen = seen.without(surplus)
        claim = self.claim(seen, target)
        placed = (
            [] if closings else self._placements(seen, target, reason, now)
        )  # how long to wait is known once they are closed
        hosts = web_hosts.not_needed(seen, claim, [fact.hosts[0] for fact in placed], now)
        found = [*self._claim(target, claim, reason, now), *closings]
        if not (surplus or hosts or placed):
            return found[:FACTS_MAX]
        if surplus:
            why = because(
                Code.SCALED_BY_PERSON if self._by_person(target, reason) else Code.SCALE_DOWN, instances=target
            )
            found += [self._close(unit, Disposal.STOPPED, why) for unit in surplus]
        found += [f.HostReleased(host=name, reason=because(Code.NOT_NEEDED, demand=claim)) for name in hosts]
        return [*found, *placed][:FACTS_MAX]

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
            times.append(web_number.freed_at(state, self.policy, self._bounds, self._decided_at))
        times += [state.retry_at, *(hosts[name].quarantine_until for name in self.holdings.quarantined)]
        return min([self.limits.next_due(), *(time for time in times if time > self._decided_at)])

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def claim(self, seen: Picture, target: int) -> int:
        """Rule 3: hosts wanted in all."""
        held, idle = self.holdings, seen.idle()
        occupied = len(held.hosts) - len(idle)
        needed, able = -(-target // self.per_host()), self.capacities.able(self.shape)
        if able < len(self.capacities.of_host):  # more would only bring hosts that carry nothing
            needed = min(needed, able)
        if not needed:
            return occupied
        leaving = sum(1 for name in held.cordoned if name not in idle)
        small = len(held.small) if held.small and held.useful < needed else 0
        return max(needed + leaving + small, occupied)

    def _claim(self, target: int, hosts: int, reason: Reason, now: float) -> list[f.DemandChanged]:
        missing = self.missing(now) and self.department is not None
        told = self.custody.state.demands.get(self.dept, 0), self.state.target or 0
        if told == (hosts, target) and missing == self.state.missing:
            return []
        if missing and told == (hosts, target):
            reason = because(Code.SIGNAL_MISSING, timeout_s=self.policy.signal_timeout_s, instances=self.state.serving)
        return [f.DemandChanged(dept=self.dept, hosts=hosts, instances=target, reason=reason)]

    def _closings(self, now: float) -> list[f.AttemptClosed]:
        """Instances that are broken, cancelled, or did not come up."""
        broken = self.custody.index.broken.get(self.dept)
        if not broken and self.limits.next_due() > now:
            return []
        found: dict[str, f.AttemptClosed] = {}
        for name in sorted(broken or (), key=sort_key):
            unit = self.custody.state.units[name]
            assert unit.broken is not None
            failed = unit.broken in (Broken.VM_ENDED, Broken.HOST_LOST)
            found[name] = self._close(unit, Disposal.FAILED if failed else Disposal.STOPPED, why_broken(unit.broken))
        for limit in self.limits.overdue(now):
            if limit.unit not in found:
                why = because(Code.BOOT_TIMEOUT, limit=limit.kind, boot_timeout_s=self.policy.boot_timeout_s)
                found[limit.unit] = self._close(self.custody.state.units[limit.unit], Disposal.FAILED, why)
        return list(found.values())

    def _close(self, unit: Unit, disposal: Disposal, why: Reason) -> f.AttemptClosed:
        return f.AttemptClosed(unit=unit.id, attempt=unit.attempt, disposal=disposal, why=why)

    def _give_back(self, seen: Picture, count: int) -> list[f.Fact]:
        """Rule 5."""
        held, quota = self.custody.held(self.dept), self.custody.quota(self.dept).hosts
        found: list[f.Fact] = []
        for name in web_hosts.on_notice(seen, count):
            for unit in seen.on(name):
                found.append(self._close(unit, Disposal.STOPPED, because(Code.RECLAIMED, hosts=count)))
            reason = because(Code.NOTICE, department=self.dept, held=held, quota=quota)
            found.append(f.HostReleased(host=name, reason=reason))
        return found

    def _placements(self, seen: Picture, target: int, cause: Reason, now: float) -> list[f.UnitPlaced]:
        count = min(web_hosts.shortage(seen, target), PLACED_MAX)
        if not count or now < self.state.retry_at or not self.holdings.roomy:
            return []
        shape, last = self.shape, self.custody.state.instance_last.get(self.dept, 0)
        hosts = web_hosts.places(self.holdings, count, now)
        replacing = self.state.to_replace
        more = Code.SCALED_BY_PERSON if self._by_person(target, cause) else Code.SCALE_UP
        return [
            f.UnitPlaced(
                unit=instance_id(self.dept, last + 1 + i),
                attempt=1,
                hosts=(host,),
                cores=shape.cores,
                memory_mb=shape.memory_mb,
                reason=because(Code.REPLACEMENT if i < replacing else more, instances=target),
            )
            for i, host in enumerate(hosts)
        ]
