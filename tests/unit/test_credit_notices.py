"""Until when what is given back early earns: the notice that the fold of credits remembers, and when it forgets it."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Department, Lending
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.domain.sharing.credit import BONUS_MAX, BONUS_MIN, FULL_S, Credits, Earned
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


def test_what_comes_back_when_it_is_due_earns_nothing_and_just_before_it_what_is_left(noticed: Bench) -> None:
    noticed.now = 699.5
    noticed.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert noticed.core._state.credits.earned["hpc"].hosts_s == 0.5
    noticed.now = 700.0
    noticed.write("scheduler.hpc", f.HostReleased(host="h1"))
    assert noticed.core._state.credits.earned["hpc"].at == 699.5


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


CONTRACTS = tuple(Lending(lender=a, borrower="hpc", notice_s=600.0, credit=c) for a, c in (("bio", 1.0), ("lab", 0.5)))
OWNERS = tuple(Department(name=name, kind="batch", guarantee=1) for name in ("bio", "lab"))


def borrowed(*borrowers: str) -> Bench:
    """Two hosts, one bio's and one the laboratory's; borrowers have as many each, until both owners want theirs."""
    made = Bench(*(Department(name=name, kind="batch") for name in borrowers), *OWNERS, hosts=2)
    adopt(made, *CONTRACTS)
    for names, hosts in ((borrowers, 2 // len(borrowers)), (("bio", "lab"), 1)):
        for name in names:
            made.demand(name, hosts)
        made.settle()
    assert made.core._state.credits.due["hpc"] == 700.0
    return made


def test_only_lenders_of_hosts_that_it_has_count() -> None:
    """The first one comes back while it has hosts of both, the second one when it has one of bio's alone."""
    made = borrowed("hpc")
    for host in ("h0", "h1"):
        made.write("scheduler.hpc", f.HostReleased(host=host))
    assert made.core._state.credits.earned["hpc"].hosts_s == 600.0 * 0.5 + 600.0 * 1.0


def test_whose_hosts_other_borrowers_have_does_not_count() -> None:
    """hpc has bio's host, sci the laboratory's."""
    made = borrowed("hpc", "sci")
    (host,) = made.custody.index.held["hpc"]
    made.write("scheduler.hpc", f.HostReleased(host=host))
    assert made.core._state.credits.earned["hpc"].hosts_s == 600.0


def test_a_weight_that_grows_by_just_the_least_that_counts_grows() -> None:
    earned = {"a": Earned(hosts_s=BONUS_MIN / BONUS_MAX * FULL_S, at=0.0), "b": Earned(hosts_s=7.0, at=0.0)}
    assert [Credits(earned=earned).bonus(name, 1, 0.0) for name in ("a", "b")] == [BONUS_MIN, 0.0]


def test_what_happens_to_hosts_before_there_is_a_configuration_earns_nothing() -> None:
    credits = Credits()
    credits.note(Custody(), f.HostLost(host="h0", reason="gone"), 0.0)
    assert credits == Credits()
