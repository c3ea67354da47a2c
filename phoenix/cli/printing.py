"""JSON on stdout: indented for one thing, one line for lists that may be long; and CSV.

Rules
  1. A cell of a CSV is text or a number, never a formula: names of jobs are other people's words, and a spreadsheet would run
     what begins with one of `= + - @`.  Such text begins with an apostrophe, as spreadsheets write it themselves.
  2. Invisible characters are shown by their number, in text and in JSON (`schemas.control_characters`).
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson

from phoenix.cli import tables
from phoenix.cli.errors import Stdout
from schemas.control_characters import shown_in_json

T = TypeVar("T")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)


def json(value: object) -> None:
    """The whole answer of a command."""
    Stdout.is_whole = True
    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def text(value: str) -> None:
    """Lines for people."""
    print(tables.lines_shown(value))


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data if data.isascii() else shown_in_json(data.decode()).encode())
    sys.stdout.buffer.flush()


def answer(value: T, render: Callable[[T], str], *, as_json: bool) -> None:
    """As data if it is asked for, else as text."""
    json(value) if as_json else text(render(value))


def line(value: object) -> None:
    _write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """As CSV; what a row lacks is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)


def _cell(value: object) -> object:
    """Rule 1."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return "" if value is None else value
