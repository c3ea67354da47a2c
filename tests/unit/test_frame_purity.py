"""Cores are pure: no clock, no chance, no input or output, no order that differs from process to process (DESIGN §1)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.unit import frame_cores
from tests.unit.frame_purity import impurities
from tests.unit.frame_source import ROOT, imports, module, path_of, tree

FOLDERS = (
    "services/*/core/**/*.py",
    "services/domain/**/*.py",
)  # what is here is pure: nothing else need be said of a file
AS_WELL = (
    "phoenix/haproxy/reconciler.py",
    "phoenix/haproxy/watch.py",
    "phoenix/haproxy/flow.py",  # the agent's decisions
    "phoenix_papers/intergrid/victims_*.py",
    "phoenix_papers/svmsched/order.py",
    "phoenix_papers/svmsched/shares.py",  # policies
)
CORES = {name: path for name, cls in frame_cores.found().items() if (path := path_of(cls.__module__))}


def with_what_they_stand_on(roots: Iterable[Path]) -> list[Path]:
    """These modules, and every one of the vocabulary or of a service that they import, directly or not."""
    seen: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        ours = (name for name in imports(tree(path), module(path)) if name.startswith(("schemas.", "services.")))
        waiting += [target for name in ours if (target := path_of(name))]
    return sorted(seen)


PURE = [path.relative_to(ROOT) for pattern in (*FOLDERS, *AS_WELL) for path in sorted(ROOT.glob(pattern))]


@cache
def pure() -> list[Path]:
    """Not at import: every worker of the tests imports this file, and one runs it."""
    return with_what_they_stand_on(PURE)


def test_all_six_cores_are_found_and_are_in_their_folders() -> None:
    assert sorted(CORES) == list(frame_cores.NAMES)
    assert set(CORES.values()) <= set(PURE)


@pytest.mark.parametrize("pattern", [*FOLDERS, *AS_WELL])
def test_what_is_to_be_pure_is_found(pattern: str) -> None:
    assert list(ROOT.glob(pattern))


@pytest.mark.parametrize("impure", ["import time\ntime.time()", "import random", "open('x')", "import logging"])
@pytest.mark.parametrize("name", [*frame_cores.NAMES, "domain"])
def test_it_is_seen_in_each_core_and_in_the_domain(name: str, impure: str) -> None:
    """In every file of the folder in which the core is."""
    folder = Path("services", "domain") if name == "domain" else CORES[name].parent
    inside = [path for path in PURE if path.is_relative_to(folder)]
    assert inside
    added = ast.parse(impure).body
    for path in inside:
        own = tree(path)
        assert len(impurities(ast.Module([*own.body, *added], []))) == len(impurities(own)) + 1, path


def test_what_a_core_stands_on_is_found() -> None:
    """The wire is no folder of theirs, and as pure where they use it."""
    assert {"schemas.facts", "schemas.config", "schemas.reasons"} <= {module(path) for path in pure()}


def test_a_core_and_what_it_stands_on_is_pure() -> None:
    assert {str(path): found for path in pure() if (found := impurities(tree(path)))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "datetime.now(UTC)",
        "datetime.fromtimestamp(at)",
        "at.astimezone()",
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
