"""Which contracts keep hosts from a department: only where one host more is what they forbid, and how many there would be."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import CloudConfig, Department, Lending
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.sharing.withheld import Withheld, withheld
from tests.unit.test_whereabouts import A_B_W, AT, Site

Levels = dict[str, tuple[int, int]]  # department -> what it may keep, what it wants


def site(*contracts: Lending, departments: tuple[Department, ...] = A_B_W, **levels: tuple[int, int]) -> Site:
    """Six hosts, of which three are a's, two b's and one w's."""
    made = Site(*contracts, departments=departments).free("h1", "h2", "h3", "h4", "h5", "h6")
    for dept, (keeps, wants) in levels.items():
        kind = next(d.kind for d in departments if d.name == dept)
        made.put("provisioner", f.QuotaChanged(dept=dept, hosts=keeps, by=0.0))
        made.put(f"scheduler.{dept}", f.DemandChanged(dept=dept, hosts=wants, instances=wants if kind == "web" else 0))
    return made


def to_b(hosts: int | None, *windows: str) -> Lending:
    return Lending(lender="a", borrower="b", hosts=hosts, windows=windows)


@pytest.mark.parametrize(
    ("contract", "levels", "expected"),
    [
        (to_b(0), {"b": (2, 3)}, [("a", 3, 0, False)]),
        (to_b(0), {"b": (2, 2)}, []),  # it has what it wants
        (to_b(0), {"b": (1, 3)}, []),  # one more is its own
        (to_b(1), {"b": (2, 4)}, []),  # one more is within the contract; that two are not is no matter yet
        (to_b(1), {"b": (3, 4)}, [("a", 2, 1, False)]),
        (to_b(3), {"b": (3, 4)}, []),
        (to_b(None), {"b": (2, 9)}, []),
        (to_b(0), {"b": (2, 3), "a": (2, 2)}, [("a", 1, 0, False)]),
        (to_b(0), {"b": (2, 3), "a": (2, 1)}, [("a", 2, 0, False)]),  # what it wants no more is idle
        (to_b(0), {"b": (2, 3), "a": (1, 2)}, [("a", 2, 0, False)]),  # and so is what it has not been given
        (to_b(0), {"b": (2, 3), "a": (3, 3)}, []),  # nothing is idle: no contract is the reason
        (to_b(None, "daily 02:00-03:00"), {"b": (2, 3)}, [("a", 3, 0, True)]),
        (to_b(0, "daily 00:00-03:00"), {"b": (2, 3)}, [("a", 3, 0, False)]),
        (Lending(lender="*", borrower="b", hosts=0), {"b": (2, 3)}, [("a", 3, 0, False), ("w", 1, 0, False)]),
        (Lending(lender="*", borrower="b", hosts=0), {"b": (2, 3), "w": (1, 1)}, [("a", 3, 0, False)]),
        (Lending(lender="*", borrower="w", hosts=0), {"w": (1, 2)}, [("a", 3, 0, False), ("b", 2, 0, False)]),
    ],
)
def test_which_lenders_keep_how_many_from_it(
    contract: Lending, levels: Levels, expected: list[tuple[str, int, int, bool]]
) -> None:
    """Of w, which is free to lend, nothing is idle unless it says so."""
    name = "w" if contract.borrower == "w" else "b"
    others = {} if contract.lender == "*" else {"w": (1, 1)}
    found = withheld(site(contract, **{**others, **levels}).custody, name, AT)
    assert found == tuple(Withheld(*one) for one in expected)


def test_a_reason_has_it_as_a_parameter() -> None:
    assert [Withheld("a", 3, 1, closed).text for closed in (False, True)] == ["a:3:1:0", "a:3:1:1"]


def test_without_a_configuration_or_a_contract_nothing_is() -> None:
    assert withheld(Custody(), "b", AT) == ()
    assert withheld(site(b=(2, 9)).custody, "b", AT) == ()
    assert withheld(site(to_b(0), b=(2, 9)).custody, "nobody", AT) == ()


def test_who_may_keep_nothing_of_its_own_and_wants_one() -> None:
    extra = Department(name="x", kind="batch", maximum=1)
    none = site(Lending(lender="*", borrower="x", hosts=0), departments=(*A_B_W, extra), x=(0, 1), b=(2, 2), w=(1, 1))
    assert withheld(none.custody, "x", AT) == (Withheld("a", 3, 0, False),)


def test_nobody_wants_more_than_its_maximum() -> None:
    bounded = tuple(Department(name="b", kind="batch", guarantee=2, maximum=2) if d.name == "b" else d for d in A_B_W)
    assert withheld(site(to_b(0), departments=bounded, b=(2, 9), w=(1, 1)).custody, "b", AT) == ()


def test_cordoned_hosts_stand_beside_what_it_may_keep_and_what_it_uses_of_them_beside_what_it_wants() -> None:
    def cordoned(wants: int, *busy: str) -> tuple[Withheld, ...]:
        """b has two hosts beside two cordoned ones, on some of which jobs run."""
        made = site(to_b(0), w=(1, 1)).held("b", "h7", "h8")
        for number, host in enumerate(busy, 1):
            job = f.JobSubmitted(job=str(number), dept="b", user="u", name="j", payload="p", walltime_s=9.0)
            made.put("admission", job)
            made.put("scheduler.b", f.UnitPlaced(unit=str(number), attempt=1, hosts=(host,), cores=1, memory_mb=1))
        made.cordoned("h7").cordoned("h8")
        made.put("provisioner", f.QuotaChanged(dept="b", hosts=4, by=0.0))
        made.put("scheduler.b", f.DemandChanged(dept="b", hosts=wants))
        return withheld(made.custody, "b", AT)

    short = (Withheld("a", 3, 0, False),)
    assert [cordoned(wants) for wants in (2, 3)] == [(), short]
    assert [cordoned(wants, "h7") for wants in (3, 4)] == [(), short]
    assert [cordoned(wants, "h7", "h8") for wants in (4, 5)] == [(), short]


# ----------------------------------------------------------------------------------------------------------- web before batch

A_W = (Department(name="a", kind="batch", guarantee=1), Department(name="w", kind="web", guarantee=1))
TO_W = Lending(lender="a", borrower="w", hosts=1)


@pytest.mark.parametrize(
    ("wants", "has", "expected"),
    [
        (5, (2, 4), [("a", 3, 1, False)]),  # what a uses beyond its guarantee is kept by the contract
        (0, (2, 4), [("a", 4, 1, False)]),
        (1, (2, 4), [("a", 3, 1, False)]),
        (2, (2, 4), [("a", 3, 1, False)]),
        (5, (1, 4), []),
        (5, (2, 2), []),
    ],
)
def test_from_web_is_withheld_also_what_batch_uses_beyond_its_guarantee(
    wants: int, has: tuple[int, int], expected: list[tuple[str, int, int, bool]]
) -> None:
    """Of six hosts one is w's, five are a's."""
    found = withheld(site(TO_W, departments=A_W, w=has, a=(4, wants)).custody, "w", AT)
    assert found == tuple(Withheld(*one) for one in expected)


def test_a_contract_between_batch_departments_keeps_nothing_from_web() -> None:
    """Of eight hosts five are a's and two b's, who lends none; w may have four of a's, and one more is the fourth."""
    a, b = Department(name="a", kind="batch", guarantee=1), Department(name="b", kind="batch", guarantee=2, maximum=2)
    contracts = (Lending(lender="a", borrower="b", hosts=0), Lending(lender="b", borrower="*", hosts=0))
    made = site(*contracts, departments=(a, b, A_W[1]), a=(2, 2), b=(1, 1), w=(4, 9)).free("h7", "h8")
    assert withheld(made.custody, "w", AT) == ()
    made.put("provisioner", f.QuotaChanged(dept="w", hosts=5, by=0.0))
    assert withheld(made.custody, "w", AT) == (Withheld("b", 1, 0, False),)


def test_a_cloud_of_one_department_has_no_contract_that_binds() -> None:
    alone = CloudConfig(name="c", departments=A_W[:1], lending=(TO_W,))
    custody = Custody()
    fold_fact(custody, f.ConfigAdopted(cloud="c", custody_rules=3, config=alone), 1, 0, "provisioner", 1.0)
    fold_fact(custody, f.DemandChanged(dept="a", hosts=9), 2, 0, "scheduler.a", 1.0)
    assert withheld(custody, "a", AT) == ()
