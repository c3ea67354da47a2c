"""Plain tables: columns as wide as their widest cell, numbers to the right, nothing cut when the output is no terminal.

Cells are other people's words: invisible characters are shown (`schemas.control_characters`), wide ones count as two
columns."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

from schemas.control_characters import shown

_ELLIPSIS: Final = "…"


def render(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "") -> str:
    """Lines of a table.  `right` names the columns (by head) whose cells stand to the right, separated by spaces."""
    flush = set(right.split())
    table = [list(map(shown, row)) for row in (head, *rows)]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            _set(cell, most, title in flush) for cell, most, title in zip(row, widths, head, strict=True)
        ).rstrip()
        for row in table
    ]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    return "\n".join([_cut(line, limit) for line in lines] if limit else lines)


def width(text: str) -> int:
    """In columns of a terminal: characters of East Asia and emoji take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # a tenth of a second to import: for those who need it

    return cell_len(text)


def _set(cell: str, columns: int, is_right: bool) -> str:
    room = " " * (columns - width(cell))
    return room + cell if is_right else cell + room


def _cut(line: str, limit: int) -> str:
    if not limit or width(line) <= limit:
        return line
    end = limit - 1
    while width(line[:end]) > limit - 1:
        end -= 1
    return line[:end] + _ELLIPSIS


def pairs(items: Sequence[tuple[str, str]]) -> str:
    """`name: value` lines, values in one column."""
    most = max((width(shown(name)) for name, _ in items), default=0) + 1
    return "\n".join(f"{_set(shown(name) + ':', most, False)}  {lines_shown(value)}" for name, value in items)


def lines_shown(text: str) -> str:
    """A text of lines, as people may see it."""
    return "\n".join(map(shown, text.split("\n")))
