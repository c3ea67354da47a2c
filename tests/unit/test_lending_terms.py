"""Whose hosts they are at which hour, and what contracts of the file say."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import CloudConfig, Department, Lending, Policy
from services.domain import windows
from services.domain.sharing import lending
from services.domain.sharing.loans import kept_from_web
from services.runtime.config.file import ConfigError, loads
from services.runtime.config.lending import beyond
from services.runtime.config.text import diff, dump_toml

HOUR_S = 3600.0
MONDAY_S = 4 * 86_400.0  # 5 January 1970, 00:00 UTC
HPC = Department(name="hpc", kind="batch", weight=2.0)
BIO = Department(name="bio", kind="batch", guarantee=2, windows=("Mon-Fri 08:00-18:00 guarantee 6 maximum 8",))
WEB = Department(name="web", kind="web", guarantee=1)


def cloud(*departments: Department, contracts: tuple[Lending, ...] = ()) -> CloudConfig:
    return CloudConfig(name="c", departments=departments or (HPC, BIO, WEB), lending=contracts)


@pytest.mark.parametrize(
    ("at", "usable", "expected"),
    [
        (0.0, 16, {"hpc": 9, "bio": 6, "web": 1}),  # 13 are left beside guarantees: 8 2/3 and 4 1/3
        (MONDAY_S + 9 * HOUR_S, 16, {"hpc": 7, "bio": 8, "web": 1}),  # up to bio's maximum of these hours
        (MONDAY_S + 18 * HOUR_S, 16, {"hpc": 9, "bio": 6, "web": 1}),  # at its end a window holds no more
        (MONDAY_S + 9 * HOUR_S, 4, {"hpc": 0, "bio": 3, "web": 1}),  # guarantees beyond the cluster: web first
        (0.0, 4, {"hpc": 1, "bio": 2, "web": 1}),  # the only one that is left: 2/3 and 1/3 of it
        (0.0, 0, {"hpc": 0, "bio": 0, "web": 0}),
    ],
)
def test_own_hosts_are_the_guarantee_of_now_and_a_part_of_the_rest(
    at: float, usable: int, expected: dict[str, int]
) -> None:
    assert lending.owned(cloud(), at, usable) == expected


DEPARTMENTS = st.lists(
    st.builds(
        Department,
        name=st.sampled_from("abcdef"),
        kind=st.sampled_from(["batch", "web"]),
        weight=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        priority=st.integers(0, 2),
        guarantee=st.integers(0, 8),
        maximum=st.none() | st.integers(0, 12),
        windows=st.sampled_from([(), ("daily 08:00-18:00 guarantee 5",), ("Sat,Sun 00:00-24:00 maximum 3",)]),
    ),
    max_size=5,
    unique_by=lambda d: d.name,
)


@given(DEPARTMENTS, st.integers(0, 40), st.integers(0, 14 * 24))
def test_own_hosts_are_never_more_than_there_are_and_batch_leaves_none(
    departments: list[Department], usable: int, hour: int
) -> None:
    config, at = cloud(*departments), hour * HOUR_S
    if not departments:
        config = CloudConfig(name="c", departments=())
    own = lending.owned(config, at, usable)
    assert sum(own.values()) <= usable
    bounds = {d.name: lending.bounds(d, at) for d in departments}
    for department in departments:
        guarantee, maximum = bounds[department.name]
        most = usable if maximum is None else maximum
        assert 0 <= own[department.name] <= most
        if sum(min(g, usable if m is None else m) for g, m in bounds.values()) <= usable:
            assert own[department.name] >= min(guarantee, most)
    batch = [d for d in departments if d.kind == "batch"]
    if any(bounds[d.name][1] is None for d in batch):
        assert sum(own.values()) == usable


@given(DEPARTMENTS, st.integers(0, 40), st.randoms())
def test_the_order_of_the_file_changes_nobodys_own(departments: list[Department], usable: int, random: object) -> None:
    shuffled = list(departments)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (CloudConfig(name="c", departments=tuple(d)) for d in (departments, shuffled))
    assert lending.owned(one, 0.0, usable) == lending.owned(other, 0.0, usable)


def test_guarantees_beyond_the_hosts_are_kept_by_priority() -> None:
    first, second = (Department(name=n, kind="web", guarantee=2, priority=p) for n, p in (("shop", 2), ("app", 1)))
    assert lending.owned(cloud(second, first), 0.0, 3) == {"app": 1, "shop": 2}


def test_who_may_have_one_host_more_has_it() -> None:
    narrow, wide = Department(name="a", kind="batch", maximum=1), Department(name="b", kind="batch")
    assert lending.owned(cloud(narrow, wide), 0.0, 4) == {"a": 1, "b": 3}


def test_the_order_of_the_file_changes_nothing_where_weights_do_not_add_up_exactly() -> None:
    """0.7 + 0.3 + 0.6 is not 0.6 + 0.3 + 0.7, and of eight hosts c has its maximum just so."""
    sizes = (("a", 0.7, 4), ("b", 0.3, 2), ("c", 0.6, 3))
    departments = [Department(name=n, kind="batch", weight=w, maximum=m) for n, w, m in sizes]
    one, other = (lending.owned(cloud(*order), 0.0, 8) for order in (departments, departments[::-1]))
    assert one == other == {"a": 3, "b": 2, "c": 3}


def test_the_next_change_is_the_next_begin_or_end_of_any_window() -> None:
    config = cloud(contracts=(Lending(lender="hpc", borrower="web", windows=("daily 20:00-06:00",)),))
    assert lending.next_change(config, MONDAY_S) == MONDAY_S + 6 * HOUR_S
    assert lending.next_change(config, MONDAY_S + 6 * HOUR_S) == MONDAY_S + 8 * HOUR_S
    assert lending.next_change(config, MONDAY_S + 8 * HOUR_S) == MONDAY_S + 18 * HOUR_S
    assert lending.next_change(config, MONDAY_S + 18 * HOUR_S) == MONDAY_S + 20 * HOUR_S
    assert lending.next_change(cloud(HPC, WEB), 0.0) == windows.NEVER


@given(st.floats(0, 4e9))
def test_nothing_changes_before_the_next_change(at: float) -> None:
    config = cloud(contracts=(Lending(lender="*", borrower="*", hosts=3, windows=("Sat 22:00-04:00",)),))
    until = lending.next_change(config, at)
    assert until > at
    for moment in (at, (at + until) / 2):
        if moment < until:
            assert lending.owned(config, moment, 16) == lending.owned(config, at, 16)
            assert lending.limit(config, "hpc", "web", moment) == lending.limit(config, "hpc", "web", at)


def test_terms_name_the_window_and_its_end() -> None:
    config = cloud()
    day = lending.terms(config, "bio", MONDAY_S + 9 * HOUR_S)
    assert (day.guarantee, day.maximum, day.until) == (6, 8, MONDAY_S + 18 * HOUR_S)
    assert day.window == "Mon-Fri 08:00-18:00 guarantee 6 maximum 8"
    assert lending.terms(config, "bio", 0.0) == lending.Terms(2, None, 0.3, 0.3)
    assert lending.terms(config, "nobody", 0.0) == lending.Terms(0, 0, 0.3, 0.3)


def test_the_first_contract_of_the_file_whose_hours_it_is_holds() -> None:
    night = Lending(lender="hpc", borrower="bio", hosts=9, notice_s=60.0, windows=("daily 20:00-06:00",))
    always = Lending(lender="hpc", borrower="*", hosts=2, grace_s=2.0)
    config = cloud(contracts=(night, always))
    assert lending.limit(config, "hpc", "bio", 22 * HOUR_S) == 9
    assert lending.limit(config, "hpc", "bio", 12 * HOUR_S) == 2
    assert lending.limit(config, "hpc", "web", 22 * HOUR_S) == 2
    assert lending.limit(config, "bio", "hpc", 22 * HOUR_S) == lending.UNLIMITED  # nobody has agreed on anything
    assert lending.notice_s(config, "hpc", "bio", 22 * HOUR_S) == 60.0
    assert lending.notice_s(config, "hpc", "bio", 12 * HOUR_S) == 0.3
    assert [lending.grace_s(config, name) for name in ("bio", "web", "hpc")] == [2.0, 2.0, 0.3]


def test_notice_is_promised_as_short_as_any_contract_of_a_borrower_has_it() -> None:
    named = tuple(
        Lending(lender=a, borrower=b, notice_s=s)
        for a, b, s in (("hpc", "bio", 60.0), ("web", "bio", 90.0), ("hpc", "web", 1.0))
    )
    config = msgspec.structs.replace(cloud(contracts=named), policy=Policy(notice_s=120.0))
    assert [lending.terms(config, name, 0.0).notice_s for name in ("bio", "web", "hpc")] == [60.0, 1.0, 120.0]


@pytest.mark.parametrize(
    ("own", "wants", "kept"),
    [
        (4, {"web": 1, "shop": 5}, 0),  # neither is bound
        (4, {"web": 3, "shop": 1}, 2),  # one each
        (4, {"web": 3, "shop": 3}, 0),
        (1, {"web": 3, "shop": 2}, 0),  # its only host may be taken
        (4, {}, 0),
        (9, {"web": 1, "shop": 5}, 0),  # all that they want
    ],
)
def test_what_contracts_keep_from_web_is_what_no_demand_takes(own: int, wants: dict[str, int], kept: int) -> None:
    """web may have one host, shop five."""
    most = {"web": 1, "shop": 5}
    assert kept_from_web("hpc", own, wants, lambda _lender, borrower: most[borrower]) == kept


def test_of_all_graces_that_contracts_grant_a_borrower_the_longest_counts() -> None:
    granted = [
        Lending(lender=a, borrower=b, grace_s=s)
        for a, b, s in (("hpc", "bio", 1.0), ("web", "bio", 3.0), ("hpc", "web", 9.0))
    ]
    assert lending.grace_s(cloud(contracts=tuple(granted)), "bio") == 3.0
    assert lending.grace_s(cloud(contracts=tuple(reversed(granted))), "bio") == 3.0


def test_a_pair_with_a_contract_lends_nothing_at_other_hours_and_gives_back_on_its_terms() -> None:
    config = cloud(contracts=(Lending(lender="hpc", borrower="bio", notice_s=60.0, windows=("daily 20:00-06:00",)),))
    assert lending.limit(config, "hpc", "bio", 22 * HOUR_S) == lending.UNLIMITED
    assert lending.limit(config, "hpc", "bio", 12 * HOUR_S) == 0
    assert lending.notice_s(config, "hpc", "bio", 12 * HOUR_S) == 60.0


def test_within_reach_is_what_maximum_and_contracts_allow() -> None:
    config = cloud(
        contracts=(Lending(lender="hpc", borrower="web", hosts=2), Lending(lender="*", borrower="bio", hosts=1))
    )
    assert lending.owned(config, 0.0, 16) == {"hpc": 9, "bio": 6, "web": 1}
    assert [lending.reach(config, name, 0.0, 16) for name in ("hpc", "bio", "web", "none")] == [16, 8, 9, 0]
    assert lending.reach(config, "bio", MONDAY_S + 9 * HOUR_S, 16) == 8
    assert lending.reach(cloud(), "bio", 0.0, 16) == 16


FILE = """
[cloud]
name = "demo"
[[department]]
name = "hpc"
kind = "batch"
DEPARTMENT
[[department]]
name = "web"
kind = "web"
[[lending]]
lender = "hpc"
borrower = "web"
CONTRACT
"""


def file(department: str = "", contract: str = "") -> str:
    return FILE.replace("DEPARTMENT", department).replace("CONTRACT", contract)


def test_windows_and_contracts_are_read_written_and_compared() -> None:
    text = file('windows = ["Mon-Fri 08:00-18:00 guarantee 6 maximum 8"]', "hosts = 4\nnotice_s = 30\ngrace_s = 1.5")
    config = loads(text)
    assert config.cloud.lending == (Lending(lender="hpc", borrower="web", hosts=4, notice_s=30.0, grace_s=1.5),)
    assert loads(dump_toml(config)) == config
    assert diff(loads(file()).cloud, config.cloud) == [
        'department hpc: windows [] → ["Mon-Fri 08:00-18:00 guarantee 6 maximum 8"]',
        "contract hpc to web: hosts none → 4",
        "contract hpc to web: notice_s none → 30.0",
        "contract hpc to web: grace_s none → 1.5",
    ]


@pytest.mark.parametrize(
    ("department", "contract", "told"),
    [
        ('windows = ["Mon 8-18 guarantee 6"]', "", 'should be such as "Mon-Fri 08:00-18:00'),
        ('windows = ["Mon 08:00-18:00"]', "", "should name what changes"),
        ('windows = ["Mon 08:00-18:00 guarantee 9 maximum 8"]', "", "9 hosts are guaranteed then, 8 allowed"),
        ('maximum = 3\nwindows = ["Mon 08:00-18:00 guarantee 4"]', "", "4 hosts are guaranteed then, 3 allowed"),
        (
            'windows = ["Mon 08:00-18:00 guarantee 4", "daily 12:00-13:00 maximum 9"]',
            "",
            'should not overlap with "Mon 08:00-18:00 guarantee 4"',
        ),
        ('windows = ["Sun 22:00-04:00 guarantee 4", "Mon 00:00-01:00 guarantee 3"]', "", "should not overlap"),
        ('windows_zone = "Europe/Berlin"', "", "summer time is not known"),
        ('windows = ["Mon 08:00-18:00 guarantee 100001"]', "", "they add up to 100001"),
        ("", 'windows = ["daily 20:00-06:00 guarantee 3"]', "should be hours alone"),
        ("", "notice_s = 0", "no department loses a host without notice"),
        ("", "hosts = -1", "should be at least 0"),
        ("", "grace_s = 60", "should be at most policy.kill_s (5)"),
        ("", "deadline_s = 60", "web keeps a host as long as its load needs it"),
        ("", "credit = 1000", "at most 100"),
        ("", "credit = 1", "what it earned would count for nothing"),
        (
            "",
            '[[lending]]\nlender = "web"\nborrower = "hpc"\ndeadline_s = 60',
            "web has its hosts back on notice whenever its load needs them",
        ),
        ("", '[[lending]]\nlender = "hcp"\nborrower = "web"', 'did you mean "hpc"?'),
        ("", '[[lending]]\nlender = "web"\nborrower = "web"', "a department cannot lend to itself"),
        ("", '[[lending]]\nlender = "hpc"\nborrower = "web"\nhosts = 3', "which holds always and names this pair too"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_words(department: str, contract: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(file(department, contract), "phoenix.toml")
    assert told in str(caught.value)


def test_guarantees_of_one_moment_must_fit_the_cloud() -> None:
    from services.runtime.config.checks import check_cloud

    day = Department(name="a", kind="batch", windows=("Mon 08:00-18:00 guarantee 6",))
    late = Department(name="b", kind="batch", windows=("Mon 17:00-20:00 guarantee 6",))
    config = CloudConfig(name="c", departments=(day, late), policy=Policy())
    assert [p.right for p in check_cloud(config, 11)] == [
        "guarantees should add up to at most 11 hosts then, what this cloud has; they add up to 12"
    ]
    assert check_cloud(config, 12) == []


def test_guarantees_must_fit_also_when_a_window_ends_that_promised_less() -> None:
    from services.runtime.config.checks import check_cloud

    less = Department(name="a", kind="batch", guarantee=6, windows=("Mon 08:00-12:00 guarantee 0",))
    more = Department(name="b", kind="batch", windows=("Mon 10:00-14:00 guarantee 6",))
    config = CloudConfig(name="c", departments=(less, more), policy=Policy())
    assert [(p.found, p.right) for p in check_cloud(config, 8)] == [
        (
            '"Mon 10:00-14:00 guarantee 6"',
            "guarantees should add up to at most 8 hosts then, what this cloud has; they add up to 12",
        )
    ]
    assert check_cloud(config, 12) == []


def test_guarantees_beyond_the_hosts_that_are_there_are_a_warning() -> None:
    plain = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", guarantee=20),))
    assert beyond(plain, 20) == []
    told = "warning: guarantees add up to 20 (hpc 20), and there are 8 hosts: not all can be kept"
    assert beyond(plain, 8) == [told]
    evening = Department(name="hpc", kind="batch", guarantee=1, windows=("daily 18:00-19:00 guarantee 400",))
    assert beyond(CloudConfig(name="c", departments=(evening,)), 8) == [
        'warning: guarantees add up to 400 in the window "daily 18:00-19:00 guarantee 400" (hpc 400), and there are 8 hosts: '
        "not all can be kept"
    ]
