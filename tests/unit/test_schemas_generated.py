"""The generated documents: up to date, well formed, and true of the messages themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from schemas import examples, facts, generate, queries, requests, signals
from schemas.envelope import decode as decode_envelope
from schemas.envelope import encode as encode_envelope
from schemas.events import Event
from schemas.events import decode as decode_event
from schemas.problems import Problem

DOCUMENTS = generate.documents()


def validate(message: Any, file: str, definition: str = "") -> None:
    """Raises if the message, as JSON, is not what `file` says."""
    document = DOCUMENTS[file]
    schema = {**document, "anyOf": [{"$ref": f"#/$defs/{definition}"}]} if definition else document
    jsonschema.Draft202012Validator(schema).validate(json.loads(msgspec.json.encode(message)))


def test_the_files_say_what_the_types_say() -> None:
    assert generate.stale() == []


def test_check_names_what_differs_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--directory", str(tmp_path)]) == 0
    assert generate.main(["--directory", str(tmp_path), "--check"]) == 0
    (tmp_path / "signals.json").write_text("{}")
    (tmp_path / "left_over.json").write_text("{}")
    (tmp_path / "events.json").unlink()
    assert generate.main(["--directory", str(tmp_path), "--check"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in told] == [
        "schemas/events.json",
        "schemas/left_over.json",
        "schemas/signals.json",
    ]
    assert (tmp_path / "signals.json").read_text() == "{}"
    assert generate.main(["--directory", str(tmp_path)]) == 0
    assert generate.stale(tmp_path) == []


@pytest.mark.parametrize("file", [f for f in DOCUMENTS if f != "asyncapi.json"])
def test_each_schema_is_a_schema_whose_references_resolve(file: str) -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENTS[file])
    unresolved = [ref for ref in references(DOCUMENTS[file]) if resolve(DOCUMENTS[file], ref) is None]
    assert unresolved == []


def test_schema_ids_are_unique() -> None:
    found = [document["$id"] for document in DOCUMENTS.values() if "$id" in document]
    assert len(set(found)) == len(found) == len(DOCUMENTS) - 1


def test_there_is_one_example_of_every_message() -> None:
    assert [type(fact) for fact in sorted(examples.FACTS, key=facts.kind_of)] == [
        facts.BY_KIND[kind] for kind in sorted(facts.BY_KIND)
    ]
    assert set(examples.REQUESTS) == set(requests.REQUESTS)
    assert set(examples.SIGNALS) == set(signals.SIGNALS)
    assert set(examples.QUERIES) == {f"{query.service}.{query.name}" for query in queries.QUERIES}
    of_schedulers = {cls for query in queries.QUERIES if query.service == "scheduler" for cls in query.answered}
    assert {type(a) for a in examples.ANSWERS} == of_schedulers
    assert {type(r) for r in examples.REPLIES} == {reply for _, reply in requests.REQUESTS.values()} | {Problem}


@pytest.mark.parametrize("fact", examples.FACTS, ids=facts.kind_of)
def test_every_fact_kind_validates_and_comes_back(fact: facts.Fact) -> None:
    validate(fact, "facts.json")
    validate(fact, "facts.json", type(fact).__name__)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fact), type=facts.Fact) == fact
    event = examples.event(fact)
    validate(event, "events.json", "Event")
    assert decode_event(msgspec.json.encode(event)) == event


@pytest.mark.parametrize("fact", examples.FACTS, ids=facts.kind_of)
def test_a_fact_without_a_required_field_is_no_fact(fact: facts.Fact) -> None:
    required = [f.name for f in msgspec.structs.fields(fact) if f.required]
    for name in required:
        partial = {k: v for k, v in msgspec.to_builtins(fact).items() if k != name}
        with pytest.raises(jsonschema.ValidationError):
            validate(partial, "facts.json")
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(partial, facts.Fact)


@pytest.mark.parametrize("fact", examples.FACTS, ids=facts.kind_of)
def test_fields_from_the_future_are_ignored(fact: facts.Fact) -> None:
    later = {**msgspec.to_builtins(fact), "from_the_future": [1, 2]}
    validate(later, "facts.json")
    assert msgspec.convert(later, facts.Fact) == fact


def test_the_envelope_validates_and_comes_back() -> None:
    validate(examples.ENVELOPE, "envelope.json")
    received = decode_envelope(encode_envelope(examples.ENVELOPE), "scheduler.hpc")
    assert received.facts == examples.ENVELOPE.facts


@pytest.mark.parametrize("kind", sorted(requests.REQUESTS))
def test_every_request_validates_and_is_read_in_both_forms(kind: str) -> None:
    message = examples.REQUESTS[kind]
    validate(message, "requests.json", type(message).__name__)
    assert DOCUMENTS["requests.json"]["x-requests"][kind] == f"#/$defs/{type(message).__name__}"
    for as_json in (True, False):
        assert requests.decode(kind, requests.encode(message, as_json), as_json) == message


@pytest.mark.parametrize("reply", examples.REPLIES, ids=lambda r: type(r).__name__)
def test_every_reply_validates(reply: msgspec.Struct) -> None:
    validate(reply, "replies.json", type(reply).__name__)


def test_configuration_and_audit_validate() -> None:
    validate(examples.CLOUD, "config.json")
    validate(examples.AUDIT, "events.json", "AuditBatch")
    mistyped = {**msgspec.to_builtins(examples.CLOUD), "polcy": {}}
    with pytest.raises(jsonschema.ValidationError):
        validate(mistyped, "config.json")


# ---------------------------------------------------------------------------------------------------------------- AsyncAPI

ASYNCAPI = DOCUMENTS["asyncapi.json"]


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def resolve(document: dict[str, Any], ref: str) -> Any:
    """What a reference inside the document points to, or None."""
    if not ref.startswith("#/"):
        return None
    node: Any = document
    for token in ref[2:].split("/"):
        node = node.get(token.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def test_asyncapi_has_what_version_3_requires() -> None:
    assert ASYNCAPI["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(ASYNCAPI["info"])
    assert set(ASYNCAPI) <= {
        "asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components",
    }  # fmt: skip
    for server in ASYNCAPI["servers"].values():
        assert {"host", "protocol"} <= set(server)
    identifier = re.compile(r"^[\w\d.\-_]+$")  # what AsyncAPI allows as a key
    for part in (ASYNCAPI["channels"], ASYNCAPI["operations"], *ASYNCAPI["components"].values()):
        assert all(identifier.match(key) for key in part)


def test_every_reference_of_asyncapi_resolves() -> None:
    refs = list(references(ASYNCAPI))
    assert len(refs) > 200
    assert [ref for ref in refs if resolve(ASYNCAPI, ref) is None] == []


def test_every_operation_uses_messages_of_its_own_channel() -> None:
    for name, operation in ASYNCAPI["operations"].items():
        assert operation["action"] in ("send", "receive"), name
        for part in (operation, operation.get("reply", operation)):
            channel = part["channel"]["$ref"]
            assert all(m["$ref"].startswith(f"{channel}/messages/") for m in part["messages"]), name
            assert part["messages"], name


def test_every_channel_declares_exactly_the_parameters_of_its_address() -> None:
    addresses = []
    for name, channel in ASYNCAPI["channels"].items():
        address = channel["address"]
        assert set(channel.get("parameters", {})) == set(re.findall(r"{(\w+)}", address or "")), name
        addresses += [address] if address else []
    assert len(set(addresses)) == len(addresses)


def test_no_channel_operation_or_message_is_left_unused() -> None:
    refs = set(references(ASYNCAPI["operations"]))
    used = {ref.split("/")[2] for ref in refs}
    assert used == set(ASYNCAPI["channels"])
    named = {ref.rsplit("/", 1)[1] for ref in references(ASYNCAPI["channels"]) if "/messages/" in ref}
    assert named == set(ASYNCAPI["components"]["messages"])
    names = [m["name"] for m in ASYNCAPI["components"]["messages"].values()]
    assert len(set(names)) == len(names)


def test_every_subject_of_the_vocabulary_has_a_channel() -> None:
    addresses = {c["address"] for c in ASYNCAPI["channels"].values()}
    for kind in requests.REQUESTS:
        assert f"phoenix.request.{{department}}.{{user}}.{kind}" in addresses
    for kind in facts.BY_KIND:
        assert f"phoenix.event.{{department}}.{kind}" in addresses
    assert "phoenix.signal.{department}.{user}.cpu" in addresses
    assert {
        "phoenix.journal.{writer}",
        "phoenix.audit.{department}.{outcome}",
        *(f"phoenix.query.{query.service}.{{department}}.{query.name}" for query in queries.QUERIES),
    } <= addresses


@pytest.mark.parametrize("name", sorted(ASYNCAPI["components"]["messages"]))
def test_the_examples_of_asyncapi_validate(name: str) -> None:
    message = ASYNCAPI["components"]["messages"][name]
    schema = {**message["payload"], "components": ASYNCAPI["components"]}
    for example in message.get("examples", ()):
        jsonschema.Draft7Validator(schema).validate(json.loads(json.dumps(example["payload"])))
    large = {f"query.monitor.{what}.reply" for what in queries.NAMES["monitor"]}  # `test_queries` has real answers
    assert message.get("examples") or name in {*large, "query.scheduler.queue.reply"}


def test_schemas_of_asyncapi_are_those_of_draft_7() -> None:
    for name, schema in ASYNCAPI["components"]["schemas"].items():
        jsonschema.Draft7Validator.check_schema(schema)
        text = json.dumps(schema)
        assert "prefixItems" not in text, name
        assert "mapping" not in text, name
    pair = ASYNCAPI["components"]["schemas"]["AnswersSignal"]["properties"]["instances"]["additionalProperties"]
    assert (len(pair["items"]), pair["additionalItems"]) == (2, False)


def test_an_event_message_takes_its_own_kind_only() -> None:
    message = ASYNCAPI["components"]["messages"]["event.host.granted"]
    schema = {**message["payload"], "components": ASYNCAPI["components"]}
    other = next(f for f in examples.FACTS if isinstance(f, facts.HostLost))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate(msgspec.to_builtins(examples.event(other)))


def test_an_envelope_of_asyncapi_has_facts_of_every_kind_whole() -> None:
    schemas = ASYNCAPI["components"]["schemas"]
    assert schemas["Envelope"]["properties"]["facts"]["items"] == {"$ref": "#/components/schemas/Fact"}
    refs = {kind: f"#/components/schemas/{cls.__name__}" for kind, cls in facts.BY_KIND.items()}
    assert schemas["Fact"]["x-kinds"] == refs
    assert [one["$ref"] for one in schemas["Fact"]["anyOf"]] == list(refs.values())
    assert {kind: schemas[ref.rpartition("/")[2]]["properties"]["kind"]["enum"] for kind, ref in refs.items()} == {
        kind: [kind] for kind in refs
    }
    check = jsonschema.Draft7Validator({"$ref": "#/components/schemas/Envelope", "components": ASYNCAPI["components"]})
    envelope = json.loads(msgspec.json.encode(examples.ENVELOPE))
    check.validate(envelope)
    kind = envelope["facts"][0]["kind"]
    with pytest.raises(jsonschema.ValidationError):
        check.validate({**envelope, "facts": [{"kind": kind}]})


def test_the_event_struct_holds_the_documented_fields() -> None:
    assert Event.__struct_fields__ == ("v", "id", "position", "index", "at", "kind", "department", "writer", "fact")
