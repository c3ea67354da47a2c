"""The web core (the paper's WS Server): how many instances, on which hosts, and what the department claims.

Theory of operation
  The load arrives as `load.observed` facts; custody tells which instances are live and in service.  The number of instances is
  a level that this core writes as `demand.changed {instances, hosts}` and reads back: so it survives restarts and replays.
  `decide` compares levels and returns, in this order: the claim; instances that must end; hosts given back; new instances.

Rules
  1. n in service, mean utilisation u over a covered window (`web_load`): u ≥ threshold: n + 1; u < threshold·(n - 1)/n: n - 1
     (paper, III-C).  While an instance is on its way (target > n) a high load asks for no more than n + 1.
  2. Between `instances_min` and `instances_max`, and what the department's `maximum` of hosts can carry.
  3. `scale.requested`: a person's `exact` number overrides rule 1 and the minimum, a person's `minimum` raises the minimum,
     until its time has passed.  Nothing overrides the maximum.
  4. No signal for `signal_timeout_s` though instances are in service: the number is held, and `demand.changed` says
     `signal_missing`, once; and says something else once signals have come back.
  5. Claim: hosts for all instances (where some hosts of the cluster are too small, no more than are not); at least those in
     use; plus held ones that can carry none (cordoned; too small, while others are short).  What is not needed goes back at
     once (paper, II-B), but a host whose instance was closed by rule 1 only when its VM has ended, and it is claimed until
     then: it has `drain_s` for the requests under way.  A lower claim would bring notice, and notice kills.
  6. A broken instance is closed and replaced under a new number; one that has not come up in time too (`limits`).  The first
     replacement is at once, further ones wait longer and longer (`backoff_s`), until one has served for STABLE_S.
  7. Notice (held above quota): hosts go back at once with their instances closed; nothing is placed meanwhile.
  8. A department that is not configured, or closed, wants no instance and no host.
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
from services.scheduler import web_hosts
from services.scheduler.demand import Capacities
from services.scheduler.limits import Limits
from services.scheduler.reclaim import why_broken
from services.scheduler.shape import Shape
from services.scheduler.web_hosts import Picture
from services.scheduler.web_load import Sample, follow, mean

STABLE_S: Final = 30.0  # who has served this long has not failed at the start
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0  # a program that is repaired is back within half a minute
PLACED_MAX: Final = 500  # instances of one decision; the rest follow with the next one
_FAILURES: Final = (Code.VM_ENDED, Code.BOOT_TIMEOUT)


class State(msgspec.Struct, kw_only=True):
    target: int | None = None  # instances, as the last own demand.changed said
    missing: bool = False  # … and whether it said signal_missing
    by_person: bool = False  # that number is a person's: placements and closings until the next one say so
    serving: int = 0  # instances in service
    since: float = 0.0  # when their number last changed
    heard_at: float = 0.0  # end of the last load.observed
    samples: list[Sample] = []
    minimum: int | None = None  # a person's word, rule 3
    exact: int | None = None
    until: float | None = None
    failures: int = 0  # in a row
    to_replace: int = 0  # failed instances whose successor is not placed yet
    retry_at: float = 0.0


def backoff_s(failures: int) -> float:
    """How long a replacement waits after so many failures in a row."""
    if failures <= 1:
        return 0.0
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 2, 16))


class WebCore:
    """The core of web department `dept`."""

    def __init__(self, custody: Custody, dept: str) -> None:
        self.custody, self.dept = custody, dept
        self.state = State()
        self._decided_at = 0.0  # `now` of the last decide: what is due by then has been looked at
        self._rebuild()

    # --------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        if isinstance(fact, f.LoadObserved):
            self._on_load(fact, meta)
        elif isinstance(fact, f.VmStarted):
            if fact.unit in self.custody.index.open.get(self.dept, ()):
                self.limits.vm_started(fact.unit, fact.attempt)
        elif isinstance(fact, f.UnitPlaced):
            if self._mine(fact.unit):
                self.limits.placed(fact.unit)
                self.state.to_replace = max(0, self.state.to_replace - 1)
        elif isinstance(fact, f.AttemptBegan):
            if self._mine(fact.unit):
                self.limits.began(fact.unit)
                self._count()
        elif isinstance(fact, f.AttemptClosed):
            if self._mine(fact.unit):
                self._on_closed(fact)
        elif isinstance(fact, f.DemandChanged):
            if fact.dept == self.dept:
                self._on_demand(fact)
        elif isinstance(fact, f.ScaleRequested):
            if fact.dept == self.dept:
                self.state.minimum, self.state.exact, self.state.until = fact.minimum, fact.exact, fact.until
        elif isinstance(fact, f.ConfigAdopted):
            self.limits.rebuild(self._open())
        elif isinstance(fact, f.DepartmentClosed):
            self.limits.rebuild(self._open())
            self._count()
        else:
            self._on_host(fact)
        for name in meta.broken:
            self.limits.closed(name)
        if meta.broken:
            self._count()

    def _on_host(self, fact: f.Fact) -> None:
        host = getattr(fact, "host", None)
        if host is not None:
            self.capacities.update(self.custody, host)

    def _mine(self, unit: str) -> bool:
        return unit.startswith(f"{self.dept}.")

    def _open(self) -> list[str]:
        return sorted(self.custody.index.open.get(self.dept, ()), key=sort_key)

    def _on_load(self, fact: f.LoadObserved, meta: Meta) -> None:
        if fact.dept == self.dept and meta.writer == f"scheduler.{self.dept}":
            self.state.samples = self._with(fact)
            self.state.heard_at = max(self.state.heard_at, min(fact.end, meta.at))

    def _on_demand(self, fact: f.DemandChanged) -> None:
        code, state = fact.reason.code if fact.reason is not None else None, self.state
        state.by_person = code is Code.SCALED_BY_PERSON or (state.by_person and fact.instances == state.target)
        state.target, state.missing = fact.instances, code is Code.SIGNAL_MISSING

    def _by_person(self, target: int, reason: Reason) -> bool:
        return reason.code is Code.SCALED_BY_PERSON or (self.state.by_person and target == self.state.target)

    def _with(self, fact: f.LoadObserved) -> list[Sample]:
        """The window with this observation in it."""
        policy, sample = self.policy, Sample(fact.start, fact.end, fact.utilisation)
        return follow(
            self.state.samples,
            sample,
            since=self.state.since,
            window_s=policy.window_s,
            gap_s=policy.signal_timeout_s,
        )

    def _on_closed(self, fact: f.AttemptClosed) -> None:
        self.limits.closed(fact.unit)
        if fact.why.code in _FAILURES:
            began_at, now = self.custody.state.units[fact.unit].began_at, self.custody.state.at
            stable = began_at is not None and now - began_at >= STABLE_S
            self.state.failures = 1 if stable else self.state.failures + 1
            self.state.to_replace += 1
            self.state.retry_at = now + backoff_s(self.state.failures)
        self._count()

    def _count(self) -> None:
        """The number in service may have changed; if so, the window begins anew."""
        serving = sum(1 for unit in self.instances() if unit.began_at is not None)
        if serving != self.state.serving:
            self.state.serving, self.state.since = serving, self.custody.state.at
            self.state.samples = []

    def instances(self) -> list[Unit]:
        """Live ones, by number."""
        units = self.custody.state.units
        return [units[name] for name in self._open() if units[name].live]

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = msgspec.msgpack.decode(data, type=State)
        self._rebuild()

    def _rebuild(self) -> None:
        self.capacities = Capacities.of(self.custody)
        self.limits = Limits(self.custody, lambda _unit: NEVER, lambda: self.policy.boot_timeout_s)
        self.limits.rebuild(self._open())

    def check(self) -> list[str]:
        found = []
        serving = sum(1 for unit in self.instances() if unit.began_at is not None)
        if serving != self.state.serving:
            found.append(f"{serving} instances are in service, {self.state.serving} are counted")
        fresh = Capacities.of(self.custody)
        if (fresh.of_host, fresh.counts) != (self.capacities.of_host, self.capacities.counts):
            found.append("the capacities differ from custody")
        if any(a.end > b.start + 1e-5 for a, b in pairwise(self.state.samples)):
            found.append(f"samples overlap: {self.state.samples}")
        return found

    # ---------------------------------------------------------------------------------------------------- how many

    @property
    def department(self) -> Department | None:
        """As configured; None if it is not a web department, or closed."""
        config = self.custody.state.config
        found = config.department(self.dept) if config else None
        closed = self.dept in self.custody.state.closed
        return found if found is not None and found.kind == "web" and not closed else None

    @property
    def policy(self) -> WebPolicy:
        department = self.department
        return (department.web if department else None) or WebPolicy()

    @property
    def shape(self) -> Shape:
        return Shape(1, self.policy.instance_cores, self.policy.instance_memory_mb, False)

    def per_host(self) -> int:
        """Instances on a host: as configured, if the smallest usable host can carry them."""
        return min(self.policy.instances_per_host, self.capacities.ranks(self.shape) or self.policy.instances_per_host)

    def desired(self, now: float) -> tuple[int, Reason]:
        """The number of instances that should be, and why."""
        return self._desired(now, self.state.samples, self.missing(now))

    def would_change(self, fact: f.LoadObserved, now: float) -> bool:
        """True if the number would be another one with this observation.  Changes nothing: the edge asks before it waits."""
        return self._desired(now, self._with(fact), False)[0] != self.desired(now)[0]

    def _desired(self, now: float, samples: list[Sample], missing: bool) -> tuple[int, Reason]:
        department, policy = self.department, self.policy
        if department is None:
            return 0, because(Code.DEPARTMENT_REMOVED, department=self.dept)
        most = policy.instances_max
        if department.maximum is not None:
            most = min(most, department.maximum * self.per_host())
        word = self.state.until is None or now < self.state.until
        if word and self.state.exact is not None:
            return min(self.state.exact, most), because(Code.SCALED_BY_PERSON, exact=self.state.exact, maximum=most)
        least, asked = policy.instances_min, self.state.minimum if word else None
        current = least if self.state.target is None else self.state.target
        wanted, reason = self._follow_load(current, samples, missing)
        if asked is not None and asked > max(wanted, least):
            return min(asked, most), because(Code.SCALED_BY_PERSON, minimum=asked, maximum=most)
        if wanted < least or self.state.target is None:
            return min(least, most), because(Code.AT_MINIMUM, minimum=least)
        return (most, because(Code.AT_MAXIMUM, maximum=most)) if wanted > most else (wanted, reason)

    def _follow_load(self, current: int, samples: list[Sample], missing: bool) -> tuple[int, Reason]:
        """Rules 1 and 4."""
        n, threshold = self.state.serving, self.policy.threshold
        if missing:
            return current, because(Code.SIGNAL_MISSING, timeout_s=self.policy.signal_timeout_s, instances=n)
        utilisation = mean(samples, self.policy.window_s)
        if n == 0 or utilisation is None:
            return current, because(Code.UTILISATION_STEADY, instances=n)
        seen = {"utilisation": round(utilisation, 4), "instances": n, "window_s": self.policy.window_s}
        if utilisation >= threshold:
            return max(current, n + 1), because(Code.UTILISATION_HIGH, threshold=threshold, **seen)
        low = threshold * (n - 1) / n
        if utilisation < low:
            return min(current, n - 1), because(Code.UTILISATION_LOW, threshold=round(low, 4), **seen)
        return current, because(Code.UTILISATION_STEADY, **seen)

    def missing(self, now: float) -> bool:
        """Rule 4: instances are in service, and nobody says how busy they are."""
        return self.state.serving > 0 and now >= self._missing_at()

    def _missing_at(self) -> float:
        return max(self.state.heard_at, self.state.since) + self.policy.signal_timeout_s

    # -------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        self._decided_at = now
        if self.custody.state.config is None:
            return []
        target, reason = self.desired(now)
        closings = self._closings(now)
        seen = web_hosts.picture(self.custody, self.dept, dict.fromkeys(c.unit for c in closings))
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
        hosts = web_hosts.not_needed(seen, self.shape, claim, [fact.hosts[0] for fact in placed], now)
        why = because(Code.SCALED_BY_PERSON if self._by_person(target, reason) else Code.SCALE_DOWN, instances=target)
        found = [*self._claim(target, claim, reason, now), *closings]
        found += [self._close(unit, Disposal.STOPPED, why) for unit in surplus]
        found += [f.HostReleased(host=name, reason=because(Code.NOT_NEEDED, demand=claim)) for name in hosts]
        return [*found, *placed][:FACTS_MAX]

    def wake_at(self) -> float:
        state = self.state
        times = [] if state.until is None else [state.until]
        if state.serving and not state.missing:
            times.append(self._missing_at())
        held = [self.custody.state.hosts[name] for name in self.custody.index.held.get(self.dept, ())]
        times += [state.retry_at, *(host.quarantine_until for host in held)]
        return min([self.limits.next_due(), *(time for time in times if time > self._decided_at)])

    def notice(self) -> int:
        """Hosts that the department must give back now."""
        quotas = self.custody.state.quotas
        return max(0, self.custody.held(self.dept) - quotas[self.dept].hosts) if self.dept in quotas else 0

    def claim(self, seen: Picture, target: int) -> int:
        """Rule 5: hosts wanted in all."""
        occupied = {host.name: None for host in seen.hosts if seen.busy(host)}
        needed, able = -(-target // self.per_host()), self.capacities.able(self.shape)
        if able < len(self.capacities.of_host):  # more would only bring hosts that carry nothing
            needed = min(needed, able)
        leaving = sum(1 for host in seen.hosts if host.cordoned is not None and host.name in occupied)
        small = sum(1 for host in seen.hosts if web_hosts.too_small(host, self.shape))
        short = web_hosts.useful(seen, self.shape) < needed
        return max(needed + leaving + (small if short else 0) if needed else 0, len(occupied))

    def _claim(self, target: int, hosts: int, reason: Reason, now: float) -> list[f.DemandChanged]:
        missing = self.missing(now) and self.department is not None
        known = self.custody.state.demands.get(self.dept, 0), self.state.target or 0
        if known == (hosts, target) and missing == self.state.missing:
            return []
        if missing and known == (hosts, target):
            reason = because(Code.SIGNAL_MISSING, timeout_s=self.policy.signal_timeout_s, instances=self.state.serving)
        return [f.DemandChanged(dept=self.dept, hosts=hosts, instances=target, reason=reason)]

    def _closings(self, now: float) -> list[f.AttemptClosed]:
        """Instances that are broken, cancelled, or did not come up."""
        found: dict[str, f.AttemptClosed] = {}
        for name in sorted(self.custody.index.broken.get(self.dept, ()), key=sort_key):
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
        """Rule 7."""
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
        if not count or now < self.state.retry_at:
            return []
        shape, last = self.shape, self.custody.state.instance_last.get(self.dept, 0)
        hosts = web_hosts.places(self.custody, seen, shape, self.policy.instances_per_host, count, now)
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
