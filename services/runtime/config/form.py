"""Form of the configuration file: a TOML document becomes typed structs, and everything that does not fit is reported.

What it decides: whether each key is known and each value has the right type.  What the values mean together is
`config.checks`.  It must never stop at the first problem: a person repairs a file in one go.

Rules
  1. A value that does not fit is reported and replaced by its default, so that the rest can still be checked.
  2. An unknown key is an error, with the nearest known key as a suggestion: a mistyped key that is ignored in silence is a
     setting that people rely on.
  3. A problem names the place (file, line, key), what was found, and what would be right.
  4. Relative paths in the file are relative to the file's directory.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from schemas.config import Option
from schemas.ranges import outside

Path_ = tuple[str | int, ...]  # a place in the document: ("department", 1, "web", "threshold")
S = TypeVar("S", bound=msgspec.Struct)

NAME_RIGHT: Final = "should be lower-case letters, digits and hyphens, starting with a letter, at most 32 characters"
VALUE_SHOWN_MAX: Final = 60  # characters of a found value in a message: enough to recognise it
_ABSENT: Final = object()
_WORDS: Final[dict[object, str]] = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path in quotes",
    date: "a date, as 2026-11-01",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.  `path`: its place; `label`: name of the department or user it belongs to; `found`: the value
    as text, empty if it is missing; `right`: what would be right, as a clause."""

    path: Path_
    right: str
    found: str = ""
    label: str = ""

    @property
    def key(self) -> str:
        """The dotted key as written in the file: ``department.web.threshold``."""
        return ".".join(str(part) for part in self.path if not isinstance(part, int))

    def line(self, file: str = "", number: int | None = None) -> str:
        """``phoenix.toml:31: department.web.threshold (of "shop"): 1.8: between 0 and 1``."""
        place = f"{file}:{number}: " if number else f"{file}: " if file else ""
        of = f' (of "{self.label}")' if self.label else ""
        return f"{place}{self.key or 'the file'}{of}: {self.found or 'missing'}: {self.right}"


def shown(value: object) -> str:
    """A found value as a person would write it in the file, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    text = f'"{value}"' if isinstance(value, str | Path) else str(value)
    return text if len(text) <= VALUE_SHOWN_MAX else text[: VALUE_SHOWN_MAX - 1] + "…"


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean "threshold"?`` or nothing."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def ranges(table: msgspec.Struct, path: Path_, label: str = "") -> Iterator[Problem]:
    """Each value of the table, and of the tables in it, that is out of its range (`schemas.ranges`)."""
    for place, value, allowed in outside(table):
        yield Problem(path=(*path, *place), found=shown(value), right=allowed.right, label=label)


class Form:
    """Reads tables into structs and collects `problems`.  `base`: what relative paths start from."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.problems: list[Problem] = []

    def report(self, path: Path_, right: str, value: object = _ABSENT, label: str = "") -> None:
        found = "" if value is _ABSENT else shown(value)
        self.problems.append(Problem(path=path, right=right, found=found, label=label))

    def unknown_keys(self, raw: Mapping[str, Any], known: Iterable[str], path: Path_, label: str = "") -> None:
        names = list(known)
        for key in raw:
            if key not in names:
                hint = suggestion(key, names) or f"; known here: {', '.join(sorted(names))}"
                self.report((*path, key), f"there is no such key{hint}", raw[key], label)

    def table(self, cls: type[S], raw: object, path: Path_, label: str = "") -> S:
        """A struct from a table; defaults stand in for what is missing or wrong."""
        if not isinstance(raw, Mapping):
            self.report(path, "should be a table", raw, label)
            raw = {}
        fields = msgspec.structs.fields(cls)
        hints = typing.get_type_hints(cls)
        self.unknown_keys(raw, (f.encode_name for f in fields), path, label)
        values = {f.name: self._field(f, hints[f.name], raw, path, label) for f in fields}
        return cls(**values)

    def tables(self, cls: type[S], raw: object, path: Path_) -> tuple[S, ...]:
        """Structs from an array of tables (``[[department]]``), labelled by their names."""
        if isinstance(raw, Mapping):
            self.report(path, f"should be a list of tables: write [[{path[-1]}]]", "a single table")
            raw = [raw]
        if not isinstance(raw, list):
            self.report(path, f"should be a list of tables: write [[{path[-1]}]]", raw)
            return ()
        return tuple(self.table(cls, item, (*path, n), _name_of(item, n)) for n, item in enumerate(raw))

    def _field(self, field: Any, hint: Any, raw: Mapping[str, Any], path: Path_, label: str) -> Any:
        key = field.encode_name  # `from` can be a key of a file, and no name of a field
        place = (*path, key)
        if key not in raw:
            if field.required:
                self.report(place, f"should be {_expected(hint)}", label=label)
                return _placeholder(hint)
            return field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        fallback = _placeholder(hint) if field.required else field.default
        if fallback is msgspec.NODEFAULT:
            fallback = field.default_factory()
        return self._value(hint, raw[key], place, label, fallback)

    def _value(self, hint: Any, value: Any, path: Path_, label: str, fallback: Any) -> Any:
        inner = _without_none(hint)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return self.table(inner, value, path, label)
        entries = _tables_of(inner)
        if entries is not None:
            if isinstance(value, Mapping):
                return {name: self.table(entries, each, (*path, name), label) for name, each in value.items()}
            self.report(path, "should be a table of tables", value, label)
            return fallback
        if inner is Path:
            if isinstance(value, str) and value:
                return (self.base / Path(value).expanduser()).absolute()
            self.report(path, f"should be {_expected(inner)}", value, label)
            return fallback
        try:
            return msgspec.convert(value, inner, strict=True)
        except msgspec.ValidationError:
            self.report(path, f"should be {_expected(inner)}{_nearest(inner, value)}", value, label)
            return fallback


def _tables_of(hint: Any) -> type[msgspec.Struct] | None:
    """What each value is read into, of a table whose keys are names and whose values are tables."""
    values = typing.get_args(hint)[1:] if typing.get_origin(hint) is dict else ()
    found: Any = values[0] if values else None
    return found if isinstance(found, type) and issubclass(found, msgspec.Struct) else None


def _name_of(item: object, index: int) -> str:
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) and name else f"number {index + 1}"


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        left = [a for a in typing.get_args(hint) if a is not type(None)]
        return left[0] if len(left) == 1 else hint
    return hint


def _expected(hint: Any) -> str:
    """What a value of this type is called."""
    hint = _without_none(hint)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(f'"{a}"' for a in typing.get_args(hint))
    if origin is tuple:
        return f"a list, each item {_expected(typing.get_args(hint)[0])}"
    if origin is dict:
        return "a table of texts, numbers, true or false, or lists of these" if _is_option(hint) else "a table"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "a table"
    return _WORDS.get(hint, "another value")


def _is_option(hint: Any) -> bool:
    return bool(typing.get_args(hint)[1] == Option)


def _nearest(hint: Any, value: object) -> str:
    if typing.get_origin(hint) is Literal and isinstance(value, str):
        return suggestion(value, typing.get_args(hint))
    return ""


def _placeholder(hint: Any) -> Any:
    """Stands in for a required value that is missing, so that the rest of the file can be read."""
    hint = _without_none(hint)
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)[0]
    return Path() if hint is Path else hint() if isinstance(hint, type) else None


_HEADER: Final = re.compile(r"\s*\[(\[?)\s*([^\]\[]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=")


class Lines:
    """Where keys stand in a TOML text.  A help for messages only: it does not parse TOML, and a key that it does not find has
    the line of the nearest enclosing table."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path_, int] = {}
        self._counts: dict[Path_, int] = {}
        table: Path_ = ()
        quoted = False
        for number, line in enumerate(text.splitlines(), start=1):
            inside, quoted = quoted, quoted ^ bool((line.count('"""') + line.count("'''")) % 2)
            if inside:
                continue
            if header := _HEADER.match(line):
                table = self._enter(_split(header[2]), is_list=bool(header[1]))
                self._lines.setdefault(table, number)
            elif key := _KEY.match(line):
                self._lines.setdefault((*table, *_split(key[1])), number)

    def of(self, path: Path_) -> int | None:
        """The line of `path`, or of the nearest enclosing table that has one."""
        return next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)

    def _enter(self, names: list[str], is_list: bool) -> Path_:
        path: Path_ = ()
        for depth, name in enumerate(names, start=1):
            path = (*path, name)
            if is_list and depth == len(names):
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:
                path = (*path, self._counts[path])
        return path


def _split(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]
