"""Which contracts keep hosts from a department that wants more than it may keep: for `phoenix why` and `phoenix departments`.

The provisioner's rules (`services.provisioner.core.policies.contracts`), told.

Rules
  1. It is reported only where it binds: were one host more the department's, no flow within the contracts would give all what
     it uses.  Then each lender that has hosts of its own left has lent it all that it lends.  Else something other is short.
  2. From a batch department is withheld what none uses; from a web department, which goes before batch, also what batch
     departments use beyond their guarantees, of lenders whose contract bounds it.
"""

from __future__ import annotations

import msgspec

from schemas.config import CloudConfig, Department
from services.domain.custody.custody import Custody
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.lending import agreed, bounds, holds, owned
from services.domain.sharing.loans import fit, kept_from_web, limits


class Withheld(msgspec.Struct, frozen=True):
    """`lender` lends the department `most` of its own hosts, and has `hosts` that it could have else; `closed`: since it is not
    one of their contract's hours."""

    lender: str
    hosts: int
    most: int
    closed: bool

    @property
    def text(self) -> str:
        """As a parameter of a reason has it."""
        return f"{self.lender}:{self.hosts}:{self.most}:{int(self.closed)}"


def withheld(custody: Custody, name: str, at: float) -> tuple[Withheld, ...]:
    """By lender; empty if no contract forbids that `name` has a host more at `at`, or if it has what it wants."""
    config = custody.state.config
    if config is None or not config.lending:
        return ()
    known = config.department(name)
    if known is None:
        return ()
    wanted = _wanted(custody, known, at)
    if _quota(custody, name) >= wanted:
        return ()
    count = usable(custody, at)
    own, most = owned(config, at, count), limits(config, at)
    uses, kept = {}, {}  # what each has; and of that, what it has by contracts
    for other in config.departments:
        level = _quota(custody, other.name)
        if other.kind == "batch" and known.kind == "web":
            demand, mine = _wanted(custody, other, at), own[other.name]
            level = min(bounds(other, at)[0], demand, mine)
            wants = {d.name: _wanted(custody, d, at) for d in config.departments if d.kind == "web"}
            beside = min(kept_from_web(other.name, mine, wants, most), demand)
            level, kept[other.name] = max(level, beside), max(0, beside - level)
        elif other.name != name:
            level = min(level, _wanted(custody, other, at))
        uses[other.name] = level
    uses[name] += 1
    web = [d.name for d in config.departments if d.kind == "web"]
    _, left, unmet = fit(uses, own, count, most, web)
    if not unmet:
        return ()
    bound = [(lender, hosts) for lender in sorted(own) if (hosts := left[lender] + kept.get(lender, 0)) > 0]
    return tuple(
        Withheld(lender, hosts, most(lender, name), _closed(config, lender, name, at))
        for lender, hosts in bound
        if most(lender, name) < own[lender]
    )


def _closed(config: CloudConfig, lender: str, borrower: str, at: float) -> bool:
    contract = agreed(config, lender, borrower, at)
    return contract is not None and not holds(contract, at)


def _wanted(custody: Custody, department: Department, at: float) -> int:
    """Hosts that it demands and may have by its maximum, beside cordoned ones that it uses."""
    hosts, name = custody.state.hosts, department.name
    used = sum(1 for host in custody.cordoned(name) if hosts[host].units)
    demand, maximum = custody.state.demands.get(name, 0), bounds(department, at)[1]
    return max(0, (demand if maximum is None else min(demand, maximum)) - used)


def _quota(custody: Custody, name: str) -> int:
    return max(0, custody.quota(name).hosts - len(custody.cordoned(name)))
