"""Quotas within contracts, asked directly: what web leaves to batch departments, and these to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from services.domain.sharing.lending import UNLIMITED
from services.provisioner.core.policies.contracts import targets_within
from services.provisioner.core.policies.phoenix import Claim, targets

OWN = {"a": 4, "b": 4, "web": 0}


def claim(name: str, demand: int, **levels: Any) -> Claim:
    return Claim(name=name, web=name == "web", demand=demand, **levels)


def quotas(
    claims: list[Claim], lent: Mapping[tuple[str, str], int], own: Mapping[str, int] = OWN, first: str = ""
) -> list[int]:
    """Of 8 hosts.  Who is not named lends what it has."""
    found = targets_within(claims, 8, first, own, lambda one, other: lent.get((one, other), UNLIMITED))
    return [found[claim.name] for claim in claims]


@pytest.mark.parametrize(
    ("demand", "occupied", "guarantee", "web"),
    [
        (4, 0, 4, 0),  # only a's hosts are lent to web, and all of them are guaranteed to a
        (1, 4, 4, 0),  # what it uses counts as what it demands
        (4, 0, 3, 1),
        (2, 0, 4, 2),  # a guarantee counts as far as it is demanded
    ],
)
def test_web_leaves_a_guarantee_that_nobody_else_could_lend(
    demand: int, occupied: int, guarantee: int, web: int
) -> None:
    claims = [claim("a", demand, occupied=occupied, guarantee=guarantee), claim("b", 0), claim("web", 4)]
    assert quotas(claims, {("b", "a"): 0, ("b", "web"): 0})[2] == web


def rivals(**levels: Any) -> list[Claim]:
    """b wants all there is, with ten times a's weight."""
    return [claim("a", 4, **{"held": 4, "weight": 1.0, **levels}), claim("b", 20, weight=10.0), claim("web", 1)]


@pytest.mark.parametrize(
    ("first", "levels", "expected"),
    [
        ("", {}, [4, 3, 1]),  # all that a holds, wants and keeps from web
        ("", {"held": 2}, [2, 5, 1]),  # as far as it is held
        ("a", {"held": 4}, [4, 3, 1]),
        ("b", {"occupied": 2}, [2, 5, 1]),  # a wide job of another one's takes turns: as far as it is occupied
        ("a", {"occupied": 2}, [4, 3, 1]),
        ("", {"maximum": 3}, [3, 4, 1]),
    ],
)
def test_what_is_kept_from_web_counts_between_batch_departments_as_far_as_it_is_used(
    first: str, levels: dict[str, Any], expected: list[int]
) -> None:
    assert quotas(rivals(**levels), {("a", "web"): 0}, first=first) == expected


@pytest.mark.parametrize(("demand", "maximum"), [(2, UNLIMITED), (9, 2)])
def test_a_contract_for_all_that_web_may_want_keeps_nothing_from_it(demand: int, maximum: int) -> None:
    claims = [*rivals()[:2], claim("web", demand, maximum=maximum)]
    lent = {("a", "web"): 2, ("b", "a"): 0}
    assert quotas(claims, lent) == list(targets(claims, 8).values()) == [0, 6, 2]


OTHERS = {("c", "a"): 2, ("c", "web"): 2, ("web", "a"): 1, ("web", "c"): 1}


@pytest.mark.parametrize("own", [{"a": 0, "c": 2, "web": 1}, {"c": 2, "web": 1}])
def test_contracts_for_all_that_somebody_owns_bind_nobody(own: dict[str, int]) -> None:
    """Of what a and c occupy one host goes to web, by weight, though c's guarantee has two."""
    claims = [claim("a", 1, held=1, occupied=1, weight=9.0), claim("web", 6, guarantee=1)]
    claims.append(claim("c", 1, held=2, occupied=2, weight=9.0, guarantee=2))
    lent = {("a", "web"): 0, ("a", "c"): 0, **OTHERS}
    found = targets_within(claims, 3, "c", own, lambda one, other: lent[one, other])
    assert found == targets(claims, 3, "c") == {"a": 1, "web": 1, "c": 1}


def test_who_owns_nothing_keeps_nothing_from_web() -> None:
    claims = [claim("a", 4, held=4), claim("b", 20, weight=10.0), claim("web", 1)]
    lent = {("a", "web"): 0, ("b", "web"): 7}
    assert quotas(claims, lent, own={"b": 8}) == [0, 7, 1]
