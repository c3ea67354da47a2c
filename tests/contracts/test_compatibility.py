"""Documents that change: each kind of change and its class, and whether the changelog names what breaks programs of the last
release."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import compatibility
from tests.contracts.changes import Class, Difference
from tests.contracts.compatibility import NAMES, ROOT, announced, differences, present, released, unannounced

BREAKING, COMPATIBLE, EDITORIAL = Class.BREAKING, Class.COMPATIBLE, Class.EDITORIAL
Change = Callable[[dict[str, Any]], None]


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def struct(needed: dict[str, Any], others: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**needed, **(others or {})}, "required": list(needed), **more}


def code(value: str) -> dict[str, Any]:
    return struct({"code": {"type": "string", "enum": [value]}}, {"hosts": {"type": "integer", "default": 0}})


SCHEMAS: dict[str, Any] = {
    "Submit": struct(
        {"cores": {"type": "integer", "minimum": 1, "maximum": 64}},
        {
            "name": {"type": "string", "maxLength": 40, "default": "", "description": "its name"},
            "size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "maximum": 9, "default": None},
            "on_term": {"type": "string", "enum": ["stop", "complete"], "default": "stop"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
            "program": struct({}, {"a": {"default": 1}}, default={"a": 1}),
            "array": {
                "type": "array",
                "items": {"type": "integer"},
                "maxItems": 5,
                "description": "which; default: none",
            },
        },
        additionalProperties=False,
    ),
    "Job": struct(
        {
            "job": {"type": "string"},
            "state": {"type": "string", "enum": ["pending", "running"]},
            "role": {"type": "string", "enum": ["user", "operator"]},
            "at": {"type": "string", "format": "date-time"},
            "nodes": {"type": "integer", "maximum": 10},
            "hosts": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "why": {"anyOf": [ref("Reason"), {"type": "null"}]},
        },
        {
            "seen": {"type": "boolean", "default": False},
            "lines": {"type": "string", "contentSchema": {"type": "array", "items": ref("Line")}},
        },
    ),
    "Line": struct({"text": {"type": "string"}}),
    "Reason": {
        "anyOf": [ref("Waits"), ref("Held")],
        "discriminator": {"propertyName": "code", "mapping": {}},
    },
    "Waits": code("waits"),
    "Held": code("held"),
    "Free": code("free"),
    "Problem": struct({"detail": {"type": "string"}}),
}
OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "x", "version": "1"},
    "security": [{"bearer": []}],
    "paths": {
        "/jobs": {
            "post": {
                "operationId": "submit",
                "summary": "Submit.",
                "parameters": [
                    {
                        "name": "department",
                        "in": "query",
                        "description": "whose; default: the caller's",
                        "schema": {"type": "string"},
                    }
                ],
                "requestBody": {"required": True, "content": {"application/json": {"schema": ref("Submit")}}},
                "responses": {
                    "200": {"description": "done", "content": {"application/json": {"schema": ref("Job")}}},
                    "409": {"content": {"application/problem+json": {"schema": ref("Problem")}}},
                },
            }
        },
        "/jobs/{job}": {
            "get": {
                "operationId": "job",
                "parameters": [{"name": "job", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": {"content": {"application/json": {"schema": ref("Job")}}}},
            }
        },
    },
    "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}, "schemas": SCHEMAS},
}


def field(struct_: str, name: str, **more: Any) -> Change:
    """Keywords of a property; None takes one out."""

    def change(document: dict[str, Any]) -> None:
        schema = document["components"]["schemas"][struct_]["properties"].setdefault(name, {})
        for key, value in more.items():
            if value is None:
                schema.pop(key)
            else:
                schema[key] = value

    return change


def without(struct_: str, name: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        schema = document["components"]["schemas"][struct_]
        del schema["properties"][name]
        schema["required"] = [each for each in schema["required"] if each != name]

    return change


def required(struct_: str, *names: str) -> Change:
    return lambda document: document["components"]["schemas"][struct_].update(required=list(names))


def added(struct_: str, name: str, *, needed: bool) -> Change:
    def change(document: dict[str, Any]) -> None:
        schema = document["components"]["schemas"][struct_]
        schema["properties"][name] = {"type": "string"}
        schema["required"] = [*schema["required"], *([name] if needed else [])]

    return change


def at(*path: str | int, to: Any = None) -> Change:
    """Replace what is at `path`; without `to` take it out."""

    def change(document: dict[str, Any]) -> None:
        node: Any = document
        for step in path[:-1]:
            node = node[step]
        if to is None:
            del node[path[-1]]
        else:
            node[path[-1]] = to

    return change


POST, GET = ("paths", "/jobs", "post"), ("paths", "/jobs/{job}", "get")
JOB = ["job", "state", "role", "at", "nodes", "hosts", "counts", "why"]
ONE_OF_TWO = {"type": "string", "enum": ["user", "operator", "manager"]}
CASES: dict[str, tuple[Change, str, Class]] = {
    "a field of what a text is read as is gone": (without("Line", "text"), "Line.text", BREAKING),
    "a text is not read as anything": (field("Job", "lines", contentSchema=None), "Job.lines", BREAKING),
    # what is taken
    "a field is required now": (required("Submit", "cores", "name"), "Submit.name", BREAKING),
    "a field may be left out now": (required("Submit"), "Submit.cores", COMPATIBLE),
    "a field is gone": (without("Submit", "name"), "Submit.name", BREAKING),
    "a field more": (added("Submit", "new", needed=False), "Submit.new", COMPATIBLE),
    "a required field more": (added("Submit", "new", needed=True), "Submit.new", BREAKING),
    "a type less": (field("Submit", "size", anyOf=[{"type": "integer"}]), "Submit.size", BREAKING),
    "a type more": (
        field("Submit", "size", anyOf=[{"type": "integer"}, {"type": "null"}, {"type": "string"}]),
        "Submit.size",
        COMPATIBLE,
    ),
    "another type": (field("Submit", "name", type="integer", maxLength=None), "Submit.name", BREAKING),
    "integers become numbers": (field("Submit", "cores", type="number"), "Submit.cores", COMPATIBLE),
    "a value less": (field("Submit", "on_term", enum=["stop"]), "Submit.on_term", BREAKING),
    "a value more": (field("Submit", "on_term", enum=["stop", "complete", "x"]), "Submit.on_term", COMPATIBLE),
    "any text": (field("Submit", "on_term", enum=None), "Submit.on_term", COMPATIBLE),
    "a bound is narrower": (field("Submit", "cores", maximum=32), "Submit.cores", BREAKING),
    "a bound is wider": (field("Submit", "cores", maximum=128), "Submit.cores", COMPATIBLE),
    "a bound beside a union is narrower": (field("Submit", "size", maximum=8), "Submit.size", BREAKING),
    "the bound itself is excluded": (
        field("Submit", "cores", minimum=None, exclusiveMinimum=1),
        "Submit.cores",
        BREAKING,
    ),
    "the same bound in other words": (
        field("Submit", "cores", minimum=None, exclusiveMinimum=0),
        "Submit.cores",
        COMPATIBLE,
    ),
    "a text may be longer": (field("Submit", "name", maxLength=80), "Submit.name", COMPATIBLE),
    "a text must match": (field("Submit", "name", pattern="^a$"), "Submit.name", BREAKING),
    "fewer items": (field("Submit", "array", maxItems=4), "Submit.array", BREAKING),
    "another item": (field("Submit", "array", items={"type": "string"}), "Submit.array[]", BREAKING),
    "another value of a map": (
        field("Submit", "labels", additionalProperties={"type": "integer"}),
        "Submit.labels.*",
        BREAKING,
    ),
    "another default": (field("Submit", "on_term", default="complete"), "Submit.on_term", BREAKING),
    "the default of a struct has a new field": (
        at(
            "components",
            "schemas",
            "Submit",
            "properties",
            "program",
            to=struct({}, {"a": {"default": 1}, "b": {"default": 2}}, default={"a": 1, "b": 2}),
        ),
        "Submit.program.b",
        COMPATIBLE,
    ),
    "the default of a struct is another": (
        field("Submit", "program", default={"a": 2}),
        "Submit.program",
        BREAKING,
    ),
    "the default of a map has a key more": (field("Submit", "tags", default={"a": "b"}), "Submit.tags", BREAKING),
    "another default in the description": (
        field("Submit", "array", description="which; default: 1"),
        "Submit.array",
        BREAKING,
    ),
    "another default of a parameter": (
        at(*POST, "parameters", 0, "description", to="default: hpc"),
        "POST /jobs?department",
        BREAKING,
    ),
    "false is not 0": (field("Submit", "name", default=False), "Submit.name", BREAKING),
    "a default is stated": (field("Submit", "labels", default={}), "Submit.labels", COMPATIBLE),
    "a keyword that the check does not know": (field("Submit", "cores", multipleOf=2), "Submit.cores", BREAKING),
    "other fields are let through": (
        at("components", "schemas", "Submit", "additionalProperties"),
        "Submit.*",
        COMPATIBLE,
    ),
    # what is sent
    "an answer lacks a field": (without("Job", "nodes"), "Job.nodes", BREAKING),
    "an answer lacks a field sometimes": (required("Job", *JOB[:-1]), "Job.why", BREAKING),
    "an answer always has a field": (required("Job", *JOB, "seen"), "Job.seen", COMPATIBLE),
    "an answer has a field more": (added("Job", "new", needed=True), "Job.new", COMPATIBLE),
    "an answer has another type": (field("Job", "at", type="number", format=None), "Job.at", BREAKING),
    "a text is read in another way": (field("Job", "at", format=None), "Job.at", BREAKING),
    "an answer may have null": (field("Job", "job", type=["string", "null"]), "Job.job", BREAKING),
    "an answer has no null any more": (field("Job", "why", anyOf=[ref("Reason")]), "Job.why", COMPATIBLE),
    "an answer may have numbers": (field("Job", "nodes", type="number"), "Job.nodes", BREAKING),
    "an answer has a value more": (field("Job", "role", enum=["user", "operator", "x"]), "Job.role", BREAKING),
    "an answer has a value less": (field("Job", "role", enum=["user"]), "Job.role", COMPATIBLE),
    "readers bear a state more": (field("Job", "state", enum=["pending", "running", "x"]), "Job.state", COMPATIBLE),
    "an answer has larger numbers": (field("Job", "nodes", maximum=None), "Job.nodes", COMPATIBLE),
    "an answer's item is another": (field("Job", "hosts", items={"type": "integer"}), "Job.hosts[]", BREAKING),
    "an answer's map has another value": (
        field("Job", "counts", additionalProperties={"type": "string"}),
        "Job.counts.*",
        BREAKING,
    ),
    "readers bear a reason more": (
        at("components", "schemas", "Reason", "anyOf", to=[ref("Waits"), ref("Held"), ref("Free")]),
        "Free",
        COMPATIBLE,
    ),
    "a reason is not given any more": (
        at("components", "schemas", "Reason", "anyOf", to=[ref("Waits")]),
        "Held",
        COMPATIBLE,
    ),
    "a reason lacks a field": (without("Held", "hosts"), "Held.hosts", BREAKING),
    "what may be left out means something else": (field("Job", "seen", default=True), "Job.seen", BREAKING),
    # calls
    "a call is gone": (at(*POST), "POST /jobs", BREAKING),
    "a call more": (at("paths", "/x", to={"get": OPENAPI["paths"]["/jobs/{job}"]["get"]}), "GET /x", COMPATIBLE),
    "a call has another name": (at(*POST, "operationId", to="other"), "POST /jobs", BREAKING),
    "a parameter is gone": (at(*POST, "parameters", 0), "POST /jobs?department", BREAKING),
    "a parameter more": (
        at(*POST, "parameters", to=[*OPENAPI["paths"]["/jobs"]["post"]["parameters"], {"name": "x", "in": "query"}]),
        "POST /jobs?x",
        COMPATIBLE,
    ),
    "a parameter must be there": (at(*POST, "parameters", 0, "required", to=True), "POST /jobs?department", BREAKING),
    "a parameter takes less": (
        at(*POST, "parameters", 0, "schema", to={"type": "integer"}),
        "POST /jobs?department",
        BREAKING,
    ),
    "a content type is not taken any more": (
        at(*POST, "requestBody", "content", to={"text/plain": {}}),
        "POST /jobs",
        BREAKING,
    ),
    "a body may be left out": (at(*POST, "requestBody", "required", to=False), "POST /jobs", COMPATIBLE),
    "there is no body any more": (at(*POST, "requestBody"), "POST /jobs", BREAKING),
    "another status": (at(*POST, "responses", "202", to={}), "POST /jobs 202", BREAKING),
    "another refusal": (at(*POST, "responses", "410", to={}), "POST /jobs 410", COMPATIBLE),
    "a refusal less": (at(*POST, "responses", "409"), "POST /jobs 409", BREAKING),
    "an answer in another form": (
        at(*POST, "responses", "200", "content", to={"text/plain": {}}),
        "POST /jobs 200",
        BREAKING,
    ),
    "a call needs no token": (at(*GET, "security", to=[]), "GET /jobs/{job}", COMPATIBLE),
    "a call needs another token": (at(*GET, "security", to=[{"guest": []}]), "GET /jobs/{job}", BREAKING),
    "a token is another": (
        at("components", "securitySchemes", "bearer", "scheme", to="basic"),
        "securitySchemes.bearer",
        BREAKING,
    ),
    "something new": (at("webhooks", to={"x": {}}), "OpenAPI", BREAKING),
    # words
    "a description": (field("Submit", "name", description="another"), "Submit.name", EDITORIAL),
    "a summary": (at(*POST, "summary", to="Other."), "/jobs.post", EDITORIAL),
    "an example": (at("components", "schemas", "Held", "examples", to=[{"code": "held"}]), "Held", EDITORIAL),
    "a number of the document": (at("info", "version", to="2"), "info", EDITORIAL),
}


def changed(document: dict[str, Any], change: Change) -> list[Difference]:
    new = copy.deepcopy(document)
    change(new)
    return differences(document, new)


@pytest.mark.parametrize("name", CASES)
def test_a_change_has_its_class_and_its_place(name: str) -> None:
    change, place, of = CASES[name]
    found = changed(OPENAPI, change)
    assert max(one.of for one in found) == of, [str(one) for one in found]
    assert place in {one.place for one in found if one.of == of}


def test_an_open_call_that_demands_a_token_breaks_programs() -> None:
    old = copy.deepcopy(OPENAPI)
    old["security"] = []
    assert [one.of for one in changed(old, at("security", to=[{"bearer": []}])) if one.of > COMPATIBLE] == [
        BREAKING
    ] * 2


def test_how_a_path_calls_its_parameter_is_no_difference_to_those_who_fill_it_in() -> None:
    def change(document: dict[str, Any]) -> None:
        document["paths"]["/jobs/{name}"] = document["paths"].pop("/jobs/{job}")

    assert changed(OPENAPI, change) == []


def test_a_schema_that_is_called_otherwise_is_the_same() -> None:
    def change(document: dict[str, Any]) -> None:
        schemas = document["components"]["schemas"]
        schemas["Task"] = schemas.pop("Job")
        for path, method in (("/jobs", "post"), ("/jobs/{job}", "get")):
            document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"] = ref("Task")

    assert changed(OPENAPI, change) == []


# ------------------------------------------------------------------------------------------------------------------ AsyncAPI


def message(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "contentType": "application/json", "payload": schema}


def channel(*messages: str) -> dict[str, Any]:
    return {"address": "a", "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages}}


def operation(action: str, name: str, **more: Any) -> dict[str, Any]:
    of = {"channel": {"$ref": f"#/channels/{name}"}, "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}]}
    return {"action": action, **of, **more}


ASYNCAPI: dict[str, Any] = {
    "asyncapi": "3.0.0",
    "info": {"title": "x", "version": "1"},
    "servers": {"site": {"host": "x", "protocol": "nats", "security": []}},
    "channels": {name: channel(name) for name in ("ask", "answer", "event", "journal")},
    "operations": {
        "receive.ask": operation("receive", "ask", reply=operation("send", "answer")),
        "send.event": operation("send", "event"),
        "send.journal": operation("send", "journal"),
        "receive.journal": operation("receive", "journal"),
    },
    "components": {
        "messages": {
            "ask": message("ask", ref("Submit")),
            "answer": message("answer", ref("Job")),
            "event": message("event", ref("Problem")),
            "journal": message("journal", struct({"facts": {"type": "array", "items": ref("Fact")}})),
        },
        "schemas": {
            **SCHEMAS,
            "Fact": {"anyOf": [ref("HostFree"), ref("HostLost")], "discriminator": "kind"},
            "HostFree": struct({"kind": {"type": "string", "enum": ["host.free"]}}),
            "HostLost": struct(
                {"kind": {"type": "string", "enum": ["host.lost"]}, "host": {"type": "string"}},
                {"why": {"type": "string", "enum": ["a", "b"], "default": "a"}, "because": ref("Reason")},
            ),
        },
        "securitySchemes": {},
    },
}


def a_kind_more(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    schemas["HostSeen"] = struct({"kind": {"type": "string", "enum": ["host.seen"]}})
    schemas["Fact"]["anyOf"].append(ref("HostSeen"))


def a_kind_less(document: dict[str, Any]) -> None:
    document["components"]["schemas"]["Fact"]["anyOf"].pop()


MESSAGES: dict[str, tuple[Change, str, Class]] = {
    "a request takes less": (field("Submit", "cores", maximum=2), "Submit.cores", BREAKING),
    "a request takes more": (field("Submit", "cores", maximum=200), "Submit.cores", COMPATIBLE),
    "a reply lacks a field": (without("Job", "nodes"), "Job.nodes", BREAKING),
    "an event lacks a field": (without("Problem", "detail"), "Problem.detail", BREAKING),
    "an event has a field more": (added("Problem", "new", needed=True), "Problem.new", COMPATIBLE),
    "a fact has a field more": (added("HostLost", "new", needed=False), "HostLost.new", COMPATIBLE),
    "a fact has a field more that old ones lack": (added("HostLost", "new", needed=True), "HostLost.new", BREAKING),
    "a fact lacks a field": (without("HostLost", "why"), "HostLost.why", BREAKING),
    "a fact may leave a field out": (required("HostLost", "kind"), "HostLost.host", BREAKING),
    "a fact must have a field": (required("HostLost", "kind", "host", "why"), "HostLost.why", BREAKING),
    "a fact has a value more": (field("HostLost", "why", enum=["a", "b", "c"]), "HostLost.why", BREAKING),
    "a fact has a value less": (field("HostLost", "why", enum=["a"]), "HostLost.why", BREAKING),
    "a fact has another default": (field("HostLost", "why", default="b"), "HostLost.why", BREAKING),
    "a fact has another type": (field("HostLost", "host", type="integer"), "HostLost.host", BREAKING),
    "a kind of fact more": (a_kind_more, "HostSeen", COMPATIBLE),
    "a kind of fact less": (a_kind_less, "HostLost", BREAKING),
    "a reason of a fact is not read any more": (
        at("components", "schemas", "Reason", "anyOf", to=[ref("Waits")]),
        "Held",
        BREAKING,
    ),
    "a subject is gone": (at("channels", "event"), "event", BREAKING),
    "a subject is another": (at("channels", "ask", "address", to="b"), "ask", BREAKING),
    "a subject more": (at("channels", "x", to=channel()), "x", COMPATIBLE),
    "there is no answer any more": (at("operations", "receive.ask", "reply"), "ask", BREAKING),
    "the operation is gone": (at("operations", "receive.ask"), "ask", BREAKING),
    "a message in another form": (
        at("components", "messages", "ask", "contentType", to="application/msgpack"),
        "ask",
        BREAKING,
    ),
    "another protocol": (at("servers", "site", "protocol", to="mqtt"), "servers.site", BREAKING),
    "another address of the example": (at("channels", "ask", "description", to="other"), "ask", EDITORIAL),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_change_of_messages_has_its_class_and_its_place(name: str) -> None:
    change, place, of = MESSAGES[name]
    document = copy.deepcopy(ASYNCAPI)
    if name == "a subject is gone":
        del document["operations"]["send.event"]
    found = changed(document, change)
    assert max(one.of for one in found) == of, [str(one) for one in found]
    assert place in {one.place for one in found if one.of == of}


# ----------------------------------------------------------------------------------------------------------------- changelog

CHANGELOG = """# Changelog

## Unreleased

New
- `Submit.gone` takes more.

What breaks, compared with 0.2.0
- `Submit.cores` takes at most 32; `DELETE
  /jobs/{job}` is gone. Times: `*.at`. Parameters of `GET /jobs?*`.
- Everything is new: `*`, `*.*`.

Thanks
- `Submit.thanks`

## 0.2.0

What breaks
- `Submit.old` is gone.
"""


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("Submit.cores", True),
        ("DELETE /jobs/{job}", True),
        ("Job.at", True),
        ("GET /jobs?state", True),
        ("Submit.gone", False),
        ("Submit.old", False),
        ("Submit.thanks", False),
        ("Submit", False),
        ("Submit.cores.a", False),
    ],
)
def test_the_changelog_names_places(place: str, named: bool) -> None:
    assert (unannounced([Difference(place, "x", BREAKING)], CHANGELOG) == []) == named
    assert unannounced([Difference(place, "x", COMPATIBLE)], CHANGELOG) == []


def test_a_changelog_without_that_part_names_nothing() -> None:
    assert announced("# Changelog\n\n## 0.2.0\n\nWhat breaks\n- `a`\n") == []
    assert announced("# Changelog\n\n## Unreleased\n\nNew\n- `a`\n") == []


# ------------------------------------------------------------------------------------------------------------- the documents


def test_what_breaks_programs_of_the_last_release_is_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    now = present()
    missing = [
        f"{name}: {one}" for name in NAMES for one in unannounced(differences(released(name), now[name]), changelog)
    ]
    assert missing == [], 'CHANGELOG.md, "What breaks" of the unreleased part, must name each place in backticks'


def test_the_release_is_kept_as_it_is_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compatibility, "RELEASED", tmp_path / "released")
    monkeypatch.setattr(compatibility, "present", lambda: {"openapi": OPENAPI})
    assert compatibility.main(["--release"]) == 0
    assert capsys.readouterr().out == ""
    assert released("openapi") == OPENAPI
    kept = (tmp_path / "released" / "openapi.json.gz").read_bytes()
    compatibility.main(["--release"])
    assert (tmp_path / "released" / "openapi.json.gz").read_bytes() == kept  # the same document, the same bytes
    later = copy.deepcopy(OPENAPI)
    CASES["a field is gone"][0](later)
    monkeypatch.setattr(compatibility, "present", lambda: {"openapi": later})
    assert compatibility.main([]) == 0
    assert capsys.readouterr().out == "openapi: breaking   `Submit.name` removed\n"
