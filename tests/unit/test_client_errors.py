"""Errors of the client library: which type a problem becomes, and what is no problem."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from phoenix.client import errors
from phoenix.client.errors import (
    Conflict,
    Denied,
    Gone,
    Invalid,
    OverLimit,
    PhoenixError,
    Refused,
    Unavailable,
    Unknown,
    of_part,
    refusal,
)
from schemas.problems import KINDS

TYPES = [
    ("invalid", 422, Invalid),
    ("invalid", 400, Invalid),
    ("unknown", 404, Unknown),
    ("denied", 401, Denied),
    ("denied", 403, Denied),
    ("conflict", 409, Conflict),
    ("limit", 413, OverLimit),
    ("limit", 429, OverLimit),
    ("gone", 410, Gone),
    ("unavailable", 503, Unavailable),
    ("unavailable", 500, Unavailable),
]


def problem(code: str, **more: Any) -> dict[str, Any]:
    return {"type": f"urn:phoenix:problem:{code}", "title": "Not done", "detail": "no", "code": code, **more}


@pytest.mark.parametrize(("code", "status", "kind"), TYPES)
def test_an_answer_has_the_type_of_its_code(code: str, status: int, kind: type[PhoenixError]) -> None:
    found = refusal(status, {}, problem(code))
    assert type(found) is kind
    assert (found.message, str(found), found.status) == ("no", "no", status)


@pytest.mark.parametrize(("code", "status", "kind"), TYPES)
@pytest.mark.parametrize("answer", ["", "<html>no</html>", {}, [], {"detail": 7}, problem(""), problem("newer")])
def test_without_a_code_that_is_known_the_status_decides(
    code: str, status: int, kind: type[PhoenixError], answer: object
) -> None:
    assert type(refusal(status, {}, answer)) is kind


def test_every_error_says_something() -> None:
    assert refusal(302, {}, "").message == "the cloud answered with HTTP status 302"
    assert type(refusal(302, {}, "")) is Refused
    assert refusal(502, {}, "x" * 1000).message == "x" * errors.TEXT_MAX


def test_what_belongs_to_a_type_is_read() -> None:
    wrong = refusal(422, {}, problem("invalid", field="tasks"))
    assert isinstance(wrong, Invalid)
    assert (wrong.field, wrong.code) == ("tasks", "invalid")
    offer = {"at": "2026-01-31T12:00:00.000Z", "latest_end_at": "2026-01-31T13:00:00.000Z"}
    collides = refusal(409, {}, problem("conflict", lease=offer))
    assert isinstance(collides, Conflict)
    assert collides.lease == offer
    gone = refusal(410, {}, problem("gone", oldest=77))
    assert isinstance(gone, Gone)
    assert gone.oldest == 77


def test_a_problem_says_itself_when_to_try_again() -> None:
    busy = refusal(429, {"retry-after": "1"}, problem("limit", retry_after_s=2.5))
    assert isinstance(busy, OverLimit)
    assert busy.retry_after_s == 2.5


def test_what_is_missing_is_none() -> None:
    collides, gone = refusal(409, {}, problem("conflict")), refusal(410, {}, "")
    assert isinstance(collides, Conflict)
    assert isinstance(gone, Gone)
    assert (collides.lease, collides.field, gone.oldest) == (None, None, 0)


@pytest.mark.parametrize(
    ("code", "status", "header", "after_s"),
    [
        ("limit", 429, "1", 1.0),
        ("limit", 429, None, None),
        ("limit", 413, "1", None),  # it will not become smaller
        ("unavailable", 503, "2.5", 2.5),
        ("unavailable", 503, "Fri, 31 Dec 1999 23:59:59 GMT", None),
        ("unavailable", 503, "inf", None),
        ("unavailable", 503, "-1", None),
    ],
)
def test_when_to_try_again(code: str, status: int, header: str | None, after_s: float | None) -> None:
    found = refusal(status, {} if header is None else {"retry-after": header}, problem(code))
    assert isinstance(found, OverLimit | Unavailable)
    assert found.retry_after_s == after_s


def test_the_error_of_one_job_among_several() -> None:
    found = of_part(problem("unknown", field="jobs", status=404))
    assert (type(found), found.message, found.field, found.status) == (Unknown, "no", "jobs", 404)
    assert type(of_part(None)) is type(of_part(problem("unavailable", status=503))) is Refused


def test_every_kind_of_problem_has_its_type() -> None:
    for code, kind in KINDS.items():
        for status in (kind.status, *(status for status, _ in kind.others)):
            assert type(refusal(status, {}, problem(code))) is not Refused
            assert type(refusal(status, {}, problem(code))) is type(refusal(kind.status, {}, problem(code)))


def test_errors_survive_the_way_to_another_process() -> None:
    before = refusal(422, {}, problem("invalid", field="tasks"))
    before.unanswered, before.request, before.hint = True, "r1", "write a number"
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is Invalid
    assert vars(after) == vars(before)
    assert str(after) == "no"


def test_every_type_is_public_and_has_one_base() -> None:
    import phoenix.client

    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, PhoenixError)}
    assert kinds <= set(phoenix.client.__all__)
