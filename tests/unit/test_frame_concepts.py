"""One concept a file, and no base class for its own sake: what is cut has a reason to be (CONTRIBUTING.md, rule 1).

A module that is imported by one module of its own folder alone is a part of that one, unless it is a concept of its own: it
has so much to say that its reader gains by the cut, or stands in `SMALL` with the reason.  A base class with one child that
nothing uses by itself is a page break.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

from tests.unit.frame_source import PRODUCT, ROOT, imported, module, sources, tree

CONCEPT_LINES: Final = 60
SMALL: Final = {  # path -> why it is a file of its own
    "services/scheduler/core/policies/*.py": "a policy is a file, named by the registry",
    "services/scheduler/core/batch/close_ended.py": "a stage of the core is a file",
    "phoenix_papers/*/plot.py": "matplotlib is imported only with --plots",
    "phoenix_papers/svmsched/shares.py": "the shares of the thesis, which the order asks and does not decide",
    "phoenix/local/guest/health.py": "a loop of the guest beside its others",
    "phoenix/cli/history_rebuild.py": "a command is a file",
    "phoenix/simulate/week.py": "hours of a week laid over a scenario, apart from the engine's time",
    "services/monitor/event_backfill.py": "a protocol with the broker, apart from the edge that uses it once",
    "services/monitor/history/backlog.py": "what waits for the file, with rules of its own",
    "services/monitor/views/job_usage.py": "a view is a file",
    "services/runtime/log_flood.py": "the limit of log lines, with rules of its own",
    "services/executor/opennebula/deadline.py": "an HTTP answer with a deadline, which knows nothing of OpenNebula",
    "services/executor/core/allocation_backoff.py": "a state machine with rules of its own",
}


@cache
def importers() -> dict[str, set[str]]:
    """Module -> modules of the product that import it."""
    known = {module(path) for path in sources(*PRODUCT)}
    found: dict[str, set[str]] = {}
    for path in sources(*PRODUCT):
        for name in imported(path) & known:
            found.setdefault(name, set()).add(module(path))
    return found


def parts() -> Iterator[Path]:
    """Modules with one importer, in their own folder."""
    for path in sources(*PRODUCT):
        by = importers().get(module(path), set())
        if (
            path.name != "__init__.py"
            and len(by) == 1
            and next(iter(by)).rpartition(".")[0] == module(path.parent / "__init__.py")
        ):
            yield path


def lines(path: Path) -> int:
    return (ROOT / path).read_text(encoding="utf-8").count("\n")


@cache
def classes(path: Path) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))


def names(path: Path) -> dict[str, str]:
    """What a name of the module is, of ours: ``module.Class``."""
    found = {node.name: f"{module(path)}.{node.name}" for node in classes(path)}
    for node in tree(path).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def children() -> dict[str, set[str]]:
    """Class of ours -> classes of ours that are made from it directly."""
    paths = [path for path in sources(*PRODUCT) if classes(path)]
    ours: dict[str, set[str]] = {f"{module(path)}.{node.name}": set() for path in paths for node in classes(path)}
    for path in paths:
        known = names(path)
        for node in classes(path):
            for base in node.bases:
                first, _, rest = ast.unparse(base).partition(".")
                full = f"{known.get(first, first)}{'.' if rest else ''}{rest}"
                if full in ours:
                    ours[full].add(f"{module(path)}.{node.name}")
    return ours


def test_what_is_cut_off_is_a_concept() -> None:
    shards = [
        f"{path}: {lines(path)} lines, imported by {next(iter(importers()[module(path)]))} alone"
        for path in parts()
        if lines(path) < CONCEPT_LINES and not any(fnmatch(str(path), pattern) for pattern in SMALL)
    ]
    assert shards == [], "make it a part of its importer, or give its reason in SMALL"


def test_what_has_a_reason_needs_one() -> None:
    small = [str(path) for path in parts() if lines(path) < CONCEPT_LINES]
    assert [pattern for pattern in SMALL if not any(fnmatch(path, pattern) for path in small)] == []


@cache
def used() -> set[str]:
    """Names of classes that are made, caught, or typed with somewhere, not only inherited from."""
    found = set()
    for path in sources(*PRODUCT):
        bases = {id(each) for node in classes(path) for each in node.bases}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in bases:
                found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def test_a_base_class_has_two_children() -> None:
    single = [base for base, found in children().items() if len(found) == 1 and base.rpartition(".")[2] not in used()]
    assert single == [], "a base with one child that nothing uses is a page break: make them one class"


def test_this_test_sees_a_child() -> None:
    assert children()["services.runtime.service.Edge"] >= {"services.scheduler.edge.web.WebEdge"}
    assert "Outcome" in used()
