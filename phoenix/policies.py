"""Every policy that there is here, as a person wants to know it: those of Phoenix Cloud and those of plug-ins, told alike.

What it decides: nothing.  It reads docstrings, settings and package metadata.  Code of plug-ins is loaded, since what they are
is in their modules; one that cannot be loaded is listed with its problem.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import msgspec

from schemas.config import BatchPolicy, WebPolicy
from services.runtime import plugins
from services.runtime.plugins import Kind, Plugin, Unusable
from services.scheduler.core.policies import registry


class Setting(msgspec.Struct, frozen=True):
    """`key` as in the department's table; `default` as in TOML, empty if it must be given."""

    key: str
    default: str


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """`about`: one line; `source`: paper or document; `theory`: the module's docstring; `problem`: why it cannot be chosen."""

    kind: str
    name: str
    about: str = ""
    source: str = ""
    package: str
    version: str
    settings: tuple[Setting, ...] = ()
    theory: str = ""
    problem: str = ""

    @property
    def origin(self) -> str:
        return f"{self.package} {self.version}"


def names(kind: Kind) -> list[str]:
    """Of those that can be chosen here: ours, then plug-ins."""
    return [*plugins.builtin(kind), *(plugin.name for plugin in plugins.usable((kind,)))]


def described() -> list[Described]:
    """All of them: by kind, ours first, in the order of the documentation; then plug-ins by name."""
    every = plugins.installed()
    found: list[Described] = []
    for kind in plugins.KINDS:
        found += [_ours(entry) for entry in registry.ENTRIES if entry.kind == kind]
        found += [_theirs(plugin, plugins.refused(plugin, every)) for plugin in every if plugin.kind == kind]
    return found


def _ours(entry: registry.Entry) -> Described:
    theory = (entry.module.__doc__ or "").strip()
    defaults = WebPolicy() if entry.kind == "scaling" else BatchPolicy()
    settings = [s for key in entry.settings for s in _settings(key, getattr(defaults, key))]
    return _told(entry.kind, entry.name, theory, plugins.OURS, _version(), tuple(settings))


def _theirs(plugin: Plugin, problem: str) -> Described:
    if not problem:
        try:
            loaded = plugins.load(plugin)
        except Unusable as error:
            problem = str(error)
        else:
            fields = msgspec.structs.fields(loaded.settings) if loaded.settings is not None else ()
            defaults = WebPolicy() if plugin.kind == "scaling" else BatchPolicy()
            settings = (
                *(s for key in loaded.reads if hasattr(defaults, key) for s in _settings(key, getattr(defaults, key))),
                *(Setting(f"options.{field.name}", _default(field)) for field in fields),
            )
            return _told(plugin.kind, plugin.name, loaded.theory, plugin.distribution, plugin.version, settings)
    return Described(
        kind=plugin.kind, name=plugin.name, package=plugin.distribution, version=plugin.version, problem=problem
    )


def _told(kind: str, name: str, theory: str, package: str, version: str, settings: tuple[Setting, ...]) -> Described:
    return Described(
        kind=kind,
        name=name,
        about=registry.summary(theory),
        source=registry.source(theory),
        package=package,
        version=version,
        settings=settings,
        theory=theory,
    )


def _settings(key: str, default: Any) -> Iterator[Setting]:
    if isinstance(default, msgspec.Struct):
        for name, value in msgspec.structs.asdict(default).items():
            yield from _settings(f"{key}.{name}", value)
    else:
        yield Setting(key, _text(default))


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _text(field.default)
    return "" if field.default_factory is msgspec.NODEFAULT else _text(field.default_factory())


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _version() -> str:
    try:
        return importlib.metadata.version(plugins.OURS)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
