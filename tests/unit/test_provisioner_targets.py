"""The Phoenix policy as a pure function: who may keep how many hosts."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.provisioner.core.policies.idle import with_idle
from services.provisioner.core.policies.phoenix import Claim, targets


def web(name: str = "web", demand: int = 0, **kw: float) -> Claim:
    return Claim(name=name, web=True, demand=demand, **kw)  # type: ignore[arg-type]


def batch(name: str = "hpc", demand: int = 0, **kw: float) -> Claim:
    return Claim(name=name, web=False, demand=demand, **kw)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claims", "usable", "expected"),
    [
        ([], 5, {}),
        ([batch()], 16, {"hpc": 16}),  # what is idle goes to batch, wanted or not
        ([batch(demand=20), web(demand=3)], 16, {"hpc": 13, "web": 3}),
        ([batch(demand=20), web(demand=99)], 16, {"hpc": 0, "web": 16}),  # web first
        ([batch(guarantee=4), web(demand=99)], 16, {"hpc": 4, "web": 12}),  # down to the guarantee
        ([batch(), web(demand=99, maximum=6)], 16, {"hpc": 10, "web": 6}),
        ([batch(), web(demand=1, guarantee=3)], 16, {"hpc": 15, "web": 1}),  # no host idles in web
        ([web("a", 9), web("b", 9, priority=1)], 12, {"a": 3, "b": 9}),
        ([web("a", 9), web("b", 9)], 12, {"a": 6, "b": 6}),  # among equals by weight
        ([batch("a", 99), batch("b", 99, weight=3.0)], 16, {"a": 4, "b": 12}),
        ([batch("a", 2), batch("b", 99)], 16, {"a": 2, "b": 14}),  # capped by demand
        ([batch("a", 2), batch("b", 3)], 16, {"a": 8, "b": 8}),  # nobody wants the rest: by weight
        ([batch("a", 0, held=9), batch("b", 3)], 16, {"a": 9, "b": 7}),  # a keeps its 9; what nobody holds: by weight
        # an occupied host is never taken for a weight, an idle one is
        ([batch("a", 10, held=10, occupied=10), batch("b", 10)], 10, {"a": 10, "b": 0}),
        ([batch("a", 10, held=10, occupied=7), batch("b", 10)], 10, {"a": 7, "b": 3}),
        ([batch("a", 10, held=10, occupied=3), batch("b", 10)], 10, {"a": 5, "b": 5}),
        ([batch("a", 10, held=10, occupied=10), batch("b", 10), web(demand=4)], 10, {"a": 6, "b": 0, "web": 4}),
        ([batch("a", 10, guarantee=4), batch("b", 10, occupied=10, held=10)], 10, {"a": 4, "b": 6}),
        (
            [batch("a", 0, guarantee=4), batch("b", 9), web(demand=99)],
            10,
            {"a": 0, "b": 4, "web": 6},
        ),  # lent while idle
        ([batch("a", 10, maximum=3), batch("b", 1)], 10, {"a": 3, "b": 7}),
        ([batch("a", 0, guarantee=6), web("w", 6, guarantee=6)], 8, {"a": 2, "w": 6}),  # guarantees beyond the cluster
    ],
)
def test_targets(claims: list[Claim], usable: int, expected: dict[str, int]) -> None:
    assert targets(claims, usable) == expected


def test_the_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "policies.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, flags=re.MULTILINE)
    assert len(rows) == 6
    for row in rows:
        shop, blog, news, *expected = map(int, row)
        claims = [web("shop", shop, weight=2.0), web("blog", blog, guarantee=2), web("news", news, priority=1)]
        assert list(targets([*claims, batch("hpc", 99, guarantee=4)], 16).values()) == expected


CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.sampled_from("abcdef"),
        web=st.booleans(),
        demand=st.integers(0, 30),
        held=st.integers(0, 10),
        occupied=st.integers(0, 10),
        weight=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        priority=st.integers(0, 2),
        guarantee=st.integers(0, 8),
        maximum=st.integers(0, 30),
    ),
    max_size=5,
    unique_by=lambda c: c.name,
)


@given(CLAIMS, st.integers(0, 40))
def test_quotas_are_conserved_bounded_and_whole(claims: list[Claim], usable: int) -> None:
    quota = targets(claims, usable)
    assert sum(quota.values()) <= usable
    for c in claims:
        assert 0 <= quota[c.name] <= c.maximum
        if c.web:
            assert quota[c.name] <= c.demand
    if any(not c.web and quota[c.name] < c.maximum for c in claims):
        assert sum(quota.values()) == usable  # a host is idle outside batch only if batch may not have it


@given(CLAIMS, st.integers(0, 40))
def test_guarantees_hold_whenever_they_fit(claims: list[Claim], usable: int) -> None:
    promised = {c.name: min(c.guarantee, c.maximum, c.demand) for c in claims}
    if sum(promised.values()) <= usable:
        quota = targets(claims, usable)
        assert all(quota[name] >= hosts for name, hosts in promised.items())


@given(CLAIMS, st.integers(0, 40), st.randoms())
def test_order_of_claims_changes_nothing(claims: list[Claim], usable: int, random: object) -> None:
    shuffled = list(claims)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert targets(shuffled, usable) == targets(claims, usable)


@given(CLAIMS, st.integers(0, 40))
def test_no_web_department_waits_while_batch_has_more_than_its_guarantee(claims: list[Claim], usable: int) -> None:
    quota = targets(claims, usable)
    short = [c for c in claims if c.web and quota[c.name] < min(c.demand, c.maximum)]
    if short:
        batch = [c for c in claims if not c.web]
        assert sum(quota[c.name] for c in batch) <= sum(min(c.guarantee, c.maximum) for c in batch)


@given(CLAIMS, st.integers(0, 40))
def test_web_never_takes_what_is_guaranteed_to_batch(claims: list[Claim], usable: int) -> None:
    quota, batch = targets(claims, usable), [c for c in claims if not c.web]
    promised = sum(min(c.guarantee, c.maximum) for c in batch)
    web = sum(min(c.guarantee, c.maximum, c.demand) for c in claims if c.web)
    assert sum(quota[c.name] for c in batch) >= min(promised, usable - min(usable, web))


@given(CLAIMS, st.integers(0, 40))
def test_idle_hosts_do_not_stay_while_another_batch_department_starves(claims: list[Claim], usable: int) -> None:
    """If a batch department is left short, no other keeps more than it needs, occupies or is guaranteed."""
    quota = targets(claims, usable)
    short = [c for c in claims if not c.web and quota[c.name] < min(c.demand, c.maximum)]
    if short:
        for c in claims:
            if not c.web and c not in short:
                assert quota[c.name] <= max(c.demand, c.occupied)


@given(CLAIMS, st.integers(0, 40), st.integers(0, 30), st.integers(0, 10))
def test_one_batch_department_gets_what_is_left_whatever_it_asks_for(
    claims: list[Claim], usable: int, demand: int, held: int
) -> None:
    """The core relies on it: with one batch department it does not look at the targets again when that one's demand moves."""
    first = next((c.name for c in claims if not c.web), "")
    claims = [c for c in claims if c.web or c.name == first]
    other = [
        c if c.web else msgspec.structs.replace(c, demand=demand, held=held, occupied=min(held, c.occupied))
        for c in claims
    ]
    assert targets(other, usable) == targets(claims, usable)


def idly(claims: list[Claim], usable: int) -> dict[str, int]:
    busy = {c.name: c.occupied for c in claims}
    return with_idle(claims, busy, targets(claims, usable), lambda some: targets(some, usable))


@pytest.mark.parametrize(
    ("claims", "usable", "expected"),
    [
        ([batch(demand=20, occupied=8), web(demand=2, if_idle=1)], 10, {"hpc": 8, "web": 2}),  # all are in use
        ([batch(demand=20, occupied=7), web(demand=2, if_idle=1)], 10, {"hpc": 7, "web": 3}),
        ([batch(demand=20, occupied=7), web(demand=2, if_idle=9)], 10, {"hpc": 7, "web": 3}),  # as many as are idle
        ([batch(guarantee=8), web(demand=2, if_idle=1)], 10, {"hpc": 8, "web": 2}),  # what is kept is kept
        ([batch(guarantee=7), web(demand=2, if_idle=3)], 10, {"hpc": 7, "web": 3}),
        ([batch(), web(demand=2, if_idle=3, maximum=3)], 10, {"hpc": 7, "web": 3}),
        (
            [batch(occupied=8), web(demand=2, if_idle=1, guarantee=5)],
            10,
            {"hpc": 8, "web": 2},
        ),  # a guarantee does not help
        ([batch(occupied=9), web(demand=2, if_idle=1)], 10, {"hpc": 8, "web": 2}),  # a demand takes what is in use
        ([batch(occupied=2), web("a", 4, if_idle=2), web("b", 9)], 10, {"a": 4, "b": 6, "hpc": 0}),  # nor web's own
        (
            [batch(occupied=3), web("a", 2, if_idle=2), web("b", 2, if_idle=2, priority=1)],
            10,
            {"a": 3, "b": 4, "hpc": 3},
        ),
        (
            [batch("x", 9, occupied=5), batch("y", 9, occupied=2), web(demand=2, if_idle=2)],
            10,
            {"web": 3, "x": 5, "y": 2},
        ),
    ],
)
def test_what_is_wanted_only_if_it_is_idle(claims: list[Claim], usable: int, expected: dict[str, int]) -> None:
    assert dict(sorted(idly(claims, usable).items())) == dict(sorted(expected.items()))


@given(CLAIMS, st.integers(0, 40), st.lists(st.integers(0, 4), min_size=5, max_size=5))
def test_no_host_in_use_is_given_to_who_wants_idle_ones(claims: list[Claim], usable: int, more: list[int]) -> None:
    """P123."""
    claims = [msgspec.structs.replace(c, if_idle=n if c.web else 0) for c, n in zip(claims, more, strict=False)]
    firm, quota = targets(claims, usable), idly(claims, usable)
    assert sum(quota.values()) <= usable
    assert sum(quota[c.name] for c in claims if not c.web) >= min(
        sum(firm[c.name] for c in claims if not c.web), sum(min(c.guarantee, c.maximum) for c in claims if not c.web)
    )
    for c in claims:
        assert quota[c.name] <= c.maximum
        if c.web:
            assert firm[c.name] <= quota[c.name] <= max(firm[c.name], c.demand + c.if_idle)
        else:
            assert quota[c.name] >= min(firm[c.name], c.occupied)
