"""Properties of what early returns earn, and of whom it serves.

K1  What is earned is the sum of the seconds by which each host came early, times the contract's credit, of which half is
    forgotten in each `HALF_LIFE_S` since.
K2  Of several lenders whose hosts a borrower has, the least generous one's contract counts.
K3  The weight grows by half of what is left of it, in hours of all own hosts, and by half as much again at most: who has earned
    more never has less of it.
K4  Of departments that are otherwise equal, who has earned least lends first: whatever there is to divide, nobody has fewer
    hosts than one that has earned less, and of those that have as many the least deserving gives the next host back.
"""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas.config import Department, Lending
from services.domain.sharing.credit import BONUS_MAX, BONUS_MIN, FULL_S, HALF_LIFE_S, PERIOD_S, Credits, Earned
from tests.unit.test_provisioner_core import HPC, WEB, Bench
from tests.unit.test_provisioner_lending import BIO, bench, run

NOTICE_S = 10 * HALF_LIFE_S
LAB = Department(name="lab", kind="batch", guarantee=2)
KIND = msgspec.structs.replace(BIO, guarantee=2)
NAMES = ("ann", "bob", "cyd", "dee")  # departments here
EARNINGS = st.lists(
    st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5]), min_size=2, max_size=4
)  # in hours of all hosts of the cloud


def borrowed(hosts: int, *contracts: Lending) -> Bench:
    """hpc has two hosts of bio's and what is more of the laboratory's, all occupied; now everybody wants its own back."""
    made = bench(HPC, KIND, LAB, contracts=contracts, hosts=hosts)
    made.demand("hpc", hosts)
    made.settle()
    run(made, "1", *(f"h{n}" for n in range(hosts)))
    for name in ("bio", "lab"):
        made.demand(name, 2)
    made.settle()
    return made


def earned(made: Bench) -> float:
    found = made.core._state.credits.earned.get("hpc")
    return found.left(made.now) if found is not None else 0.0


def release(made: Bench, host: str) -> None:
    made.write("scheduler.hpc", f.HostReleased(host=host))


# --------------------------------------------------------------------------------------------------------- what is earned


@settings(deadline=None)
@given(
    st.lists(st.floats(0.0, 2.4 * HALF_LIFE_S), min_size=1, max_size=4),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.floats(0.0, 3 * HALF_LIFE_S),
)
def test_what_is_earned_is_the_sum_of_what_is_left_of_it(pauses: list[float], credit: float, later: float) -> None:
    """K1."""
    every = Lending(lender="*", borrower="*", notice_s=NOTICE_S, credit=credit)
    made = borrowed(4, every)
    asked, told = made.now, []
    for number, pause in enumerate(pauses):
        made.now += pause
        release(made, f"h{number}")
        told.append((made.now, (asked + NOTICE_S - made.now) * credit))
    made.now += later
    expected = math.fsum(given * 0.5 ** ((made.now - at) / HALF_LIFE_S) for at, given in told)
    assert earned(made) == pytest.approx(expected, rel=1e-9)


def test_half_of_it_is_forgotten_when_more_is_earned() -> None:
    made = borrowed(4, Lending(lender="*", borrower="*", notice_s=2 * HALF_LIFE_S, credit=1.0))
    release(made, "h0")
    assert earned(made) == pytest.approx(2 * HALF_LIFE_S)
    made.now += HALF_LIFE_S
    release(made, "h1")
    assert earned(made) == pytest.approx(HALF_LIFE_S + HALF_LIFE_S)  # half of the first, all of the second


@pytest.mark.parametrize(
    ("bio", "lab", "expected"), [(1.0, 3.0, 1.0), (3.0, 1.0, 1.0), (2.0, 2.0, 2.0), (3.0, None, 0.0), (None, 3.0, 0.0)]
)
def test_of_several_lenders_the_least_that_one_agreed_to_counts(
    bio: float | None, lab: float | None, expected: float
) -> None:
    """K2; without a contract a lender agreed to nothing."""
    terms = [("bio", bio), ("lab", lab)]
    contracts = [
        Lending(lender=name, borrower="hpc", notice_s=600.0, credit=credit)
        for name, credit in terms
        if credit is not None
    ]
    made = borrowed(4, *contracts)
    due = made.custody.quota("hpc").next_due()
    release(made, "h0")
    assert earned(made) == pytest.approx((due - made.now) * expected)


# ------------------------------------------------------------------------------------------------------- what it is worth


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 50), st.floats(0, 1e6))
def test_the_weight_grows_with_what_is_left_of_it(hosts_s: float, more: float, own: int, now: float) -> None:
    """K3."""
    credits = Credits(earned={"a": Earned(hosts_s=hosts_s, at=0.0), "b": Earned(hosts_s=hosts_s + more, at=0.0)})
    left = hosts_s * 0.5 ** (now // PERIOD_S * PERIOD_S / HALF_LIFE_S)
    expected = BONUS_MAX * min(1.0, left / (max(1, own) * FULL_S))
    assert credits.bonus("a", own, now) == pytest.approx(expected if expected >= BONUS_MIN else 0.0)
    assert credits.bonus("a", own, now) <= credits.bonus("b", own, now)


# ---------------------------------------------------------------------------------------------------------- who is served


def equals(earnings: list[float], hosts: int) -> Bench:
    """Departments that are equal but for what they have earned; contracts bind nobody."""
    departments = [Department(name=name, kind="batch") for name in NAMES[: len(earnings)]]
    free = Lending(lender="web", borrower="*", credit=1.0)
    made = bench(*departments, WEB, contracts=(free,), hosts=hosts)
    for department, hours in zip(departments, earnings, strict=True):
        made.core._state.credits.earned[department.name] = Earned(hosts_s=hours * hosts * FULL_S, at=made.now)
        made.demand(department.name, hosts)
    made.settle()
    return made


@settings(max_examples=60, deadline=None)
@given(EARNINGS, st.integers(4, 16))
def test_who_has_earned_least_lends_first(earnings: list[float], hosts: int) -> None:
    """K4."""
    made = equals(earnings, hosts)
    names = NAMES[: len(earnings)]
    credits, own = made.core._state.credits, made.core.targets.division.agreements.own
    weight = {name: 1.0 + credits.bonus(name, own[name], made.now) for name in names}
    quotas = {name: made.custody.quota(name).hosts for name in names}
    assert sum(quotas.values()) == hosts
    for claimed in range(1, hosts):
        for one in names:
            for other in names:
                assert weight[one] <= weight[other] or quotas[one] >= quotas[other], (weight, quotas)
        made.demand("web", claimed)
        made.settle()
        after = {name: made.custody.quota(name).hosts for name in names}
        gave = [name for name in names if after[name] < quotas[name]]
        assert sum(quotas.values()) - sum(after.values()) == 1
        assert len(gave) == 1
        same = [name for name in names if quotas[name] == quotas[gave[0]]]
        assert weight[gave[0]] == min(weight[name] for name in same)
        quotas = after


@pytest.mark.parametrize(("generous", "gives"), [("ann", "bob"), ("bob", "ann")])
def test_of_two_that_have_as_many_the_one_that_has_earned_nothing_gives(generous: str, gives: str) -> None:
    made = equals([0.3 if name == generous else 0.0 for name in ("ann", "bob")], 4)
    assert made.held() == {"ann": 2, "bob": 2}
    made.demand("web", 1)
    made.settle()
    assert {name: made.custody.quota(name).hosts for name in ("ann", "bob")} == {generous: 2, gives: 1}
