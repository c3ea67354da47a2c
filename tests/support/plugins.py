"""A package with a plug-in, as pip would leave it: a module and its metadata in a directory of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.runtime import plugins as installed
from services.scheduler.core.policies import registry
from services.scheduler.edge import plugins

ORDER = '''"""Nothing starts: an order for tests.

Source: this test.
"""

import msgspec

from phoenix.plugin.policies import Order, Plan

API = 1


class Settings(msgspec.Struct, frozen=True):
    patience_s: float = 60.0
    names: tuple[str, ...] = ()

    def __post_init__(self):
        if self.patience_s < 0:
            raise ValueError("patience_s should be 0 or more")


def plan(situation):
    {body}


ORDER = Order(plan)
'''
GROUPS = {"order": "phoenix_cloud.orders", "victims": "phoenix_cloud.victims", "scaling": "phoenix_cloud.scaling"}
GROUPS["experiment"] = "phoenix_cloud.experiments"
TABLES: list[dict[Any, Any]] = [
    registry.ORDERS,
    registry.VICTIMS,
    registry.RULES,
    registry.UNUSABLE,
    registry.COSTS,
    plugins.LOADED,
]


def enter_ours() -> None:
    """Those of `phoenix_papers`, as a scheduler does when it starts."""
    for plugin in installed.usable():
        if plugin.ours:
            plugins.enter(installed.load(plugin))


@contextlib.contextmanager
def packages(where: Path) -> Iterator[Path]:
    """A directory on the path, for packages; what was loaded from it is forgotten afterwards."""
    where.mkdir(parents=True)
    path = list(sys.path)
    sys.path.insert(0, str(where))
    before = [dict(table) for table in TABLES]
    try:
        yield where
    finally:
        sys.path[:] = path
        for table, was in zip(TABLES, before, strict=True):
            table.clear()
            table.update(was)
        for name in [name for name in sys.modules if name.startswith("acme_")]:
            del sys.modules[name]


def install(
    where: Path, name: str, source: str, *, kind: str = "order", target: str = "ORDER", version: str = "1.2"
) -> str:
    """A distribution `acme-<name>` whose module `acme_<name>` brings policy `name`; returns the module's name."""
    module = f"acme_{name}".replace("-", "_")
    where.mkdir(exist_ok=True)
    (where / f"{module}.py").write_text(source)
    about = where / f"{module}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[{GROUPS[kind]}]\n{name} = {module}:{target}\n")
    return module


def elsewhere(where: Path, source: Path, name: str, version: str = "1.2") -> None:
    """The module of `install` moves to another directory, as `pip install -e` has it: a .pth file leads there."""
    module = f"acme_{name}".replace("-", "_")
    source.mkdir()
    (where / f"{module}.py").rename(source / f"{module}.py")
    (where / f"__editable__.{module}.pth").write_text(f"{source}\n")
    (where / f"{module}-{version}.dist-info" / "RECORD").write_text(f"__editable__.{module}.pth,,\n")


def order(body: str = "return Plan([])") -> str:
    """The source of an order whose `plan` has this body."""
    return ORDER.replace("{body}", body)
