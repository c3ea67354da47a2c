"""Where NATS requests come from: what the server is asked, how often, and what is made of its answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest

from schemas.audit import AuditRecord
from services.runtime.broker import whence
from services.runtime.broker.whence import ANSWER_S, ASKED_BURST, KEPT_S, OF_USER, SILENT_S, Whence, about


class Broker:
    """What is sent to it, and what it says: `test_whence_nats` asks a real one."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: list[tuple[str, str]] = []  # reply subject, whom
        self.error: Exception | None = None
        self.whence = Whence(self, lambda: self.now)  # type: ignore[arg-type]

    def new_inbox(self) -> str:
        return "_INBOX_service.admission.X"

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        if self.error is not None:
            raise self.error
        assert subject == whence.SUBJECT
        self.asked.append((reply, json.loads(data)["filter_subject"]))

    async def says(self, *connections: dict[str, Any], number: int = -1) -> None:
        data = json.dumps({"data": {"connections": list(connections), "total": 7}}).encode()
        await self.whence._answered(SimpleNamespace(subject=self.asked[number][0], data=data))  # type: ignore[arg-type]

    def told(self, peer: str, via: str = "nats") -> tuple[str, str]:
        record = AuditRecord(at=1.0, kind="job.submit", outcome="granted", via=via, peer=peer)  # type: ignore[arg-type]
        told = self.whence.told(record)
        return told.peer, told.client


HERE = {"ip": "10.0.0.1", "port": 5000, "name": "a", "lang": "go", "version": "1.2"}
THERE = {"ip": "fd00::1", "port": 6000}


@pytest.mark.parametrize(
    ("reply", "key", "subject"),
    [
        ("_INBOX_hpc.ann.abc.1", "_INBOX_hpc.ann.abc", "_INBOX_hpc.ann.abc.1"),
        ("_INBOX_hpc.ann.abc", "_INBOX_hpc.ann.abc", "_INBOX_hpc.ann.abc"),  # an inbox for each request
        ("", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
        ("_INBOX_hpc.bob.abc.1", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
        ("_INBOX_hpc.ann", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
        ("_INBOX_hpc.anna.abc.1", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
        ("_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
        ("phoenix.journal.admission", "_INBOX_hpc.ann.>", "_INBOX_hpc.ann.>"),
    ],
)
def test_only_inboxes_of_the_askers_own_are_asked_about(reply: str, key: str, subject: str) -> None:
    assert about(reply, "hpc", "ann") == (key, subject)


async def test_what_the_server_says_is_the_records_address_for_a_while() -> None:
    broker = Broker()
    key = await broker.whence.ask("_INBOX_hpc.ann.abc.1", "hpc", "ann")
    assert broker.told(key) == ("_INBOX_hpc.ann.abc", "")
    await broker.says(HERE)
    await broker.whence.settled()
    assert broker.told(key) == ("10.0.0.1:5000", "a (go 1.2)")
    assert broker.told(key, "http") == (key, "")
    await broker.whence.ask("_INBOX_hpc.ann.abc.2", "hpc", "ann")
    assert len(broker.asked) == 1
    broker.now += KEPT_S
    await broker.whence.ask("_INBOX_hpc.ann.abc.3", "hpc", "ann")
    assert broker.told(key) == (key, "")  # it may be elsewhere by now
    await broker.says({**HERE, "ip": "10.0.0.2"})
    assert broker.told(key)[0] == "10.0.0.2:5000"


async def test_of_several_servers_who_knows_of_no_connection_has_not_answered_yet() -> None:
    broker = Broker()
    key = await broker.whence.ask("_INBOX_hpc.ann.abc.1", "hpc", "ann")
    await broker.says()
    assert broker.told(key)[0] == key
    await broker.says(HERE)
    await broker.says()
    assert broker.told(key)[0] == "10.0.0.1:5000"


async def test_of_several_connections_all_are_named_and_none_says_what_program_it_was() -> None:
    broker = Broker()
    key = await broker.whence.ask("", "hpc", "ann")
    await broker.says(THERE, HERE)
    assert broker.told(key) == ("10.0.0.1:5000, [fd00::1]:6000", "")
    key = await broker.whence.ask("", "hpc", "bob")
    await broker.says(*({**HERE, "port": port} for port in range(1, 6)))
    assert broker.told(key) == ("10.0.0.1:1, 10.0.0.1:2, 10.0.0.1:3, 10.0.0.1:4, …", "")


async def test_what_nobody_answers_is_not_waited_for_again_and_nothing_more_is_asked_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whence, "ANSWER_S", 0.0)
    broker = Broker()
    key = await broker.whence.ask("_INBOX_hpc.ann.abc.1", "hpc", "ann")
    await broker.whence.settled()
    assert broker.told(key)[0] == key
    await broker.whence.ask("_INBOX_hpc.bob.abc.1", "hpc", "bob")
    assert len(broker.asked) == 1  # an older configuration denies it: a line in its log each time
    broker.now += SILENT_S
    await broker.whence.ask("_INBOX_hpc.bob.abc.1", "hpc", "bob")
    assert len(broker.asked) == 2


async def test_a_server_that_answers_is_asked_on_though_it_does_not_know_one() -> None:
    broker = Broker()
    key = await broker.whence.ask("_INBOX_hpc.ann.gone.1", "hpc", "ann")
    await broker.says()
    broker.now += ANSWER_S
    await broker.whence.ask("_INBOX_hpc.bob.abc.1", "hpc", "bob")
    await broker.says(HERE)
    await broker.whence.ask("_INBOX_hpc.ann.gone.2", "hpc", "ann")
    assert [whom for _, whom in broker.asked] == ["_INBOX_hpc.ann.gone.1", "_INBOX_hpc.bob.abc.1"]
    assert broker.told(key)[0] == key


async def test_ones_haste_leaves_the_others_their_addresses() -> None:
    broker = Broker()
    for number in range(int(ASKED_BURST)):
        await broker.whence.ask(f"_INBOX_hpc.ann.{number}.1", "hpc", "ann")
    assert len(broker.asked) == ASKED_BURST * OF_USER
    await broker.whence.ask("_INBOX_hpc.bob.abc.1", "hpc", "bob")
    assert broker.asked[-1][1] == "_INBOX_hpc.bob.abc.1"
    for number in range(int(ASKED_BURST)):
        await broker.whence.ask(f"_INBOX_hpc.u{number}.abc.1", "hpc", f"u{number}")
    assert len(broker.asked) == ASKED_BURST


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whence, "KEPT_MAX", 2)
    broker = Broker()
    keys = []
    for number in range(3):
        keys.append(await broker.whence.ask(f"_INBOX_hpc.ann.{number}.1", "hpc", "ann"))
        await broker.says(HERE)
    assert [broker.told(key)[0] == key for key in keys] == [True, False, False]


async def test_without_a_broker_and_with_answers_that_are_none_the_inbox_stays() -> None:
    broker = Broker()
    broker.error = nats.errors.OutboundBufferLimitError()
    key = await broker.whence.ask("_INBOX_hpc.ann.abc.1", "hpc", "ann")
    await broker.whence.settled()  # nothing is open
    broker.error = None
    await broker.whence.ask("_INBOX_hpc.ann.abc.1", "hpc", "ann")
    for data in (b"", b"\xff", b'{"error": {"code": 400}}', b'{"data": {"connections": [5]}}'):
        await broker.whence._answered(SimpleNamespace(subject=broker.asked[0][0], data=data))  # type: ignore[arg-type]
    await broker.whence._answered(SimpleNamespace(subject="_INBOX_service.admission.X.77", data=b"{}"))  # type: ignore[arg-type]
    assert broker.told(key)[0] == key
