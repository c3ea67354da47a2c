"""What departments have agreed on and what is lent at the moment, as JSON: `phoenix lending`.

Rules
  1. A window opens and closes by the clock, so pictures are of the caller's time, not of the last fact's.
  2. Everything but what was earned follows from custody and configuration (`sharing.lending`, `loans`, `host_ownership`).
"""

from __future__ import annotations

from typing import Any

from schemas.config import CloudConfig, Lending
from services.domain.custody.custody import Custody
from services.domain.sharing import lending
from services.domain.sharing.credit import Credits
from services.domain.sharing.host_ownership import Whereabouts, held_now, usable, whereabouts
from services.domain.sharing.loans import Loan, loans
from services.domain.windows import NEVER
from services.monitor.views.times import iso


def picture(custody: Custody, credits: Credits, at: float) -> dict[str, Any]:
    """Departments with their terms of now, contracts in the order of the file, and loans."""
    config = custody.state.config
    if config is None:
        return {"at": iso(at), "departments": [], "contracts": [], "loans": [], "changes_at": None}
    count = usable(custody, at)
    own, held = lending.owned(config, at, count), held_now(custody, at)
    lent = loans(config, at, own, held, count)
    until = lending.next_change(config, at)
    return {
        "at": iso(at),
        "changes_at": iso(None if until == NEVER else until),
        "departments": [_department(config, credits, d.name, own, held, lent, at) for d in config.departments],
        "contracts": [_contract(config, contract, lent, at) for contract in config.lending],
        "loans": [loan._asdict() for loan in lent],
    }


def _department(
    config: CloudConfig,
    credits: Credits,
    name: str,
    own: dict[str, int],
    held: dict[str, int],
    lent: list[Loan],
    at: float,
) -> dict[str, Any]:
    terms = lending.terms(config, name, at)
    earned = credits.earned.get(name)
    return {
        "department": name,
        "guarantee": terms.guarantee,
        "maximum": terms.maximum,
        "window": terms.window or None,
        "until": iso(None if terms.until == NEVER else terms.until),
        "own": own.get(name, 0),
        "held": held.get(name, 0),
        "lent": sum(loan.hosts for loan in lent if loan.lender == name),
        "borrowed": sum(loan.hosts for loan in lent if loan.borrower == name),
        "grace_s": terms.grace_s,
        "earned_host_s": round(earned.left(at), 3) if earned is not None else 0.0,
        "bonus": round(credits.bonus(name, own.get(name, 0), at), 6) if config.lending else 0.0,
    }


def _contract(config: CloudConfig, contract: Lending, lent: list[Loan], at: float) -> dict[str, Any]:
    mine = [loan for loan in lent if lending.agreed(config, loan.lender, loan.borrower, at) is contract]
    return {
        "lender": contract.lender,
        "borrower": contract.borrower,
        "holds": lending.holds(contract, at),
        "hosts": contract.hosts,
        "lent": sum(loan.hosts for loan in mine),
        "over": sum(loan.over for loan in mine),
        "notice_s": config.policy.notice_s if contract.notice_s is None else contract.notice_s,
        "grace_s": config.policy.grace_s if contract.grace_s is None else contract.grace_s,
        "deadline_s": contract.deadline_s,
        "credit": contract.credit,
        "windows": list(contract.windows),
        "windows_zone": contract.windows_zone,
    }


def where(custody: Custody, at: float) -> dict[str, Whereabouts]:
    """Host -> where it is."""
    return {found.host: found for found in whereabouts(custody, at)}
