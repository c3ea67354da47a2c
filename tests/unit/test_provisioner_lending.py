"""Windows and contracts in the arbiter: what changes with the hours, what is lent, on what notice, what is earned."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, Lending
from services.domain.core import NEVER
from services.domain.custody.rules import RULES
from services.domain.sharing import lending
from services.domain.sharing.credit import BONUS_MAX, HALF_LIFE_S, Credits, Earned
from services.domain.sharing.host_ownership import whereabouts
from services.domain.sharing.loans import NOBODY, Loan, fit
from services.provisioner.core.policies.contracts import targets_within
from services.provisioner.core.policies.phoenix import Claim, targets
from services.provisioner.core.provisioner import ProvisionerCore
from tests.unit.test_provisioner_core import HPC, WEB, Bench
from tests.unit.test_provisioner_targets import CLAIMS

BIO = Department(name="bio", kind="batch")
DAY = Department(name="bio", kind="batch", windows=("daily 08:00-18:00 guarantee 3 maximum 3",))
MORNING, EVENING = 8 * 3600.0, 18 * 3600.0


def bench(*departments: Department, contracts: tuple[Lending, ...] = (), hosts: int = 4) -> Bench:
    made = Bench(*departments, hosts=hosts)
    config = made.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, lending=contracts)
    made.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    return made


def quotas(facts: list[f.Fact]) -> dict[str, tuple[int, float]]:
    return {x.dept: (x.hosts, x.by) for x in facts if isinstance(x, f.QuotaChanged)}


def reasons(facts: list[f.Fact]) -> dict[str, because.Kind]:
    return {x.dept: type(x.reason) for x in facts if isinstance(x, f.QuotaChanged) and x.reason is not None}


def run(made: Bench, job: str, *hosts: str, dept: str = "hpc") -> None:
    """A job on each of `hosts`."""
    for number, host in enumerate(hosts):
        name = str(int(job) + number)
        fact = f.JobSubmitted(job=name, dept=dept, user="a", name="j", payload="p", walltime_s=9.0)
        made.write("admission", fact)
        made.write(f"scheduler.{dept}", f.UnitPlaced(unit=name, attempt=1, hosts=(host,), cores=1, memory_mb=1))


# ---------------------------------------------------------------------------------------------------------------- windows


def test_a_window_that_opens_wakes_the_core_and_brings_its_guarantee() -> None:
    made = bench(HPC, DAY)
    made.demand("hpc", 4)
    made.settle()
    run(made, "1", "h0", "h1", "h2", "h3")
    made.demand("bio", 4)
    made.now = 200.0
    made.settle()
    assert made.held() == {"hpc": 4}  # an occupied host is not taken for a weight
    made.now = MORNING - 1
    made.settle()
    assert made.core.wake_at() == MORNING
    made.now = MORNING
    facts = made.decide()
    assert quotas(facts) == {"hpc": (1, MORNING + 0.3), "bio": (3, MORNING + 0.3)}
    assert reasons(facts)["hpc"] is because.Window
    assert made.core.wake_at() == MORNING + 0.3


def test_at_its_end_a_window_gives_back_what_it_kept_from_others() -> None:
    made = bench(HPC, DAY)
    made.now = MORNING
    made.demand("bio", 4)
    made.settle()
    assert made.held() == {"bio": 3, "hpc": 1}
    assert made.core.wake_at() == EVENING
    made.now = EVENING
    assert quotas(made.settle()) == {"bio": (4, EVENING + 0.3), "hpc": (0, EVENING + 0.3)}


# -------------------------------------------------------------------------------------------------------------- contracts


def test_a_contract_bounds_what_web_may_take() -> None:
    made = bench(HPC, WEB, contracts=(Lending(lender="hpc", borrower="web", hosts=1),))
    made.demand("web", 3)
    made.settle()
    assert {d: q.hosts for d, q in made.custody.state.quotas.items()} == {"hpc": 3, "web": 1}


def test_a_contract_for_the_night_ends_in_the_morning_on_its_own_notice() -> None:
    night = Lending(lender="hpc", borrower="bio", notice_s=60.0, windows=("daily 20:00-08:00",))
    made = bench(HPC, msgspec.structs.replace(BIO, maximum=4), contracts=(night,))
    made.demand("bio", 4)
    made.settle()
    assert made.held() == {"bio": 4}
    run(made, "1", "h0", "h1", "h2", "h3", dept="bio")
    made.now = MORNING
    facts = made.decide()
    assert quotas(facts)["bio"] == (2, MORNING + 60.0)
    assert reasons(facts)["bio"] is because.Lending
    made.now = MORNING + 59.9
    assert made.decide() == []
    made.now = MORNING + 60.0
    assert [x.host for x in made.decide() if isinstance(x, f.HostSeized)] == ["h0", "h1"]


def test_what_nobody_may_borrow_stays_free_for_its_owner() -> None:
    shop = msgspec.structs.replace(WEB, guarantee=2)
    made = bench(HPC, shop, contracts=(Lending(lender="web", borrower="*", hosts=0),))
    made.settle()
    assert made.held() == {"hpc": 2}
    made.demand("web", 2)
    assert sorted(x.dept for x in made.settle() if isinstance(x, f.HostGranted)) == ["web", "web"]


@pytest.mark.parametrize("notice_s", [30.0, None])
def test_notice_is_that_of_the_pair_where_a_lender_wants_its_own_back(notice_s: float | None) -> None:
    bio = msgspec.structs.replace(BIO, guarantee=2)
    made = bench(HPC, bio, contracts=(Lending(lender="bio", borrower="hpc", notice_s=notice_s),))
    made.demand("hpc", 4)
    made.settle()
    run(made, "1", "h0", "h1", "h2", "h3")
    made.demand("bio", 2)
    facts = made.decide()
    assert quotas(facts)["hpc"] == (2, pytest.approx(100.0 + (notice_s or 0.3)))
    assert reasons(facts)["hpc"] is because.Lending


def test_web_still_has_its_hosts_on_the_policys_notice() -> None:
    made = bench(HPC, BIO, WEB, contracts=(Lending(lender="bio", borrower="hpc", notice_s=30.0),))
    made.demand("hpc", 4)
    made.settle()
    made.demand("web", 1)
    assert quotas(made.decide())["hpc"] == (3, pytest.approx(100.3))


def due(made: Bench, dept: str) -> list[tuple[int, float]]:
    return [(hosts, pytest.approx(by)) for hosts, by in made.custody.quota(dept).lowerings]


LONG = Lending(lender="hpc", borrower="bio", notice_s=600.0)


def three(web: int = 0) -> Bench:
    """bio holds ten hosts, six of which are hpc's."""
    hpc, shop = msgspec.structs.replace(HPC, guarantee=6), msgspec.structs.replace(WEB, guarantee=web)
    made = bench(hpc, BIO, shop, contracts=(LONG,), hosts=10)
    made.demand("bio", 10)
    made.settle()
    run(made, "1", *(f"h{n}" for n in range(10)), dept="bio")
    return made


def test_two_who_claim_at_once_have_each_its_own_notice() -> None:
    made = three()
    made.demand("hpc", 6)
    made.demand("web", 1)
    made.settle()
    assert due(made, "bio") == [(9, 100.3), (3, 700.0)]


def test_who_claims_later_on_a_shorter_notice_shortens_nobody_elses() -> None:
    made = three()
    made.demand("hpc", 6)
    made.settle()
    assert due(made, "bio") == [(4, 700.0)]
    made.now = 200.0
    made.demand("web", 1)
    made.settle()
    assert due(made, "bio") == [(9, 200.3), (4, 700.0), (3, 800.0)]
    made.write("scheduler.bio", f.HostReleased(host="h0"))
    assert made.settle() == []  # it is on its way to web
    made.write("executor", f.HostCleared(host="h0"))
    made.settle()
    assert made.held() == {"bio": 9, "web": 1}
    assert due(made, "bio") == [(4, 700.0), (3, 800.0)]
    made.now = 700.0
    assert sum(isinstance(x, f.HostSeized) for x in made.decide()) == 5


def test_what_was_told_stands_when_a_borrower_has_no_more_than_its_own_left() -> None:
    hpc = msgspec.structs.replace(HPC, guarantee=4)
    made = bench(hpc, BIO, WEB, contracts=(msgspec.structs.replace(LONG, notice_s=40.0),), hosts=6)
    made.demand("web", 1)
    made.demand("bio", 5)
    made.settle()
    run(made, "1", *sorted(made.custody.index.held["bio"]), dept="bio")
    made.demand("hpc", 4)
    made.settle()
    made.now = 104.0
    made.demand("web", 2)
    made.settle()
    assert due(made, "bio") == [(4, 104.3), (1, 140.0), (0, 144.0)]
    made.write("scheduler.bio", f.HostReleased(host="h1"))
    made.write("executor", f.HostCleared(host="h1"))
    made.settle()
    made.now = 139.0
    for host in ("h2", "h3", "h4"):
        made.write("scheduler.bio", f.HostReleased(host=host))
        made.settle()
    assert due(made, "bio") == [(0, 144.0)]


def test_web_has_its_hosts_on_the_policys_notice_though_the_quota_is_as_low_already() -> None:
    made = bench(HPC, BIO, WEB, contracts=(msgspec.structs.replace(LONG, deadline_s=50.0),), hosts=10)
    made.demand("bio", 10)
    made.settle()
    run(made, "1", *(f"h{n}" for n in range(10)), dept="bio")
    made.demand("hpc", 10)
    made.now = 200.0
    made.settle()
    assert due(made, "bio") == [(5, 800.0)]
    made.demand("web", 2)
    made.settle()
    assert due(made, "bio") == [(8, 200.3), (5, 800.0)]


def test_an_occupied_host_comes_back_at_its_deadline_and_not_before() -> None:
    made = bench(HPC, BIO, contracts=(Lending(lender="bio", borrower="hpc", deadline_s=600.0, notice_s=5.0),))
    made.demand("hpc", 4)
    made.settle()
    run(made, "1", "h0", "h1", "h2", "h3")
    made.demand("bio", 4)
    assert quotas(made.settle()) == {}
    assert made.core.wake_at() == 700.0
    made.now = 700.0
    facts = made.settle()
    assert quotas(facts) == {"hpc": (2, 705.0), "bio": (2, 700.3)}  # its own, and not what is beyond
    made.write("scheduler.hpc", f.HostReleased(host="h3"))
    assert made.settle() == []  # one is on its way, the other one still asked for
    made.now = 705.0
    made.settle()
    for host in ("h0", "h3"):
        made.write("executor", f.HostCleared(host=host))
        made.settle()
    assert made.held() == {"hpc": 2, "bio": 2}
    made.now = 5000.0
    assert made.settle() == []


def test_idle_hosts_of_a_lender_are_lent_though_hosts_are_free_that_nobody_may_borrow() -> None:
    shop = msgspec.structs.replace(WEB, guarantee=2)
    made = bench(HPC, BIO, shop, contracts=(Lending(lender="web", borrower="*", hosts=0),), hosts=6)
    made.demand("hpc", 4)
    made.settle()
    assert made.held() == {"hpc": 4}  # bio's idle ones work for it, web's may not
    made.demand("bio", 2)
    made.settle()
    assert made.held() == {"hpc": 4, "bio": 2}
    assert due(made, "hpc") == [(2, 100.3)]
    made.now = 100.3
    made.settle()
    assert made.settle() == []


def test_web_is_served_from_whom_it_may_borrow_though_batch_could_use_all_of_that() -> None:
    shut = Department(name="shut", kind="web", guarantee=2)
    made = bench(HPC, WEB, shut, contracts=(Lending(lender="shut", borrower="*", hosts=0),), hosts=6)
    made.demand("hpc", 6)
    made.settle()
    assert made.held() == {"hpc": 4}
    run(made, "1", "h0", "h1", "h2", "h3")
    made.demand("web", 2)
    facts = made.settle()
    assert {d: q.hosts for d, q in made.custody.state.quotas.items()} == {"hpc": 2, "web": 2}
    assert (
        sum(isinstance(x, f.HostGranted) for x in facts) == 2
    )  # hosts are alike: those of shut that are free are used at once


def test_a_restarted_core_decides_the_same_in_the_middle_of_loans() -> None:
    made = bench(HPC, BIO, contracts=(Lending(lender="*", borrower="*", deadline_s=600.0, notice_s=5.0, credit=1.0),))
    made.demand("hpc", 4)
    made.settle()
    run(made, "1", "h0", "h1", "h2", "h3")
    made.demand("bio", 4)
    for now in (200.0, 700.0, 703.0):
        made.now = now
        made.settle()
        again = ProvisionerCore(made.custody)
        again.load(made.core.dump())
        assert again.decide(now) == []
        assert again.wake_at() == made.core.wake_at()
        assert again.targets.at(now).wanted == made.core.targets.at(now).wanted


# ----------------------------------------------------------------------------------------------------------------- credit


def earned(credit: float, release_at: float) -> Credits:
    bio = msgspec.structs.replace(BIO, guarantee=2)
    made = bench(HPC, bio, contracts=(Lending(lender="bio", borrower="hpc", notice_s=600.0, credit=credit),))
    made.demand("hpc", 4)
    made.settle()
    made.demand("bio", 2)
    made.settle()
    made.now = 100.0 + release_at
    made.write("scheduler.hpc", f.HostReleased(host="h0"))
    made.write("scheduler.hpc", f.HostReleased(host="h1"))
    return made.core._state.credits


@pytest.mark.parametrize(
    ("credit", "release_at", "expected"),
    [(1.0, 0.0, 1200.0), (2.0, 100.0, 2000.0), (0.0, 0.0, None), (1.0, 601.0, None)],
)
def test_what_is_given_back_before_it_is_due_is_earned(
    credit: float, release_at: float, expected: float | None
) -> None:
    found = earned(credit, release_at).earned.get("hpc")
    assert found is None if expected is None else found is not None and found.hosts_s == pytest.approx(expected)
    assert expected is None or not earned(credit, release_at).due  # the notice is answered


def test_a_release_without_notice_earns_nothing() -> None:
    made = bench(HPC, BIO, contracts=(Lending(lender="*", borrower="*", notice_s=600.0, credit=1.0),))
    made.settle()
    made.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert made.core._state.credits.earned == {}


@given(st.floats(0, 1e9), st.integers(0, 100), st.floats(0, 1e7), st.floats(0, 1e7))
def test_what_is_earned_is_bounded_fades_and_comes_to_rest(hosts_s: float, own: int, now: float, later: float) -> None:
    credits = Credits(earned={"a": Earned(hosts_s=hosts_s, at=0.0)})
    first, second = credits.bonus("a", own, now), credits.bonus("a", own, now + later)
    assert 0.0 <= second <= first <= BONUS_MAX
    until = credits.next_moment({"a": own}, now)
    assert until > now
    if until == NEVER:
        assert first == 0.0
    else:
        assert credits.bonus("a", own, (now + until) / 2) == first
    assert credits.next_moment({"a": own}, now + 60 * HALF_LIFE_S) == NEVER


def test_who_was_early_is_served_first() -> None:
    made = bench(HPC, BIO, contracts=(Lending(lender="*", borrower="*", credit=1.0),), hosts=5)
    made.core._state.credits.earned["hpc"] = Earned(hosts_s=1e9, at=100.0)
    made.demand("hpc", 5)
    made.demand("bio", 5)
    own = lending.owned(made.custody.state.config or CloudConfig(name="c", departments=()), 100.0, 5)
    assert own == {"hpc": 2, "bio": 3}
    made.settle()
    assert made.held() == {"hpc": 2, "bio": 3}  # own hosts come first …
    made = bench(HPC, BIO, contracts=(Lending(lender="web", borrower="*", credit=1.0),), hosts=5)
    made.core._state.credits.earned["hpc"] = Earned(hosts_s=1e9, at=100.0)
    made.demand("hpc", 5)
    made.demand("bio", 5)
    made.settle()
    assert made.held() == {"hpc": 3, "bio": 2}  # … and of what is divided by weight the early one has more


# --------------------------------------------------------------------------------------------------------------- the flow


def test_a_borrower_is_moved_to_another_lender_so_that_both_are_served() -> None:
    most = {("a", "x"): 2, ("b", "x"): 2, ("a", "y"): 2, ("b", "y"): 0}
    found = fit({"x": 2, "y": 2}, {"a": 2, "b": 2}, 4, lambda lender, borrower: most[lender, borrower])
    assert (found.lent, found.unmet) == ({("b", "x"): 2, ("a", "y"): 2}, {})


NAMES = "abcd"
TABLES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6))


@given(TABLES, TABLES, st.dictionaries(st.tuples(st.sampled_from(NAMES), st.sampled_from("wxyz")), st.integers(0, 6)))
def test_a_flow_keeps_limits_and_is_as_large_as_it_can_be(
    excess: dict[str, int], spare: dict[str, int], limits: dict[tuple[str, str], int]
) -> None:
    excess = {"wxyz"[NAMES.index(name)]: hosts for name, hosts in sorted(excess.items())}
    lent, _, unmet = fit(excess, spare, sum(spare.values()), lambda lender, borrower: limits.get((lender, borrower), 0))
    for pair, hosts in lent.items():
        assert 0 < hosts <= limits[pair]
    for borrower, hosts in excess.items():
        assert sum(n for (_, b), n in lent.items() if b == borrower) + unmet.get(borrower, 0) == hosts
    for lender, hosts in spare.items():
        assert sum(n for (one, _), n in lent.items() if one == lender) <= hosts
    cuts = (  # as much as the smallest cut lets through (Ford and Fulkerson)
        sum(excess[b] for b in excess if b not in kept)
        + sum(min(spare[one], sum(limits.get((one, b), 0) for b in kept)) for one in spare)
        for kept in _subsets(list(excess))
    )
    assert sum(lent.values()) == min(cuts)


def _subsets(names: list[str]) -> list[list[str]]:
    return [[n for i, n in enumerate(names) if bits >> i & 1] for bits in range(1 << len(names))]


def test_what_its_owner_does_not_need_is_lent_before_anybody_has_it_idle() -> None:
    limit = {("web", "hpc"): 0, ("web", "bio"): 0}
    claims = [
        Claim(name="hpc", web=False, demand=4),
        Claim(name="bio", web=False, demand=0, own=2),
        Claim(name="web", web=True, demand=0, guarantee=2),
    ]
    own = {"hpc": 2, "bio": 2, "web": 2}
    found = targets_within(claims, 6, "", own, lambda one, other: limit.get((one, other), lending.UNLIMITED))
    assert found == {"hpc": 4, "bio": 0, "web": 0}


def test_web_has_its_host_beside_guarantees_that_are_not_claimed() -> None:
    claims = [
        Claim(name="a", web=False, demand=3, guarantee=2),
        Claim(name="b", web=False, demand=1, guarantee=2),
        Claim(name="c", web=True, demand=1),
        Claim(name="d", web=False, demand=4),
    ]
    limit = {("b", "c"): 0, ("a", "d"): 1, ("b", "d"): 0}
    own = {"a": 3, "b": 2, "c": 0, "d": 0}
    found = targets_within(claims, 5, "", own, lambda one, other: limit.get((one, other), lending.UNLIMITED))
    assert found["c"] == 1


LIMITS = st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.integers(0, 5))


@given(CLAIMS, st.integers(0, 40), LIMITS, st.data())
def test_quotas_within_contracts(
    claims: list, usable: int, limits: dict[tuple[str, str], int], data: st.DataObject
) -> None:
    own, rest = {}, usable
    for claim in claims:
        own[claim.name] = min(rest, claim.maximum, claim.guarantee + data.draw(st.integers(0, 8)))
        rest -= own[claim.name]

    def most(lender: str, borrower: str) -> int:
        return lending.UNLIMITED if lender == NOBODY else limits.get((lender, borrower), lending.UNLIMITED)

    web = [c.name for c in claims if c.web]
    quota = targets_within(claims, usable, "", own, most)
    assert sum(quota.values()) <= usable
    for claim in claims:
        assert 0 <= quota[claim.name] <= claim.maximum
    assert fit(quota, own, usable, most, web).unmet == {}
    before = targets(claims, usable)
    if not fit(before, own, usable, most, web).unmet:
        assert quota == before
    promised = {c.name: min(c.guarantee, c.maximum, c.demand) for c in claims}
    if sum(min(c.guarantee, c.maximum) for c in claims) <= usable and all(
        own[c.name] >= promised[c.name] for c in claims
    ):
        assert all(quota[name] >= hosts for name, hosts in promised.items())

    def may_move(one: str, other: str) -> bool:
        """True if `one` may have a host of `other`'s."""
        moved = {**quota, one: quota[one] + 1, other: quota[other] - 1}
        return not fit(moved, own, usable, most, web).unmet

    guaranteed = {c.name: min(c.guarantee, c.maximum) for c in claims}
    if sum(guaranteed.values()) > usable or any(own[name] < hosts for name, hosts in guaranteed.items()):
        return
    for claim in (c for c in claims if quota[c.name] < min(c.demand, c.maximum)):
        for other in (c for c in claims if not c.web and c.name != claim.name and quota[c.name] > guaranteed[c.name]):
            if claim.web or quota[other.name] > max(other.demand, other.occupied):  # web goes first, and nobody idles
                assert not may_move(claim.name, other.name)


# ------------------------------------------------------------------------------------------------------------ whereabouts


def test_each_host_says_whose_it_is_and_when_it_is_due() -> None:
    made = bench(HPC, BIO, contracts=(Lending(lender="bio", borrower="hpc", deadline_s=600.0),))
    made.demand("hpc", 4)
    made.settle()
    rows = {w.host: (w.owner, w.holder, w.lent, w.due_at) for w in whereabouts(made.custody, made.now)}
    mine, lent = ("hpc", "hpc", False, None), ("bio", "hpc", True, 700.0)
    assert rows == {"h0": mine, "h1": mine, "h2": lent, "h3": lent}
    made.write("scheduler.hpc", f.HostReleased(host="h0"))
    made.write("executor", f.HostLost(host="h1", reason="gone"))
    rows = {w.host: (w.owner, w.holder, w.lent, w.due_at) for w in whereabouts(made.custody, made.now)}
    assert rows["h0"] == ("bio", "hpc", False, None)  # on its way to whose hosts are missing
    assert rows["h1"] == (None, None, False, None)
    assert [rows[h][0] for h in ("h2", "h3")] == ["hpc", "bio"]  # of three hosts two are bio's: ties by name


def test_what_is_lent_beyond_the_hours_is_marked() -> None:
    from services.domain.sharing.loans import loans

    config = CloudConfig(
        name="c",
        departments=(HPC, BIO),
        lending=(Lending(lender="hpc", borrower="bio", hosts=3, windows=("daily 20:00-08:00",)),),
    )
    own, held = {"hpc": 4, "bio": 4}, {"bio": 7, "hpc": 1}
    assert loans(config, 0.0, own, held, 8) == [Loan("hpc", "bio", 3)]
    assert loans(config, MORNING, own, held, 8) == [Loan("hpc", "bio", 3, over=3)]
