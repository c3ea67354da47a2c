"""Levels of service, folded from the journal: how long claims and reclaims took, why attempts ended, how short web was.

Theory of operation
  Prometheus wants counters that only grow and histograms of counters.  Counted by the process, they would begin again at each
  restart and differ between two monitors; folded, they are those of the whole journal, and the same for all readers.

Rules
  1. A claim is timed from the demand that exceeds what its department holds to the grant that meets it (Phoenix Cloud paper,
     III-C: an urgent claim); its time counts when it is met.
  2. A reclaim is timed for each host, from the quota that asks for it to its release from all VMs (`host.cleared`): what a
     claim waits for.  A host that was given back unasked is none.
  3. Short is a department with fewer serving instances than its target; instance-seconds add up from fact to fact.  Instances
     that drain do not count, nor those that one of their observers reports as not ready (`domain.readiness`).
  4. Labels come from the configuration and from enums: the number of series is bounded.
  5. A department that is closed wants nothing: its claim is neither met nor open, and it is short of nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.ids import is_instance
from services.domain import readiness
from services.domain.core import Handlers
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit
from services.domain.readiness import Readiness
from services.monitor.core.histogram import Histogram

# What changes how many instances a department wants or has.
INSTANCES: Final = (f.DemandChanged, f.AttemptBegan, f.AttemptClosed, f.InstanceDraining, f.InstanceReported)
# A notice and a grace of 0.3 s each make the shortest reclaim; a second is what is promised (README).
BOUNDS_S: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 5.0, 10.0, 30.0, 60.0)


class Times(Histogram, array_like=True):
    bounds = BOUNDS_S


class Shortage(msgspec.Struct, array_like=True):
    """Of a web department: what it wanted and had since `since`, and the instance-seconds before."""

    since: float
    wanted: int = 0
    serving: int = 0
    seconds: float = 0.0
    short_at: float | None = None  # since when fewer serve than are wanted

    def until(self, at: float) -> float:
        return self.seconds + max(0, self.wanted - self.serving) * max(0.0, at - self.since)


class State(msgspec.Struct, kw_only=True):
    claims: dict[str, Times] = {}
    reclaims: dict[str, Times] = {}
    claimed: dict[str, float] = {}  # department -> since when it holds less than it demands
    asked: dict[str, float] = {}  # department -> since when it holds more than it may
    leaving: dict[str, tuple[str, float]] = {}  # host -> (from whom, asked since)
    ended: dict[str, dict[str, dict[str, int]]] = {}  # department -> why -> what became of it -> attempts
    short: dict[str, Shortage] = {}
    unready: Readiness = {}  # live instances that an observer reports as not ready


class ServiceLevels:
    """Folds valid facts alone, after custody has; its caller also folds those `count` facts that break an attempt."""

    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state
        self.handlers: tuple[Handlers, ...] = (
            {
                f.AttemptClosed: self._closed,
                f.HostReleased: self._left,
                f.HostSeized: self._left,
                f.HostCleared: self._cleared,
                f.HostLost: self._lost,
                f.HostRemoved: self._lost,
                f.DepartmentClosed: self._gone,
            },
            dict.fromkeys(_MOVES, self._look),
            dict.fromkeys(INSTANCES, self.count),
        )

    def _hear(self, fact: f.Fact, meta: Meta) -> None:
        unready = self.state.unready
        if isinstance(fact, f.InstanceReported):
            config = self.custody.state.config
            department = config.department(fact.unit.partition(".")[0]) if config is not None else None
            web = department.web if department is not None else None
            readiness.reported(unready, fact, meta.at, web.unreachable_s if web is not None else 0.0)
        elif isinstance(fact, f.AttemptBegan):
            readiness.began(unready, fact.unit)
        elif isinstance(fact, f.AttemptClosed):
            unready.pop(fact.unit, None)
        for name in meta.broken:
            unready.pop(name, None)

    def serves(self, unit: Unit) -> bool:
        return (
            unit.live and unit.began_at is not None and unit.drains_until is None and unit.id not in self.state.unready
        )

    def _closed(self, fact: f.AttemptClosed, _meta: Meta) -> None:
        unit = self.custody.state.units.get(fact.unit)
        if unit is not None:
            ended = self.state.ended.setdefault(unit.dept, {}).setdefault(fact.why.code, {})
            ended[fact.disposal.value] = ended.get(fact.disposal.value, 0) + 1

    def _left(self, fact: f.HostReleased | f.HostSeized, meta: Meta) -> None:
        dept = fact.dept if isinstance(fact, f.HostSeized) else meta.writer.partition(".")[2]
        if dept in self.state.asked:
            self.state.leaving[fact.host] = (dept, self.state.asked[dept])

    def _cleared(self, fact: f.HostCleared, meta: Meta) -> None:
        left = self.state.leaving.pop(fact.host, None)
        if left is not None:
            self.state.reclaims.setdefault(left[0], Times()).add(meta.at - left[1])

    def _lost(self, fact: f.HostLost | f.HostRemoved, _meta: Meta) -> None:
        self.state.leaving.pop(fact.host, None)

    def _gone(self, fact: f.DepartmentClosed, meta: Meta) -> None:
        """Rule 5."""
        dept, at = fact.dept, meta.at
        self.state.claimed.pop(dept, None)
        self.state.asked.pop(dept, None)
        if dept in self.state.short:
            self.state.short[dept] = Shortage(at, seconds=self.state.short[dept].until(at))
        self.state.unready = {name: who for name, who in self.state.unready.items() if name.partition(".")[0] != dept}

    def _look(self, _fact: f.Fact, meta: Meta) -> None:
        """Who claims, and who is asked for hosts, may have changed."""
        custody, state, at = self.custody, self.state, meta.at
        for department in custody.departments:
            name, held = department.name, custody.held(department.name)
            if department.kind == "web":
                claims = custody.state.demands.get(name, 0) > held
                since = state.claimed.setdefault(name, at) if claims else state.claimed.pop(name, None)
                if not claims and since is not None:
                    state.claims.setdefault(name, Times()).add(at - since)
            quota = custody.state.quotas.get(name)
            if quota is not None and held > quota.hosts:
                state.asked.setdefault(name, at)
            else:
                state.asked.pop(name, None)

    def count(self, fact: f.Fact, meta: Meta) -> None:
        """Rule 3."""
        self._hear(fact, meta)
        units = self.custody.state.units
        names = {name.partition(".")[0] for name in (getattr(fact, "unit", ""), *meta.broken) if is_instance(name)}
        if isinstance(fact, f.DemandChanged) and fact.instances is not None:
            names.add(fact.dept)
        for dept in sorted(names):
            short = self.state.short.setdefault(dept, Shortage(meta.at))
            short.seconds, short.since = short.until(meta.at), meta.at
            if isinstance(fact, f.DemandChanged) and fact.dept == dept:
                short.wanted = fact.instances or 0
            live = (units[name] for name in self.custody.index.open.get(dept, ()))
            short.serving = sum(1 for unit in live if self.serves(unit))
            if short.serving >= short.wanted:
                short.short_at = None
            elif short.short_at is None:
                short.short_at = meta.at


_MOVES: Final = (
    f.DemandChanged,
    f.QuotaChanged,
    f.HostGranted,
    f.HostReleased,
    f.HostSeized,
    f.HostLost,
    f.ConfigAdopted,
)
