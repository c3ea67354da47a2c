"""How arrays and dependencies are written: sbatch's --array and --dependency, without its OR (`?`).  The door reads them with
this, and so does the command line, which has to say at once what is mistyped.

Rules
  1. Sizes are checked before anything is expanded.
  2. What is no specification is a ValueError that says why, with an example; too many elements or jobs are `TooMany`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

DEPENDENCIES_MAX: Final = 1000
CONDITIONS: Final = ("afterok", "afternotok", "afterany", "after")  # facts.Dependency.condition
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?\Z")
_JOB_OR_ELEMENT: Final = re.compile(r"[1-9][0-9]{0,17}(?:_(?:0|[1-9][0-9]{0,8}))?\Z")


class TooMany(Exception):
    """More than are allowed."""


def array(spec: str, units_max: int) -> tuple[tuple[int, ...], int]:
    """Indices (ascending, each once) and throttle (0: none) of ``1-100:2%10,200``."""
    spans, throttle = _spans(spec)
    total = sum(len(span) for span in spans)
    if total > units_max:
        raise TooMany(f"{spec!r} has {total} elements or more; at most {units_max} are allowed")
    return tuple(sorted({index: None for span in spans for index in span})), throttle


def spelled(indices: Sequence[int]) -> str:
    """The shortest that ``array`` reads as these indices, which ascend, as far as one look at each finds it."""
    parts, start = [], 0
    while start < len(indices):
        end, step = start + 1, 0
        if end < len(indices):
            step = indices[end] - indices[start]
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        if end - start == 2 and step > 1:  # two that are far apart: the second one may begin a range
            end = start + 1
        first, last = indices[start], indices[end - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        start = end
    return ",".join(parts)


def check_array(spec: str) -> None:
    _spans(spec)


def dependencies(spec: str) -> tuple[tuple[str, str], ...]:
    """(condition, job) of ``afterok:12,afterany:13:14``, each once."""
    found = tuple(dict.fromkeys(_dependencies(spec)))
    if len(found) > DEPENDENCIES_MAX:
        raise TooMany(f"{len(found)} dependencies; at most {DEPENDENCIES_MAX} are allowed")
    return found


def _spans(spec: str) -> tuple[list[range], int]:
    found, throttle = [], 0
    for part in spec.replace(" ", "").split(","):
        body, percent, limit = part.partition("%")
        if percent:
            throttle = _throttle(limit, throttle, spec)
        found.append(_span(body, spec))
    return found, throttle


def _span(body: str, spec: str) -> range:
    match = _RANGE.match(body)
    if match is None:
        raise _not_an_array(spec, f"{body!r} is no index or range")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if last < first:
        raise _not_an_array(spec, f"{body!r} ends before it begins")
    if step < 1:
        raise _not_an_array(spec, "a step is 1 or more")
    return range(first, last + 1, step)


def _throttle(limit: str, before: int, spec: str) -> int:
    if before:
        raise _not_an_array(spec, "one % limits the whole array: give it once")
    if not limit.isdecimal() or not limit.isascii() or len(limit) > 9 or int(limit) < 1:
        raise _not_an_array(spec, "after % comes how many elements may run at once, 1 or more")
    return int(limit)


def _not_an_array(spec: str, why: str) -> ValueError:
    return _mistyped(spec, f"{why}; for example 1-100:2%10 or 1,5,7")


def _dependencies(spec: str) -> Iterator[tuple[str, str]]:
    for part in spec.replace(" ", "").split(","):
        condition, *jobs = part.split(":")
        if condition not in CONDITIONS or not jobs:
            raise _not_after(spec, f"{part!r} is not one of {', '.join(CONDITIONS)} with a job after a colon")
        for job in jobs:
            if _JOB_OR_ELEMENT.match(job) is None:
                raise _not_after(spec, f"{job!r} is no job")
            yield condition, job


def _not_after(spec: str, why: str) -> ValueError:
    return _mistyped(spec, f"{why}; for example afterok:12,afterany:13:14")


def _mistyped(spec: str, why: str) -> ValueError:
    """The whole of it comes first, unless that is what `why` begins with."""
    whole = repr(spec[:80])
    return ValueError(why if why.startswith(whole) else f"{whole}: {why}")
