"""What is agreed, asked directly: who is told of how many hosts on which notice, what is overdue, what claims become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, Department, Lending, WebPolicy
from schemas.credit import Credits, Earned
from schemas.custody import RULES, Custody
from schemas.reasons import Code
from services.provisioner.agreements import Agreements, Notice
from tests.unit.test_provisioner_core import Bench, cordon, occupy

HPC = Department(name="hpc", kind="batch", batch=BatchPolicy(), guarantee=4)
ART = Department(name="art", kind="batch", guarantee=3)
BIO = Department(name="bio", kind="batch", guarantee=5)
WEB, SHOP = (Department(name=name, kind="web", web=WebPolicy()) for name in ("web", "shop"))
LENT = (
    Lending(lender="hpc", borrower="bio", notice_s=600.0, deadline_s=100.0),
    Lending(lender="art", borrower="bio", notice_s=60.0),
)


def bench(*departments: Department, contracts: tuple[Lending, ...] = LENT, hosts: int = 12) -> Bench:
    """bio holds all hosts."""
    made = Bench(*(departments or (HPC, ART, BIO, WEB, SHOP)), hosts=hosts)
    config = made.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, lending=contracts)
    made.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    made.demand("bio", hosts)
    made.settle()
    assert made.held() == {"bio": hosts}
    return made


def agreed(made: Bench, now: float = 100.0, credits: Credits | None = None) -> Agreements:
    return Agreements(made.custody, credits or Credits(), now)


def told(made: Bench, hosts: int, name: str = "bio", **wanted: int) -> list[tuple[int, float]]:
    every = dict.fromkeys(("hpc", "art", "bio", "web", "shop"), 0) | {name: hosts} | wanted
    return [(one.hosts, one.seconds) for one in agreed(made).notices(name, hosts, every)]


# -------------------------------------------------------------------------------------------------------------------- notices


@pytest.mark.parametrize(
    ("hosts", "wanted", "expected"),
    [
        (8, {"hpc": 4}, [(8, 600.0)]),
        (9, {"art": 3}, [(9, 60.0)]),
        (11, {"web": 1}, [(11, 0.3)]),
        (9, {"web": 1, "shop": 2}, [(9, 0.3)]),  # on one notice together
        (5, {"hpc": 4, "art": 3}, [(9, 60.0), (5, 600.0)]),  # each for as many as it lacks, the shortest first
        (4, {"hpc": 4, "art": 3, "web": 1}, [(11, 0.3), (8, 60.0), (4, 600.0)]),
        (10, {"hpc": 4, "art": 3}, [(10, 60.0)]),  # as if it were the only one that is asked
        (9, {"hpc": 4, "art": 3}, [(9, 60.0)]),
        (8, {"hpc": 4, "art": 3}, [(9, 60.0), (8, 600.0)]),
        (8, {}, [(8, 60.0)]),  # nobody lacks any: the shortest of its lenders'
        (13, {}, [(13, 0.3)]),  # raised
        (12, {"hpc": 4}, []),  # as low already: between batch departments what was told stands
        (12, {}, []),
        (12, {"web": 1}, [(12, 0.3)]),
        (12, {"web": 0, "shop": 1}, [(12, 0.3)]),
    ],
)
def test_each_who_lacks_hosts_is_told_of_on_its_own_notice(
    hosts: int, wanted: dict[str, int], expected: list[tuple[int, float]]
) -> None:
    assert told(bench(), hosts, **wanted) == expected


def test_who_lacks_no_host_of_its_own_has_the_policys_notice() -> None:
    """The fifth is none of hpc's own, but those that it lacks beside are."""
    made = bench()
    assert told(made, 7, hpc=5) == [(7, 600.0)]
    for number in range(4):
        made.write("scheduler.bio", f.HostReleased(host=f"h{number}"))
        made.write("executor", f.HostCleared(host=f"h{number}"))
        made.write("provisioner", f.HostGranted(host=f"h{number}", dept="hpc"))
    assert told(made, 7, hpc=5) == [(7, 0.3)]


@pytest.mark.parametrize(
    ("released", "wanted", "expected"),
    [
        (1, {"web": 1}, [(8, 60.0)]),  # it is on its way to web
        (1, {"web": 2}, [(10, 0.3), (8, 60.0)]),  # and another one is asked for
        (2, {"web": 1}, [(8, 60.0)]),
    ],
)
def test_what_is_on_its_way_is_not_asked_for_again(
    released: int, wanted: dict[str, int], expected: list[tuple[int, float]]
) -> None:
    made = bench()
    for number in range(released):
        made.write("scheduler.bio", f.HostReleased(host=f"h{number}"))
    assert told(made, 8, **wanted, art=3) == expected


def test_a_cordoned_host_is_on_its_way_to_nobody() -> None:
    made = bench()
    cordon(made, "h11")
    assert told(made, 11, web=1) == [(11, 0.3)]


def test_without_contracts_there_is_one_notice_whoever_lacks_hosts() -> None:
    made = bench(contracts=())
    assert told(made, 5, hpc=4, web=3) == [(5, 0.3)]
    assert agreed(made).notices("bio", 5, {"bio": 5, "web": 7}) == [Notice(5, 0.3)]


def test_a_department_that_is_no_more_has_the_policys_notice() -> None:
    assert agreed(bench()).notices("gone", 0, {"gone": 0, "hpc": 4}) == [Notice(0, 0.3)]


def test_there_is_no_notice_without_a_configuration() -> None:
    with pytest.raises(ValueError, match="no notice without a configuration"):
        Agreements(Custody(), Credits(), 0.0).notices("hpc", 1, {})


# -------------------------------------------------------------------------------------------------------------------- reasons


def why(made: Bench, hosts: int, now: float = 100.0, **wanted: int) -> list[tuple[Code, Any] | None]:
    every = dict.fromkeys(("hpc", "art", "bio", "web", "shop"), 0) | {"bio": hosts} | wanted
    reasons = [one.reason for one in agreed(made, now).notices("bio", hosts, every)]
    return [(r.code, r.params.get("lender", r.params.get("department"))) if r is not None else None for r in reasons]


@pytest.mark.parametrize(
    ("hosts", "wanted", "expected"),
    [
        (8, {"hpc": 4}, [(Code.LENDING, "hpc")]),
        (11, {"web": 1}, [None]),
        (5, {"hpc": 4, "art": 3}, [(Code.LENDING, "art"), (Code.LENDING, "hpc")]),
        (4, {"hpc": 4, "art": 3, "web": 1}, [None, (Code.LENDING, "art"), (Code.LENDING, "hpc")]),
        (8, {}, [None]),
    ],
)
def test_a_contract_is_the_reason_where_its_lender_wants_hosts(
    hosts: int, wanted: dict[str, int], expected: list[Any]
) -> None:
    assert why(bench(), hosts, **wanted) == expected


def test_a_contract_whose_hours_are_over_is_the_reason_though_nobody_lacks_a_host() -> None:
    night = (Lending(lender="hpc", borrower="bio", windows=("daily 00:00-00:02",)), LENT[1])
    made = bench(contracts=night)
    assert why(made, 8, 110.0) == [None]
    assert why(made, 8, 121.0) == [(Code.LENDING, "hpc")]
    assert why(made, 8, 121.0, art=3) == [(Code.LENDING, "art")]
    assert why(made, 8, 121.0, web=1) == [None]


@pytest.mark.parametrize(
    ("department", "windows", "hosts", "expected"),
    [
        (BIO, ("daily 00:00-01:00 maximum 8",), 8, "bio"),  # its own
        (BIO, ("daily 00:00-01:00 maximum 8",), 7, None),  # is not why it is lower still
        (BIO, ("daily 02:00-03:00 maximum 8",), 8, None),
        (WEB, ("daily 00:00-01:00 guarantee 1",), 8, "web"),  # that of who lacks hosts
        (WEB, ("daily 00:00-01:00 guarantee 0",), 8, None),
    ],
)
def test_a_window_is_the_reason_where_it_bounds(
    department: Department, windows: tuple[str, ...], hosts: int, expected: str | None
) -> None:
    made = bench(HPC, ART, BIO, WEB, SHOP)
    config = made.custody.state.config
    assert config is not None
    changed = msgspec.structs.replace(department, windows=windows)
    departments = tuple(changed if d.name == changed.name else d for d in config.departments)
    config = msgspec.structs.replace(config, departments=departments)
    made.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    wanted = {"web": 12 - hosts} if department is WEB else {}
    assert why(made, hosts, **wanted) == [None if expected is None else (Code.WINDOW, expected)]


# --------------------------------------------------------------------------------------------------------------------- claims


def overdue(made: Bench, now: float) -> dict[str, int]:
    found = agreed(made, now)
    config = made.custody.state.config
    assert config is not None
    found.adjust([made.core._claim(department, now) for department in config.departments])
    return {name: hosts for name, hosts in found.overdue.items() if hosts}


@pytest.mark.parametrize(("demand", "expected"), [(0, {}), (2, {"bio": 2}), (4, {"bio": 4}), (9, {"bio": 4})])
def test_a_lender_wants_back_what_is_its_own_and_overdue(demand: int, expected: dict[str, int]) -> None:
    made = bench()
    occupy(made, *(f"h{n}" for n in range(12)), dept="bio")
    made.demand("hpc", demand)
    assert (overdue(made, 199.0), overdue(made, 200.0)) == ({}, expected)


def test_no_more_is_overdue_than_the_borrower_has_had_for_so_long() -> None:
    made = bench(contracts=(LENT[0], msgspec.structs.replace(LENT[1], deadline_s=100.0)))
    occupy(made, "h0", "h1", "h2", "h3", "h4", dept="bio")
    cordon(made, "h4")
    made.demand("hpc", 4)
    made.demand("art", 3)
    assert overdue(made, 200.0) == {"bio": 4}  # of both lenders together; the idle and the cordoned ones are not meant
    made.demand("art", 0)
    made.demand("hpc", 3)
    assert overdue(made, 200.0) == {"bio": 3}


def test_hosts_that_come_to_the_lender_anyway_are_not_wanted_back() -> None:
    made = bench()
    occupy(made, *(f"h{n}" for n in range(9)), dept="bio")
    made.demand("hpc", 4)
    for host in ("h9", "h10", "h11"):
        made.write("scheduler.bio", f.HostReleased(host=host))
    assert overdue(made, 200.0) == {"bio": 1}


def test_a_lender_has_no_more_back_than_its_maximum() -> None:
    made = bench(msgspec.structs.replace(HPC, guarantee=2, maximum=2), ART, BIO, WEB, SHOP)
    occupy(made, *(f"h{n}" for n in range(12)), dept="bio")
    made.demand("hpc", 4)
    assert overdue(made, 200.0) == {"bio": 2}


def test_a_contract_without_a_deadline_makes_nothing_overdue_and_the_next_deadline_is_waited_for() -> None:
    made = bench()
    occupy(made, *(f"h{n}" for n in range(12)), dept="bio")
    made.demand("art", 3)
    assert overdue(made, 500.0) == {}
    found = agreed(made, 150.0)
    config = made.custody.state.config
    assert config is not None
    before = found.until
    found.adjust([made.core._claim(department, 150.0) for department in config.departments])
    assert (before > 200.0, found.until) == (True, 200.0)


def test_claims_have_what_is_a_lenders_own_and_weigh_what_was_earned() -> None:
    made = bench()
    occupy(made, *(f"h{n}" for n in range(12)), dept="bio")
    made.demand("hpc", 1)
    config = made.custody.state.config
    assert config is not None
    claims = [made.core._claim(department, 200.0) for department in config.departments]
    credits = Credits(earned={"bio": Earned(hosts_s=1e9, at=200.0)})
    found = {c.name: c for c in agreed(made, 200.0, credits).adjust(claims)}
    assert {name: claim.own for name, claim in found.items()} == {"hpc": 4, "art": 3, "bio": 0, "web": 0, "shop": 0}
    assert {name: claim.weight for name, claim in found.items() if claim.weight != 1.0} == {"bio": 1.5}
    assert (found["bio"].occupied, found["hpc"].occupied) == (11, 0)
    everybody = bench(contracts=(Lending(lender="*", borrower="bio"),))
    assert {c.own for c in agreed(everybody).adjust(claims) if not c.web} == {4, 3, 5}
    free = bench(contracts=())
    assert agreed(free).adjust(claims) is claims
