"""Imports point one way: schemas ← services.domain ← services.runtime ← services.<x> ← phoenix ← phoenix_papers; a
core knows nothing of ours but its own folder, the domain and the schemas; services never import each other; and within each
package but the first of `phoenix` neither files nor packages import each other in a circle, not even for types alone."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.unit.frame_source import PRODUCT, imported, imports, module, sources, tree

OURS = (*PRODUCT, "tests", "benchmarks")


def allowed(importer: str) -> tuple[str, ...]:
    """Packages that a module may import from, of ours."""
    parts = importer.split(".")
    if parts[0] == "schemas":
        return ("schemas",)
    if parts[:2] == ["services", "domain"]:
        return ("schemas", "services.domain")
    if parts[:2] == ["services", "runtime"] or importer == "services":
        return ("schemas", "services.domain", "services.runtime")
    if parts[0] == "services" and parts[2:3] == ["core"]:
        return ("schemas", "services.domain", f"services.{parts[1]}.core")
    if parts[0] == "services":
        return ("schemas", "services.domain", "services.runtime", f"services.{parts[1]}")
    if parts[0] == "phoenix":
        return ("schemas", "services", "phoenix")
    return OURS  # `test_plugin_interface` says what plug-ins may import


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


def circle(package: str, taken: dict[str, list[str]]) -> list[str]:
    """Files and packages directly in `package` that import each other in a circle; `taken`: what each module imports."""
    uses: dict[str, set[str]] = {}
    for name, others in taken.items():
        if one := inside(package, name):
            uses.setdefault(one, set()).update(
                found for other in others if (found := inside(package, other)) not in ("", one)
            )
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def inside(package: str, name: str) -> str:
    """What of `package` the module is, or is in; empty: it is elsewhere."""
    return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else ""


def test_nothing_goes_in_a_circle() -> None:
    paths = sources(*PRODUCT)
    taken = {module(path): sorted(imported(path)) for path in paths}
    packages = {module(path.parent / "__init__.py") for path in paths}
    packages.discard("phoenix")  # commands are in `cli`, and so are the words that what they run tells people with
    assert {package: found for package in sorted(packages) if (found := circle(package, taken))} == {}


def test_this_test_sees_a_circle() -> None:
    taken = {"s.m.history.file": ["s.m.core"], "s.m.serve.reads": ["s.m.history.file"], "s.m.core": ["schemas.ids"]}
    assert circle("s.m", taken) == []
    assert set(circle("s.m", taken | {"s.m.history.routes": ["s.m.serve"]})) == {"history", "serve"}
    code = "if TYPE_CHECKING:\n    import a\nimport b\ndef late():\n    import c"
    assert sorted(imports(ast.parse(code))) == ["a", "b", "c"]


def test_imports_point_one_way() -> None:
    wrong = {module(p): bad for p in sources(*PRODUCT) if (bad := forbidden(module(p), tree(p)))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("importer", "code"),
    [
        ("schemas.facts", "import services"),
        ("schemas.facts", "from services.domain.custody.fold import Custody"),
        ("services.domain.custody.fold", "from services.runtime import config"),
        ("services.runtime.loop", "from services.monitor.core.monitor import MonitorCore"),
        ("services.runtime.loop", "from services import monitor"),
        ("services.monitor.core.monitor", "from services.admission.core.admission import AdmissionCore"),
        ("services.monitor.core.monitor", "from services import admission"),
        ("services.monitor.core.monitor", "from ..admission import core"),
        ("services.monitor.core.monitor", "from services.monitor.views import views"),
        ("services.monitor.core.monitor", "from services.runtime.config.file import Config"),
        ("services.monitor.core.monitor", "import phoenix.cli"),
        ("services.monitor.core.monitor", "def late():\n    import services.executor.core.executor"),
        ("services.monitor.core.monitor", "from tests.support import toy"),
        ("phoenix.cli.main", "from tests.support import toy"),
        ("phoenix.cli.main", "from phoenix_papers.svmsched import rules"),
        ("services.scheduler.core.batch.core", "import phoenix_papers"),
    ],
)
def test_this_test_sees_a_wrong_import(importer: str, code: str) -> None:
    assert forbidden(importer, ast.parse(code)) != []


@pytest.mark.parametrize(
    ("importer", "code"),
    [
        ("services.domain.custody.fold", "from schemas.facts import Fact\nimport msgspec"),
        ("services.runtime.loop", "from services.runtime.config.file import Config"),
        (
            "services.monitor.edge",
            "from services.monitor import views\nfrom services.runtime import log\nfrom . import events",
        ),
        (
            "services.monitor.core.monitor",
            "from services.monitor.core.job import Job\nfrom services.domain import grace",
        ),
        ("phoenix.simulate.run", "from services.monitor.core.monitor import MonitorCore"),
    ],
)
def test_this_test_lets_a_right_import_pass(importer: str, code: str) -> None:
    assert forbidden(importer, ast.parse(code)) == []
