"""The arbiter: who holds which host.  Only the provisioner grants and seizes; the holder releases; the executor clears.

Theory of operation
  `decide` compares levels: what each department may keep (`policies.phoenix.targets`) with its quota in the journal and with
  what it holds.  It never counts what is in flight, so two claims at once, a withdrawn claim or a lost message need no rule
  of their own (PROTOCOL.md, Provisioner).

Rules
  1. quota ≠ target: `quota.changed`, due one notice from now: the policy's, or that of the contract under which it gives back.
     Of several notices each stands for as many hosts as are wanted on it.
  2. Free hosts, neither cordoned nor quarantined, go to departments below their quota: web before batch (`grants`).
  3. A lowering whose time has passed and that is not met: the difference is seized, idle hosts first, then those whose
     instances all drain.
  4. A department that the configuration does not name has target 0: its hosts come back by rules 1 and 3.
  5. Two batch departments whose wide jobs each need more than their share would hold idle pieces for ever.  Who lacks hosts and
     has placed nothing for `STUCK_S` waits; where two wait, they take turns: the idle hosts go to whose turn it is.  A turn
     lasts `TURN_S`; when all have had one in vain, twice as long, and so on: hosts may take longer than a turn to be cleared.
  6. Guarantees and maxima are those of the hours of now, and what is lent is within contracts (`agreements`): it is woken when
     a window opens or closes, a loan comes to its deadline, or what early returns have earned counts less.
  7. Of free hosts a department is granted those first that satisfy constraints of its waiting jobs (`demand.changed`), then
     those that no other department's need.
  8. It must never grant a host that is not free in its own view, nor seize below a quota.
  9. A cordoned host serves nobody else, so it is not divided, and none is asked for or seized for another's claim.  Its holder
     has it beside the others: its quota counts it, and if it uses it, so do its demand, guarantee and maximum.  A drained one
     that is still held one notice after its deadline is seized.
 10. What a web department wants only if it is idle (`policies.idle`) is taken on IDLE_NOTICE_S: idle hosts go back at once on
     any notice, jobs end on the policy's alone.  A job that was placed meanwhile is seen long before, and the quota is raised
     again.  What the department holds of it already is demand as any other: it stays while it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig, Department
from schemas.envelope import FACTS_MAX
from schemas.reasons import Code, Reason, because
from services.domain.constraints import satisfies
from services.domain.core import NEVER, last_moment
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.rules import CORDONS_HOLD
from services.domain.custody.state import Host, Quota, essential
from services.domain.sharing.credit import CONCERNS as CREDITED
from services.domain.sharing.credit import Credits
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.lending import bounds
from services.provisioner.core.agreements import Agreements, Notice
from services.provisioner.core.grants import grants
from services.provisioner.core.leases import KINDS as OF_LEASES
from services.provisioner.core.leases import Late, Lease, concerned, note
from services.provisioner.core.policies.idle import with_idle
from services.provisioner.core.policies.phoenix import UNLIMITED, Claim

# Kinds after which the targets may be others.
_LEVELS: Final = dict.fromkeys(
    (
        f.DemandChanged,
        f.ConfigAdopted,
        f.HostCordoned,
        f.HostUncordoned,
        f.HostQuarantined,
        f.HostLost,
        f.HostRemoved,
        f.HostDescribed,
    )
)
# Kinds after which there may be something to grant, and the targets are others only if the number of usable hosts is …
_MOVES: Final = dict.fromkeys((f.HostCleared, f.HostGranted, f.HostReleased, f.HostSeized))
# … or if two batch departments share the idle hosts: then placements and ends count, too.
_OCCUPYING: Final = dict.fromkeys((f.UnitPlaced, f.AttemptClosed, f.AttemptReported, f.VmEnded, f.DepartmentClosed))

STUCK_S: Final = 1.0  # a scheduler that can use a host places within milliseconds, a restarted one within a second
TURN_S: Final = (
    30.0  # to gather what ending jobs and draining hosts set free; then the next one, lest a dead scheduler hoards
)
IDLE_NOTICE_S: Final = 600.0  # a provisioner that is started again is back long before, and sees what was placed
TURN_MAX_S: Final = 64 * TURN_S  # half an hour: no host drains so long
NONE_BESIDE: Final = (0, 0)  # cordoned hosts of a department that holds none


class _State(msgspec.Struct, kw_only=True):
    """`facts` makes a dump tell how far it is; `waiting`: batch department -> since when it lacks hosts and places nothing."""

    facts: int = 0
    waiting: dict[str, float] = {}
    prefers: dict[str, tuple[str, ...]] = {}  # department -> constraints of its jobs that wait
    if_idle: dict[str, int] = {}  # web department -> hosts that it wants beside its demand, if they are idle
    credits: Credits = msgspec.field(default_factory=Credits)
    leases: dict[str, Lease] = {}  # accepted ones with a time of their own that are not over


class Lowering(NamedTuple):
    """A level of a quota: down to `hosts` by then; `claimants`: who wants what is beyond."""

    hosts: int
    by: float
    reason: Reason
    claimants: tuple[str, ...]


class ProvisionerCore:
    VERSION = 3  # 2: what is wanted if idle, 3: leases; a first start reads it from the journal

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self._state = _State()
        self._targets: dict[str, int] | None = None  # derived; None: to be worked out again
        self._firm: dict[str, int]  # derived with them: what they would be if nothing were wanted only if idle
        self._usable_then: int  # the usable hosts that they divide
        self._beside_then: dict[str, tuple[int, int]]  # the cordoned ones that are held beside those
        self._quarantine_ends = NEVER  # derived with the targets, and so is the next
        self._turn_ends = NEVER
        self._agreements = Agreements(custody, self._state.credits, 0.0)  # derived with the targets
        self._quiet_until = 0.0  # derived: nothing to say before that time, unless something moves
        self._decided_at = 0.0  # `now` of the last decision that was worked out
        self._batch_of: tuple[CloudConfig | None, tuple[str, ...]] = (
            None,
            (),
        )  # that configuration's batch departments

    # -------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        self._state.facts += 1
        if meta.void is not None:
            return
        kind = type(fact)
        if kind in CREDITED:
            self._state.credits.note(self.custody, fact, meta.at)
        if kind in OF_LEASES:
            note(self._state.leases, self.custody, fact)
        if isinstance(fact, f.DemandChanged):
            self._note_wishes(fact)
        if self._one_batch():
            self._apply_simply(kind, fact)
        elif kind in _LEVELS or kind in _MOVES or kind in _OCCUPYING:
            self._targets, self._quiet_until = None, 0.0
            self._note_waiting(fact, meta)
        elif kind is f.QuotaChanged:
            self._quiet_until = 0.0

    def _note_wishes(self, fact: f.DemandChanged) -> None:
        state = self._state
        state.prefers.pop(fact.dept, None)
        state.if_idle.pop(fact.dept, None)
        if fact.prefer:
            state.prefers[fact.dept] = fact.prefer
        if fact.if_idle:
            state.if_idle[fact.dept] = fact.if_idle

    def _apply_simply(self, kind: type, fact: f.Fact) -> None:
        """One batch department gets whatever is left: what it asks for and what it holds changes no target."""
        if kind in _LEVELS:
            if isinstance(fact, f.DemandChanged) and fact.dept in self._batch_of[1]:
                return
            self._targets, self._quiet_until = None, 0.0
            if kind is f.ConfigAdopted:
                self._state.waiting.clear()
        elif kind in _MOVES or kind is f.QuotaChanged or (kind in _OCCUPYING and self.custody.index.apart):
            self._quiet_until = 0.0  # a cordoned host may be in use no more

    def _note_waiting(self, fact: f.Fact, meta: Meta) -> None:
        """Rule 5: who lacks hosts waits from then on, until it places something or wants no more than it has."""
        waiting, state = self._state.waiting, self.custody.state
        dept = meta.writer.partition(".")[2]
        if isinstance(fact, f.UnitPlaced) or (
            isinstance(fact, f.DemandChanged) and fact.hosts <= self.custody.held(dept)
        ):
            waiting.pop(dept, None)
        elif isinstance(fact, f.ConfigAdopted | f.DepartmentClosed):
            waiting.clear()
        for department in state.config.departments if state.config is not None else ():
            if department.kind == "batch" and state.demands.get(department.name, 0) > self.custody.held(
                department.name
            ):
                waiting.setdefault(department.name, meta.at)

    def _one_batch(self) -> bool:
        """True if no two departments ask for the idle hosts, and no contract makes anything of what one needs or holds."""
        config = self.custody.state.config
        if config is not self._batch_of[0] and config is not None:
            self._batch_of = config, tuple(d.name for d in config.departments if d.kind == "batch")
        return config is not None and len(self._batch_of[1]) < 2 and not config.lending and not self._state.if_idle

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def load(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
        self._targets, self._quiet_until = None, 0.0

    def late_leases(self, config: CloudConfig, now: float) -> list[Late]:
        """Each accepted lease that `config` would not keep."""
        return concerned(self.custody, self._state.leases, config, now)

    def check(self) -> list[str]:
        quotas, count = self.custody.state.quotas, usable(self.custody, self.custody.state.at)
        total = sum(self.targets(self.custody.state.at).values())
        count += sum(hosts for hosts, _ in self._beside().values())
        found = [f"targets add up to {total} of {count} usable hosts"] if total > count else []
        found += [f"{name} has a negative quota" for name, quota in quotas.items() if quota.hosts < 0]
        fresh, now = self._fresh(), max(self._decided_at, self.custody.state.at)
        if fresh.targets(now) != self.targets(now):
            found.append(f"targets are {self.targets(now)} and should be {fresh.targets(now)}")
        if now < self._quiet_until:
            found += [f"it is quiet though it has to say {fact}" for fact in fresh.decide(now)]
            then = last_moment(now, self._quiet_until)
            found += [f"it is quiet beyond {then} though it has to say {fact}" for fact in self._fresh().decide(then)]
        return found

    def _fresh(self) -> ProvisionerCore:
        """A core of the same state."""
        fresh = ProvisionerCore(self.custody)
        fresh.load(self.dump())
        return fresh

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        config = self.custody.state.config
        if config is None or now < self._quiet_until:
            return []
        self._decided_at = now
        wanted = self.targets(now)
        changed = self._change_quotas(config, wanted, now)
        moved = {fact.dept for fact in changed}
        found: list[f.Fact] = [*changed, *self._grant(config, wanted, now), *self._seize_drained(now)]
        for name in sorted(self.custody.state.quotas):
            if name not in moved:
                found += self._seize(name, now)
        if not found:
            self._quiet_until = self.wake_at()
        return found[:FACTS_MAX]

    def wake_at(self) -> float:
        due = [quota.next_due() for quota in self.custody.state.quotas.values()]  # custody drops those that are met
        due += self._drained().values()
        return min([*due, self._quarantine_ends, self._turn_ends, self._agreements.until])

    def targets(self, now: float) -> dict[str, int]:
        """Department -> hosts it may keep at `now`, cordoned ones among them; removed departments have 0."""
        count, beside = usable(self.custody, now), self._beside()
        if (
            self._targets is None
            or count != self._usable_then
            or beside != self._beside_then
            or now >= self._quarantine_ends
            or now >= self._turn_ends
            or now >= self._agreements.until
        ):
            config = self.custody.state.config
            departments = config.departments if config else ()
            wanted = dict.fromkeys(sorted([*self.custody.state.quotas, *self.custody.index.held]), 0)
            self._agreements = agreements = Agreements(self.custody, self._state.credits, now)
            claims = [self._claim(d, now) for d in departments]
            busy = {c.name: c.occupied for c in claims}
            claims = agreements.adjust(claims)
            first = self._first(claims, now)
            firm = agreements.divide(claims, first)
            found = with_idle(claims, busy, firm, lambda some: agreements.divide(some, first))
            self._firm = _beside(wanted | firm, beside)
            wanted = _beside(wanted | found, beside)
            self._targets, self._usable_then, self._beside_then = wanted, count, beside
            apart = map(self.custody.state.hosts.__getitem__, self.custody.index.apart)
            ends = [host.quarantine_until for host in apart if host.quarantine_until > now]
            self._quarantine_ends = min(ends, default=NEVER)
        return self._targets

    def _first(self, claims: list[Claim], now: float) -> str:
        """Rule 5: whose turn it is, if it has idle hosts that it cannot use; else nobody's."""
        line = sorted((since, name) for name, since in self._state.waiting.items())  # unique last key: name
        self._turn_ends = NEVER
        if len(line) < 2:
            return ""
        turn, ends = _turn(now, line[1][0] + STUCK_S, len(line))
        self._turn_ends = min(
            [ends, *(since + STUCK_S for since, _ in line if since + STUCK_S > now)]
        )  # who joins the line
        line = [(since, name) for since, name in line if now >= since + STUCK_S]
        name = line[turn % len(line)][1] if turn >= 0 else ""
        return next((c.name for c in claims if c.name == name and c.held > c.occupied), "")

    def _claim(self, department: Department, now: float) -> Claim:
        index, name = self.custody.index, department.name
        held, occupied = index.held.get(name, {}), index.occupied.get(name, {})
        cordoned = self.custody.cordoned(name)
        _, used = self._beside().get(name, NONE_BESIDE)  # rule 9
        guarantee, maximum = bounds(department, now)
        demand = max(0, self.custody.state.demands.get(name, 0) - used)
        most = demand + self._state.if_idle.get(name, 0) if department.kind == "web" else demand
        firm = max(demand, min(most, len(held) - len(cordoned)))  # rule 10
        return Claim(
            name=name,
            web=department.kind == "web",
            demand=firm,
            if_idle=most - firm,
            held=len(held) - len(cordoned),
            had=max(0, self.custody.quota(name).hosts - len(cordoned)) if department.kind == "web" else 0,
            occupied=len(occupied) - sum(1 for h in cordoned if h in occupied),
            weight=department.weight,
            priority=department.priority,
            guarantee=max(0, guarantee - used),
            maximum=UNLIMITED if maximum is None else max(0, maximum - used),
        )

    def _beside(self) -> dict[str, tuple[int, int]]:
        """Rule 9: department -> cordoned hosts that it holds, and how many of them it uses.  What ends on a web department's
        host still uses it, as its demand has it."""
        if not self.custody.index.apart:
            return {}
        found, hosts = dict[str, tuple[int, int]](), self.custody.state.hosts
        for department in self.custody.departments:
            names = self.custody.cordoned(department.name)
            if names:
                web = department.kind == "web"
                used = sum(1 for n in names if hosts[n].units or (web and hosts[n].vms))
                found[department.name] = len(names), used
        return found

    def _drained(self) -> dict[str, float]:
        """Rule 9: drained host that is held -> when it is seized, if it is held still."""
        state = self.custody.state
        if state.config is None or state.rules < CORDONS_HOLD:
            return {}
        found = {}
        for name in [n for d in self.custody.departments for n in self.custody.cordoned(d.name)]:
            until = state.hosts[name].drain_until
            if until is not None:
                found[name] = until + state.config.policy.notice_s
        return found

    def _seize_drained(self, now: float) -> list[f.HostSeized]:
        reason, hosts = Code.HOST_DRAINED, self.custody.state.hosts
        due = sorted(name for name, at in self._drained().items() if at <= now)
        return [f.HostSeized(host=n, dept=hosts[n].dept or "", reason=because(reason, host=n)) for n in due]

    def _change_quotas(self, config: CloudConfig, wanted: dict[str, int], now: float) -> list[f.QuotaChanged]:
        found = []
        for name, hosts in wanted.items():
            quota = self.custody.quota(name)
            if quota.hosts != hosts or quota.lowerings:
                told = [
                    self._lowering(config, name, hosts, step, wanted, now) for step in self._steps(config, name, hosts)
                ]
                found += _quota_facts(name, quota, hosts, self.custody.held(name), told)
        return found

    def _steps(self, config: CloudConfig, name: str, hosts: int) -> list[Notice]:
        """Rule 1, and 10: the last step is told for what is wanted only if idle."""
        firm = self._firm[name]
        if hosts >= firm:
            return self._agreements.notices(name, hosts, self._firm)
        steps = self._agreements.notices(name, firm, self._firm) if firm < self.custody.held(name) else []
        return [*steps, Notice(hosts, config.policy.notice_s + IDLE_NOTICE_S)]

    def _lowering(
        self, config: CloudConfig, name: str, hosts: int, step: Notice, wanted: dict[str, int], now: float
    ) -> Lowering:
        by = now + step.seconds
        if step.reason is not None:
            return Lowering(step.hosts, by, step.reason, step.claimants)
        lacking = [d for d in config.departments if d.name != name and wanted[d.name] > self.custody.held(d.name)]
        web = [d.name for d in lacking if d.kind == "web"]  # it comes first
        why = self._why_quota(config, name, hosts, web)
        falls = config.department(name) is not None and step.hosts < self.custody.held(name)
        return Lowering(step.hosts, by, why, tuple(web or [d.name for d in lacking]) if falls else ())

    def _why_quota(self, config: CloudConfig, name: str, hosts: int, web: list[str]) -> Reason:
        """`web`: departments of that kind which lack hosts."""
        demand, held = self._demand(name), self.custody.held(name)
        department = config.department(name)
        if department is None:
            return because(Code.DEPARTMENT_REMOVED, department=name)
        if department.kind == "web":
            if hosts < min(held, demand) and web:
                return because(Code.WEB_SHARE, departments=web, demand=demand, held=held, quota=hosts)
            return because(Code.WEB_DEMAND, department=name, demand=demand, held=held)
        if hosts >= held:
            return because(Code.IDLE_TO_BATCH, department=name, held=held)
        if web:
            return because(Code.WEB_DEMAND, departments=web, held=held)
        return because(Code.BATCH_SHARE, department=name, held=held)

    def _grant(self, config: CloudConfig, wanted: dict[str, int], now: float) -> list[f.Fact]:
        if not self.custody.index.by_state["free"]:
            return []
        hosts = self.custody.state.hosts
        free = [
            n for n in sorted(self.custody.index.by_state["free"]) if _healthy(hosts[n], now) and not hosts[n].cordoned
        ]
        found: list[f.Fact] = []
        held = {name: self.custody.held(name) for name in wanted}
        for name, count in grants(config, held, wanted, len(free), now).items():
            department = config.department(name)
            if count and department is not None:
                reason = self._why_granted(department, now)
                chosen = self._chosen(name, free)[:count]
                found += [f.HostGranted(host=n, dept=name, reason=reason) for n in chosen]
                free = [n for n in free if n not in chosen]
        return found

    def _chosen(self, name: str, free: list[str]) -> list[str]:
        """Rule 7: the free hosts (by name) in the order in which the department is to have them."""
        prefers = self._state.prefers
        if not prefers:
            return free
        mine = prefers.get(name, ())
        others = [c for dept, constraints in prefers.items() if dept != name for c in constraints]
        # 1. what its jobs need; 2. what no other's need; 3. unique: the name
        return sorted(free, key=lambda n: (not self._meets(n, mine), self._meets(n, others), n))

    def _meets(self, name: str, constraints: Iterable[str]) -> bool:
        host = self.custody.state.hosts[name]
        return any(satisfies(name, host.cluster, host.labels, c) for c in constraints)

    def _why_granted(self, department: Department, now: float) -> Reason:
        held, demand = self.custody.held(department.name), self._demand(department.name)
        guarantee, _ = bounds(department, now)
        if held < guarantee:
            return because(Code.GUARANTEE, guarantee=guarantee, held=held)
        if department.kind == "web":
            return because(Code.WEB_DEMAND, department=department.name, demand=demand, held=held)
        return because(Code.IDLE_TO_BATCH, department=department.name, held=held)

    def _demand(self, name: str) -> int:
        """In all, with what is wanted only if it is idle."""
        return self.custody.state.demands.get(name, 0) + self._state.if_idle.get(name, 0)

    def _seize(self, name: str, now: float) -> list[f.Fact]:
        quota = self.custody.quota(name)
        if not quota.lowerings:
            return []
        held = self.custody.held(name)
        count = quota.overdue(held, now)  # no lowering goes below the quota
        if not count:
            return []
        hosts, beside = self.custody.state.hosts, dict.fromkeys(self.custody.cordoned(name))  # rule 9
        order = sorted(
            (n for n in self.custody.index.held[name] if n not in beside),
            key=lambda n: (
                self._busy(n),  # 1. those where nobody would be hurt
                len(hosts[n].units),  # 2. idle ones, then those with the fewest live attempts
                self._grace_s(n),  # 3. those that are left soonest
                n,  # 4. unique: the name
            ),
        )
        reason = because(Code.NOTICE_EXPIRED, department=name, held=held, quota=quota.hosts)
        return [f.HostSeized(host=n, dept=name, reason=reason) for n in order[:count]]

    def _grace_s(self, host: str) -> float:
        """The longest that a job there has asked for."""
        units = self.custody.state.units
        return max((units[name].grace_s or 0.0 for name in self.custody.state.hosts[host].units), default=0.0)

    def _busy(self, host: str) -> int:
        """Live attempts there that do not drain: what drains has no new sessions, and its department has chosen it."""
        units = self.custody.state.units
        return sum(units[name].drains_until is None for name in self.custody.state.hosts[host].units)


def _quota_facts(name: str, quota: Quota, hosts: int, held: int, told: list[Lowering]) -> list[f.QuotaChanged]:
    """Rule 1: that the quota becomes `hosts`, and that each of `told` is due then at the latest.  A lowering keeps its deadline
    also where a shorter notice for fewer hosts comes later: the quota is raised to what is held, and all that are due are told
    again, with their old deadlines."""
    if hosts == quota.hosts and all(
        any(n <= each.hosts and due <= each.by for n, due in quota.lowerings) for each in told
    ):
        return []
    if hosts > quota.hosts or told[0].hosts < quota.hosts:
        return [_changed(name, each) for each in told]
    known = {(each.hosts, each.by): each for each in told}
    return [
        _changed(name, told[0]._replace(hosts=held, claimants=())),
        *(
            _changed(name, known.get((n, by), told[-1])._replace(hosts=n, by=by))
            for n, by in essential([*quota.lowerings, *known])
        ),
    ]


def _changed(name: str, to: Lowering) -> f.QuotaChanged:
    return f.QuotaChanged(dept=name, hosts=to.hosts, by=to.by, claimants=to.claimants, reason=to.reason)


def _turn(now: float, begin: float, waiting: int) -> tuple[int, float]:
    """The number of the turn at `now`, from 0 on, and when it ends; turns begin at `begin`, and are -1 before."""
    if now < begin:
        return -1, begin
    turn, length_s = 0, TURN_S
    while now >= begin + waiting * length_s and length_s < TURN_MAX_S:
        begin, turn, length_s = begin + waiting * length_s, turn + waiting, 2 * length_s
    more = int((now - begin) // length_s)
    if now >= begin + (more + 1) * length_s:  # the difference was rounded down: else this turn would end now, for ever
        more += 1
    return turn + more, begin + (more + 1) * length_s


def _beside(quota: dict[str, int], beside: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Rule 9: each quota with the cordoned hosts."""
    return {name: hosts + beside.get(name, NONE_BESIDE)[0] for name, hosts in quota.items()}


def _healthy(host: Host, now: float) -> bool:
    return host.quarantine_until <= now
