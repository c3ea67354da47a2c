"""Where each host is: whose it is, who holds it, since when, lent by whom to whom, and when it is due.  A pure picture of
custody and configuration.

Rules
  1. A host that its department holds is its own as long as that one holds no more than its own: those it has held longest.
     What it holds beyond is lent to it.  So a loan is as few hosts as it can be, and no host changes its owner because
     another department's moves; but for a batch department that lends its own and borrows others' for them (`sharing.loans`).
  2. Which lender such a host is of follows from the numbers (`sharing.loans`); among a borrower's hosts, lenders by name.
     Free and draining hosts belong to whose hosts are missing, by name.
  3. A host that does not count (absent, lost, cordoned, in quarantine) has no owner.
  4. A lent host is due when its department's notice says so, if one runs; else at its contract's deadline, if it has one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.config import CloudConfig
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.domain.sharing.lending import agreed, owned
from services.domain.sharing.loans import NOBODY, loans

PRESENT: Final = ("free", "held", "draining")


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` None: it has none.  `lent`: held by another department than its owner.  Times are UTC seconds; `due_at` None:
    when its owner wants it and it is idle, or at a notice."""

    host: str
    state: str
    owner: str | None
    holder: str | None
    since: float
    lent: bool = False
    due_at: float | None = None


def counts(host: Host, at: float) -> bool:
    """True if the host is one of those that departments divide: there, not cordoned, and if it is free not in quarantine."""
    return host.state in PRESENT and host.cordoned is None and (host.state == "held" or host.quarantine_until <= at)


def usable(custody: Custody, at: float) -> int:
    """Hosts that departments divide at `at`."""
    index, hosts = custody.index, custody.state.hosts
    count = sum(len(index.by_state[state]) for state in PRESENT)
    return count - sum(1 for name in index.apart if hosts[name].state in PRESENT and not counts(hosts[name], at))


def whereabouts(custody: Custody, at: float) -> list[Whereabouts]:
    """Every known host, by name."""
    config, hosts = custody.state.config, custody.state.hosts
    owners = {} if config is None else _owners(custody, config, at)
    return [_of(custody, config, hosts[name], owners.get(name), at) for name in sorted(hosts)]


def held_now(custody: Custody, at: float) -> dict[str, int]:
    """Department -> usable hosts that it holds."""
    hosts = custody.state.hosts
    return {
        dept: sum(1 for name in names if counts(hosts[name], at)) if custody.index.apart else len(names)
        for dept, names in custody.index.held.items()
    }


def _owners(custody: Custody, config: CloudConfig, at: float) -> dict[str, str]:
    hosts, count = custody.state.hosts, usable(custody, at)
    own = owned(config, at, count)
    held = held_now(custody, at)
    borrowed: dict[str, list[str]] = {}  # borrower -> a lender for each host
    for loan in loans(config, at, own, held, count):
        borrowed.setdefault(loan.borrower, []).extend([loan.lender] * loan.hosts)
    found: dict[str, str] = {}
    for dept, names in custody.index.held.items():
        mine = [hosts[name] for name in names if counts(hosts[name], at)]
        mine.sort(key=lambda h: (h.since, h.name))  # rule 1; unique last key: the name
        lenders = borrowed.get(dept, [])
        owners = [dept] * (len(mine) - len(lenders)) + lenders
        found |= {host.name: owner for host, owner in zip(mine, owners, strict=True) if owner != NOBODY}
    left = dict(own)
    for owner in found.values():
        left[owner] -= 1
    loose = sorted(n for s in ("free", "draining") for n in custody.index.by_state[s] if counts(hosts[n], at))
    missing = [dept for dept in sorted(left) for _ in range(left[dept])]
    return found | dict(zip(loose, missing, strict=False))


def _of(custody: Custody, config: CloudConfig | None, host: Host, owner: str | None, at: float) -> Whereabouts:
    holder = host.dept if host.state in ("held", "draining") else None
    lent = host.state == "held" and owner is not None and owner != holder
    due_at = None
    if lent and config is not None and owner is not None and holder is not None:
        contract, notice = agreed(config, owner, holder, at), custody.quota(holder).next_due()
        if notice < float("inf"):
            due_at = notice
        elif contract is not None and contract.deadline_s is not None:
            due_at = host.since + contract.deadline_s
    return Whereabouts(
        host=host.name, state=host.state, owner=owner, holder=holder, since=host.since, lent=lent, due_at=due_at
    )
