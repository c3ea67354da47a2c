"""Properties of fair share: that usage is forgotten in time, and what damping forgives.

U1  Whatever is credited when, and whenever it is read: an account is the sum of its attempts, each integrated second by
    second in closed form; with what is open it is the same.  So is a standing, as of its moment.
U2  Time forgets alike: nobody uses anything, and after n half-lives everybody has 2 ** -n of what it had; parts, factors and
    who goes first stay.
U3  Damping d spreads or gathers, and moves nobody past another: factor ** d is the same for every d, a higher d lowers no
    factor, and who has used exactly what is due has ½ ** (1/d).
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import MultiFactor
from services.scheduler.core.policies.order_multi_factor import fair
from services.scheduler.core.state import usage as derived
from services.scheduler.core.state.usage import Holding, Usage
from services.scheduler.lookahead.why import queue_view
from tests.properties.test_multi_factor import one_host, ran, weigh
from tests.support.scheduling import core
from tests.support.world import START, World

NAMES = st.sampled_from(["ann", "bob", "cyd"])
HALF_LIVES = st.sampled_from([0.0, 30.0, 600.0, 86_400.0])
ATTEMPTS = st.lists(  # whose, its cores, how long before its end it began, and how long after the one before it ended
    st.tuples(NAMES, st.integers(1, 64), st.integers(0, 5000), st.integers(0, 5000)), min_size=1, max_size=12
)
AMOUNTS = st.dictionaries(NAMES, st.integers(1, 10**6).map(float), min_size=1)


def credited(
    attempts: list[tuple[str, int, int, int]], half_life_s: float
) -> tuple[Usage, list[tuple[Holding, float]]]:
    """The accounts, and each attempt with its end."""
    usage, now, over = Usage(), START, []
    for user, cores, held_s, gap_s in attempts:
        now += gap_s
        over.append((Holding(user, cores, now - held_s), now))
        usage.credit(over[-1][0], now, half_life_s)
    return usage, over


@settings(max_examples=200, deadline=None)
@given(
    ATTEMPTS, st.lists(st.tuples(NAMES, st.integers(1, 64), st.integers(0, 5000)), max_size=3), HALF_LIVES, st.data()
)
def test_an_account_is_the_sum_of_its_attempts(
    attempts: list[tuple[str, int, int, int]],
    still: list[tuple[str, int, int]],
    half_life_s: float,
    data: st.DataObject,
) -> None:
    """U1."""
    usage, over = credited(attempts, half_life_s)
    at = over[-1][1] + data.draw(st.integers(0, 20_000))
    open_ = [Holding(user, cores, at - held_s) for user, cores, held_s in still]
    usage.remember(at, open_, half_life_s)
    spans = [*over, *((holding, at) for holding in open_)]
    users = {holding.user for holding, _ in spans}
    expected = {
        user: math.fsum(h.cores * weigh(h.since, end, at, half_life_s) for h, end in spans if h.user == user)
        for user in users
    }
    assert usage.as_of(at, open_, half_life_s) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert (usage.moment, usage.standing) == (at, usage.as_of(at, open_, half_life_s))


@settings(max_examples=100, deadline=None)
@given(ATTEMPTS, st.integers(1, 8), st.sampled_from([30.0, 600.0, 86_400.0]))
def test_time_forgets_alike(attempts: list[tuple[str, int, int, int]], lives: int, half_life_s: float) -> None:
    """U2."""
    usage, over = credited(attempts, half_life_s)
    at = over[-1][1]
    now, later = usage.as_of(at, [], half_life_s), usage.as_of(at + lives * half_life_s, [], half_life_s)
    assert later == pytest.approx({user: used * 2.0**-lives for user, used in now.items()})
    standing, after = fair(MultiFactor(), now, []), fair(MultiFactor(), later, [])
    for user, known in standing.items():
        assert after[user].factor == pytest.approx(known.factor, abs=1e-3)


@given(AMOUNTS, st.dictionaries(NAMES, st.integers(1, 9).map(float)), st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_damping_forgives_and_moves_nobody_past_another(
    used: dict[str, float], shares: dict[str, float], one: float, other: float
) -> None:
    """U3."""
    less, more = sorted((one, other))
    hard, soft = (fair(MultiFactor(shares=shares, damping=damping), used, ["dee"]) for damping in (less, more))
    assert hard["dee"].factor == soft["dee"].factor == 1.0  # who has used nothing has nothing to be forgiven
    for user in hard:
        assert soft[user].factor >= hard[user].factor
        assert math.log2(soft[user].factor) * more == pytest.approx(math.log2(hard[user].factor) * less)
        assert soft[user].factor == pytest.approx(2.0 ** -(soft[user].used / soft[user].share / more))
    alone = fair(MultiFactor(damping=one), {"ann": used[min(used)]}, [])
    assert alone["ann"].factor == pytest.approx(0.5 ** (1.0 / one))


# ---------------------------------------------------------------------------------------------------------------- examples


def waiting(world: World) -> list[str]:
    """Whose jobs wait, in order, at a moment that is one of the order's."""
    assert world.now % 10 == 0
    core(world).view.jobs.ranked(world.now)
    return [core(world).state.jobs[entry.unit].user for entry in queue_view(core(world)).queue]


def claimants(ann_s: float, pause_s: float, bob_s: float, **settings_: Any) -> World:
    """Ann ran, then nobody, then bob; now cyd runs, and both have a job that waits."""
    world = one_host(period_s=10, weight_age=0, **settings_)
    ran(world, "ann", ann_s)
    world.now += pause_s
    ran(world, "bob", bob_s)
    world.submit(user="cyd", cores=4, walltime_s=1e6)
    world.settle()
    world.submit(user="ann", cores=4)
    world.submit(user="bob", cores=4)
    world.now += 10
    return world


@pytest.mark.parametrize(
    ("half_life_s", "first"),
    [
        (1000.0, "ann"),
        (2000.0, "bob"),
        (0.0, "bob"),
    ],  # of 300 s a quarter is left, half, all; of bob's 100 s almost all
)
def test_what_was_used_long_ago_counts_less(half_life_s: float, first: str) -> None:
    assert waiting(claimants(300, 1900, 100, half_life_s=half_life_s))[0] == first


def test_usage_is_forgotten_while_others_run() -> None:
    """Between two credits of ann's there is a half-life: what she had is halved before it is added to."""
    world = one_host(period_s=10, half_life_s=1000.0)
    ran(world, "ann", 100)
    world.now += 900
    ran(world, "ann", 100)
    first = 4000 / math.log(2) * (1 - 0.5**0.1)  # of 100 s with four cores, as of their end
    accounts = core(world).state.usage.accounts
    assert accounts["ann"].core_s == pytest.approx(first * 0.5 + first)
    assert core(world).state.usage.as_of(world.now + 3000, [], 1000.0)["ann"] == pytest.approx(first * 1.5 / 8)


@pytest.mark.parametrize(("damping", "first"), [(1.0, "bob"), (0.5, "bob"), (20.0, "ann")])
def test_damping_says_how_much_a_difference_in_usage_is_worth(damping: float, first: str) -> None:
    """Ann, who used three quarters, is the user with 2,000 points more: fair share has to be worth more than that."""
    users = {"ann": 1.0}
    world = claimants(
        300, 0, 100, half_life_s=0, damping=damping, weight_fair_share=10_000, weight_user=2_000, users=users
    )
    assert waiting(world)[0] == first


def test_of_too_many_accounts_that_goes_which_is_worth_least_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 6: what ann had is a quarter of it when room is needed."""
    monkeypatch.setattr(derived, "ACCOUNTS_MAX", 2)
    usage = Usage()
    usage.credit(Holding("ann", 1, 0.0), 100.0, 1000.0)
    usage.credit(Holding("bob", 1, 2050.0), 2100.0, 1000.0)
    usage.credit(Holding("cyd", 1, 2100.0), 2101.0, 1000.0)
    assert list(usage.accounts) == ["bob", "cyd"]
    usage.credit(Holding("dee", 1, 2101.0), 2111.0, 1000.0)
    assert list(usage.accounts) == ["bob", "dee"]  # the smallest, not the newest or the first
