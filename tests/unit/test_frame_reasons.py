"""Reasons explain: no core, no shared rule and no account reads one (CONTRIBUTING, rule 6).

Read is what a syntax tree shows: an attribute of a reason, its type, its code, a comparison with a kind of reasons, or a
sentence.  Labels of metrics that count by the kind of a reason are explanation: the monitor takes them by the reason's `code`,
in the functions of `LABELS` alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REASONS = ("reason", "why", "given_up", "failed_why")  # names of fields and variables that hold one
LABELS = {
    "services/monitor/core/counters.py _quota",
    "services/monitor/core/service_levels.py _closed",
}
NO_DECISION = {
    "services/scheduler/core/policies/plugged.py wrong_reason",  # whether a plug-in has given one
    "services/domain/specs.py _mistyped",  # an error's text, of that name
}


def files() -> list[Path]:
    found = list((ROOT / "services").glob("*/core/**/*.py"))
    return found + [p for p in (ROOT / "services/domain").rglob("*.py") if "text" not in p.parts]


def is_reason(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in REASONS


def is_kind(node: ast.AST) -> bool:
    """`because.NAME`, not called."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "because"


def reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return is_reason(node.value)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "type", "getattr")
    ):
        return any(is_reason(part) for part in node.args[:1]) or any(is_kind(part) for part in node.args[1:])
    if isinstance(node, ast.Call) and is_kind(node.func) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("fields", "tag")
    if isinstance(node, ast.Compare):
        return any(is_kind(part) for part in (node.left, *node.comparators)) and not is_kind_of_start(node)
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("services.domain.text")


def is_kind_of_start(node: ast.Compare) -> bool:
    """`kind is because.X`: a parameter of who writes the reason, and no reason."""
    return isinstance(node.left, ast.Name) and node.left.id == "kind"


def readers(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found, name = set(), str(path.relative_to(ROOT))
    inside = {id(part): f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for part in ast.walk(f)}
    for node in ast.walk(tree):
        if reads(node):
            function = inside.get(id(node))
            found.add(f"{name} {function.name if function is not None else ''}".strip())
    return found


def test_no_decision_and_no_account_reads_a_reason() -> None:
    found = {reader for path in files() for reader in readers(path)}
    assert found - LABELS - NO_DECISION == set()
    assert found >= LABELS


def test_the_six_cores_are_looked_at() -> None:
    names = {str(path.relative_to(ROOT)).split("/core/")[0] for path in files() if "/core/" in str(path)}
    assert {f"services/{name}" for name in ("admission", "provisioner", "scheduler", "executor", "monitor")} <= names
