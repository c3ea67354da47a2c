"""What keeps a job waiting whatever hosts there are, with its numbers: another job, its array, a limit (`told`)."""

from __future__ import annotations

from typing import Final

from schemas.dimensions import DIMENSIONS
from schemas.units import count
from services.domain.text.params import Params


def dependency(p: Params) -> str | None:
    jobs = p.names("jobs") or p.names("job")
    held = ", which is held" if p.get("held") else ""
    return f"it waits for {p.get('condition') or 'the end'} of job {jobs}{held}" if jobs else None


def unblock_dependency(p: Params) -> str | None:
    if p.get("held"):
        return f"phoenix release {p['job']}"
    return "it starts when that job has begun" if p.get("condition") == "after" else None


def dependency_failed(p: Params) -> str | None:
    return f"job {p['job']} did not end as {p['condition']} asks: it can never start" if "job" in p else None


def array_throttle(p: Params) -> str | None:
    return (
        f"its array runs {count(p.number('running'), 'element')} at once, as many as it may" if "running" in p else None
    )


_LIMITS: Final = {
    "jobs_running_max": ("running job", "jobs_running_max"),
    **{dimension.limit: (dimension.singular, dimension.limit) for dimension in DIMENSIONS if dimension.limit},
    "hosts_max": ("host", "hosts_max"),
}


_OF_DEPARTMENT: Final = {dimension.limit: dimension.department_limit for dimension in DIMENSIONS if dimension.limit}


def limited(p: Params) -> str | None:
    """A limit of a user, a quality of service or the department that the job would exceed."""
    if "used" not in p or p.get("limit") not in _LIMITS:
        return None
    noun, name = _LIMITS[p["limit"]]
    who = f"user {p['user']}" if "user" in p else "" if "quality" in p else "the department"
    if "quality" in p:
        who = f"{who} in quality {p['quality']}" if who else f"quality {p['quality']}, everybody together,"
    name = _OF_DEPARTMENT[name] if who == "the department" else name
    has = f"{who} may have {count(p.number('most'), noun)} at once ({name}) and has {p.number('used')}"
    return f"{has}; it needs {p.number('needs')} more"
