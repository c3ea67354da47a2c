"""Meaning of a web department's bounds (`domain.scaling`): whether what was written can be read, and can hold together.

Rules
  1. Every entry is judged by itself, and every problem is reported with what would be right.
  2. A floor above what the department may have is refused: it would be cut off in silence when its hour comes.
  3. A value of the paper's rule, where another built-in one is in force, is refused: target-tracking is the default, and who
     writes a threshold means the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from schemas.config import Department, WebPolicy
from services.domain import scaling
from services.runtime.config.form import Path_, Problem, shown

DEFAULT: Final = WebPolicy()
BOUND: Final = {"threshold": 1.0, "window_s": math.inf}
ENTRIES_MAX: Final = 100  # as many as a person can oversee; all are looked at in each decision


def check(department: Department, web: WebPolicy, path: Path_) -> Iterator[Problem]:
    label = department.name
    yield from _texts(web.up_limits, scaling.limit, (*path, "up_limits"), label)
    yield from _texts(web.down_limits, scaling.limit, (*path, "down_limits"), label)
    yield from _texts(web.schedule, scaling.spans, (*path, "schedule"), label)
    yield from _texts([web.schedule_zone], scaling.offset_s, (*path, "schedule_zone"), label)
    yield from _floors(department, web, (*path, "schedule"))
    yield from _of_other_rule(web, path, label)
    if web.turns_per_hour_max == 1:
        right = "should be 0 (no budget) or at least 2: an instance removed must be able to come back"
        yield Problem(path=(*path, "turns_per_hour_max"), found="1", right=right, label=label)


def _of_other_rule(web: WebPolicy, path: Path_, label: str) -> Iterator[Problem]:
    """Rule 3."""
    if web.rule != "target-tracking":
        return
    for name in ("threshold", "window_s"):
        found = getattr(web, name)
        if found != getattr(DEFAULT, name) and 0 < found < BOUND[name]:  # else its range has been reported
            right = f'is of the rule "threshold", and the rule is "{web.rule}": add rule = "threshold", or remove it'
            yield Problem(path=(*path, name), found=shown(found), right=right, label=label)


def _texts(texts: Sequence[str], read: Callable[[str], Any], path: Path_, label: str) -> Iterator[Problem]:
    if len(texts) > ENTRIES_MAX:
        yield Problem(path=path, found=f"{len(texts)} entries", right=f"should be at most {ENTRIES_MAX}", label=label)
    for text in texts[:ENTRIES_MAX]:
        try:
            read(text)
        except scaling.Unreadable as error:
            yield Problem(path=path, found=shown(text), right=str(error), label=label)


def _floors(department: Department, web: WebPolicy, path: Path_) -> Iterator[Problem]:
    """Rule 2."""
    for text in web.schedule[:ENTRIES_MAX]:
        try:
            floor = scaling.spans(text)[0].floor
        except scaling.Unreadable:
            continue
        hosts = math.ceil(floor / max(1, web.instances_per_host))
        if floor > web.instances_max:
            right = f"should ask for at most instances_max ({web.instances_max})"
            yield Problem(path=path, found=shown(text), right=right, label=department.name)
        elif department.maximum is not None and hosts > department.maximum:
            right = f"should fit the department's maximum of {department.maximum} hosts; this needs {hosts}"
            yield Problem(path=path, found=shown(text), right=right, label=department.name)
