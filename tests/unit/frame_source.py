"""The source as data for the tests of the frame: modules, what they import, their syntax trees."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("schemas", "services", "phoenix", "phoenix_papers")


@cache
def sources(*tops: str) -> tuple[Path, ...]:
    """Every Python file below the top-level directories, relative to the root."""
    found = [path.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")]
    return tuple(sorted(path for path in found if "__pycache__" not in path.parts))


@cache
def tree(path: Path) -> ast.Module:
    gc.disable()  # so many objects: two thirds of the time would be its
    try:
        return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.freeze()
        gc.enable()


def module(path: Path) -> str:
    """``services.monitor.core.monitor`` for services/monitor/core/monitor.py."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(name: str) -> Path | None:
    """The file of a module of ours, or None."""
    base = Path(*name.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if (ROOT / p).exists()), None)


def imports(source: ast.AST, own: str = "") -> Iterator[str]:
    """Every module that is imported anywhere in the source, also inside functions; ``from a import b`` gives a and a.b."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*own.split(".")[: -node.level], *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def imported(path: Path) -> frozenset[str]:
    """What the module of this path imports (`imports`)."""
    return frozenset(imports(tree(path), module(path)))
