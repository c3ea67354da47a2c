"""What giving hosts back early earns: folded from the journal alone, by the provisioner whose division it moves and by the
services that show it.

Rules
  1. A borrower that releases a host while a notice for it runs has given it back early: by the seconds that were left of the
     earliest notice, times the `credit` of the contract.  Of several lenders whose hosts it has, the least that one of them
     agreed to counts.  What is seized, lost, or released without notice earns nothing.
  2. Earnings are host-seconds.  Half of them are forgotten in `HALF_LIFE_S`.
  3. A department's weight counts more by what it has earned: fully, half as much again (`BONUS_MAX`), at one hour of all its
     own hosts.  So no department's weight grows beyond that, and with the time it is what the file says.
  4. Weights change at moments, the multiples of `PERIOD_S`: between two of them time changes nothing.  Earnings so small that
     the weight would grow by less than `BONUS_MIN` do not count, so that it comes to rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig
from services.domain.custody.custody import Custody
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.lending import agreed, owned
from services.domain.sharing.loans import NOBODY, loans
from services.domain.windows import NEVER

HALF_LIFE_S: Final = 86_400.0  # who was kind yesterday is served first today, and not next week
FULL_S: Final = 3600.0  # of each own host
BONUS_MAX: Final = 0.5
BONUS_MIN: Final = 0.001
PERIOD_S: Final = 300.0  # as the period of a multi-factor queue

CONCERNS: Final = (f.ConfigAdopted, f.HostReleased, f.QuotaChanged, f.HostSeized, f.HostLost)


class Earned(msgspec.Struct, kw_only=True):
    hosts_s: float
    at: float

    def left(self, at: float) -> float:
        """Host-seconds that still count at `at` (rule 2)."""
        return float(self.hosts_s * 0.5 ** (max(0.0, at - self.at) / HALF_LIFE_S))


class Credits(msgspec.Struct, kw_only=True):
    """`due`: department under notice -> when the first of its hosts is due; `earned`: department -> what it has earned."""

    due: dict[str, float] = {}
    earned: dict[str, Earned] = {}

    def note(self, custody: Custody, fact: f.Fact, at: float) -> None:
        """Fold one fact of those kinds that is not void, after custody has."""
        config = custody.state.config
        if config is None or not any(contract.credit for contract in config.lending):
            if isinstance(fact, f.ConfigAdopted):  # nothing earns any more: what was earned is forgotten by and by
                self.due.clear()
            return
        if isinstance(fact, f.HostReleased):
            host = custody.state.hosts[fact.host]
            if host.dept is not None:
                self._released(custody, config, host.dept, at)
                self._notice(custody, host.dept)
        elif isinstance(fact, f.QuotaChanged | f.HostSeized):
            self._notice(custody, fact.dept)
        elif isinstance(fact, f.HostLost):
            for name in list(self.due):
                self._notice(custody, name)

    def _notice(self, custody: Custody, dept: str) -> None:
        due = custody.quota(dept).next_due()
        if due < NEVER:
            self.due[dept] = due
        else:
            self.due.pop(dept, None)

    def _released(self, custody: Custody, config: CloudConfig, dept: str, at: float) -> None:
        early_s = self.due.get(dept, 0.0) - at
        if early_s <= 0:
            return
        held = {name: len(hosts) for name, hosts in custody.index.held.items()}
        held[dept] += 1  # as it was before
        count = usable(custody, at)
        lenders = [
            loan.lender
            for loan in loans(config, at, owned(config, at, count), held, count)
            if loan.borrower == dept and loan.lender != NOBODY
        ]
        contracts = [agreed(config, lender, dept, at) for lender in lenders]
        rate = min((0.0 if contract is None else contract.credit for contract in contracts), default=0.0)
        if rate:
            before = self.earned[dept].left(at) if dept in self.earned else 0.0
            self.earned[dept] = Earned(hosts_s=before + early_s * rate, at=at)

    def bonus(self, dept: str, own: int, now: float) -> float:
        """By how much more the department's weight counts at `now`: from 0 to `BONUS_MAX`."""
        earned = self.earned.get(dept)
        if earned is None:
            return 0.0
        found = BONUS_MAX * min(1.0, earned.left(now // PERIOD_S * PERIOD_S) / (max(1, own) * FULL_S))
        return found if found >= BONUS_MIN else 0.0

    def next_moment(self, own: Mapping[str, int], now: float) -> float:
        """When weights next change; `NEVER` if nothing is earned that counts."""
        if not any(self.bonus(name, own.get(name, 0), now) for name in self.earned):
            return NEVER
        return (now // PERIOD_S + 1) * PERIOD_S
