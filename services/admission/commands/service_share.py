"""The service of a job, and whether its share could ever hold it (`order = "svmsched"`).

Rules
  1. A user of a department with several services names the job's service; with a single service that is not needed.
  2. Production that is not short and larger than its service's share of all hosts that the department may have is refused:
     it would wait for ever.  Every known host counts, as in `shape`.
  3. What the department's order would ignore is refused, not accepted.
"""

from __future__ import annotations

from schemas.config import BatchPolicy, Department
from schemas.dimensions import words
from schemas.requests import JobSubmit
from services.admission.core.feasibility import Capacity
from services.domain.refusal import Refused
from services.domain.shape import Shape
from services.domain.sharing.service_share import Shares, must_comply, percent


def service_of(
    request: JobSubmit,
    department: Department,
    capacity: Capacity,
    shape: Shape,
    walltime_s: float,
    best_effort: bool = False,
) -> str:
    """`best_effort`: its quality of service says so.  Raises `Refused`."""
    policy = department.batch or BatchPolicy()
    if policy.order != "svmsched":
        for field in ("service", "short"):
            if getattr(request, field):
                message = (
                    f'{field}: {department.name} does not share its hosts among services (order = "{policy.order}")'
                )
                raise Refused("invalid", message, field)
        return ""
    known = sorted(policy.services)
    if not request.service and len(known) != 1:
        raise Refused("invalid", f"service: name the service of the job: one of {', '.join(known)}", "service")
    service = request.service or known[0]
    if service not in policy.services:
        message = f"service: {department.name} has no service {service!r}; it has: {', '.join(known)}"
        raise Refused("unknown", message, "service")
    if must_comply(policy, walltime_s, short=request.short, best_effort=best_effort or request.best_effort):
        _refuse_larger_than_share(service, department, policy, capacity, shape)
    return service


def _refuse_larger_than_share(
    service: str,
    department: Department,
    policy: BatchPolicy,
    capacity: Capacity,
    shape: Shape,
) -> None:
    """Rule 2."""
    much = (capacity.smallest(shape.size) if shape.exclusive else shape.size).times(shape.nodes)
    whole = capacity.total(department.maximum)
    shares = Shares(policy, whole)
    if shares.complies(service, much):
        return
    need, granted = percent(shares.usage(much)), percent(shares.granted[service])
    message = f"service: the job needs {need:g} % of {words(whole)}, and the share of {service} is"
    rest = f"{granted:g} %: it could never start (one of at most {policy.short_s:g} s could)"
    raise Refused("invalid", f"{message} {rest}", "service")
