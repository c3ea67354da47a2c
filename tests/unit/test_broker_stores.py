"""A broker that has stopped writing: what its health check says, and when it is started again."""

from __future__ import annotations

import orjson
import pytest

from phoenix.local.supervisor_broker import PAUSE_FIRST_S, PAUSE_MAX_S, ROOM_BYTES, SETTLED_S, Restarts, complaint
from services.runtime.broker import stores


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
        "nothing is written any more to PHOENIX (no space left on device); "
        "3 MiB are free: make room, and with 16 MiB it is started again by itself"
    )
    assert "make room" not in complaint(stopped, ROOM_BYTES)
