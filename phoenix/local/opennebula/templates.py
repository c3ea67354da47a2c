"""OpenNebula templates: text or XML in, an ordered multi-map, XML out.

1. Text: `NAME = value`, `NAME = "value"`, `NAME = [ A = "1", B = 2 ]`, comments from `#`; names are upper-cased. Only
   `\\"` is an escape.
2. An opening quote that never closes is part of the value (recorded: `RACK="unterminated` is stored with its quote).
3. XML (`<ANY><NAME>…</NAME></ANY>`): a child with children is a vector.
4. Names print sorted; several values of one name keep their order.
5. A `Template` is never changed in place, so that a history record may keep the one it saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lxml import etree

from phoenix.local.opennebula.errors import TemplateError
from phoenix.local.opennebula.xmlrpc import PARSER_OPTIONS, has_doctype

Vector = dict[str, str]
Value = str | Vector

_SKIP = re.compile(r"(?:\s|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_.:\-]+")
_EQUAL = re.compile(r"[ \t]*=[ \t]*")
_QUOTED = re.compile(r'"((?:\\"|[^"])*)"')
_LINE = re.compile(r"[^\n]*")
_ITEM = re.compile(r"[^,\]\n]*")

# A template longer than this is refused: the largest the product makes (a script of 64 KiB in base64) is a tenth of it.
TEMPLATE_CHARS_MAX = 1_000_000


def cdata(text: str) -> str:
    """Text as CDATA; the one sequence that would end it early is split."""
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>" if "]]>" in text else f"<![CDATA[{text}]]>"


class Template:
    """An ordered multi-map of strings and vectors."""

    __slots__ = ("_inner", "values")

    def __init__(self, values: Mapping[str, list[Value]] | None = None) -> None:
        self.values: dict[str, list[Value]] = dict(values) if values else {}
        self._inner: str | None = None

    def get(self, name: str, default: str = "") -> str:
        """The first string under `name`."""
        for value in self.values.get(name, ()):
            if isinstance(value, str):
                return value
        return default

    def vectors(self, name: str) -> list[Vector]:
        """All vectors under `name`."""
        return [value for value in self.values.get(name, ()) if isinstance(value, dict)]

    def vector(self, name: str) -> Vector | None:
        """The first vector under `name`."""
        found = self.vectors(name)
        return found[0] if found else None

    def has(self, name: str) -> bool:
        """Whether anything is under `name`."""
        return name in self.values

    def merged(self, other: Template) -> Template:
        """This one with every name of `other` replaced by what `other` has."""
        return Template({**self.values, **other.values})

    def with_value(self, name: str, *values: Value) -> Template:
        """This one with `name` replaced."""
        return Template({**self.values, name: list(values)})

    def without(self, names: Iterable[str]) -> Template:
        """This one without the names given."""
        gone = set(names)
        return Template({name: values for name, values in self.values.items() if name not in gone})

    def strings(self) -> dict[str, str]:
        """The flat strings, first of each name."""
        return {name: value for name, values in self.values.items() for value in values[:1] if isinstance(value, str)}

    def inner_xml(self) -> str:
        """The attributes as XML, sorted by name, without a root."""
        if self._inner is None:
            parts: list[str] = []
            for name in sorted(self.values):
                for value in self.values[name]:
                    parts.append(f"<{name}>{_value_xml(value)}</{name}>")
            self._inner = "".join(parts)
        return self._inner


def _value_xml(value: Value) -> str:
    if isinstance(value, str):
        return cdata(value)
    return "".join(f"<{name}>{cdata(value[name])}</{name}>" for name in sorted(value))


def parse(text: str) -> Template:
    """A template from text or XML. Raises `TemplateError` with OpenNebula's words."""
    if len(text) > TEMPLATE_CHARS_MAX:
        raise TemplateError(f"Parse error: template longer than {TEMPLATE_CHARS_MAX} characters.")
    return _parse_xml(text) if text.lstrip()[:1] == "<" else _parse_text(text)


def _parse_xml(text: str) -> Template:
    try:
        root = etree.fromstring(text.encode("utf-8", "replace"), etree.XMLParser(**PARSER_OPTIONS))
    except etree.XMLSyntaxError:
        raise TemplateError("Parse error: XML Template malformed.") from None
    if has_doctype(root):
        raise TemplateError("Parse error: XML Template malformed.")
    values: dict[str, list[Value]] = {}
    for child in root.iterchildren("*"):
        value: Value = (
            {str(leaf.tag): leaf.text or "" for leaf in child.iterchildren("*")} if len(child) else child.text or ""
        )
        values.setdefault(str(child.tag), []).append(value)
    return Template(values)


def _syntax(text: str, at: int, end: int, unexpected: str, expecting: str) -> TemplateError:
    start_of_line = text.rfind("\n", 0, at) + 1
    columns = f"{at - start_of_line + 1}:{end - start_of_line + 1}"
    line = text.count("\n", 0, at)
    return TemplateError(
        f"Parse error: syntax error, unexpected {unexpected}, expecting {expecting} at line {line}, columns {columns}"
    )


def _skip(text: str, at: int) -> int:
    match = _SKIP.match(text, at)
    return match.end() if match else at


def _parse_name(text: str, at: int) -> tuple[str, int]:
    match = _NAME.match(text, at)
    if not match:
        raise _syntax(text, at, at + 1, "$end", "VARIABLE")
    equal = _EQUAL.match(text, match.end())
    if not equal:
        at = _skip(text, match.end())
        token = _NAME.match(text, at)
        end, what = (token.end(), "VARIABLE") if token else (at + 1, "$end")
        raise _syntax(text, at, end, what, "EQUAL or EQUAL_EMPTY")
    return match.group().upper(), equal.end()


def _parse_text(text: str) -> Template:
    values: dict[str, list[Value]] = {}
    at = _skip(text, 0)
    while at < len(text):
        name, at = _parse_name(text, at)
        value: Value
        if text.startswith("[", at):
            value, at = _parse_vector(text, at + 1)
        else:
            value, at = _parse_scalar(text, at, _LINE)
        values.setdefault(name, []).append(value)
        at = _skip(text, at)
    return Template(values)


def _parse_scalar(text: str, at: int, plain: re.Pattern[str]) -> tuple[str, int]:
    quoted = _QUOTED.match(text, at)
    if quoted:
        return quoted.group(1).replace('\\"', '"'), quoted.end()
    if text.startswith("=", at):
        raise _syntax(text, at, at + 1, "$end", "OBRACKET or CCDATA or STRING")
    match = plain.match(text, at)
    return (match.group().strip(), match.end()) if match else ("", at)


def _parse_vector(text: str, at: int) -> tuple[Vector, int]:
    vector: Vector = {}
    while True:
        at = _skip(text, at)
        if text.startswith("]", at):
            return vector, at + 1
        if text.startswith(",", at):
            at += 1
            continue
        if at >= len(text):
            raise _syntax(text, at, at + 1, "$end", "COMMA or CBRACKET")
        name, at = _parse_name(text, at)
        vector[name], at = _parse_scalar(text, at, _ITEM)
