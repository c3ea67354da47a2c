"""Every example of the public documents is what its schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from schemas import generate
from services.admission.http import openapi

OPENAPI = json.loads(openapi.document())
ASYNCAPI = json.loads(generate.render(generate.documents()["asyncapi.json"]))


def found(part: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where, the schema, and an example of it: of a body or parameter, or of a schema itself."""
    if isinstance(part, list):
        for number, one in enumerate(part):
            yield from found(one, f"{place}/{number}")
    if not isinstance(part, dict):
        return
    shown, schema = part.get("examples"), part.get("schema", part)
    if "schema" in part and "example" in part:
        yield place, schema, part["example"]
    if isinstance(shown, dict) and "schema" in part:
        yield from ((f"{place}/{name}", schema, one["value"]) for name, one in shown.items())
    if isinstance(shown, list):
        yield from ((place, schema, one) for one in shown)
    for name, one in part.items():
        if name not in ("example", "examples", "default", "enum"):
            yield from found(one, f"{place}/{name}")


EXAMPLES = list(found(OPENAPI))
MESSAGES = {
    name: (message["payload"], message["examples"][0]["payload"])
    for name, message in ASYNCAPI["components"]["messages"].items()
    if "examples" in message
}


@cache
def validator(text: str, of: str) -> Any:
    """OpenAPI 3.1 has schemas of draft 2020-12, AsyncAPI 3.0 of draft 7."""
    if of == "openapi":
        return Draft202012Validator({**json.loads(text), "components": OPENAPI["components"]})
    return Draft7Validator({"allOf": [json.loads(text)], "components": ASYNCAPI["components"]})


def wrong(schema: Any, example: Any, of: str) -> list[str]:
    return [error.message for error in validator(json.dumps(schema), of).iter_errors(example)]


def test_every_example_of_openapi_is_valid() -> None:
    assert len(EXAMPLES) > 100
    assert {place: said for place, schema, one in EXAMPLES if (said := wrong(schema, one, "openapi"))} == {}


def test_every_example_of_asyncapi_is_valid() -> None:
    assert len(MESSAGES) > 60
    assert {name: said for name, (schema, one) in MESSAGES.items() if (said := wrong(schema, one, "asyncapi"))} == {}


@pytest.mark.parametrize("place", ["/paths//v1/jobs/post/requestBody", "/paths//v1/jobs/post/responses/200"])
def test_an_example_that_is_not_is_found(place: str) -> None:
    (schema, example), *_ = [(schema, one) for where, schema, one in EXAMPLES if where.startswith(place)]
    assert wrong(schema, {**example, "name": 1, "units": "many"}, "openapi")
