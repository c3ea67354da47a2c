"""Until when what is given back early earns: the notice that the fold of credits remembers, and when it forgets it."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Department, Lending
from schemas.custody import RULES
from tests.unit.test_provisioner_core import HPC, WEB, Bench

BIO = Department(name="bio", kind="batch", guarantee=2)


@pytest.fixture
def noticed() -> Bench:
    """hpc holds four hosts, and is to give two back within ten minutes."""
    made = Bench(HPC, BIO)
    adopt(made, Lending(lender="bio", borrower="hpc", notice_s=600.0, credit=1.0))
    made.demand("hpc", 4)
    made.settle()
    made.demand("bio", 2)
    made.settle()
    assert made.core._state.credits.due == {"hpc": 700.0}
    return made


def adopt(made: Bench, *contracts: Lending, departments: tuple[Department, ...] = ()) -> None:
    config = made.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, lending=contracts, departments=departments or config.departments)
    made.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))


def test_a_notice_that_is_met_by_losing_hosts_is_forgotten(noticed: Bench) -> None:
    noticed.write("executor", f.HostLost(host="h0", reason="gone"))
    assert noticed.core._state.credits.due == {"hpc": 700.0}
    noticed.write("executor", f.HostLost(host="h1", reason="gone"))
    assert noticed.core._state.credits.due == {}


def test_where_no_contract_earns_any_more_notices_are_forgotten_and_what_was_earned_is_not(noticed: Bench) -> None:
    noticed.write("scheduler.hpc", f.HostReleased(host="h0"))
    adopt(noticed)
    assert noticed.core._state.credits.due == {}
    assert noticed.core._state.credits.earned["hpc"].hosts_s == 600.0


def test_where_no_contract_earns_no_notice_is_remembered() -> None:
    made = Bench(HPC, BIO)
    adopt(made, Lending(lender="bio", borrower="hpc", notice_s=600.0))
    for name, hosts in (("hpc", 4), ("bio", 2)):
        made.demand(name, hosts)
        made.settle()
    assert made.custody.quota("hpc").next_due() == 700.0
    assert made.core._state.credits.due == {}


def test_what_comes_back_when_it_is_due_earns_nothing(noticed: Bench) -> None:
    noticed.now = 700.0
    noticed.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert noticed.core._state.credits.earned == {}


def test_who_gives_hosts_of_its_own_earns_nothing() -> None:
    made = Bench(HPC, WEB)
    adopt(made, Lending(lender="hpc", borrower="web", notice_s=600.0, credit=1.0))
    made.demand("hpc", 4)
    made.settle()
    made.demand("web", 1)
    made.settle()
    assert made.core._state.credits.due == {"hpc": 100.3}
    made.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert made.core._state.credits.earned == {}


def test_hosts_that_are_nobodys_do_not_count_among_lenders() -> None:
    """hpc has all four hosts when its maximum becomes one and bio's two: one is nobody's then."""
    made = Bench(HPC, BIO)
    made.demand("hpc", 4)
    made.settle()
    small, two = (msgspec.structs.replace(d, maximum=n) for d, n in ((HPC, 1), (BIO, 2)))
    adopt(made, Lending(lender="bio", borrower="hpc", notice_s=600.0, credit=1.0), departments=(small, two))
    made.demand("bio", 2)
    made.settle()
    due_s = made.core._state.credits.due["hpc"] - made.now
    made.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert made.core._state.credits.earned["hpc"].hosts_s == due_s > 0
