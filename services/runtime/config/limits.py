"""Meaning of limits, qualities of service and bounds on preemption (`domain.usage_limits`); see `config.checks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schemas import ids
from schemas.config import BatchPolicy, CloudConfig, Department, Quality
from schemas.dimensions import DIMENSIONS
from services.runtime.config.form import NAME_RIGHT, Path_, Problem, shown, suggestion

QUALITIES_MOST: Final = 100
SHARE_LEFT: Final = 0.01


def check(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    for user in batch.limits.users:
        yield from _user(user, (*path, "limits", "users", user), label)
    if len(batch.quality) > QUALITIES_MOST:
        right = f"should be at most {QUALITIES_MOST} qualities of service"
        yield _problem((*path, "quality"), len(batch.quality), right, label)
    for name, quality in batch.quality.items():
        yield from _quality(name, quality, (*path, "quality", name), label)
    if batch.quality_default and batch.quality_default not in batch.quality:
        hint = suggestion(batch.quality_default, batch.quality) or f"; there are: {', '.join(batch.quality) or 'none'}"
        right = f"should be a quality of service of this department{hint}"
        yield _problem((*path, "quality_default"), batch.quality_default, right, label)
    yield from _preemption(batch, path, label)


def check_department(department: Department, path: Path_) -> Iterator[Problem]:
    for name, noun in ((each.department_limit, each.plural) for each in DIMENSIONS if each.limit):
        most = getattr(department, name)
        if most is not None and department.kind != "batch":
            right = f"should not be here: {noun} bound what jobs ask for; of a web department maximum bounds hosts"
            yield _problem((*path, name), most, right, department.name)


def _preemption(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    for field in ("min_run_s", "preemptions_max", "preemptions_per_hour_max"):
        value = getattr(batch, field)
        if value and batch.order == "leases":
            right = 'should be 0 with order = "leases": an accepted lease begins on time, and preempts what runs on its hosts'
            yield _problem((*path, field), value, right, label)


def _quality(name: str, quality: Quality, path: Path_, label: str) -> Iterator[Problem]:
    if not ids.is_department(name):
        yield _problem(path, name, NAME_RIGHT, label)
    for user in quality.users:
        yield from _user(user, (*path, "users"), label)


def check_people(cloud: CloudConfig) -> Iterator[Problem]:
    """Every name that a limit or a quality of service uses is configured: a misspelt one would bound, or admit, no user.
    Of a cloud without users (a simulation) nothing is known."""
    known = sorted({user.name for user in cloud.users})
    for index, department in enumerate(cloud.departments if known else ()):
        batch = department.batch or BatchPolicy()
        path: Path_ = ("department", index, "batch")
        named = [((*path, "limits", "users", user), user) for user in batch.limits.users]
        for name, quality in batch.quality.items():
            named += [((*path, "quality", name, "users"), user) for user in quality.users]
        for place, user in named:
            if user not in known and ids.is_department(user):
                right = f"should be a user of this cloud ([[user]]){suggestion(user, known)}"
                yield _problem(place, user, right, department.name)


def check_shares(cloud: CloudConfig) -> Iterator[Problem]:
    """Of the object store: together no more than all of it, and something for those that name none."""
    named = [d.store_share for d in cloud.departments if d.store_share is not None]
    for index, department in enumerate(cloud.departments):
        path, share = ("department", index, "store_share"), department.store_share
        if share is None:
            continue
        if sum(named) > 1:
            right = f"should be less: the departments' shares are {sum(named):g} together, and at most 1 is there"
            yield _problem(path, share, right, department.name)
        elif sum(named) > 1 - SHARE_LEFT and len(named) < len(cloud.departments):
            right = f"should leave something ({SHARE_LEFT:g}) for departments without a store_share of their own"
            yield _problem(path, share, right, department.name)


def _user(user: str, path: Path_, label: str) -> Iterator[Problem]:
    if not ids.is_department(user):
        yield _problem(path, user, "should be the name of a user", label)


def _problem(path: Path_, value: object, right: str, label: str) -> Problem:
    return Problem(path=path, found=shown(value), right=right, label=label)
