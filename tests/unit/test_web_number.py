"""How many instances there should be, each rule at its boundary (`scheduler.core.web.autoscaler`, `.signals`, `.answers`)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import reasons as because
from schemas.config import CloudConfig, User, WebPolicy
from schemas.facts import AUTHORS_MAX, Answers, LoadObserved
from services.scheduler.core.policies import scale_flaps, scale_steps
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.policies.scale_flaps import Course
from services.scheduler.core.web import answers as web_answers
from services.scheduler.core.web import autoscaler
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.answers import ERRORS_MIN, GRACE, MARGIN, TIMES, Bucket, Sum
from services.scheduler.core.web.autoscaler import Autoscaler
from services.scheduler.core.web.release import Roll
from services.scheduler.core.web.signals import LOAD_LOST_S, UTILISATION_MAX, Word
from services.scheduler.core.web.state import State
from tests.support.world import web

NOW = 100_000.0


def policy(**fields: Any) -> WebPolicy:
    plain = {"rule": "target-tracking", "tolerance": 0.0, "down_window_s": 0.0, "instances_min": 1, "instances_max": 10}
    return WebPolicy(**{**plain, **fields})


def tracked(utilisation: float, serving: int) -> Track:
    return web_signals.observed(State(serving=serving), observation(utilisation=utilisation), NOW, policy()).track


def observation(end: float = NOW, **fields: Any) -> LoadObserved:
    return LoadObserved(dept="web", start=end - 1.0, end=end, samples=1, **fields)


def state(*, serving: int = 4, target: int | None = 4, utilisation: float | None = 0.8, **fields: Any) -> State:
    """So many serve, and are this busy since just now."""
    known: dict[str, Any] = {"heard_at": NOW, "serves_at": NOW - 1e4}
    if utilisation is not None:
        known |= {"load_at": NOW, "track": tracked(utilisation, serving)}
    return State(**{"serving": serving, "target": target, **known, **fields})


def number(
    at: State, *, most: int = 10, now: float = NOW, usual: tuple[str, ...] = (), **fields: Any
) -> tuple[int, because.Kind, dict[str, Any]]:
    terms = policy(**fields)
    count, reason = Autoscaler(terms, usual).desired(at, most, now)[:2]
    return count, type(reason), dict(because.fields(reason))


# ------------------------------------------------------------------------------------------------------------ a person's word


@pytest.mark.parametrize(("after_s", "holds"), [(-0.1, True), (0.0, False), (1.0, False)])
def test_a_persons_word_holds_until_its_time_has_passed(after_s: float, holds: bool) -> None:
    now = NOW + after_s
    exact = number(state(exact=7, until=NOW), now=now)
    assert exact[:2] == ((7, because.ScaledByPerson) if holds else (4, exact[1]))
    minimum = number(state(minimum=7, until=NOW), now=now)
    assert minimum[:2] == ((7, because.ScaledByPerson) if holds else (4, minimum[1]))
    assert number(state(exact=7), now=now)[0] == 7, "for ever, where none was given"


@pytest.mark.parametrize(("exact", "most", "found"), [(0, 10, 0), (10, 10, 10), (11, 10, 10), (3, 2, 2)])
def test_a_persons_exact_number_is_bounded_by_the_maximum_alone(exact: int, most: int, found: int) -> None:
    count, code, params = number(state(exact=exact), most=most, instances_min=5)
    assert (count, code) == (found, because.ScaledByPerson)
    assert params == {"exact": exact, "maximum": most}


# ----------------------------------------------------------------------------------------------------------- floors, maximum


@pytest.mark.parametrize(
    ("minimum", "asked", "found", "code"),
    [
        (1, None, 4, None),
        (4, None, 4, None),
        (5, None, 5, because.AtMinimum),
        (5, 5, 5, because.AtMinimum),  # of equal ones the first
        (5, 6, 6, because.ScaledByPerson),
        (5, 4, 5, because.AtMinimum),
        (12, None, 10, because.AtMinimum),
    ],
)
def test_the_greatest_floor_counts_up_to_the_maximum(
    minimum: int, asked: int | None, found: int, code: because.Kind | None
) -> None:
    count, reason, _ = number(state(minimum=asked), instances_min=minimum)
    assert count == found
    assert code is None or reason is code


@pytest.mark.parametrize(("minimum", "most", "found"), [(3, 10, 3), (3, 2, 2), (0, 10, 0)])
def test_before_the_first_word_it_is_the_floor(minimum: int, most: int, found: int) -> None:
    assert number(state(target=None, utilisation=None), most=most, instances_min=minimum)[:2] == (
        found,
        because.AtMinimum,
    )


@pytest.mark.parametrize(("most", "found", "at_maximum"), [(9, 8, False), (8, 8, False), (7, 7, True)])
def test_never_more_than_the_maximum_and_it_is_said_only_where_it_cuts(most: int, found: int, at_maximum: bool) -> None:
    count, code, params = number(state(utilisation=1.6), most=most)
    assert count == found
    assert (code is because.AtMaximum) is at_maximum
    assert not at_maximum or params == {"maximum": most}


def test_whose_claim_the_maximum_cuts_is_told() -> None:
    count, code, params = number(state(claim=9, claim_by="ann"), most=5)
    assert (count, code, params) == (5, because.AtMaximum, {"maximum": 5, "by": "ann", "claimed": 9})


@pytest.mark.parametrize(("maximum", "most"), [(None, 10), (0, 0), (3, 6), (5, 10), (9, 10)])
def test_the_maximum_is_the_policys_and_what_the_departments_hosts_carry(maximum: int | None, most: int) -> None:
    assert autoscaler.most(web("web", maximum=maximum), policy(), 2) == most


# ------------------------------------------------------------------------------------------------------- steps, flap budget


@pytest.mark.parametrize(
    ("utilisation", "found", "code"),
    [(0.8, 4, None), (1.6, 5, because.StepLimit), (0.9, 5, None), (0.2, 3, because.StepLimit), (0.5, 3, None)],
)
def test_a_step_is_no_longer_than_its_limits(utilisation: float, found: int, code: because.Kind | None) -> None:
    count, reason, params = number(state(utilisation=utilisation), up_limits=("1 in 60s",), down_limits=("1 in 60s",))
    assert count == found
    if code is None:
        assert reason is not because.StepLimit
    else:
        wanted = {1.6: 8, 0.2: 1}[utilisation]
        told = {"wanted": wanted, "instances": 4, "allowed": found, "limits": ["1 in 60s"]}
        assert (reason, params) == (code, told)


def test_limits_of_one_way_do_not_bound_the_other() -> None:
    assert number(state(utilisation=1.6), down_limits=("1 in 60s",))[0] == 8
    assert number(state(utilisation=0.2), up_limits=("1 in 60s",))[0] == 1


def test_a_floor_is_not_delayed_by_limits() -> None:
    assert number(state(), instances_min=9, up_limits=("1 in 60s",))[:2] == (9, because.AtMinimum)


def turned(*at: float) -> Course:
    """The number went up and down at these times, in turn."""
    course, by = Course(), 1
    for time in at:
        course, by = scale_flaps.follow(course, time, by), -by
    return course


def test_the_number_falls_only_if_it_may_turn_and_rises_whatever_happens() -> None:
    busy = turned(NOW - 2000.1236, NOW - 1000.0, NOW - 500.0)
    free_at = scale_flaps.free_at(busy, 1, NOW)
    assert free_at > NOW
    count, code, params = number(state(utilisation=0.2, course=busy), turns_per_hour_max=1)
    assert (count, code) == (4, because.FlapBudget)
    turns = len(scale_flaps.recent(busy, NOW))
    assert params == {"wanted": 1, "instances": 4, "turns": turns, "budget": 1, "wait_s": round(free_at - NOW, 3)}
    assert number(state(utilisation=0.8, course=busy), turns_per_hour_max=1)[1] is not because.FlapBudget
    assert number(state(utilisation=1.6, course=busy), turns_per_hour_max=1)[0] == 8
    now = free_at - 0.12345
    early = state(utilisation=0.2, course=busy, heard_at=now, load_at=now)
    assert number(early, turns_per_hour_max=1, now=now)[2]["wait_s"] == 0.123
    later = state(utilisation=0.2, course=busy, heard_at=free_at, load_at=free_at)
    assert number(later, turns_per_hour_max=1, now=free_at)[0] == 1


def test_it_wakes_when_the_budget_or_a_limit_allows_more() -> None:
    busy, changes = turned(NOW - 2000.0, NOW - 1000.0, NOW - 500.0), scale_steps.follow([], NOW - 10.0, 1)
    terms = policy(turns_per_hour_max=1, up_limits=("1 in 60s",))
    found = Autoscaler(terms)
    budget = scale_flaps.free_at(busy, 1, NOW)
    step = NOW + 50.0
    assert found.wake_at(State(course=busy, changes=changes), NOW) == min(step, budget)
    assert found.wake_at(State(course=busy), NOW) == budget
    assert found.wake_at(State(changes=changes), NOW) == step


# ------------------------------------------------------------------------------------------------------------ claims, silence

TIMEOUT_S = 30.0
SILENT = NOW + TIMEOUT_S


@pytest.mark.parametrize(
    ("claim", "found", "code"),
    [
        (None, 4, because.SignalMissing),
        (3, 4, because.SignalMissing),
        (4, 4, because.SignalMissing),
        (5, 5, because.Claimed),
    ],
)
def test_in_silence_the_number_is_held_and_only_a_claim_raises_it(
    claim: int | None, found: int, code: because.Kind
) -> None:
    heard = state(claim=claim, claim_by="ann", heard_at=SILENT - 1.0)
    count, reason, params = number(heard, now=SILENT, signal_timeout_s=TIMEOUT_S)
    assert (count, reason) == (found, code)
    told = {"instances": 5, "by": "ann"} if code is because.Claimed else {"timeout_s": TIMEOUT_S, "instances": 4}
    assert params == told


@pytest.mark.parametrize(
    ("claim", "found", "code", "load"),
    [
        (None, 4, None, None),
        (0, 4, None, None),
        (3, 4, None, None),
        (4, 4, because.Claimed, None),
        (6, 6, because.Claimed, 4),
    ],
)
def test_a_claim_counts_if_it_is_as_much_as_the_load_wants(
    claim: int | None, found: int, code: because.Kind | None, load: int | None
) -> None:
    count, reason, params = number(state(claim=claim))
    assert count == found
    assert (reason is because.Claimed) is (code is because.Claimed)
    assert params.get("load") == load


@pytest.mark.parametrize(("after_s", "found"), [(TIMEOUT_S - 0.1, 6), (TIMEOUT_S, 1)])
def test_where_nobody_tells_load_the_claim_alone_is_the_number_while_it_counts(after_s: float, found: int) -> None:
    alone = state(utilisation=None, claim=6, serving=0, target=1)
    assert number(alone, now=NOW + after_s, signal_timeout_s=TIMEOUT_S)[0] == found


@pytest.mark.parametrize(("after_s", "known"), [(LOAD_LOST_S - 0.1, True), (LOAD_LOST_S, False)])
def test_load_that_was_told_is_known_for_so_long(after_s: float, known: bool) -> None:
    assert web_signals.load_known(state(), NOW + after_s) is known
    assert not web_signals.load_known(state(utilisation=None), NOW)
    assert [web_signals.load_known(State(load_at=at), 5.0) for at in (0.0, 1.0)] == [False, True], "0: never"


def test_what_is_missing_is_known_when_nothing_was_heard_for_long_enough_since_somebody_serves() -> None:
    terms = policy(signal_timeout_s=TIMEOUT_S)
    assert web_signals.missing_at(state(), terms, NOW) == NOW + TIMEOUT_S
    assert web_signals.missing_at(state(serves_at=NOW + 5.0), terms, NOW) == NOW + 5.0 + TIMEOUT_S
    assert web_signals.missing_at(state(heard_at=NOW + 9.0), terms, NOW) == NOW + TIMEOUT_S, "of the load"
    lost = NOW + LOAD_LOST_S
    assert web_signals.missing_at(state(heard_at=NOW + 9.0), terms, lost) == NOW + 9.0 + TIMEOUT_S, "of a claim"
    for serving, at, missing in ((4, SILENT - 0.1, False), (4, SILENT, True), (0, SILENT, False), (1, SILENT, True)):
        assert web_signals.missing(state(serving=serving), terms, at) is missing


@pytest.mark.parametrize(
    ("load_at", "claim", "ends"), [(NOW, 3, True), (NOW, 0, True), (NOW, None, False), (0.0, 3, False)]
)
def test_when_load_is_lost_matters_to_who_has_a_claim(load_at: float, claim: int | None, ends: bool) -> None:
    assert web_signals.lost_at(State(load_at=load_at, claim=claim)) == ([NOW + LOAD_LOST_S] if ends else [])


@pytest.mark.parametrize(
    ("users", "balancers", "found"),
    [((), (), ()), (("ann",), (), ("ann",)), (("ann", "bob"), (), ()), (("ann", "bob"), ("lb", "lc"), ("lb", "lc"))],
)
def test_of_whom_nobody_needs_to_be_told(
    users: tuple[str, ...], balancers: tuple[str, ...], found: tuple[str, ...]
) -> None:

    department = web("web", balancers=balancers)
    config = CloudConfig(
        name="c",
        departments=(department,),
        users=tuple(User(name=name, department="web", role="user") for name in users),
    )
    assert web_signals.usual(config, department) == found


# --------------------------------------------------------------------------------------------------------------- observations


@pytest.mark.parametrize(
    ("fields", "serving", "found"),
    [
        ({}, 4, None),
        ({"utilisation": 0.5}, 4, Word(0.5)),
        ({"requests_per_s": 80.0}, 4, Word(0.8 * 2.0, 80.0, 10.0)),
        ({"requests_per_s": 80.0, "requests_per_instance": 20.0}, 4, Word(0.8, 80.0, 20.0)),
        ({"requests_per_s": 80.0, "utilisation": 1.6}, 4, Word(1.6, 80.0, 10.0)),  # of equal ones the requests
        ({"requests_per_s": 80.0, "utilisation": 1.7}, 4, Word(1.7)),
        ({"requests_per_s": 80.0, "utilisation": 0.2}, 0, Word(0.2)),
        ({"requests_per_s": 80.0}, 0, None),
        ({"requests_per_s": 0.0}, 4, Word(0.0, 0.0, 10.0)),
        ({"requests_per_s": 1e300}, 4, Word(UTILISATION_MAX, 1e300, 10.0)),
    ],
)
def test_requests_and_cpu_are_one_utilisation(fields: dict[str, float], serving: int, found: Word | None) -> None:
    told = web_signals.word(observation(**fields), serving, policy(requests_per_instance=10.0, target=0.8))
    assert told == (None if found is None else pytest.approx(found))


def test_a_rate_without_a_target_asks_for_nothing() -> None:
    assert web_signals.word(observation(requests_per_s=80.0), 4, policy()) is None


def test_what_was_heard_is_as_of_its_end_but_not_later_than_now_nor_earlier_than_before() -> None:
    before = State(serving=4, heard_at=NOW - 5.0)
    for end, heard_at in ((NOW, NOW), (NOW + 9.0, NOW), (NOW - 2.0, NOW - 2.0), (NOW - 9.0, NOW - 5.0)):
        after = web_signals.observed(before, observation(end, utilisation=0.5), NOW, policy())
        assert (after.heard_at, after.load_at) == (heard_at, heard_at)
        claimed = web_signals.observed(before, observation(end, claim=3, claim_by="ann"), NOW, policy())
        assert (claimed.heard_at, claimed.load_at, claimed.claim, claimed.claim_by) == (heard_at, 0.0, 3, "ann")
    assert web_signals.observed(before, observation(), NOW, policy()) is before


def test_the_last_who_told_load_are_remembered_then_by_name() -> None:
    names = [f"u{n:02d}" for n in range(AUTHORS_MAX)]
    at = State(serving=4, load_by=dict.fromkeys(reversed(names), NOW - 1.0))
    after = web_signals.observed(at, observation(utilisation=0.5, load_by=("zoe",)), NOW, policy())
    assert list(after.load_by) == ["zoe", *names[:-1]]
    assert after.load_by["zoe"] == NOW
    found = web_signals.authors(after, 1.0, ("u00",))
    assert found == sorted(["zoe", *names[1:-1]])
    assert web_signals.authors(after, 0.9, ()) == ["zoe"]


def test_by_whose_word_and_in_which_requests_is_told_with_the_number() -> None:
    at = state(rate=12.34567, per_instance=10.0, load_by={"zoe": NOW})
    _, _, params = number(at)
    assert (params["requests_per_s"], params["requests_per_instance"], params["load_by"]) == (12.346, 10.0, ["zoe"])
    assert "load_by" not in number(at, usual=("zoe",))[2]
    windows = {"up_window_s": 2.0, "down_window_s": 9.0, "window_s": 4.0}
    for rule, looked_s in (("target-tracking", 9.0), ("threshold", 4.0)):
        for at_s, so in ((looked_s, True), (looked_s + 0.1, False)):
            told = number(state(load_by={"zoe": NOW - at_s}), rule=rule, **windows)[2]
            assert ("load_by" in told) is so
    assert "requests_per_s" not in number(state(rate=None, per_instance=10.0))[2]
    assert "requests_per_s" not in number(state(rate=1.0, per_instance=None))[2]


# -------------------------------------------------------------------------------------------------------- answers of releases

WATCHED = Roll(wanted=2, asked=2, stage="rolling", good=(1,))


@pytest.mark.parametrize(
    ("changes", "watch_s", "after_s", "so"),
    [
        ({}, 60.0, 1e6, True),
        ({}, 0.0, 0.0, False),
        ({"stage": "complete"}, 60.0, 59.9, True),
        ({"stage": "complete"}, 60.0, 60.0, False),
        ({"stage": "stopped"}, 60.0, 0.0, False),
        ({"good": ()}, 60.0, 0.0, False),
        ({"good": (2,)}, 60.0, 0.0, False),
        ({"asked": 3}, 60.0, 0.0, False),
        ({"given_up": because.ReleaseErrors()}, 60.0, 0.0, False),
    ],
)
def test_watched_is_a_deployed_release_while_it_rolls_and_a_while_after(
    changes: dict[str, Any], watch_s: float, after_s: float, so: bool
) -> None:
    roll = msgspec.structs.replace(WATCHED, **changes)
    assert web_answers.watched(roll, NOW, watch_s, NOW + after_s) is so


def test_answers_are_kept_by_second_for_as_long_as_they_are_watched() -> None:
    record: web_answers.Record = {}

    def told(at: float, *words: tuple[int, int, int], span_s: float = 1.0) -> None:
        said = [Answers(release=release, answered=answered, errors=errors) for release, answered, errors in words]
        found = web_answers.follow(record, WATCHED, said, span_s, at, 10.0)
        record.clear()
        record.update(found)

    told(100.0, (2, 5, 1), (1, 4, 0), (7, 9, 9), (0, 9, 9))
    assert record == {2: [Bucket(99.0, 100.0, 5, 1)], 1: [Bucket(99.0, 100.0, 4, 0)]}
    told(100.5, (2, 0, 0))
    told(99.9, (2, 2, 3), span_s=0.4)  # within the second of the last one; no more errors than answers
    assert record[2] == [Bucket(99.0, 99.9, 7, 3)]
    told(100.0, (2, 1, 0))
    assert record[2] == [Bucket(99.0, 99.9, 7, 3), Bucket(99.0, 100.0, 1, 0)]
    told(109.9, (2, 1, 0))
    assert [bucket.at for bucket in record[2]] == [100.0, 109.9]
    assert [bucket.at for bucket in record[1]] == [100.0]


@pytest.mark.parametrize(
    ("new", "old", "so"),
    [
        ((100, ERRORS_MIN), (1000, 0), True),
        ((100, ERRORS_MIN - 1), (1000, 0), False),
        ((100, ERRORS_MIN), (0, 0), False),
        ((1000, 60), (1000, 7), False),  # 10 in 1000 are assumed: the margin
        ((1000, 61), (1000, 7), True),
        ((200, 14), (150, 0), False),  # just that much more
        ((1000, 375), (64, 5), False),  # 8 in 64: three times that
        ((1000, 376), (64, 5), True),
        ((1000, 999), (3, 0), False),  # who has answered little may have been lucky
    ],
)
def test_worse_is_a_share_that_exceeds_the_others_by_a_margin_and_is_so_many_times_as_high(
    new: tuple[int, int], old: tuple[int, int], so: bool
) -> None:
    assert (GRACE, MARGIN, TIMES) == (3, 0.05, 3)
    assert web_answers.exceeds(Sum(*new), Sum(*old)) is so


def test_errors_must_have_been_made_in_several_seconds() -> None:
    old = [Bucket(0.0, 1.0, 1000, 0)]
    for seconds, so in ((2, False), (3, True)):
        mine = [Bucket(10.0 + n, 11.04 + n, 50, 10) for n in range(seconds)] + [Bucket(30.0, 31.04, 50, 0)]
        reason = web_answers.worse({2: mine, 1: old}, WATCHED)
        assert (reason is not None) is so
    assert reason is not None
    assert because.fields(reason) == {
        "release": 2, "answered": 200, "errors": 30, "over_s": 21.0, "old_answered": 1000, "old_errors": 0, "back_to": 1,
    }  # fmt: skip
    for changes in ({"good": ()}, {"asked": 3}, {"given_up": reason}):
        assert web_answers.worse({2: mine, 1: old}, msgspec.structs.replace(WATCHED, **changes)) is None
    assert web_answers.worse({1: old}, WATCHED) is None
    assert web_answers.worse({2: mine}, WATCHED) is None
