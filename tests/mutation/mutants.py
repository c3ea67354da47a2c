"""The mutants of a file, and how one is put in place of the code that a process has loaded.

Rules
  1. A mutant is named by its file, its function, the statement as it was and as it is now, and which of several equal ones it
     is.  With the digest of its function that names the same mutant for ever, wherever the lines of the file go.
  2. Mutated are functions, methods and the lambdas of tables: their code is replaced in the functions that are already there,
     whoever has imported or decorated them.  Constants of modules and defaults of struct fields are not.
  3. What is found in memory must be what the file says: code that differs is not mutated.
"""

from __future__ import annotations

import ast
import gc
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

from tests.mutation.operators import Change, Function, changes


class Unit(NamedTuple):
    """A function that stands in no other one."""

    name: str  # "BatchCore.decide", "<lambda>"
    node: Function
    digest: str


class Mutant(NamedTuple):
    file: str  # relative to the root
    unit: str
    was: str
    now: str
    nth: int  # among equal ones of the unit
    digest: str  # of the unit
    first: int  # lines of the statement, or of its head
    last: int
    at: tuple[int, int]  # which unit of the file, which change of the unit

    @property
    def key(self) -> str:
        return "\t".join([self.file, self.unit, self.digest, str(self.nth), self.was, self.now])

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.unit}\n    - {self.was}\n    + {self.now}"


class Nothing(Exception):
    """The mutant cannot be told from the original: the same code, or none that is loaded."""


@cache
def text_of(root: Path, file: str) -> str:
    return (root / file).read_text(encoding="utf-8")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def mutants(root: Path, file: str) -> list[Mutant]:
    found: list[Mutant] = []
    for number, unit in enumerate(units(ast.parse(text_of(root, file)))):
        equal: dict[tuple[str, str], int] = {}
        for nth, change in enumerate(changes(unit.node)):
            was, now = _told(change)
            count = equal[was, now] = equal.get((was, now), -1) + 1
            first, last = _lines(change)
            found.append(Mutant(file, unit.name, was, now, count, unit.digest, first, last, (number, nth)))
    return found


def units(tree: ast.AST, prefix: str = "") -> Iterator[Unit]:
    """Functions, methods, and the lambdas outside of them, in the order of the source."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield Unit(prefix + node.name, node, _digest(node))
        elif isinstance(node, ast.ClassDef):
            yield from units(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Lambda):
            yield Unit(f"{prefix}<lambda>", node, digest(ast.unparse(node)))
        else:
            yield from units(node, prefix)


def _digest(node: ast.FunctionDef) -> str:
    """Of what it does: comments, form and docstring are not in it."""
    lines = ast.unparse(node)
    said = ast.get_docstring(node, clean=False)
    return digest(lines if said is None else lines.replace(ast.unparse(node.body[0]), "", 1))


def _told(change: Change) -> tuple[str, str]:
    was = _head(change.place.around)
    change.make()
    now = _head(change.instead if change.place.node is change.place.around else change.place.around)
    change.undo()
    return was, now


def _head(node: ast.AST) -> str:
    """A statement on one line; of one with a body the first line."""
    if isinstance(node, ast.FunctionDef):
        return f"def {node.name}({ast.unparse(node.args)})"
    lines = ast.unparse(node).splitlines()
    return lines[0] if hasattr(node, "body") and isinstance(node.body, list) else " ".join(lines)


def _lines(change: Change) -> tuple[int, int]:
    """Where tests pass that may notice: the statement; of one with a body what stands before it."""
    node, around = change.place.node, change.place.around
    if isinstance(around, ast.FunctionDef):  # a default: everybody who calls
        return around.body[0].lineno, around.end_lineno or around.lineno
    first = around.lineno  # type: ignore[attr-defined]
    body = getattr(around, "body", None)
    if isinstance(body, list):
        return (node.lineno, node.lineno) if isinstance(around, ast.Try) else (first, max(first, body[0].lineno - 1))  # type: ignore[attr-defined]
    return first, around.end_lineno  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------------- put in place


class Live:
    """Every function of some files that this process has, by its code."""

    def __init__(self, root: Path, files: list[str]) -> None:
        self.root = root
        names = {str(root / file): file for file in files}
        self._found: dict[tuple[str, str, int], list[FunctionType]] = {}
        for thing in gc.get_objects():
            if type(thing) is FunctionType and (file := names.get(thing.__code__.co_filename)):
                code = thing.__code__
                self._found.setdefault((file, code.co_qualname, code.co_firstlineno), []).append(thing)

    def put(self, mutant: Mutant) -> None:
        """In this process, for good."""
        tree = ast.parse(text_of(self.root, mutant.file))
        unit = list(units(tree))[mutant.at[0]]
        path = _path(self._compiled(mutant.file, tree), unit)
        before = _at(self._compiled(mutant.file, tree), path)
        list(changes(unit.node))[mutant.at[1]].make()
        after = _at(self._compiled(mutant.file, tree), path)
        defaults = _defaults(unit.node)
        found = self._found.get((mutant.file, before.co_qualname, before.co_firstlineno), [])
        same = [f for f in found if f.__code__ == before]
        if not same or before.co_freevars != after.co_freevars:
            raise Nothing
        if before == after and not any(_new_defaults(f, defaults) for f in same):
            raise Nothing
        for function in same:
            function.__code__ = after

    def _compiled(self, file: str, tree: ast.Module) -> CodeType:
        code: CodeType = compile(tree, str(self.root / file), "exec", dont_inherit=True)
        return code


def _path(code: CodeType, unit: Unit) -> list[int]:
    """Which of the constants, from the module's code down, is the unit's code."""
    line = min([unit.node.lineno, *(d.lineno for d in getattr(unit.node, "decorator_list", ()))])
    for index, part in enumerate(code.co_consts):
        if not isinstance(part, CodeType):
            continue
        if part.co_qualname == unit.name and part.co_firstlineno == line:
            if isinstance(unit.node, ast.FunctionDef) or _stands_in(part, unit.node):
                return [index]
        elif deeper := _path(part, unit):
            return [index, *deeper]
    return []


def _stands_in(code: CodeType, node: ast.Lambda) -> bool:
    """Of several lambdas on a line, that one: something in it stands where its body begins."""
    return any((p[0], p[2]) == (node.body.lineno, node.body.col_offset) for p in code.co_positions())


def _at(code: CodeType, path: list[int]) -> CodeType:
    for index in path:
        part = code.co_consts[index]
        if not isinstance(part, CodeType):
            raise Nothing
        code = part
    if not path:
        raise Nothing
    return code


def _defaults(node: Function) -> dict[str, object]:
    """What the tree says, where it is a literal."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    pairs = [*zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
    return {a.arg: d.value for a, d in pairs if isinstance(d, ast.Constant)}


def _new_defaults(function: FunctionType, literals: dict[str, object]) -> bool:
    """Whether one differed and was put in."""
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    new = tuple(literals.get(name, value) for name, value in zip(names, given, strict=True))
    kw = {name: literals.get(name, value) for name, value in (function.__kwdefaults__ or {}).items()}
    if repr((new, kw)) == repr((given, function.__kwdefaults__ or {})):
        return False
    function.__defaults__, function.__kwdefaults__ = new, kw
    return True
