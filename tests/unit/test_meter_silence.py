"""No observation spans a silence, or more than the rule looks at."""

from __future__ import annotations

import msgspec
import pytest

from schemas.config import WebPolicy
from services.scheduler.meter.meter import HELD_S, LONGEST_S, Meter, longest_s
from services.scheduler.meter.signal_filter import TELL_AFTER
from tests.unit.test_web_meter import NOW, heard, observe, requests, signal, written


def test_after_a_silence_it_begins_with_the_first_signal() -> None:
    meter = heard(signal(1.0))
    written(meter)
    meter.take(signal(0.5, NOW + 60), NOW + 60)
    assert observe(meter, NOW + 60) == (NOW + 59, NOW + 60, 0.5, 1)


def test_what_one_source_counted_through_a_silence_does_not_stretch_what_another_measured() -> None:
    """Half a second of CPU would be journaled as 20 s of it, and decide at once."""
    meter = heard(signal(0.3), requests(10))
    written(meter)
    back = NOW + 20
    meter.take(requests(10, back, interval_s=20), back)
    meter.take(signal(1.0, back, interval_s=0.5), back)
    assert observe(meter, back) == (back - 0.5, back, 1.0, 2)


def test_what_was_heard_before_a_silence_and_not_observed_yet_is_given_up() -> None:
    meter = heard(signal(1.0, NOW - 1))
    meter.take(signal(1.0, NOW - 0.5, interval_s=0.5), NOW - 0.5)
    back = NOW + 20
    meter.take(signal(0.2, back, interval_s=0.5), back)
    assert observe(meter, back) == (back - 0.5, back, 0.2, 1)


def test_what_could_not_be_written_for_longer_than_the_window_is_given_up() -> None:
    meter = Meter("web")
    for n in range(22):  # every second, and none is observed
        meter.take(signal(0.5, NOW + n), NOW + n)
    assert observe(meter, NOW + 21) == (NOW + 19, NOW + 21, 0.5, 2)


@pytest.mark.parametrize(("interval_s", "counts"), [(5.0, True), (5.1, False)])
def test_who_measures_for_longer_than_the_window_is_dropped_and_told_what_would_be_right(
    interval_s: float, counts: bool
) -> None:
    meter = Meter("web")
    meter.longest_s = 5.0
    for n in range(TELL_AFTER):
        trouble = meter.take(signal(0.9, NOW + n * 9, interval_s=interval_s, source="slow"), NOW + n * 9)
        assert (meter.observation(NOW + n * 9) is not None) == counts
    if not counts:
        assert meter.gate.dropped == {("cpu", "too_long"): TELL_AFTER}
        assert str(trouble).endswith("longer than the department's rule looks at (interval_s is 5.1, at most 5 counts)")


def test_how_long_an_observation_may_be() -> None:
    threshold = WebPolicy(rule="threshold", window_s=30.0)
    assert longest_s(threshold) == 30.0
    assert longest_s(msgspec.structs.replace(threshold, window_s=1.0)) == HELD_S
    assert longest_s(msgspec.structs.replace(threshold, rule="target-tracking")) == LONGEST_S
