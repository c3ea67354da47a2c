"""The meter: signals in, observations out; nothing absurd, late, repeated or out of order gets in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import signals as s
from schemas.facts import QUIET_MAX, LoadObserved
from schemas.requests import Malformed
from schemas.signals import AHEAD_S, LATE_S, AnySignal, ClaimSignal, CpuSignal, RequestsSignal, SessionsSignal
from services.scheduler.meter.meter import HELD_S, LONGEST_S, Last, Meter
from services.scheduler.meter.signal_filter import (
    SESSIONS_MAX,
    SILENT_S,
    SOURCES_MAX,
    TELL_AFTER,
    Gate,
)
from tests.support.times import time_at

NOW = 1_000_000.0
TIMEOUT_S = 10.0
SOURCES = st.sampled_from(("", "a", "b"))


def signal(utilisation: float, at: float | None = NOW, **fields: Any) -> CpuSignal:
    return CpuSignal(utilisation=utilisation, at=None if at is None else time_at(at), **fields)


def requests(rate: float, at: float | None = NOW, **fields: Any) -> RequestsSignal:
    return RequestsSignal(rate=rate, at=None if at is None else time_at(at), **fields)


def claim(instances: int, at: float | None = NOW, source: str = "") -> ClaimSignal:
    return ClaimSignal(instances=instances, at=None if at is None else time_at(at), source=source)


def heard(*signals: AnySignal, now: float = NOW) -> Meter:
    meter = Meter("web")
    for one in signals:
        meter.take(one, now)
    return meter


def fact_of(meter: Meter, now: float = NOW) -> LoadObserved:
    fact = meter.observation(now)
    assert fact is not None
    return fact


def written(meter: Meter, now: float = NOW) -> LoadObserved:
    """The observation, as it is when it stands in the journal."""
    fact = fact_of(meter, now)
    meter.observed(fact)
    return fact


def observe(meter: Meter, now: float = NOW) -> tuple[float, float, float | None, int] | None:
    fact = meter.observation(now)
    return None if fact is None else (fact.start, fact.end, fact.utilisation, fact.samples)


# -------------------------------------------------------------------------------------------------------------------- CPU


def test_signals_are_averaged_over_the_time_they_measured() -> None:
    meter = Meter("web")
    assert observe(meter) is None
    meter.take(signal(1.0, NOW - 3, interval_s=1), NOW)
    meter.take(signal(0.5, NOW, interval_s=3), NOW)
    assert observe(meter) == (NOW - 4, NOW, (1.0 + 1.5) / 4, 2)


def test_an_observation_begins_where_the_last_one_ended() -> None:
    meter = heard(signal(1.0, interval_s=0.25))
    written(meter)
    assert observe(meter) is None
    meter.take(signal(0.5, NOW + 0.3, interval_s=0.25), NOW + 0.3)  # the seam of 50 ms is closed
    assert observe(meter, NOW + 0.3) == (NOW, NOW + 0.3, 0.5, 1)


def test_sources_that_name_their_instances_share_the_department() -> None:
    both = fact_of(heard(signal(1.0, source="a", instances=3), signal(0.2, source="b", instances=1)))
    assert both.utilisation == pytest.approx(0.8)
    assert both.samples == 2


@pytest.mark.parametrize(("word", "highest"), [(0.95, 0.95), (0.5, 0.8)])
def test_a_source_that_speaks_of_all_counts_if_it_is_the_highest(word: float, highest: float) -> None:
    shares = signal(1.0, source="a", instances=3), signal(0.2, source="b", instances=1)
    assert fact_of(heard(*shares, signal(word, source="a person"))).utilisation == pytest.approx(highest)


def test_a_mean_of_no_instances_says_nothing_and_ends_what_its_source_said() -> None:
    """A balancer that has lost all of its instances must not call the department idle."""
    assert heard(signal(0.0, instances=0)).observation(NOW) is None
    meter = heard(signal(0.9, NOW - 0.5, source="a", instances=4), signal(0.0, source="b", instances=0))
    assert fact_of(meter).utilisation == 0.9
    meter.take(signal(0.0, source="a", instances=0), NOW)
    assert fact_of(meter).utilisation is None
    meter.take(signal(0.1, NOW + 0.5, source="b", instances=2), NOW + 0.5)
    assert fact_of(meter, NOW + 0.5).utilisation == 0.1


def test_a_source_that_speaks_more_often_does_not_count_more() -> None:
    fast = [signal(1.0, NOW - 1 + n / 10, source="fast", interval_s=0.1, instances=1) for n in range(10)]
    assert fact_of(heard(*fast, signal(0.0, source="slow", instances=1))).utilisation == pytest.approx(0.5)


def test_two_balancers_that_speak_at_different_moments_do_not_take_turns() -> None:
    meter, told = heard(signal(0.2, source="b", instances=1)), []
    for n in range(8):
        at = NOW + 0.5 * (n + 1)
        meter.take(signal(1.0 if n % 2 == 0 else 0.2, at, source="ab"[n % 2], instances=1), at)
        told.append(written(meter, at).utilisation)
    assert told == [pytest.approx(0.6)] * 8


# --------------------------------------------------------------------------------------------------------------- requests


def test_rates_of_two_balancers_add_up_and_each_target_counts_for_its_own() -> None:
    fact = fact_of(heard(requests(300, source="a", target=100), requests(100, source="b", target=50)))
    assert (fact.requests_per_s, fact.requests_per_instance, fact.utilisation) == (400, 80, None)  # 3 + 2 instances
    zero = fact_of(heard(requests(300, source="a", target=100), requests(0, source="b", target=0.001)))
    assert (zero.requests_per_s, zero.requests_per_instance) == (300, pytest.approx(100))
    untold = fact_of(heard(requests(300, source="a"), requests(0, source="b")))
    assert (untold.requests_per_s, untold.requests_per_instance) == (300, None)


def test_a_balancer_that_falls_silent_is_counted_a_while_longer() -> None:
    meter = heard(requests(300, source="a"), requests(100, source="b"))
    written(meter)
    rates = []
    for n in range(1, 5):
        meter.take(requests(300, NOW + n, source="a"), NOW + n)
        rates.append(written(meter, NOW + n).requests_per_s)
    assert rates == [400, 400, 300, 300]
    assert 2 < HELD_S < 3


def test_who_measures_for_longer_is_held_for_longer() -> None:
    meter = heard(requests(100, source="slow", interval_s=4), requests(300, source="a"))
    written(meter)
    for after, expected in ((7.9, 400), (8.1, 300)):
        meter.take(requests(300, NOW + after, source="a"), NOW + after)
        assert written(meter, NOW + after).requests_per_s == expected


def test_for_how_long_requests_were_counted_is_that_of_the_source_with_the_least() -> None:
    meter = heard(signal(0.5), requests(300, NOW - 0.5, source="a", interval_s=0.5))
    assert meter.counted_s() == 0.5
    meter.take(requests(300, NOW, source="a", interval_s=0.5), NOW)
    assert meter.counted_s() == 1.0
    meter.take(requests(100, NOW, source="b", interval_s=0.25), NOW)
    assert meter.counted_s() == 0.25
    written(meter)
    assert meter.counted_s() == 0.0


def test_who_has_just_begun_to_listen_has_not_heard_every_balancer() -> None:
    """Half a rate, or CPU alone where requests say more, would look like a fall."""
    meter = Meter("web", since=NOW - 1)
    meter.take(signal(0.1), NOW)
    assert meter.observation(NOW) is None
    meter.take(requests(300, NOW + 1), NOW + 1)
    meter.take(claim(3, NOW + 1), NOW + 1)
    moment = written(meter, NOW + 1)
    assert (moment.start, moment.utilisation, moment.requests_per_s, moment.claim) == (NOW + 1, None, None, 3)
    assert meter.observation(NOW + 1.4) is None
    first = written(meter, NOW + 1.5)
    assert (first.start, first.end, first.utilisation, first.requests_per_s) == (NOW, NOW + 1, 0.1, 300)


# ----------------------------------------------------------------------------------------------------- claims and sessions


def test_the_highest_claim_counts_and_a_lower_one_ends_it() -> None:
    meter = heard(claim(3, source="a"), claim(5, source="b"))
    first = written(meter)
    assert (first.claim, first.start, first.end, first.utilisation) == (5, NOW, NOW, None)
    meter.take(claim(1, NOW + 1, source="b"), NOW + 1)
    assert written(meter, NOW + 1).claim == 3


def test_a_claim_holds_for_the_timeout_from_its_own_time() -> None:
    meter = heard(claim(5, NOW - 4, source="plan"))
    for after, expected in ((0.0, 5), (5.9, 5), (6.0, None)):
        meter.take(signal(0.5, NOW + after), NOW + after)
        assert written(meter, NOW + after).claim == expected


def test_claims_do_not_take_time_from_the_load() -> None:
    meter = heard(signal(0.5))
    written(meter)
    meter.take(claim(5, NOW + 0.5), NOW + 0.5)
    assert written(meter, NOW + 0.5).end == NOW + 0.5
    meter.take(signal(0.7, NOW + 1), NOW + 1)
    assert observe(meter, NOW + 1) == (NOW, NOW + 1, 0.7, 1)


def test_a_new_leader_goes_on_with_the_claim_of_the_journal() -> None:
    meter = heard(signal(0.9, NOW - 3))  # while another led
    meter.inherit(5, "wim", NOW + 4)
    assert not meter.pending
    for after, expected in ((1, 5), (4, None)):
        meter.take(signal(0.5, NOW + after), NOW + after)
        fact = written(meter, NOW + after)
        assert (fact.claim, fact.utilisation) == (expected, 0.5)
    meter.inherit(None, "", NOW + 100)
    meter.take(signal(0.5, NOW + 5), NOW + 5)
    assert written(meter, NOW + 5).claim is None


def sessions(counts: dict[str, int], at: float = NOW, source: str = "") -> SessionsSignal:
    return SessionsSignal(sessions=counts, at=time_at(at), source=source)


def test_the_quietest_are_those_in_service_with_the_fewest_sessions_of_all_balancers() -> None:
    meter = heard(
        sessions({"web.1": 0, "web.2": 4, "web.3": 1, "web.10": 1}, source="a"),
        sessions({"web.1": 9, "web.2": 0, "web.4": 0}, source="b"),
    )
    assert written(meter).samples == 2
    serving = ["web.1", "web.2", "web.3", "web.10", "web.11"]  # web.4 drains, of web.11 nobody speaks
    assert meter.quiet(serving, NOW) == ("web.10", "web.3", "web.2", "web.1")
    assert meter.quiet(serving, NOW + TIMEOUT_S) == ()
    meter.take(sessions({"web.1": 1}, NOW + 1, source="b"), NOW + 1)
    assert meter.quiet(serving, NOW + 1) == ("web.10", "web.3", "web.1", "web.2")


def test_the_quietest_are_bounded() -> None:
    counts = {f"web.{n}": n for n in range(1, 101)}
    found = heard(sessions(counts)).quiet(list(counts), NOW)
    assert found == tuple(f"web.{n}" for n in range(1, QUIET_MAX + 1))


# ------------------------------------------------------------------------------------------------------------ what is dropped

GOOD: tuple[AnySignal, ...] = (signal(0.7), requests(100), claim(3), sessions({"web.1": 1}))
FIRST = datetime.min.replace(tzinfo=timezone(timedelta(hours=14))).isoformat()  # both beyond the years that UTC has
LAST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))).isoformat()
OUT_OF_TIME = (
    (time_at(NOW - LATE_S - 0.1), "late"),
    (time_at(NOW + AHEAD_S + 0.1), "future"),
    (time_at(NOW - 3600), "late"),
    (time_at(NOW + 3600), "future"),
    (time_at(NOW - 1), "out_of_order"),
    (time_at(NOW - 0.5), "out_of_order"),
    (FIRST, "late"),
    (LAST, "future"),
)


@pytest.mark.parametrize("good", GOOD, ids=lambda one: s.NAME[type(one)])
@pytest.mark.parametrize(("at", "reason"), OUT_OF_TIME)
def test_what_comes_at_a_wrong_time_is_dropped_and_counted(good: AnySignal, at: str, reason: str) -> None:
    name = s.NAME[type(good)]
    meter = heard(msgspec.structs.replace(good, at=time_at(NOW - 0.5)))
    before = meter.observation(NOW)
    meter.take(msgspec.structs.replace(good, at=at), NOW)
    assert (meter.gate.taken, meter.gate.dropped) == ({name: 1}, {(name, reason): 1})
    assert meter.observation(NOW) == before
    assert meter.last[name] == Last(NOW - 0.5, "")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (signal(math.nan), "not_finite"),
        (signal(math.inf), "not_finite"),
        (signal(0.5, interval_s=math.inf), "not_finite"),
        (signal(-0.1), "absurd"),
        (signal(1e9), "absurd"),
        (signal(0.5, interval_s=0.0), "absurd"),
        (signal(0.5, instances=-1), "absurd"),
        (requests(math.nan), "not_finite"),
        (requests(-1.0), "absurd"),
        (requests(1e9), "absurd"),
        (requests(1.0, target=0.0), "absurd"),
        (requests(1.0, target=math.nan), "not_finite"),
        (claim(-1), "absurd"),
        (claim(10**9), "absurd"),
        (sessions({"web.1": -1}), "absurd"),
        (sessions({"web.1": 10**9}), "absurd"),
        (claim(10**400), "absurd"),
    ],
)
def test_what_cannot_be_is_dropped_where_no_codec_has_looked(bad: AnySignal, reason: str) -> None:
    meter = heard(bad)
    assert meter.gate.dropped == {(s.NAME[type(bad)], reason): 1}
    assert not meter.pending


def test_a_signal_without_time_counts_from_its_arrival() -> None:
    assert observe(heard(signal(0.7, None))) == (NOW - 1, NOW, 0.7, 1)


def test_one_program_twice_under_one_name() -> None:
    """The same measurement twice counts once; two measurements are one source that speaks more often: their mean, no sum."""
    twice = heard(requests(400, source="lb"), requests(400, source="lb"))
    assert (fact_of(twice).requests_per_s, twice.gate.dropped) == (400, {("requests", "out_of_order"): 1})
    apart = heard(requests(400, NOW - 0.5, source="lb"), requests(200, source="lb"))
    assert fact_of(apart).requests_per_s == 300
    assert fact_of(heard(requests(400, source="lb-1"), requests(400, source="lb-2"))).requests_per_s == 800


def test_the_newest_counts_however_soon_it_comes() -> None:
    meter = heard(claim(5, NOW - 0.001, "plan"), claim(0, NOW, "plan"))
    assert (fact_of(meter).claim, meter.gate.dropped) == (0, {})
    often = [requests(rate, NOW - 0.01 * (5 - rate), source="often") for rate in range(5)]
    assert fact_of(heard(*often, requests(10, source="seldom"))).requests_per_s == 2 + 10, "a mean for each source"


def test_sources_are_bounded_and_silent_ones_make_room() -> None:
    meter = heard(*(signal(0.5, source=str(n)) for n in range(SOURCES_MAX + 1)))
    meter.take(claim(1), NOW)  # of another signal
    assert meter.gate.dropped == {("cpu", "too_many_sources"): 1}
    later = NOW + SILENT_S + 1
    meter.take(signal(0.5, later, source="one more"), later)
    assert meter.last["cpu"] == Last(later, "one more")
    assert observe(meter, later) == (later - 1, later, 0.5, 2), "one utilisation and one claim"


def test_a_silent_claim_is_not_forgotten_before_its_time() -> None:
    meter = heard(claim(5, source="plan"))
    meter.timeout_s = 3 * SILENT_S
    later = NOW + 2 * SILENT_S
    meter.take(claim(1, later, source="another"), later)
    assert written(meter, later).claim == 5


def test_instances_of_all_sessions_are_bounded() -> None:
    many = {f"web.{n}": 1 for n in range(1, SESSIONS_MAX // 2 + 1)}
    meter = heard(*(sessions(many, source=name) for name in "abc"))
    assert meter.gate.dropped == {("sessions", "too_many_sources"): 1}
    meter.take(sessions({}, NOW + 1, source="a"), NOW + 1)
    meter.take(sessions(many, NOW + 1, source="c"), NOW + 1)
    assert meter.gate.taken == {"sessions": 4}


# ------------------------------------------------------------------------------------------------------------ who is told of


def told(gate: Gate, now: float = NOW) -> list[str]:
    return [str(one) for one in gate.troubles(now)]


@pytest.mark.parametrize(("off_s", "words"), [(-3600.0, "3600.0 s behind"), (3600.0, "3600.0 s ahead")])
def test_a_clock_that_is_an_hour_off_is_told_with_its_source(off_s: float, words: str) -> None:
    meter, first = heard(signal(0.5, source="lb-2")), []
    for n in range(TELL_AFTER + 2):
        now = NOW + n
        first.append(meter.take(signal(0.9, now + off_s, source="lb-1"), now))
        assert len(told(meter.gate, now)) == (n + 1 >= TELL_AFTER)
    assert [one is not None for one in first].index(True) == TELL_AFTER - 1
    assert sum(one is not None for one in first) == 1  # the log says it once
    count = TELL_AFTER + 2
    assert told(meter.gate, now) == [f"{count} cpu signals of lb-1 were dropped: its clock is {words}"]
    assert written(meter, now).utilisation == 0.5
    meter.take(signal(0.9, now, source="lb-1"), now)  # it was set right
    assert told(meter.gate, now) == []


def test_what_is_dropped_between_good_ones_is_told_until_it_ends() -> None:
    meter = Meter("web")
    for n in range(TELL_AFTER):
        meter.take(signal(0.5, NOW + n, source="lb"), NOW + n)
        meter.take(signal(0.5, NOW + n, source="lb"), NOW + n)
    (line,) = told(meter.gate, NOW + n)
    assert "not newer than its last (repeated, late, or two programs that use one name)" in line
    assert told(meter.gate, NOW + n + SILENT_S + 1) == []


# ---------------------------------------------------------------------------------------------------------------- properties

ANY_NUMBER = st.one_of(st.floats(), st.integers(), st.floats(0, 2))
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ANY_MOMENT = st.datetimes(timezones=OFFSETS).map(datetime.isoformat)
ANY_TIME = st.one_of(st.none(), st.floats(NOW - 8, NOW + 40).map(time_at), ANY_MOMENT)
ANY_SIGNAL: st.SearchStrategy[AnySignal] = st.one_of(
    st.builds(
        CpuSignal,
        utilisation=ANY_NUMBER,
        instances=st.none() | st.integers(),
        at=ANY_TIME,
        interval_s=ANY_NUMBER,
        source=SOURCES,
    ),
    st.builds(
        RequestsSignal,
        rate=ANY_NUMBER,
        target=st.none() | ANY_NUMBER,
        at=ANY_TIME,
        interval_s=ANY_NUMBER,
        source=SOURCES,
    ),
    st.builds(ClaimSignal, instances=st.integers() | st.integers(0, 9), at=ANY_TIME, source=SOURCES),
    st.builds(
        SessionsSignal,
        sessions=st.dictionaries(st.sampled_from(("web.1", "web.2", "17", "x")), st.integers()),
        at=ANY_TIME,
        source=SOURCES,
    ),
)


@given(
    st.lists(
        st.tuples(st.floats(0, 3), ANY_SIGNAL | st.tuples(st.sampled_from(tuple(s.SIGNALS)), st.binary(max_size=40)))
    )
)
def test_whatever_is_thrown_at_it_an_observation_fits_the_journal(
    thrown: list[tuple[float, AnySignal | tuple[str, bytes]]],
) -> None:
    """It raises nothing, and what it observes is a fact that every reader takes: finite, in its bounds, after the last one."""
    meter, now, ended = Meter("web"), NOW, 0.0
    for after_s, one in thrown:
        now += after_s
        if isinstance(one, tuple):
            try:
                one = s.decode(*one)
            except Malformed:
                continue
        meter.take(one, now)
        fact = meter.observation(now)
        if fact is None:
            continue
        fact = msgspec.structs.replace(fact, quiet=meter.quiet(("web.1", "web.2"), now))
        assert msgspec.json.decode(msgspec.json.encode(fact), type=LoadObserved) == fact
        assert fact.start <= fact.end <= now
        if fact.start < fact.end:
            assert fact.start >= ended
            assert fact.end - fact.start <= LONGEST_S + 1e-6
            ended = fact.end
        meter.observed(fact)
    counted = sum(meter.gate.taken.values()) + sum(meter.gate.dropped.values())
    assert counted == sum(not isinstance(one, tuple) for _, one in thrown) + sum(map(_is_signal, thrown))


def _is_signal(thrown: tuple[float, AnySignal | tuple[str, bytes]]) -> bool:
    """True for bytes that are a signal."""
    if not isinstance(thrown[1], tuple):
        return False
    try:
        s.decode(*thrown[1])
    except Malformed:
        return False
    return True


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[float, AnySignal]]:
    """Good signals with the moments of their arrival: each source's in order, a tenth of a second apart at least."""
    found: list[tuple[float, AnySignal]] = []
    for n in range(draw(st.integers(1, 12))):
        at, source = NOW + n * 0.1, draw(SOURCES)
        number = draw(st.integers(0, 9))
        one: AnySignal = draw(
            st.sampled_from(
                (
                    signal(number / 10, at, source=source, instances=draw(st.none() | st.integers(1, 4))),
                    requests(number * 10, at, source=source, target=draw(st.none() | st.just(50.0))),
                    claim(number, at, source),
                    sessions({"web.1": number, "web.2": 1}, at, source),
                )
            )
        )
        found.append((at, one))
    return found


def seen(arrivals: Iterable[tuple[float, AnySignal]]) -> tuple[LoadObserved | None, tuple[str, ...]]:
    meter, now = Meter("web"), NOW
    for at, one in arrivals:
        now = max(now, at)
        meter.take(one, now)
    return meter.observation(NOW + 2), meter.quiet(("web.1", "web.2"), NOW + 2)


@given(streams(), st.data())
def test_repeated_and_reordered_signals_change_nothing(
    stream: list[tuple[float, AnySignal]], data: st.DataObject
) -> None:
    """Each may come again, once or often, at any time after it came first: that is as if it had come once."""
    disturbed = list(stream)
    for one in data.draw(st.lists(st.sampled_from(stream), max_size=12)):
        first = next(place for place, other in enumerate(disturbed) if other is one)
        disturbed.insert(data.draw(st.integers(first + 1, len(disturbed))), one)
    assert seen(disturbed) == seen(stream)
