"""Hosts that are taken from a department that has not given them back in time.

Rules
  1. A lowering whose time has passed and that is not met: the difference is seized, idle hosts first, then those whose
     instances all drain.  Never below a quota.
  2. No cordoned host is seized for another's claim.  A drained one that is still held one notice after its deadline is seized.
"""

from __future__ import annotations

from schemas import facts as f
from schemas import reasons as because
from services.domain.custody.custody import Custody
from services.domain.custody.rules import CORDONS_HOLD


def overdue(custody: Custody, name: str, now: float) -> list[f.HostSeized]:
    """Rule 1."""
    quota, held = custody.quota(name), custody.held(name)
    count = quota.overdue(held, now)  # no lowering goes below the quota
    if not count:
        return []
    hosts, beside = custody.state.hosts, dict.fromkeys(custody.cordoned(name))  # rule 2
    order = sorted(
        (n for n in custody.index.held[name] if n not in beside),
        key=lambda n: (
            _busy(custody, n),  # 1. those where no job would be hurt
            len(hosts[n].units),  # 2. idle ones, then those with the fewest live attempts
            _grace_s(custody, n),  # 3. those that are left soonest
            n,  # 4. unique: the name
        ),
    )
    reason = because.NoticeExpired(department=name, held=held, quota=quota.hosts)
    return [f.HostSeized(host=n, dept=name, reason=reason) for n in order[:count]]


def _grace_s(custody: Custody, host: str) -> float:
    """The longest that a job there has asked for."""
    units = custody.state.units
    return max((units[name].grace_s or 0.0 for name in custody.state.hosts[host].units), default=0.0)


def _busy(custody: Custody, host: str) -> int:
    """Live attempts there that do not drain: what drains has no new sessions, and its department has chosen it."""
    units = custody.state.units
    return sum(units[name].drains_until is None for name in custody.state.hosts[host].units)


def drained(custody: Custody) -> dict[str, float]:
    """Rule 2: drained host that is held -> when it is seized, if it is held still."""
    state = custody.state
    if not custody.index.apart or state.config is None or state.rules < CORDONS_HOLD:
        return {}
    found = {}
    for name in [n for d in custody.departments for n in custody.cordoned(d.name)]:
        until = state.hosts[name].drain_until
        if until is not None:
            found[name] = until + state.config.policy.notice_s
    return found


def overdue_drained(custody: Custody, now: float) -> list[f.HostSeized]:
    """Rule 2."""
    hosts = custody.state.hosts
    due = sorted(name for name, at in drained(custody).items() if at <= now)
    return [f.HostSeized(host=n, dept=hosts[n].dept or "", reason=because.HostDrained(host=n)) for n in due]
