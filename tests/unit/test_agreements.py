"""What is agreed, asked directly: who is told of how many hosts on which notice, what is overdue, what claims become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, Department, Lending, WebPolicy
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.domain.sharing.credit import Credits, Earned
from services.provisioner.core.agreements import Agreements, Notice
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


def hand(made: Bench, dept: str, *hosts: str, holder: str = "bio") -> None:
    for host in hosts:
        made.write(f"scheduler.{holder}", f.HostReleased(host=host))
        made.write("executor", f.HostCleared(host=host))
        made.write("provisioner", f.HostGranted(host=host, dept=dept))


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
    hand(made, "hpc", "h0", "h1", "h2", "h3")
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


def test_a_cordoned_host_of_the_borrower_is_none_that_others_want() -> None:
    """What is wanted counts it, and nothing else is on its way to web."""
    made = bench()
    cordon(made, "h11")
    made.write("scheduler.bio", f.HostReleased(host="h0"))
    assert told(made, 7, web=1, art=3) == [(10, 0.3), (7, 60.0)]


def test_where_all_that_others_lack_is_on_its_way_the_shortest_of_their_notices_is_given() -> None:
    made = bench()
    for number in range(4):
        made.write("scheduler.bio", f.HostReleased(host=f"h{number}"))
    assert told(made, 8, hpc=2, art=2) == [(8, 60.0)]
    assert why(made, 8, hpc=2, art=2) == [(because.Lending, "art")]


def test_what_the_department_lacks_itself_and_whom_nobody_names_lack_no_hosts_of_it() -> None:
    made = bench()
    for number in range(2):
        made.write("scheduler.bio", f.HostReleased(host=f"h{number}"))
    assert told(made, 11) == [(11, 60.0)]
    assert [one.seconds for one in agreed(made).notices("bio", 8, {"bio": 8})] == [60.0]


def test_web_whose_quota_is_as_high_already_is_told_nothing_of_what_it_lacks_itself() -> None:
    made = bench()
    made.write("provisioner", f.QuotaChanged(dept="web", hosts=1, by=100.0))
    assert told(made, 1, "web", bio=12) == []


def test_the_notice_is_that_of_its_own_lenders_and_what_nobody_owns_has_none() -> None:
    made = bench(contracts=(*LENT, Lending(lender="hpc", borrower="web", notice_s=1.0)), hosts=13)
    tight = tuple(msgspec.structs.replace(d, maximum=d.guarantee) for d in (HPC, ART, BIO))
    config = made.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, departments=(*tight, WEB, SHOP))
    made.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    hand(made, "web", "h0")
    assert {loan[:3] for loan in agreed(made).loans} >= {("hpc", "web", 1), ("", "bio", 1)}
    assert told(made, 8) == [(8, 60.0)]


def test_who_lends_to_others_only_gives_no_notice() -> None:
    made = bench(contracts=(Lending(lender="hpc", borrower="bio", notice_s=1.0), LENT[1]))
    hand(made, "web", "h0", "h1", "h2", "h3")
    assert [loan[:2] for loan in agreed(made).loans] == [("art", "bio"), ("hpc", "web")]
    assert told(made, 7) == [(7, 60.0)]


def test_who_has_none_lacks_the_only_one_of_its_own() -> None:
    made = bench(HPC, msgspec.structs.replace(ART, guarantee=1), msgspec.structs.replace(BIO, guarantee=7), WEB, SHOP)
    assert told(made, 11, art=1) == [(11, 60.0)]


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


def why(made: Bench, hosts: int, now: float = 100.0, **wanted: int) -> list[tuple[because.Kind, Any] | None]:
    every = dict.fromkeys(("hpc", "art", "bio", "web", "shop"), 0) | {"bio": hosts} | wanted
    reasons = [one.reason for one in agreed(made, now).notices("bio", hosts, every)]
    return [
        (type(r), because.fields(r).get("lender", because.fields(r).get("department"))) if r is not None else None
        for r in reasons
    ]


@pytest.mark.parametrize(
    ("hosts", "wanted", "expected"),
    [
        (8, {"hpc": 4}, [(because.Lending, "hpc")]),
        (11, {"web": 1}, [None]),
        (5, {"hpc": 4, "art": 3}, [(because.Lending, "art"), (because.Lending, "hpc")]),
        (10, {"hpc": 4, "art": 3}, [(because.Lending, "art")]),  # of those who lack hosts, who is asked for
        (4, {"hpc": 4, "art": 3, "web": 1}, [None, (because.Lending, "art"), (because.Lending, "hpc")]),
        (8, {}, [None]),
    ],
)
def test_a_contract_is_the_reason_where_its_lender_wants_hosts(
    hosts: int, wanted: dict[str, int], expected: list[Any]
) -> None:
    assert why(bench(), hosts, **wanted) == expected


def test_of_lenders_on_one_notice_the_first_by_name_is_the_reason() -> None:
    made = bench(contracts=tuple(msgspec.structs.replace(contract, notice_s=60.0) for contract in LENT))
    assert why(made, 9, hpc=4, art=3) == [(because.Lending, "art")]


def test_no_contract_is_the_reason_where_none_names_the_lender() -> None:
    assert why(bench(contracts=LENT[1:]), 8, hpc=4) == [None]
    assert why(bench(contracts=(Lending(lender="*", borrower="bio"),)), 11, web=1) == [None]


def test_what_others_have_over_is_no_reason() -> None:
    made = bench(contracts=(Lending(lender="*", borrower="web", hosts=0), *LENT))
    hand(made, "web", "h0")
    assert [loan.borrower for loan in agreed(made).loans if loan.over] == ["web"]
    assert why(made, 8) == [None]


def test_a_contract_whose_hours_are_over_is_the_reason_though_nobody_lacks_a_host() -> None:
    night = (Lending(lender="hpc", borrower="bio", windows=("daily 00:00-00:02",)), LENT[1])
    made = bench(contracts=night)
    assert why(made, 8, 110.0) == [None]
    assert why(made, 8, 121.0) == [(because.Lending, "hpc")]
    assert why(made, 8, 121.0, art=3) == [(because.Lending, "art")]
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
    assert why(made, hosts, **wanted) == [None if expected is None else (because.Window, expected)]


# --------------------------------------------------------------------------------------------------------------------- claims


def overdue(made: Bench, now: float) -> dict[str, int]:
    found = agreed(made, now)
    config = made.custody.state.config
    assert config is not None
    found.adjust([made.core.targets.claim(department, now) for department in config.departments])
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


DUE = tuple(msgspec.structs.replace(contract, deadline_s=100.0) for contract in LENT)


def test_what_a_lender_holds_is_not_wanted_back() -> None:
    made = bench()
    hand(made, "hpc", "h0", "h1")
    occupy(made, *(f"h{n}" for n in range(2, 12)), dept="bio")
    made.demand("hpc", 3)
    assert overdue(made, 200.0) == {"bio": 1}


def test_each_host_that_is_on_its_way_is_one_lenders_the_first_by_name() -> None:
    made = bench(HPC, BIO, contracts=DUE[:1])
    occupy(made, *(f"h{n}" for n in range(11)), dept="bio")
    made.write("scheduler.bio", f.HostReleased(host="h11"))
    made.demand("hpc", 3)
    assert overdue(made, 200.0) == {"bio": 2}
    made = bench(contracts=DUE)
    occupy(made, *(f"h{n}" for n in range(11)), dept="bio")
    made.write("scheduler.bio", f.HostReleased(host="h11"))
    made.demand("hpc", 2)
    made.demand("art", 3)
    assert overdue(made, 200.0) == {"bio": 4}
    made = bench(contracts=LENT)
    occupy(made, *(f"h{n}" for n in range(11)), dept="bio")
    made.write("scheduler.bio", f.HostReleased(host="h11"))
    made.demand("hpc", 3)
    made.demand("art", 1)
    assert overdue(made, 200.0) == {"bio": 3}  # art's: hpc's is none, though the file has it first


ECO = Department(name="eco", kind="batch", guarantee=2)
FEW = msgspec.structs.replace(BIO, guarantee=3)


def lent_to_two(contracts: tuple[Lending, ...]) -> Bench:
    """art lends bio 3 hosts, hpc lends bio one and eco 3."""
    made = bench(HPC, ART, FEW, ECO, contracts=contracts)
    hand(made, "eco", *(f"h{n}" for n in range(5)))
    occupy(made, *(f"h{n}" for n in range(5)), dept="eco")
    occupy(made, *(f"h{n}" for n in range(5, 12)), dept="bio")
    return made


ALL = Lending(lender="hpc", borrower="*", deadline_s=100.0)


@pytest.mark.parametrize(
    ("contracts", "hpc", "expected"),
    [
        ((ALL,), 4, {"bio": 1, "eco": 3}),  # no more of a borrower's than what this lender has lent it
        ((ALL,), 3, {"bio": 1, "eco": 2}),  # from one after the other
        ((ALL,), 1, {"bio": 1}),
        ((LENT[0],), 4, {"bio": 1}),  # and nothing of another lender's
        ((Lending(lender="hpc", borrower="eco", deadline_s=100.0),), 4, {"eco": 3}),  # another loan has no deadline
    ],
)
def test_each_borrower_gives_back_what_its_own_lenders_lack(
    contracts: tuple[Lending, ...], hpc: int, expected: dict[str, int]
) -> None:
    made = lent_to_two(contracts)
    made.demand("hpc", hpc)
    assert overdue(made, 200.0) == expected


def test_what_web_has_is_never_overdue() -> None:
    made = bench(contracts=(ALL,))
    hand(made, "web", "h0", "h1")
    made.demand("hpc", 4)
    config = made.custody.state.config
    assert config is not None
    found = agreed(made, 300.0)
    found.adjust([made.core.targets.claim(department, 300.0) for department in config.departments])
    assert (dict.fromkeys(found.overdue), [loan.borrower for loan in found.loans]) == (
        {"bio": None},
        ["bio"] * 2 + ["web"],
    )


def test_no_deadline_is_waited_for_that_has_come() -> None:
    """A cordoned host is not counted, and nothing changes before that."""
    made = bench()
    occupy(made, "h0", dept="bio")
    cordon(made, "h0")
    made.demand("hpc", 4)
    config = made.custody.state.config
    assert config is not None
    found = agreed(made, 200.0)
    found.adjust([made.core.targets.claim(department, 200.0) for department in config.departments])
    assert (found.overdue, found.until > 200.0) == ({"bio": 0}, True)


def test_without_a_configuration_nothing_is_agreed() -> None:
    found = Agreements(Custody(), Credits(), 0.0)
    assert (found.adjust([]), found.divide([], "")) == ([], {})


def test_what_is_earned_is_looked_at_again_when_weights_next_change() -> None:
    credits = Credits(earned={"bio": Earned(hosts_s=1e9, at=100.0)})
    made = bench()
    found = agreed(made, 100.0, credits)
    assert found.until == credits.next_moment(found.own, 100.0) < agreed(made, 100.0).until


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
    found.adjust([made.core.targets.claim(department, 150.0) for department in config.departments])
    assert (before > 200.0, found.until) == (True, 200.0)


def test_claims_have_what_is_a_lenders_own_and_weigh_what_was_earned() -> None:
    made = bench()
    occupy(made, *(f"h{n}" for n in range(12)), dept="bio")
    made.demand("hpc", 1)
    config = made.custody.state.config
    assert config is not None
    claims = [made.core.targets.claim(department, 200.0) for department in config.departments]
    credits = Credits(earned={"bio": Earned(hosts_s=1e9, at=200.0)})
    found = {c.name: c for c in agreed(made, 200.0, credits).adjust(claims)}
    assert {name: claim.own for name, claim in found.items()} == {"hpc": 4, "art": 3, "bio": 0, "web": 0, "shop": 0}
    assert {name: claim.weight for name, claim in found.items() if claim.weight != 1.0} == {"bio": 1.5}
    assert (found["bio"].occupied, found["hpc"].occupied) == (11, 0)
    everybody = bench(contracts=(Lending(lender="*", borrower="bio"),))
    assert {c.own for c in agreed(everybody).adjust(claims) if not c.web} == {4, 3, 5}
    free = bench(contracts=())
    assert agreed(free).adjust(claims) is claims
