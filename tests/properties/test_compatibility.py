"""The check of compatible documents (`tests/contracts/compatibility.py`).

K1  A document does not differ from itself.
K2  Without any of its operations or fields a document breaks programs, and the place is named.
K3  A value that was taken and is refused now comes with a breaking difference.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.contracts.changes import Class, Found, Schemas
from tests.contracts.compatibility import differences, present

NAMES = ("a", "b", "c")
Schema = dict[str, Any]


def structs(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.builds(
        lambda fields, needed, closed: {
            "type": "object",
            "properties": fields,
            "required": sorted(fields.keys() & needed),
            **({"additionalProperties": False} if closed else {}),
        },
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        st.sets(st.sampled_from(NAMES)),
        st.booleans(),
    )


def bounded(type_: str, low: str, high: str) -> st.SearchStrategy[Schema]:
    number = st.integers(0, 4)
    return st.builds(
        lambda lower, upper: {"type": type_, low: lower, high: lower + upper}, number, number
    ) | st.sampled_from([{"type": type_}, {"type": type_, low: 2}, {"type": type_, high: 2}])


LEAVES = st.one_of(
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, {}]),
    bounded("integer", "minimum", "maximum"),
    bounded("number", "exclusiveMinimum", "maximum"),
    bounded("string", "minLength", "maxLength"),
    st.builds(lambda values: {"enum": sorted(values)}, st.sets(st.sampled_from(NAMES), min_size=1)),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(lambda values: {"type": "object", "additionalProperties": values}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(LEAVES | inner, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)
NUMBERS = st.integers(0, 9) | st.sampled_from([0.5, 2.5])
TEXTS = st.sampled_from(["", *NAMES, "abcdef"])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)


def values_of(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that the schema mostly takes."""
    if "anyOf" in schema:
        return st.one_of([values_of(part) for part in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "properties" in schema:
        fields = {name: values_of(part) for name, part in schema["properties"].items()}
        needed = {name: fields.pop(name) for name in schema["required"]}
        return st.fixed_dictionaries(needed, optional=fields)
    if schema.get("type") == "array":
        return st.lists(values_of(schema["items"]), max_size=schema["maxItems"])
    if schema.get("type") == "object":
        return st.dictionaries(st.sampled_from(NAMES), values_of(schema["additionalProperties"]), max_size=2)
    leaves = {"null": st.none(), "boolean": st.booleans(), "integer": NUMBERS, "number": NUMBERS, "string": TEXTS}
    return leaves.get(schema.get("type", ""), VALUES)


@st.composite
def altered(draw: st.DrawFn, schema: Schema) -> Schema:
    """The schema with another one somewhere."""
    parts = [key for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    parts += ["properties"] * bool(schema.get("properties")) + ["anyOf"] * ("anyOf" in schema)
    if not parts or draw(st.integers(0, 2)) == 0:
        return draw(SCHEMAS)
    part = draw(st.sampled_from(parts))
    old = schema[part]
    if part == "properties":
        name = draw(st.sampled_from(sorted(old)))
        return {**schema, part: {**old, name: draw(altered(old[name]))}}
    if part == "anyOf":
        index = draw(st.integers(0, len(old) - 1))
        return {**schema, part: [draw(altered(each)) if at == index else each for at, each in enumerate(old)]}
    return {**schema, part: draw(altered(old))}


def asked(schemas: dict[str, Schema]) -> Schema:
    """A document with an operation that takes, and one that sends each schema, and schemas that refer to each other."""
    refs = [{"$ref": f"#/components/schemas/{name}"} for name in schemas]
    both = {"anyOf": refs}
    return {
        "openapi": "3.1.0",
        "paths": {
            "/x": {
                "post": {
                    "requestBody": {"content": {"application/json": {"schema": both}}},
                    "responses": {"200": {"content": {"application/json": {"schema": both}}}},
                }
            }
        },
        "components": {"schemas": {**schemas, "Loop": {"type": "object", "properties": {"more": both}}}},
    }


@given(st.dictionaries(st.sampled_from(["A", "B", "Loop"]), SCHEMAS, min_size=1))
def test_k1_a_document_does_not_differ_from_itself(schemas: dict[str, Schema]) -> None:
    document = asked(schemas)
    assert differences(document, copy.deepcopy(document)) == []


@given(st.data())
@settings(max_examples=150)
def test_k3_a_value_that_is_refused_now_comes_with_a_breaking_difference(data: st.DataObject) -> None:
    old = data.draw(SCHEMAS)
    new, value = data.draw(altered(old)), data.draw(values_of(old))
    if not Draft202012Validator(old).is_valid(value) or Draft202012Validator(new).is_valid(value):
        return
    found = Found()
    Schemas({}, {}, found).compare("x", old, new, "taken")
    assert Class.BREAKING in {one.of for one in found.sorted()}, (old, new, value)


# --------------------------------------------------------------------------------------------------------- our own documents


@functools.cache
def documents() -> dict[str, Schema]:
    return present()


@functools.cache
def operations() -> list[tuple[str, Schema, tuple[str, ...], str]]:
    """Documents of one operation each: which, the document, the path of its operation, and its place."""
    found: list[tuple[str, Schema, tuple[str, ...], str]] = []
    for path, item in documents()["openapi"]["paths"].items():
        for method, operation in item.items():
            made = {**documents()["openapi"], "paths": {path: {method: operation}}}
            found.append(("openapi", made, ("paths", path, method), f"{method.upper()} {path}"))
    for name, operation in documents()["asyncapi"]["operations"].items():
        made = {**documents()["asyncapi"], "operations": {name: operation}}
        place = operation["channel"]["$ref"].rpartition("/")[2]
        found.append(("asyncapi", made, ("operations", name), place))
    return found


def parts(document: Schema, path: tuple[str, ...], place: str) -> list[tuple[tuple[str, ...], str]]:
    """What may be taken out of such a document: its operation, and each field of the schemas that it leads to."""
    found, schemas, seen = [(path, place)], document["components"]["schemas"], set[str]()
    open_: list[Any] = [document[path[0]]]
    while open_:
        for ref in re.findall(r'"#/([^"]+)"', json.dumps(open_.pop())):
            if ref not in seen:
                seen.add(ref)
                target: Any = document
                for step in ref.split("/"):
                    target = target[step.replace("~1", "/")]
                open_.append(target)
    for name in sorted(ref.rpartition("/")[2] for ref in seen if ref.startswith("components/schemas/")):
        fields = schemas[name].get("properties", ())
        found += [(("components", "schemas", name, "properties", field), f"{name}.{field}") for field in fields]
    return found


def without(document: Schema, path: tuple[str, ...]) -> Schema:
    """A copy, of which only what leads to `path` is another."""
    made = {**document}
    if len(path) == 1:
        del made[path[0]]
        if "required" in made:
            made["required"] = [name for name in made["required"] if name != path[0]]
        return made
    if path[0] == "properties" and path[1] in made.get("required", ()):
        made["required"] = [name for name in made["required"] if name != path[1]]
    return {**made, path[0]: without(document[path[0]], path[1:])}


@given(st.data())
@settings(max_examples=5)
def test_k2_a_document_without_one_of_its_parts_breaks_programs(data: st.DataObject) -> None:
    _, old, of, named = operations()[data.draw(st.integers(0, len(operations()) - 1))]
    path, place = data.draw(st.sampled_from(parts(old, of, named)))
    found = differences(old, without(old, path))
    assert place in {one.place for one in found if one.of is Class.BREAKING}


@pytest.mark.long
def test_k2_holds_for_many_parts_of_every_third_operation() -> None:
    """Every fiftieth field that an operation leads to, and no field twice."""
    tried = set[str]()
    for _, old, of, named in operations()[::3]:
        own, *fields = (each for each in parts(old, of, named) if each[1] == named or each[1] not in tried)
        for path, place in [own, *fields[::50]]:
            tried.add(place)
            found = differences(old, without(old, path))
            assert place in {one.place for one in found if one.of is Class.BREAKING}, (path, place)
    assert len(tried) > 100


def test_k1_holds_for_our_own_documents() -> None:
    for document in documents().values():
        assert differences(document, json.loads(json.dumps(document))) == []
