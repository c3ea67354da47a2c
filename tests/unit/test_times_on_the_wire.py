"""Every time in a request, an answer or an event is RFC 3339; seconds since 1970 are in facts and records alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts, generate, reasons
from schemas import requests as r
from schemas.audit import AuditRecord
from schemas.descriptions import classes, component_name
from schemas.envelope import Envelope
from schemas.times import EXAMPLE, not_after, not_before
from services.admission.http import openapi

DOCUMENTS: dict[str, Any] = {
    "openapi.json": msgspec.json.decode(openapi.document()),
    "asyncapi.json": generate.documents()["asyncapi.json"],
}
RECORDED = {component_name(cls) for cls in classes((facts.Fact, reasons.Union, Envelope, AuditRecord))}


def is_a_time(field: str, schema: dict[str, Any]) -> bool:
    named = field in ("at", "until", "since") or field.endswith(("_at", "_until"))
    return named or "UTC seconds" in schema.get("description", "")


def is_text(schema: dict[str, Any]) -> bool:
    """Of each alternative but null, and of each entry of a list."""
    if "anyOf" in schema:
        return all(is_text(one) for one in schema["anyOf"] if one != {"type": "null"})
    if schema.get("type") == "array":
        return is_text(schema["items"])
    return schema.get("format") == "date-time" and schema.get("type") == "string" and EXAMPLE in schema["examples"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_time_is_a_number(name: str) -> None:
    found = {
        f"{component}.{field}": is_text(value)
        for component, schema in DOCUMENTS[name]["components"]["schemas"].items()
        if component not in RECORDED
        for field, value in schema.get("properties", {}).items()
        if is_a_time(field, value)
    }
    assert {where for where, fits in found.items() if not fits} == set()
    assert len(found) > 30


def test_the_search_finds_a_number() -> None:
    number, text = {"type": "number"}, {"type": "string", "format": "date-time", "examples": [EXAMPLE]}
    nullable = [{"anyOf": [one, {"type": "null"}]} for one in (number, text)]
    lists = [{"type": "array", "items": one} for one in (number, text)]
    assert [is_text(one) for one in (number, text, *nullable, *lists)] == [False, True] * 3
    named = ("at", "start_at", "drains_until", "heat", "starts")
    assert [is_a_time(field, {}) for field in named] == [True, True, True, False, False]
    assert is_a_time("due", {"description": "when, UTC seconds"})


def lease(time: object, *, as_json: bool) -> r.LeaseCreate:
    asked = {"kind": "advance", "duration_s": 60, "start_at": time}
    found: r.LeaseCreate = r.decode(
        "lease.create", (msgspec.json if as_json else msgspec.msgpack).encode(asked), as_json
    )
    return found


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-26T16:00:00.000Z", 1_795_708_800.0),
        ("2026-11-26T16:00:00.5Z", 1_795_708_800.5),
        ("2026-11-26T18:30:00+02:30", 1_795_708_800.0),
        ("2026-11-26T06:00:00-10:00", 1_795_708_800.0),
        ("9999-12-31T23:59:59Z", 253_402_300_799.0),
    ],
)
def test_a_request_may_have_any_offset(text: str, instant: float, as_json: bool) -> None:
    assert lease(text, as_json=as_json).start_s == instant


WANTED = f"an RFC 3339 time with an offset, such as {EXAMPLE}, is wanted"
POSSIBLE = f"a time from 1970 to 9999 (UTC) is wanted, such as {EXAMPLE}"


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("time", "words"),
    [
        (1_795_708_800, f"{WANTED}, not a number"),
        (1_795_708_800.5, f"{WANTED}, not a number"),
        (True, f"{WANTED}, not true or false"),
        ("1795708800", WANTED),
        ("", WANTED),
        ("2026-11-26T16:00:00", WANTED),
        ("2026-11-26", WANTED),
        ("2026-02-30T16:00:00Z", WANTED),
        ("10000-01-01T00:00:00Z", WANTED),
        ("1969-12-31T23:59:59.999Z", POSSIBLE),
        ("1970-01-01T00:00:00+00:01", POSSIBLE),
        ("9999-12-31T23:59:59-00:01", POSSIBLE),
        ("9999-12-31T23:59:59.001Z", POSSIBLE),
    ],
)
def test_another_form_is_refused_with_the_field_and_an_example(time: object, words: str, as_json: bool) -> None:
    with pytest.raises(r.Malformed) as error:
        lease(time, as_json=as_json)
    assert (error.value.field, error.value.message) == ("start_at", f"start_at: {words}")


@pytest.mark.parametrize(
    ("kind", "given", "field"),
    [
        ("lease.create", {"kind": "deadline", "duration_s": 60}, "deadline_at"),
        ("lease.extend", {"lease": "1"}, "until_at"),
    ],
)
def test_every_time_of_a_request_is_checked(kind: str, given: dict[str, Any], field: str) -> None:
    for time in (5, "2026-11-26T16:00:00", "1969-12-31T23:59:59Z"):
        with pytest.raises(r.Malformed) as error:
            r.decode(kind, msgspec.json.encode({**given, field: time}))
        assert error.value.field == field


@pytest.mark.parametrize(
    ("instant", "before", "after"),
    [
        (5.0, "05.000", "05.000"),
        (5.0004, "05.000", "05.001"),
        (5.0006, "05.000", "05.001"),
        (5.9996, "05.999", "06.000"),
        (0.0001, "00.000", "00.001"),
    ],
)
def test_a_bound_is_rounded_to_its_own_side(instant: float, before: str, after: str) -> None:
    assert not_after(instant) == f"1970-01-01T00:00:{before}Z"
    assert not_before(instant) == f"1970-01-01T00:00:{after}Z"
