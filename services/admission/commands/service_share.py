"""The service of a job, and whether its share could ever hold it (`order = "svmsched"`).

Rules
  1. Whoever shares hosts says whose a job is; with a single service nobody has to.
  2. Production that is not short and larger than its service's share of all hosts that the department may have is refused:
     it would wait for ever.  Every known host counts, as in `shape`.
  3. What the department's order would ignore is refused, not accepted.
"""

from __future__ import annotations

from schemas.config import BatchPolicy, Department
from schemas.requests import JobSubmit
from services.admission.core.feasibility import Capacity
from services.domain.sharing.service_share import Shares, must_comply, percent
from services.runtime.edge import Refused


def service_of(
    request: JobSubmit,
    department: Department,
    capacity: Capacity,
    shape: tuple[int, int, int],
    walltime_s: float,
    best_effort: bool = False,
) -> str:
    """`shape`: nodes, and cores and MiB on each; `best_effort`: its quality of service says so.  Raises `Refused`."""
    policy = department.batch or BatchPolicy()
    if policy.order != "svmsched":
        for field in ("service", "short"):
            if getattr(request, field):
                told = f'{field}: {department.name} does not share its hosts among services (order = "{policy.order}")'
                raise Refused("invalid", told, field)
        return ""
    known = sorted(policy.services)
    if not request.service and len(known) != 1:
        raise Refused("invalid", f"service: whose job is it?  One of {', '.join(known)}", "service")
    service = request.service or known[0]
    if service not in policy.services:
        told = f"service: {department.name} has no service {service!r}; it has: {', '.join(known)}"
        raise Refused("unknown", told, "service")
    if must_comply(policy, walltime_s, short=request.short, best_effort=best_effort or request.best_effort):
        _refuse_larger_than_share(service, department, policy, capacity, shape, exclusive=request.exclusive)
    return service


def _refuse_larger_than_share(
    service: str,
    department: Department,
    policy: BatchPolicy,
    capacity: Capacity,
    shape: tuple[int, int, int],
    *,
    exclusive: bool,
) -> None:
    """Rule 2."""
    nodes, cores, memory_mb = shape
    if exclusive:
        cores, memory_mb = capacity.smallest(cores, memory_mb)
    all_cores, all_mb = capacity.total(department.maximum)
    shares = Shares(policy, all_cores, all_mb)
    if shares.complies(service, nodes * cores, nodes * memory_mb):
        return
    need, granted = percent(shares.usage(nodes * cores, nodes * memory_mb)), percent(shares.granted[service])
    told = f"service: the job needs {need:g} % of {all_cores} cores and {all_mb} MiB, and the share of {service} is"
    rest = f"{granted:g} %: it could never start (one of at most {policy.short_s:g} s could)"
    raise Refused("invalid", f"{told} {rest}", "service")
