"""Accepted leases that another configuration would not keep: what `config.apply` is refused for.  Pure.

Theory of operation
  Admission says yes to a lease by the configuration of that moment: an order that keeps its time, hosts that the department may
  hold, hosts that no other department may claim.  A configuration that takes one of these away breaks a promise.  The
  provisioner adopts configurations: it follows the leases (`note`), and names each that one would break (`concerned`).

Rules
  1. Concerned are local leases that have not ended, of departments that now have the order `leases`.
  2. Each is named once, with the first of these that is so: its department is gone; its order keeps no times (a lease that runs
     keeps its hosts: it is not concerned); at its time the leases have more hosts together than the department may then hold,
     or than are guaranteed to it, and had not before.
  3. Hosts that leases have together are counted as if no two shared one: that may name a lease that would still begin on time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig, Department
from services.domain.custody.custody import Custody
from services.domain.leases import certain, keeps_times, order_of

# Kinds that `note` folds.
KINDS: Final = dict.fromkeys(
    (f.JobSubmitted, f.LeaseExtended, f.JobCancelled, f.AttemptClosed, f.AttemptReported, f.DepartmentClosed)
)


class Lease(msgspec.Struct, kw_only=True):
    """An accepted lease with a time of its own, until it is final."""

    name: str
    dept: str
    user: str
    nodes: int
    start_at: float
    end_at: float


class Late(NamedTuple):
    """A lease that would not be kept; `why`: in a sentence's second half."""

    lease: Lease
    why: str


def note(leases: dict[str, Lease], custody: Custody, fact: f.Fact) -> None:
    """Fold a valid fact of `KINDS`, after custody has."""
    if isinstance(fact, f.JobSubmitted):
        if fact.lease is not None and fact.lease.local:
            start = fact.lease.start_at
            end = start + fact.walltime_s
            leases[fact.job] = Lease(
                name=fact.job, dept=fact.dept, user=fact.user, nodes=fact.nodes, start_at=start, end_at=end
            )
    elif isinstance(fact, f.LeaseExtended):
        if fact.job in leases:
            leases[fact.job].end_at = leases[fact.job].start_at + fact.walltime_s
    else:
        for name in [name for name in leases if _is_over(custody, name)]:
            del leases[name]


def _is_over(custody: Custody, name: str) -> bool:
    unit = custody.state.units.get(name)
    return unit is None or unit.state == "final"


def concerned(custody: Custody, leases: dict[str, Lease], new: CloudConfig, now: float) -> list[Late]:
    """Each lease that `new` would not keep as the configuration in force does, and why."""
    old = custody.state.config
    found: list[Late] = []
    for department in old.departments if old is not None else ():
        if keeps_times(department):
            mine = [x for x in leases.values() if x.dept == department.name and x.end_at > now]
            found += _broken(custody, department, new.department(department.name), mine)
    return found


def _broken(custody: Custody, old: Department, new: Department | None, leases: Sequence[Lease]) -> Iterator[Late]:
    """Rule 2."""
    for lease in leases:
        why = _why(old, new, leases, lease, runs=custody.state.units[lease.name].state == "open")
        if why:
            yield Late(lease, why)


def _why(old: Department, new: Department | None, leases: Sequence[Lease], lease: Lease, *, runs: bool) -> str:
    if new is None or new.kind != "batch":
        return f"{old.name} would be gone, and the lease with it"
    if runs:
        return ""
    if not keeps_times(new):
        return f'order = "{order_of(new)}" keeps no time for it: it would begin when there is room'
    return _short(old, new, sum(x.nodes for x in leases if x.start_at <= lease.start_at < x.end_at))


def _short(old: Department, new: Department, hosts: int) -> str:
    (guaranteed, most), (guarantees, maximum) = certain(old), certain(new)
    if maximum is not None and hosts > maximum and (most is None or hosts <= most):
        return f"{new.name} may then hold {maximum} hosts, and leases have {hosts} at that time"
    if guarantees < hosts <= guaranteed:
        return (
            f"{guarantees} hosts are then guaranteed to {new.name}, and leases have {hosts}: web may claim the others"
        )
    return ""
