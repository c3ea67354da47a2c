"""What is accepted as a measurement."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import jsonschema
import msgspec
import pytest

from schemas import generate, signals
from schemas.requests import Malformed
from schemas.signals import CpuSignal
from schemas.times import received

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


GOOD: dict[str, dict[str, Any]] = {
    "cpu": {"utilisation": 0.5},
    "requests": {"rate": 0.5},
    "claim": {"instances": 5},
    "sessions": {"sessions": {"web.1": 5}},
    "answers": {"instances": {"web.1": [5, 1]}},
}
TIMES = [
    *(("at", value) for value in (-1, math.inf, math.nan, 1_780_000_000, 1_780_000_000.5)),
    *(("at", text) for text in ("now", "", "1780000000", "2026-05-28", "2026-05-28T20:26:40", "2026-13-28T20:26:40Z")),
]
SPANS = [("interval_s", 0), ("interval_s", 1e-9), ("interval_s", -1), ("interval_s", 3601), ("interval_s", math.nan)]
NO_NUMBER = [math.nan, math.inf, -math.inf, -0.01, 1e9 + 1, "0.5", None, [], True]
WRONG: list[tuple[str, str, Any]] = [
    *((name, field, value) for name in GOOD for field, value in TIMES),
    *((name, field, value) for name in ("cpu", "requests") for field, value in SPANS),
    *((name, "source", value) for name in GOOD for value in ("x" * 129, "\x1b[2J", "a\n", 7, None)),
    *((name, "v", value) for name in GOOD for value in (0, "1")),
    *(("cpu", "utilisation", value) for value in (*NO_NUMBER, 1000.1, 1e9)),
    *(("cpu", "instances", value) for value in (-1, 1.5, 10**9, "1")),
    *(("requests", "rate", value) for value in (*NO_NUMBER, 1e9)),
    *(("requests", "target", value) for value in (0, -1, 1e-300, 1e9, math.nan, math.inf, "9")),
    *(
        ("requests", field, value)
        for field in ("queue", "errors", "response_ms")
        for value in (-1, 1e10, math.nan, "9")
    ),
    *(("claim", "instances", value) for value in (*NO_NUMBER, 1.5, 10**9)),
    *(("sessions", "sessions", value) for value in (None, [], {"web.1": -1}, {"web.1": 10**9}, {"web.1": math.nan})),
    *(("sessions", "sessions", {key: 1}) for key in ("", "web", "web.0", "Web.1", "web.1\n", "../x", 1)),
    ("sessions", "sessions", {f"web.{n}": 0 for n in range(1, signals.SESSIONS_MAX + 2)}),
]


@pytest.mark.parametrize("name", GOOD)
def test_the_least_of_each_signal_is_enough(name: str) -> None:
    decoded = signals.decode(name, msgspec.msgpack.encode(GOOD[name]))
    assert type(decoded) is signals.SIGNALS[name]
    assert signals.decode(name, msgspec.json.encode(GOOD[name])) == decoded
    assert decoded.at is None
    field = next(iter(GOOD[name]))
    with pytest.raises(Malformed) as caught:
        signals.decode(name, b"{}")
    assert (caught.value.field, caught.value.message) == (field, f"{field} is missing")


@pytest.mark.parametrize(("name", "field", "value"), WRONG)
def test_a_measurement_that_cannot_be_is_refused_with_its_field(name: str, field: str, value: Any) -> None:
    with pytest.raises(Malformed) as caught:
        signals.decode(name, msgspec.msgpack.encode({**GOOD[name], field: value}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "-1", "1e9", '"0.5"', "null", "0x5", "1_0"]
)
def test_what_is_no_number_in_json_is_refused_too(text: str) -> None:
    for name, good in GOOD.items():
        (field, value), *_ = good.items()
        told = text if not isinstance(value, dict) else f'{{"web.1": {text}}}'
        with pytest.raises(Malformed):
            signals.decode(name, f'{{"{field}": {told}}}'.encode())


def test_the_largest_signals_fit() -> None:
    """What the schema allows is not refused for its size."""
    names = {f"{'d' * 32}.{10**17 + n}": signals.QUEUE_MAX for n in range(signals.SESSIONS_MAX)}
    for name, content in (("sessions", {"sessions": names}), ("cpu", {**GOOD["cpu"], "source": "\U0001f600" * 128})):
        payload = msgspec.json.encode(content)
        assert len(payload) <= signals.bytes_max(name), len(payload)
        signals.decode(name, payload)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xc1", b"[1]", b'{"utilisation": 0.5' + b" " * 5000 + b"}"])
def test_what_is_no_measurement_at_all_is_refused(payload: bytes) -> None:
    with pytest.raises(Malformed):
        signals.decode("cpu", payload)


TIMES_READ = ["2026-05-28T20:26:40Z", "2026-05-28T22:26:40.000+02:00", "2026-05-28T10:26:40-10:00"]


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("text", TIMES_READ)
def test_a_time_may_have_any_offset_and_is_written_in_utc_to_the_millisecond(
    name: str, as_json: bool, text: str
) -> None:
    form: Any = msgspec.json if as_json else msgspec.msgpack
    decoded = signals.decode(name, form.encode({**GOOD[name], "at": text}))
    assert received(decoded.at) == 1_780_000_000.0
    written = signals.encode(decoded)
    assert msgspec.json.decode(written)["at"] == "2026-05-28T20:26:40.000Z"
    assert signals.encode(signals.decode(name, written)) == written


@pytest.mark.parametrize("name", GOOD)
def test_who_publishes_rounds_to_the_millisecond_and_may_leave_the_time_out(name: str) -> None:
    timed = signals.decode(name, msgspec.json.encode({**GOOD[name], "at": "2026-05-28T20:26:40.9996Z"}))
    assert msgspec.json.decode(signals.encode(timed))["at"] == "2026-05-28T20:26:41.000Z"
    untimed = signals.decode(name, msgspec.json.encode(GOOD[name]))
    assert signals.decode(name, signals.encode(untimed)) == untimed


def test_a_time_of_messagepacks_own_type_is_none() -> None:
    at = datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    with pytest.raises(Malformed, match="at: an RFC 3339 time"):
        signals.decode("cpu", msgspec.msgpack.encode({"utilisation": 1.0, "at": at}))


def test_a_number_is_refused_with_the_form_that_is_wanted() -> None:
    with pytest.raises(Malformed) as caught:
        signals.decode("cpu", b'{"utilisation": 1, "at": 1780000000.0}')
    assert caught.value.message == (
        "at: an RFC 3339 time with an offset, such as 2026-11-26T16:00:00.000Z, is wanted, not a number"
    )


def test_an_unknown_signal_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        signals.decode("memory", b"{}")


def test_the_published_schema_draws_the_same_bounds() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid({"utilisation": 0, "instances": 0})
    for wrong in ({}, {"utilisation": -1}, {"utilisation": 1001}, {"utilisation": 1, "interval_s": 0}):
        assert not validator.is_valid(wrong)
