"""What is wanted of a trial: goals as people write them, fronts, and limits against the static run."""

from __future__ import annotations

import pytest

from phoenix.cli.errors import CliError
from phoenix.search.trials import Trial
from phoenix.simulate import goal
from phoenix.tune.goals import Aims, parse

KINDS = {"hpc": "batch", "web": "web"}
STATIC = {"hpc.completed": 100.0, "hpc.mean_turnaround_s": 50.0}


def aims(*texts: str) -> Aims:
    return parse(texts, KINDS, "static")


BOTH = aims("min hpc.mean_turnaround_s", "max hpc.completed", "hpc.completed > static")


def trial(number: int, completed: float | None, turnaround: float | None, **point: object) -> Trial:
    values = {"hpc.completed": completed, "hpc.mean_turnaround_s": turnaround}
    return Trial(number=number, point=point or {"x": number}, result=values)


def front(*trials: Trial, of: Aims = BOTH) -> list[int]:
    return [each.number for each in of.front(trials, STATIC)]


def test_goals_are_told_as_they_are_written() -> None:
    found = aims("min hpc.mean_wait_s", "hpc.p95_wait_s<=2h", "max hpc.completed", "hpc.completed >= static")
    assert found.asked() == "min hpc.mean_wait_s; max hpc.completed; hpc.p95_wait_s <= 2h; hpc.completed >= static"
    assert [limit.bound for limit in found.limits] == [7200.0, 0.0]
    assert found.metrics == ("hpc.mean_wait_s", "hpc.completed", "hpc.p95_wait_s")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["min hpc.mean_wiat_s"], "did you mean"),
        (["min hcp.mean_wait_s"], 'did you mean "hpc"'),
        (["mni hpc.mean_wait_s"], "should be .*min hpc"),
        (["min hpc.mean_wait_s", "hpc.completed > statc"], "should be a limit.*or against another run \"> static\""),
        (["hpc.completed > 3"], "nothing is to be small or large"),
        (["min hpc.mean_wait_s", "max hpc.mean_wait_s"], "there twice"),
        (["min x", "max y"], "(?s)min x.*max y"),
    ],
)  # fmt: skip
def test_goals_that_are_none_are_all_refused(texts: list[str], told: str) -> None:
    with pytest.raises(CliError, match=told) as caught:
        aims(*texts)
    assert caught.value.code == 2


def test_without_a_static_run_no_limit_stands_against_it() -> None:
    with pytest.raises(CliError, match="should be a limit"):
        parse(["min hpc.mean_wait_s", "hpc.completed > static"], KINDS, "")


def test_the_front_is_what_nothing_beats() -> None:
    assert front(trial(1, 110, 40), trial(2, 120, 45), trial(3, 110, 41), trial(4, 119, 46)) == [1, 2]


def test_a_trial_that_misses_a_limit_is_not_in_the_front() -> None:
    assert front(trial(1, 100, 1), trial(2, 101, 90)) == [2]
    met = aims("min hpc.mean_turnaround_s", "hpc.completed >= static")
    assert front(trial(1, 100, 1), trial(2, 101, 90), of=met) == [1]
    assert front(trial(1, None, 1), trial(2, 101, None), of=met) == [2]


def test_of_equal_trials_the_simplest_is_in_the_front() -> None:
    assert front(trial(1, 110, 40, a=1, b=2), trial(2, 110, 40, b=2)) == [2]


def test_limits_against_static_follow_the_world() -> None:
    assert BOTH.over({"hpc.completed": 110.0}, STATIC) == [0.0]
    assert BOTH.over({"hpc.completed": 90.0}, STATIC) == [10.0]
    assert 0 < BOTH.over({"hpc.completed": 100.0}, STATIC)[0] < 1  # as many are not more
    assert BOTH.kept({"hpc.completed": 90.0}, {"hpc.completed": 80.0})
    assert not BOTH.kept({"hpc.completed": 90.0}, {})


def test_the_nearest_misses_least_in_parts_of_its_bounds() -> None:
    wanted = aims("min hpc.mean_turnaround_s", "hpc.completed > static", "hpc.mean_turnaround_s < static")
    found = wanted.nearest([trial(1, 90, 40), trial(2, 101, 54), trial(3, 99, 60)], STATIC)
    assert found is not None
    assert found.number == 2
    assert wanted.nearest([], STATIC) is None


def test_limits_of_the_experiment_count_too() -> None:
    own = goal.Limit(department="hpc", metric="completed", compare=">=", bound=105.0)
    assert front(trial(1, 104, 1), trial(2, 106, 90), of=parse(["min hpc.mean_turnaround_s"], KINDS, "", [own])) == [2]
