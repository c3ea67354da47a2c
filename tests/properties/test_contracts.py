"""Idle hosts and contracts: no host is idle while work that waits could have it, unless something agreed forbids that transfer.

Rules
  I1. As quotas: whoever may keep fewer hosts than it needs could not have a host more of those that nobody needs, nor web one
      that batch uses beyond guarantees, but for a contract, a maximum or a guarantee.
  I2. What contracts keep from web, web does not get by way of others: a lender keeps what it uses of its own, but for as many
      as it lends.
  I3. Web that wants a host more takes it from one department, and nobody else has fewer that it uses.  (Where batch has
      guarantees a web department may have one fewer, too: so many are kept for batch, if who needs one may borrow it or not.)
  I4. As a running cloud, whatever was cordoned, or wanted before: of each idle host `why` names the contract that forbids it.
Feasible is what the smallest cut lets through, worked out here without flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas.config import CloudConfig, Department, Lending
from services.domain.sharing.host_ownership import usable as usable_now
from services.domain.sharing.lending import ANY, UNLIMITED, limit, owned
from services.domain.sharing.loans import NOBODY
from services.domain.sharing.withheld import withheld
from services.provisioner.core.policies.contracts import targets_within
from services.provisioner.core.policies.phoenix import Claim
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from tests.support.examples import few
from tests.support.world import World, batch, cloud, web


class Agreed(NamedTuple):
    claims: list[Claim]
    usable: int
    own: dict[str, int]
    limits: dict[tuple[str, str], int]

    def quota(self, claims: list[Claim]) -> dict[str, int]:
        return targets_within(claims, self.usable, "", self.own, self.most)

    def most(self, lender: str, borrower: str) -> int:
        return UNLIMITED if lender == NOBODY else self.limits.get((lender, borrower), UNLIMITED)

    def feasible(self, quota: Mapping[str, int]) -> bool:
        """No group of holders has more than owners may lend it together (Gale 1957)."""
        groups = (group for size in range(1, len(quota) + 1) for group in combinations(sorted(quota), size))
        return all(sum(quota[n] for n in group) <= self.lent(quota, group) for group in groups)

    def lent(self, quota: Mapping[str, int], group: tuple[str, ...]) -> int:
        """What it may have at most: its own, nobody's, and what others lend; a web department only what it does not have."""
        web = {c.name for c in self.claims if c.web}
        count = self.usable - sum(hosts for name, hosts in self.own.items() if name not in group)
        for name in set(self.own) - set(group):
            has = quota[name] if name in web else 0
            count += min(max(0, self.own[name] - has), sum(self.most(name, one) for one in group))
        return count


@st.composite
def agreed(draw: st.DrawFn) -> Agreed:
    """Few hosts, all of which are somebody's own or nearly, and contracts that often bind."""
    names = "abcdef"[: draw(st.integers(3, 5))]
    web = {name for name in names if name in "ab" and draw(st.booleans())}
    most = {name: draw(st.sampled_from([UNLIMITED, UNLIMITED, UNLIMITED, 3])) for name in names}
    own = {name: min(most[name], draw(st.integers(0, 2 if name in web else 6))) for name in names}
    usable = left = sum(own.values()) + draw(st.integers(0, 1))
    claims = []
    for name in names:
        demand, held = draw(st.sampled_from([0, 1, 3, 6, 20])), draw(st.integers(0, left))
        left -= held
        claims.append(
            Claim(
                name=name,
                web=name in web,
                demand=demand,
                held=held,
                occupied=0 if name in web else min(held, demand),
                weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
                priority=draw(st.integers(0, 1)),
                guarantee=own[name] if name in web else draw(st.sampled_from([0, 0, own[name]])),
                maximum=most[name],
            )
        )
    pairs = st.tuples(st.sampled_from(sorted(own)), st.sampled_from(sorted(own)))
    return Agreed(claims, usable, own, draw(st.dictionaries(pairs, st.integers(0, 2), max_size=6)))


def claim(name: str, *, demand: int, web: bool = False, **levels: Any) -> Claim:
    return Claim(name=name, web=web, demand=demand, held=0 if web else demand, occupied=0 if web else demand, **levels)


WEB_OF_TWO = Agreed(  # what web borrows of `a` and `b`
    [claim("a", demand=4), claim("b", demand=4), claim("w", demand=4, web=True)],
    8,
    {"a": 4, "b": 4, "w": 0},
    {("a", "w"): 0},
)
AND_IDLE = Agreed(  # of 13 hosts `a` has none, and wants none
    [claim("a", demand=0), claim("b", demand=8), claim("w", demand=5, web=True, guarantee=3)],
    13,
    {"a": 6, "b": 4, "w": 3},
    {("a", "w"): 2},
)


@settings(max_examples=400, deadline=None)
@given(agreed())
@example(AND_IDLE)
def test_nothing_that_somebody_needs_and_may_have_is_idle(given: Agreed) -> None:
    """I1."""
    quota = given.quota(given.claims)
    assert given.feasible(quota)
    batch, web = [c for c in given.claims if not c.web], [c for c in given.claims if c.web]
    needs = {c.name: min(quota[c.name], max(c.demand, c.occupied)) for c in given.claims}
    guaranteed = sum(min(c.guarantee, c.maximum) for c in batch)
    for claim in given.claims:
        kept = claim.web and given.usable - sum(quota[c.name] for c in web) <= guaranteed
        if quota[claim.name] < min(claim.demand, claim.maximum) and not kept:
            assert not given.feasible({**needs, claim.name: quota[claim.name] + 1})


@settings(max_examples=400, deadline=None)
@given(agreed())
@example(WEB_OF_TWO)
def test_what_contracts_keep_from_web_it_does_not_get_by_way_of_others(given: Agreed) -> None:
    """I2."""
    quota = given.quota(given.claims)
    wants = {c.name: min(c.demand, c.maximum) for c in given.claims if c.web}
    batch = [c for c in given.claims if not c.web]
    for claim in batch:
        lent = {name: min(given.most(claim.name, name), hosts) for name, hosts in wants.items()}
        if lent == wants or any(c.guarantee for c in batch if c is not claim):
            continue
        uses = min(claim.demand, claim.maximum, claim.held)
        assert quota[claim.name] >= min(given.own[claim.name] - sum(lent.values()), uses)


@settings(max_examples=few(200, searching=400), deadline=None)
@given(agreed())
@example(AND_IDLE)
def test_web_that_wants_a_host_more_takes_one_at_most(given: Agreed) -> None:
    """I3."""
    claims = [c if c.web else msgspec.structs.replace(c, guarantee=0) for c in given.claims]
    before = given.quota(claims)
    used = {c.name: max(c.demand, c.occupied) for c in claims}
    for claim in (c for c in claims if c.web):
        grown = [c if c is not claim else msgspec.structs.replace(c, demand=c.demand + 1) for c in claims]
        after = given.quota(grown)
        lost = {n: min(before[n], used[n]) - min(after[n], used[n]) for n in before if n != claim.name}
        assert sum(hosts for hosts in lost.values() if hosts > 0) <= 1


# -------------------------------------------------------------------------------------------------------- a running cloud

NAMES = ("bio", "hpc", "sci", "shop", "web")
SETTINGS = {
    name: st.fixed_dictionaries(
        {
            "guarantee": st.sampled_from([0, 0, 0, 1, 3]),
            "maximum": st.sampled_from([None, None, None, 2, 5]),
            **({"weight": st.sampled_from([1.0, 2.0])} if name not in ("shop", "web") else {}),
        }
    )
    for name in NAMES
}
DEPARTMENTS = st.fixed_dictionaries(
    {name: SETTINGS[name] for name in ("bio", "hpc", "web")},
    optional={name: SETTINGS[name] for name in ("sci", "shop")},
)
CONTRACTS = st.lists(
    st.builds(
        Lending,
        lender=st.sampled_from([ANY, *NAMES]),
        borrower=st.sampled_from([ANY, *NAMES]),
        hosts=st.sampled_from([None, 0, 1, 2, 3]),
        windows=st.sampled_from([(), (), ("daily 00:00-12:00",), ("daily 12:00-24:00",)]),
    ),
    min_size=1,
    max_size=4,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["works", "works", "works", "ends", "cordons", "rests"]),
        st.sampled_from(NAMES),
        st.integers(0, 9),
    ),
    min_size=2,
    max_size=8,
)


class Site:
    """Departments of jobs of a host each, which end when they are told to, and of web."""

    def __init__(self, departments: Mapping[str, dict[str, Any]], contracts: list[Lending], hosts: int) -> None:
        known: list[Department] = [
            (web if name in ("shop", "web") else batch)(name, **settings)
            for name, settings in sorted(departments.items())
        ]
        self.config: CloudConfig = msgspec.structs.replace(cloud(*known), lending=tuple(contracts))
        self.world = world = World(self.config)
        world.strict = False
        world.seat("provisioner", ProvisionerCore)
        for department in known:
            if department.kind == "batch":
                world.seat(f"scheduler.{department.name}", partial(BatchCore, dept=department.name))
        world.executor()
        world.guests()
        self.hosts = world.hosts(hosts)

    def step(self, what: str, name: str, count: int) -> None:
        world, known = self.world, self.config.department(name)
        if what in ("cordons", "rests"):
            (world.cordon if what == "cordons" else world.rest)(self.hosts[count % len(self.hosts)])
        elif known is not None and known.kind == "web":
            world.write(f"scheduler.{name}", f.DemandChanged(dept=name, hosts=count, instances=count))
        elif known is not None and what == "ends":
            for unit in sorted(world.custody.index.open.get(name, ()))[:count]:
                if world.custody.live(unit, world.unit(unit).attempt):
                    world.report(unit)
        elif known is not None:
            for _ in range(count):
                world.submit(name, cores=4)
        world.advance(5)

    def idle(self) -> dict[str, int]:
        """Department -> idle hosts that it holds and does not want; `NOBODY` has the free ones."""
        custody, now = self.world.custody, self.world.now
        found = {NOBODY: 0}
        hosts = custody.state.hosts.values()
        for host in (h for h in hosts if h.cordoned is None and h.quarantine_until <= now):
            if host.state == "free" or (host.state == "held" and not host.units):
                found[host.dept or NOBODY] = found.get(host.dept or NOBODY, 0) + 1
        for name in set(found) - {NOBODY}:
            held, cordoned = custody.held(name), custody.cordoned(name)
            used = sum(1 for host in cordoned if custody.state.hosts[host].units)
            beyond = held - len(cordoned) - (custody.state.demands.get(name, 0) - used)
            found[name] = max(0, min(found[name], beyond))
        return {name: hosts for name, hosts in found.items() if hosts}

    def check(self) -> None:
        custody, now = self.world.custody, self.world.now
        if not self.idle():
            return
        for department in self.config.departments:
            name = department.name
            held = custody.held(name)
            if custody.state.demands.get(name, 0) <= held or held >= (department.maximum or UNLIMITED):
                continue
            if department.kind == "web" and self._guaranteed():
                continue
            forbids = withheld(custody, name, now)
            assert forbids, f"{name} waits, idle: {self.idle()}"
            for one in forbids:
                assert (
                    one.most
                    == limit(self.config, one.lender, name, now)
                    < owned(self.config, now, usable_now(custody, now)).get(one.lender, 0)
                )

    def _guaranteed(self) -> bool:
        """True if web has all but what is guaranteed to batch."""
        kinds = {d.name: d.kind for d in self.config.departments}
        taken = sum(self.world.custody.quota(name).hosts for name in kinds if kinds[name] == "web")
        least = [
            min(d.guarantee, UNLIMITED if d.maximum is None else d.maximum)
            for d in self.config.departments
            if d.kind == "batch"
        ]
        return usable_now(self.world.custody, self.world.now) - taken <= sum(least)


@settings(max_examples=60, deadline=None)
@given(DEPARTMENTS, CONTRACTS, st.integers(1, 12), STEPS)
def test_of_an_idle_host_why_names_the_contract_that_forbids_it(
    departments: dict[str, dict[str, Any]], contracts: list[Lending], hosts: int, steps: list[tuple[str, str, int]]
) -> None:
    """I4."""
    site = Site(departments, contracts, hosts)
    for step in steps:
        site.step(*step)
        site.check()
