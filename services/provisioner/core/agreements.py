"""What is agreed at one moment, for the targets: own hosts, limits of loans, loans that are due, what early returns earned.

Rebuilt with the targets, and as good as they are until `until`.  Without contracts and windows it changes nothing.

Rules
  1. A lender's own hosts come back before weights count (`Claim.own`); what a borrower holds beyond its contract's `deadline_s`
     is not counted as occupied, as far as the lender lacks hosts of its own that it wants and none are on their way: hosts in
     no department loses hosts for those.
  2. Who must give hosts back has the notice of those who lack hosts: of the pair's contract, where a lender wants its own back,
     else the policy's; each for as many as it lacks, the shortest first.  What is free or draining is on its way to a
     department, in the order of grants, and is not asked for again.  Of several borrowers each is asked as if it were the only
     one: who claims does not wait for what another one may give.  If none lacks any (a window or a contract has ended): that of
     its lenders.  Where the quota is as low already, only web says it again: on its notice, if the earlier one ends later.
  3. A weight counts more by what early returns have earned (`sharing.credit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from schemas import reasons as because
from schemas.config import CloudConfig
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.sharing import lending
from services.domain.sharing.credit import Credits
from services.domain.sharing.host_ownership import held_now, usable
from services.domain.sharing.loans import NOBODY, Loan, limits, loans
from services.domain.windows import NEVER
from services.provisioner.core.grants import grants
from services.provisioner.core.policies.contracts import targets_within
from services.provisioner.core.policies.phoenix import Claim, targets


class Notice(NamedTuple):
    """Down to `hosts`, in this many seconds from now.  `reason` None: nothing agreed says why; `claimants`: who wants them."""

    hosts: int
    seconds: float
    reason: Reason | None = None
    claimants: tuple[str, ...] = ()


class Agreements:
    """Of the configuration in `custody`, at `now`."""

    def __init__(self, custody: Custody, credits: Credits, now: float) -> None:
        self.custody, self.credits, self.now = custody, credits, now
        self.until = NEVER  # when something that is agreed next changes by time alone
        self.usable = usable(custody, now)
        self.own: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.loans: list[Loan] = []
        self.overdue: dict[str, int] = {}  # borrower -> occupied hosts that its lenders want back now
        config = custody.state.config
        if config is None:
            return
        self.until = lending.next_change(config, now)
        if config.lending:
            self.own = lending.owned(config, now, self.usable)
            self.held = held_now(custody, now)
            self.loans = loans(config, now, self.own, self.held, self.usable)
            self.until = min(self.until, credits.next_moment(self.own, now))

    # -------------------------------------------------------------------------------------------------------- targets

    def adjust(self, claims: list[Claim]) -> list[Claim]:
        """The claims as contracts have it (rules 1 and 3)."""
        config = self.custody.state.config
        if config is None or not config.lending:
            return claims
        lenders = [c.name for c in claims if any(k.lender in (lending.ANY, c.name) for k in config.lending)]
        self._note_overdue(config, claims)
        return [
            claim
            if claim.web
            else msgspec.structs.replace(
                claim,
                own=self.own[claim.name] if claim.name in lenders else 0,
                occupied=claim.occupied - self.overdue.get(claim.name, 0),
                weight=claim.weight * (1.0 + self.credits.bonus(claim.name, self.own[claim.name], self.now)),
            )
            for claim in claims
        ]

    def divide(self, claims: list[Claim], first: str) -> dict[str, int]:
        """The targets, within contracts."""
        config = self.custody.state.config
        if config is None or not config.lending:
            return targets(claims, self.usable, first)
        return targets_within(claims, self.usable, first, self.own, limits(config, self.now))

    def _note_overdue(self, config: CloudConfig, claims: list[Claim]) -> None:
        """Rule 1: `overdue`, and when the next loan comes to its deadline."""
        batch = {c.name: c for c in claims if not c.web}
        moving = self.usable - sum(self.held.values())
        for name in sorted(batch):
            claim = batch[name]
            need = min(self.own[name], claim.demand, claim.maximum) - claim.held
            coming = max(0, min(need, moving))
            need, moving = need - coming, moving - coming
            for loan in self.loans:
                contract = lending.agreed(config, name, loan.borrower, self.now)
                if loan.lender != name or loan.borrower not in batch:
                    continue
                if contract is None or contract.deadline_s is None:
                    continue
                taken = self.overdue.get(loan.borrower, 0)
                old = self._older_than(loan.borrower, contract.deadline_s) - taken
                more = max(0, min(need, loan.hosts, old))
                self.overdue[loan.borrower] = taken + more
                need -= more

    def _older_than(self, borrower: str, deadline_s: float) -> int:
        """The occupied hosts that `borrower` has had for so long; the next one to be so old sets `until`."""
        hosts, count = self.custody.state.hosts, 0
        for name in self.custody.index.occupied.get(borrower, ()):
            due = hosts[name].since + deadline_s
            if hosts[name].cordoned is None and due <= self.now:
                count += 1
            elif due > self.now:
                self.until = min(self.until, due)
        return count

    # --------------------------------------------------------------------------------------------------------- notice

    def notices(self, name: str, hosts: int, wanted: Mapping[str, int]) -> list[Notice]:
        """The notices to department `name`, whose quota is to be `hosts`, the shortest first; the last one says `hosts`.
        If it is that already: what web lacks of it by now, perhaps nothing.  `wanted`: the targets."""
        config = self.custody.state.config
        if config is None:
            raise ValueError("there is no notice without a configuration")
        policy_s = config.policy.notice_s
        if hosts > self.custody.quota(name).hosts or config.department(name) is None:
            return [Notice(hosts, policy_s)]
        short = [d.name for d in config.departments if d.name != name and self._lacks(d.name, wanted)]
        lenders = [loan.lender for loan in self.loans if loan.borrower == name and loan.lender != NOBODY]
        if not config.lending:
            return [self._for(config, name, hosts, Notice(hosts, policy_s), short, lenders)]
        wants = {one: self._notice_of(config, one, name) for one in short}
        last_s = min(wants.values(), default=NEVER)
        if not wants:
            last_s = min((lending.notice_s(config, one, name, self.now) for one in lenders), default=policy_s)
        found, level, asking = [], self.custody.held(name), list[str]()
        lacking = self._lacking(config, wanted)
        if hosts == self.custody.quota(name).hosts:  # between batch departments a notice stands
            lacking = {d.name: lacking[d.name] for d in config.departments if d.kind == "web" and d.name in wants}
            if not any(lacking.values()):
                return []
        for one in sorted((n for n in wants if lacking.get(n)), key=lambda n: (wants[n], n)):  # unique last key: name
            if wants[one] != last_s and asking:
                found.append(self._for(config, name, hosts, Notice(level, last_s), asking, lenders))
                asking = []
            level, last_s = level - lacking[one], wants[one]
            asking.append(one)
            if level <= hosts:
                break
        if hosts == self.custody.quota(name).hosts:
            hosts = max(hosts, level)
        return [*found, self._for(config, name, hosts, Notice(hosts, last_s), asking or short, lenders)]

    def _notice_of(self, config: CloudConfig, claimant: str, name: str) -> float:
        """How long before `claimant` has a host of `name`'s that one gets notice."""
        if self.held.get(claimant, 0) < self.own[claimant]:
            return lending.notice_s(config, claimant, name, self.now)
        return config.policy.notice_s

    def _lacking(self, config: CloudConfig, wanted: Mapping[str, int]) -> dict[str, int]:
        """Department -> hosts that it lacks beside what is on its way to it, which those have first that are granted first."""
        held = {d.name: self.custody.held(d.name) for d in config.departments}
        beside = sum(
            len(self.custody.cordoned(name)) for name in held
        )  # they count in what is wanted, and serve no other
        promised = sum(wanted.values()) - beside
        coming = max(0, min(self.usable, promised) - sum(self.held.values()))  # no contract keeps these free
        served = grants(config, held, wanted, coming, self.now)
        return {name: max(0, wanted.get(name, 0) - held[name]) - hosts for name, hosts in served.items()}

    def _lacks(self, name: str, wanted: Mapping[str, int]) -> bool:
        return wanted.get(name, 0) > self.custody.held(name)

    def _for(
        self, config: CloudConfig, name: str, hosts: int, notice: Notice, short: list[str], lenders: list[str]
    ) -> Notice:
        """The notice, with the window or the contract behind a lower quota, if one is, and for whom it is then."""
        for one in (name, *short):
            terms = lending.terms(config, one, self.now)
            bound = hosts == terms.maximum if one == name else self.custody.held(one) < terms.guarantee
            if terms.window and bound:
                window = because.Window(department=one, window=terms.window)
                return notice._replace(reason=window, claimants=tuple(short))
        wants = next((one for one in short if one in lenders), "")
        over = next((loan.lender for loan in self.loans if loan.borrower == name and loan.over), "")
        lender = wants or ("" if short else over)
        if not lender or lending.agreed(config, lender, name, self.now) is None:
            return notice
        notice_s = lending.notice_s(config, lender, name, self.now)
        agreed = because.Lending(lender=lender, borrower=name, notice_s=notice_s)
        return notice._replace(reason=agreed, claimants=(lender,))
