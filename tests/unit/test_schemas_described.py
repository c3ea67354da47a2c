"""Every property of the generated documents has a description, and the descriptions come from where the fields are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from schemas import generate, reasons
from schemas.common_fields import COMMON
from schemas.descriptions import component_name, fields, schema_components, summary
from services.admission.http import openapi

CHARACTERS_MAX = 300
DOCUMENTS: dict[str, Any] = {**generate.documents(), "openapi.json": msgspec.json.decode(openapi.document())}
PYTHON_ONLY = re.compile(r"\\[AZzGaP]|\(\?P|\(\?#|\(\?[aiLmsux]+[:)-]|\(\?\(|\(\?>|[*+?}]\+|\\N\{|\\U")


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document, but for examples and values."""
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in ("examples", "default", "enum"):
                yield from nodes(value)
    elif isinstance(node, list):
        for each in node:
            yield from nodes(each)


def components(name: str) -> dict[str, Any]:
    document = DOCUMENTS[name]
    found: dict[str, Any] = document["$defs"] if "$defs" in document else document["components"]["schemas"]
    return found


def properties(name: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for component, schema in components(name).items():
        for field, value in schema.get("properties", {}).items():
            yield component, field, value


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_property_and_every_component_has_a_description(name: str) -> None:
    assert [f"{where}.{field}" for where, field, value in properties(name) if not value.get("description")] == []
    assert [where for where, schema in components(name).items() if not schema.get("description")] == []
    assert sum(1 for _ in properties(name)) > 20


@pytest.mark.parametrize("name", DOCUMENTS)
def test_descriptions_of_properties_are_short_and_whole(name: str) -> None:
    for where, field, value in properties(name):
        text = value["description"]
        assert len(text) <= CHARACTERS_MAX, f"{where}.{field}: {len(text)} characters"
        assert text.count("`") % 2 == 0, f"{where}.{field}: {text}"
        assert text.count("(") == text.count(")"), f"{where}.{field}: {text}"
        assert text == " ".join(text.split()), f"{where}.{field}: {text}"
        assert not re.search(r"\bNone\b", text), f"{where}.{field}: JSON has null: {text}"


def test_every_entry_of_the_table_is_used() -> None:
    used = {
        field for name in DOCUMENTS for _, field, value in properties(name) if value["description"] == COMMON.get(field)
    }
    assert set(COMMON) - used == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_patterns_are_those_of_ecma_262(name: str) -> None:
    patterns = [node["pattern"] for node in nodes(DOCUMENTS[name]) if isinstance(node.get("pattern"), str)]
    assert [pattern for pattern in patterns if PYTHON_ONLY.search(pattern)] == []


def test_the_search_for_pythons_notation_finds_it() -> None:
    for pattern in (r"^a\Z", r"\Aa", r"(?P<name>a)", "(?i)a", "(?i:a)", "a++", "(?>a)"):
        assert PYTHON_ONLY.search(pattern), pattern
    for pattern in (r"^[a-z]{1,3}$", r"(?:a|b)+?", r"(?=a)", r"(?<!a)b", r"[^\x00-\x1f]*"):
        assert not PYTHON_ONLY.search(pattern), pattern


# ------------------------------------------------------------------------------------------------------------- the sources


class Base(msgspec.Struct, kw_only=True):
    """`inherited`: from the base.  `changed`: by the base."""

    inherited: int
    changed: int = 0


class Example(Base, kw_only=True, tag_field="kind", tag="example"):
    """An example (S7, S10).  `one`, `two`: both; `changed`: 1: changed; 2: not.  The next sentence.  `kind`: which one.

    In a lease: `lease_a`: its begin; `lease_b`: its end.  Without `three`: nothing is a part.
    """

    one: int
    two: int
    three: int  # behind the field
    four: Annotated[
        int,
        msgspec.Meta(ge=0),
    ] = 0  # on the last line
    five: Annotated[str, msgspec.Meta(description="in its type", pattern=r"^a\Z")] = ""  # not this
    lease_a: int = 0
    lease_b: int = 0
    unit: str = ""
    nothing: int = 0
    set_later: int | msgspec.UnsetType = msgspec.UNSET


class Sent(msgspec.Struct):
    """It refers to `Example`."""

    example: Example
    count: int = 0
    perhaps: int | msgspec.UnsetType = msgspec.UNSET


class Sparse(msgspec.Struct, omit_defaults=True):
    count: int = 0


def test_docstrings_comments_and_the_table_are_the_sources() -> None:
    assert fields(Example) == {
        "kind": "which one",
        "inherited": "from the base",
        "changed": "1: changed; 2: not",
        "one": "both",
        "two": "both",
        "three": "behind the field",
        "four": "on the last line",
        "five": "not this",
        "lease_a": "in a lease: its begin",
        "lease_b": "in a lease: its end",
        "unit": COMMON["unit"],
    }
    assert summary(Example) == "An example. The next sentence.\n\nWithout `three`: nothing is a part."


def test_what_the_type_says_goes_first_and_patterns_are_translated() -> None:
    _, made = schema_components([Example], "#/{name}")
    five = made["Example"]["properties"]["five"]
    assert five["description"] == "in its type"
    assert five["pattern"] == "^a$"
    assert "description" not in made["Example"]["properties"]["nothing"]
    assert made["Example"]["properties"]["kind"] == {"type": "string", "enum": ["example"], "description": "which one"}


def test_what_the_server_alone_sends_is_there_whole() -> None:
    _, made = schema_components([], "#/{name}", sent=[Sent, Sparse])
    assert made["Sent"]["required"] == ["example", "count"]
    assert made["Example"]["required"] == [name for name in made["Example"]["properties"] if name != "set_later"]
    assert made["Sparse"]["required"] == []
    _, asked = schema_components([Example], "#/{name}", sent=[Sent])
    assert asked["Example"]["required"] == ["kind", "inherited", "one", "two", "three"]


def test_fields_of_requests_with_a_default_may_be_left_out() -> None:
    for name in ("openapi.json", "asyncapi.json", "requests.json"):
        assert components(name)["JobSubmit"]["required"] == []
    for name in ("asyncapi.json", "requests.json"):
        assert components(name)["JobSubmit"]["properties"]["tasks"]["default"] == 1
    for name in ("openapi.json", "asyncapi.json", "replies.json"):
        assert set(components(name)["Submitted"]["required"]) == {"job", "units"}
        assert set(components(name)["Problem"]["required"]) == {"type", "title", "status", "detail", "code"}


def test_openapi_names_defaults_in_words_where_a_property_may_be_absent() -> None:
    """A `default` would be sent by generated clients, or make its property one that is always there."""
    assert [f"{where}.{field}" for where, field, value in properties("openapi.json") if "default" in value] == []
    told = {
        (where, field): value["description"].partition("; default: ")[2]
        for where, field, value in properties("openapi.json")
    }
    assert told["JobSubmit", "tasks"] == "1"
    assert told["JobSubmit", "exclusive"] == "false"
    assert told["JobSubmit", "name"] == '"job"'
    assert told["LeaseExtendBody", "request"] == told["JobSubmit", "argv"] == told["JobSubmit", "nodes"] == ""
    assert told["Acknowledged", "stay"] == "false"  # left out where it is false
    assert told["Event", "v"] == ""  # always there


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_array_says_what_its_items_are(name: str) -> None:
    arrays = [node for node in nodes(DOCUMENTS[name]) if node.get("type") == "array"]
    assert [node for node in arrays if not node.keys() & {"items", "prefixItems"}] == []
    assert arrays


@pytest.mark.parametrize("name", ["openapi.json", "asyncapi.json", "facts.json", "replies.json"])
def test_the_union_of_reasons_is_one_component(name: str) -> None:
    union = components(name)["Reason"]
    assert len(union["anyOf"]) == len(reasons.REASONS)
    assert {component_name(cls) for cls in reasons.REASONS} <= set(components(name))
    many = [node for node in nodes(DOCUMENTS[name]) if len(node.get("anyOf", ())) == len(reasons.REASONS)]
    assert many == [union]


def test_the_service_that_serves_the_document_does_not_generate_it() -> None:
    program = "import sys, services.admission.http.door; sys.exit('schemas.descriptions' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_names_of_components_are_those_of_their_classes() -> None:
    for name in DOCUMENTS:
        assert [component for component in components(name) if "." in component] == []
