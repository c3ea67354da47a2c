"""The meter: what one user says changes neither what another has said nor its room, and what cannot be does not count."""

from __future__ import annotations

import pytest

from schemas.signals import AnswersSignal, AnySignal
from services.scheduler.meter.meter import Meter
from services.scheduler.meter.plausibility import MOMENT_S, TARGET_OFF_MAX, Existing, Known, implausible
from services.scheduler.meter.signal_filter import SOURCES_MAX, TELL_AFTER
from tests.unit.test_web_meter import NOW, fact_of, requests, sessions, signal

FOUR = Known(instances=4, last=9, target=100.0)


def test_no_user_speaks_for_another_or_takes_its_room() -> None:
    """Whatever it calls itself: the user is the broker's word."""
    meter = Meter("web")
    meter.take(signal(0.9, NOW - 1, source="lb", instances=1), NOW, "lb")
    for n in range(SOURCES_MAX + 1):
        meter.take(signal(0.1, source=str(n) if n else "lb", instances=1), NOW, "wendy")
    meter.take(signal(0.9, source="lb", instances=1), NOW, "lb")
    assert meter.gate.dropped == {("cpu", "too_many_sources"): 1}
    assert fact_of(meter).utilisation == 0.9, "the mean of each user's balancers, and the highest of these"


def test_the_load_is_the_word_of_those_without_whom_it_would_be_another() -> None:
    meter = Meter("web")
    meter.take(signal(0.1, source="lb", instances=4), NOW, "lb")
    assert fact_of(meter).load_by == ("lb",)
    meter.take(signal(5.0, source="phoenix signal"), NOW, "wim")
    meter.take(signal(0.3, source="b", instances=1), NOW, "wal")
    assert fact_of(meter).load_by == ("wim",)
    meter.take(requests(0, source="b", target=10), NOW, "wal")
    meter.take(requests(9, source="lb"), NOW, "lb")
    assert fact_of(meter).load_by == ("wim",), "neither a rate of 0 nor one without a target asks for instances"
    meter.known = FOUR
    assert fact_of(meter).load_by == ("lb", "wim"), "the sum of requests has a part of the one and none of the other"
    idle = Meter("web")
    idle.take(requests(0, source="lb"), NOW, "lb")
    assert fact_of(idle).load_by == ("lb",)


def test_who_counts_a_million_instances_does_not_outvote_the_balancer() -> None:
    meter, first = Meter("web"), []
    meter.known = FOUR
    for n in range(TELL_AFTER):
        meter.take(signal(0.9, NOW - 1 + n / 10, source="lb", instances=4), NOW, "lb")
        first.append(meter.take(signal(0.0, NOW - 1 + n / 10, source="b", instances=1_000_000), NOW, "wendy"))
    assert fact_of(meter).utilisation == pytest.approx(0.9)
    assert meter.gate.dropped == {("cpu", "implausible"): TELL_AFTER}
    (told,) = (str(one) for one in first if one)
    assert told == (
        "5 cpu signals of b (user wendy) were dropped: they cannot be true (it counts 1000000 instances, and there are 4)"
    )
    meter.take(signal(0.0, source="b", instances=4), NOW, "wendy")  # it has found its mistake
    assert meter.gate.troubles(NOW) == []
    assert fact_of(meter).utilisation == pytest.approx(0.9), "nor does who counts as many as there are"


def test_one_users_small_target_multiplies_nobody_elses_demand() -> None:
    meter = Meter("web")
    meter.take(requests(400, source="lb", target=100), NOW, "lb")
    meter.take(requests(1, source="b", target=0.5), NOW, "wendy")
    fact = fact_of(meter)
    assert fact.requests_per_s == 401
    assert fact.requests_per_instance == pytest.approx(401 / (4 + 2))
    meter.known = FOUR  # a target of the configuration's stands for who says none
    meter.take(requests(600, NOW + 0.1, source="other"), NOW + 0.1, "lb")
    assert fact_of(meter, NOW + 0.1).requests_per_instance == pytest.approx(1001 / (4 + 2 + 6))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (signal(0.5, instances=4), ""),
        (signal(0.5, instances=5), "it counts 5 instances, and there are 4"),
        (signal(0.5), ""),
        (signal(0.5, instances=0), ""),
        (requests(5), ""),
        (requests(5, target=100 / TARGET_OFF_MAX), ""),
        (requests(5, target=100 * TARGET_OFF_MAX), ""),
        (requests(5, target=9.9), "its target is 9.9 requests/s, and requests_per_instance is 100"),
        (requests(5, target=1e7), "its target is 1e+07 requests/s, and requests_per_instance is 100"),
        (sessions({"web.1": 3, "web.9": 0}), ""),  # whether it is still there or not
        (sessions({"web.1": 3, "web.10": 0}), "it names web.10, which never was an instance of web"),
        (sessions({"shop.1": 3}), "it names shop.1, which never was an instance of web"),
        (sessions({"17": 3}), "it names 17, which never was an instance of web"),
        (AnswersSignal(instances={"web.9": (5, 5)}), ""),
        (AnswersSignal(instances={"web.10": (5, 5)}), "it names web.10, which never was an instance of web"),
        (AnswersSignal(instances={"web.1": (5, 6)}), "it counts 6 errors among 5 answers of web.1"),
    ],
)
def test_what_cannot_be_true_of_the_department_is_said(said: AnySignal, words: str) -> None:
    assert implausible(said, "web", FOUR) == words


def test_without_a_target_of_the_configuration_any_may_be() -> None:
    assert implausible(requests(5, target=0.001), "web", Known(4, 9)) == ""


def test_instances_that_have_just_ended_count_for_a_moment() -> None:
    existing = Existing()
    assert [existing.most(n, NOW + n) for n in (2, 4)] == [2, 4]
    assert existing.most(1, NOW + 4 + MOMENT_S) == 4
    assert existing.most(1, NOW + 4.1 + MOMENT_S) == 1
