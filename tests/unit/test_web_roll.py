"""A roll-out's rules at their boundaries (`scheduler.core.web.release`); its moves are in `test_web_release.py`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.reasons import Reason
from schemas.releases import Release
from services.scheduler.core.web import release as wr
from services.scheduler.core.web.release import GOOD_MAX, STABLE_S, Roll, Seen, Terms
from services.scheduler.core.web.scene import is_quiet

NOW = 1000.0
TERMS = Terms(0, 1, 3)
ROLLING = Roll(wanted=2, stage="rolling", asked=2, good=(1,))
FAILED = Roll(
    wanted=2, stage="rolling", asked=2, good=(1,), failures=2, failed="web.9", failed_why=because.ProgramEnded(exit=3)
)


def one(number: int = 1, release: int = 2, served_s: float | None = 1.0, **fields: Any) -> Seen:
    return Seen(f"web.{number}", number, release, None if served_s is None else NOW - served_s, **fields)


def changed(roll: Roll, **fields: Any) -> Roll:
    return msgspec.structs.replace(roll, **fields)


# ------------------------------------------------------------------------------------------------------------ one instance


@pytest.mark.parametrize(
    ("served_s", "fields", "for_s", "so"),
    [
        (None, {}, 0.0, False),
        (5.0, {}, 5.0, True),
        (5.0, {}, 5.1, False),
        (5.0, {"ready_at": NOW - 3.0}, 3.0, True),
        (5.0, {"ready_at": NOW - 3.0}, 3.1, False),
        (5.0, {"ready_at": NOW - 9.0}, 5.1, False),
        (5.0, {"unready_at": NOW - 2.0}, 3.0, True),
        (5.0, {"unready_at": NOW - 2.0}, 3.1, False),
    ],
)
def test_how_long_it_has_served_counts_from_when_it_was_ready_to_when_it_was_not(
    served_s: float | None, fields: dict[str, Any], for_s: float, so: bool
) -> None:
    assert one(served_s=served_s, **fields).has_served(for_s, NOW) is so


@pytest.mark.parametrize(
    ("seen", "serves"),
    [
        (one(), True),
        (one(served_s=None), False),
        (one(leaves=True), False),
        (one(unready_at=NOW), False),
        (one(stays=False), True),
    ],
)
def test_who_serves_is_in_service_ready_and_stays(seen: Seen, serves: bool) -> None:
    assert seen.serves is serves
    assert TERMS.ready(seen, NOW) is serves
    assert not Terms(0, 1, 3, 1.1).ready(seen, NOW)


@pytest.mark.parametrize(("given", "surge"), [((0, 0), 1), ((1, 0), 0), ((0, 2), 2), ((1, 2), 2)])
def test_with_both_bounds_0_there_is_one_more_for_a_while(given: tuple[int, int], surge: int) -> None:
    assert Terms.of(*given, 3, 7.0) == Terms(given[0], surge, 3, 7.0)
    assert Terms.of(*given, 3).stood_s == STABLE_S
    assert Terms.of(*given, 3, 99.0).stood_s == 99.0


# ----------------------------------------------------------------------------------------------------------------- folding


def word(state: str, release: int = 2, **fields: Any) -> f.ReleaseChanged:
    return f.ReleaseChanged(dept="web", release=release, state=state, reason=because.Rolling(), **fields)  # type: ignore[arg-type]


def closed(why: Reason) -> f.AttemptClosed:
    return f.AttemptClosed(unit="web.1", attempt=1, disposal=f.Disposal.FAILED, why=why)


def test_what_is_wanted_anew_has_not_failed_and_nobody_gave_anything_up() -> None:
    before = changed(FAILED, again="wes", given_up=because.ReleaseFailed())
    after = wr.changed(before, word("rolling", 3), [])
    assert after == Roll(wanted=3, stage="rolling", asked=3, good=(1,))
    assert wr.changed(before, word("rolling", 1), []).asked == 2


def test_what_was_given_up_is_no_way_back_and_why_is_remembered() -> None:
    before = changed(FAILED, good=(0, 2, 1))
    after = wr.changed(before, word("rolled_back", back_to=1), [])
    assert after == Roll(wanted=1, stage="rolling", asked=2, good=(0, 1), given_up=because.Rolling())


def test_when_it_has_stopped_its_failures_are_still_told() -> None:
    after = wr.changed(changed(FAILED, again="wes"), word("stopped"), [])
    assert after == changed(FAILED, stage="stopped")


@pytest.mark.parametrize(
    ("live", "good"),
    [
        ([one()], (1, 2)),
        ([], (1,)),
        ([one(release=1)], (1,)),
        ([one(leaves=True)], (1,)),
        ([one(served_s=None), one(2)], (1, 2)),
    ],
)
def test_complete_is_a_way_back_once_one_of_it_serves(live: list[Seen], good: tuple[int, ...]) -> None:
    assert wr.changed(ROLLING, word("complete"), live) == changed(ROLLING, stage="complete", good=good)


@pytest.mark.parametrize(
    ("roll", "seen", "good"),
    [
        (changed(ROLLING, stage="complete"), one(), (1, 2)),
        (ROLLING, one(), (1,)),
        (changed(ROLLING, stage="stopped"), one(), (1,)),
        (changed(ROLLING, stage="complete"), one(release=1), (1,)),
        (changed(ROLLING, stage="complete"), one(leaves=True), (1,)),
        (changed(ROLLING, stage="complete", first=1), one(), (1,)),
        (changed(ROLLING, stage="complete", first=0), one(), (1, 2)),
        (changed(ROLLING, stage="complete", good=(2, 1)), one(), (1, 2)),
        (changed(ROLLING, stage="complete", good=(1, 2)), one(), (1, 2)),
        (
            changed(ROLLING, stage="complete", good=tuple(range(10, 10 + GOOD_MAX))),
            one(),
            (*range(11, 10 + GOOD_MAX), 2),
        ),
    ],
)
def test_a_release_that_is_complete_is_a_way_back_the_newest_last(
    roll: Roll, seen: Seen, good: tuple[int, ...]
) -> None:
    assert wr.began(roll, seen).good == good


@pytest.mark.parametrize(
    ("roll", "seen", "code", "failures"),
    [
        (ROLLING, one(), because.ProgramEnded, 1),
        (FAILED, one(), because.ProgramEnded, 3),
        (FAILED, one(release=1), because.ProgramEnded, 2),
        (changed(FAILED, first=1), one(), because.ProgramEnded, 2),
        (changed(FAILED, stood=(2,)), one(), because.ProgramEnded, 2),
        (changed(FAILED, stood=(1,)), one(), because.ProgramEnded, 3),
        (FAILED, one(served_s=STABLE_S), because.ProgramEnded, 0),
        (FAILED, one(served_s=STABLE_S - 0.1), because.ProgramEnded, 3),
        (FAILED, one(), because.ScaleDown, 2),
        (FAILED, one(served_s=None), because.EndedVm, 3),
        (FAILED, one(), because.EndedVm, 2),
    ],
)
def test_what_ends_before_its_release_has_stood_is_a_failure_of_it(
    roll: Roll, seen: Seen, code: because.Kind, failures: int
) -> None:
    said = {"exit": 9} if code is because.ProgramEnded else {}
    after = wr.ended(roll, seen, closed(code(**said)), (), TERMS, NOW)
    assert after.failures == failures
    if failures == roll.failures + 1:
        assert (after.failed, after.failed_why) == (seen.unit, code(**said))
    elif failures:
        assert after is roll
    else:
        assert after == changed(roll, failures=0, failed="", failed_why=None, stood=(2,))


def test_the_last_that_have_stood_are_remembered() -> None:
    roll = changed(ROLLING, stood=tuple(range(10, 10 + GOOD_MAX)))
    after = wr.ended(roll, one(served_s=None), closed(because.EndedVm()), [one(served_s=STABLE_S)], TERMS, NOW)
    assert after.stood == (*range(11, 10 + GOOD_MAX), 2)


@pytest.mark.parametrize(
    ("good", "back"), [((), None), ((2,), None), ((1,), 1), ((1, 2), 1), ((0, 1), 1), ((1, 0, 2), 0)]
)
def test_the_way_back_is_the_last_complete_one_that_is_another(good: tuple[int, ...], back: int | None) -> None:
    assert wr.before(changed(ROLLING, good=good)) == back


def test_release_0_begins_anew_and_the_others_stay_as_they_are() -> None:
    roll = changed(FAILED, good=(0, 1), stood=(0, 1))
    assert wr.configured(roll, 7) == changed(roll, good=(1,), stood=(1,))
    roll = changed(roll, wanted=0, stage="stopped")
    after = changed(roll, good=(1,), stood=(1,), first=7, failures=0, failed="", failed_why=None, again="configuration")
    assert wr.configured(roll, 7) == after


# ----------------------------------------------------------------------------------------------------------------- looking


@pytest.mark.parametrize(
    ("roll", "seen", "terms", "at"),
    [
        (ROLLING, [one()], Terms(0, 1, 3, 5.0), NOW + 4.0),
        (ROLLING, [one(), one(2, served_s=3.0)], Terms(0, 1, 3, 5.0), NOW + 2.0),
        (ROLLING, [one(served_s=5.0)], Terms(0, 1, 3, 5.0), None),
        (ROLLING, [one(release=1)], Terms(0, 1, 3, 5.0), NOW + 4.0),
        (ROLLING, [one(leaves=True)], Terms(0, 1, 3, 5.0), None),
        (ROLLING, [one(unready_at=NOW)], Terms(0, 1, 3, 5.0), None),
        (ROLLING, [one(ready_at=NOW - 0.5)], Terms(0, 1, 3, 5.0), NOW + 4.5),
        (changed(ROLLING, stage="complete"), [one()], Terms(0, 1, 3, 5.0), None),
        (changed(FAILED, stage="complete"), [one()], TERMS, NOW - 1.0 + STABLE_S),
        (changed(FAILED, stage="complete"), [one(leaves=True)], TERMS, NOW - 1.0 + STABLE_S),
        (changed(FAILED, stage="complete"), [one(release=1)], TERMS, None),
        (changed(FAILED, stage="complete", first=1), [one()], TERMS, None),
        (changed(FAILED, stage="complete", stood=(2,)), [one()], TERMS, None),
        (changed(FAILED, stage="complete"), [one(served_s=None)], TERMS, None),
    ],
)
def test_when_somebody_will_be_ready_or_the_release_have_stood(
    roll: Roll, seen: list[Seen], terms: Terms, at: float | None
) -> None:
    assert wr.next_at(roll, seen, terms, NOW) == at


@pytest.mark.parametrize(
    ("roll", "asked", "quiet"),
    [
        (Roll(asked=2), 2, True),
        (Roll(asked=2), 3, False),
        (Roll(asked=2, failures=1), 2, False),
        (Roll(asked=2, stage="rolling"), 2, False),
        (Roll(asked=2, stage="stopped"), 2, False),
    ],
)
def test_releases_have_no_say_while_nothing_is_asked_of_them(roll: Roll, asked: int, quiet: bool) -> None:
    assert is_quiet(roll, asked) is quiet


@pytest.mark.parametrize(
    ("roll", "failures_max", "stood", "held"),
    [
        (changed(FAILED, stage="stopped"), 9, True, True),
        (FAILED, 2, False, True),
        (FAILED, 3, False, False),
        (FAILED, 1, False, True),
        (FAILED, 0, False, False),
        (FAILED, 2, True, False),
    ],
)
def test_nothing_is_started_of_what_failed_too_often_and_has_not_stood(
    roll: Roll, failures_max: int, stood: bool, held: bool
) -> None:
    seen = [one(served_s=STABLE_S)] if stood else []
    assert wr.held_back(roll, seen, Terms(0, 1, failures_max), NOW) is held


# ---------------------------------------------------------------------------------------------------------------- deciding


def test_answers_that_are_worse_give_it_up_if_there_is_a_way_back() -> None:
    worse = because.ReleaseErrors(release=2)
    complete = changed(ROLLING, stage="complete")
    for roll in (ROLLING, complete, changed(complete, stood=(2,))):
        said = wr.change(roll, None, [one()], TERMS, 1, NOW, "web", worse)
        assert said == f.ReleaseChanged(dept="web", release=2, state="rolled_back", back_to=1, reason=worse)
    alone = wr.change(changed(ROLLING, good=()), None, [one()], TERMS, 1, NOW, "web", worse)
    assert alone is not None
    assert alone.state == "complete"


@pytest.mark.parametrize(("asked", "taken"), [(1, False), (2, False), (3, True)])
def test_a_newer_request_takes_over(asked: int, taken: bool) -> None:
    request = f.ReleaseRequested(dept="web", release=asked, user="wes", content=Release())
    said = wr.change(ROLLING, request, [one(served_s=None)], TERMS, 1, NOW, "web")
    assert (said is not None and said.state == "rolling") is taken


def test_who_speaks_lets_what_has_stopped_go_on_with_what_was_wanted() -> None:
    stopped = changed(FAILED, stage="stopped", again="wes")
    told = because.ReleaseDeployed(release=2, user="wes")
    said = f.ReleaseChanged(dept="web", release=2, state="rolling", reason=told)
    assert wr.change(stopped, None, [], TERMS, 1, NOW, "web") == said


@pytest.mark.parametrize(
    ("target", "ready", "unavailable", "complete"),
    [
        (0, 0, 0, True),
        (1, 0, 0, False),
        (1, 1, 0, True),
        (3, 2, 0, False),
        (3, 2, 1, True),
        (3, 1, 1, False),
        (3, 1, 9, True),
        (3, 0, 9, False),
    ],
)
def test_complete_is_a_roll_when_enough_are_ready_and_nobody_else_is_there(
    target: int, ready: int, unavailable: int, complete: bool
) -> None:
    seen = [one(n) for n in range(ready)] + [one(90 + n, served_s=None) for n in range(target - ready)]
    terms = Terms(unavailable, 1, 3)
    said = wr.change(ROLLING, None, seen, terms, target, NOW, "web")
    assert (said is not None) is complete
    if said is not None:
        assert said.reason == because.ReleaseComplete(release=2, instances=len(seen))
    assert wr.change(ROLLING, None, [*seen, one(99, release=1, leaves=True)], terms, target, NOW, "web") is None


def test_after_a_failure_who_serves_is_kept_as_many_as_are_wanted() -> None:
    seen = [one(n, release=1) for n in (1, 2, 3)] + [one(4, release=1, served_s=None), one(5, served_s=None)]
    assert wr.plan(FAILED, seen, TERMS, 2, NOW) == (("web.4", "web.1"), 3, 0, 3)
    assert wr.plan(FAILED, seen, TERMS, 3, NOW) == (("web.4",), 4, 0, 4)
    assert wr.plan(FAILED, seen, TERMS, 9, NOW) == (("web.4",), 10, 6, 10)


def test_what_is_held_back_places_nobody_and_ends_nobody() -> None:
    stopped = changed(FAILED, stage="stopped")
    seen = [one(1, release=1), one(2), one(3, stays=False)]
    assert wr.plan(stopped, seen, TERMS, 5, NOW) == ((), 6, 0, 2)
    assert wr.plan(stopped, [one(1), one(2)], TERMS, 5, NOW) == ((), 5, 0, 2)
    assert wr.plan(stopped, [one(1), one(2)], TERMS, 1, NOW) == ((), 1, 0, 1)


# ------------------------------------------------------------------------------------------------------------ what is told


def test_a_roll_tells_how_many_are_there_and_who_is_not_ready_yet() -> None:
    terms = Terms(0, 1, 3, 5.0)
    seen = [
        one(1),
        one(2, served_s=9.0),
        one(3, leaves=True),
        one(4, served_s=None),
        one(5, release=1),
        one(6, release=1, leaves=True),
    ]
    reason = wr.why(ROLLING, seen, terms, NOW)
    assert reason is not None
    told = {"release": 2, "instances": 3, "others": 2, "failures": 0, "fresh": 2, "min_ready_s": 5.0}
    assert (type(reason), because.fields(reason)) == (because.Rolling, told)
    reason = wr.why(FAILED, [one(2, served_s=9.0)], terms, NOW)
    assert reason is not None
    last: dict[str, Any] = {"exit": 3, "unit": "web.9", "cause": "program_ended"}
    assert because.fields(reason) == {"release": 2, "instances": 1, "others": 0, "failures": 2, **last}
    shaken = wr.why(changed(FAILED, stage="complete"), [one(1)], terms, NOW)
    assert shaken is not None
    assert "fresh" not in because.fields(shaken)
    stopped = wr.why(changed(FAILED, stage="stopped"), [one(1)], terms, NOW)
    assert stopped == because.ReleaseFailed(**{"release": 2, "failures": 2, **last})
    assert wr.why(changed(ROLLING, stage="complete"), seen, terms, NOW) is None


@pytest.mark.parametrize(
    ("roll", "seen", "target", "helps"),
    [
        (ROLLING, [one(1, 1), one(2, 1)], 2, 1),
        (ROLLING, [one(1, 1), one(2, 1), one(3)], 4, 2),
        (ROLLING, [one(1, 1), one(2, 1)], 5, 4),
        (ROLLING, [one(1), one(2)], 3, 0),
        (changed(ROLLING, stage="complete"), [one(1, 1), one(2, 1)], 2, None),
        (ROLLING, [one(1, 1), one(2, 1), one(3, leaves=True)], 2, None),
        (ROLLING, [one(1, 1), one(2, 1), one(3, unready_at=NOW)], 4, 3),
        (ROLLING, [one(1, 1), one(2, 1), one(3, served_s=None)], 4, None),
        (ROLLING, [one(1), one(2)], 2, None),  # none to be started
    ],
)
def test_by_which_bound_a_roll_would_go_on_without_a_host(
    roll: Roll, seen: list[Seen], target: int, helps: int | None
) -> None:
    assert wr.helps(roll, seen, TERMS, target, NOW) == helps
