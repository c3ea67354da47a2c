"""Usage as it is asked for: over NATS as over HTTP, and of a time before the cloud."""

from __future__ import annotations

import orjson

from phoenix.cli import usage as command
from services.monitor.pictures.views import Views
from services.monitor.serve.queries import Queries
from services.monitor.serve.usage_asked import usage_asked
from tests.properties.test_history import Written, played


async def test_hours_of_an_old_day_are_answered_over_nats_as_over_http() -> None:
    """Memory has that day alone; the history has its hours."""
    world = played([("long", 1, 0), ("submit", 0, 0)] * 6)
    written = Written().fold(world)
    accounting, day = written.core.accounting, 1_000_000 // 86_400 + 1
    period = day * 86_400.0, day * 86_400.0 + 3600.0
    queries = Queries(None, Views(written.core), written.history, lambda: world.now)  # type: ignore[arg-type]
    over_nats = orjson.loads(await queries._usage("hpc", {"since": period[0], "until": period[1]}))
    assert over_nats["departments"][0]["held_s"] == 3 * 3600.0
    over_http = await usage_asked(accounting, written.history, lambda: world.now, "department", "hpc", *period)
    assert over_nats == orjson.loads(orjson.dumps(over_http))
    everybody = orjson.loads(await queries._usage(None, {"department": "hpc", "since": period[0], "until": period[1]}))
    assert everybody["departments"] == over_nats["departments"]
    assert orjson.loads(await queries._usage("web", {"department": "hpc"}))["department"] == "web"
    await written.history.close()


def test_a_period_before_the_cloud_is_told_with_its_beginning() -> None:
    assert command._before({"began": 1e9}, 1e9) == "the cloud began at 2001-09-09 01:46:40 UTC"
    assert command._before({"began": 1e9}, 1e9 + 1) == command._before({"began": 1e9}, None) == ""
