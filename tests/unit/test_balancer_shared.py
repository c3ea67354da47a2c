"""What all load balancers share: events and audits as they come, measures, reports that are said until they are heard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
import nats.errors
import pytest
from nats.aio.client import Client

from phoenix.balance import reporter
from phoenix.balance.account import Account
from phoenix.balance.feed import Feed, Listed
from phoenix.balance.reporter import Reporter
from phoenix.balance.utilisation import STALE_S, Usages
from schemas.measures import Measured, Measures
from schemas.problems import problem
from schemas.times import exact

ACCOUNT = Account(department="web", user="lb", nats_url="nats://unused", inbox_prefix="_INBOX_web.lb")


class Table:
    """A table that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def began(self, unit: str, attempt: int, addresses: Iterable[str | None], now: float) -> None:
        self.told.append(("began", unit, attempt, tuple(addresses), now))

    def draining(self, unit: str, attempt: int, until: float | None, now: float) -> None:
        self.told.append(("draining", unit, attempt, until, now))

    def closed(self, unit: str, attempt: int, now: float) -> None:
        self.told.append(("closed", unit, attempt, now))

    def audited(self, listed: Sequence[Listed], asked_at: float, now: float) -> None:
        self.told.append(("audited", [one.unit for one in listed], asked_at, now))


def event(kind: str, **fact: Any) -> tuple[str, bytes]:
    return f"phoenix.event.web.{kind}", msgspec.json.encode({"kind": kind, "fact": fact, "position": 1})


def test_the_feed_tells_its_table_what_events_say_and_passes_over_what_it_cannot_read() -> None:
    table, changes = Table(), []
    feed = Feed(ACCOUNT, table, lambda: changes.append(1))
    feed.hear(*event("attempt.began", unit="web.1", attempt=1, addresses=["127.0.0.1:1"]), 1.0)
    feed.hear(*event("instance.draining", unit="web.1", attempt=1, until=77.0, reason={"code": "scale_down"}), 2.0)
    feed.hear("phoenix.event.web.attempt.closed", b"{", 3.0)
    feed.hear(*event("attempt.closed", unit="web.1", attempt=1), 4.0)
    assert table.told == [
        ("began", "web.1", 1, ("127.0.0.1:1",), 1.0),
        ("draining", "web.1", 1, 77.0, 2.0),
        ("closed", "web.1", 1, 4.0),
    ]
    assert len(changes) == 3


def test_an_audit_brings_instances_and_the_departments_wishes() -> None:
    table = Table()
    feed = Feed(ACCOUNT, table, lambda: None)
    ended = {"unit": "web.2", "attempt": 1, "state": "draining", "address": None}
    long = {"unit": "web.3", "attempt": 1, "state": "running", "address": "x" * 300}
    serving = {"unit": "web.1", "attempt": 1, "state": "running", "address": "127.0.0.1:1", "cores": 2, "host": "h"}
    answer = {
        "instances": [serving, ended, long],
        "drain_s": 3.0,
        "health_path": "/x",
    }
    feed.answered(msgspec.json.encode(answer), 1.0, 1.1)
    assert table.told == [("audited", ["web.1", "web.2"], 1.0, 1.1)]
    assert (feed.wishes.drain_s, feed.wishes.health_path) == (3.0, "/x")
    with pytest.raises(ValueError, match="ann may not see web"):
        feed.answered(msgspec.json.encode(problem("denied", "ann may not see web")), 2.0, 2.1)
    with pytest.raises(msgspec.DecodeError):
        feed.answered(b"{}", 2.0, 2.1)
    assert Listed(unit="web.2", attempt=1, state="draining").is_over
    assert not Listed(unit="web.2", attempt=1, state="draining", address="h:1").is_over


async def test_the_list_is_asked_for_as_soon_as_an_instance_is_placed_and_when_it_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("phoenix.balance.feed.AUDIT_SOON_S", 0.0)
    monkeypatch.setattr("phoenix.balance.feed.AUDIT_INTERVAL_S", 1e6)
    feed, asked = Feed(ACCOUNT, Table(), lambda: None), asyncio.Semaphore(0)

    class Lists:
        async def request(self, *_: object, **__: object) -> Any:
            asked.release()
            return type("Answer", (), {"data": b'{"instances": []}'})

    task = asyncio.create_task(feed.audit(cast("Client", Lists())))
    await asyncio.wait_for(asked.acquire(), 30)
    for kind in ("unit.placed", "attempt.began"):
        event = {"kind": kind, "fact": {"unit": "web.1", "attempt": 1, "addresses": ["127.0.0.1:1"]}}
        feed.hear("s", msgspec.json.encode(event), 1.0)
        await asyncio.wait_for(asked.acquire(), 30)
    task.cancel()


def measures(**utilisation: float) -> bytes:
    found = (Measured(unit=f"web.{n[1:]}", attempt=1, utilisation=u, at=exact(0.0)) for n, u in utilisation.items())
    return msgspec.json.encode(Measures(instances=tuple(found)))


def test_the_mean_is_weighed_by_cores_and_silence_is_not_idleness() -> None:
    usages = Usages()
    one, two, three = (("web.1", 1, 0), 1.0), (("web.2", 1, 0), 3.0), (("web.3", 1, 0), 1.0)
    assert usages.mean([one, two, three], 0.0) is None
    usages.hear(measures(n1=1.0, n2=0.0), 10.0)
    reading = usages.mean([one, two, three], 10.0)
    assert reading is not None
    assert (reading.utilisation, reading.instances) == (0.25, 2)
    usages.hear(b"rubbish", 10.5)
    usages.hear(measures(n2=0.5), 10.0 + STALE_S)
    late = usages.mean([one, two], 10.1 + STALE_S)
    assert late is not None
    assert (late.utilisation, late.instances) == (0.5, 1)
    usages.forget_stale(10.1 + STALE_S)
    assert usages.of(one[0], 10.0) is None
    assert usages.of(("web.2", 2, 0), 10.1 + STALE_S) is None  # another attempt is another program


class Door:
    """Answers as it is told; then not at all."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.enough = asyncio.Event()

    async def request(self, subject: str, payload: bytes, timeout: float, headers: dict[str, str]) -> Any:  # noqa: ASYNC109
        assert subject == "phoenix.request.web.lb.instance.report"
        self.asked.append(msgspec.json.decode(payload))
        answer = self.answers.pop(0)
        if not self.answers:
            self.enough.set()
        if answer is None:
            raise nats.errors.TimeoutError
        return type("Answer", (), {"data": msgspec.json.encode(answer)})


async def said(door: Door, *reports: tuple[str, str]) -> list[tuple[str, str]]:
    speaker = Reporter(ACCOUNT)
    for unit, state in reports:
        speaker.say(unit, 1, cast("Any", state), "because")
    task = asyncio.create_task(speaker.run(cast("Client", door)))
    await asyncio.wait_for(door.enough.wait(), 30)
    task.cancel()
    return [(one["unit"], one["state"]) for one in door.asked]


async def test_a_report_is_said_until_the_door_has_answered_for_good() -> None:
    busy = msgspec.to_builtins(problem("unavailable", "come back"))
    assert await said(Door(None, busy, {"ok": True}), ("web.1", "drained")) == [("web.1", "drained")] * 3
    refused = msgspec.to_builtins(problem("conflict", "it is over"))
    assert await said(Door(refused, {"ok": True}), ("web.1", "drained"), ("web.2", "drained")) == [
        ("web.1", "drained"),
        ("web.2", "drained"),
    ]


async def test_what_an_instance_answered_is_told_in_one_line() -> None:
    """The door refuses control characters and marks of direction: the instance would never be replaced."""
    door = Door({"ok": True})
    speaker = Reporter(ACCOUNT)
    speaker.say("web.1", 1, "unready", "health check:\r\n\x1b[31m200 \u202emaybe\n")
    task = asyncio.create_task(speaker.run(cast("Client", door)))
    await asyncio.wait_for(door.enough.wait(), 30)
    task.cancel()
    assert door.asked[0]["why"] == "health check: [31m200  maybe"


async def test_a_door_that_is_behind_the_events_is_told_again_that_an_instance_has_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "RETRY_S", 0.0)
    behind = msgspec.to_builtins(problem("conflict", "web.1 does not drain", "state"))
    assert await said(Door(behind, behind, {"ok": True}), ("web.1", "drained")) == [("web.1", "drained")] * 3
    told = await said(Door(*[behind] * reporter.TRIES_MAX), ("web.1", "drained"))
    assert len(told) == reporter.TRIES_MAX  # and no more


async def test_the_last_word_counts_and_the_same_is_not_said_twice() -> None:
    assert await said(Door({"ok": True}), ("web.1", "unready"), ("web.1", "ready")) == [("web.1", "ready")]
    speaker = Reporter(ACCOUNT)
    assert speaker.say("web.1", 1, "unready")
    assert not speaker.say("web.1", 1, "unready")
    assert speaker.say("web.1", 1, "ready")
    assert speaker.said("web.1", 1) == "ready"
    assert speaker.said("web.1", 2) is None


def test_another_answer_is_news_after_a_while() -> None:
    """A program that answers by an error and not at all in turn is no news each time."""
    now = 0.0
    speaker = Reporter(ACCOUNT, lambda: now)
    assert speaker.say("web.1", 1, "unready", "/healthz: no answer within 2 s")
    now = 9.9
    assert not speaker.say("web.1", 1, "unready", "/healthz answered HTTP 500")
    now = 10.0
    assert speaker.say("web.1", 1, "unready", "/healthz answered HTTP 500")
