"""Releases as a table: what a roll does with given instances, when a release is complete, given up, or goes back."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Cause
from schemas.reasons import Reason
from schemas.releases import Release
from services.scheduler.core.web import release as wr
from services.scheduler.core.web.release import STABLE_S, Plan, Roll, Seen, Stage, Terms
from services.scheduler.core.web.scene import is_quiet

NOW = 1000.0
TERMS = Terms(0, 1, 3)
ROLLING = Roll(wanted=2, stage="rolling", asked=2, good=(1,))


def seen(text: str) -> list[Seen]:
    """``1s 2b``: of release 1 one that serves (s), of 2 one that boots (b); d: drains; S: serves for STABLE_S; c: serves on a
    cordoned host; u: began STABLE_S ago, and no balancer has reached it for half of that.  Numbers count from 1."""
    found = []
    for number, word in enumerate(text.split(), 1):
        release, how = int(word[:-1]), word[-1]
        begun = {"b": None, "S": NOW - STABLE_S, "u": NOW - STABLE_S}.get(how, NOW - 1)
        unready_at = NOW - STABLE_S / 2 if how == "u" else None
        found.append(Seen(f"web.{number}", number, release, begun, how == "d", how != "c", unready_at))
    return found


def requested(number: int) -> f.ReleaseRequested:
    return f.ReleaseRequested(dept="web", release=number, user="wes", content=Release())


def word(roll: Roll, text: str, *, asked: int = 2, target: int = 2, terms: Terms = TERMS) -> tuple[str, int] | None:
    found = wr.change(roll, requested(asked) if asked else None, seen(text), terms, target, NOW, "web")
    return None if found is None else (found.state, found.release)


# ------------------------------------------------------------------------------------------------------------------ rolling


@pytest.mark.parametrize(
    ("text", "target", "terms", "leave", "most", "start"),
    [
        # max_unavailable 0, max_surge 1: one more first, then one fewer
        ("1s 1s", 2, (0, 1), "", 3, 1),
        ("1s 1s 2b", 2, (0, 1), "", 3, 0),
        ("1s 1s 2s", 2, (0, 1), "1", 3, 1),  # one leaves, the next one starts
        ("1d 1s 2s", 2, (0, 1), "", 3, 1),
        ("1d 1s 2s 2b", 2, (0, 1), "", 3, 0),
        ("1d 1s 2s 2s", 2, (0, 1), "2", 2, 0),
        ("2s 2s", 2, (0, 1), "", 2, 0),
        # max_unavailable 1, max_surge 0: in place
        ("1s 1s", 2, (1, 0), "1", 2, 1),
        ("1d 1s", 2, (1, 0), "", 2, 1),
        ("1d 1s 2b", 2, (1, 0), "", 2, 0),
        ("1s 2s", 2, (1, 0), "1", 2, 1),
        # both: the one that leaves does not wait for the surge
        ("1s 1s 1s", 3, (1, 1), "1", 4, 2),
        ("1s 1s 1s", 3, (2, 2), "1 2", 5, 3),
        ("1s 1s", 2, (9, 1), "1 2", 2, 2),  # all at once, if that is asked for
        # a release that does not serve yet holds nobody up
        ("1b 1s 1s", 2, (0, 1), "1", 3, 1),
        ("1b 1b", 2, (0, 1), "1 2", 2, 2),
        # the number changes meanwhile
        ("1s 1s 2s", 4, (0, 1), "", 5, 2),  # more: of the new one
        ("1s 1s 1s 2b", 2, (0, 1), "1", 3, 0),  # fewer: the old ones
        ("1s 1s 1s 2b", 1, (0, 1), "1 2", 2, 0),
        ("1s 2s 2s", 2, (0, 1), "1", 2, 0),
        ("1s 1s", 0, (0, 1), "1 2", 0, 0),
        ("2s 2s", 3, (0, 1), "", 3, 1),
        # fewer serve than there should be: nobody leaves
        ("1s 1s", 4, (1, 1), "", 5, 3),
        # whom no balancer reaches does not serve: it leaves first, and nobody for it
        ("1s 1u 2s", 2, (0, 1), "2", 3, 1),
        ("1s 1s 2u", 2, (0, 1), "", 3, 0),
        # two releases are on their way out; what stands on a cordoned host goes likewise
        ("0s 1s 2s", 2, (0, 1), "1", 3, 1),
        ("2c 2s", 2, (0, 1), "", 3, 1),
        ("2c 2s 2s", 2, (0, 1), "1", 2, 0),
    ],
)
def test_who_leaves_and_how_many_start(
    text: str, target: int, terms: tuple[int, int], leave: str, most: int, start: int
) -> None:
    found = wr.plan(ROLLING, seen(text), Terms.of(*terms, 3), target, NOW)
    assert found[:3] == (tuple(f"web.{number}" for number in leave.split()), most, start)
    there = [one for one in seen(text) if not one.leaves and one.unit not in found.leave]
    assert found.room == min(most, sum(one.stays for one in there)) + start
    assert len(there) + start <= max(most, len(there))


def closed(why: Reason) -> f.AttemptClosed:
    return f.AttemptClosed(unit="web.1", attempt=1, disposal=f.Disposal.FAILED, why=why)


def test_in_the_order_given() -> None:
    instances = sorted(seen("1s 1s 1s 2s"), key=lambda one: -one.number)
    assert wr.plan(ROLLING, instances, Terms(1, 1, 3), 3, NOW).leave == ("web.3", "web.2")


def test_both_bounds_0_is_one_more_first() -> None:
    assert Terms.of(0, 0, 3) == (0, 1, 3, 0.0)
    assert Terms.of(1, 0, 3) == (1, 0, 3, 0.0)


def test_after_a_failure_nobody_leaves_until_one_has_stood() -> None:
    shaken = Roll(
        wanted=2, stage="rolling", asked=2, good=(1,), failures=1, failed="web.3", failed_why=because.EndedVm()
    )
    assert wr.plan(shaken, seen("1s 1s 2s"), Terms(0, 1, 3), 2, NOW) == Plan((), 3, 0, 3)
    assert wr.plan(shaken, seen("1s 1s 2S"), Terms(0, 1, 3), 2, NOW) == Plan(("web.1",), 3, 1, 3)
    assert wr.plan(shaken, seen("1s 1s 2u 2s"), Terms(0, 1, 3), 2, NOW).leave == ()
    assert wr.next_at(shaken, seen("1s 1s 2s"), TERMS, NOW) == NOW - 1 + STABLE_S
    assert wr.next_at(ROLLING, seen("1s 1s 2s"), TERMS, NOW) is None


@pytest.mark.parametrize(
    ("text", "terms", "leave", "start"),
    [
        ("1S 1S 2s", (0, 1), "", 0),  # it serves, and is not ready
        ("1S 1S 2S", (0, 1), "1", 1),
        ("1S 1S 2s", (1, 1), "1", 1),  # so many places, and no more, for what may crash yet
        ("1S 2s 2s", (1, 1), "", 0),
        ("1S 1s 2S", (0, 1), "2", 1),  # who is not ready goes first, whatever the order
        ("1S 1s 2s", (0, 1), "", 0),
        ("1s 1s", (0, 1), "", 1),  # young ones are not believed either, of whatever release
        ("1s 1b", (2, 1), "2 1", 2),
    ],
)
def test_what_serves_counts_once_it_is_ready(text: str, terms: tuple[int, int], leave: str, start: int) -> None:
    found = wr.plan(ROLLING, seen(text), Terms.of(*terms, 3, 5.0), 2, NOW)
    assert (found.leave, found.start) == (tuple(f"web.{number}" for number in leave.split()), start)


def test_when_somebody_will_be_ready() -> None:
    terms = Terms(0, 1, 3, 5.0)
    assert wr.next_at(ROLLING, seen("1S 1S 2s"), terms, NOW) == NOW + 4
    assert wr.next_at(ROLLING, seen("1S 1S 2b 2S 1d"), terms, NOW) is None
    assert wr.next_at(Roll(), seen("0s"), terms, NOW) is None
    odd = 1763775600.3  # (odd + 5.1) - odd is less than 5.1
    due = wr.next_at(ROLLING, [Seen("web.1", 1, 2, odd)], Terms(0, 1, 3, 5.1), odd)
    assert due is not None
    assert Terms(0, 1, 3, 5.1).ready(Seen("web.1", 1, 2, odd), due)  # whoever wakes then finds it so


def test_a_release_stands_when_it_is_ready_if_that_takes_longer() -> None:
    terms = Terms(0, 1, 3, 2 * STABLE_S)
    assert not wr.has_stood(ROLLING, seen("2S"), terms, NOW)
    assert wr.has_stood(ROLLING, seen("2S"), terms, NOW + STABLE_S)
    assert wr.ended(ROLLING, seen("2S")[0], closed(because.ProgramEnded()), (), terms, NOW).failures == 1


@pytest.mark.parametrize(
    ("text", "target", "terms", "helps"),
    [
        ("1S 1S", 2, (0, 1), 1),
        ("1S 1S 2S", 3, (0, 1), 1),
        ("1S 1S", 4, (0, 1), 3),  # the cluster is short of two beside
        ("1S 1S", 2, (1, 1), None),  # one leaves
        ("1S 1S 2b", 2, (0, 1), None),
        ("1S 2s", 2, (0, 1), None),  # it will be ready
        ("1S 1d 2S", 2, (0, 1), None),  # its host comes free
        ("2S 2S", 3, (0, 1), 0),  # nobody is left to make room
    ],
)
def test_what_would_help_a_roll_on(text: str, target: int, terms: tuple[int, int], helps: int | None) -> None:
    given = Terms.of(*terms, 3, 5.0)
    assert wr.helps(ROLLING, seen(text), given, target, NOW) == helps
    if helps:
        assert wr.plan(ROLLING, seen(text), given._replace(max_unavailable=helps), target, NOW).leave


def test_who_failed_too_often_starts_no_more_and_stopped_starts_nothing() -> None:
    spent = Roll(wanted=2, stage="rolling", failures=3, good=(1,))
    assert wr.plan(spent, seen("1s 1s 2s"), Terms(0, 1, 3), 3, NOW) == Plan((), 4, 0, 3)
    assert wr.plan(spent, seen("1s 1s 2S"), Terms(0, 1, 3), 3, NOW) == Plan((), 4, 1, 4)
    assert wr.plan(spent, seen("1s 1s 2s"), Terms(0, 1, 0), 3, NOW).start == 1  # 0: never given up
    stopped = Roll(wanted=2, stage="stopped", failures=3)
    assert wr.plan(stopped, seen("1s"), Terms(0, 1, 3), 3, NOW) == Plan((), 4, 0, 1)


# ------------------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize(
    ("roll", "text", "fields", "said"),
    [
        (Roll(), "0s 0s", {"asked": 0}, None),
        (Roll(), "0s 0s", {"asked": 1}, ("rolling", 1)),
        (Roll(wanted=1, stage="rolling", asked=1), "0s 1b", {"asked": 2}, ("rolling", 2)),  # rule 9
        (ROLLING, "1s 2s", {}, None),
        (ROLLING, "1d 2s 2s", {}, None),  # it is still live
        (ROLLING, "2s 2s", {}, ("complete", 2)),
        (ROLLING, "2s 2b", {}, None),
        (ROLLING, "2s 2s", {"terms": Terms(0, 1, 3, 5.0)}, None),  # they serve, and are not ready
        (ROLLING, "2S 2s", {"terms": Terms(1, 1, 3, 5.0)}, ("complete", 2)),
        (ROLLING, "2s 2b", {"terms": Terms(1, 1, 3)}, ("complete", 2)),
        (ROLLING, "2b", {"terms": Terms(9, 1, 3)}, None),
        (ROLLING, "", {"target": 0}, ("complete", 2)),
        (ROLLING, "1d", {"target": 0}, None),
        (Roll(wanted=2, stage="rolling", asked=2, good=(1,), failures=2), "1s", {}, None),
        (Roll(wanted=2, stage="rolling", asked=2, good=(1,), failures=3), "1s 2b", {}, ("rolled_back", 2)),
        (
            Roll(wanted=2, stage="rolling", asked=2, good=(1,), failures=3),
            "1s 2s",
            {},
            None,
        ),  # it may stand
        (Roll(wanted=2, stage="rolling", asked=2, good=(1,), failures=3), "1s 2d", {}, ("rolled_back", 2)),
        (Roll(wanted=2, stage="rolling", asked=2, failures=3), "", {}, ("stopped", 2)),
        (Roll(wanted=2, stage="rolling", asked=2, failures=3), "", {"asked": 3}, ("rolling", 3)),
        (Roll(wanted=2, stage="rolling", asked=2, failures=3), "", {"terms": Terms(0, 1, 0)}, None),
        (Roll(wanted=2, asked=2, good=(1, 2), failures=3), "2b", {}, ("rolled_back", 2)),  # complete, never stood
        (Roll(wanted=2, asked=2, good=(1, 2), failures=3, stood=(2,)), "2b", {}, None),
        (Roll(failures=3), "0b", {"asked": 0}, ("stopped", 0)),
        (Roll(stage="stopped"), "", {"asked": 0}, None),
        (Roll(stage="stopped", again="wes"), "", {"asked": 0}, ("rolling", 0)),
    ],
)
def test_the_next_word(roll: Roll, text: str, fields: dict[str, int], said: tuple[Stage, int] | None) -> None:
    assert word(roll, text, **fields) == said  # type: ignore[arg-type]


def test_a_word_says_why() -> None:
    roll = Roll(
        wanted=2, stage="rolling", asked=2, good=(0, 1), failures=3, failed="web.9", failed_why=because.BootTimeout()
    )
    found = wr.change(roll, None, seen("1s"), Terms(0, 1, 3), 1, NOW, "web")
    assert found is not None
    assert (found.back_to, type(found.reason)) == (1, because.ReleaseFailed)
    assert because.fields(found.reason) == {
        "release": 2,
        "failures": 3,
        "unit": "web.9",
        "cause": "boot_timeout",
        "back_to": 1,
    }
    deployed = wr.change(roll, requested(3), [], Terms(0, 1, 3), 1, NOW, "web")
    assert deployed is not None
    assert deployed.reason == because.ReleaseDeployed(release=3, user="wes")


# ------------------------------------------------------------------------------------------------------------ what is folded


def told(roll: Roll, state: Stage | str, release: int, *, back_to: int = 0, serving: bool = True) -> Roll:
    reason = because.ReleaseDeployed()
    fact = f.ReleaseChanged(dept="web", release=release, state=state, back_to=back_to, reason=reason)  # type: ignore[arg-type]
    return wr.changed(roll, fact, [Seen("web.1", 1, release, NOW)] if serving else [])


def test_a_life_of_releases() -> None:
    roll = wr.began(Roll(), Seen("web.1", 1, 0, NOW))
    assert roll.good == (0,)  # nobody deploys what the configuration says
    roll = told(roll, "rolling", 1)
    assert (roll.wanted, roll.stage, roll.asked) == (1, "rolling", 1)
    roll = told(roll, "complete", 1)
    assert roll.good == (0, 1)
    roll = told(told(roll, "rolling", 2), "rolling", 3)  # 3 takes over; 2 never was complete
    assert roll.good == (0, 1)
    roll = told(roll, "rolled_back", 3, back_to=1)
    assert (roll.wanted, roll.stage, roll.asked, roll.good) == (1, "rolling", 3, (0, 1))
    roll = told(told(roll, "complete", 1), "rolled_back", 1, back_to=0)  # it had never stood, and fails now
    assert (roll.wanted, roll.good) == (0, (0,))


def test_complete_with_nothing_wanted_is_no_way_back_until_one_serves() -> None:
    roll = told(told(Roll(good=(0,)), "rolling", 1), "complete", 1, serving=False)
    assert (roll.stage, roll.good) == ("complete", (0,))
    assert wr.began(roll, Seen("web.1", 1, 0, NOW)).good == (0,)
    assert wr.began(roll, Seen("web.2", 2, 1, NOW)).good == (0, 1)


def test_what_counts_as_a_failure() -> None:
    booting, serving, old = seen("2b 2s 1s")

    def count(one: Seen, code: because.Kind) -> int:
        return wr.ended(ROLLING, one, closed(code()), (), TERMS, NOW).failures

    kinds = [kind for kind in because.REASONS if kind.CAUSE in wr.FAILURES]
    assert {kind: count(booting, kind) for kind in kinds} == dict.fromkeys(kinds, 1)
    assert {kind.CAUSE for kind in kinds} | {Cause.START_TIMEOUT} == set(wr.FAILURES)
    assert count(serving, because.ProgramEnded) == 1  # it came up, and did not stay
    assert count(serving, because.EndedVm) == 0  # nobody says that its program ended: its VM was taken with its host's
    assert [
        count(booting, code) for code in (because.LostHost, because.Reclaimed, because.ScaleDown, because.Drained)
    ] == [0] * 4
    assert count(old, because.EndedVm) == 0
    stood = wr.ended(ROLLING, booting, closed(because.EndedVm()), seen("2S"), TERMS, NOW)
    assert (stood.failures, stood.stood) == (0, (2,))  # another one has stood
    assert wr.ended(stood, booting, closed(because.EndedVm()), (), TERMS, NOW) is stood


def test_failures_are_forgotten_once_one_has_stood() -> None:
    roll = Roll(wanted=2, failures=2, failed="web.4", failed_why=because.EndedVm())
    after = wr.ended(roll, seen("2S")[0], closed(because.ScaleDown()), (), TERMS, NOW)
    assert (after.failures, after.failed, after.stood) == (0, "", (2,))


def test_release_0_begins_anew_when_it_is_configured_otherwise() -> None:
    roll = Roll(good=(0,), stood=(0,))
    roll = wr.configured(roll, 7)
    assert (roll.good, roll.stood, roll.first) == ((), (), 7)
    old, new = Seen("web.7", 7, 0, NOW - STABLE_S), Seen("web.8", 8, 0, None)
    roll = wr.ended(roll, new, closed(because.EndedVm()), [old], TERMS, NOW)
    assert roll.failures == 1  # that the old ones stand says nothing
    assert wr.began(roll, old).good == ()
    stopped = told(roll, "stopped", 0)
    assert wr.configured(stopped, 8).again == "configuration"
    assert wr.configured(Roll(wanted=3, stage="stopped", good=(0, 3)), 8).again == ""  # it is not what is wanted


def test_who_speaks_when_it_has_stopped() -> None:
    stopped = Roll(wanted=2, stage="stopped", failures=3)
    again = told(wr.spoken(stopped, "wes"), "rolling", 2)
    assert (again.stage, again.failures, again.again) == ("rolling", 0, "")
    assert wr.spoken(ROLLING, "wes") == ROLLING


def test_nothing_goes_back_to_what_is_forgotten() -> None:
    assert wr.known(Roll(good=(0, 1, 2)), (2, 3)).good == (0, 2)
    assert len(told(Roll(good=tuple(range(wr.GOOD_MAX))), "complete", 0).good) == wr.GOOD_MAX


def test_when_releases_have_no_say() -> None:
    assert is_quiet(Roll(), 0)
    assert not is_quiet(Roll(), 1)
    assert not is_quiet(Roll(failures=1), 0)
    assert not is_quiet(ROLLING, 2)


def test_what_ran_before_the_configuration_changed_says_nothing_of_release_0_also_after_a_deploy() -> None:
    roll = wr.configured(Roll(), 5)
    for state, back_to in (("rolling", 0), ("rolled_back", 0)):
        told = f.ReleaseChanged(dept="web", release=1, state=state, back_to=back_to, reason=because.Rolling())
        roll = wr.changed(roll, told, [])
    assert (roll.wanted, roll.first) == (0, 5)
