"""What does not fit is told in words: every field of every request and signal, with every wrong kind and past every bound."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from schemas import requests as r
from schemas import signals
from schemas.validation import WORDS, Malformed, misfit
from services.admission.guests.guests import BeganBody, ReportBody
from services.admission.http import guest_routes

CLASSES = {
    **{kind: pair[0] for kind, pair in r.REQUESTS.items()},
    **{f"signal.{name}": cls for name, cls in signals.SIGNALS.items()},
    **{route.body.__name__: route.body for route in guest_routes.ROUTES if isinstance(route.body, type)},
}
WRONG: list[Any] = [
    7,
    -1,
    10**18,
    1.5,
    "",
    "x y\n",
    "x" * 200_000,
    True,
    None,
    [],
    [[]],
    [None],
    ["!\n"],
    {},
    {"\n": 1},
    {"A": []},
]
NOT_TOLD = re.compile(r"`|\^|\\x|\[A-Z|\bint\b|\bstr\b|\bfloat\b|\bbool\b|\bNone\b|\bregex\b|[Ee]xpected|\.0\b")
NAN = [b"NaN", b"Infinity", b"-Infinity"]


def fields(cls: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(cls)]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("as_json", [True, False])
def test_every_field_is_named_and_told_in_words(kind: str, as_json: bool) -> None:
    cls = CLASSES[kind]
    form: Any = msgspec.json if as_json else msgspec.msgpack
    refused = 0
    for field in fields(cls):
        for value in WRONG:
            try:
                form.decode(form.encode({field: value}), type=cls)
            except msgspec.ValidationError as error:
                told = misfit(error, cls)
                if told.message.endswith(" is missing"):
                    continue
                refused += 1
                assert told.field is not None, told.message
                assert re.split(r"[.\[]", told.field)[0] == field, told.message
                assert not NOT_TOLD.search(told.message), told.message
                assert told.message.startswith(f"{told.field}: "), told.message
                assert len(told.message) < 300
    assert refused > 0 or not fields(cls)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("wrong", NAN)
def test_a_nan_names_its_field(kind: str, wrong: bytes) -> None:
    if kind in r.REQUESTS:
        for field in fields(CLASSES[kind]):
            with pytest.raises(Malformed) as caught:
                r.decode(kind, b'{"%b": %b}' % (field.encode(), wrong))
            assert (caught.value.field, "NaN and Infinity are none" in caught.value.message) == (field, True)
    if kind.startswith("signal."):
        with pytest.raises(Malformed) as caught:
            signals.decode(kind.removeprefix("signal."), b'{"at": %b}' % wrong)
        assert caught.value.field == "at"


def test_it_is_found_wherever_it_stands() -> None:
    with pytest.raises(Malformed) as caught:
        r.decode("job.submit", b'{"script": "x", "inputs": [{"name": "a", "data": ""}, {"data": NaN}]}')
    assert caught.value.field == "inputs[1].data"
    with pytest.raises(Malformed) as caught:
        r.decode("job.submit", b'{"script": "NaN", "tasks": ]')  # it is wrong elsewhere
    assert caught.value.field is None


def patterns(found: Any, known: set[int]) -> Iterator[tuple[inspect.Type, bool]]:
    """Every text with a pattern in a type, and whether words stand beside it."""
    if id(found) in known:
        return
    known.add(id(found))
    if isinstance(found, inspect.Metadata):
        has = WORDS in (found.extra or {})
        for one, inside in patterns(found.type, known):
            yield one, has if one is found.type else inside
        return
    if isinstance(found, inspect.StrType) and found.pattern:
        yield found, False
    for name in ("types", "item_types"):
        for one in getattr(found, name, ()):
            yield from patterns(one, known)
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(found, name):
            yield from patterns(getattr(found, name), known)
    for field in getattr(found, "fields", ()):
        yield from patterns(field.type, known)


def test_every_pattern_has_words() -> None:
    found = [pair for cls in CLASSES.values() for pair in patterns(inspect.type_info(cls), set())]
    assert len(found) > 10
    assert [one for one, has in found if not has] == []


def test_the_guests_bodies_are_among_them() -> None:
    assert {BeganBody, ReportBody} <= set(CLASSES.values())
