"""Each kind of type and each bound in words, and the place of what does not fit, however deep it stands."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from schemas.validation import PLACED_MAX_BYTES, WORDS, Malformed, kind_of, misfit, unreadable, words_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=3)]
    size: int = 0


class Whole(msgspec.Struct):
    parts: list[Part] = []
    by_name: dict[Annotated[str, Meta(max_length=2)], Annotated[int, Meta(ge=0, le=9)]] = {}
    some: Part | int | None = None
    named: dict[str, Part] = {}
    pair: tuple[int, str] = (0, "")
    lists: dict[str, list[int]] | None = None
    either: list[int] | Part | None = None
    mixed: str | list[int] = ""
    maybe: dict[Annotated[str, Meta(max_length=2)], int] | None = None
    noted: Annotated[list[int], Meta(extra={"of": "no words"})] = []


WORDED: list[tuple[Any, str]] = [
    (int, "a whole number"),
    (Annotated[int, Meta(ge=1, le=4)], "a whole number from 1 to 4"),
    (Annotated[int, Meta(ge=1)], "a whole number of at least 1"),
    (Annotated[int, Meta(le=4)], "a whole number of at most 4"),
    (Annotated[float, Meta(gt=0)], "a number of more than 0"),
    (Annotated[float, Meta(lt=9.5)], "a number of less than 9.5"),
    (Annotated[float, Meta(gt=0, le=604_800)], "a number of more than 0 and at most 604800"),
    (Annotated[float, Meta(ge=0, lt=1)], "a number of at least 0 and less than 1"),
    (Annotated[float, Meta(ge=0, le=253_402_300_799.0)], "a number from 0 to 253402300799"),
    (Annotated[int, Meta(ge=1, title="a title")], "a whole number of at least 1"),
    (str, "text"),
    (Annotated[str, Meta(min_length=1, max_length=3)], "text of 1 to 3 characters"),
    (Annotated[str, Meta(max_length=3)], "text of at most 3 characters"),
    (Annotated[str, Meta(min_length=0, max_length=3)], "text of at most 3 characters"),
    (Annotated[str, Meta(max_length=0)], "text of at most 0 characters"),
    (Annotated[str, Meta(min_length=2)], "text of at least 2 characters"),
    (Annotated[str, Meta(pattern="^a$", extra={WORDS: "an a"})], "an a"),
    (Annotated[bytes, Meta(max_length=3)], "bytes (in JSON as base64) of at most 3 bytes"),
    (Annotated[list[int], Meta(min_length=1, max_length=3)], "a list of 1 to 3 entries"),
    (Annotated[tuple[int, ...], Meta(max_length=3)], "a list of at most 3 entries"),
    (tuple[int, str], "a list"),
    (Annotated[dict[str, int], Meta(min_length=1)], "an object of at least 1 entries"),
    (Part, "an object"),
    (bool, "true or false"),
    (None, "null"),
    (Literal["a", "b"], "one of a, b"),
    (Colour, "one of red, blue"),
    (Annotated[int, Meta(ge=1, le=4)] | None, "a whole number from 1 to 4"),
    (int | str, "a whole number or text"),
    (Part | None, "an object"),
    (set[int], "something else"),
]


@pytest.mark.parametrize(("of", "words"), WORDED, ids=[words for _, words in WORDED])
def test_a_type_in_words(of: Any, words: str) -> None:
    assert words_of(msgspec.inspect.type_info(of)) == words


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (Annotated[int, Meta(ge=1, le=4)], "a whole number"),
        (Annotated[str, Meta(max_length=4, extra={WORDS: "an a"})] | None, "text"),
        (int | Annotated[float, Meta(gt=0)] | None, "a whole number or a number"),
        (Literal["a", "b"], "one of a, b"),
    ],
)
def test_a_kind_is_told_without_its_bounds(of: Any, words: str) -> None:
    assert kind_of(msgspec.inspect.type_info(of)) == words


MISFITS: list[tuple[str, str | None, str]] = [
    ("[]", None, "an object is wanted, not a list"),
    ('"x"', None, "an object is wanted, not text"),
    ('{"parts": 1}', "parts", "parts: a list is wanted, not a number"),
    ('{"parts": {}}', "parts", "parts: a list is wanted, not an object"),
    ('{"parts": [{"name": "a"}, {}]}', "parts[1].name", "parts[1].name is missing"),
    ('{"parts": [{"name": "abcd"}]}', "parts[0].name", "parts[0].name: text of 1 to 3 characters is wanted"),
    ('{"parts": [{"name": 1}]}', "parts[0].name", "parts[0].name: text is wanted, not a number"),
    ('{"parts": [{"name": "a", "size": 1.5}]}', "parts[0].size", "a whole number is wanted, not a fraction or an exponent"),
    ('{"parts": [{"name": "a", "size": true}]}', "parts[0].size", "a whole number is wanted, not true or false"),
    ('{"parts": [{"name": "a", "size": null}]}', "parts[0].size", "a whole number is wanted, not null"),
    ('{"parts": [{"name": "a", "x": 1}]}', "parts[0].x", "parts[0].x: there is no such field; known: name, size"),
    ('{"by_name": {"a": 10}}', "by_name", "by_name: a whole number from 0 to 9 is wanted"),
    ('{"by_name": {"a": "b"}}', "by_name", "by_name: a whole number is wanted, not text"),
    ('{"by_name": {"abc": 1}}', "by_name", "by_name: text of at most 2 characters is wanted"),
    ('{"some": "x"}', "some", "some: an object or a whole number is wanted, not text"),
    ('{"some": {"name": "abcd"}}', "some.name", "some.name: text of 1 to 3 characters is wanted"),
    ('{"named": {"a": {}}}', "named.name", "named.name is missing"),
    ('{"lists": {"a": [1, "b"]}}', "lists", "lists: a whole number is wanted, not text"),
    ('{"pair": [1]}', "pair", "pair: a list is wanted"),
    ('{"either": {"name": "abcd"}}', "either.name", "either.name: text of 1 to 3 characters is wanted"),
    ('{"either": [1, "b"]}', "either[1]", "either[1]: a whole number is wanted, not text"),
    ('{"either": 1}', "either", "either: a list or an object is wanted, not a number"),
    ('{"by_name": 1}', "by_name", "by_name: an object is wanted, not a number"),
    ('{"maybe": {"abc": 1}}', "maybe", "maybe: text of at most 2 characters is wanted"),
    ('{"noted": ["a"]}', "noted[0]", "noted[0]: a whole number is wanted, not text"),
    ('{"mixed": [1, "b"]}', "mixed[1]", "mixed[1]: a whole number is wanted, not text"),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "field", "said"), MISFITS, ids=[payload for payload, _, _ in MISFITS])
def test_what_does_not_fit_is_told_with_its_place(payload: str, field: str | None, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode(payload, type=Whole)
    told = misfit(wrong.value, Whole)
    assert told.field == field
    assert told.message.endswith(said)


def test_an_unknown_field_of_the_message_itself() -> None:
    with pytest.raises(msgspec.ValidationError) as wrong:
        msgspec.json.decode('{"name": "a", "sise": 1}', type=Part)
    found = misfit(wrong.value, Part)
    assert (found.message, found.field) == ("sise: there is no such field; did you mean size?", "sise")
    assert misfit(wrong.value, Part, {"sise": "it is a size"}).message == "sise: there is no such field; it is a size"


@pytest.mark.parametrize("name", ["", "a b", "\x1b[2J", "a`", "ä", "x" * 65])
def test_what_can_be_no_field_is_not_repeated(name: str) -> None:
    for payload, cls, field in (({name: 1}, Part, None), ({"parts": [{"name": "a", name: 1}]}, Whole, "parts[0]")):
        with pytest.raises(msgspec.ValidationError) as wrong:
            msgspec.convert(payload, type=cls)
        found = misfit(wrong.value, cls)
        assert found.field == field
        assert found.message in ("a field is not known", "parts[0]: it has a field that is not known there")


def said_of(payload: bytes, form: str = "JSON") -> Malformed:
    decode: Any = msgspec.json.decode if form == "JSON" else msgspec.msgpack.decode
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)) as wrong:
        decode(payload)
    return unreadable(wrong.value, payload, form)


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (b'{"a": NaN}', "a"),
        (b'{"a": [1, Infinity]}', "a[1]"),
        (b'{"a": {"b": [{"c": 1}, {"c": -Infinity}]}}', "a.b[1].c"),
        (b"[NaN]", "[0]"),
        (b"NaN", None),  # nowhere in particular
        (b'{"a": "NaN", "b": ]', None),  # as text it is none
        (b'{"a": NaN', None),  # and not the first thing that is wrong
    ],
)
def test_where_a_nan_stands(payload: bytes, place: str | None) -> None:
    told = said_of(payload)
    assert told.field == place
    wanted = f"{place}: a number is wanted; NaN and Infinity are none"
    assert told.message == wanted if place else told.message.startswith("the payload is not one JSON object: ")


def test_it_is_looked_for_in_json_that_is_not_too_long() -> None:
    frame = b'{"a": "%b", "b": NaN}'
    longest = PLACED_MAX_BYTES - len(frame % b"")
    assert said_of(frame % (b"x" * longest)).field == "b"
    assert said_of(frame % (b"x" * (longest + 1))).field is None
    assert unreadable(msgspec.DecodeError("cut"), b'{"a": NaN}', "MessagePack").field is None


def test_what_is_no_message_at_all_says_why() -> None:
    assert said_of(b"\xc1", "MessagePack").message.startswith("the payload is not one MessagePack object: ")
    assert said_of(b"{").message == "the payload is not one JSON object: Input data was truncated"
    deep = unreadable(RecursionError(), b"[" * 10, "JSON")
    assert deep.message == "the payload is not one JSON object: it is no UTF-8, or too deep"
