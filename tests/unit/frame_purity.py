"""What makes a module impure, found in its syntax tree.

A core must give the same bytes for the same facts on any machine.  So it may not import what knows the time, chance, the
system or the network, may not ask for the present or the local time zone, may not call what prints, reads or depends on
addresses and hash seeds, and may not iterate over a set, whose order of strings differs from process to process.  Sorting a
set, asking for its length or for a member is fine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

IMPORTS = frozenset(
    [
        "time",
        "random",
        "secrets",
        "uuid",
        "os",
        "sys",
        "asyncio",
        "threading",
        "multiprocessing",
        "concurrent",
        "subprocess",
        "signal",
        "logging",
        "socket",
        "ssl",
        "select",
        "selectors",
        "http",
        "urllib",
        "pathlib",
        "io",
        "shutil",
        "tempfile",
        "glob",
        "sqlite3",
        "locale",
        "platform",
        "getpass",
        "inspect",
        "gc",
        "weakref",
        "zoneinfo",
        "nats",
        "aiohttp",
        "requests",
        "pyone",
        "prometheus_client",
        "zmq",
        "numpy",
    ]
)
CALLS = frozenset(
    [
        "print",
        "open",
        "input",
        "exec",
        "eval",
        "compile",
        "hash",
        "id",
        "globals",
        "locals",
        "vars",
        "breakpoint",
        "__import__",
    ]
)
NAMES = {"signal": ["Signals"]}  # what is only a table of names
MOMENTS = {"now": 9, "today": 9, "utcnow": 9, "fromtimestamp": 2, "astimezone": 1}  # arguments that make each pure
SET_CALLS = frozenset(["set", "frozenset"])
SET_METHODS = frozenset(["union", "intersection", "difference", "symmetric_difference"])
VIEWS = frozenset(["keys", "items"])
CONSUMERS = frozenset(
    ["list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter", "reversed", "sum", "dict", "deque", "chain"]
)  # order shows
CONSUMING_METHODS = frozenset(["join", "extend", "fromkeys", "from_iterable"])
_SET_OPERATORS = (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)


def impurities(source: ast.Module) -> list[str]:
    """Sentences with line numbers; empty if the module is pure."""
    names = _set_names(source)
    found = [*_imports(source), *_calls(source), *_iterations(source, names)]
    return [f"line {line}: {what}" for line, what in sorted(found)]


def _imports(source: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [] if NAMES.get(node.module or "") == [alias.name for alias in node.names] else [node.module or ""]
        yield from ((node.lineno, f"imports {n}") for n in names if n.split(".")[0] in IMPORTS)  # type: ignore[attr-defined]


def _calls(source: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.lineno, f"calls {node.func.id}()"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            least = MOMENTS.get(node.func.attr, 0)
            if len(node.args) < least:
                yield node.lineno, f"asks the clock or the machine's time zone: {node.func.attr}()"
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, "is asynchronous"


def _set_names(source: ast.Module) -> frozenset[str]:
    """Names (variables, parameters, attributes) that hold a set somewhere in the module."""
    names: set[str] = set()
    while True:
        before = len(names)
        for node in ast.walk(source):
            if isinstance(node, ast.Assign) and _is_set(node.value, names):
                names |= {n for target in node.targets if (n := _name(target))}
            elif isinstance(node, ast.AnnAssign) and (
                _is_set_type(node.annotation) or (node.value is not None and _is_set(node.value, names))
            ):
                names |= {n for n in [_name(node.target)] if n}
            elif isinstance(node, ast.NamedExpr) and _is_set(node.value, names):
                names.add(node.target.id)
            elif isinstance(node, ast.arg) and node.annotation is not None and _is_set_type(node.annotation):
                names.add(node.arg)
            elif isinstance(node, ast.FunctionDef) and node.returns is not None and _is_set_type(node.returns):
                names.add(node.name)
        if len(names) == before:
            return frozenset(names)


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _is_set_type(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_set_type(node.left) or _is_set_type(node.right)
    base = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(base, ast.Name) and base.id in ("set", "frozenset", "Set", "AbstractSet", "MutableSet")


def _is_set(node: ast.expr, names: frozenset[str] | set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(node) in names
    if isinstance(node, ast.IfExp):
        return _is_set(node.body, names) or _is_set(node.orelse, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SET_OPERATORS):
        return any(_is_set(side, names) or _is_view(side) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        called = _name(node.func)
        is_method = isinstance(node.func, ast.Attribute)
        return called in (SET_METHODS if is_method else SET_CALLS) or called in names
    return False


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS


def _iterations(source: ast.Module, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    into_sorted = _sorted_generators(source)
    for node in ast.walk(source):
        if isinstance(node, ast.For) and _is_set(node.iter, names):
            yield node.lineno, "iterates over a set"
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and node not in into_sorted:
            if any(_is_set(part.iter, names) for part in node.generators):
                yield node.lineno, "a comprehension iterates over a set"
        elif isinstance(node, ast.Starred) and _is_set(node.value, names):
            yield node.lineno, "unpacks a set"
        elif isinstance(node, ast.Call):
            yield from _consumption(node, names)


def _consumption(node: ast.Call, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    called = _name(node.func)
    known = CONSUMING_METHODS if isinstance(node.func, ast.Attribute) else CONSUMERS
    if called in known and any(_is_set(argument, names) for argument in node.args):
        yield node.lineno, f"{called}() of a set"
    if called in ("min", "max") and node.keywords and any(_is_set(argument, names) for argument in node.args):
        yield node.lineno, f"{called}() of a set by a key: ties fall as they like"
    if isinstance(node.func, ast.Attribute) and called == "pop" and not node.args and _is_set(node.func.value, names):
        yield node.lineno, "pops from a set"


def _sorted_generators(source: ast.Module) -> list[ast.AST]:
    """Comprehensions whose order cannot show: they are sorted, or only asked for all, any, the least or the greatest."""
    found: list[ast.AST] = []
    for node in ast.walk(source):
        if isinstance(node, ast.Call) and _name(node.func) in (
            "sorted",
            "any",
            "all",
            "set",
            "frozenset",
            "len",
            "min",
            "max",
        ):
            found += node.args[:1]
    return found
