"""Until when what is given back early earns: the notice that the fold of credits remembers, and when it forgets it."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Department, Lending
from schemas.custody import RULES
from tests.unit.test_provisioner_core import HPC, Bench

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


def adopt(made: Bench, *contracts: Lending) -> None:
    config = made.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, lending=contracts)
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
