"""Queries over NATS: the table names what is answered, and parameters that do not fit are refused by name."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import orjson
import pytest

from schemas import examples, queries
from schemas.asyncapi import asyncapi
from schemas.requests import Malformed
from services.monitor.http.queries import Queries
from services.monitor.views.views import Views
from services.scheduler.edge.batch import BatchEdge
from tests.properties.test_history import Written, played

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
