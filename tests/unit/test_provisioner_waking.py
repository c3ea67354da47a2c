"""When the arbiter looks again, who waits for hosts in turn, and how it follows what others write."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Department, Lending, WebPolicy
from services.domain.core import NEVER
from services.domain.custody.rules import CORDONS_HOLD, RULES
from services.domain.custody.state import Quota
from services.provisioner.core.quotas import Lowering, quota_facts
from services.provisioner.core.turns import STUCK_S, TURN_S
from tests.unit.test_provisioner_core import CANCELLED, HPC, WEB, Bench, cordon, occupy, seized, why
from tests.unit.test_provisioner_hosts import BIO, adopt, due, quotas, wish

ART = Department(name="art", kind="batch")


def shares(bench: Bench) -> dict[str, int]:
    """The quotas of now, whatever was to be written for them."""
    bench.settle()
    return quotas(bench)


# -------------------------------------------------------------------------------------------------------------------- waiting


def waiting(*departments: Department, hosts: int = 4) -> Bench:
    """hpc, then bio, each waiting for a wide job."""
    bench = Bench(*departments, hosts=hosts)
    bench.demand("hpc", 3)
    bench.now += 0.4
    bench.demand("bio", 3)
    bench.settle()
    return bench


def test_a_turn_begins_when_a_second_one_has_waited_and_goes_to_who_has_waited_longest() -> None:
    bench = waiting(HPC, BIO)
    for now, later in ((100.4, 100.0), (100.0 + STUCK_S, 100.4)):  # it wakes up as each of them joins the line
        bench.now = now
        assert (shares(bench), bench.core.wake_at()) == ({"hpc": 2, "bio": 2}, pytest.approx(later + STUCK_S))
    for turn, expected in enumerate(({"hpc": 3, "bio": 1}, {"hpc": 1, "bio": 3}, {"hpc": 3, "bio": 1})):
        length = TURN_S * (1 if turn < 2 else 2)
        bench.now = 100.4 + STUCK_S + turn * TURN_S
        assert shares(bench) == expected
        due = bench.core.targets.division.until
        assert due == pytest.approx(bench.now + length)


def test_who_has_waited_as_long_goes_by_name() -> None:
    bench = Bench(HPC, BIO)
    bench.demand("hpc", 3)
    bench.demand("bio", 3)
    bench.settle()
    bench.now += STUCK_S
    assert shares(bench) == {"hpc": 1, "bio": 3}


def test_it_is_nobodys_turn_whose_hosts_are_all_in_use() -> None:
    bench = waiting(HPC, BIO)
    occupy(bench, *sorted(bench.custody.index.held["hpc"]))
    for now, expected in ((STUCK_S, {"hpc": 2, "bio": 2}), (STUCK_S + TURN_S, {"hpc": 2, "bio": 2})):
        bench.now = 100.4 + now
        assert shares(bench) == expected
    bench.now = 100.4 + 10 * TURN_S


def end_wait(bench: Bench) -> None:
    bench.demand("bio", bench.custody.held("bio"))


def place(bench: Bench) -> None:
    occupy(bench, sorted(bench.custody.index.held["bio"])[0], dept="bio")


def adopt_again(bench: Bench) -> None:
    adopt(bench, HPC, BIO)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (end_wait, NEVER),  # it wants no more than it has
        (lambda bench: bench.demand("bio", 4), 100.4 + STUCK_S),  # it wants more still: since then
        (lambda bench: bench.demand("bio", 3), 100.4 + STUCK_S),
        (place, 100.9 + STUCK_S),  # it could use what it has: it waits from then on
        (adopt_again, 100.9 + STUCK_S),  # hosts may go another way now
    ],
)
def test_who_waits_waits_until_it_places_something_or_wants_no_more(
    what: Callable[[Bench], None], expected: float
) -> None:
    bench = waiting(HPC, BIO)
    bench.now = 100.9
    what(bench)
    bench.now = 100.0 + STUCK_S
    bench.settle()
    assert bench.core.targets.division.until == pytest.approx(expected)


def test_web_waits_in_no_line() -> None:
    bench = Bench(HPC, BIO, msgspec.structs.replace(WEB, maximum=1))
    bench.demand("web", 3)
    bench.demand("hpc", 4)
    bench.settle()
    assert bench.core.wake_at() == NEVER


def test_who_joins_the_line_has_no_turn_before_it_has_waited() -> None:
    bench = waiting(HPC, BIO, ART, hosts=6)
    bench.demand("hpc", 5)
    bench.demand("bio", 5)
    begin = 100.4 + STUCK_S
    bench.now = begin + 2 * TURN_S - 0.5
    bench.settle()
    bench.demand("art", 5)
    bench.now = begin + 2 * TURN_S
    assert shares(bench)["hpc"] == 5  # the third turn is not its own yet
    assert bench.core.targets.division.until == pytest.approx(begin + 2 * TURN_S - 0.5 + STUCK_S)


def test_who_waited_is_forgotten_with_a_configuration_that_has_one_batch_department() -> None:
    bench = waiting(HPC, BIO, WEB)
    adopt(bench, HPC, WEB)
    wish(bench, "web", 1, if_idle=1)
    bench.settle()
    assert bench.core.targets.division.until == NEVER


# ------------------------------------------------------------------------------------------------------------ when it wakes up


def test_a_quarantine_that_ends_wakes_it_once_the_first_one_first() -> None:
    """Also that of a host that is held, which it may keep meanwhile."""
    bench = Bench()
    bench.settle()
    for host, until in (("h0", 120.0), ("h1", 110.0)):
        bench.write("executor", f.HostQuarantined(host=host, reason="3 failed launches", until=until))
    bench.settle()
    for expected in (110.0, 120.0, NEVER):
        assert bench.core.wake_at() == expected
        bench.now = expected
        bench.settle()


def test_it_is_not_ill_at_the_moment_at_which_something_is_due() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 1)
    bench.settle()
    bench.now = bench.core.wake_at()
    bench.write("admission", f.JobSubmitted(job="1", dept="hpc", user="a", name="j", payload="p", walltime_s=9.0))
    assert len(seized(bench)) == 1


def test_what_it_has_decided_before_the_next_fact_comes_is_checked_at_that_time() -> None:
    morning = 8 * 3600.0
    bench = Bench(HPC, msgspec.structs.replace(BIO, windows=("daily 08:00-18:00 guarantee 3 maximum 3",)))
    bench.demand("bio", 3)
    bench.demand("hpc", 4)
    bench.settle()
    assert bench.core.decide(morning) != []
    assert bench.core.check() == []


def test_check_knows_a_negative_quota() -> None:
    bench = Bench()
    bench.settle()
    bench.custody.state.quotas["gone"] = Quota(hosts=-1)
    assert "gone has a negative quota" in bench.core.check()
    bench.custody.state.quotas["gone"] = Quota(hosts=0)
    assert not any("negative" in problem for problem in bench.core.check())


@pytest.mark.parametrize("departments", [(HPC, WEB), (HPC, BIO, WEB)])
def test_what_another_leader_has_written_is_looked_at(departments: tuple[Department, ...]) -> None:
    bench = Bench(*departments)
    bench.demand("hpc", 4)
    bench.settle()
    assert bench.decide() == []
    bench.write("provisioner", f.QuotaChanged(dept="hpc", hosts=2, by=200.0))
    assert shares(bench)["hpc"] == 4
    bench.write("provisioner", f.HostSeized(host="h0", dept="hpc"))  # void: it is within its quota
    assert bench.custody.state.voids != {}
    assert bench.decide() == []


def test_it_counts_the_facts_that_it_has_folded() -> None:
    bench = Bench(hosts=2)
    before = bench.core._state.facts
    assert before == 5
    bench.write("provisioner", f.HostSeized(host="h0", dept="hpc"))  # a void one, too
    assert bench.core._state.facts == 6


# --------------------------------------------------------------------------------------------------------------- what it holds


def test_a_job_that_ends_on_a_cordoned_host_lets_its_department_have_another() -> None:
    bench = Bench(msgspec.structs.replace(HPC, maximum=2), WEB)
    bench.demand("hpc", 2)
    bench.settle()
    occupy(bench, "h0")
    cordon(bench, "h0")
    bench.write("admission", f.JobCancelled(job="1", user="a"))
    assert bench.settle() == []
    bench.write("scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=CANCELLED, why=because.Cancelled()))
    assert shares(bench)["hpc"] == 3


def test_a_cordoned_host_that_web_uses_counts_in_its_maximum() -> None:
    bench = Bench(HPC, msgspec.structs.replace(WEB, maximum=2, guarantee=2))
    bench.demand("web", 2)
    bench.settle()
    bench.write("scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h0",), cores=1, memory_mb=1))
    cordon(bench, "h0")
    bench.demand("web", 5)
    assert shares(bench) == {"hpc": 2, "web": 2}


@pytest.mark.parametrize("first", ["blog", "shop"])
def test_of_equal_web_departments_the_one_keeps_an_odd_host_whose_quota_has_it(first: str) -> None:
    equal = [Department(name=name, kind="web", web=WebPolicy()) for name in ("blog", "shop")]
    (second,) = {"blog", "shop"} - {first}
    bench = Bench(HPC, *equal, hosts=1)
    for name in (first, second):
        bench.demand(name, 3)
        bench.settle()
    assert bench.held() == {first: 1}
    for cordons in (0, 1):
        bench = Bench(HPC, *equal, hosts=3 + cordons)
        bench.demand(first, 3 + cordons)
        bench.settle()
        for number in range(cordons):
            cordon(bench, f"h{number}")
        bench.settle()
        bench.demand(second, 3)
        assert shares(bench) == {first: 2 + cordons, second: 1}


def test_one_batch_department_with_a_contract_is_asked_what_it_needs() -> None:
    bench = Bench()
    config = bench.custody.state.config
    assert config is not None
    kept = (Lending(lender="hpc", borrower="web", hosts=1),)
    config = msgspec.structs.replace(config, lending=kept)
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    bench.demand("web", 4)
    before = shares(bench)
    bench.demand("hpc", 2)
    assert shares(bench) == before
    bench.now += 1
    bench.settle()
    occupy(bench, *sorted(bench.custody.index.held["hpc"]))
    assert bench.settle() == []


@pytest.mark.parametrize(("rules", "expected"), [(CORDONS_HOLD - 1, []), (CORDONS_HOLD, ["h0", "h2"])])
def test_drained_hosts_are_seized_by_name_and_only_where_the_rules_have_it(rules: int, expected: list[str]) -> None:
    bench = Bench(HPC, BIO)
    config = bench.custody.state.config
    assert config is not None
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=rules, config=config))
    bench.demand("hpc", 2)
    bench.demand("bio", 2)
    bench.settle()
    assert sorted(bench.custody.index.held["bio"]) == ["h0", "h1"]
    occupy(bench, "h2")
    occupy(bench, "h0", dept="bio")
    for host in ("h2", "h0"):
        cordon(bench, host, 10.0)
    bench.settle()
    bench.now = 111.0
    assert seized(bench) == expected


def test_departments_are_told_and_lose_their_hosts_by_name() -> None:
    bench = Bench(HPC, BIO, WEB)
    bench.demand("hpc", 2)
    bench.demand("bio", 2)
    bench.settle()
    occupy(bench, "h2", "h3")
    occupy(bench, "h0", "h1", dept="bio")
    bench.demand("web", 2)
    assert [x.dept for x in bench.decide() if isinstance(x, f.QuotaChanged)] == ["bio", "hpc", "web"]
    bench.now += 1
    assert [x.dept for x in bench.decide() if isinstance(x, f.HostSeized)] == ["bio", "hpc"]


def test_of_idle_hosts_the_first_by_name_are_seized_whatever_was_granted_last() -> None:
    bench = Bench()
    bench.settle()
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.write("executor", f.HostCleared(host="h0"))
    bench.settle()
    bench.demand("web", 1)
    bench.decide()
    bench.now += 1
    assert seized(bench) == ["h0"]


def test_a_quota_that_falls_for_batch_names_no_web_department_that_has_what_it_wants() -> None:
    bench = Bench(HPC, BIO, WEB)
    bench.demand("web", 1)
    bench.demand("hpc", 3)
    bench.settle()
    bench.demand("bio", 1)
    assert why(bench.decide())["hpc"] == (because.BatchShare, {"department": "hpc", "held": 3})


# --------------------------------------------------------------------------------------------------------------------- notices


A, B = because.WebDemand(), because.Lending()


@pytest.mark.parametrize(
    ("hosts", "lowerings", "held", "told", "expected"),
    [
        (4, [], 4, [(3, 10.0)], [(3, 10.0, A)]),
        (4, [], 4, [(3, 10.0), (1, 60.0)], [(3, 10.0, A), (1, 60.0, B)]),  # each notice by itself
        (3, [(3, 9.0)], 4, [(3, 10.0)], []),  # told before, due before
        (3, [(3, 10.0)], 4, [(3, 10.0)], []),
        (3, [(3, 9.0)], 4, [(4, 10.0)], [(4, 10.0, A)]),  # raised
        (3, [(3, 60.0)], 4, [(2, 10.0)], [(2, 10.0, A)]),  # fewer and sooner: nothing stands in between
        # as many, and sooner: the quota is raised to what is held, else it would be no lowering
        (3, [(3, 60.0)], 5, [(3, 10.0)], [(5, 10.0, A), (3, 10.0, A)]),
        # a shorter notice for fewer: the longer one keeps its time
        (3, [(3, 60.0)], 5, [(4, 10.0), (3, 90.0)], [(5, 10.0, A), (4, 10.0, A), (3, 60.0, B)]),
        (3, [(3, 60.0)], 5, [(4, 10.0), (2, 90.0)], [(5, 10.0, A), (4, 10.0, A), (3, 60.0, B), (2, 90.0, B)]),
        (3, [(3, 60.0)], 5, [(3, 10.0), (2, 90.0)], [(5, 10.0, A), (3, 10.0, A), (2, 90.0, B)]),
    ],
)
def test_each_notice_stands_for_itself(
    hosts: int,
    lowerings: list[tuple[int, float]],
    held: int,
    told: list[tuple[int, float]],
    expected: list[tuple[int, float, object]],
) -> None:
    quota = Quota(hosts=hosts, lowerings=lowerings)
    found = quota_facts(
        "hpc",
        quota,
        told[-1][0],
        held,
        [Lowering(n, by, why, ("web",)) for (n, by), why in zip(told, (A, B), strict=False)],
    )
    assert [(x.hosts, x.by, x.reason) for x in found] == expected
    assert {x.claimants for x in found if x.hosts < min(held, quota.hosts)} <= {("web",)}
    assert {x.dept for x in found} <= {"hpc"}


def test_a_claim_that_grows_is_told_of_at_once_and_postpones_nothing() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 1)
    bench.settle()
    bench.now += 0.1
    bench.demand("web", 2)
    bench.settle()
    assert due(bench, "hpc") == [(3, 100.3), (2, 100.4)]
    bench.demand("web", 1)
    bench.settle()
    assert due(bench, "hpc") == [(3, 100.3)]


def test_what_is_void_is_no_wish() -> None:
    bench = Bench()
    bench.settle()
    bench.write("scheduler.hpc", f.DemandChanged(dept="web", hosts=2, if_idle=2))
    assert bench.custody.state.voids != {}
    assert shares(bench) == {"hpc": 4}


@pytest.mark.parametrize(
    ("dept", "used", "demand", "expected"),
    [
        ("hpc", (), 2, {"hpc": 2, "bio": 2}),  # an idle cordoned host counts for nothing
        ("hpc", ("h2",), 2, {"hpc": 2, "bio": 2}),  # one in use counts in what is demanded
        ("hpc", ("h2", "h3"), 2, {"hpc": 2, "bio": 2}),
        ("hpc", ("h2", "h3"), 0, {"hpc": 2, "bio": 2}),  # the other one in use is not taken
        ("hpc", ("h3",), 0, {"hpc": 2, "bio": 2}),
    ],
)
def test_a_cordoned_host_is_no_part_of_what_is_divided(
    dept: str, used: tuple[str, ...], demand: int, expected: dict[str, int]
) -> None:
    bench = Bench(HPC, BIO)
    bench.demand("hpc", 2)
    bench.demand("bio", 2)
    bench.settle()
    occupy(bench, *used)
    bench.demand("bio", 4)
    bench.demand("hpc", demand)
    cordon(bench, "h2")
    assert shares(bench) == expected


def test_what_nobody_demands_stays_where_it_is_beside_a_cordoned_host() -> None:
    bench = Bench(HPC, ART)
    bench.settle()
    assert bench.held() == {"art": 2, "hpc": 2}
    cordon(bench, sorted(bench.custody.index.held["art"])[0])
    assert bench.settle() == []
    assert quotas(bench) == {"art": 2, "hpc": 2}


def test_web_has_no_more_than_its_maximum_with_a_cordoned_host_that_it_uses() -> None:
    bench = Bench(HPC, msgspec.structs.replace(WEB, maximum=1))
    bench.demand("web", 1)
    bench.settle()
    bench.write("scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h0",), cores=1, memory_mb=1))
    cordon(bench, "h0")
    bench.demand("web", 3)
    assert shares(bench) == {"hpc": 3, "web": 1}


def test_a_cordoned_host_that_web_does_not_use_serves_no_demand_even_what_is_wanted_if_idle() -> None:
    bench = Bench()
    wish(bench, "web", 2)
    bench.settle()
    cordon(bench, "h0")
    assert shares(bench) == {"hpc": 1, "web": 3}
    bench = Bench()
    wish(bench, "web", 0, if_idle=2)
    bench.settle()
    occupy(bench, *sorted(bench.custody.index.held["hpc"]))
    cordon(bench, "h0")
    assert shares(bench) == {"hpc": 2, "web": 2}


def test_a_drained_host_is_seized_at_the_moment_at_which_it_wakes_up() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0")
    cordon(bench, "h0", 10.0)
    bench.settle()
    bench.now = bench.core.wake_at()
    assert seized(bench) == ["h0"]


def test_free_hosts_are_granted_by_name_whichever_was_cleared_first() -> None:
    bench = Bench(HPC, BIO, hosts=0)
    for number in (1, 0):
        bench.write("executor", f.HostDescribed(host=f"h{number}", one_id=number, cores=2, memory_mb=1000))
        bench.write("executor", f.HostCleared(host=f"h{number}"))
    bench.settle()
    assert {dept: list(hosts) for dept, hosts in bench.custody.index.held.items()} == {"bio": ["h0"], "hpc": ["h1"]}
