"""How long a job has from SIGTERM to SIGKILL, and when its host is left then.  One answer for its guest, the executor that ends
its VM, the scheduler that chooses victims, and all who report what that costs a claim.

Theory of operation
  A claim is honoured whatever a job asked for: its host is given up when the notice says so, and granted when it is clear.  So
  a grace never postpones the giving up.  It postpones the clearing, as saving a VM does (`domain.saving`): by the grace at
  most, and by less where the job is done sooner.

Rules
  1. A job's own grace (`--grace`) holds, also a shorter one; else the longest that a contract grants its department as a
     borrower, else `policy.grace_s`.
  2. It may ask for `grace_max_s` of its department; where that is not set, for what it has anyway.  So no department waits
     longer for a host than before, until that is configured.  What was granted at the door stays, whatever is configured then.
  3. The guest counts from the moment when it sends the signal.  So that a job has all that it asked for, its VM is ended hard
     `HEARD_S` after its grace: for the news to come to it, and its last words from it.  One that asks for no more than its
     department has has no such time on top: there the host is worth more than the last milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from schemas import reasons as because
from schemas.config import CloudConfig, Policy
from schemas.ids import sort_key
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.domain.sharing import lending

HEARD_S: Final = 1.0  # rule 3: a guest asks once a second, and a busy machine ends a VM within half of that


class Leaver(NamedTuple):
    """A job that was asked to end, and the host that waits for it; it is clear `by` then at the latest (UTC seconds)."""

    by: float
    job: str
    host: str
    grace_s: float


def leaves_s(config: CloudConfig | None, department: str, own_s: float | None) -> float:
    """How long a host waits at most for a job of `department` with this wish of its own, from the moment when it is given up;
    where the job is to be saved, `domain.saving` says it."""
    usual_s = Policy().grace_s if config is None else lending.grace_s(config, department)
    if own_s is None:
        return usual_s
    return own_s + HEARD_S if own_s > usual_s else own_s


def of_unit(custody: Custody, unit: Unit) -> float:
    """The same of a unit."""
    return leaves_s(custody.state.config, unit.dept, unit.grace_s)


def late_s(custody: Custody, unit: Unit) -> float:
    """How much longer its host waits for the unit than for others of its department."""
    return of_unit(custody, unit) - leaves_s(custody.state.config, unit.dept, None)


def most_s(config: CloudConfig, department: str) -> float:
    """The longest that a job of `department` may ask for (rule 2)."""
    known = config.department(department)
    most = known.batch.grace_max_s if known is not None and known.batch is not None else None
    return lending.grace_s(config, department) if most is None else most


def longest_s(config: CloudConfig | None, department: str) -> float:
    """How long a host may be waited for where jobs of `department` ask for all that they may; 0 if they may ask for nothing."""
    known = config.department(department) if config is not None else None
    most = known.batch.grace_max_s if known is not None and known.batch is not None else None
    return leaves_s(config, department, most) if most else 0.0


def leavers(custody: Custody) -> list[Leaver]:
    """Jobs with a wish of their own on hosts that are being given up, one for each host: who leaves it last; soonest first."""
    state, found = custody.state, []
    for name in custody.index.by_state["draining"]:
        host = state.hosts[name]
        units = [state.units[state.vms[key].unit] for key in host.vms]
        last = max(
            (unit for unit in units if unit.grace_s is not None),
            key=lambda unit: (unit.grace_s, sort_key(unit.id)),  # unique: the unit
            default=None,
        )
        if last is not None and last.grace_s is not None:
            found.append(Leaver(host.since + of_unit(custody, last), last.id, name, last.grace_s))
    return sorted(found, key=lambda one: (one.by, one.host))


def waited_for(custody: Custody, hosts: int) -> list[Leaver]:
    """For which jobs a department waits that lacks `hosts` hosts: it has them when the last one has left.  Of the hosts on
    their way those come first that are clear at once."""
    found = leavers(custody)
    return found[: max(0, hosts - (len(custody.index.by_state["draining"]) - len(found)))]


def told(leaving: Sequence[Leaver], now: float) -> list[Reason]:
    """By when these hosts are clear, and who has until then; nothing if there are none."""
    if not leaving:
        return []
    jobs = list(dict.fromkeys(one.job for one in leaving))
    in_s = round(max(0.0, leaving[-1].by - now), 3)
    return [because.HostsLeft(hosts=len(leaving), jobs=jobs, in_s=in_s)]
