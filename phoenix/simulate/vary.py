"""Variants of an experiment: the document with some values set, read as if they stood in the file.

Rules
  1. A key is `<department>.<setting>` (`hpc.order`, `web.threshold`, `hpc.weight`, `hpc.jobs.load`) or `<table>.<setting>`
     (`latencies.boot_s`, `cluster.cores`, `policy.notice_s`).  A setting of a department's policy may be named without the
     table that it stands in.
  2. An unknown key is an error with the nearest known one.  A value is judged by what judges the file: there is no second
     opinion about what is right.
  3. Problems are reported at the variant's place in the file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec

from phoenix.simulate.workload import Latencies
from schemas.config import BatchPolicy, Department, Limits, Policy, WebPolicy
from services.runtime.config.form import Path_, Problem, shown, suggestion

_TABLES: Final[dict[str, tuple[str, ...]]] = {
    "cluster": ("cores", "memory_mb"),
    "latencies": Latencies.__struct_fields__,
    "policy": Policy.__struct_fields__,
    "limits": Limits.__struct_fields__,
}
_POLICIES: Final[dict[str, type[msgspec.Struct]]] = {"batch": BatchPolicy, "web": WebPolicy}
_INPUTS: Final = {"batch": ("jobs",), "web": ("demand", "load")}
_FIXED: Final = ("name", "kind", "batch", "web")  # of a department: what makes it another one


class Changed(msgspec.Struct, kw_only=True):
    """`places`: what was set, by its place in the document, to its place in the file."""

    document: dict[str, Any]
    places: dict[Path_, Path_]
    problems: list[Problem]


def flat(
    raw: Mapping[str, Any], depth: int = 4, *, whole: Callable[[Mapping[str, Any]], bool] = lambda _: False
) -> Iterator[tuple[str, Any]]:
    """`{"hpc.order": …}` and `{"hpc": {"order": …}}` alike: TOML has both for `hpc.order = …`.  `whole`: tables that are
    values."""
    for key, value in raw.items():
        if isinstance(value, Mapping) and depth > 1 and value and not whole(value):
            yield from ((f"{key}.{rest}", inner) for rest, inner in flat(value, depth - 1, whole=whole))
        else:
            yield key, value


def changed(document: Mapping[str, Any], values: Mapping[str, Any], index: int) -> Changed:
    """A copy of the document with the values set; `index`: which [[vary]] it is."""
    found = Changed(document=copy.deepcopy(dict(document)), places={}, problems=[])
    for key, value in flat(values):
        path = _path(found.document, key)
        if path is None:
            names = _known(found.document)
            hint = suggestion(key, names) or f"; for example {', '.join(names[:3])}" if names else ""
            right = f"there is no such setting{hint}"
            found.problems.append(
                Problem(path=("vary", index, "set", *key.split(".")), right=right, found=shown(value))
            )
            continue
        _put(found.document, path, value)
        found.places[path] = ("vary", index, "set", *key.split("."))
    return found


def placed(problem: Problem, places: Mapping[Path_, Path_], index: int, name: str) -> Problem:
    """Rule 3."""
    for path, place in places.items():
        if problem.path[: len(path)] == path or path[: len(problem.path)] == problem.path:
            return msgspec.structs.replace(problem, path=place, label=name)
    right = f"{problem.key}: {problem.right}"  # it follows from what was set
    return msgspec.structs.replace(problem, path=("vary", index), right=right, label=name)


def _departments(document: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    raw = document.get("department")
    return [(i, d) for i, d in enumerate(raw) if isinstance(d, Mapping)] if isinstance(raw, list) else []


def _path(document: Mapping[str, Any], key: str) -> Path_ | None:
    """Rule 1: where it stands in the document; None if nothing is called so."""
    first, _, rest = key.partition(".")
    parts = tuple(rest.split("."))
    for index, department in _departments(document):
        if department.get("name") == first:
            return _in_department(str(department.get("kind")), index, parts)
    return (first, *parts) if rest in _TABLES.get(first, ()) else None


def _in_department(kind: str, index: int, parts: tuple[str, ...]) -> Path_ | None:
    policy = _POLICIES.get(kind)
    if policy is None:
        return None
    path: Path_ = ("department", index)
    if len(parts) > 1 and (parts[0] == kind or parts[0] in _INPUTS[kind]):
        return (*path, *parts)  # the form knows the names in there
    if parts[0] in policy.__struct_fields__:
        return (*path, kind, *parts)
    return (*path, *parts) if parts[0] in Department.__struct_fields__ and parts[0] not in _FIXED else None


def _known(document: Mapping[str, Any]) -> list[str]:
    found = []
    for _, department in _departments(document):
        policy = _POLICIES.get(str(department.get("kind")))
        fields = (*policy.__struct_fields__, *Department.__struct_fields__) if policy else ()
        found += [f"{department.get('name')}.{name}" for name in fields if name not in _FIXED]
    return found + [f"{table}.{name}" for table, names in _TABLES.items() for name in names]


def _put(document: dict[str, Any], path: Path_, value: Any) -> None:
    place: Any = document
    for part, following in pairwise(path):
        if isinstance(place, dict):
            inner = place.get(str(part))
            if not isinstance(inner, list if isinstance(following, int) else dict):
                inner = place[str(part)] = {}
            place = inner
        else:
            place = place[part]
    place[path[-1]] = value
