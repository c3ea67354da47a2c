"""What instances answer, summed by release: what an observation tells of it, and when it is told without being asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from schemas import reasons as because
from schemas.facts import Answers
from schemas.signals import AnswersSignal
from services.domain import text as sentences
from services.scheduler.core.web.answers import Sum
from services.scheduler.meter.answers import KEPT_S, RECENT_S, Answered, Failing
from services.scheduler.meter.meter import Meter
from tests.support.times import time_at

NOW = 1_000.0
RELEASES: Mapping[str, tuple[int, bool]] = {"web.1": (1, False), "web.2": (1, False), "web.3": (2, True)}


def answered() -> Answered:
    found = Answered()
    found.release_of = RELEASES.get
    return found


def said(**counts: tuple[int, int]) -> AnswersSignal:
    return AnswersSignal(instances={f"web.{name[1:]}": told for name, told in counts.items()})


def of(release: int, all_: int, errors: int) -> Answers:
    return Answers(release=release, answered=all_, errors=errors)


def test_answers_are_summed_by_release_and_told_once() -> None:
    meter = answered()
    meter.take(said(i1=(10, 1), i2=(20, 0), i3=(5, 5), i9=(7, 7)), NOW)  # web.9 is not in service
    meter.take(said(i1=(1, 0)), NOW + 0.5)  # another balancer
    assert meter.observed(NOW - 1, True, NOW + 1) == ((of(2, 5, 5), of(1, 31, 1)), 2.0)
    assert meter.observed(NOW + 1, True, NOW + 1) == ((), 0.0)
    meter.take(said(i3=(4, 0)), NOW + 1)
    assert meter.observed(NOW + 1, True, NOW + 2) == ((of(2, 4, 0),), 1.0)
    assert meter.counted == {True: Sum(9, 5), False: Sum(31, 1)}


def test_without_errors_nothing_is_told_while_nobody_watches() -> None:
    meter = answered()
    meter.take(said(i1=(10, 0)), NOW)
    assert meter.observed(NOW - 5, False, NOW + 1) == ((), 0.0)
    meter.take(said(i1=(10, 1)), NOW + 2)
    assert meter.observed(NOW - 5, False, NOW + 3) == ((of(1, 20, 1),), 8.0), "with those before: a share of all"


def test_the_first_of_a_roll_out_tells_of_the_minute_before() -> None:
    meter = answered()
    for second in range(100):
        meter.take(said(i1=(10, second % 2)), NOW + second)
        meter.observed(NOW + second - 1, False, NOW + second)  # the journal has heard of the errors
    ((told,), span_s) = meter.observed(0.0, True, NOW + 100)
    assert (told.release, span_s) == (1, KEPT_S)
    assert told == of(1, 590, 30)


def test_more_errors_than_answers_are_no_more_than_answers() -> None:
    meter = answered()
    meter.take(said(i1=(3, 900)), NOW)
    assert meter.observed(NOW - 1, True, NOW) == ((of(1, 3, 3),), 1.0)


def test_who_leads_from_now_on_does_not_tell_what_was_told() -> None:
    """Every replica counts; who led has written what came before."""
    meter = answered()
    for second in range(10):
        meter.take(said(i1=(10, 1)), NOW + second)
    ((told,), _) = meter.observed(NOW + 7, True, NOW + 10)
    assert told.answered <= 30


def test_failing_is_told_by_numbers() -> None:
    meter = answered()
    meter.take(said(i1=(200, 9), i3=(12, 12)), NOW)
    assert meter.failing(NOW + 1) == [Failing(2, 12, 12, RECENT_S)]
    meter.take(said(i1=(1, 1)), NOW + 2)
    assert meter.failing(NOW + 2) == [Failing(2, 12, 12, RECENT_S)], "ten errors, and less than 5 %"
    meter.take(said(i1=(9, 9)), NOW + 3)
    assert meter.failing(NOW + 3) == [Failing(1, 210, 19, RECENT_S), Failing(2, 12, 12, RECENT_S)]
    assert meter.failing(NOW + RECENT_S + 4) == []


def test_the_meter_hands_on_what_it_takes() -> None:
    meter = Meter("web")
    meter.answers.release_of = RELEASES.get
    signal = AnswersSignal(instances={"web.3": (5, 1)}, at=time_at(NOW), source="a")
    meter.take(signal, NOW)
    meter.take(signal, NOW)  # out of order: dropped
    assert meter.answers.counted[True] == Sum(5, 1)
    assert not meter.pending, "it makes no observation by itself"
    assert meter.gate.dropped == {("answers", "out_of_order"): 1}


@pytest.mark.parametrize(("errors", "share"), [(230, "100 %"), (40, "17 %"), (12, "5.2 %")])
def test_what_fails_is_told_in_words(errors: int, share: str) -> None:
    told = because.RequestsFail(release=5, answered=230, errors=errors, over_s=20.0)
    assert sentences.sentence(told) == (
        f"release 5 answered {share} of its requests ({errors} of 230) with 5xx or not at all in the last 20s"
    )
