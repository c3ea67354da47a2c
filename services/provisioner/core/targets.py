"""How many hosts each department may keep: `policies.phoenix` on the levels of now, and what the configuration has beside.

Theory of operation
  A division is worked out when a level may have changed (`forget`), or when time alone makes it another one (`until`).  Turns
  are taken where two batch departments wait (`turns`), contracts and windows are looked at where there are some
  (`agreements`), idle hosts are added where a web department wants some (`policies.idle`).

Rules
  1. A cordoned host serves no other department, so it is not divided.  Its holder has it beside the others: its quota counts
     it, and if it uses it, so do its demand, guarantee and maximum.
  2. Guarantees and maxima are those of the hours of now, and what is lent is within contracts.
  3. What a web department wants only if it is idle, and holds already, is demand as any other: it stays while it is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from schemas.config import CloudConfig, Department
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.lending import bounds
from services.provisioner.core import turns
from services.provisioner.core.agreements import Agreements
from services.provisioner.core.policies import phoenix
from services.provisioner.core.policies.idle import with_idle
from services.provisioner.core.policies.phoenix import UNLIMITED, Claim
from services.provisioner.core.state import State

NONE_BESIDE: Final = (0, 0)  # cordoned hosts of a department that holds none
Beside = dict[str, tuple[int, int]]  # department -> cordoned hosts that it holds, and how many of them it uses


class Division(NamedTuple):
    """`wanted`: department -> hosts it may keep, cordoned ones among them; removed departments have 0.  `firm`: what that would
    be if nothing were wanted only if idle.  `usable`: the hosts that are divided; `beside`: the cordoned ones beside those.
    `agreements`: None where there are neither contracts nor windows.  `until`: when time alone makes it another one."""

    wanted: dict[str, int]
    firm: dict[str, int]
    usable: int
    beside: Beside
    agreements: Agreements | None
    until: float


class Targets:
    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state
        self.division = Division({}, {}, 0, {}, None, NEVER)  # derived
        self.forgotten = True  # it is to be worked out again

    def forget(self) -> None:
        """A level may have changed."""
        self.forgotten = True

    def at(self, now: float) -> Division:
        count, beside, last = usable(self.custody, now), self.beside(), self.division
        if self.forgotten or (count, beside) != (last.usable, last.beside) or now >= last.until:
            self.division, self.forgotten = self._divide(count, beside, now), False
        return self.division

    def _divide(self, count: int, beside: Beside, now: float) -> Division:
        custody, config = self.custody, self.custody.state.config
        nothing = dict.fromkeys(sorted([*custody.state.quotas, *custody.index.held]), 0)
        claims = [self.claim(department, now) for department in config.departments] if config else []
        busy = {claim.name: claim.occupied for claim in claims}
        agreements = Agreements(custody, self.state.credits, now) if config is not None and agrees(config) else None
        claims = agreements.adjust(claims) if agreements is not None else claims
        first, until = self._first(claims, now) if len(self.state.waiting) > 1 else ("", NEVER)

        def divide(claims: list[Claim]) -> dict[str, int]:
            return agreements.divide(claims, first) if agreements is not None else phoenix.targets(claims, count, first)

        firm = divide(claims)
        found = with_idle(claims, busy, firm, divide) if self.state.if_idle else firm
        until = min(until, self._quarantine_ends(now), NEVER if agreements is None else agreements.until)
        return Division(_with(nothing | found, beside), _with(nothing | firm, beside), count, beside, agreements, until)

    def _first(self, claims: list[Claim], now: float) -> tuple[str, float]:
        """Whose turn it is, if it has idle hosts that it cannot use; else None.  And until when."""
        name, until = turns.whose(self.state.waiting, now)
        return next((c.name for c in claims if c.name == name and c.held > c.occupied), ""), until

    def _quarantine_ends(self, now: float) -> float:
        """When the next host counts again."""
        hosts = self.custody.state.hosts
        ends = (hosts[name].quarantine_until for name in self.custody.index.apart)
        return min((until for until in ends if until > now), default=NEVER)

    def claim(self, department: Department, now: float) -> Claim:
        index, name, web = self.custody.index, department.name, department.kind == "web"
        held, occupied = index.held.get(name, {}), index.occupied.get(name, {})
        cordoned = self.custody.cordoned(name)
        _, used = self.beside().get(name, NONE_BESIDE)  # rule 1
        guarantee, maximum = bounds(department, now)
        demand = max(0, self.custody.state.demands.get(name, 0) - used)
        most = demand + self.state.if_idle.get(name, 0) if web else demand
        firm = max(demand, min(most, len(held) - len(cordoned)))  # rule 3
        return Claim(
            name=name,
            web=web,
            demand=firm,
            if_idle=most - firm,
            held=len(held) - len(cordoned),
            had=max(0, self.custody.quota(name).hosts - len(cordoned)) if web else 0,
            occupied=len(occupied) - sum(1 for h in cordoned if h in occupied),
            weight=department.weight,
            priority=department.priority,
            guarantee=max(0, guarantee - used),
            maximum=UNLIMITED if maximum is None else max(0, maximum - used),
        )

    def beside(self) -> Beside:
        """Rule 1.  What ends on a web department's host still uses it, as its demand has it."""
        if not self.custody.index.apart:
            return {}
        found, hosts = Beside(), self.custody.state.hosts
        for department in self.custody.departments:
            names = self.custody.cordoned(department.name)
            if names:
                web = department.kind == "web"
                used = sum(1 for n in names if hosts[n].units or (web and hosts[n].vms))
                found[department.name] = len(names), used
        return found


def agrees(config: CloudConfig) -> bool:
    """There are contracts or windows."""
    return bool(config.lending) or any(department.windows for department in config.departments)


def _with(quota: dict[str, int], beside: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Rule 1: each quota with the cordoned hosts."""
    return {name: hosts + beside.get(name, NONE_BESIDE)[0] for name, hosts in quota.items()} if beside else quota
