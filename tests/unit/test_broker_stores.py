"""A broker that has stopped writing: what its health check says, and when it is started again."""

from __future__ import annotations

from types import SimpleNamespace

import orjson
import pytest

from phoenix.local import supervisor_broker
from phoenix.local.supervisor_broker import (
    ASK_S,
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    ROOM_BYTES,
    SETTLED_S,
    BrokerProbe,
    Restarts,
    complaint,
)
from phoenix.local.supervisor_watch import SILENT_S, TICK_S
from schemas.config import CloudConfig
from services.runtime.broker import stores
from services.runtime.config.tables import Config


def answer(*errors: dict[str, str]) -> bytes:
    return orjson.dumps({"server": {"name": "n"}, "data": {"status": "error", "errors": list(errors)}})


def test_streams_that_are_written_no_more_are_named_with_the_systems_error() -> None:
    told = "JetStream stream '$G > PHOENIX' write error: write /d/1.blk: no space left on device"
    behind = {"type": "STREAM", "account": "$G", "stream": "EVENTS", "error": "stream '$G > EVENTS' is not current"}
    found = stores.read([answer(behind, {"type": "STREAM", "stream": "PHOENIX", "error": told}), answer()])
    assert found == {"PHOENIX": "no space left on device"}


def test_a_healthy_broker_has_none() -> None:
    assert stores.read([b'{"server": {}, "data": {"status": "ok", "status_code": 200}}']) == {}


@pytest.mark.parametrize("said", [b"", b"\xff", b"[]", b'{"data": 3}'])
def test_an_answer_that_cannot_be_read_is_no_health(said: bytes) -> None:
    with pytest.raises(TimeoutError):
        stores.read([said])


def test_without_room_nothing_is_started_again() -> None:
    restarts = Restarts()
    assert not restarts.is_due(ROOM_BYTES - 1, 0.0)
    assert restarts.is_due(ROOM_BYTES, 0.0)


def test_a_restart_that_did_not_help_waits_twice_as_long_each_time() -> None:
    restarts, now, pauses = Restarts(), 0.0, []
    for _ in range(9):
        restarts.done(now)
        began = now
        while not restarts.is_due(ROOM_BYTES, now):
            now += 1.0
        pauses.append(now - began)
    assert pauses[:3] == [PAUSE_FIRST_S, PAUSE_FIRST_S * 2, PAUSE_FIRST_S * 4]
    assert pauses[-1] == PAUSE_MAX_S
    restarts.done(now + SETTLED_S + 1)
    assert restarts.is_due(ROOM_BYTES, now + SETTLED_S + 1 + PAUSE_FIRST_S)


def test_the_complaint_says_what_to_do() -> None:
    stopped = {"PHOENIX": "no space left on device"}
    assert complaint(stopped, 3 << 20) == (
        "nothing more is written to PHOENIX (no space left on device); "
        "3 MiB are free: free more space, and with 16 MiB it is started again by itself"
    )
    assert "free more space" not in complaint(stopped, ROOM_BYTES)


class Broker:
    """What a probe finds, and when it looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.greets, self.free, self.asked = 1000.0, True, ROOM_BYTES - 1, 0
        self.stopped: dict[str, str] | None = {}  # None: it does not say
        monkeypatch.setattr(supervisor_broker, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(stores, "stopped", self._stopped)
        monkeypatch.setattr(supervisor_broker, "_free_bytes", lambda _: self.free)
        monkeypatch.setattr(supervisor_broker, "listens", lambda *_: self._greets)
        self.probe = BrokerProbe(Config(cloud=CloudConfig(name="c", departments=())))

    async def _greets(self) -> bool:
        return self.greets

    async def _stopped(self, config: Config, *, servers: int) -> dict[str, str]:
        self.asked += 1
        if self.stopped is None:
            raise TimeoutError
        return self.stopped

    async def look(self, after_s: float = ASK_S) -> bool:
        self.now += after_s
        return await self.probe()


async def test_it_is_stuck_once_there_is_room_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch)
    assert await broker.look()
    assert (broker.probe.ailing, broker.probe.stuck) == ([], "")
    broker.stopped = {"PHOENIX": "no space left on device"}
    assert await broker.look()
    assert "free more space" in broker.probe.ailing[0]
    assert broker.probe.stuck == ""
    broker.free = ROOM_BYTES
    await broker.look()
    assert broker.probe.stuck == broker.probe.ailing[0] != ""
    broker.probe.started()
    assert broker.probe.stuck == ""
    await broker.look()
    assert broker.probe.stuck == ""  # the next restart waits
    await broker.look(PAUSE_FIRST_S)
    assert broker.probe.stuck != ""
    broker.stopped = {}
    await broker.look()
    assert broker.probe.ailing == []


async def test_what_cannot_be_asked_is_no_evidence_and_it_is_asked_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch)
    broker.stopped, broker.free = None, ROOM_BYTES
    assert await broker.look()
    assert (broker.probe.ailing, broker.probe.stuck) == ([], "")
    assert await broker.look(ASK_S / 2)
    assert broker.asked == 1
    assert await broker.look(ASK_S / 2)
    assert broker.asked == 2


async def test_one_that_greets_nobody_any_more_hangs_and_one_that_has_not_yet_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(monkeypatch)
    for greeted_before, stuck in ((False, ""), (True, f"does not answer for {SILENT_S:.0f} s")):
        broker.greets = greeted_before
        assert await broker.look() is greeted_before
        broker.greets = False
        for _ in range(int(SILENT_S / TICK_S) + 1):
            assert broker.probe.stuck == ""
            assert not await broker.look(TICK_S)
        assert broker.probe.stuck == stuck
