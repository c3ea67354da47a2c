"""The meter: signals in, observations out; nothing absurd, late, repeated or out of order gets in."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas.signals import CpuSignal
from services.scheduler.meter import AHEAD_S, LATE_S, SILENT_S, SOURCES_MAX, Meter

NOW = 1_000_000.0


def signal(utilisation: float, at: float | None = NOW, **fields: Any) -> CpuSignal:
    return CpuSignal(utilisation=utilisation, at=at, **fields)


def observe(meter: Meter, now: float = NOW) -> tuple[float, float, float, int] | None:
    fact = meter.observation(now)
    return None if fact is None else (fact.start, fact.end, fact.utilisation, fact.samples)


def test_signals_are_averaged_over_the_time_they_measured() -> None:
    meter = Meter("web")
    assert observe(meter) is None
    meter.take(signal(1.0, NOW - 3, interval_s=1), NOW)
    meter.take(signal(0.5, NOW, interval_s=3), NOW)
    assert observe(meter) == (NOW - 4, NOW, (1.0 + 1.5) / 4, 2)


def test_an_observation_begins_where_the_last_one_ended() -> None:
    meter = Meter("web")
    meter.take(signal(1.0, interval_s=0.25), NOW)
    first = meter.observation(NOW)
    assert first is not None
    meter.observed(first)
    assert observe(meter) is None
    meter.take(signal(0.5, NOW + 0.3, interval_s=0.25), NOW + 0.3)  # the seam of 50 ms is closed
    assert observe(meter, NOW + 0.3) == (NOW, NOW + 0.3, 0.5, 1)
    meter.take(signal(0.5, NOW + 60, interval_s=0.25), NOW + 60)


def test_after_a_silence_it_begins_with_the_first_signal() -> None:
    meter = Meter("web")
    meter.take(signal(1.0), NOW)
    fact = meter.observation(NOW)
    assert fact is not None
    meter.observed(fact)
    meter.take(signal(0.5, NOW + 60), NOW + 60)
    assert observe(meter, NOW + 60) == (NOW + 59, NOW + 60, 0.5, 1)


def test_sources_that_name_their_instances_share_the_department() -> None:
    meter = Meter("web")
    meter.take(signal(1.0, source="a", instances=3), NOW)
    meter.take(signal(0.2, source="b", instances=1), NOW)
    both = meter.observation(NOW)
    assert both is not None
    assert both.utilisation == pytest.approx(0.8)
    assert both.samples == 2


@pytest.mark.parametrize(("word", "highest"), [(0.95, 0.95), (0.5, 0.8)])
def test_a_source_that_speaks_of_all_counts_if_it_is_the_highest(word: float, highest: float) -> None:
    meter = Meter("web")
    meter.take(signal(1.0, source="a", instances=3), NOW)
    meter.take(signal(0.2, source="b", instances=1), NOW)
    meter.take(signal(word, source="a person"), NOW)
    fact = meter.observation(NOW)
    assert fact is not None
    assert fact.utilisation == pytest.approx(highest)


def test_a_source_that_speaks_more_often_does_not_count_more() -> None:
    meter = Meter("web")
    for n in range(10):
        meter.take(signal(1.0, NOW - 1 + n / 10, source="fast", interval_s=0.1, instances=1), NOW)
    meter.take(signal(0.0, NOW, source="slow", instances=1), NOW)
    fact = meter.observation(NOW)
    assert fact is not None
    assert fact.utilisation == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (signal(math.nan), "not_finite"),
        (signal(math.inf), "not_finite"),
        (signal(0.5, interval_s=math.inf), "not_finite"),
        (signal(-0.1), "absurd"),
        (signal(0.5, interval_s=0.0), "absurd"),
        (signal(0.5, NOW - LATE_S - 0.1), "late"),
        (signal(0.5, NOW + AHEAD_S + 0.1), "future"),
        (signal(0.5, NOW - 1), "out_of_order"),
        (signal(0.5, NOW - 0.5), "out_of_order"),
    ],
)
def test_what_is_dropped_is_counted_by_reason(bad: CpuSignal, reason: str) -> None:
    meter = Meter("web")
    assert meter.take(signal(0.7, NOW - 0.5), NOW)
    assert not meter.take(bad, NOW)
    assert meter.dropped == {reason: 1}
    assert observe(meter) == (NOW - 1.5, NOW - 0.5, 0.7, 1)


def test_a_signal_without_time_counts_from_its_arrival() -> None:
    meter = Meter("web")
    meter.take(signal(0.7, None), NOW)
    assert observe(meter) == (NOW - 1, NOW, 0.7, 1)


def test_sources_are_bounded_and_silent_ones_make_room() -> None:
    meter = Meter("web")
    for n in range(SOURCES_MAX):
        assert meter.take(signal(0.5, source=str(n)), NOW)
    assert not meter.take(signal(0.5, source="one more"), NOW)
    assert meter.dropped == {"too_many_sources": 1}
    later = NOW + SILENT_S + 1
    assert meter.take(signal(0.5, later, source="one more"), later)
    assert list(meter.sources) == ["one more"]
