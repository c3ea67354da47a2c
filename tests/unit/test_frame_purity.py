"""Cores are pure: no clock, no chance, no input or output, no order that differs from process to process (DESIGN §1)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.unit.frame_purity import impurities
from tests.unit.frame_source import ROOT, imports, module, path_of, tree

PATTERNS = (
    "schemas/custody*.py",
    "schemas/meta.py",
    "schemas/timetable.py",
    "services/*/core.py",
    "services/scheduler/batch*.py",
    "services/scheduler/web*.py",
    "services/*/policies/*.py",
    "phoenix/haproxy/reconciler.py",
    "phoenix/haproxy/watch.py",
    "phoenix/haproxy/flow.py",
)


def cores() -> list[Path]:
    found = {path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(found)


def with_what_they_stand_on(roots: list[Path]) -> list[Path]:
    """The cores, and every module of the vocabulary or of their own service that they import, directly or not."""
    seen: dict[Path, None] = {}
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen[path] = None
        own = ".".join(module(path).split(".")[:2])
        for name in imports(tree(path), module(path)):
            target = path_of(name) if name.startswith(("schemas.", f"{own}.")) else None
            if target is not None:
                waiting.append(target)
    return sorted(seen)


PURE = with_what_they_stand_on(cores())


def test_the_cores_are_found() -> None:
    names = {module(path) for path in PURE}
    assert {"schemas.custody", "schemas.custody_state", "schemas.facts", "services.runtime.core"} <= names
    assert {"services.provisioner.core", "services.admission.core", "services.monitor.core"} <= names


@pytest.mark.parametrize("path", PURE, ids=str)
def test_a_core_and_what_it_stands_on_is_pure(path: Path) -> None:
    assert impurities(tree(path)) == []


@pytest.mark.parametrize("path", cores(), ids=str)
def test_a_core_takes_nothing_from_the_runtime_that_is_not_pure(path: Path) -> None:
    """`services.runtime.core` is the contract; of other runtime modules only what is itself pure may be used."""
    used = {t for n in imports(tree(path), module(path)) if n.startswith("services.runtime") and (t := path_of(n))}
    impure = {str(t): found for t in sorted(used) if (found := impurities(tree(t)))}
    assert impure == {}


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from datetime import datetime",
        "import random, json",
        "import os.path",
        "from asyncio import sleep",
        "import logging",
        "def f():\n    import uuid",
        "import nats.errors",
        "print(1)",
        "open('x')",
        "hash('x')",
        "id(x)",
        "async def f(): pass",
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "s = set()\nfor x in s: pass",
        "s = {1} | t\n[x for x in s]",
        "def f(s: set[str]):\n    return list(s)",
        "def f(s: frozenset[str] | None):\n    return [*s]",
        "class C:\n    s: set[int] = set()\n    def f(self):\n        return tuple(self.s)",
        "class C:\n    def __init__(self):\n        self.s = {1}\n    def f(self):\n        return {k: 1 for k in self.s}",
        "def f() -> set[str]: ...\nfor x in f(): pass",
        "for x in a.keys() - b.keys(): pass",
        "for x in a.union(b): pass",
        "s = {1}\ns.pop()",
        "','.join({'a'})",
        "sum({0.1, 0.2})",
        "dict.fromkeys({1, 2})",
        "f(*{1, 2})",
        "next(iter({1}))",
        "min({1, 2}, key=f)",
        "if (s := {1}): list(s)",
    ],
)
def test_this_test_sees_what_is_impure(code: str) -> None:
    assert impurities(ast.parse(code)) != []


@pytest.mark.parametrize(
    "code",
    [
        "import msgspec\nimport math\nfrom collections.abc import Iterable\nimport heapq, bisect, itertools, enum, typing",
        "s = {1}\nfor x in sorted(s): pass",
        "s = {1}\nprint_it = len(s) + (1 in s)",
        "any(x > 1 for x in {1, 2})",
        "sorted(x for x in {1, 2})",
        "d = {1: 2}\nfor x in d: pass",
        "for x in d.keys(): pass",
        "for x in [1, 2]: pass",
        "n = a - b\nfor x in range(n): pass",
        "d.pop()\nself.time = 1\nid_ = x.id",
        "s = {1}\nt = s | {2}\ns.add(3)\ns.discard(1)",
    ],
)
def test_this_test_lets_pure_code_pass(code: str) -> None:
    assert impurities(ast.parse(code)) == []
