"""Imports point one way: schemas ← services.runtime ← services.<x> ← phoenix; services never import each other."""

from __future__ import annotations

import ast

import pytest

from tests.unit.frame_source import PRODUCT, imports, module, sources, tree

OURS = (*PRODUCT, "tests", "benchmarks")


def allowed(importer: str) -> tuple[str, ...]:
    """Packages that a module may import from, of ours."""
    parts = importer.split(".")
    if parts[0] == "schemas":
        return ("schemas",)
    if parts[:2] == ["services", "runtime"] or importer == "services":
        return ("schemas", "services.runtime")
    if parts[0] == "services":
        return ("schemas", "services.runtime", f"services.{parts[1]}")
    return ("schemas", "services", "phoenix")


def forbidden(importer: str, source: ast.AST) -> list[str]:
    """Imports of ours that point the wrong way."""
    found = []
    for name in imports(source, importer):
        ours = name.split(".")[0] in OURS
        inside = any(name == package or name.startswith(f"{package}.") for package in allowed(importer))
        above = any(package.startswith(f"{name}.") for package in allowed(importer))  # `from services import runtime`
        if ours and not inside and not above:
            found.append(name)
    return found


def test_imports_point_one_way() -> None:
    wrong = {module(p): bad for p in sources(*PRODUCT) if (bad := forbidden(module(p), tree(p)))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("importer", "code"),
    [
        ("schemas.custody", "import services"),
        ("schemas.custody", "from services.runtime import config"),
        ("services.runtime.loop", "from services.monitor.core import MonitorCore"),
        ("services.runtime.loop", "from services import monitor"),
        ("services.monitor.core", "from services.admission.core import AdmissionCore"),
        ("services.monitor.core", "from services import admission"),
        ("services.monitor.core", "from ..admission import core"),
        ("services.monitor.core", "import phoenix.cli"),
        ("services.monitor.core", "def late():\n    import services.executor.core"),
        ("services.monitor.core", "from tests.support import toy"),
        ("phoenix.cli.main", "from tests.support import toy"),
    ],
)
def test_this_test_sees_a_wrong_import(importer: str, code: str) -> None:
    assert forbidden(importer, ast.parse(code)) != []


@pytest.mark.parametrize(
    ("importer", "code"),
    [
        ("schemas.custody", "from schemas.facts import Fact\nimport msgspec"),
        ("services.runtime.loop", "from services.runtime.config import Config"),
        (
            "services.monitor.core",
            "from services.monitor import views\nfrom services.runtime import log\nfrom . import events",
        ),
        ("phoenix.simulate.run", "from services.monitor.core import MonitorCore"),
    ],
)
def test_this_test_lets_a_right_import_pass(importer: str, code: str) -> None:
    assert forbidden(importer, ast.parse(code)) == []
