"""Where a NATS request came from: what is made of what the broker says."""

from __future__ import annotations

import json

import pytest
from nats.aio.msg import Msg

from schemas.audit import TEXT_MAX
from services.runtime.broker.origin import HEADER, Found, whence

TOLD = {"host": "10.0.0.1", "id": 7, "acc": "department-hpc", "name": "laptop", "lang": "python3", "ver": "2.16.0"}


def found(text: str) -> Found:
    return whence(Msg(None, headers={HEADER: text}))  # type: ignore[arg-type]


def test_the_address_and_the_program_are_told() -> None:
    assert found(json.dumps(TOLD)) == ("10.0.0.1", "laptop (python3 2.16.0)")
    assert found(json.dumps({"host": "fd00::1"})) == ("fd00::1", "")
    assert whence(Msg(None)) == ("", "")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"host": 7}', "\ufffd"])
def test_what_cannot_be_read_is_not_known(text: str) -> None:
    assert found(text) == ("", "")


def test_what_a_program_calls_itself_is_cut() -> None:
    assert len(found(json.dumps({**TOLD, "name": "x" * 10_000})).client) == TEXT_MAX
