"""Who is served from whom, and what is told of it: the same for the same numbers, whatever their order."""

from __future__ import annotations

from schemas.config import CloudConfig, Department, Lending
from services.domain.sharing.lending import UNLIMITED
from services.domain.sharing.loans import Loan, fit, loans

A, B, C, D = (Department(name=name, kind="batch") for name in "abcd")


def test_lenders_are_asked_by_name() -> None:
    own = {"c": 0, "b": 1, "a": 1}
    found = fit({"c": 1}, own, 2, lambda _lender, _borrower: UNLIMITED)
    assert found.lent == {("a", "c"): 1}
    assert found.left == {"": 0, "a": 0, "b": 1, "c": 0}


def test_loans_are_told_by_lender_also_those_beyond_contracts() -> None:
    config = CloudConfig(name="c", departments=(A, B, C), lending=(Lending(lender="a", borrower="c", hosts=0),))
    found = loans(config, 0.0, {"a": 1, "b": 1, "c": 0}, {"c": 2}, 2)
    assert found == [Loan("a", "c", 1, over=1), Loan("b", "c", 1)]


def test_of_two_borrowers_the_first_by_name_is_served_by_the_first_lender() -> None:
    config = CloudConfig(name="c", departments=(A, B, C, D), lending=(Lending(lender="a", borrower="*", hosts=2),))
    own = {"a": 2, "b": 1, "c": 0, "d": 0}
    for held in ({"d": 1, "c": 2}, {"c": 2, "d": 1}):
        assert loans(config, 0.0, own, held, 3) == [Loan("a", "c", 2), Loan("b", "d", 1)]


def test_web_lends_all_its_own_while_it_holds_none() -> None:
    found = fit({"b": 2}, {"web": 2, "b": 0}, 2, lambda _lender, _borrower: UNLIMITED, ["web"])
    assert (found.lent, found.unmet) == ({("web", "b"): 2}, {})
