"""The gate: buckets, and what was asked recorded without flooding."""

from __future__ import annotations

import asyncio

import msgspec
import nats.errors
import pytest
from prometheus_client import CollectorRegistry

from schemas import requests as r
from schemas.audit import MESSAGE_MAX, NAMES_MAX, TEXT_MAX, AuditBatch, AuditRecord, cut
from schemas.problems import problem
from schemas.requests import Done, JobResult, JobResults
from services.admission.commands.audit_context import Asked, asking, current
from services.admission.commands.request_audit import Gate
from services.domain.refusal import Refused
from services.runtime import tokens
from services.runtime.callers import audit
from services.runtime.callers.audit import Recorder
from services.runtime.log import get_log
from services.runtime.token_bucket import Bucket, Buckets


class Desk:
    """Where the gate publishes, and its clock."""

    def __init__(self, error: Exception | None = None) -> None:
        self.now = 100.0
        self.messages: list[tuple[str, bytes]] = []
        self.error = error
        self.arrived = asyncio.Event()
        self.registry = CollectorRegistry()
        self.recorder = Recorder(self.publish, get_log(service="test"))
        self.gate = Gate(self.recorder, lambda: 5.0, self.registry, get_log(service="test"), lambda: self.now)

    async def publish(self, subject: str, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.messages.append((subject, data))
        self.arrived.set()

    async def records(self) -> list[AuditRecord]:
        await self.recorder.flush()
        return [one for _, data in self.messages for one in msgspec.json.decode(data, type=AuditBatch).records]


def asks(user: str = "ann", kind: str = "job.submit", **more: object) -> Asked:
    return Asked(kind, "http", user=user, department="hpc", role="user", peer="10.0.0.1", **more)  # type: ignore[arg-type]


def test_a_bucket_refills_at_its_rate_up_to_its_burst() -> None:
    bucket = Bucket(2.0, 3.0, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(0.5), bucket.take(0.5)] == [True, False]
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]


def test_a_bucket_says_when_there_is_enough() -> None:
    bucket = Bucket(2.0, 3.0, 0.0)
    assert bucket.wait_s(0.0, 3.0) == 0.0
    assert bucket.take(0.0, 3.0)
    assert [bucket.wait_s(0.0), bucket.wait_s(0.0, 3.0), bucket.wait_s(1.0, 3.0)] == [0.5, 1.5, 0.5]
    assert bucket.wait_s(1.0, 50.0) == 0.5  # more than it ever holds: until it is full
    assert [bucket.take(1.4, 3.0), bucket.take(1.5, 3.0)] == [False, True]


def test_the_number_of_buckets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.runtime.token_bucket.CALLERS_MAX", 2)
    buckets = Buckets(0.001, 1.0)
    first = buckets.of("a", 0.0)
    buckets.of("b", 0.0)
    assert buckets.of("a", 0.0) is first
    buckets.of("c", 0.0)
    assert buckets.of("a", 0.0) is first  # b was seen longest ago


async def test_refusals_are_recorded_at_a_bounded_rate_and_the_rest_counted() -> None:
    desk = Desk()
    refused = Refused("invalid", "m " * 2500, "tasks")
    for _ in range(int(audit.REFUSED_BURST) + 7):
        desk.gate.refused(asks(), refused)
    lines = await desk.records()
    assert len(lines) == audit.REFUSED_BURST
    assert {subject for subject, _ in desk.messages} == {"phoenix.audit.hpc.refused"}
    line = lines[0]
    assert (line.user, line.kind, line.code, line.field, line.at) == ("ann", "job.submit", "invalid", "tasks", 5.0)
    assert (line.outcome, line.via, line.peer, line.role) == ("refused", "http", "10.0.0.1", "user")
    assert len(line.message) == MESSAGE_MAX
    desk.now += 1.0
    desk.gate.refused(asks(), refused)
    assert (await desk.records())[-1].left_out == 7
    desk.gate.refused(asks(), refused)
    assert (await desk.records())[-1].left_out == 0
    assert desk.registry.get_sample_value("phoenix_requests_refused_total", {"code": "invalid"}) == 29.0


async def test_who_is_not_known_is_bounded_by_address() -> None:
    desk = Desk()
    for peer in ("10.0.0.1", "10.0.0.2"):
        for _ in range(int(audit.REFUSED_BURST) + 1):
            desk.gate.refused(Asked("POST /v1/jobs", "http", peer=peer), Refused("denied", "m"))
    lines = await desk.records()
    assert len(lines) == 2 * audit.REFUSED_BURST
    assert {subject for subject, _ in desk.messages} == {"phoenix.audit.site.refused"}


@pytest.mark.parametrize(
    "secret", ["-" + tokens.new()[1:], "ab" * 32, "S" + "UAB7" * 14 + "A"], ids=["token", "key", "seed"]
)
async def test_what_may_be_a_token_is_not_recorded_wherever_it_stands(secret: str) -> None:
    desk, beginning = Desk(), f"{secret[:4]}…"
    asked = Asked(f"GET /{secret}", "http", peer=f"{secret} by 10.0.0.1", client=f"curl/{secret}", names=(secret,))
    desk.gate.refused(asked, Refused("denied", f"Host: no name {secret!r}"))
    (line,) = await desk.records()
    assert (line.kind, line.peer) == (f"GET /{beginning}", f"{beginning} by 10.0.0.1")
    assert (line.client, line.names) == (f"curl/{beginning}", (beginning,))
    assert line.message == f"Host: no name '{beginning}'"


async def test_whose_public_key_was_refused_is_recorded() -> None:
    desk, key = Desk(), "U" + "AB7C" * 13 + "ABC"
    desk.gate.refused(asks(names=(key,)), Refused("denied", "m"))
    assert [line.names for line in await desk.records()] == [(key,)]


async def test_a_department_that_is_no_name_is_recorded_for_the_site() -> None:
    desk = Desk()
    desk.gate.refused(Asked("job.submit", "nats", user="x", department="no name"), Refused("denied", "m"))
    await desk.recorder.flush()
    assert desk.messages[0][0] == "phoenix.audit.site.refused"


async def test_what_is_unavailable_is_counted_and_not_held_against_the_caller() -> None:
    desk = Desk()
    desk.gate.refused(asks(), Refused("unavailable", "m"))
    assert await desk.records() == []
    assert desk.registry.get_sample_value("phoenix_requests_refused_total", {"code": "unavailable"}) == 1.0


async def test_what_is_refused_inside_of_a_reply_is_recorded_too_and_the_rest_as_granted() -> None:
    desk = Desk()
    refused = JobResult(job="2", error=problem("denied", "job 2 is bob's", "jobs"))
    reply = JobResults(results=(JobResult(job="1"), refused))
    told = asks(kind="job.cancel")
    told.wrote(17)
    told.done("hpc", reply)
    desk.gate.parts(told, reply)
    desk.gate.granted(told)
    desk.gate.parts(told, Done())
    lines = await desk.records()
    assert [(line.outcome, line.kind, line.names, line.code, line.position) for line in lines] == [
        ("refused", "job.cancel", ("2",), "denied", None),
        ("granted", "job.cancel", ("1",), "", 17),
    ]


async def test_a_reply_that_grants_nothing_is_not_recorded_as_granted() -> None:
    desk = Desk()
    error = problem("unknown", "m", "jobs")
    told = asks(kind="job.cancel")
    told.done("hpc", JobResults(results=(JobResult(job="2", error=error),)))
    desk.gate.granted(told)
    assert await desk.records() == []


@pytest.mark.parametrize(
    ("kind", "position", "is_told"),
    [
        ("job.submit", 5, True),
        ("job.submit", None, True),  # asked again with the same id: nothing had to be written
        ("instance.list", None, False),  # a read
        ("instance.report", None, False),  # said again
        ("instance.report", 5, True),
    ],
)
async def test_what_is_granted_is_recorded_if_it_is_a_change(kind: str, position: int | None, is_told: bool) -> None:
    desk = Desk()
    told = asks(kind=kind)
    if position is not None:
        told.wrote(position)
    told.done("hpc", Done())
    desk.gate.granted(told)
    assert [line.position for line in await desk.records()] == ([position] if is_told else [])


async def test_what_was_not_done_is_not_granted() -> None:
    """A signal that was handed on, a read that was passed on: no change of the journal's."""
    desk = Desk()
    desk.gate.granted(asks(kind="POST /v1/signals/{department}/{name}"))
    assert await desk.records() == []


async def test_granted_and_refused_have_subjects_of_their_own() -> None:
    desk = Desk()
    told = asks()
    told.done("hpc", r.Submitted(job="7"))
    desk.gate.granted(told)
    desk.gate.refused(asks(), Refused("denied", "m"))
    await desk.recorder.flush()
    assert [subject for subject, _ in desk.messages] == ["phoenix.audit.hpc.granted", "phoenix.audit.hpc.refused"]


@pytest.mark.parametrize(
    ("request_", "reply", "names"),
    [
        (r.JobSubmit(script="x"), r.Submitted(job="7"), ("7",)),
        (r.JobsNamed(jobs=("1", "2")), Done(), ("1", "2")),
        (r.HostNamed(host="h1"), Done(), ("h1",)),
        (r.LeaseNamed(lease="9"), Done(), ("9",)),
        (r.ScaleSet(minimum=3), Done(), ("web at least 3",)),
        (r.ScaleSet(exact=0, for_s=60), Done(), ("web exactly 0 for 60 s",)),
        (r.ScaleSet(auto=True), Done(), ("web auto",)),
        (r.ReleaseDeploy(), r.Deployed(release=3), ("web release 3",)),
        (r.InstanceReport(unit="web.1", attempt=1, state="drained"), Done(), ("web.1",)),
        (r.LeaseCreate(kind="immediate", duration_s=60), r.LeaseGranted(lease="4", kind="immediate", nodes=1), ("4",)),
    ],
)
def test_what_a_request_is_about(request_: r.Message, reply: r.Message, names: tuple[str, ...]) -> None:
    told = asks()
    told.read("web", request_)
    told.done("web", reply)
    assert told.names == names


def test_the_id_of_a_request_is_told() -> None:
    told = asks()
    told.read("hpc", r.JobSubmit(script="very secret", request="r-1"))
    assert told.request == "r-1"
    assert "secret" not in str(told)


async def test_what_a_task_asks_is_its_own() -> None:
    async def ask(name: str) -> Asked | None:
        with asking(asks(name)):
            await asyncio.sleep(0)
            return current()

    found = await asyncio.gather(*(ask(name) for name in ("ann", "bob", "eve")))
    assert [one.user for one in found if one is not None] == ["ann", "bob", "eve"]
    assert current() is None
    with asking(asks()):
        assert current() is not None
    assert current() is None


def test_long_lists_are_cut_and_counted() -> None:
    names, more = cut(str(number) for number in range(NAMES_MAX + 5))
    assert (len(names), more) == (NAMES_MAX, 5)
    assert cut(["x" * 500]) == (("x" * TEXT_MAX,), 0)
    assert cut([]) == ((), 0)


# ------------------------------------------------------------------------------------------------------------ the recorder


async def test_records_are_published_together() -> None:
    desk = Desk()
    for _ in range(audit.BATCH_MAX + 1):
        told = asks()
        told.done("hpc", Done())
        desk.gate.granted(told)
    assert len(await desk.records()) == audit.BATCH_MAX + 1
    assert len(desk.messages) == 2
    assert max(len(data) for _, data in desk.messages) < 64 << 10


async def test_records_are_published_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FLUSH_S", 0.0)
    desk = Desk()
    task = asyncio.create_task(desk.recorder.run())
    for count in (1, 2):
        desk.gate.refused(asks(), Refused("denied", "m"))
        async with asyncio.timeout(5):
            await desk.arrived.wait()
        desk.arrived.clear()
        assert len(desk.messages) == count
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def lost() -> float:
    registry = CollectorRegistry()
    registry.register(audit.LOST)
    return registry.get_sample_value("phoenix_audit_lost_total") or 0.0


async def test_a_broker_that_is_away_does_not_stop_the_door_and_what_is_lost_is_counted() -> None:
    desk, before = Desk(nats.errors.ConnectionClosedError()), lost()
    desk.gate.refused(asks(), Refused("denied", "m"))
    await desk.recorder.flush()
    assert lost() - before == 1


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "WAITING_MAX", 3)
    desk, before = Desk(), lost()
    for _ in range(5):
        desk.gate.refused(asks(), Refused("denied", "m"))
    assert len(await desk.records()) == 3
    assert lost() - before == 2
