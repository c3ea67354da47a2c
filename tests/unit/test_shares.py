"""Shares of services, by hand: what is granted, what is used, who has to comply."""

from __future__ import annotations

from fractions import Fraction

import pytest

from schemas.config import BatchPolicy
from schemas.size import Size
from services.domain.sharing.service_share import Shares, must_comply, percent


def shares(cores: int = 48, memory_mb: int = 1000, w_cpu: float = 0.5, w_mem: float = 0.5, **services: float) -> Shares:
    return Shares(BatchPolicy(services=services, w_cpu=w_cpu, w_mem=w_mem), Size(cores, memory_mb))


def test_a_service_is_granted_its_part_of_the_weights() -> None:
    assert shares(a=1.0, b=3.0).granted == {"a": Fraction(1, 4), "b": Fraction(3, 4)}
    assert shares(a=0.1, b=0.2).granted == {"a": Fraction(1, 3), "b": Fraction(2, 3)}  # as they were written
    assert shares().granted == {}


def test_usage_is_the_weighted_mean_of_cores_and_memory() -> None:
    assert shares(a=1.0).usage(Size(12, 500)) == Fraction(3, 8)
    assert shares(w_cpu=0.8, w_mem=0.2, a=1.0).usage(Size(12, 500)) == Fraction(3, 10)
    assert shares(a=1.0).usage(Size(48, 1000)) == 1
    assert (shares(0, 1000, a=1.0).usage(Size(4, 500)), shares(48, 0, a=1.0).usage(Size(12, 5))) == (
        Fraction(1, 4),
        Fraction(1, 8),
    )
    assert shares(0, 0, a=1.0).usage(Size(4, 5)) == 0


def test_a_service_complies_up_to_its_share() -> None:
    """A third of 48 cores is exactly 16."""
    two = shares(w_cpu=1.0, w_mem=0.0, a=1.0, b=2.0)
    assert [two.complies("a", Size(cores, 1000)) for cores in (16, 17)] == [True, False]
    assert [two.complies("b", Size(cores, 0)) for cores in (32, 33)] == [True, False]
    both = shares(a=1.0, b=1.0)
    assert [both.complies("a", Size(24, memory_mb)) for memory_mb in (500, 501)] == [True, False]
    assert [shares(1, 1, w_cpu=1.0, w_mem=0.0, a=1.0).complies("b", Size(cores, 0)) for cores in (0, 1)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("short_s", "walltime_s", "short", "best_effort", "must"),
    [
        (0.0, 5.0, False, False, True),
        (0.0, 5.0, True, False, True),  # nothing is short there
        (0.0, 0.0, False, False, True),
        (0.5, 0.5, False, False, False),
        (5.0, 5.0, False, False, False),
        (5.0, 5.1, False, False, True),
        (5.0, 9.0, True, False, False),
        (0.0, 5.0, False, True, False),
    ],
)
def test_production_that_is_not_short_must_comply(
    short_s: float, walltime_s: float, short: bool, best_effort: bool, must: bool
) -> None:
    policy = BatchPolicy(short_s=short_s)
    assert must_comply(policy, walltime_s, short=short, best_effort=best_effort) is must


def test_percent_has_two_digits() -> None:
    assert (percent(Fraction(1, 3)), percent(0.5)) == (33.33, 50.0)
