"""How many cores a host offers, by what it really uses (`executor.core.overcommit`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.core.overcommit import NONE, Overcommit, cores_offered

TWICE = Overcommit(ratio=2.0, below=0.60, margin=0.10)


@pytest.mark.parametrize(
    ("utilisation", "before", "offered"),
    [
        (0.0, 0, 16),  # nothing known of it yet: the threshold alone
        (0.59, 0, 16),
        (0.60, 0, 8),
        (1.0, 0, 8),
        (0.59, 16, 16),  # it overcommits, and goes on
        (0.60, 16, 8),  # and stops
        (0.59, 8, 8),  # hysteresis: not yet again
        (0.50, 8, 8),
        (0.49, 8, 16),
        (1.7, 16, 8),
        (float("nan"), 16, 8),  # nobody knows
        (float("nan"), 0, 8),
    ],
)
def test_a_host_offers_more_only_below_the_threshold_and_begins_again_only_well_below_it(
    utilisation: float, before: int, offered: int
) -> None:
    assert cores_offered(8, utilisation, before, TWICE) == offered


@pytest.mark.parametrize("utilisation", [0.0, 0.5, 1.0])
def test_where_nothing_is_configured_a_host_offers_its_cores(utilisation: float) -> None:
    assert cores_offered(8, utilisation, 0, NONE) == 8
    assert cores_offered(8, utilisation, 16, NONE) == 8  # it was configured until now


@pytest.mark.parametrize(("cores", "ratio", "offered"), [(3, 1.5, 4), (1, 1.5, 1), (8, 1.25, 10), (0, 2.0, 0)])
def test_parts_of_a_core_are_not_offered(cores: int, ratio: float, offered: int) -> None:
    assert cores_offered(cores, 0.0, 0, Overcommit(ratio=ratio)) == offered


@given(
    cores=st.integers(0, 512),
    ratio=st.floats(1.0, 16.0),
    seen=st.lists(st.floats(0.0, 2.0), max_size=30),
)
def test_the_offer_is_one_of_two_and_never_changes_within_the_band(cores: int, ratio: float, seen: list[float]) -> None:
    rule = Overcommit(ratio=ratio)
    before = 0
    for utilisation in seen:
        now = cores_offered(cores, utilisation, before, rule)
        assert now in (cores, int(cores * ratio))
        if before and rule.below - rule.margin <= utilisation < rule.below:
            assert now == before
        before = now
