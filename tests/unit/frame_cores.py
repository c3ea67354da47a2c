"""Every core of the product, found by what it can do, ready to be folded."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from schemas.custody import Custody
from services.runtime.core import Core
from services.runtime.journal.fold import CoreFactory
from tests.unit.frame_source import module, sources

_METHODS = ("apply", "decide", "wake_at", "check", "dump", "load")
DEPARTMENTS = {"batch": "hpc", "web": "web"}  # of the recorded journals


def cores() -> dict[str, CoreFactory]:
    """Factories by the name of the class, of each core in services/*/core.py and of the scheduler's kinds."""
    return {cls.__name__: _factory(cls) for path in sources("services") for cls in _classes(module(path))}


def _classes(name: str) -> Iterator[type]:
    parts = name.split(".")
    if len(parts) != 3 or parts[1] == "runtime" or parts[2] not in ("core", *DEPARTMENTS):
        return
    source = importlib.import_module(name)
    for cls in vars(source).values():
        if inspect.isclass(cls) and cls.__module__ == name and all(callable(getattr(cls, m, None)) for m in _METHODS):
            yield cls


def _factory(cls: type[Any]) -> CoreFactory:
    """A scheduler's core is also told its department: the one of its kind."""
    needed = [p for p in inspect.signature(cls).parameters.values() if p.default is p.empty and p.name != "custody"]
    kind = cls.__module__.rpartition(".")[2]
    department = DEPARTMENTS.get(kind, DEPARTMENTS["web" if "web" in cls.__name__.lower() else "batch"])
    given = {p.name: department for p in needed}

    def make(custody: Custody) -> Core:
        core: Core = cls(custody, **given)
        return core

    return make
