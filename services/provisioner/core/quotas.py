"""Quotas that change, each with its notice and its reason.

Rules
  1. quota ≠ target: `quota.changed`, due one notice from now: the policy's, or that of the contract under which it gives back
     (`agreements`).  Of several notices each stands for as many hosts as are wanted on it.
  2. What a web department wants only if it is idle (`policies.idle`) is taken on IDLE_NOTICE_S: idle hosts go back at once on
     any notice, jobs end on the policy's alone.  A job that was placed meanwhile is seen long before, and the quota is raised
     again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.custody.state import Quota, essential
from services.provisioner.core.agreements import Notice
from services.provisioner.core.state import State
from services.provisioner.core.targets import Division

IDLE_NOTICE_S: Final = 600.0  # a provisioner that is started again is back long before, and sees what was placed


class Lowering(NamedTuple):
    """A level of a quota: down to `hosts` by then; `claimants`: who wants what is beyond."""

    hosts: int
    by: float
    reason: Reason
    claimants: tuple[str, ...]


def changes(
    custody: Custody, state: State, config: CloudConfig, division: Division, now: float
) -> list[f.QuotaChanged]:
    found = []
    for name, hosts in division.wanted.items():
        quota = custody.quota(name)
        if quota.hosts != hosts or quota.lowerings:
            steps = _steps(custody, config, division, name, hosts)
            told = [_lowering(custody, state, config, division.wanted, name, hosts, step, now) for step in steps]
            found += quota_facts(name, quota, hosts, custody.held(name), told)
    return found


def _steps(custody: Custody, config: CloudConfig, division: Division, name: str, hosts: int) -> list[Notice]:
    """Rule 1, and 2: the last step is announced for what is wanted only if idle."""
    firm, agreements = division.firm, division.agreements

    def notices(hosts: int) -> list[Notice]:
        return [Notice(hosts, config.policy.notice_s)] if agreements is None else agreements.notices(name, hosts, firm)

    if hosts >= firm[name]:
        return notices(hosts)
    steps = notices(firm[name]) if firm[name] < custody.held(name) else []
    return [*steps, Notice(hosts, config.policy.notice_s + IDLE_NOTICE_S)]


def _lowering(
    custody: Custody,
    state: State,
    config: CloudConfig,
    wanted: dict[str, int],
    name: str,
    hosts: int,
    step: Notice,
    now: float,
) -> Lowering:
    by = now + step.seconds
    if step.reason is not None:
        return Lowering(step.hosts, by, step.reason, step.claimants)
    lacking = [d for d in config.departments if d.name != name and wanted[d.name] > custody.held(d.name)]
    web = [d.name for d in lacking if d.kind == "web"]  # it comes first
    why = _why(config, name, hosts, web, held=custody.held(name), demand=state.demand(custody, name))
    falls = config.department(name) is not None and step.hosts < custody.held(name)
    return Lowering(step.hosts, by, why, tuple(web or [d.name for d in lacking]) if falls else ())


def _why(config: CloudConfig, name: str, hosts: int, web: list[str], *, held: int, demand: int) -> Reason:
    """`web`: departments of that kind which lack hosts."""
    department = config.department(name)
    if department is None:
        return because.DepartmentRemoved(department=name)
    if department.kind == "web":
        if hosts < min(held, demand) and web:
            return because.WebShare(departments=web, demand=demand, held=held, quota=hosts)
        return because.WebDemand(department=name, demand=demand, held=held)
    if hosts >= held:
        return because.IdleToBatch(department=name, held=held)
    if web:
        return because.WebDemand(departments=web, held=held)
    return because.BatchShare(department=name, held=held)


def quota_facts(name: str, quota: Quota, hosts: int, held: int, told: list[Lowering]) -> list[f.QuotaChanged]:
    """Rule 1: that the quota becomes `hosts`, and that each of `told` is due then at the latest.  A lowering keeps its deadline
    also where a shorter notice for fewer hosts comes later: the quota is raised to what is held, and all that are due are
    announced again, with their old deadlines."""
    if hosts == quota.hosts and all(
        any(n <= each.hosts and due <= each.by for n, due in quota.lowerings) for each in told
    ):
        return []
    if hosts > quota.hosts or told[0].hosts < quota.hosts:
        return [_changed(name, each) for each in told]
    known = {(each.hosts, each.by): each for each in told}
    return [
        _changed(name, told[0]._replace(hosts=held, claimants=())),
        *(
            _changed(name, known.get((n, by), told[-1])._replace(hosts=n, by=by))
            for n, by in essential([*quota.lowerings, *known])
        ),
    ]


def _changed(name: str, to: Lowering) -> f.QuotaChanged:
    return f.QuotaChanged(dept=name, hosts=to.hosts, by=to.by, claimants=to.claimants, reason=to.reason)
