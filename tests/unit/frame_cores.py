"""Every core of the product, found by what it can do, ready to be folded."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from services.domain.core import Core
from services.domain.custody.custody import Custody
from services.runtime.journal.fold import CoreFactory
from tests.unit.frame_source import module, sources

_METHODS = ("apply", "decide", "wake_at", "check", "dump", "load")
NAMES = ("AdmissionCore", "BatchCore", "ExecutorCore", "MonitorCore", "ProvisionerCore", "WebCore")  # all there are
DEPARTMENTS = {"batch": "hpc", "web": "web"}  # of the recorded journals, by the package of the scheduler's core


def found() -> dict[str, type[Any]]:
    """Every core by its name: the classes that can do what a core does, of every folder `core` of a service."""
    modules = [m for path in sources("services") if ".core." in (m := module(path))]
    return {cls.__name__: cls for name in modules for cls in _classes(name)}


def cores() -> dict[str, CoreFactory]:
    """A factory of each core by its name."""
    return {name: _factory(cls) for name, cls in found().items()}


def _classes(name: str) -> Iterator[type[Any]]:
    for cls in vars(importlib.import_module(name)).values():
        if inspect.isclass(cls) and cls.__module__ == name and all(callable(getattr(cls, m, None)) for m in _METHODS):
            yield cls


def _factory(cls: type[Any]) -> CoreFactory:
    """A scheduler's core needs its department as well: the one of its kind."""
    department = DEPARTMENTS.get(cls.__module__.split(".")[-2])
    given = {"dept": department} if department else {}

    def make(custody: Custody) -> Core:
        core: Core = cls(custody, **given)
        return core

    return make
