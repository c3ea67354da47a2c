"""The gate: buckets, and refusals that are recorded without flooding."""

from __future__ import annotations

import msgspec
import nats.errors
import pytest
from prometheus_client import CollectorRegistry

from schemas.requests import Done, Error, JobResult, JobResults
from services.admission import gate
from services.admission.gate import Buckets, Gate
from services.runtime.bucket import Bucket
from services.runtime.edge import Refused
from services.runtime.log import get_log


class Desk:
    """Where the gate publishes, and its clock."""

    def __init__(self, error: Exception | None = None) -> None:
        self.now = 100.0
        self.lines: list[tuple[str, gate.Refusal]] = []
        self.error = error
        self.registry = CollectorRegistry()
        self.gate = Gate(self.publish, lambda: 5.0, get_log(service="test"), self.registry, lambda: self.now)

    async def publish(self, subject: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.lines.append((subject, msgspec.json.decode(data, type=gate.Refusal)))


def test_a_bucket_refills_at_its_rate_up_to_its_burst() -> None:
    bucket = Bucket(2.0, 3.0, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(0.5), bucket.take(0.5)] == [True, False]
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "CALLERS_MAX", 2)
    buckets = Buckets(0.001, 1.0)
    first = buckets.of("a", 0.0)
    buckets.of("b", 0.0)
    assert buckets.of("a", 0.0) is first
    buckets.of("c", 0.0)
    assert buckets.of("a", 0.0) is first  # b was seen longest ago


def test_one_caller_cannot_take_anothers_share() -> None:
    desk = Desk()
    for _ in range(int(gate.BURST)):
        desk.gate.admit("ann")
    with pytest.raises(Refused) as error:
        desk.gate.admit("ann")
    assert error.value.code == "limit"
    desk.gate.admit("bob")
    desk.now += 1.0
    desk.gate.admit("ann")


async def test_refusals_are_recorded_at_a_bounded_rate_and_the_rest_counted() -> None:
    desk = Desk()
    refused = Refused("invalid", "m" * 5000, "tasks")
    for _ in range(int(gate.AUDIT_BURST) + 7):
        await desk.gate.record("ann", "hpc", "job.submit", refused)
    assert len(desk.lines) == gate.AUDIT_BURST
    subject, line = desk.lines[0]
    assert subject == "phoenix.audit.hpc"
    assert (line.who, line.what, line.code, line.field, line.at) == ("ann", "job.submit", "invalid", "tasks", 5.0)
    assert len(line.message) == gate.MESSAGE_MAX
    desk.now += 1.0
    await desk.gate.record("ann", "hpc", "job.submit", refused)
    assert desk.lines[-1][1].left_out == 7
    assert desk.registry.get_sample_value("phoenix_requests_refused_total", {"code": "invalid"}) == 28.0


async def test_a_department_that_is_no_name_is_recorded_for_the_site() -> None:
    desk = Desk()
    await desk.gate.record("x", "no name", "job.submit", Refused("denied", "m"))
    assert desk.lines[0][0] == "phoenix.audit.site"


async def test_what_is_unavailable_is_counted_and_not_held_against_the_caller() -> None:
    desk = Desk()
    await desk.gate.record("ann", "hpc", "job.submit", Refused("unavailable", "m"))
    assert desk.lines == []
    assert desk.registry.get_sample_value("phoenix_requests_refused_total", {"code": "unavailable"}) == 1.0


async def test_a_broker_that_is_away_does_not_stop_the_door() -> None:
    desk = Desk(nats.errors.ConnectionClosedError())
    await desk.gate.record("ann", "hpc", "job.submit", Refused("denied", "m"))


async def test_what_is_refused_inside_of_a_reply_is_recorded_too() -> None:
    desk = Desk()
    refused = JobResult(job="2", ok=False, error=Error(code="denied", field="jobs", message="job 2 is bob's"))
    await desk.gate.record_parts("ann", "hpc", "job.cancel", JobResults(results=(JobResult(job="1", ok=True), refused)))
    await desk.gate.record_parts("ann", "hpc", "scale.set", Done())
    assert [(line.who, line.what, line.code, line.message) for _, line in desk.lines] == [
        ("ann", "job.cancel", "denied", "job 2 is bob's")
    ]
