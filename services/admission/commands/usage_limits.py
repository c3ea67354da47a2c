"""What a user may ask for: the quality of service of a job, and whether a limit leaves room for it.

Rules
  1. A request without a quality has the department's default.  One that does not exist, or is not for this user, is refused.
  2. `jobs_submitted_max` counts what is not final, waiting or running, each element of an array.  What it has no room for is
     refused; the refusal names the limit, its account, its value and the present count.
  3. A job that alone is over a limit on what runs (cores, hosts) would wait for ever: it is refused.  Otherwise such limits
     make it wait, and are the scheduler's (`budgets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schemas import facts as f
from schemas.config import BatchPolicy, Department, Quality
from schemas.dimensions import DIMENSIONS
from schemas.facts import Fact
from schemas.requests import JobSubmit
from services.admission.core.admission import AdmissionCore, accounts
from services.domain.refusal import Refused
from services.domain.shape import Shape
from services.domain.usage_limits import WHOLE, Account, Bound, Much, bounds_on

_ASKED: Final = {  # limit of a running job -> what of a request is over it, and the word for it
    **{dimension.limit: (dimension.asked, dimension.plural) for dimension in DIMENSIONS if dimension.limit},
    "hosts_max": ("nodes", "hosts"),
}
_OF_DEPARTMENT: Final = {dimension.limit: dimension.department_limit for dimension in DIMENSIONS if dimension.limit}


def quality_of(request: JobSubmit, department: Department, user: str) -> tuple[str, Quality]:
    """The name and content of the job's quality of service; "" and the plain one if it has none.  Raises `Refused`."""
    policy = department.batch or BatchPolicy()
    name = request.quality or policy.quality_default
    if not name:
        return "", Quality()
    known = policy.quality.get(name)
    if known is None:
        has = f"it has: {', '.join(sorted(policy.quality))}" if policy.quality else "it has none"
        raise Refused("unknown", f"quality: {department.name} has no quality of service {name!r}; {has}", "quality")
    if known.users and user not in known.users:
        raise Refused("denied", f"quality: {name!r} of {department.name} is not for {user}", "quality")
    return name, known


def refuse_over_limit(
    core: AdmissionCore,
    department: Department,
    whose: tuple[str, str],
    shape: Shape,
    units: tuple[int, bool],
    drafted: Sequence[Fact],
) -> None:
    """`whose`: user and quality; `units`: how many, and whether they are an array.
    Raises `Refused`."""
    count, is_array = units
    one = Much(1, shape.all, shape.nodes)
    for bound in bounds_on(department, *whose):
        exceeded = bound.exceeded(one)
        if exceeded is not None:
            _refuse_alone(bound, department.name, exceeded)
        most = bound.limits.jobs_submitted_max
        if most is not None:
            _refuse_too_many(core, bound.account, department.name, most, (count, is_array), drafted)


def _refuse_alone(bound: Bound, dept: str, exceeded: tuple[str, int, int]) -> None:
    """Rule 3."""
    limit, most, needed = exceeded
    field, noun = _ASKED.get(limit, (None, "running job"))
    name = _OF_DEPARTMENT.get(limit, limit) if bound.account == WHOLE else limit
    message = f"the job needs {needed} {noun}, and {_who(bound.account, dept)} may have {most} at once ({name})"
    raise Refused("limit", f"{field or 'job'}: {message}: it could never start", field)


def _refuse_too_many(
    core: AdmissionCore, account: Account, dept: str, most: int, units: tuple[int, bool], drafted: Sequence[Fact]
) -> None:
    """Rule 2."""
    count, is_array = units
    has = core.submitted(dept, account) + sum(
        len(fact.array) or 1
        for fact in drafted
        if isinstance(fact, f.JobSubmitted) and fact.dept == dept and account in accounts(fact.user, fact.quality)
    )
    if has + count > most:
        asked = f"{count} more" if count > 1 else "one more"
        message = f"{_who(account, dept)} may have {most} jobs waiting or running (jobs_submitted_max) and has {has}"
        raise Refused(
            "limit", f"{message}: {asked} would exceed it; wait, or cancel some", "array" if is_array else None
        )


def _who(account: Account, dept: str) -> str:
    if account == WHOLE:
        return f"department {dept}"
    if not account.quality:
        return f"{account.user} in {dept}"
    if not account.user:
        return f"quality {account.quality!r} of {dept}, all users together,"
    return f"{account.user} in quality {account.quality!r} of {dept}"
