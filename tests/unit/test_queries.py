"""Queries over NATS: the table names what is answered, and parameters that do not fit are refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import orjson
import pytest

from schemas import examples, queries
from schemas import facts as f
from schemas.asyncapi import asyncapi
from schemas.requests import Malformed
from schemas.signal_drops import Drop
from schemas.start_estimate import JobsAsked
from schemas.times import exact
from services.monitor.http.queries import Queries
from services.monitor.views.views import Views
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.edge.web import WebEdge
from services.scheduler.meter.signal_filter import TELL_AFTER
from tests.properties.test_history import Written, played
from tests.support.scheduling import cluster, core
from tests.support.strict import strict
from tests.support.world import World, cloud, web

ASYNCAPI: dict[str, Any] = asyncapi()
WRONG: list[tuple[type[msgspec.Struct], bytes, str | None]] = [
    (queries.QueueAsked, b'{"limit": "ten"}', "limit"),
    (queries.QueueAsked, b'{"limit": -1}', "limit"),
    (queries.JobAsked, b"", "job"),
    (queries.JobAsked, b'{"job": 17}', "job"),
    (queries.StartAsked, b'{"jobs": "17"}', "jobs"),
    (queries.UsageAsked, b'{"by": "host"}', "by"),
    (queries.UsageAsked, b'{"since": "soon"}', "since"),
    (queries.UsageAsked, b'{"until": 1e300}', "until"),
    (queries.UsageAsked, b"[]", None),
    (queries.AllOfIt, b"{", None),
]


@pytest.mark.parametrize(("asked", "payload", "field"), WRONG)
def test_parameters_that_do_not_fit_are_refused_by_name(
    asked: type[msgspec.Struct], payload: bytes, field: str | None
) -> None:
    with pytest.raises(Malformed) as caught:
        queries.decode(payload, asked)
    assert caught.value.field == field


@pytest.mark.parametrize("query", queries.QUERIES, ids=lambda query: f"{query.service}.{query.name}")
def test_examples_are_read_and_fields_of_newer_versions_are_ignored(query: queries.Query) -> None:
    example = examples.QUERIES[f"{query.service}.{query.name}"]
    assert type(example) is query.asked
    sent = {**msgspec.to_builtins(example), "from_the_future": 1}
    assert queries.decode(msgspec.json.encode(sent), query.asked) == example


def test_the_table_names_the_queries_of_a_scheduler() -> None:
    assert {*BatchEdge("hpc")._queries, "troubles"} == set(queries.NAMES["scheduler"])


async def test_the_monitor_answers_every_query_of_the_table_and_no_other() -> None:
    world = played([("long", 1, 0), ("submit", 0, 0)] * 6)
    written = Written().fold(world)
    asked = Queries(None, Views(written.core), written.history, lambda: world.now)  # type: ignore[arg-type]

    async def ask(what: str, parameters: Any) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(await asked._render(what, "hpc", msgspec.json.encode(parameters)))
        return found

    job = next(iter(written.core.custody.state.units))
    for name in queries.NAMES["monitor"]:
        example = queries.JobAsked(job=job) if name == "job" else examples.QUERIES[f"monitor.{name}"]
        answer = await ask(name, example)
        assert "type" not in answer, f"{name}: {answer}"
        reply = ASYNCAPI["components"]["messages"][f"query.monitor.{name}.reply"]["payload"]
        jsonschema.Draft7Validator({**reply, "components": ASYNCAPI["components"]}).validate(answer)
    unknown = await ask("nonsense", {})
    assert unknown["code"] == "unknown"
    assert all(name in unknown["detail"] for name in queries.NAMES["monitor"])
    assert (await ask("job", {"job": "999"}))["field"] == "job"
    assert len((await ask("queue", {"limit": 1}))["jobs"]) == 1 < len((await ask("queue", {}))["jobs"])
    await written.history.close()


def hpc() -> tuple[World, BatchEdge]:
    """A host on which a job runs, and what waits behind it."""
    world = cluster(1)
    world.submit(cores=4, walltime_s=60.0)
    world.settle()
    world.submit(cores=4)
    world.submit(cores=4, priority=3)
    edge = BatchEdge("hpc")
    edge.service = SimpleNamespace(core=core(world), now=lambda: world.now)  # type: ignore[assignment]
    return world, edge


def shop() -> WebEdge:
    """A department whose load cannot be read."""
    world = World(cloud(web("web")))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    edge = WebEdge("web")
    edge.service = SimpleNamespace(core=world.seats["scheduler.web"].core, now=lambda: world.now)  # type: ignore[assignment]
    for _ in range(TELL_AFTER):
        edge.meter.gate.drop("cpu", Drop.MALFORMED, world.now, user="lb", note="at: no time")
    return edge


def wrong(name: str, answer: bytes) -> list[str]:
    """What of an answer the document does not say."""
    reply = ASYNCAPI["components"]["messages"][f"query.scheduler.{name}.reply"]["payload"]
    check = jsonschema.Draft7Validator(strict({**reply, "components": ASYNCAPI["components"]}))
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
        for error in check.iter_errors(orjson.loads(answer))
    ]


async def test_a_batch_scheduler_answers_as_the_document_says_and_says_no_more() -> None:
    world, edge = hpc()
    asked = f.JobSubmitted(job="9", dept="hpc", user="ann", name="x", payload="", cores=4, walltime_s=60.0)
    parameters = {"why": queries.WhyAsked(job="2"), "whatif": JobsAsked(jobs=[asked, asked])}
    found: dict[str, dict[str, Any]] = {}
    for name in edge._queries:
        answer = await edge.answered(name, msgspec.json.encode(parameters.get(name, queries.AllOfIt())))
        assert wrong(name, answer) == []
        found[name] = orjson.loads(answer)
    assert [row["unit"] for row in found["queue"]["queue"]] == ["3", "2"]
    assert found["start"]["at"] == found["whatif"]["at"] == exact(world.now)
    assert found["start"]["starts"]["3"]["start_at"] == exact(world.now + 60.0)
    assert found["whatif"]["found"][0]["first"]["start_at"] > found["start"]["starts"]["3"]["start_at"]
    assert set(found["reasons"]["reasons"]) == {"2", "3"}


def test_a_web_scheduler_answers_as_the_document_says_and_says_no_more() -> None:
    edge = shop()
    found = {name: edge.render(name) for name in ("why", "queue", "troubles")}
    assert {name: wrong(name, answer) for name, answer in found.items()} == {name: [] for name in found}
    assert [reason["code"] for reason in orjson.loads(found["troubles"])["troubles"]] == ["signals_dropped"]
    assert wrong("troubles", b'{"troubles": [], "more": 1}') != []
