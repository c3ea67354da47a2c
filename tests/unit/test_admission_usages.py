"""Measures at the door: batched, bounded, and a guest that talks too much is not heard."""

from __future__ import annotations

import msgspec
import nats.errors
import pytest
from prometheus_client import CollectorRegistry

from schemas.measures import Measures, Usage
from schemas.times import exact
from services.admission.guests import usage_reports as module
from services.admission.guests.usage_reports import INTERVAL_S, Usages


class Desk:
    """A broker and a clock, and what was published."""

    def __init__(self) -> None:
        self.now, self.away = 0.0, False
        self.sent: list[tuple[str, Measures]] = []
        self.registry = CollectorRegistry()
        self.usages = Usages(self.publish, lambda: self.now, self.registry)

    async def publish(self, subject: str, data: bytes) -> None:
        if self.away:
            raise nats.errors.OutboundBufferLimitError
        self.sent.append((subject, msgspec.json.decode(data, type=Measures)))

    def counted(self, outcome: str) -> float:
        return self.registry.get_sample_value("phoenix_admission_measures_total", {"outcome": outcome}) or 0.0

    def hear(self, unit: str, utilisation: float) -> None:
        self.usages.hear(unit.partition(".")[0], (unit, 1, 0), Usage(utilisation=utilisation), 1000.0 + self.now)


async def test_what_came_since_the_last_message_goes_out_in_one_for_each_department() -> None:
    desk = Desk()
    desk.hear("web.1", 0.5)
    desk.hear("web.2", 0.7)
    desk.hear("shop.1", 0.1)
    await desk.usages.publish()
    await desk.usages.publish()
    assert [(subject, [(x.unit, x.utilisation, x.at) for x in told.instances]) for subject, told in desk.sent] == [
        ("phoenix.measure.web.instances", [("web.1", 0.5, exact(1000.0)), ("web.2", 0.7, exact(1000.0))]),
        ("phoenix.measure.shop.instances", [("shop.1", 0.1, exact(1000.0))]),
    ]


async def test_a_guest_that_speaks_too_often_is_not_heard_and_counted() -> None:
    desk = Desk()
    desk.hear("web.1", 0.5)
    desk.now = INTERVAL_S / 2
    desk.hear("web.1", 0.9)
    await desk.usages.publish()
    desk.now = INTERVAL_S
    desk.hear("web.1", 0.6)
    await desk.usages.publish()
    assert [told.instances[0].utilisation for _, told in desk.sent] == [0.5, 0.6]
    assert (desk.counted("taken"), desk.counted("too_often")) == (2, 1)


async def test_all_of_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 2)
    monkeypatch.setattr(module, "SPOKE_MAX", 2)
    desk = Desk()
    for number in range(1, 5):
        desk.hear(f"web.{number}", 0.5)
    await desk.usages.publish()
    assert len(desk.sent[0][1].instances) == 2
    assert desk.counted("too_many") == 2


async def test_a_broker_that_is_away_loses_measures_and_nothing_else() -> None:
    desk = Desk()
    desk.away = True
    desk.hear("web.1", 0.5)
    await desk.usages.publish()
    assert desk.counted("lost") == 1
    desk.away, desk.now = False, 1.0
    desk.hear("web.1", 0.6)
    await desk.usages.publish()
    assert desk.sent[0][1].instances[0].utilisation == 0.6
