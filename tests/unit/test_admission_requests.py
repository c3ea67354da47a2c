"""Requests on the wire: what fits, what is refused, and which field the refusal names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import requests as r
from schemas.examples import REQUESTS as EXAMPLES
from schemas.facts import Dependency
from services.domain.specs import CONDITIONS

MISFITS = [
    # payload, field, a part of the message
    ({"tasks": "four", "script": "x"}, "tasks", "a whole number is wanted, not text"),
    ({"tasks": 0, "script": "x"}, "tasks", "from 1 to 1000000"),
    ({"tasks": r.TASKS_MAX + 1, "script": "x"}, "tasks", "from 1 to 1000000"),
    ({"nodes": 0, "script": "x"}, "nodes", "from 1 to 10000"),
    ({"nodes": r.NODES_MAX + 1, "script": "x"}, "nodes", "from 1 to 10000"),
    ({"cpus_per_task": 0, "script": "x"}, "cpus_per_task", "from 1 to 4096"),
    ({"memory_mb": -1, "script": "x"}, "memory_mb", "from 0 to"),
    ({"memory_per_core_mb": 0, "script": "x"}, "memory_per_core_mb", "from 1 to"),
    ({"memory_mb": 0, "memory_per_core_mb": 9, "script": "x"}, "memory_per_core_mb", "not both"),
    (
        {"memory_mb": 1.5, "script": "x"},
        "memory_mb",
        "a whole number is wanted, not a fraction or an exponent",
    ),
    ({"nodes": 1e30, "script": "x"}, "nodes", "a whole number is wanted, not a fraction or an exponent"),
    ({"walltime_s": 0, "script": "x"}, "walltime_s", "more than 0"),
    ({"walltime_s": -1, "script": "x"}, "walltime_s", "more than 0"),
    ({"retries": -1, "script": "x"}, "retries", "from 0 to 1000"),
    ({"priority": 10**9, "script": "x"}, "priority", "from -1000000 to 1000000"),
    ({"name": "", "script": "x"}, "name", "of 1 to 128 characters"),
    ({"name": "n" * 129, "script": "x"}, "name", "of 1 to 128 characters"),
    ({"name": "a\nb", "script": "x"}, "name", "must not hold control, invisible"),
    ({"name": "a\u202eb", "script": "x"}, "name", "direction-turning"),
    ({"name": "a\u200bb", "script": "x"}, "name", "invisible"),
    ({"request": "a\u2066b", "script": "x"}, "request", "invisible"),
    ({"request": "i" * 129, "script": "x"}, "request", "at most 128 characters"),
    ({"on_reclaim": "explode", "script": "x"}, "on_reclaim", "one of kill, migrate"),
    ({"held": 1, "script": "x"}, "held", "true or false is wanted, not a number"),
    ({"argv": ["a", 1]}, "argv[1]", "text is wanted, not a number"),
    ({"argv": ["a\0b"]}, "argv", "NUL"),
    ({"argv": ["a"] * (r.ARGUMENTS_MAX + 1)}, "argv", "a list of at most 4096 entries"),
    ({"environment": {"A=B": "x"}, "script": "x"}, "environment", "'='"),
    ({"environment": {"A": "x\0"}, "script": "x"}, "environment", "NUL"),
    ({"environment": {"": "x"}, "script": "x"}, "environment", "of 1 to 4096 characters"),
    ({"environment": {f"A{n}": "x" * 100_000 for n in range(11)}, "script": "x"}, "environment", "at most"),
    ({}, "argv", "script or argv"),
    ({"script": None, "argv": []}, "argv", "script or argv"),
    ({"script": ""}, "script", "script or argv"),
    ({"script": 7}, "script", "text is wanted"),
    ({"directory": "a\0", "script": "x"}, "directory", "control characters"),
    ({"stdout": "", "script": "x"}, "stdout", "of 1 to 4095 characters"),
    ({"inputs": [{"name": "../x", "data": ""}], "script": "x"}, "inputs[0].name", "relative"),
    ({"inputs": [{"name": "/x", "data": ""}], "script": "x"}, "inputs[0].name", "relative"),
    ({"inputs": [{"name": "x"}], "script": "x"}, "inputs[0].data", "missing"),
    ({"inputs": [{"name": "x", "data": "###"}], "script": "x"}, "inputs[0].data", "base64"),
    ({"inputs": [{"name": "x", "data": ""}] * 2, "script": "x"}, "inputs", "same name"),
    ({"keep": ["../*"], "script": "x"}, "keep[0]", "relative"),
    ([], None, "an object is wanted, not a list"),
]


@pytest.mark.parametrize(("payload", "field", "text"), MISFITS, ids=[f"{m[1]}-{n}" for n, m in enumerate(MISFITS)])
@pytest.mark.parametrize("as_json", [True, False])
def test_what_does_not_fit_is_refused_with_the_field_named(
    payload: object, field: str, text: str, as_json: bool
) -> None:
    if not as_json and isinstance(payload, dict):  # MessagePack has bytes of its own, JSON has base64
        payload = {
            **payload,
            "inputs": [
                {**x, "data": b"" if x["data"] == "" else 7} if "data" in x else x for x in payload.get("inputs", [])
            ],
        }
        text = "bytes (in JSON as base64) is wanted" if text == "base64" else text
    encode = msgspec.json.encode if as_json else msgspec.msgpack.encode
    with pytest.raises(r.Malformed) as error:
        r.decode("job.submit", encode(payload), as_json)
    assert error.value.field == field
    assert text in error.value.message


@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        ("job.cancel", {}, "jobs"),
        ("job.cancel", {"jobs": []}, "jobs"),
        ("job.hold", {"jobs": [1]}, "jobs[0]"),
        ("job.release", {"jobs": ["1"] * (r.JOBS_MAX + 1)}, "jobs"),
        ("scale.set", {}, "exact"),
        ("scale.set", {"minimum": 1, "exact": 1}, "exact"),
        ("scale.set", {"minimum": -1}, "minimum"),
        ("scale.set", {"auto": True, "exact": 3}, "exact"),
        ("scale.set", {"exact": 3, "for_s": 0}, "for_s"),
        ("host.cordon", {}, "host"),
        ("host.cordon", {"host": "h", "reason": "a\nb"}, "reason"),
        ("host.cordon", {"host": "h", "reason": "a\u200fb"}, "reason"),
        ("scale.set", {"exact": 1, "request": "\ufeff"}, "request"),
        ("release.deploy", {"image": "a\u202eb"}, "image"),
        ("config.apply", {}, "config"),
    ],
)
def test_the_other_requests_name_their_fields_too(kind: str, payload: object, field: str) -> None:
    with pytest.raises(r.Malformed) as error:
        r.decode(kind, msgspec.json.encode(payload))
    assert error.value.field == field


def test_numbers_that_are_none_are_refused() -> None:
    for value in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(r.Malformed) as error:
            r.decode("job.submit", msgspec.msgpack.encode({"script": "x", "walltime_s": value}), False)
        assert error.value.field == "walltime_s"


@pytest.mark.parametrize("data", [b"{", b"\xff\xfe", b'{"script":"\xff"}', b"[" * 100_000, b"{}{}"])
def test_bytes_that_are_no_message_are_malformed(data: bytes) -> None:
    with pytest.raises(r.Malformed):
        r.decode("job.submit", data, True)
    with pytest.raises(r.Malformed):
        r.decode("job.submit", b"\xc1" + data, False)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("kind", r.REQUESTS)
def test_an_unknown_field_of_any_request_is_refused_by_its_name(kind: str, as_json: bool) -> None:
    example = msgspec.to_builtins(EXAMPLES[kind])
    encode = msgspec.json.encode if as_json else msgspec.msgpack.encode
    r.decode(kind, encode(example), as_json)
    for wrong in ("from_the_future", "department", "user", "role"):
        with pytest.raises(r.Malformed) as error:
            r.decode(kind, encode({**example, wrong: 1}), as_json)
        assert error.value.field == wrong
        assert error.value.message.startswith(f"{wrong}: there is no such field")
        assert ("the token or the subject says it" in error.value.message) == (wrong != "from_the_future")


@pytest.mark.parametrize(
    ("kind", "payload", "field", "hint"),
    [
        ("job.submit", {"script": "x", "cores": 400}, "cores", "did you mean cpus_per_task?"),
        ("job.whatif", {"script": "x", "memory": 400}, "memory", "did you mean memory_mb?"),
        ("job.submit", {"script": "x", "walltime": 60}, "walltime", "did you mean walltime_s?"),
        ("job.submit", {"script": "x", "nonsense": 1}, "nonsense", "there is no such field"),
        ("job.submit", {"script": "x", "signal": {"number": 1, "befor_s": 2}}, "signal.befor_s", "did you mean before_s?"),
        ("job.submit", {"script": "x", "inputs": [{"name": "a", "data": "", "mode": 1}]}, "inputs[0].mode", "known: name, "),
        ("job.cancel", {"jobs": ["1"], "force": True}, "force", "known: jobs"),
        ("host.drain", {"host": "h1", "deadline": 5}, "deadline", "did you mean deadline_s?"),
    ],
)  # fmt: skip
def test_an_unknown_field_is_answered_with_what_would_be_right(
    kind: str, payload: dict[str, Any], field: str, hint: str
) -> None:
    with pytest.raises(r.Malformed) as error:
        r.decode(kind, msgspec.json.encode(payload))
    assert error.value.field == field
    assert hint in error.value.message


def test_a_stored_signal_has_fields_of_a_newer_version_and_is_read() -> None:
    stored = msgspec.json.decode(b'{"number": 10, "from_the_future": 1}', type=r.StoredSignal)
    assert stored == r.StoredSignal(number=10)


def test_defaults_are_as_documented() -> None:
    request = r.decode("job.submit", b'{"script":"x"}')
    assert request == r.JobSubmit(script="x")
    assert (request.tasks, request.nodes, request.cpus_per_task, request.memory_mb) == (1, None, 1, None)
    assert (request.exclusive, request.walltime_s, request.priority, request.retries) == (False, None, 0, 0)


def test_both_formats_give_the_same_request() -> None:
    request = r.JobSubmit(script="x", argv=("a",), inputs=(r.InputFile(name="f", data=b"\x00\xff"),), nodes=2)
    for as_json in (True, False):
        assert r.decode("job.submit", r.encode(request, as_json), as_json) == request


def test_the_format_is_told_by_header_or_first_byte() -> None:
    assert r.is_json(b' \n{"a":1}')
    assert r.is_json(b"")
    assert r.is_json(b"nonsense")
    assert not r.is_json(msgspec.msgpack.encode({"a": 1}))
    assert not r.is_json(b"{}", "application/msgpack")
    assert r.is_json(b"\x80", "application/json; charset=utf-8")


def test_the_conditions_of_dependencies_are_those_of_the_fact() -> None:
    for condition in CONDITIONS:
        msgspec.convert({"condition": condition, "job": "1"}, Dependency)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"condition": "singleton", "job": "1"}, Dependency)
