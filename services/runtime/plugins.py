"""Plug-ins, which are policies and experiments: which are installed, from which package, and how one is loaded.

    [project.entry-points."phoenix_cloud.orders"]        in the package's pyproject.toml
    widest-first = "phoenix_widest_first:ORDER"

What it decides: whether a name that the configuration holds is that of a policy that can be used here.  What a policy may do
is said where its type is (`services.scheduler.core.policies`: order, victims, scale); what plug-ins import, and what that
promises them, is `phoenix.plugin`.  This module looks only at the form.

Rules
  1. The name of a policy that comes with Phoenix Cloud is that policy, whatever is installed: no package replaces it.  That
     holds for the plug-ins of its own distribution too (`phoenix_papers`).
  2. A name that two packages bring is refused: which of them runs must not depend on the order of a directory.
  3. To list plug-ins is to read package metadata; code of a plug-in is run when it is chosen (and, by a scheduler, at its
     start: a configuration that is adopted later may choose it).
  4. What is installed while a process runs is found by it.  `pip install -e` leaves a .pth file, which Python reads when it
     starts only: here that of the plug-in's own package is read once more, and no other.  If that is not enough, the message
     says that a restart is.
  5. A module documents its policy: its docstring is the theory of operation, `Settings` (a `msgspec.Struct`; `schemas.
     options`) its settings.
  6. It states the version of the interface that it was written for, `API = 1`.  Another one, or none, is refused: what a name
     means may have changed, and to decide wrongly is worse than not to start.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import site
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

OURS: Final = "phoenix-cloud"  # the distribution
API: Final = 1  # rule 6; `phoenix.plugin` says what it promises
Kind: TypeAlias = Literal["order", "victims", "scaling", "experiment"]
KINDS: Final[tuple[Kind, ...]] = ("order", "victims", "scaling")  # of policies
GROUPS: Final[dict[Kind, str]] = {
    "order": "phoenix_cloud.orders",
    "victims": "phoenix_cloud.victims",
    "scaling": "phoenix_cloud.scaling",
    "experiment": "phoenix_cloud.experiments",
}
_PARTS: Final[dict[Kind, tuple[str, ...]]] = {  # what has to be callable; of victims the object itself
    "order": ("plan",),
    "victims": (),
    "scaling": ("follow", "wanted"),
    "experiment": ("_replace",),
}
_FORM: Final[dict[Kind, str]] = {
    "order": "an Order (phoenix.plugin.policies)",
    "victims": "a function from hosts, candidates and a count to a Choice (phoenix.plugin.policies)",
    "scaling": "a Rule (phoenix.plugin.policies)",
    "experiment": "an Experiment (phoenix.plugin)",
}
_REGISTRY: Final = "services.scheduler.core.policies.registry"
_RESTART: Final = "; if it was installed while this runs, restart the cloud (phoenix down, phoenix up)"
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}\Z")  # schemas.config.PolicyName


class Plugin(NamedTuple):
    """What a package brings.  `target`: ``module:attribute``."""

    kind: Kind
    name: str
    distribution: str
    version: str
    target: str

    @property
    def origin(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def ours(self) -> bool:
        return self.distribution == OURS


class Loaded(NamedTuple):
    """`policy`: what the entry point names; `theory`: the module's docstring; `settings`: what the module declares."""

    plugin: Plugin
    policy: Any
    theory: str
    settings: type[msgspec.Struct] | None
    minimal: bool = True  # of victims: `MINIMAL = False` in the module says that more may end than have to
    reads: tuple[
        str, ...
    ] = ()  # keys of the department's table that it reads beside its options: `READS` in the module
    costs: bool = False  # of victims: `COSTS = True` says that it looks at `waited_s`, `overhead_s` and `combined`


class Unusable(Exception):
    """There is no such policy here, or it cannot be used; the message is a clause: what would be right, or what is wrong."""


class Absent(Unusable):
    """No package that is installed here brings it."""


def builtin(kind: Kind) -> tuple[str, ...]:
    """Names of the policies that come with Phoenix Cloud.  Their registry is found by its name, as a plug-in is: the judge of a
    configuration has to know them, and this package imports no service."""
    names: tuple[str, ...] = importlib.import_module(_REGISTRY).names(kind)
    return names


def installed(kinds: Sequence[Kind] = KINDS) -> list[Plugin]:
    """What packages bring, by kind and name; also what cannot be used (`refused` says why)."""
    importlib.invalidate_caches()  # rule 4
    found = []
    for kind in kinds:
        for point in importlib.metadata.entry_points(group=GROUPS[kind]):
            about = point.dist
            name, version = (about.name, about.version) if about is not None else ("an unknown package", "?")
            found.append(Plugin(kind, point.name, name, version, point.value))
    return sorted(found, key=lambda plugin: (kinds.index(plugin.kind), *plugin[1:]))


def refused(plugin: Plugin, among: list[Plugin]) -> str:
    """Why the plug-in cannot be chosen; empty if it can."""
    same = [p for p in among if (p.kind, p.name) == (plugin.kind, plugin.name)]
    if plugin.name in builtin(plugin.kind) or (not plugin.ours and any(p.ours for p in same)):
        return "this name is taken by a policy that comes with Phoenix Cloud"
    if _NAME.match(plugin.name) is None:
        return "a name is lower-case letters, digits and hyphens, starts with a letter, and has at most 64 characters"
    others = [p for p in same if p != plugin]
    if others and not plugin.ours:
        return f"{others[0].origin} brings one of this name as well: uninstall one of them"
    return ""


def usable(kinds: Sequence[Kind] = KINDS) -> list[Plugin]:
    found = installed(kinds)
    return [plugin for plugin in found if not refused(plugin, found)]


def find(kind: Kind, name: str) -> Plugin:
    """The plug-in of this name.  Raises `Unusable`."""
    found = installed((kind,))
    mine = sorted((plugin for plugin in found if plugin.name == name), key=lambda plugin: not plugin.ours)  # rule 1
    if not mine:
        names = [plugin.name for plugin in found if not refused(plugin, found)]
        raise Absent(f"should be {_choice(kind, names)}{_near(name, [*builtin(kind), *names])}")
    why = refused(mine[0], found)
    if why:
        raise Unusable(f"is brought by {mine[0].origin}, and cannot be used: {why}")
    return mine[0]


def _choice(kind: Kind, names: list[str]) -> str:
    ours = "one of " + ", ".join(f'"{name}"' for name in builtin(kind))
    theirs = ", ".join(f'"{name}"' for name in names)
    return f"{ours}, or of the plug-ins that are installed ({theirs or 'none'})"


def _near(name: str, known: list[str]) -> str:
    import difflib  # only on the way to an error message

    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


def load(plugin: Plugin) -> Loaded:
    """Import the plug-in's module, and look at what it brings.  Raises `Unusable`."""
    where, _, attribute = plugin.target.partition(":")
    importlib.invalidate_caches()  # rule 4
    try:
        module = _import(plugin, where.strip())
        policy: Any = module
        for part in attribute.split(".") if attribute else ():
            policy = getattr(policy, part.strip())
    except Exception as error:  # whatever a foreign module does when it is imported
        text = f"{type(error).__name__}: {error}{_RESTART if _absent(error, where) else ''}"
        raise Unusable(f"is of {plugin.origin}, and cannot be loaded from {plugin.target}: {text}") from error
    if wrong := _wrong_version(module):
        raise Unusable(f"is of {plugin.origin}, and {wrong}")
    parts = [getattr(policy, part, None) for part in _PARTS[plugin.kind]] or [policy]
    if not all(callable(part) for part in parts):
        text = f"should be {_FORM[plugin.kind]}; {plugin.target} is a {type(policy).__name__}"
        raise Unusable(f"is of {plugin.origin}, and {text}")
    settings = getattr(module, "Settings", None)
    if settings is not None and not (isinstance(settings, type) and issubclass(settings, msgspec.Struct)):
        raise Unusable(f"is of {plugin.origin}, and {module.__name__}.Settings should be a msgspec.Struct")
    return Loaded(
        plugin,
        policy,
        theory=(module.__doc__ or "").strip(),
        settings=settings,
        minimal=bool(getattr(module, "MINIMAL", True)),
        reads=tuple(getattr(module, "READS", ())),
        costs=bool(getattr(module, "COSTS", False)),
    )


def _wrong_version(module: ModuleType) -> str:
    """Rule 6: what is wrong with the version that it states; empty if nothing is."""
    stated = vars(module).get("API")
    if stated is None:
        return f"{module.__name__} does not state which version of phoenix.plugin it was written for: add API = {API}"
    if isinstance(stated, bool) or stated != API:
        return f"{module.__name__} was written for version {stated!r} of phoenix.plugin; this is version {API}"
    return ""


def _import(plugin: Plugin, where: str) -> ModuleType:
    """The plug-in's module, if need be by what its package has left for Python's next start (rule 4)."""
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if not _absent(error, where):
            raise
    for path in _path_files(plugin.distribution):
        site.addpackage(str(path.parent), path.name, None)
    importlib.invalidate_caches()
    return importlib.import_module(where)


def _absent(error: Exception, where: str) -> bool:
    """True if it is the plug-in's own module that is not there, and not one that it imports."""
    return isinstance(error, ModuleNotFoundError) and error.name == where.strip().partition(".")[0]


def _path_files(distribution: str) -> list[Path]:
    """The package's .pth files, where Python would look for them."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = [Path(str(file.locate())) for file in files if file.suffix == ".pth"]
    return [path for path in found if path.is_file() and str(path.parent) in sys.path]


def use(kind: Kind, name: str) -> Loaded:
    """`find` and `load`.  Raises `Unusable`."""
    return load(find(kind, name))
