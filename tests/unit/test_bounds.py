"""Limits of users, qualities of service and departments, by hand: which accounts a job has, what is exceeded, what is left."""

from __future__ import annotations

import pytest

from schemas.config import BatchLimits, BatchPolicy, Department, Quality, UserLimits
from schemas.size import NOTHING, Size
from services.domain.usage_limits import WHOLE, Account, Bound, Much, any_limit, bounds_on, limits_of

TIGHT = Bound(WHOLE, UserLimits(jobs_running_max=3, cores_max=8, hosts_max=2))


@pytest.mark.parametrize(
    ("jobs", "cores", "hosts", "exceeded"),
    [
        (3, 8, 2, None),
        (4, 9, 3, ("jobs_running_max", 3, 4)),
        (3, 9, 3, ("cores_max", 8, 9)),
        (3, 8, 3, ("hosts_max", 2, 3)),
        (0, 0, 0, None),
    ],
)
def test_the_first_limit_that_is_exceeded_is_told(
    jobs: int, cores: int, hosts: int, exceeded: tuple[str, int, int] | None
) -> None:
    assert TIGHT.exceeded(Much(jobs, Size(cores), hosts)) == exceeded
    assert Bound(WHOLE, UserLimits()).exceeded(Much(jobs, Size(cores), hosts)) is None


@pytest.mark.parametrize(
    ("used", "more", "times"),
    [
        (Much(0, NOTHING, 0), Much(1, Size(2), 1), 2),  # two hosts
        (Much(0, NOTHING, 0), Much(1, Size(4), 0), 2),  # eight cores
        (Much(0, NOTHING, 0), Much(1, NOTHING, 0), 3),  # three jobs
        (Much(1, Size(4), 0), Much(1, Size(3), 0), 1),
        (Much(3, NOTHING, 0), Much(1, Size(1), 1), 0),
        (Much(9, NOTHING, 0), Much(1, Size(1), 1), 0),  # over already
        (Much(0, NOTHING, 0), Much(0, NOTHING, 0), None),
    ],
)
def test_how_often_more_fits(used: Much, more: Much, times: int | None) -> None:
    assert TIGHT.allows(used, more) == times
    assert Bound(WHOLE, UserLimits()).allows(used, more) is None


def batch(**policy: object) -> Department:
    return Department(name="hpc", kind="batch", batch=BatchPolicy(**policy))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("department", "bounded"),
    [
        (None, False),
        (Department(name="hpc", kind="batch"), False),
        (Department(name="hpc", kind="batch", maximum_cores=0), True),
        (batch(), False),
        (Department(name="hpc", kind="batch", batch=BatchPolicy(), maximum_cores=8), True),
        (batch(limits=BatchLimits(jobs_submitted_max=1)), False),  # what waits is the door's matter
        (batch(limits=BatchLimits(jobs_running_max=0)), True),
        (batch(limits=BatchLimits(cores_max=1)), True),
        (batch(limits=BatchLimits(hosts_max=1)), True),
        (batch(limits=BatchLimits(users={"ann": UserLimits(hosts_max=1)})), True),
        (batch(quality={"q": Quality()}), False),
        (batch(quality={"q": Quality(each_user=UserLimits(cores_max=1))}), True),
        (batch(quality={"q": Quality(together=UserLimits(cores_max=1))}), True),
    ],
)
def test_whether_anything_bounds_what_runs(department: Department | None, bounded: bool) -> None:
    assert any_limit(department) is bounded


def test_a_users_own_limit_stands_instead_value_by_value() -> None:
    own = UserLimits(jobs_running_max=0, cores_max=9)
    policy = BatchPolicy(limits=BatchLimits(jobs_running_max=5, jobs_submitted_max=6, hosts_max=7, users={"ann": own}))
    assert limits_of(policy, "bob") == UserLimits(jobs_running_max=5, jobs_submitted_max=6, hosts_max=7)
    assert limits_of(policy, "ann") == UserLimits(jobs_running_max=0, jobs_submitted_max=6, cores_max=9, hosts_max=7)


def test_a_job_is_counted_in_every_account_that_has_a_limit_the_narrowest_first() -> None:
    one, two, three = (UserLimits(cores_max=n) for n in (1, 2, 3))
    policy = BatchPolicy(
        limits=BatchLimits(cores_max=1), quality={"q": Quality(each_user=two, together=three), "free": Quality()}
    )
    department = Department(name="hpc", kind="batch", batch=policy, maximum_cores=4)
    whole = Bound(WHOLE, UserLimits(cores_max=4))
    mine, in_q, of_q = Bound(Account("", "ann"), one), Bound(Account("q", "ann"), two), Bound(Account("q", ""), three)
    assert list(bounds_on(department, "ann", "q")) == [mine, in_q, of_q, whole]
    assert list(bounds_on(department, "ann", "")) == list(bounds_on(department, "ann", "free")) == [mine, whole]
    assert list(bounds_on(department, "", "q")) == [of_q, whole]
    assert list(bounds_on(Department(name="web", kind="web"), "ann", "q")) == []
