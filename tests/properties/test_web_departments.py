"""What web departments may expect of each other, and batch of them, whoever wants how much.

D1  What is short is used: web waits only while batch has no more than is promised to it; nobody has more than it can use.
D2  Priority: who has fewer than it wants sees nobody of a lower priority with more than its guarantee.
D3  Weighted max-min: who has fewer than it wants sees nobody of its priority, above its guarantee, with more hosts per weight
    than it would have itself with one host more.  Where guarantees exceed the cluster, of those the same.
D4  Monotone: more hosts, or a department fewer, lower nobody's target; more demand, weight or guarantee never lowers one's own.
D5  Stable: applied targets are targets again; a web demand that changes by one takes at most one host from the others together.
D6  What is promised to batch: web demand beyond web's guarantees takes no host of it from any department.
D7  The division is that of dealing hosts one by one; within contracts too, where none could have a host more of its equals'.

Each property is a question to a policy; the last test asks them of policies that are wrong in one place, and each is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from services.domain.sharing.lending import UNLIMITED
from services.domain.sharing.loans import fit
from services.domain.sharing.max_min import Part, fill, fill_within
from services.provisioner.core.policies.contracts import targets_within
from services.provisioner.core.policies.phoenix import Claim, targets, web_ranks

Policy = Callable[[list[Claim], int], dict[str, int]]
WEIGHTS = st.sampled_from([0.3, 0.5, 1.0, 1.0, 2.0, 3.0])


def claims_of(web: st.SearchStrategy[bool]) -> st.SearchStrategy[list[Claim]]:
    one = st.builds(
        Claim,
        name=st.sampled_from("abcdef"),
        web=web,
        demand=st.integers(0, 20),
        held=st.integers(0, 8),
        had=st.integers(0, 8),
        occupied=st.integers(0, 8),
        weight=WEIGHTS,
        priority=st.sampled_from([0, 0, 0, 1]),
        guarantee=st.sampled_from([0, 0, 1, 3, 8]),
        maximum=st.sampled_from([2, 5, 9, 30]),
    )
    return st.lists(one, min_size=1, max_size=5, unique_by=lambda c: c.name)


class Case(NamedTuple):
    """Claims of some departments, one of which (`who`) becomes another (`demand`, `weight`, `guarantee` more)."""

    claims: list[Claim]
    usable: int
    who: int
    more: int
    weight: float
    guarantee: int

    def changed(self, **fields: Any) -> list[Claim]:
        who = self.who % len(self.claims)
        return [msgspec.structs.replace(c, **fields) if n == who else c for n, c in enumerate(self.claims)]

    @property
    def one(self) -> Claim:
        return self.claims[self.who % len(self.claims)]


CASES = st.builds(
    Case,
    claims_of(st.sampled_from([True, True, True, False])),
    st.integers(0, 40),
    st.integers(0, 4),
    st.integers(1, 9),
    st.sampled_from([1.5, 3.0]),
    st.integers(1, 5),
)


def _wants(c: Claim) -> int:
    return min(c.demand, c.maximum)


def _promised(c: Claim) -> int:
    return min(c.guarantee, c.maximum)


def _pairs(claims: list[Claim], quota: Mapping[str, int]) -> list[tuple[Claim, Claim]]:
    """Web departments that have fewer than they want, each with every other one."""
    web = [c for c in claims if c.web]
    return [(short, other) for short in web if quota[short.name] < _wants(short) for other in web if other != short]


def used(policy: Policy, case: Case) -> bool:  # D1
    quota = policy(case.claims, case.usable)
    web, batch = [c for c in case.claims if c.web], [c for c in case.claims if not c.web]
    short = any(quota[c.name] < _wants(c) for c in web)
    kept = sum(_promised(c) for c in batch)
    whole = sum(quota.values()) == case.usable or all(quota[c.name] == c.maximum for c in batch)
    return (
        sum(quota.values()) <= case.usable
        and all(0 <= quota[c.name] <= _wants(c) for c in web)
        and (not short or (whole and sum(quota[c.name] for c in batch) <= kept))
    )


def by_priority(policy: Policy, case: Case) -> bool:  # D2
    quota = policy(case.claims, case.usable)
    return all(
        quota[other.name] <= _promised(other)
        for short, other in _pairs(case.claims, quota)
        if other.priority < short.priority
    )


def by_weight(policy: Policy, case: Case) -> bool:  # D3
    quota = policy(case.claims, case.usable)
    for short, other in _pairs(case.claims, quota):
        above = quota[other.name] > min(_promised(other), other.demand)
        if other.priority != short.priority or not (above or quota[short.name] < _promised(short)):
            continue
        if quota[other.name] / other.weight > (quota[short.name] + 1) / short.weight:
            return False
    return True


def _no_less(more: Mapping[str, int], than: Mapping[str, int]) -> bool:
    return all(more[name] >= hosts for name, hosts in than.items() if name in more)


def more_hosts_lower_nobody(policy: Policy, case: Case) -> bool:  # D4
    return _no_less(policy(case.claims, case.usable + case.more), policy(case.claims, case.usable))


def who_leaves_lowers_nobody(policy: Policy, case: Case) -> bool:
    others = [c for c in case.claims if c != case.one]
    return not case.one.web or _no_less(policy(others, case.usable), policy(case.claims, case.usable))


def more_of_ones_own_never_lowers_it(policy: Policy, case: Case) -> bool:
    one, before = case.one, policy(case.claims, case.usable)[case.one.name]
    other = (
        {"demand": one.demand + case.more},
        {"weight": one.weight * case.weight},
        {"guarantee": one.guarantee + case.guarantee},
    )
    return not one.web or all(policy(case.changed(**fields), case.usable)[one.name] >= before for fields in other)


def stable(policy: Policy, case: Case) -> bool:  # D5
    before = policy(case.claims, case.usable)
    applied = case._replace(claims=[msgspec.structs.replace(c, had=before[c.name]) for c in case.claims])
    if policy(applied.claims, case.usable) != before:
        return False
    for demand in (case.one.demand + 1, max(0, case.one.demand - 1)):
        after = policy(applied.changed(demand=demand), case.usable)
        if case.one.web and sum(max(0, hosts - after[name]) for name, hosts in before.items()) > 1:
            return False
    return True


def batch_keeps_what_is_promised(policy: Policy, case: Case) -> bool:  # D6
    modest = [msgspec.structs.replace(c, demand=min(c.demand, _promised(c))) if c.web else c for c in case.claims]
    quota, without = policy(case.claims, case.usable), policy(modest, case.usable)
    batch = [c for c in case.claims if not c.web]
    fits = sum(_promised(c) for c in batch) + sum(_promised(c) for c in modest if c.web) <= case.usable
    return all(
        quota[c.name] >= min(_promised(c), c.demand, without[c.name])
        and (not fits or quota[c.name] >= min(_promised(c), c.demand))
        for c in batch
    )


PROPERTIES: tuple[Callable[[Policy, Case], bool], ...] = (
    used,
    by_priority,
    by_weight,
    more_hosts_lower_nobody,
    who_leaves_lowers_nobody,
    more_of_ones_own_never_lowers_it,
    stable,
    batch_keeps_what_is_promised,
)


@settings(max_examples=400, deadline=None)
@given(CASES)
def test_what_is_short_is_divided_fairly(case: Case) -> None:
    for holds in PROPERTIES:
        assert holds(targets, case), holds.__name__


# ------------------------------------------------------------------------------------------------------------ the division

PARTS = st.lists(
    st.builds(
        Part,
        name=st.sampled_from("abcdef"),
        weight=st.sampled_from([1e-6, 0.1, 0.3, 1.0, 1.0, 2.0, 7.0, 1e6]),
        least=st.integers(0, 12),
        most=st.integers(0, 40) | st.just(UNLIMITED),
        had=st.integers(0, 40),
    ),
    max_size=6,
    unique_by=lambda p: p.name,
)


def dealt(parts: list[Part], count: int, allowed: Callable[[dict[str, int]], bool] = lambda _: True) -> dict[str, int]:
    """One host at a time, to whom it is due next and who may have it."""
    given = {p.name: p.least for p in parts}
    for _ in range(count):
        line = [p for p in parts if given[p.name] < p.most and allowed(given | {p.name: given[p.name] + 1})]
        if not line:
            break
        due = min(line, key=lambda p: ((given[p.name] + 1) / p.weight, p.had <= given[p.name], p.name))
        given[due.name] += 1
    return given


@settings(max_examples=400, deadline=None)
@given(PARTS, st.integers(0, 120))
def test_filling_is_dealing_one_by_one(parts: list[Part], count: int) -> None:
    assert fill(parts, count) == dealt(parts, count)


class Lent(NamedTuple):
    own: dict[str, int]
    limits: dict[tuple[str, str], int]

    def beyond(self, quota: Mapping[str, int], usable: int) -> bool:
        return bool(fit(quota, self.own, usable, self.most, [n for n in quota if n != "z"]).unmet)

    def most(self, lender: str, borrower: str) -> int:
        return self.limits.get((lender, borrower), UNLIMITED)


LIMITS = st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.integers(0, 5), max_size=9)


@settings(max_examples=200, deadline=None)
@given(PARTS, st.integers(0, 30), LIMITS, st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 6)))
def test_within_contracts_filling_is_dealing_one_by_one(
    parts: list[Part], count: int, limits: dict[tuple[str, str], int], own: dict[str, int]
) -> None:
    lent, usable = Lent(own, limits), count + sum(own.values())
    parts = [p._replace(least=min(p.least, own.get(p.name, 0)), most=min(p.most, 40)) for p in parts]

    def allowed(given: dict[str, int]) -> bool:
        return not lent.beyond(given, usable)

    assert fill_within(parts, count, allowed) == dealt(parts, count, allowed)


@settings(max_examples=200, deadline=None)
@given(claims_of(st.just(True)), st.integers(0, 8), st.integers(0, 12), LIMITS)
def test_within_contracts_web_shares_what_it_may_borrow(
    claims: list[Claim], guarantee: int, others: int, limits: dict[tuple[str, str], int]
) -> None:
    """Beside batch department `z`, of which web borrows."""
    hpc = Claim(name="z", web=False, demand=9, held=9, occupied=9, guarantee=guarantee)
    limits = {("z" if lender == "a" else lender, borrower): most for (lender, borrower), most in limits.items()}
    own = {c.name: _promised(c) for c in claims} | {"z": guarantee + others}
    usable, lent = sum(own.values()), Lent(own, limits)
    quota = targets_within([hpc, *claims], usable, "", own, lent.most)
    assert not lent.beyond(quota, usable)
    again = [msgspec.structs.replace(c, had=quota[c.name]) for c in claims]
    assert targets_within([hpc, *again], usable, "", own, lent.most) == quota  # D5
    for short, other in _pairs(claims, quota):
        richer = quota[other.name] / other.weight > (quota[short.name] + 1) / short.weight
        if richer and other.priority == short.priority and quota[other.name] > own[other.name]:
            moved = {**quota, short.name: quota[short.name] + 1, other.name: quota[other.name] - 1}
            assert lent.beyond(moved, usable)  # D7


# ------------------------------------------------------------------------------------------------- policies that are wrong


def _first_by_name(claims: list[Claim], usable: int) -> dict[str, int]:
    """As it was: of equals the first one by name has what it wants."""
    ranked = [msgspec.structs.replace(c, priority=c.priority * 100 - ord(c.name)) if c.web else c for c in claims]
    return targets(ranked, usable)


def _forgets_priority(claims: list[Claim], usable: int) -> dict[str, int]:
    return targets([msgspec.structs.replace(c, priority=0) for c in claims], usable)


def _forgets_weight(claims: list[Claim], usable: int) -> dict[str, int]:
    return targets([msgspec.structs.replace(c, weight=1.0) if c.web else c for c in claims], usable)


def _forgets_batch(claims: list[Claim], usable: int) -> dict[str, int]:
    return targets([c if c.web else msgspec.structs.replace(c, guarantee=0) for c in claims], usable)


def _leaves_some(claims: list[Claim], usable: int) -> dict[str, int]:
    quota = targets(claims, usable)
    return quota | {c.name: quota[c.name] - 1 for c in claims if c.web and quota[c.name] > c.guarantee > 0}


def _fair_beside_guarantees(claims: list[Claim], usable: int) -> dict[str, int]:
    """Guarantees not counted: what is left beside them by weight."""
    quota = targets(
        [msgspec.structs.replace(c, demand=min(c.demand, _promised(c))) if c.web else c for c in claims], usable
    )
    left = usable - sum(quota.values()) if all(c.web for c in claims) else 0
    for rank in web_ranks(claims):
        more = fill([Part(c.name, c.weight, 0, _wants(c) - quota[c.name], 0) for c in rank], left)
        left -= sum(more.values())
        quota |= {name: quota[name] + hosts for name, hosts in more.items()}
    return quota


def _largest_remainder(claims: list[Claim], usable: int) -> dict[str, int]:
    """Quotas by weight, rounded by remainder: a larger house may take a seat (the Alabama paradox)."""
    web = [c for c in claims if c.web]
    total = sum(c.weight for c in web)
    parts = {c.name: usable * c.weight / total for c in web}
    quota = {c.name: int(parts.get(c.name, 0)) for c in claims}
    for c in sorted(web, key=lambda c: (quota[c.name] - parts[c.name], c.name))[: usable - sum(quota.values())]:
        quota[c.name] += 1
    return quota


def _first_by_number(claims: list[Claim], usable: int) -> dict[str, int]:
    """Whose turn it is depends on how many there are."""
    order = sorted((c for c in claims if c.web), key=lambda c: c.name)
    turned = [*order[len(order) % 2 :], *order[: len(order) % 2]]
    ranks = {c.name: n for n, c in enumerate(turned)}
    return targets([msgspec.structs.replace(c, priority=ranks.get(c.name, 0)) for c in claims], usable)


def _ties_against_who_has_it(claims: list[Claim], usable: int) -> dict[str, int]:
    return targets([msgspec.structs.replace(c, had=max(0, 9 - c.had)) for c in claims], usable)


def _to_who_wants_most(claims: list[Claim], usable: int) -> dict[str, int]:
    return targets(
        [msgspec.structs.replace(c, weight=c.weight / (1 + c.demand)) if c.web else c for c in claims], usable
    )


MUTANTS: tuple[tuple[Policy, Callable[[Policy, Case], bool]], ...] = (
    (_leaves_some, used),
    (_forgets_priority, by_priority),
    (_first_by_name, by_weight),
    (_forgets_weight, by_weight),
    (_fair_beside_guarantees, by_weight),
    (_largest_remainder, more_hosts_lower_nobody),
    (_first_by_number, who_leaves_lowers_nobody),
    (_to_who_wants_most, more_of_ones_own_never_lowers_it),
    (_ties_against_who_has_it, stable),
    (_forgets_batch, batch_keeps_what_is_promised),
)


@pytest.mark.parametrize(("policy", "property_"), MUTANTS, ids=[policy.__name__ for policy, _ in MUTANTS])
def test_a_policy_that_is_wrong_in_one_place_is_found(
    policy: Policy, property_: Callable[[Policy, Case], bool]
) -> None:
    enough = settings(
        max_examples=3000,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    assert find(CASES, lambda case: not property_(policy, case), settings=enough)


def test_every_property_is_seen_to_fail() -> None:
    assert {property_ for _, property_ in MUTANTS} == set(PROPERTIES)
