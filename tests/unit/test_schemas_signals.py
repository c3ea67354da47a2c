"""What is accepted as a measurement."""

from __future__ import annotations

import math

import jsonschema
import msgspec
import pytest

from schemas import generate, signals
from schemas.requests import Malformed
from schemas.signals import CpuSignal

SCHEMA = generate.documents()["signals.json"]


@pytest.mark.parametrize(
    "payload",
    [b'{"utilisation": 0.5}', b' {"utilisation": 0.5, "later": 1}', msgspec.msgpack.encode({"utilisation": 0.5})],
)
def test_json_and_messagepack_are_told_apart(payload: bytes) -> None:
    assert signals.decode("cpu", payload) == CpuSignal(utilisation=0.5)


def test_the_content_type_decides_where_there_is_one() -> None:
    payload = msgspec.msgpack.encode({"utilisation": 2})
    assert signals.decode("cpu", payload, "application/msgpack") == CpuSignal(utilisation=2.0)
    with pytest.raises(Malformed):
        signals.decode("cpu", payload, "application/json")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "utilisation"),
        ({"utilisation": -0.01}, "utilisation"),
        ({"utilisation": 1000.1}, "utilisation"),
        ({"utilisation": math.nan}, "utilisation"),
        ({"utilisation": math.inf}, "utilisation"),
        ({"utilisation": "0.5"}, "utilisation"),
        ({"utilisation": 0.5, "instances": -1}, "instances"),
        ({"utilisation": 0.5, "interval_s": 0}, "interval_s"),
        ({"utilisation": 0.5, "at": math.inf}, "at"),
        ({"utilisation": 0.5, "source": "x" * 129}, "source"),
        ({"utilisation": 0.5, "v": 0}, "v"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_with_its_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(Malformed) as caught:
        signals.decode("cpu", msgspec.msgpack.encode(values))
    assert caught.value.field == field


@pytest.mark.parametrize("payload", [b"", b"{", b"\xc1", b"[1]", b'{"utilisation": 0.5' + b" " * 5000 + b"}"])
def test_what_is_no_measurement_at_all_is_refused(payload: bytes) -> None:
    with pytest.raises(Malformed):
        signals.decode("cpu", payload)


def test_an_unknown_signal_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        signals.decode("memory", b"{}")


def test_the_published_schema_draws_the_same_bounds() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid({"utilisation": 0, "instances": 0})
    for wrong in ({}, {"utilisation": -1}, {"utilisation": 1001}, {"utilisation": 1, "interval_s": 0}):
        assert not validator.is_valid(wrong)
