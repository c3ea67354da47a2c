"""phoenix-autoscale measures how rules follow a load, not how they leave the one instance that they begin with."""

from __future__ import annotations

import pytest

from phoenix.simulate import engine
from phoenix.simulate.workload import Outcome, WebRecord
from phoenix_papers.autoscale import rules
from phoenix_papers.autoscale.rules import PAPER, followed, tracking

DAY_S = 86_400.0


def test_a_steady_load_is_followed_without_a_fault_however_long_the_climb_to_it() -> None:
    load = ((0.0, 30.0),)
    for variant in (PAPER, tracking()):
        found = followed(variant, load, engine.run(rules.scenario(variant, load, DAY_S, 120.0)))
        assert (found.short_instance_s, found.overload_instance_s, found.changes_per_hour) == (0.0, 0.0, 0.0)
        assert (found.used_of_ideal, found.mean_deviation) == (1.0, 0.0)
        assert found.measured_from_s == rules.WARM_UP_S


def test_what_lasts_beyond_the_warm_up_is_measured_from_its_end_on() -> None:
    warm = rules.WARM_UP_S
    levels = [(0.0, 1, 1), (warm + 100.0, 2, 2)]
    outcome = Outcome(label="", hosts=9, window_s=DAY_S, host_cores=1, web=[WebRecord(department="web", levels=levels)])
    load = ((0.0, 1.6),)  # two keep 80 %
    found = followed(PAPER, load, outcome)
    assert (found.short_instance_s, found.longest_short_s) == (100.0, 100.0)
    assert found.overload_instance_s == pytest.approx(60.0)
    assert found.changes_per_hour == pytest.approx(3600.0 / (DAY_S - warm))
    assert rules.ideal_of(load, DAY_S).used_instance_s == 2 * (DAY_S - warm)


def test_a_load_shorter_than_a_day_is_measured_as_a_whole() -> None:
    assert (rules.measured_from(DAY_S - 1), rules.measured_from(DAY_S)) == (0.0, rules.WARM_UP_S)
