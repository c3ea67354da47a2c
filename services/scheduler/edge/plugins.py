"""Plug-ins enter the tables that cores read (`policies.registry`): once, when a process starts.

What it decides: which plug-ins this process has.  A scheduler takes all that are installed, since a configuration that is
adopted while it runs may name any of them; a simulation takes those that its configuration names.

Rules
  1. A plug-in that cannot be loaded is logged, and is missed only when a configuration names it (`registry`, rule 1).
  2. A replica that lacks a policy that the configuration in force names ends with a message, also while it stands by: it could
     not take over.  Before that it looks once more at what is installed: the package may have come while it ran.
  3. What is loaded stays: a newer version is another process.  Which version that is, is in the log and the metrics, since
     replicas with different versions of a policy may decide differently.  Those that come with Phoenix Cloud have its version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from prometheus_client.registry import Collector

from schemas.config import CloudConfig, Department
from schemas.facts import ConfigAdopted, Fact
from services.domain.custody.custody import Custody
from services.domain.exits import Exit
from services.runtime import plugins
from services.runtime.config.policies import foreign
from services.runtime.log import Log
from services.runtime.plugins import Absent, Kind, Loaded, Plugin, Unusable
from services.runtime.service import Service
from services.scheduler.core.policies import registry
from services.scheduler.edge.metrics import PLUGIN

WORDS: Final[dict[Kind, str]] = {"order": "order", "victims": "victims", "scaling": "rule"}
LOADED: Final[dict[tuple[Kind, str], Loaded]] = {}


def load_all(log: Log) -> None:
    """Every plug-in that is installed."""
    every = plugins.installed()
    for plugin in every:
        fields = _about(plugin)
        why = plugins.refused(plugin, every)
        try:
            if why:
                raise Unusable(f"is of {plugin.origin}, and {why}")
            enter(plugins.load(plugin))
        except Unusable as error:
            registry.UNUSABLE[plugin.name] = f"it {error}"
            log.warning("policy not usable", **fields, why=str(error))
        else:
            if not plugin.ours:
                log.info("policy plug-in", **fields)


def load_named(config: CloudConfig) -> None:
    """Those that the configuration names and that are not here yet; without any this costs nothing.  What cannot be loaded is
    reported when it is needed for a decision."""
    for department in config.departments:
        _load_named(department)


class Lack(NamedTuple):
    """A plug-in that `department` names, and that is not here.  `kind`: in words; `why`: the second half of a sentence."""

    department: str
    kind: str
    name: str
    why: str


def lacking(config: CloudConfig) -> list[Lack]:
    """Of those that the configuration names, after `load_named`."""
    load_named(config)
    return [
        Lack(department.name, WORDS[kind], name, registry.why_absent(name))
        for department in config.departments
        for _key, kind, name in foreign(department)
        if (kind, name) not in LOADED
    ]


def _load_named(department: Department) -> list[Loaded]:
    found = []
    for _key, kind, name in foreign(department):
        if (kind, name) not in LOADED:
            try:
                found.append(plugins.use(kind, name))
                enter(found[-1])
            except Absent:
                registry.UNUSABLE.pop(name, None)  # what is missing is reported as such
            except Unusable as error:
                registry.UNUSABLE[name] = f"it {error}"
    return found


def enter(loaded: Loaded) -> None:
    """From here on cores find it by its name."""
    kind, name = loaded.plugin.kind, loaded.plugin.name
    who = "" if loaded.plugin.ours else f'{WORDS[kind]} "{name}" of {loaded.plugin.origin}'
    if kind != "experiment":  # they are no policies
        registry.enter(kind, name, loaded.policy, who, costs=loaded.costs)
    LOADED[kind, name] = loaded


def missing(custody: Custody, dept: str) -> str:
    """Why this replica cannot work by the configuration in force; empty if it can."""
    department = _department(custody, dept)
    return _missing(department) if department is not None else ""


def watch(service: Service, dept: str) -> None:
    """When an edge starts: the journal has been read, and this replica does not lead yet."""
    service.registry.register(Versions())
    _require(service, dept)


def on_applied(service: Service, dept: str, fact: Fact) -> None:
    """After each fact: a configuration may have come that names what this replica does not have."""
    if isinstance(fact, ConfigAdopted):
        _require(service, dept)


def _require(service: Service, dept: str) -> None:
    """Rule 2."""
    department = _department(service.custody, dept)
    for plugin, *_ in _load_named(department) if department is not None else ():
        if not plugin.ours:
            service.log.info("policy plug-in", **_about(plugin))
    why = missing(service.custody, dept)
    if why:
        service.fail(why, Exit.POLICY)


def _about(plugin: Plugin) -> dict[str, str]:
    return {"kind": plugin.kind, "name": plugin.name, "package": plugin.distribution, "version": plugin.version}


def _department(custody: Custody, dept: str) -> Department | None:
    config = custody.state.config
    return config.department(dept) if config is not None else None


def _missing(department: Department) -> str:
    absent = [registry.absent(WORDS[kind], name) for _, kind, name in foreign(department) if (kind, name) not in LOADED]
    return "; ".join(absent)


class Versions(Collector):
    """Which plug-ins this process has: `phoenix_policy_plugin_info`."""

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterable[Any]:
        family = PLUGIN.family()
        for (kind, name), loaded in sorted(LOADED.items()):
            plugin = loaded.plugin
            if plugin.ours:
                continue
            family.add_metric(
                [], {"kind": kind, "name": name, "package": plugin.distribution, "version": plugin.version}
            )
        yield family
