"""Schemas of messages with a description at every property, taken from where the fields are declared.

Theory of operation
  `schema_components` is msgspec's function of that name for all generated documents.  The description of a field is the first
  of these that there is:

    1. `Meta(description=…)` of its type, as settings of the configuration have it (`schemas.ranges`);
    2. a part of the docstring of its struct, or of a base of that: "`name`: meaning", or "`a`, `b`: meaning";
    3. the comment behind the field in the source;
    4. its entry in `schemas.common_fields`: names that mean the same in every struct.

Rules
  1. The meaning of a part of a docstring ends at the next part, with its sentence, or with its paragraph.  An introduction,
     "Of a lease: `start_at`: …", holds for the parts of its sentence.
  2. The description of a struct is its docstring without these parts: the properties show them.
  3. A field that has no source has no description, and a test names it.
  4. A union of `NAMED` is a component of its own.  A reason's component is called by its class and `Reason`, so that a reason
     and another struct may have the same name.
  5. Patterns are those of ECMA-262, as JSON Schema demands.  Bytes, which are base64 in JSON, have one.
  6. Every array has `items`, be they anything: some generators of clients leave out what refers to one that has none.
  7. A struct of `sent` that is in no other root is what the server sends: all its fields are there, except unset ones.
  8. What stands between the fields of a request is beside them (`schemas.between_fields`).
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec import inspect as types_of

from schemas import examples_reasons, facts, reasons
from schemas.between_fields import narrowed
from schemas.common_fields import COMMON

Schema = dict[str, Any]
NAMED: Final[dict[str, tuple[Any, str]]] = {
    "Reason": (
        reasons.Union,
        "The reason of a decision: one of these structs, by its `code` (docs/reference/reasons.md). Each has an example, its "
        "sentence (`x-sentence`) and, where there is one, its remedy (`x-remedy`); parameters that are not known are left out.",
    ),
    "Fact": (facts.Fact, "A fact of the journal: one of these structs, by its `kind`."),
}

_NAME: Final = r"(?<!`)`[a-z][a-z0-9_]*`(?!`)"
_PART: Final = re.compile(rf"(?:^|(?<=[.;:,)] ))({_NAME}(?:(?:,|,? and) {_NAME})*): ")
_SENTENCE_END: Final = re.compile(r"\.(?= [A-Z`\"(]|$)")
_PROTOCOL: Final = re.compile(r" \((?:PROTOCOL,? )?[SX][0-9]+[a-z]?(?:, [SX][0-9]+[a-z]?)*\)")
_PYTHON_END: Final = re.compile(r"\$\(\?!\\n\)|\\Z")
BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_TYPES: Final[dict[type, str]] = {str: "string", bool: "boolean", int: "integer"}
_DIRECTIVE: Final = re.compile(r"#\s*(?:noqa|type:|fmt:)")


def schema_components(
    roots: Iterable[Any], ref_template: str, *, sent: Iterable[Any] = ()
) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """JSON Schemas of `roots` and of `sent`, and the components that they refer to by `ref_template`."""
    asked, answered = tuple(roots), tuple(sent)
    found = classes((*asked, *answered))
    unions = {name: union for name, (union, _) in NAMED.items() if set(union.__args__) <= set(found)}
    made, components = msgspec.json.schema_components((*asked, *answered, *unions.values()), ref_template="{name}")
    names = {old: component_name(cls) for old, cls in zip(components, found, strict=True)}
    count = len(asked) + len(answered)
    writer = _Writer(names, dict(zip(unions, made[count:], strict=True)), ref_template)
    whole = set(classes(answered)) - set(classes(asked))
    done = {
        names[old]: _described(cls, writer.schema(schema), whole=cls in whole)
        for (old, schema), cls in zip(components.items(), found, strict=True)
    }
    for name, schema in writer.unions.items():
        if name in writer.used:
            done[name] = {"title": name, "description": NAMED[name][1], **writer.parts(schema)}
    return tuple(writer.schema(schema) for schema in made[:count]), done


def component_name(cls: type) -> str:
    """The name of a struct's component (rule 4)."""
    return f"{cls.__name__}Reason" if issubclass(cls, reasons.AnyReason) else cls.__name__


def classes(roots: Iterable[Any]) -> list[type]:
    """Every struct and enumeration that `roots` have to do with, each once."""
    found: dict[type, None] = {}
    for info in types_of.multi_type_info(roots):
        _collect(info, found)
    return list(found)


def _collect(info: Any, found: dict[type, None]) -> None:
    if isinstance(info, types_of.StructType | types_of.EnumType):
        if info.cls in found:
            return
        found[info.cls] = None
    if isinstance(info, msgspec.Struct):
        for name in info.__struct_fields__:
            _collect(getattr(info, name), found)
    elif isinstance(info, tuple):
        for each in info:
            _collect(each, found)


class _Writer:
    """Schemas as documents have them: final names, shared unions, patterns of ECMA-262."""

    def __init__(self, names: Mapping[str, str], unions: Mapping[str, Schema], ref_template: str) -> None:
        self._names, self.unions, self._template = names, unions, ref_template
        self.used: set[str] = set()

    def schema(self, node: Any) -> Any:
        for name, union in self.unions.items():
            if node == union:
                self.used.add(name)
                return {"$ref": self._template.format(name=name)}
        return self.parts(node)

    def parts(self, node: Any) -> Any:
        if isinstance(node, dict):
            made = {key: self._value(key, value) for key, value in node.items()}
            if made.get("type") == "array" and not made.keys() & {"items", "prefixItems"}:
                made["items"] = {}
            if made.get("contentEncoding") == "base64":
                made["pattern"] = BASE64
            return {"type": kind, **made} if "type" not in made and (kind := _type_of(made.get("enum", ()))) else made
        return [self.schema(each) for each in node] if isinstance(node, list) else node

    def _value(self, key: str, value: Any) -> Any:
        if key == "$ref":
            return self._template.format(name=self._names[value])
        if key == "mapping":
            return {tag: self._template.format(name=self._names[old]) for tag, old in value.items()}
        if key == "pattern" and isinstance(value, str):
            return _PYTHON_END.sub("$", value)
        return value if key in ("default", "enum", "examples") else self.schema(value)


def _type_of(values: Sequence[Any]) -> str | None:
    """The one type that all values of an enumeration have."""
    types = {type(value) for value in values}
    return _TYPES.get(types.pop()) if len(types) == 1 else None


# ---------------------------------------------------------------------------------------------------------------- describing


def _described(cls: type, schema: Schema, *, whole: bool) -> Schema:
    schema["title"] = component_name(cls)
    told = summary(cls)
    if told:
        schema["description"] = told
    else:
        schema.pop("description", None)
    if not issubclass(cls, msgspec.Struct):
        return schema
    if issubclass(cls, reasons.AnyReason):
        schema |= _shown(examples_reasons.BY_KIND[cls])
    meanings = fields(cls)
    for name, value in schema["properties"].items():
        if name in meanings and "description" not in value:
            value["description"] = meanings[name]
    if whole and not cls.__struct_config__.omit_defaults:
        absent = {field.encode_name for field in msgspec.structs.fields(cls) if field.default is UNSET}
        schema["required"] = [name for name in schema["properties"] if name not in absent]
    return narrowed(cls, schema)


def _shown(example: reasons.AnyReason) -> Schema:
    """A reason's example, with its words."""
    remedy = {"x-remedy": example.remedy()} if example.remedy() else {}
    return {"examples": [msgspec.to_builtins(example)], "x-sentence": example.sentence(), **remedy}


@cache
def summary(cls: type) -> str:
    """The docstring without what it says of single fields."""
    paragraphs = [_split(paragraph, _names(cls))[0] for paragraph in _paragraphs(cls)]
    return "\n\n".join(filter(None, paragraphs))


@cache
def fields(cls: type) -> dict[str, str]:
    """The meaning of each field, by the name that it has in messages."""
    found = {}
    for name, written in _names(cls).items():
        meaning = next(filter(None, (_of_docstrings(cls, name), _of_comments(cls, name), COMMON.get(name))), None)
        if meaning is not None:
            found[written] = meaning
    return found


def _names(cls: type) -> dict[str, str]:
    """Names of fields as docstrings have them, and as messages do; with the one that tells structs of a union apart."""
    if not issubclass(cls, msgspec.Struct):
        return {}
    tag = cls.__struct_config__.tag_field
    named = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    return named if tag is None else {tag: tag, **named}


def _of_docstrings(cls: type, name: str) -> str | None:
    for base in cls.__mro__:
        for paragraph in _paragraphs(base):
            parts = _split(paragraph, _names(cls))[1]
            if name in parts:
                return parts[name]
    return None


def _of_comments(cls: type, name: str) -> str | None:
    return next((comments[name] for base in cls.__mro__ if name in (comments := _comments(base))), None)


def _paragraphs(cls: type) -> list[str]:
    """Of its own docstring, each in one line, without references to rules of the protocol."""
    text = (
        inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        if cls.__module__ not in ("msgspec", "enum", "builtins")
        else ""
    )
    return [_PROTOCOL.sub("", " ".join(paragraph.split())) for paragraph in text.split("\n\n")] if text else []


def _split(paragraph: str, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What a paragraph says of the struct, and of its fields (rules 1 and 2)."""
    heads = [head for head in _PART.finditer(paragraph) if _named(head) <= names.keys()]
    limits = [*(head.start() for head in heads[1:]), len(paragraph)]
    parts: dict[str, str] = {}
    rest, lead, at = [], "", 0
    for head, limit in zip(heads, limits, strict=False):
        before = paragraph[at : head.start()].strip()
        if before.endswith(":"):
            *sentences, lead = re.split(r"(?<=\.) ", before)
            before = " ".join(sentences)
        rest.append(before)
        end = _SENTENCE_END.search(paragraph, head.end(), limit)
        at = limit if end is None else end.end()
        meaning = paragraph[head.end() : at].strip(" ;,.")
        parts.update(dict.fromkeys(_named(head), f"{lead[:1].lower()}{lead[1:]} {meaning}".strip()))
        lead = lead if paragraph[head.end() : at].rstrip().endswith(";") else ""
    told = " ".join(filter(None, (*rest, paragraph[at:].strip())))
    return re.sub(r"[;:,]$", ".", told), parts


def _named(head: re.Match[str]) -> set[str]:
    return set(re.findall(r"`(\w+)`", head[1]))


@cache
def _comments(cls: type) -> dict[str, str]:
    """Comments behind the fields of a class, on their last line."""
    body, comments = _source(cls.__module__)
    found = {}
    for node in body.get(cls.__qualname__, ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            comment = next((comments[line] for line in lines if line in comments), None)
            if comment is not None:
                found[node.target.id] = comment
    return found


@cache
def _source(module: str) -> tuple[dict[str, list[ast.stmt]], dict[int, str]]:
    """Bodies of a module's classes by name, and its comments by line."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # built in
        return {}, {}
    tree = ast.parse(text)
    bodies = {node.name: node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string)
    }
    return bodies, comments
