"""Usage as it is asked for: over NATS as over HTTP, and of a time before the cloud."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from nats.aio.msg import Msg

from phoenix.cli import usage as command
from schemas.problems import problem
from schemas.queries import UsageAsked
from schemas.times import exact
from services.monitor.history.file import StandsStill
from services.monitor.http.queries import Queries
from services.monitor.http.usage_period import usage_asked
from services.monitor.views.views import Views
from tests.properties.test_history import Written, played


async def test_hours_of_an_old_day_are_answered_over_nats_as_over_http() -> None:
    """Memory has that day alone; the history has its hours."""
    world = played([("long", 1, 0), ("submit", 0, 0)] * 6)
    written = Written().fold(world)
    accounting, day = written.core.accounting, 1_000_000 // 86_400 + 1
    period = day * 86_400.0, day * 86_400.0 + 3600.0
    queries = Queries(None, Views(written.core), written.history, lambda: world.now)  # type: ignore[arg-type]
    times = [exact(at) for at in period]
    over_nats = orjson.loads(await queries._usage("hpc", UsageAsked(since=times[0], until=times[1])))
    assert over_nats["departments"][0]["held_s"] == 3 * 3600.0
    over_http = await usage_asked(accounting, written.history, lambda: world.now, "department", "hpc", *period)
    assert over_nats == orjson.loads(orjson.dumps(over_http))
    everybody = orjson.loads(await queries._usage(None, UsageAsked(department="hpc", since=times[0], until=times[1])))
    assert everybody["departments"] == over_nats["departments"]
    assert orjson.loads(await queries._usage("web", UsageAsked(department="hpc")))["department"] == "web"
    await written.history.close()


async def test_while_the_history_stands_still_that_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    written, sent = Written().fold(played([("long", 1, 0), ("submit", 0, 0)] * 6)), []

    async def full(*_: object) -> None:
        raise StandsStill("the disk is full")

    class Broker:
        async def publish(self, _subject: str, payload: bytes, headers: object) -> None:
            sent.append(orjson.loads(payload))

    monkeypatch.setattr(written.history, "ask", full)
    queries = Queries(None, Views(written.core), written.history)  # type: ignore[arg-type]
    asked = {
        "subject": "phoenix.query.monitor.hpc.usage",
        "reply": "_INBOX_hpc.ann.1",
        "data": b'{"since": "1970-01-14T00:00:00Z", "until": "1970-01-14T01:00:00Z"}',
    }
    await queries._answer(Msg(Broker(), **asked))  # type: ignore[arg-type]
    assert sent == [msgspec.to_builtins(problem("unavailable", "the disk is full"))]
    await written.history.close()


def test_a_period_before_the_cloud_is_told_with_its_beginning() -> None:
    assert command._before({"began": 1e9}, 1e9) == "the cloud began at 2001-09-09T01:46:40Z"
    assert command._before({"began": 1e9}, 1e9 + 1) == command._before({"began": 1e9}, None) == ""
