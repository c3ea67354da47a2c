"""When the client library repeats a call: what is safe until the time is up, what could happen twice never."""

from __future__ import annotations

import pytest

from phoenix.client.retries import PAUSES_S, SPREAD, Failure, Plan, Repeat

LONG_S = 1e6


def pauses(repeat: Repeat, *failures: Failure) -> list[float | None]:
    plan = Plan(repeat)
    return [plan.pause_s(failure, LONG_S) for failure in failures]


@pytest.mark.parametrize("repeat", Repeat)
@pytest.mark.parametrize("failure", [Failure.UNSENT, Failure.BUSY])
def test_what_has_certainly_not_happened_is_repeated_after_each_pause_and_then_given_up(
    repeat: Repeat, failure: Failure
) -> None:
    assert pauses(repeat, *[failure] * (len(PAUSES_S) + 1)) == [*PAUSES_S, None]


@pytest.mark.parametrize("failure", [Failure.UNANSWERED, Failure.UNAVAILABLE])
def test_what_could_happen_twice_is_never_repeated_once_it_may_have_arrived(failure: Failure) -> None:
    assert pauses(Repeat.ONCE, failure) == [None]
    assert pauses(Repeat.ONCE, Failure.UNSENT, failure) == [PAUSES_S[0], None]


def test_a_call_without_an_answer_is_repeated_until_the_time_is_up() -> None:
    plan = Plan(Repeat.SAFE)
    found = [plan.pause_s(Failure.UNANSWERED, LONG_S) for _ in range(50)]
    assert found == [*PAUSES_S, *[PAUSES_S[-1]] * (50 - len(PAUSES_S))]
    assert plan.pause_s(Failure.UNANSWERED, PAUSES_S[-1]) is None


def test_a_read_is_given_up_also_where_it_was_sent() -> None:
    plan = Plan(Repeat.READ)
    assert [plan.pause_s(Failure.UNANSWERED, LONG_S) for _ in range(len(PAUSES_S) + 1)] == [*PAUSES_S, None]
    assert not plan.unanswered


def test_one_lost_answer_counts_for_the_whole_call() -> None:
    plan = Plan(Repeat.SAFE)
    plan.pause_s(Failure.UNANSWERED, LONG_S)
    assert plan.unanswered
    assert all(plan.pause_s(Failure.UNSENT, LONG_S) for _ in range(2 * len(PAUSES_S)))
    assert plan.unanswered


def test_a_cloud_that_answers_that_it_cannot_is_not_asked_for_ever() -> None:
    assert pauses(Repeat.SAFE, *[Failure.UNAVAILABLE] * (len(PAUSES_S) + 1)) == [*PAUSES_S, None]
    plan = Plan(Repeat.SAFE)
    plan.pause_s(Failure.UNAVAILABLE, LONG_S)
    assert not plan.unanswered


def test_the_pause_is_as_long_as_the_cloud_asks_for_and_never_shorter_than_ours() -> None:
    assert Plan(Repeat.ONCE).pause_s(Failure.BUSY, LONG_S, 7.5) == 7.5
    assert Plan(Repeat.ONCE).pause_s(Failure.BUSY, LONG_S, 0.0) == PAUSES_S[0]


@pytest.mark.parametrize("after_s", [None, 3.0])
def test_no_pause_reaches_beyond_the_time(after_s: float | None) -> None:
    due_s = after_s or PAUSES_S[0]
    assert Plan(Repeat.SAFE).pause_s(Failure.UNANSWERED, due_s, after_s) is None
    assert Plan(Repeat.SAFE).pause_s(Failure.UNANSWERED, due_s + 0.001, after_s) == due_s


def test_chance_makes_a_pause_longer_by_a_quarter_at_most() -> None:
    found = [Plan(Repeat.SAFE).pause_s(Failure.UNSENT, LONG_S, chance=chance) for chance in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([PAUSES_S[0] * (1 + SPREAD * chance) for chance in (0.0, 0.5, 1.0)])
