"""The meter: what one user says changes neither what another has said nor its room, and what cannot be does not count."""

from __future__ import annotations

import pytest

from services.scheduler.web.meter import Meter
from services.scheduler.web.meter_gate import SOURCES_MAX
from tests.unit.test_web_meter import NOW, fact_of, signal


def test_no_user_speaks_for_another_or_takes_its_room() -> None:
    """Whatever it calls itself: the user is the broker's word."""
    meter = Meter("web")
    meter.take(signal(0.9, NOW - 1, source="lb", instances=1), NOW, "lb")
    for n in range(SOURCES_MAX + 1):
        meter.take(signal(0.1, source=str(n) if n else "lb", instances=1), NOW, "wendy")
    meter.take(signal(0.9, source="lb", instances=1), NOW, "lb")
    assert meter.gate.dropped == {("cpu", "too_many_sources"): 1}
    assert fact_of(meter).utilisation == pytest.approx((0.9 + SOURCES_MAX * 0.1) / (SOURCES_MAX + 1))
