"""Plain tables: columns as wide as their widest cell, numbers to the right, nothing cut when the output is no terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

_ELLIPSIS: Final = "…"


def render(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "") -> str:
    """Lines of a table.  `right` names the columns (by head) whose cells stand to the right, separated by spaces."""
    flush = set(right.split())
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    form = "  ".join(
        f"%{width}s" if title in flush else f"%-{width}s" for title, width in zip(head, widths, strict=True)
    )
    lines = [(form % row).rstrip() for row in (tuple(head), *map(tuple, rows))]
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    return "\n".join([_cut(line, limit) for line in lines] if limit else lines)


def _cut(line: str, limit: int) -> str:
    return line[: limit - 1] + _ELLIPSIS if limit and len(line) > limit else line


def pairs(items: Sequence[tuple[str, str]]) -> str:
    """`name: value` lines, values in one column."""
    width = max((len(name) for name, _ in items), default=0) + 1
    return "\n".join(f"{name + ':':<{width}}  {value}" for name, value in items)
