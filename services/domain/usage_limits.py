"""Who is bound by which limits: of a user, of a quality of service, of a department.  Pure, for the scheduler that keeps them
and the door that refuses what is over one.

Source: Slurm's association and QOS limits (slurm.schedmd.com/resource_limits.html): MaxJobs, MaxSubmitJobs, GrpTRES.

Rules
  1. A job is counted in up to four *accounts*: its user's, its quality's, its user's within the quality, and the department's.
     All of them must hold.  One whose user is not known (in some logs) is counted in no user's.
  2. A user's own limit stands instead of the general one, value by value.
  3. Cores are those that a job asks for on all its nodes; of a job that wants whole hosts too.  Who must bound whole hosts
     bounds `hosts_max`.  Hosts are a job's nodes: two jobs that share a host count two.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from schemas.config import BatchPolicy, Department, UserLimits
from schemas.dimensions import DIMENSIONS
from schemas.size import NOTHING, Size

_LIMITED: Final = tuple(dimension for dimension in DIMENSIONS if dimension.limit)
COUNTED: Final = ("jobs_running_max", *(dimension.limit for dimension in _LIMITED), "hosts_max")  # of what runs
_mosts: Final = attrgetter(*COUNTED)  # of a `UserLimits`


class Account(NamedTuple):
    """`quality` "": any; `user` "": any."""

    quality: str = ""
    user: str = ""


WHOLE: Final = Account()  # the department


class Much(NamedTuple):
    """What jobs have at once.  `size`: on all their nodes together."""

    jobs: int = 0
    size: Size = NOTHING
    hosts: int = 0

    @property
    def counted(self) -> tuple[int, ...]:
        """By `COUNTED`."""
        return (self.jobs, *_limited(self.size), self.hosts)

    def plus(self, other: Much, times: int = 1) -> Much:
        return Much(
            self.jobs + times * other.jobs, self.size.plus(other.size.times(times)), self.hosts + times * other.hosts
        )


def _limited(size: Size) -> Iterator[int]:
    return (number for dimension, number in zip(DIMENSIONS, size, strict=True) if dimension.limit)


class Bound(NamedTuple):
    account: Account
    limits: UserLimits

    def exceeded(self, much: Much) -> tuple[str, int, int] | None:
        """The first limit that this much is over: its name, its value, how much of it."""
        for name, most, count in zip(COUNTED, _mosts(self.limits), much.counted, strict=True):
            if most is not None and count > most:
                return name, most, count
        return None

    def allows(self, used: Much, more: Much) -> int | None:
        """How many times `more` may be added to `used`; None: as often as one likes."""
        found: int | None = None
        for most, count, each in zip(_mosts(self.limits), used.counted, more.counted, strict=True):
            if most is not None and each:
                times = max(0, (most - count) // each)
                found = times if found is None else min(found, times)
        return found


def any_limit(department: Department | None) -> bool:
    """True if anything at all bounds what runs in the department."""
    if department is None:
        return False
    whole = any(getattr(department, dimension.department_limit) is not None for dimension in _LIMITED)
    if department.batch is None:
        return whole
    policy = department.batch
    tables = [policy.limits, *policy.limits.users.values()]
    tables += [table for quality in policy.quality.values() for table in (quality.each_user, quality.together)]
    return whole or any(_bounds_running(table) for table in tables)


def _bounds_running(limits: UserLimits) -> bool:
    return any(most is not None for most in _mosts(limits))


def limits_of(policy: BatchPolicy, user: str) -> UserLimits:
    """Rule 2."""
    own, every = policy.limits.users.get(user), policy.limits

    def pick(name: str) -> int | None:
        mine: int | None = getattr(own, name) if own is not None else None
        return getattr(every, name) if mine is None else mine

    return UserLimits(**{name: pick(name) for name in UserLimits.__struct_fields__})


def bounds_on(department: Department, user: str, quality: str) -> Iterator[Bound]:
    """Rule 1: the accounts of a job that have any limit; the narrowest first, so that it is the one that is reported."""
    policy = department.batch or BatchPolicy()
    known, nothing = policy.quality.get(quality), UserLimits()
    tables = [(Account("", user), limits_of(policy, user))] if user else []
    if known is not None:
        tables += [(Account(quality, user), known.each_user)] if user else []
        tables.append((Account(quality, ""), known.together))
    together = {dimension.limit: getattr(department, dimension.department_limit) for dimension in _LIMITED}
    tables.append((WHOLE, UserLimits(**together)))
    return (Bound(account, limits) for account, limits in tables if limits != nothing)
