"""Accounts of what users have used, and the window over which a load is measured."""

from __future__ import annotations

import math

import pytest

import services.scheduler.core.state.usage as accounts
from services.scheduler.core.state.load import Sample, follow, mean
from services.scheduler.core.state.usage import Account, Holding, Usage, used

DAY = 86_400.0


def integral(cores: int, since: float, at: float, half_life_s: float) -> float:
    """In a hundred thousand steps."""
    step = (at - since) / 100_000
    return sum(cores * math.exp2(-(at - since - (n + 0.5) * step) / half_life_s) * step for n in range(100_000))


def test_what_is_held_is_credited_with_half_forgotten_in_each_half_life() -> None:
    assert used(Holding("ann", 3, 100.0), 100.0 + DAY, DAY) == pytest.approx(integral(3, 0.0, DAY, DAY))
    assert used(Holding("ann", 3, 100.0), 160.0, 0.0) == 180.0
    assert used(Holding("ann", 3, 100.0), 90.0, DAY) == used(Holding("ann", 3, 100.0), 90.0, 0.0) == 0.0


def test_an_account_decays_until_it_is_read_and_all_is_kept_without_half_life() -> None:
    usage = Usage()
    usage.credit(Holding("ann", 2, 0.0), 10.0, DAY)
    first = used(Holding("ann", 2, 0.0), 10.0, DAY)
    assert usage.accounts == {"ann": Account(first, 10.0)}
    assert usage.as_of(10.0 + DAY, [], DAY) == {"ann": pytest.approx(first / 2, rel=1e-9)}
    assert usage.as_of(10.0 + DAY, [], 0.0) == {"ann": first}
    assert usage.as_of(5.0, [], DAY) == {"ann": first}, "nothing is worth more before its credit"
    usage.credit(Holding("ann", 1, DAY), 10.0 + 2 * DAY, DAY)
    second = used(Holding("ann", 1, DAY), 10.0 + 2 * DAY, DAY)
    assert usage.accounts["ann"].core_s == pytest.approx(first / 4 + second, rel=1e-9)
    assert usage.accounts["ann"].at == 10.0 + 2 * DAY


def test_what_is_open_is_added_when_somebody_asks() -> None:
    usage = Usage()
    usage.credit(Holding("ann", 1, 0.0), 10.0, 0.0)
    holdings = [Holding("ann", 2, 10.0), Holding("bob", 1, 15.0), Holding("bob", 1, 15.0)]
    assert usage.as_of(20.0, holdings, 0.0) == {"ann": 30.0, "bob": 10.0}
    assert usage.accounts == {"ann": Account(10.0, 10.0)}


def test_standings_of_a_moment_are_kept_until_a_later_one() -> None:
    usage = Usage()
    usage.remember(50.0, [Holding("ann", 1, 10.0)], 0.0)
    assert (usage.moment, usage.standing) == (50.0, {"ann": 40.0})
    usage.remember(50.0, [], 0.0)
    usage.remember(40.0, [], 0.0)
    assert (usage.moment, usage.standing) == (50.0, {"ann": 40.0})
    usage.remember(60.0, [], 0.0)
    assert (usage.moment, usage.standing) == (60.0, {})


def test_the_smallest_account_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "ACCOUNTS_MAX", 3)
    usage = Usage()
    for user, cores in (("old", 9), ("bob", 3), ("ann", 3)):
        usage.credit(Holding(user, cores, 0.0), 10.0, DAY)
    usage.accounts["old"].at = -9 * DAY  # of much there is little left
    usage.credit(Holding("ann", 1, 0.0), 10.0, DAY)
    assert [*usage.accounts] == ["old", "bob", "ann"]
    usage.credit(Holding("cyd", 1, 0.0), 10.0, DAY)
    assert [*usage.accounts] == ["bob", "ann", "cyd"]
    usage.accounts["cyd"].core_s = usage.accounts["ann"].core_s = usage.accounts["bob"].core_s
    usage.credit(Holding("dan", 1, 0.0), 10.0, DAY)
    assert [*usage.accounts] == ["bob", "cyd", "dan"], "of equal ones the first by name"


# ----------------------------------------------------------------------------------------------------------------- window

WINDOW_S, GAP_S = 20.0, 10.0


def sampled(*spans: tuple[float, float], since: float = 0.0) -> list[Sample]:
    found: list[Sample] = []
    for start, end in spans:
        found = follow(found, Sample(start, end, 0.5), since=since, window_s=WINDOW_S, gap_s=GAP_S)
    return found


def spans(found: list[Sample]) -> list[tuple[float, float]]:
    return [(sample.start, sample.end) for sample in found]


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        ([(0, 5), (5, 10)], [(0, 5), (5, 10)]),
        ([(0, 5), (4, 9)], [(0, 5)]),  # late
        ([(0, 5), (0, 5)], [(0, 5)]),  # repeated
        ([(5, 5)], []),
        ([(6, 5)], []),
        ([(-1, 4)], []),  # before the number of instances changed
        ([(0, 5), (5 - 1e-6, 10)], [(0, 5), (5 - 1e-6, 10)]),  # rounded
        ([(0, 1e-6), (1e-6, 20)], [(1e-6, 20)]),
        ([(0, 5), (14, 16)], [(0, 5), (14, 16)]),
        ([(0, 5), (15, 16)], [(15, 16)]),  # the gap is too long
        ([(10, 12)], [(10, 12)]),
        ([(0, 5), (5, 10), (10, 25)], [(5, 10), (10, 25)]),  # too old
        ([(0, 5), (5, 10), (10, 25.000002)], [(5, 10), (10, 25.000002)]),
        ([(0, 5), (5, 10), (10, 25 - 1e-3)], [(0, 5), (5, 10), (10, 25 - 1e-3)]),
    ],
)
def test_samples_are_kept_in_order_as_long_as_the_window_sees_them(
    came: list[tuple[float, float]], kept: list[tuple[float, float]]
) -> None:
    assert spans(sampled(*came)) == kept


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], None),
        ([(0, 10, 0.2), (10, 20, 0.4)], 0.3),
        ([(0, 5, 0.2), (5, 20, 0.4)], 0.35),
        ([(-20, 10, 0.2), (10, 20, 0.4)], 0.3),  # of what began before, what is in the window
        ([(1, 20, 0.4)], None),  # it does not reach back
        ([(1e-6, 20, 0.4)], 0.4),
        ([(0, 5, 0.2), (15, 20, 0.4)], 0.3),  # half of it was measured
        ([(0, 4, 0.2), (15, 20, 0.4)], None),
    ],
)
def test_the_mean_is_that_of_a_window_that_is_covered(
    samples: list[tuple[float, float, float]], expected: float | None
) -> None:
    found = mean([Sample(*each) for each in samples], WINDOW_S)
    assert found is None if expected is None else found == pytest.approx(expected)
