"""What a change of a JSON Schema means for those who send by it and those who read by it.

What it decides: the class of each difference between an old and a new schema, by the way its messages go.

    taken   Phoenix reads them: a program that was written for the old schema must not be refused
    sent    Phoenix writes them: a program that was written for the old schema must be able to read them

What the journal keeps goes both ways: a version reads what an earlier one has written, and is read by others.

Rules
  1. A smaller set of values breaks what is taken: a property removed or newly required, a type or value less, a narrower bound.
  2. A larger set of values breaks what is sent: a type or value more, a property not always there any more.  Readers must bear
     (docs/reference/compatibility.md): new properties; new values of `OPEN` properties and of the property that tells the
     members of a union apart; wider bounds.
  3. A property removed breaks either way.  So does another default of a property that may be left out.
  4. Unions are compared member by member: by the property that tells them apart, else by name.
  5. Descriptions, titles, examples and names that begin with ``x-`` are editorial.  Every other keyword that is not known here
     breaks: it is better read by a person.
  6. `place` names the schema and the property, as ``Job.hosts``.  A schema with a name is compared once, however many use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
Way: TypeAlias = Literal["taken", "sent"]

OPEN: Final = frozenset(("code", "kind", "state"))  # rule 2
EDITORIAL: Final = frozenset(("description", "title", "summary", "examples", "example", "deprecated", "tags"))
SHORT: Final = 60  # characters of a default in a text
_LOWER: Final = ("minLength", "minItems", "minProperties")
_UPPER: Final = ("maxLength", "maxItems", "maxProperties")
_OF_NUMBERS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_OF_FORM: Final = ("format", "contentEncoding", "contentMediaType")
_STRUCTURE: Final = frozenset(("type", "enum", "const", "properties", "required", "additionalProperties", "items"))
_MORE: Final = frozenset(
    ("prefixItems", "additionalItems", "propertyNames", "pattern", "contentSchema", "default", "discriminator")
)
KNOWN: Final = _STRUCTURE | _MORE | {*_LOWER, *_UPPER, *_OF_NUMBERS, *_OF_FORM}
_OF_TYPE: Final = {
    "string": ("minLength", "maxLength", "pattern", "contentSchema", *_OF_FORM),
    "integer": (*_OF_NUMBERS, "format"),
    "number": (*_OF_NUMBERS, "format"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"),
}
_STATED: Final = re.compile(r"\bdefault: (.+)\Z")
_TYPES: Final = frozenset((*_OF_TYPE, "boolean", "null"))
_ANY: Final = "any"


class Class(IntEnum):
    """Of a difference; the largest counts."""

    EDITORIAL = 1
    COMPATIBLE = 2
    BREAKING = 3


class Difference(NamedTuple):
    """`place`: what a line of CHANGELOG.md names; `text`: what is different there."""

    place: str
    text: str
    of: Class

    def __str__(self) -> str:
        return f"{self.of.name.lower():10} `{self.place}` {self.text}"


class Found:
    """The differences so far, each once, with the largest of its classes."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, str], Class] = {}

    def add(self, place: str, text: str, of: Class) -> None:
        key = (place, text)
        self._classes[key] = max(of, self._classes.get(key, of))

    def breaking(self, place: str, text: str, *, when: bool = True) -> None:
        """Compatible unless `when`."""
        self.add(place, text, Class.BREAKING if when else Class.COMPATIBLE)

    def sorted(self) -> list[Difference]:
        return sorted(Difference(place, text, of) for (place, text), of in self._classes.items())


def is_editorial(key: str) -> bool:
    return key in EDITORIAL or key.startswith("x-")


class Member(NamedTuple):
    """One form that a value may have.  `key`: what the other side's is found by (rule 4)."""

    key: str
    name: str
    schema: dict[str, Any]


class Side:
    """One of both documents: resolves references, and takes unions apart."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def at(self, ref: str) -> Any:
        found: Any = self._document
        for part in ref.removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        return found

    def plain(self, schema: Schema | bool) -> tuple[str, dict[str, Any]]:
        """A schema without `$ref` and `allOf`, and the name of the one that it refers to."""
        if isinstance(schema, bool):
            return "", {} if schema else {"enum": []}
        rest = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        parts = [self.plain(part) for part in schema.get("allOf", ())]
        if "$ref" in schema:
            _, found = self.plain(self.at(schema["$ref"]))
            parts.append((schema["$ref"].rpartition("/")[2], found))
        made: dict[str, Any] = {}
        for _, part in parts:
            made = _merged(made, part)
        name = parts[0][0] if parts and not any(not is_editorial(key) and key != "default" for key in rest) else ""
        return (name if len(parts) == 1 else ""), _merged(made, rest)

    def members(self, schema: Schema | bool) -> dict[str, Member]:
        """By key.  The same type twice is one member, with the values of both."""
        found: dict[str, Member] = {}
        for _, name, part in self._flat(schema, ""):
            key = _key(part, name)
            one = found.get(key)
            found[key] = Member(key, name, part if one is None else _united(one.schema, part))
        return found

    def _flat(self, schema: Schema | bool, tag: str) -> Iterator[Member]:
        name, plain = self.plain(schema)
        union = plain.pop("anyOf", plain.pop("oneOf", None))
        tag = _tag(plain) or tag
        if union is None:
            yield from _by_type(name, plain, tag)
            return
        beside = {key: value for key, value in plain.items() if not is_editorial(key) and key != "default"}
        for part in union:
            for member in self._flat(part, tag):
                yield member._replace(schema=_merged(beside, member.schema) if beside else member.schema)


def _parts(schema: Schema | bool) -> list[Schema]:
    """Of a schema that says nothing but that all of these hold."""
    alone = isinstance(schema, Mapping) and all(key == "allOf" or is_editorial(key) for key in schema)
    return schema.get("allOf", []) if alone and isinstance(schema, Mapping) else []


def _tag(schema: Schema) -> str:
    found = schema.get("discriminator")
    return str(found["propertyName"]) if isinstance(found, Mapping) else found or ""


def _by_type(name: str, schema: dict[str, Any], tag: str) -> Iterator[Member]:
    """A member for each type of the schema, with the keywords that concern it; `TAG` is the property that tells it apart."""
    types = schema.get("type")
    if types is None and ("const" in schema or "enum" in schema):
        types = sorted({_type_of(value) for value in _values(schema) or ()})
    if types is None and "properties" in schema:
        types = "object"
    if types is None:
        yield Member(_ANY, name, schema)
        return
    for type_ in [types] if isinstance(types, str) else types:
        others = {key for other, keys in _OF_TYPE.items() if other != type_ for key in keys} - set(
            _OF_TYPE.get(type_, ())
        )
        made = {key: value for key, value in schema.items() if key not in others} | {"type": type_}
        yield Member(type_, name, made | ({"x-tag": tag} if tag and type_ == "object" else {}))


def _type_of(value: object) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _values(schema: Schema) -> list[Any] | None:
    """The values that it lists; None: it lists none."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _key(schema: Schema, name: str) -> str:
    if schema.get("type") not in _TYPES:
        return _ANY
    if schema["type"] != "object":
        return str(schema["type"])
    tag = schema.get("x-tag", "")
    values = _values(schema.get("properties", {}).get(tag, {})) if tag else None
    if values:
        return f"{tag} {values[0]}"
    return f"object {name}" if name else "object"


def _merged(one: Schema, other: Schema) -> dict[str, Any]:
    """What both demand."""
    made = {**one, **other}
    if "properties" in one and "properties" in other:
        both = one["properties"].keys() & other["properties"].keys()
        together = {name: _both(one["properties"][name], other["properties"][name]) for name in both}
        made["properties"] = {**one["properties"], **other["properties"], **together}
    if "required" in one and "required" in other:
        made["required"] = sorted({*one["required"], *other["required"]})
    return made


def _both(one: Schema, other: Schema) -> Schema:
    """Of a property that two parts describe: the narrower, which is the later one here, with the words of the first."""
    if "$ref" in other or "$ref" in one:
        return other
    return {**one, **other}


def _united(one: Schema, other: Schema) -> dict[str, Any]:
    """Two members of one type: values of both; where either is open, the bounds that both have."""
    mine, others = _values(one), _values(other)
    if mine is not None and others is not None:
        rest = {key: value for key, value in one.items() if key not in ("const", "enum")}
        return {**rest, "enum": [*mine, *(value for value in others if value not in mine)]}
    return {key: value for key, value in one.items() if other.get(key) == value}


class Schemas:
    """Compares the schemas of two documents into `found`."""

    def __init__(self, old: Schema, new: Schema, found: Found) -> None:
        self.old, self.new, self._found = Side(old), Side(new), found
        self._compared: set[tuple[str, str, Way, bool]] = set()

    def compare(self, place: str, old: Schema | bool, new: Schema | bool, way: Way, *, is_open: bool = False) -> None:
        """`place`: of what uses the schemas; `is_open`: readers bear new values there."""
        mine_parts, other_parts = _parts(old), _parts(new)
        if len(mine_parts) == len(other_parts) > 1:
            for part, its in zip(mine_parts, other_parts, strict=True):
                self.compare(place, part, its, way, is_open=is_open)
            return
        (name, _), (renamed, _) = self.old.plain(old), self.new.plain(new)
        at = self._begun(place, name, renamed, way, is_open=is_open)
        if at is None:
            return
        mine, others = self.old.members(old), self.new.members(new)
        for one, other in _pairs(at, mine, others, way, self._found):
            to = at if one.name == name else self._begun(at, one.name, other.name, way, is_open=is_open)
            if to is not None:
                self._member(to, one.schema, other.schema, way, is_open=is_open)

    def _begun(self, place: str, name: str, renamed: str, way: Way, *, is_open: bool) -> str | None:
        """The place of what is compared now; None: it was compared before (rule 6)."""
        if not (name and renamed):
            return place
        key = (name, renamed, way, is_open)
        if key in self._compared:
            return None
        self._compared.add(key)
        return name if name == renamed else place

    def _member(self, place: str, old: Schema, new: Schema, way: Way, *, is_open: bool) -> None:
        """Two forms of one type."""
        self._values_of(place, old, new, way, is_open=is_open)
        self._bounds(place, old, new, way)
        self._forms(place, old, new, way)
        self._unknown(place, old, new)
        if "contentSchema" in old or "contentSchema" in new:
            self.compare(place, old.get("contentSchema", True), new.get("contentSchema", True), way)
        if old.get("type") == "array":
            self._items(place, old, new, way)
        if old.get("type") == "object":
            self._object(place, old, new, way)

    def _values_of(self, place: str, old: Schema, new: Schema, way: Way, *, is_open: bool) -> None:
        mine, others = _values(old), _values(new)
        if mine is None and others is None:
            return
        if mine is None or others is None:
            text = "any value, not only those listed" if others is None else f"only {_listed(others or ())}"
            self._found.breaking(place, text, when=(way == "sent") == (others is None))
            return
        for value in (value for value in mine if value not in others):
            self._found.breaking(place, f"value {value!r} removed", when=way == "taken")
        for value in (value for value in others if value not in mine):
            self._found.breaking(place, f"value {value!r} added", when=way == "sent" and not is_open)

    def _bounds(self, place: str, old: Schema, new: Schema, way: Way) -> None:
        """Wider bounds break nothing (rule 2)."""
        rows = [(key, old.get(key), new.get(key), 1) for key in _LOWER]
        rows += [(key, old.get(key), new.get(key), -1) for key in _UPPER]
        rows.append(("minimum", _bound(old, 1), _bound(new, 1), 1))
        rows.append(("maximum", _bound(old, -1), _bound(new, -1), -1))
        for key, before, after, sign in rows:
            if before == after:
                continue
            narrower = after is not None and (before is None or _over(after, before, sign))
            self._found.breaking(
                place, f"{key} {_shown(before)}, now {_shown(after)}", when=narrower and way == "taken"
            )
        if old.get("pattern") != new.get("pattern"):
            narrower = "pattern" in new
            self._found.breaking(place, f"pattern now {new.get('pattern')!r}", when=narrower and way == "taken")

    def _forms(self, place: str, old: Schema, new: Schema, way: Way) -> None:
        """How a text is to be read is part of its type."""
        for key in _OF_FORM:
            before, after = old.get(key), new.get(key)
            if before != after:
                breaks = (after is not None) if way == "taken" else (before is not None)
                self._found.breaking(place, f"{key} {_shown(before)}, now {_shown(after)}", when=breaks)

    def _unknown(self, place: str, old: Schema, new: Schema) -> None:
        """Rule 5."""
        for key in sorted(key for key in {*old, *new} if key not in KNOWN and not is_editorial(key)):
            if old.get(key) != new.get(key):
                self._found.breaking(place, f"{key} {_shown(old.get(key))}, now {_shown(new.get(key))}")

    def _items(self, place: str, old: Schema, new: Schema, way: Way) -> None:
        before, rest = _places(old)
        after, others = _places(new)
        for index in range(max(len(before), len(after))):
            one = before[index] if index < len(before) else rest
            other = after[index] if index < len(after) else others
            self.compare(f"{place}[{index}]", one, other, way)
        self.compare(f"{place}[]", rest, others, way)

    def _object(self, place: str, old: Schema, new: Schema, way: Way) -> None:
        mine, others = old.get("properties", {}), new.get("properties", {})
        was, is_ = set(old.get("required", ())), set(new.get("required", ()))
        for name in mine:
            at = f"{place}.{name}"
            if name not in others:
                self._found.breaking(at, "removed")
                continue
            self._required(at, name in was, name in is_, way)
            if not (name in was and name in is_) and isinstance(mine[name], Mapping):
                self._default(at, mine[name], others[name])
            self.compare(at, mine[name], others[name], way, is_open=name in OPEN or name == old.get("x-tag"))
        for name in others:
            if name not in mine:
                text = "added, required" if name in is_ else "added"
                self._found.breaking(f"{place}.{name}", text, when=name in is_ and way == "taken")
        self._additional(place, old, new, way)
        if "propertyNames" in old or "propertyNames" in new:
            self.compare(f"{place}{{}}", old.get("propertyNames", True), new.get("propertyNames", True), way)

    def _required(self, place: str, was: bool, is_: bool, way: Way) -> None:
        if was != is_:
            text = "required now" if is_ else "not always there any more"
            self._found.breaking(place, text, when=is_ == (way == "taken"))

    def _default(self, place: str, old: Schema, new: Schema) -> None:
        """Rule 3.  One that was not stated and is stated now says more than before; that of a struct which has new fields has
        their defaults."""
        before, after = default_of(old), default_of(new)
        if before is None and after is not None:
            self._found.add(place, f"default {_short(after.value)} stated", Class.COMPATIBLE)
        elif before is not None and after is None:
            self._found.breaking(place, "default removed", when=before.value is not None)
        elif before is not None and after is not None:
            fields = self.new.plain(new)[1].get("properties", {})
            if not _same(before.value, after.value, fields):
                self._found.breaking(place, f"default {_short(before.value)}, now {_short(after.value)}")

    def _additional(self, place: str, old: Schema, new: Schema, way: Way) -> None:
        """Further properties: of what is sent readers ignore them, so only those with a schema of their own count there."""
        before, after = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            self.compare(f"{place}.*", before, after, way)
        elif before != after:
            narrower = after is False or before is True
            typed = isinstance(before, Mapping)
            self._found.breaking(
                f"{place}.*",
                "other properties refused" if after is False else "other properties changed",
                when=narrower if way == "taken" else typed,
            )


def _pairs(
    place: str, old: dict[str, Member], new: dict[str, Member], way: Way, found: Found
) -> Iterable[tuple[Member, Member]]:
    """Members of both sides; a member that has no other is a difference."""
    pairs = [(old[key], new[key]) for key in old if key in new]
    mine = [member for key, member in old.items() if key not in new]
    others = [member for key, member in new.items() if key not in old]
    for one, other in (("integer", "number"), ("number", "integer")):
        if one in old and other in new and one not in new and other not in old:
            found.breaking(place, f"{other}, not {one}", when=(way == "taken") == (other == "integer"))
            pairs.append((old[one], new[other]))
            mine.remove(old[one])
            others.remove(new[other])
    if len(mine) == len(others) == 1 and all(member[0].schema.get("type") == "object" for member in (mine, others)):
        return [*pairs, (mine[0], others[0])]
    widened, narrowed = _ANY in new and _ANY not in old, _ANY in old and _ANY not in new
    for member in mine if not widened else ():
        if member.key != _ANY:
            found.breaking(_of(place, member), f"{_called(member)} removed", when=way == "taken")
    for member in others if not narrowed else ():
        if member.key != _ANY:
            found.breaking(_of(place, member), f"{_called(member)} added", when=way == "sent" and not _borne(member))
    if widened or narrowed:
        found.breaking(place, "any type" if widened else "not any type any more", when=(way == "sent") == widened)
    return pairs


def _borne(member: Member) -> bool:
    """Rule 2: of a union with a property that tells its members apart."""
    return bool(member.schema.get("x-tag"))


def _of(place: str, member: Member) -> str:
    return member.name if member.name and member.schema.get("type") == "object" else place


def _called(member: Member) -> str:
    return f"{member.key!r}" if _borne(member) else member.key


def _places(schema: Schema) -> tuple[list[Any], Any]:
    """The schemas of a tuple's places, and that of the rest."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", []), items


def _bound(schema: Schema, sign: int) -> tuple[float, bool] | None:
    """The lower (1) or upper (-1) bound of a number: (value, it is excluded)."""
    names = ("minimum", "exclusiveMinimum") if sign > 0 else ("maximum", "exclusiveMaximum")
    found = [(schema[name], excluded) for name, excluded in zip(names, (False, True), strict=True) if name in schema]
    return max(found, key=lambda one: (sign * one[0], one[1]), default=None)


def _over(after: Any, before: Any, sign: int) -> bool:
    if isinstance(after, tuple):
        return (sign * after[0], after[1]) > (sign * before[0], before[1])
    return bool(sign * after > sign * before)


class Default(NamedTuple):
    value: Any


def default_of(schema: Schema) -> Default | None:
    """Its keyword, or what its description has behind "default:" (schemas.descriptions); None: neither."""
    if "default" in schema:
        return Default(schema["default"])
    stated = _STATED.search(str(schema.get("description", "")))
    return Default(stated[1]) if stated else None


def _same(one: object, other: object, fields: Iterable[str]) -> bool:
    """`fields`: of a struct, that a default may have more of."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(other.get(key) == value for key, value in one.items()) and other.keys() - one.keys() <= {*fields}
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{'beyond ' if value[1] else ''}{value[0]}"
    return "none" if value is None else str(value)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(repr(value) for value in values)
