"""What a rolling update will cost others, reported as it is granted.  Pure: from custody, at the moment of the request.

Theory of operation
  `max_surge` asks for instances beside those that are wanted, and a web department's demand goes before batch: where its own
  hosts have no room for them, and no host is idle, the provisioner takes hosts of batch, and the jobs on them end as their
  `on_reclaim` says.  Load and jobs change meanwhile: it is a warning of what is so now, no bound.

Rules
  1. The target is taken to be the number of instances present, less those that drain; at most that many more are started at
     once.
  2. They are placed on own hosts with free capacity first, then on idle hosts of any holder, then on hosts of batch departments
     beyond their guarantee: of those the number is reported.  Never more hosts than the department's `maximum`.
  3. With `surge = "idle"` nothing is preempted, so there is nothing to report.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas import facts as f
from schemas.config import WebPolicy
from schemas.size import Size
from schemas.units import count
from services.admission.core.admission import AdmissionCore
from services.domain.custody.state import Host


def warning(core: AdmissionCore, fact: f.ReleaseRequested) -> str:
    """What the surge takes from batch; empty if nothing."""
    department, hosts = core.department(fact.dept), core.custody.state.hosts.values()
    if department is None:
        return ""
    policy = department.web or WebPolicy()
    if policy.surge == "idle":
        return ""
    usable = [host for host in hosts if host.cordoned is None and host.state in ("free", "held")]
    own = [host for host in usable if host.dept == fact.dept]
    left = min(fact.max_surge, _wanted(core, fact.dept)) - sum(_places(host, policy) for host in own)
    most = len(usable) if department.maximum is None else department.maximum - len(own)
    idle = [host for host in usable if host.dept != fact.dept and not host.units]
    on_idle, left = _taken(idle, policy, left, most)
    on_busy, _ = _taken(_of_batch(core, usable), policy, left, most - on_idle)
    if not on_busy:
        return ""
    needs = count(on_idle + on_busy, "host")
    there = f"of which {on_idle} {'is' if on_idle == 1 else 'are'} idle" if on_idle else "and no host is idle"
    return (
        f"the update needs {needs} more for its max_surge, {there}: batch jobs on {count(on_busy, 'host')} will make way; "
        "with max_unavailable 1 and max_surge 0 it needs none"
    )


def _wanted(core: AdmissionCore, dept: str) -> int:
    """Rule 1."""
    units = (core.custody.state.units[name] for name in core.custody.index.open.get(dept, ()))
    return sum(1 for unit in units if unit.live and unit.drains_until is None)


def _places(host: Host, policy: WebPolicy) -> int:
    """Instances that fit beside what is there."""
    if host.exclusive:
        return 0
    return max(0, min(policy.instances_per_host - len(host.units), _copies(policy, host.free)))


def _copies(policy: WebPolicy, room: Size) -> int:
    copies = policy.instance.copies_in(room)
    return policy.instances_per_host if copies is None else copies


def _taken(hosts: Iterable[Host], policy: WebPolicy, left: int, most: int) -> tuple[int, int]:
    """How many of these hosts, emptied, are taken for `left` instances, and how many instances are left then."""
    count = 0
    for host in hosts:
        fits = min(policy.instances_per_host, _copies(policy, host.size))
        if left <= 0 or count >= most:
            break
        if fits:
            left, count = left - fits, count + 1
    return count, left


def _of_batch(core: AdmissionCore, usable: Iterable[Host]) -> list[Host]:
    """Hosts with jobs that may be taken (rule 2)."""
    found: list[Host] = []
    for department in core.custody.departments:
        if department.kind != "batch":
            continue
        busy = [host for host in usable if host.dept == department.name and host.units]
        found += busy[: max(0, core.custody.held(department.name) - department.guarantee)]
    return found
