"""Releases that answer with 5xx: when one is worse than the one before, and what becomes of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Answers
from services.domain import text as sentences
from services.scheduler.core.web import answers as wa
from services.scheduler.core.web.answers import SECONDS_MIN, Bucket, Sum
from services.scheduler.core.web.release import Roll
from services.scheduler.lookahead.why_web import Told, troubles, why
from services.scheduler.meter.answers import Failing
from tests.support.releases import Users, core, deploy, of_releases, said, site, watch
from tests.support.world import World

WELL, ILL = 0.0, 1.0
ROLLING = Roll(wanted=2, stage="rolling", asked=2, good=(0, 1))
COMPLETE = Roll(wanted=2, stage="complete", asked=2, good=(0, 1, 2))


# ------------------------------------------------------------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("new", "old", "is_worse"),
    [
        (Sum(10, 10), Sum(100, 0), True),
        (Sum(9, 9), Sum(100, 0), False),  # too few to say
        (Sum(230, 230), Sum(1200, 5), True),
        (Sum(1000, 80), Sum(1000, 0), True),
        (Sum(1000, 40), Sum(1000, 0), False),  # ten errors, and yet not one in twenty
        (Sum(200, 40), Sum(200, 40), False),  # both are ill: a database that died
        (Sum(200, 60), Sum(200, 40), False),  # more, but not three times as many
        (Sum(200, 200), Sum(200, 40), True),
        (Sum(200, 200), Sum(200, 80), False),  # where so much fails already nobody is blamed
        (Sum(200, 200), Sum(0, 0), False),  # nothing to compare with
        (Sum(200, 200), Sum(9, 0), False),  # hardly anything
        (Sum(200, 200), Sum(11, 0), True),
        (Sum(200, 0), Sum(200, 100), False),
    ],
)
def test_worse_than_the_one_before(new: Sum, old: Sum, is_worse: bool) -> None:
    assert wa.exceeds(new, old) is is_worse


def binomial(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize("share", [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9])
def test_equal_releases_are_hardly_ever_told_apart(share: float) -> None:
    """Exactly, of all that can happen: whatever the new one and the one before have answered."""
    for old_n in (10, 30, 100, 400):
        old = binomial(old_n, share)
        for new_n in (10, 20, 50, 100, 300):
            new = binomial(new_n, share)
            chance = sum(
                old[i] * sum(new[k] for k in range(new_n + 1) if wa.exceeds(Sum(new_n, k), Sum(old_n, i)))
                for i in range(old_n + 1)
                if old[i] > 1e-9
            )
            assert chance < 1e-3, (share, old_n, new_n, chance)


def record(new: list[tuple[int, int]], old: list[tuple[int, int]]) -> wa.Record:
    """A second each."""
    return {
        2: [Bucket(at - 1.0, float(at), *counts) for at, counts in enumerate(new, 1)],
        1: [Bucket(at - 1.0, float(at), *counts) for at, counts in enumerate(old, 1)],
    }


@pytest.mark.parametrize("roll", [ROLLING, COMPLETE])
def test_the_reason_says_both(roll: Roll) -> None:
    found = wa.worse(record([(50, 50)] * 5, [(200, 1)] * 5), roll)
    assert found is not None
    assert type(found) is because.ReleaseErrors
    assert sentences.sentence(found) == (
        "release 2 answered 100 % of its requests (250 of 250) with 5xx or not at all within 5s; "
        "release 1 answered 0.5 % of its requests (5 of 1000) so: it is wanted again"
    )


def test_what_breaks_in_one_moment_is_a_hosts_fault() -> None:
    old = [(200, 0)] * 5
    assert wa.worse(record([(50, 0), (60, 60), (50, 0), (50, 0), (50, 0)], old), ROLLING) is None
    assert wa.worse(record([(50, 50)] * (SECONDS_MIN - 1), old), ROLLING) is None
    assert wa.worse(record([(50, 50)] * SECONDS_MIN, old), ROLLING) is not None


@pytest.mark.parametrize(
    ("roll", "complete_at", "watched"),
    [
        (ROLLING, 0.0, True),
        (COMPLETE, 990.0, True),
        (COMPLETE, 880.0, False),  # 120 s ago
        (Roll(wanted=2, stage="rolling", asked=2), 0.0, False),  # none to go back to
        (Roll(wanted=1, stage="rolling", asked=2, good=(0, 1)), 0.0, False),  # gone back to
        (Roll(wanted=2, stage="stopped", asked=2, good=(1,)), 0.0, False),
        (Roll(good=(0,)), 990.0, False),  # release 0 alone
    ],
)
def test_who_is_watched(roll: Roll, complete_at: float, watched: bool) -> None:
    assert wa.watched(roll, complete_at, 120.0, 1000.0) is watched
    assert not wa.watched(roll, complete_at, 0.0, 1000.0)


def test_each_of_the_two_counts_by_its_own_last_seconds() -> None:
    kept: wa.Record = {}
    kept = wa.follow(kept, ROLLING, [Answers(release=1, answered=600, errors=3)], 60.0, 10.0, 5.0)
    for second in range(11, 31):
        told = [Answers(release=2, answered=10, errors=4), Answers(release=0, answered=9, errors=9)]
        kept = wa.follow(kept, ROLLING, told, 1.0, float(second), 5.0)
    assert kept[1] == [Bucket(-50.0, 10.0, 600, 3)]  # it has answered nothing since: its last word counts
    assert [bucket.at for bucket in kept[2]] == [26.0, 27.0, 28.0, 29.0, 30.0]
    assert 0 not in kept  # neither of the two


def test_hurried_observations_are_one_second() -> None:
    kept: wa.Record = {}
    for step in range(5):
        kept = wa.follow(kept, ROLLING, [Answers(release=2, answered=8, errors=9)], 0.1, 100 + step / 10, 120.0)
    assert kept[2] == [Bucket(99.9, 100.4, 40, 40)]
    for step in range(5, 40):
        kept = wa.follow(kept, ROLLING, [Answers(release=2, answered=8, errors=0)], 0.1, 100 + step / 10, 120.0)
    assert len(kept[2]) > 3
    assert wa.total(kept[2]) == Sum(8 * 40, 40), "none is lost"


# -------------------------------------------------------------------------------------------------------------------- stories


def answer(world: World, seconds: int, shares: dict[int, float]) -> None:
    Users(world, shares).ask(seconds)


def quick(**policy: Any) -> World:
    return site(instances=4, **{"min_ready_s": 2.0, **policy})[0]


def test_a_release_that_answers_with_errors_is_rolled_back_while_it_rolls() -> None:
    world = quick()
    watch(world).fewest = 4
    deploy(world)
    answer(world, 30, {0: 0.01, 1: ILL})
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]
    assert of_releases(world) == {0: 4}
    assert watch(world).fewest >= 4
    (back,) = [fact for fact in world.facts(f.ReleaseChanged) if fact.state == "rolled_back"]
    assert (back.back_to, type(back.reason)) == (0, because.ReleaseErrors)
    assert sum(fact.release == 1 for fact in world.facts(f.UnitPlaced)) < 4  # it was stopped on its way
    assert back.reason in why(core(world), world.now)  # until somebody asks for another one
    assert world.voids == []


def test_a_release_that_is_complete_already_is_rolled_back_too() -> None:
    world = quick(min_ready_s=0.0)
    users = Users(world, {1: ILL})
    users.ask(10)
    deploy(world, max_surge=4)
    world.advance(8)
    assert said(world)[-1] == (1, "complete")
    users.ask(60)
    assert said(world) == [(1, "rolling"), (1, "complete"), (1, "rolled_back"), (0, "complete")]
    assert of_releases(world) == {0: 4}
    assert world.voids == []


def test_after_the_watch_nothing_is_rolled_back() -> None:
    world = quick(errors_watch_s=20.0)
    deploy(world)
    answer(world, 60, {0: WELL, 1: WELL})
    answer(world, 60, {1: ILL})
    assert said(world) == [(1, "rolling"), (1, "complete")]


@pytest.mark.parametrize("share", [ILL, 0.5, 0.03, WELL])
def test_where_both_are_alike_nothing_is_rolled_back(share: float) -> None:
    world = quick()
    deploy(world)
    answer(world, 60, {0: share, 1: share})
    assert said(world) == [(1, "rolling"), (1, "complete")]


def test_it_can_be_switched_off() -> None:
    world = quick(errors_watch_s=0.0)
    deploy(world)
    answer(world, 60, {0: WELL, 1: ILL})
    assert said(world) == [(1, "rolling"), (1, "complete")]


def test_nobody_rolls_back_and_forth() -> None:
    """What is gone back to is not judged, whatever it answers: the release that was given up is no way out."""
    world = quick()
    deploy(world)
    answer(world, 30, {0: WELL, 1: ILL})
    answer(world, 60, {0: ILL})
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]


def test_the_next_release_is_judged_by_its_own_answers() -> None:
    world = quick()
    deploy(world)
    answer(world, 30, {0: WELL, 1: ILL})
    deploy(world)
    answer(world, 30, {0: WELL, 2: WELL})
    assert said(world)[-2:] == [(2, "rolling"), (2, "complete")]
    assert because.ReleaseErrors not in [type(reason) for reason in why(core(world), world.now)]


def test_a_newer_release_takes_over_from_a_bad_one() -> None:
    world = quick()
    deploy(world)
    answer(world, 3, {0: WELL, 1: WELL})
    deploy(world)
    answer(world, 40, {0: WELL, 1: ILL, 2: WELL})
    assert said(world) == [(1, "rolling"), (2, "rolling"), (2, "complete")]


def test_a_release_that_fails_is_told_until_it_is_given_up_for_it() -> None:
    world = quick()
    deploy(world)
    answer(world, 1, {0: WELL, 1: ILL})
    told = Told(failing=[Failing(0, 400, 40, 20.0), Failing(1, 60, 60, 20.0)])

    def failing() -> list[object]:
        found = [
            because.fields(one)["release"]
            for one in why(core(world), world.now, told)
            if type(one) is because.RequestsFail
        ]
        listed = [
            because.fields(one)["release"]
            for one in troubles(core(world), world.now, told)
            if type(one) is because.RequestsFail
        ]
        assert found == listed
        return found

    assert failing() == [0, 1]
    answer(world, 30, {0: WELL, 1: ILL})
    assert failing() == [0]
    assert because.ReleaseErrors in [type(one) for one in troubles(core(world), world.now, told)]
