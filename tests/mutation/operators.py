"""What a mutation changes in a function: one place of its syntax tree at a time.

Rules
  1. Mutated is what decides: comparisons, conditions, arithmetic, numbers and truth values (defaults of parameters too), what
     is returned, statements for their effect, the keys and ends of sorted(), min(), max(), any() and all().
  2. Of an `and` or `or` each side is left out in turn: a test that tells both from the original tells `and` from `or`.
  3. Left alone: annotations, decorators, docstrings, assertions (zip's `strict` is one), and texts for people (f-strings, what
     is raised): whoever mutates these learns how often a sentence is quoted in a test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

Function = ast.FunctionDef | ast.Lambda

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_EMPTY: Final = {
    "list": "[]",
    "dict": "{}",
    "str": "''",
    "int": "0",
    "float": "0.0",
    "tuple": "()",
}  # by what is returned
_TEXTS: Final = (ast.JoinedStr, ast.Assert)
_NOT_CODE: Final = ("annotation", "returns", "decorator_list", "type_params", "type_comment")
_DECIDES: Final = (ast.Compare, ast.BoolOp)  # what is mutated itself, wherever it stands


class Place(NamedTuple):
    """A node and where its parent has it; `around`: the innermost statement, or the function."""

    node: ast.AST
    parent: ast.AST
    field: str
    nth: int | None  # in a list
    around: ast.AST

    def put(self, node: ast.AST) -> None:
        if self.nth is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.nth] = node


class Change(NamedTuple):
    """One mutation: in its `place` stands `instead`."""

    place: Place
    instead: ast.AST

    def make(self) -> None:
        self.place.put(ast.fix_missing_locations(ast.copy_location(self.instead, self.place.node)))

    def undo(self) -> None:
        self.place.put(self.place.node)


def changes(function: Function) -> Iterator[Change]:
    """All, in the order of the source."""
    for place in _places(function, function):
        for instead in _instead(place, function):
            yield Change(place, instead)


def _places(parent: ast.AST, around: ast.AST) -> Iterator[Place]:
    for name, value in ast.iter_fields(parent):
        if name in _NOT_CODE or (name == "exc" and isinstance(parent, ast.Raise)):
            continue
        nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, node in nodes:
            if not isinstance(node, ast.AST) or isinstance(node, _TEXTS) or _is_docstring(node, name, index):
                continue
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            inside = node if isinstance(node, ast.stmt) else around
            yield Place(node, parent, name, index, inside)
            yield from _places(node, inside)


def _is_docstring(node: ast.AST, name: str, index: int | None) -> bool:
    first = name == "body" and index == 0 and isinstance(node, ast.Expr)
    return first and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def _instead(place: Place, function: Function) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.stmt):
        yield from _statements(node, function)
    elif isinstance(node, ast.expr):
        yield from _expressions(node)
        if _is_condition(place) and not isinstance(node, (*_DECIDES, ast.Constant)) and not _is_not(node):
            yield _negated(node)
        if place.field == "elts" and _is_key(place):
            yield ast.Constant(0)


def _statements(node: ast.stmt, function: Function) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Constant()):
            return  # "..." of what is declared
        case ast.Return(value=None) | ast.Raise() | ast.Delete() | ast.Expr():
            yield ast.Pass()
        case (
            ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            | ast.AnnAssign(target=ast.Attribute(), value=ast.expr())
        ):
            yield ast.Pass()
        case ast.AugAssign():
            yield ast.Pass()
            if type(node.op) in _COMPUTED:
                yield ast.AugAssign(node.target, _COMPUTED[type(node.op)](), node.value)
        case ast.Return(value=ast.expr() as value):
            yield from (ast.Return(other) for other in _returned(value, function))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _returned(value: ast.expr, function: Function) -> Iterator[ast.expr]:
    said = "" if isinstance(function, ast.Lambda) or function.returns is None else ast.unparse(function.returns)
    if said == "bool":
        if not isinstance(value, _DECIDES) and not _is_not(value) and not isinstance(value, ast.Constant):
            yield _negated(value)
        return
    empty = "None" if "None" in said else _EMPTY.get(said.split("[")[0], "None")
    if ast.unparse(value) != empty and not (isinstance(value, ast.Constant) and isinstance(value.value, int | float)):
        yield ast.parse(empty, mode="eval").body


def _expressions(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                other = _COMPARED[type(op)]()
                yield ast.Compare(node.left, [*node.ops[:i], other, *node.ops[i + 1 :]], node.comparators)
        case ast.BoolOp():
            for i in range(len(node.values)):
                rest = [*node.values[:i], *node.values[i + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.UnaryOp(op=ast.USub()) if not isinstance(node.operand, ast.Constant):
            yield node.operand
        case ast.BinOp() if type(node.op) in _COMPUTED and not isinstance(node.left, ast.JoinedStr):
            yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)  # type: ignore[operator]
        case ast.Call(func=ast.Name(id=name)):
            yield from _calls(node, name)


def _calls(node: ast.Call, name: str) -> Iterator[ast.AST]:
    if name in _CALLED:
        yield ast.Call(ast.Name(_CALLED[name], ast.Load()), node.args, node.keywords)
    if name == "sorted" and not node.keywords:
        yield ast.Call(ast.Name("list", ast.Load()), node.args, [])
    if name in ("sorted", "min", "max"):
        for keyword in node.keywords:
            if keyword.arg in ("key", "reverse"):
                yield ast.Call(node.func, node.args, [k for k in node.keywords if k is not keyword])


def _is_condition(place: Place) -> bool:
    """It is asked for its truth."""
    return place.field in ("test", "ifs")


def _is_key(place: Place) -> bool:
    """An element of a tuple that a lambda or function gives to be sorted by: without it the next one decides."""
    tuple_, what = place.parent, place.around
    if not isinstance(tuple_, ast.Tuple) or len(tuple_.elts) < 2 or isinstance(place.node, ast.Constant | ast.Tuple):
        return False
    asked = [n.value for n in ast.walk(what) if isinstance(n, ast.keyword) and n.arg == "key"]
    return any(isinstance(lambda_, ast.Lambda) and lambda_.body is tuple_ for lambda_ in asked)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _negated(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)
