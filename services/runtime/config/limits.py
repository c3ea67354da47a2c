"""Meaning of limits, qualities of service and bounds on preemption (`domain.usage_limits`); see `config.checks`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from schemas import ids
from schemas.config import BatchPolicy, CloudConfig, Department, Quality, UserLimits
from services.runtime.config.form import Path_, Problem, shown, suggestion

MOST: Final = 1_000_000_000  # cores: a thousand times the largest machine; more is a typing error
PRIORITY_MOST: Final = 1_000_000  # as of a job (`schemas.requests`)
RUN_MOST_S: Final = 3660 * 86_400.0  # as of a time limit
PREEMPTIONS_MOST: Final = 10_000  # in an hour: each is remembered for so long
QUALITIES_MOST: Final = 100
SHARE_LEFT: Final = 0.01
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")


def check(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    yield from _limits(batch.limits, (*path, "limits"), label)
    for user, limits in batch.limits.users.items():
        yield from _limits(limits, (*path, "limits", "users", user), label)
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
    most = department.maximum_cores
    if most is None:
        return
    if department.kind != "batch":
        right = "should not be here: cores bound what jobs ask for; of a web department maximum bounds hosts"
        yield _problem((*path, "maximum_cores"), most, right, department.name)
    elif not 1 <= most <= MOST:
        right = f"should be at least 1 and at most {MOST}"
        yield _problem((*path, "maximum_cores"), most, right, department.name)


def _preemption(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    for field, most in (
        ("min_run_s", RUN_MOST_S),
        ("preemptions_max", PREEMPTIONS_MOST),
        ("preemptions_per_hour_max", PREEMPTIONS_MOST),
    ):
        value = getattr(batch, field)
        if not 0 <= value <= most:
            yield _problem((*path, field), value, f"should be at least 0 and at most {most:.12g}", label)
        elif value and batch.order == "leases":
            right = 'should be 0 with order = "leases": an accepted lease begins on time, whoever runs in its way'
            yield _problem((*path, field), value, right, label)


def _quality(name: str, quality: Quality, path: Path_, label: str) -> Iterator[Problem]:
    if _NAME.match(name) is None:
        right = "should be lower-case letters, digits and hyphens, starting with a letter, at most 32 characters"
        yield _problem(path, name, right, label)
    if abs(quality.priority) > PRIORITY_MOST:
        right = f"should be between -{PRIORITY_MOST} and {PRIORITY_MOST}"
        yield _problem((*path, "priority"), quality.priority, right, label)
    for user in quality.users:
        yield from _user(user, (*path, "users"), label)
    yield from _limits(quality.each_user, (*path, "each_user"), label)
    yield from _limits(quality.together, (*path, "together"), label)


def _limits(limits: UserLimits, path: Path_, label: str) -> Iterator[Problem]:
    for field in (each.name for each in msgspec.structs.fields(UserLimits)):
        value = getattr(limits, field)
        if value is not None and not 0 <= value <= MOST:
            yield _problem((*path, field), value, f"should be at least 0 and at most {MOST}", label)


def check_people(cloud: CloudConfig) -> Iterator[Problem]:
    """Whoever a limit or a quality of service names is configured: one with a slip in the name bounds, or lets in, nobody.
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
        if not 0 < share <= 1:
            yield _problem(path, share, "should be above 0 and at most 1: a part of the object store", department.name)
        elif sum(named) > 1:
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
