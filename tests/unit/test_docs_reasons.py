"""Every reason is documented: on its page and in the generated documents, with an example, its sentence and its remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from schemas import generate, reasons, reasons_page
from schemas.descriptions import component_name
from schemas.examples_reasons import BY_KIND, REASONS
from services.admission.http import openapi

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "reasons.md"
OPENAPI: dict[str, Any] = msgspec.json.decode(openapi.document())["components"]["schemas"]
ASYNCAPI: dict[str, Any] = generate.documents()["asyncapi.json"]["components"]["schemas"]


def test_the_page_says_what_the_structs_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reasons_page.page(), (
        "run: python -m schemas.reasons_page > docs/reference/reasons.md"
    )


def test_every_reason_has_one_example() -> None:
    assert set(BY_KIND) == set(reasons.REASONS)
    assert len(REASONS) == len(BY_KIND)


@pytest.mark.parametrize("example", REASONS, ids=lambda one: one.code)
def test_a_reason_is_in_both_documents_with_its_words(example: reasons.AnyReason) -> None:
    for schemas in (OPENAPI, ASYNCAPI):
        shown = schemas[component_name(type(example))]
        assert shown["examples"] == [msgspec.to_builtins(example)]
        assert shown["x-sentence"] == example.sentence() != ""
        assert shown.get("x-remedy", "") == example.remedy()
    for told in (OPENAPI, {"Reason": OPENAPI["Reason"]}):
        assert told["Reason"]["discriminator"]["mapping"][example.code].endswith(f"/{component_name(type(example))}")


@pytest.mark.parametrize("example", REASONS, ids=lambda one: one.code)
def test_an_example_is_valid_and_its_sentence_leaves_nothing_open(example: reasons.AnyReason) -> None:
    schema = {**OPENAPI["Reason"], "components": {"schemas": OPENAPI}}
    jsonschema.Draft202012Validator(schema).validate(json.loads(msgspec.json.encode(example)))
    assert not re.search(r"\?|\bNone\b", f"{example.sentence()} {example.remedy()}"), (
        "a number that it needs is missing"
    )


def test_the_page_has_a_section_and_every_parameter_of_each_reason() -> None:
    sections = dict(zip(*[iter(re.split(r"^### (.+)$", reasons_page.page(), flags=re.M)[1:])] * 2, strict=True))
    for kind in reasons.REASONS:
        text = sections[f"`{reasons.tag(kind)}`"]
        links = re.findall(r"\]\(#([a-z-]+)\)", text)
        shared = "".join(body for title, body in sections.items() if title.lower().replace(" ", "-") in links)
        missing = [name for name in kind.__struct_fields__ if f"| `{name}` |" not in f"{text}{shared}"]
        assert missing == [], kind
