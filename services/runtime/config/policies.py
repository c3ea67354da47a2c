"""Meaning of the names of policies, and of the options of those that are plug-ins; see `config.checks`.

Rules
  1. A name is that of a policy that comes with Phoenix Cloud, or of a plug-in that is installed here and can be loaded.
  2. Options are judged by the settings that the chosen plug-ins declare.  Without a plug-in there are none: a setting that
     has no effect is one that people rely on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from schemas import options as declared
from schemas.config import BatchPolicy, Department, Option, WebPolicy
from services.runtime import plugins
from services.runtime.config.form import Path_, Problem, shown, suggestion
from services.runtime.plugins import Kind

SETTINGS: Final[tuple[tuple[str, str, Kind], ...]] = (
    ("batch", "order", "order"),
    ("batch", "victims", "victims"),
    ("web", "rule", "scaling"),
)  # table, key, what kind of policy it names


def named(department: Department) -> list[tuple[str, Kind, str]]:
    """Every policy that the department's configuration names: key, kind, name."""
    policies: dict[str, BatchPolicy | WebPolicy | None] = {"batch": department.batch, "web": department.web}
    policy = policies[department.kind]
    return [(key, kind, getattr(policy, key)) for table, key, kind in SETTINGS if table == department.kind and policy]


def foreign(department: Department) -> list[tuple[str, Kind, str]]:
    """Those of them that are plug-ins."""
    return [(key, kind, name) for key, kind, name in named(department) if name not in plugins.builtin(kind)]


def check(department: Department, path: Path_) -> Iterator[Problem]:
    """`path`: of the department's table of policies."""
    policy = department.batch if department.kind == "batch" else department.web
    chosen, unusable = [], False
    for key, kind, name in foreign(department):
        try:
            chosen.append(plugins.use(kind, name))
        except plugins.Unusable as error:
            yield Problem(path=(*path, key), found=shown(name), right=str(error), label=department.name)
            unusable = True  # what options it has is not known
    if policy is not None and not unusable:
        settings = [loaded.settings for loaded in chosen if loaded.settings is not None]
        yield from _options(settings, policy.options, (*path, "options"), department.name)


def _options(
    settings: Sequence[type[msgspec.Struct]], options: Mapping[str, Option], path: Path_, label: str
) -> Iterator[Problem]:
    """Rule 2."""
    known = [name for each in settings for name in each.__struct_fields__]
    for key in declared.unknown(settings, options):
        hint = suggestion(key, known) or f"; there are: {', '.join(known)}"
        right = (
            f"there is no such option{hint}" if known else "should not be here: no policy that is chosen has options"
        )
        yield Problem(path=(*path, key), found=shown(options[key]), right=right, label=label)
    for each in settings:
        try:
            declared.read(each, options)
        except declared.Unfit as error:
            place = (*path, error.key) if error.key in options else path
            found = shown(options[error.key]) if error.key in options else "these options"
            yield Problem(path=place, found=found, right=error.right, label=label)
