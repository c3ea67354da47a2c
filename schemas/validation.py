"""What does not fit a message, in words: which field, and what is allowed there.  Pure.

Theory of operation
  msgspec says what it expected in its own terms (a type, a regular expression) and where (`$.inputs[0].name`).  The place leads
  to the field's type in the message, whose bounds are then told in words; a pattern's words stand beside it
  (`Meta(pattern=…, extra={"words": …})`).

Rules
  1. No type of Python, no regular expression, and nothing of what was sent stands in a message, but for the name of a field
     that is not known, if it could be one.
  2. For a field that is not known the message names the nearest one, or all if there are few.
  3. For a value of another kind the message names the kind that is wanted; for one out of bounds, the bounds.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from schemas.times import WORDS as TIME

PLACED_MAX_BYTES: Final = 1 << 20  # a longer payload is not read a second time to say where its NaN stands
UNREADABLE: Final = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
)  # all that decoding foreign bytes may raise
NEAR: Final = 0.75  # of a name that is suggested; with less, cores would be nodes
LISTED_MAX: Final = 8  # fields; a longer list is not read
NO_HINTS: Final[Mapping[str, str]] = {}
WORDS: Final = "words"  # of a pattern, in `Meta.extra`
KIND: Final = "kind"  # of a text that is more than text, in `Meta.extra`
_GOT: Final = {
    "int": "a number",
    "float": "a fraction or an exponent",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "bytes": "bytes",
}
_KINDS: Final[dict[type[inspect.Type], str]] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.BytesType: "bytes (in JSON as base64)",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
    inspect.TupleType: "a list",
    inspect.DictType: "an object",
    inspect.StructType: "an object",
    inspect.NoneType: "null",
}
_UNITS: Final[dict[type[inspect.Type], str]] = {inspect.StrType: "characters", inspect.BytesType: "bytes"}
_place: Final = re.compile(r"(?P<what>.*) - at `(?P<path>.+)`\Z", re.DOTALL)
_missing: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_unknown: Final = re.compile(r"Object contains unknown field(?: `(?P<name>[A-Za-z0-9_-]{1,64})`\Z)?")
_got: Final = re.compile(r"Expected `[^`]*`, got `(?P<got>\w+)`")
_step: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+|\.\.\.)\]")
_no_number: Final = re.compile(rb"NaN|Infinity")


class Malformed(Exception):
    """A payload that is not its message.  `field`: where; `message`: what would be right."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


def misfit(error: msgspec.ValidationError, cls: Any, hints: Mapping[str, str] = NO_HINTS) -> Malformed:
    """`cls`: what the payload should have been.  `hints`: what would be right instead of a field of the message itself that it
    does not have."""
    text = str(error)
    place = _place.match(text)
    what, path = (place["what"], place["path"].rpartition("$")[2]) if place else (text, "")
    field = path.removeprefix(".").partition("[...]")[0] or None
    if missing := _missing.match(what):
        field = f"{field}.{missing['name']}" if field else missing["name"]
        return Malformed(f"{field} is missing", field)
    if unknown := _unknown.match(what):
        known = _names(_type_at(_type_of(cls), path, is_key=False))
        return _unknown_field(unknown["name"], field, known, hints if not path else NO_HINTS)
    found = _type_at(_type_of(cls), path, is_key=place is not None and place["path"].startswith("key` in"))
    got = _got.match(what)
    wanted = f"{kind_of(found)} is wanted, not {_got_of(got['got'], found)}" if got else f"{words_of(found)} is wanted"
    return Malformed(f"{field}: {wanted}" if field else wanted, field)


def _got_of(kind: str, wanted: inspect.Type) -> str:
    """What was sent instead; instead of a time, any number is one."""
    return _GOT.get("int" if kind == "float" and kind_of(wanted) == TIME else kind, "that")


def _unknown_field(name: str | None, where: str | None, known: Sequence[str], hints: Mapping[str, str]) -> Malformed:
    """`where`: the object that has it; None: the message.  `known`: the fields that there are (rule 2)."""
    if name is None:
        return Malformed(f"{where}: it has a field that is not known there" if where else "a field is not known", where)
    field = f"{where}.{name}" if where else name
    return Malformed(f"{field}: {no_such('field', name, known, hints.get(name, ''))}", field)


def no_such(thing: str, name: str, known: Sequence[str], hint: str = "") -> str:
    """The sentence on a `name` that is none of the `known` ones (rule 2).  `thing`: a field, a parameter; `hint`: what would be
    right, if that is known better."""
    import difflib  # only on the way to an error message

    near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    right = hint or (f"did you mean {near[0]}?" if near else "")
    if not right and 0 < len(known) <= LISTED_MAX:
        right = f"known: {', '.join(known)}"
    return f"there is no such {thing}{right and '; '}{right}"


def unreadable(error: Exception, payload: bytes, form: str) -> Malformed:
    """Of a payload that is no message at all.  `form`: JSON or MessagePack."""
    place = _place_of_no_number(payload) if form == "JSON" else None
    if place is not None:
        return Malformed(f"{place}: a number is wanted; NaN and Infinity are none", place)
    why = str(error) if isinstance(error, msgspec.DecodeError) else "it is no UTF-8, or too deep"
    return Malformed(f"the payload is not one {form} object: {why}")


# ------------------------------------------------------------------------------------------------------------ types in words


def kind_of(found: inspect.Type) -> str:
    """Without its bounds."""
    if isinstance(found, inspect.Metadata):
        return str((found.extra or {}).get(KIND) or kind_of(found.type))
    if isinstance(found, inspect.UnionType):
        return " or ".join(dict.fromkeys(kind_of(one) for one in found.types if not isinstance(one, inspect.NoneType)))
    return _KINDS.get(type(found), "") or words_of(found)


def words_of(found: inspect.Type) -> str:
    """With its bounds."""
    if isinstance(found, inspect.Metadata):
        return str((found.extra or {}).get(WORDS) or words_of(found.type))
    if isinstance(found, inspect.UnionType):
        return " or ".join(dict.fromkeys(words_of(one) for one in found.types if not isinstance(one, inspect.NoneType)))
    if isinstance(found, inspect.LiteralType):
        return f"one of {', '.join(map(str, found.values))}"
    if isinstance(found, inspect.EnumType):
        return f"one of {', '.join(str(one.value) for one in found.cls)}"
    kind = _KINDS.get(type(found), "something else")
    if isinstance(found, inspect.IntType | inspect.FloatType):
        return kind + _range(found)
    if isinstance(
        found, inspect.StrType | inspect.BytesType | inspect.ListType | inspect.VarTupleType | inspect.DictType
    ):
        return kind + _length(found.min_length, found.max_length, _UNITS.get(type(found), "entries"))
    return kind


def _range(found: inspect.IntType | inspect.FloatType) -> str:
    low, high = found.ge, found.le
    if low is not None and high is not None:
        return f" from {low:.15g} to {high:.15g}"
    parts = [
        f"{words} {bound:.15g}"
        for words, bound in (
            ("more than", found.gt),
            ("at least", low),
            ("less than", found.lt),
            ("at most", high),
        )
        if bound is not None
    ]
    return f" of {' and '.join(parts)}" if parts else ""


def _length(low: int | None, high: int | None, unit: str) -> str:
    if low and high is not None:
        return f" of {low} to {high} {unit}"
    if high is not None:
        return f" of at most {high} {unit}"
    return f" of at least {low} {unit}" if low else ""


@functools.cache
def _type_of(cls: Any) -> inspect.Type:
    return inspect.type_info(cls)


def _type_at(found: inspect.Type, path: str, *, is_key: bool) -> inspect.Type:
    for step in _step.finditer(path):
        found = _inside(found, step["name"])
    found = _bare(found, inspect.DictType) if is_key else found
    return found.key_type if is_key and isinstance(found, inspect.DictType) else found


def _names(found: inspect.Type) -> list[str]:
    """The fields of an object, in order; empty if it is none."""
    of = _bare(found, inspect.StructType)
    return [field.encode_name for field in of.fields] if isinstance(of, inspect.StructType) else []


def _inside(found: inspect.Type, name: str | None) -> inspect.Type:
    """The type of a member of `found`; `name` None: of an entry."""
    of = _bare(found, inspect.StructType if name else inspect.Type)
    if isinstance(of, inspect.StructType):
        return next((field.type for field in of.fields if field.encode_name == name), of)
    if isinstance(of, inspect.DictType):
        return of.value_type
    return of.item_type if isinstance(of, inspect.ListType | inspect.VarTupleType) else of


def _bare(found: inspect.Type, kind: type[inspect.Type]) -> inspect.Type:
    """Without metadata; of several types the one that has members."""
    if isinstance(found, inspect.Metadata):
        return _bare(found.type, kind)
    if isinstance(found, inspect.UnionType):
        having = (inspect.StructType, inspect.DictType, inspect.ListType, inspect.VarTupleType)
        some = [
            one for one in (_bare(x, kind) for x in found.types) if isinstance(one, having) and isinstance(one, kind)
        ]
        return some[0] if some else found
    return found


# ----------------------------------------------------------------------------------------------------------- no numbers


def _place_of_no_number(payload: bytes) -> str | None:
    if len(payload) > PLACED_MAX_BYTES or not _no_number.search(payload):
        return None
    found = object()
    try:
        return _path_to(found, json.loads(payload, parse_constant=lambda _: found), "")
    except (ValueError, RecursionError):
        return None


def _path_to(found: object, value: object, path: str) -> str | None:
    if value is found:
        return path or None
    inside: list[tuple[str, object]] = []
    if isinstance(value, dict):
        inside = [(f"{path}.{name}" if path else str(name), one) for name, one in value.items()]
    elif isinstance(value, list):
        inside = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    return next((place for name, one in inside if (place := _path_to(found, one, name)) is not None), None)
