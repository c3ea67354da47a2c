"""Every time in a request, an answer, an event or a reason is RFC 3339; seconds since 1970 are in facts and records alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from schemas import facts, generate, queries, reasons, signals
from schemas import requests as r
from schemas.audit import AuditRecord
from schemas.descriptions import classes, component_name
from schemas.envelope import Envelope
from schemas.times import EXAMPLE, nearest, not_after, not_before, received
from services.admission.http import openapi
from services.monitor.http.http_error import Fault
from services.monitor.http.parameters import time_of

DOCUMENTS: dict[str, Any] = {
    "openapi.json": msgspec.json.decode(openapi.document()),
    "asyncapi.json": generate.documents()["asyncapi.json"],
}
REASONS = {component_name(cls) for cls in classes((reasons.Union,))}
RECORDED = {component_name(cls) for cls in classes((facts.Fact, Envelope, AuditRecord))} - REASONS


def is_a_time(field: str, schema: dict[str, Any]) -> bool:
    named = field in ("at", "until", "since") or field.endswith(("_at", "_until", "_since"))
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
    slots = {f"LeaseStartsAtReason.{field}" for field in ("starts_at", "ends_at")}
    assert slots | {"LeaseStartsReason.ends_at", "StartingReason.paused_since"} <= set(found)


def test_the_search_finds_a_number() -> None:
    number, text = {"type": "number"}, {"type": "string", "format": "date-time", "examples": [EXAMPLE]}
    nullable = [{"anyOf": [one, {"type": "null"}]} for one in (number, text)]
    lists = [{"type": "array", "items": one} for one in (number, text)]
    assert [is_text(one) for one in (number, text, *nullable, *lists)] == [False, True] * 3
    named = ("at", "start_at", "drains_until", "paused_since", "heat", "starts")
    assert [is_a_time(field, {}) for field in named] == [True, True, True, True, False, False]
    assert is_a_time("due", {"description": "when, UTC seconds"})


def lease(time: object, *, as_json: bool) -> r.LeaseCreate:
    asked = {"kind": "advance", "duration_s": 60, "start_at": time}
    found: r.LeaseCreate = r.decode(
        "lease.create", (msgspec.json if as_json else msgspec.msgpack).encode(asked), as_json
    )
    return found


VALID = {
    "1970-01-01T00:00:00Z": 0.0,
    "2026-11-26T16:00:00.000Z": 1_795_708_800.0,
    "2026-11-26T16:00:00.5Z": 1_795_708_800.5,
    "2026-11-26T16:00:00.500000000001Z": 1_795_708_800.5,
    "2026-11-26t16:00:00z": 1_795_708_800.0,
    "2026-11-26T18:30:00+02:30": 1_795_708_800.0,
    "2026-11-26T06:00:00-10:00": 1_795_708_800.0,
    "2026-11-26T16:00:00-00:00": 1_795_708_800.0,
    "9999-12-31T23:59:59Z": 253_402_300_799.0,
}
INVALID = (
    *("", "now", "1795708800", "2026-11-26", "2026-11-26T16:00:00", "2026-11-26T16:00Z", "2026-11-26T16Z"),
    *("2026-11-26 16:00:00Z", "2026-11-26_16:00:00Z", " 2026-11-26T16:00:00Z", "2026-11-26T16:00:00Z\n"),
    *("2026-11-26T16:00:00+0100", "2026-11-26T16:00:00+01", "2026-11-26T16:00:00+24:00", "2026-11-26T16:00:00+01:60"),
    *("2026-11-26T16:00:00 Z", "2026-11-26T16:00:00+01:00:30", "2026-11-26T16:00:00.Z", "2026-11-26T16:00:00,5Z"),
    *("20261126T160000Z", "2026-W48-4T16:00:00Z", "2026-330T16:00:00Z", "2026-11-26T24:00:00Z", "2026-11-26T16:60:00Z"),
    *("2026-11-26T16:00:60Z", "2026-02-30T16:00:00Z", "2026-13-01T16:00:00Z", "0000-01-01T00:00:00Z"),
    *("10000-01-01T00:00:00Z", "+2026-11-26T16:00:00Z", "\u0662026-11-26T16:00:00Z", "2026-11-26T16:00:00\u2212010:00"),
)


def of_a_query(time: object) -> float:
    found = queries.decode(msgspec.json.encode({"since": time}), queries.UsageAsked).since
    return received(found)


def of_a_signal(time: object, *, as_json: bool) -> float:
    payload = (msgspec.json if as_json else msgspec.msgpack).encode({"instances": 1, "at": time})
    return received(signals.decode("claim", payload).at)


def of_a_read(text: str) -> float:
    return time_of(make_mocked_request("GET", f"/v1/usage?since={quote(text)}"), "since", -1.0)


@pytest.mark.parametrize(("text", "instant"), VALID.items())
def test_requests_signals_queries_and_reads_take_any_offset(text: str, instant: float) -> None:
    asked = [lease(text, as_json=as_json).start_s for as_json in (True, False)]
    measured = [of_a_signal(text, as_json=as_json) for as_json in (True, False)]
    assert [*asked, *measured, of_a_query(text), of_a_read(text)] == [instant] * 6


@pytest.mark.parametrize("text", INVALID)
def test_requests_signals_queries_and_reads_refuse_what_is_no_time(text: str) -> None:
    for as_json in (True, False):
        with pytest.raises(r.Malformed) as error:
            lease(text, as_json=as_json)
        assert (error.value.field, error.value.message) == ("start_at", f"start_at: {WANTED}")
        with pytest.raises(r.Malformed) as error:
            of_a_signal(text, as_json=as_json)
        assert (error.value.field, error.value.message) == ("at", f"at: {WANTED}")
    with pytest.raises(r.Malformed) as error:
        of_a_query(text)
    assert (error.value.field, error.value.message) == ("since", f"since: {WANTED}")
    with pytest.raises(Fault) as fault:
        of_a_read(text)
    assert (fault.value.status, fault.value.field) == (400, "since")


def test_a_time_of_messagepack_is_none() -> None:
    for time in (datetime(2026, 11, 26, 16, tzinfo=UTC), b"2026-11-26T16:00:00Z"):
        with pytest.raises(r.Malformed) as error:
            lease(time, as_json=False)
        assert error.value.field == "start_at"
        assert error.value.message.startswith(f"start_at: {WANTED}, not ")
        with pytest.raises(r.Malformed) as error:
            of_a_signal(time, as_json=False)
        assert error.value.message.startswith(f"at: {WANTED}, not ")


def test_a_reasons_time_is_written_whatever_the_number_is() -> None:
    known = {0.0: "1970-01-01T00:00:00.000Z", 1_795_708_800.25: "2026-11-26T16:00:00.250Z"}
    assert {instant: nearest(instant) for instant in known} == known
    first, last = "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.000Z"
    assert [nearest(instant) for instant in (-1e300, -1.0, math.nan)] == [first] * 3
    assert [nearest(instant) for instant in (1e300, math.inf)] == [last] * 2


WANTED = f"an RFC 3339 time with an offset, such as {EXAMPLE}, is wanted"
POSSIBLE = f"a time from 1970 to 9999 (UTC) is wanted, such as {EXAMPLE}"


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("time", "words"),
    [
        (1_795_708_800, f"{WANTED}, not a number"),
        (1_795_708_800.5, f"{WANTED}, not a number"),
        (True, f"{WANTED}, not true or false"),
        (["2026-11-26T16:00:00Z"], f"{WANTED}, not a list"),
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
