"""The arbiter's decisions on folded states: quotas, grants, notice, seizure, cordons, removed departments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Policy, WebPolicy
from schemas.facts import Fact
from services.domain.core import NEVER
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.provisioner.core.grants import grants
from services.provisioner.core.provisioner import ProvisionerCore
from services.provisioner.core.turns import TURN_S, turn
from tests.support.entered import entered

# The core with its state, the targets with the policy and max-min, hours of guarantees, quotas, usable hosts, custody.
FILES_MAX = 9
CANCELLED = f.Disposal.CANCELLED
HPC = Department(name="hpc", kind="batch", batch=BatchPolicy())
WEB = Department(name="web", kind="web", web=WebPolicy())


class Bench:
    """A provisioner that folds what it decides and whatever others write."""

    def __init__(self, *departments: Department, hosts: int = 4) -> None:
        self.custody = Custody()
        self.core = ProvisionerCore(self.custody)
        self.position = 0
        self.now = 100.0
        config = CloudConfig(name="c", departments=departments or (HPC, WEB), policy=Policy(notice_s=0.3))
        self.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
        for n in range(hosts):
            self.write("executor", f.HostDescribed(host=f"h{n}", one_id=n, cores=2, memory_mb=1000))
            self.write("executor", f.HostCleared(host=f"h{n}"))

    def write(self, writer: str, *facts: Fact) -> None:
        self.position += 1
        for index, fact in enumerate(facts):
            void = fold_fact(self.custody, fact, self.position, index, writer, self.now)
            meta = Meta(position=self.position, index=index, writer=writer, at=self.custody.state.at, void=void)
            self.core.apply(fact, meta)
            assert check(self.custody) == []
            assert self.core.check() == []

    def demand(self, dept: str, hosts: int) -> None:
        self.write(f"scheduler.{dept}", f.DemandChanged(dept=dept, hosts=hosts))

    def decide(self) -> list[Fact]:
        facts = self.core.decide(self.now)
        self.write("provisioner", *facts)
        return facts

    def settle(self) -> list[Fact]:
        found: list[Fact] = []
        while facts := self.decide():
            found += facts
        return found

    def held(self) -> dict[str, int]:
        return {d: len(h) for d, h in self.custody.index.held.items() if h}


def kinds(facts: list[Fact]) -> list[str]:
    return [f.kind_of(x) for x in facts]


def test_idle_hosts_all_go_to_batch_in_one_envelope() -> None:
    bench = Bench()
    assert kinds(bench.decide()) == ["quota.changed", *["host.granted"] * 4]
    assert bench.held() == {"hpc": 4}
    assert bench.decide() == []
    assert bench.core.wake_at() == NEVER


def test_a_claim_lowers_the_quota_at_once_and_seizes_after_the_notice() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 3)
    facts = bench.decide()
    lowered = {x.dept: (x.hosts, x.by) for x in facts if isinstance(x, f.QuotaChanged)}
    assert lowered == {"hpc": (1, pytest.approx(100.3)), "web": (3, pytest.approx(100.3))}
    assert bench.core.wake_at() == pytest.approx(100.3)
    bench.now = 100.29
    assert bench.decide() == []
    bench.now = 100.3
    facts = bench.decide()
    assert kinds(facts) == ["host.seized"] * 3
    assert {type(x.reason) for x in facts if isinstance(x, f.HostSeized) and x.reason} == {because.NoticeExpired}


def test_a_holder_that_releases_in_time_is_never_seized_from() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 1)
    bench.decide()
    bench.write("scheduler.hpc", f.HostReleased(host="h2"))
    bench.now += 1
    assert bench.decide() == []  # draining: counted as usable, granted to nobody
    bench.write("executor", f.HostCleared(host="h2"))
    assert [(x.host, x.dept) for x in bench.decide() if isinstance(x, f.HostGranted)] == [("h2", "web")]


def occupy(bench: Bench, *hosts: str, dept: str = "hpc") -> None:
    """A job of one host on each of these, which the department holds."""
    for host in hosts:
        job = str(bench.custody.state.job_last + 1)
        bench.write("admission", f.JobSubmitted(job=job, dept=dept, user="a", name="j", payload="p", walltime_s=9.0))
        placed = f.UnitPlaced(unit=job, attempt=1, hosts=(host,), cores=1, memory_mb=1)
        bench.write(f"scheduler.{dept}", placed)


def cordon(bench: Bench, host: str, drain_s: float | None = None) -> None:
    until = None if drain_s is None else bench.now + drain_s
    fact = f.HostCordoned(host=host, reason="fan", user="oscar", drain=until is not None, until=until)
    bench.write("admission", fact)


def seized(bench: Bench) -> list[str]:
    return [x.host for x in bench.decide() if isinstance(x, f.HostSeized)]


def test_seizure_takes_idle_hosts_first_and_no_cordoned_one() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0")
    cordon(bench, "h1")
    bench.demand("web", 2)
    bench.decide()
    bench.now += 1
    assert seized(bench) == ["h2", "h3"]


def test_seizure_takes_hosts_whose_instances_drain_before_those_that_serve() -> None:
    """As many instances on each: the department has chosen those that drain."""
    bench = Bench()
    bench.demand("web", 4)
    bench.settle()
    for number in range(4):
        placed = f.UnitPlaced(unit=f"web.{number + 1}", attempt=1, hosts=(f"h{number}",), cores=1, memory_mb=1)
        bench.write("scheduler.web", placed)
    why = because.Rolling()
    bench.write("scheduler.web", f.InstanceDraining(unit="web.3", attempt=1, until=bench.now + 99, reason=why))
    bench.demand("web", 3)
    bench.demand("hpc", 4)
    bench.decide()
    bench.now += 1
    assert seized(bench) == ["h2"]


def test_nobody_is_asked_for_a_cordoned_host_that_it_uses() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0", "h1", "h2", "h3")
    cordon(bench, "h0")
    assert bench.settle() == []  # no notice: it may keep all four
    assert bench.custody.quota("hpc").hosts == 4
    bench.demand("web", 4)
    bench.settle()
    assert (
        bench.custody.quota("hpc").hosts == 1
    )  # what is left beside web is the cordoned one, which serves nobody else
    bench.now += 1
    assert seized(bench) == ["h1", "h2", "h3"]


def test_what_uses_a_cordoned_host_counts_for_its_department_and_is_replaced_for_nobody() -> None:
    """Its demand, guarantee and maximum are met by the host that it still uses; when it is gone, by another one."""
    capped = Department(name="bio", kind="batch", batch=BatchPolicy(), maximum=2)
    bench = Bench(capped, msgspec.structs.replace(HPC, guarantee=1), hosts=4)
    bench.demand("bio", 3)
    bench.settle()
    assert bench.held() == {"bio": 2, "hpc": 2}
    (mine, *_) = sorted(bench.custody.index.held["bio"])
    occupy(bench, mine, dept="bio")
    cordon(bench, mine)
    assert bench.settle() == []
    bench.write("admission", f.JobCancelled(job="1", user="a"))
    bench.write("scheduler.bio", f.AttemptClosed(unit="1", attempt=1, disposal=CANCELLED, why=because.Cancelled()))
    bench.write("scheduler.bio", f.HostReleased(host=mine))
    bench.write("executor", f.HostCleared(host=mine))
    bench.settle()
    assert (bench.custody.quota("bio").hosts, bench.held()) == (
        2,
        {"bio": 1, "hpc": 2},
    )  # hpc is asked for its idle one
    bench.now += 1
    assert len(seized(bench)) == 1


def test_a_web_department_that_uses_a_cordoned_host_gets_as_many_others_as_it_still_needs() -> None:
    bench = Bench()
    bench.demand("web", 2)
    bench.settle()
    (mine, other) = sorted(bench.custody.index.held["web"])
    for number, host in enumerate((mine, other), 1):
        placed = f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=(host,), cores=1, memory_mb=1)
        bench.write("scheduler.web", placed)
    cordon(bench, mine)
    assert bench.settle() == []
    bench.demand("web", 3)  # the cordoned one until it is left, and two for as many instances
    bench.settle()
    assert (bench.custody.quota("web").hosts, bench.custody.quota("hpc").hosts) == (3, 1)


@pytest.mark.parametrize("drain_s", [10.0, None])
def test_a_drained_host_is_seized_one_notice_after_its_deadline_whatever_the_quota(drain_s: float | None) -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0")
    cordon(bench, "h0", drain_s)
    assert bench.settle() == []
    assert bench.core.wake_at() == (NEVER if drain_s is None else pytest.approx(110.3))
    bench.now = 110.29
    assert bench.decide() == []
    bench.now = 110.31
    assert seized(bench) == ([] if drain_s is None else ["h0"])
    assert bench.custody.state.voids == {}


def test_cordoned_hosts_of_a_removed_department_all_come_back() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0")
    cordon(bench, "h0")
    config = CloudConfig(name="c", departments=(WEB,), policy=Policy(notice_s=0.3))
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    bench.settle()
    bench.now += 1
    assert sorted(seized(bench)) == ["h0", "h1", "h2", "h3"]


def test_a_withdrawn_claim_seizes_nothing() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 3)
    bench.decide()
    bench.demand("web", 0)
    bench.decide()
    bench.now += 1
    assert bench.decide() == []
    assert bench.held() == {"hpc": 4}


def test_cordoned_free_hosts_are_not_granted() -> None:
    bench = Bench()
    bench.write("admission", f.HostCordoned(host="h1", reason="disk", user="oscar"))
    bench.settle()
    assert sorted(bench.custody.index.held["hpc"]) == ["h0", "h2", "h3"]
    bench.write("admission", f.HostUncordoned(host="h1", reason="", user="oscar"))
    bench.settle()
    assert bench.held() == {"hpc": 4}


def test_quarantine_ends_by_itself() -> None:
    bench = Bench()
    bench.write("executor", f.HostQuarantined(host="h1", reason="3 failed launches", until=110.0))
    bench.settle()
    assert bench.held() == {"hpc": 3}
    assert bench.core.wake_at() == 110.0
    bench.now = 110.0
    bench.settle()
    assert bench.held() == {"hpc": 4}


def test_a_removed_department_loses_its_hosts_without_its_scheduler() -> None:
    bench = Bench()
    bench.settle()
    left = CloudConfig(name="c", departments=(WEB,))
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=left))
    facts = bench.decide()
    assert [(x.dept, x.hosts) for x in facts if isinstance(x, f.QuotaChanged)] == [("hpc", 0)]
    bench.now += 1
    assert kinds(bench.decide()) == ["host.seized"] * 4


def test_two_batch_departments_share_idle_hosts_by_weight() -> None:
    bench = Bench(HPC, Department(name="bio", kind="batch", weight=3.0))
    bench.demand("hpc", 4)
    bench.demand("bio", 4)
    bench.settle()
    assert bench.held() == {"hpc": 1, "bio": 3}


def test_an_idle_host_moves_to_the_batch_department_that_needs_it() -> None:
    bench = Bench(HPC, Department(name="bio", kind="batch"))
    bench.demand("hpc", 4)
    bench.settle()
    assert bench.held() == {"hpc": 4}
    bench.demand("hpc", 1)
    bench.demand("bio", 2)
    facts = bench.decide()
    assert {x.dept: x.hosts for x in facts if isinstance(x, f.QuotaChanged)} == {"bio": 2, "hpc": 2}


def why(facts: list[Fact]) -> dict[str, tuple[because.Kind, dict[str, Any]]]:
    """Department -> the reason of its new quota."""
    return {
        x.dept: (type(x.reason), because.fields(x.reason)) for x in facts if isinstance(x, f.QuotaChanged) and x.reason
    }


def test_a_quota_says_for_whom_it_falls() -> None:
    bench = Bench()
    assert why(bench.settle()) == {"hpc": (because.IdleToBatch, {"department": "hpc", "held": 0})}
    bench.demand("web", 2)
    assert why(bench.decide()) == {
        "hpc": (because.WebDemand, {"departments": ["web"], "held": 4}),
        "web": (because.WebDemand, {"department": "web", "demand": 2, "held": 0}),
    }


def test_a_quota_that_falls_for_several_names_each() -> None:
    bench = Bench(HPC, WEB, Department(name="shop", kind="web", web=WebPolicy()), Department(name="bio", kind="batch"))
    bench.demand("hpc", 4)
    bench.settle()
    bench.demand("web", 1)
    bench.demand("shop", 1)
    [fallen] = [x for x in bench.decide() if isinstance(x, f.QuotaChanged) and x.dept == "hpc"]
    assert (fallen.claimants, fallen.reason) == (
        ("web", "shop"),
        because.WebDemand(departments=["web", "shop"], held=4),
    )


def test_a_quota_that_falls_for_another_batch_department_says_so() -> None:
    bench = Bench(HPC, Department(name="bio", kind="batch"))
    bench.demand("hpc", 4)
    bench.settle()
    bench.demand("bio", 2)
    facts = bench.decide()
    assert why(facts)["hpc"] == (because.BatchShare, {"department": "hpc", "held": 4})
    assert [x.claimants for x in facts if isinstance(x, f.QuotaChanged) and x.dept == "hpc"] == [("bio",)]


def test_a_quota_of_web_that_falls_for_another_of_higher_priority_names_it() -> None:
    bench = Bench(HPC, WEB, Department(name="shop", kind="web", priority=5, web=WebPolicy()))
    bench.demand("web", 4)
    bench.settle()
    bench.demand("shop", 1)
    assert why(bench.decide()) == {
        "web": (because.WebShare, {"departments": ["shop"], "demand": 4, "held": 4, "quota": 3}),
        "shop": (because.WebDemand, {"department": "shop", "demand": 1, "held": 0}),
    }


def test_a_removed_department_is_told_that_it_was_removed() -> None:
    bench = Bench()
    bench.settle()
    config = bench.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, departments=(WEB,))
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    assert why(bench.decide()) == {"hpc": (because.DepartmentRemoved, {"department": "hpc"})}


def test_a_demand_enters_few_files_where_nothing_else_is_configured() -> None:
    """Neither turns, contracts, windows, idle surges nor leases cost the reader of this path anything."""
    bench = Bench()
    bench.settle()
    bench.demand("web", 2)
    loaded = ProvisionerCore(bench.custody)
    loaded.load(bench.core.dump())  # it works out everything anew
    facts, files = entered(lambda: loaded.decide(bench.now))
    assert [type(fact) for fact in facts] == [f.QuotaChanged, f.QuotaChanged]
    assert len(files) <= FILES_MAX, files


def test_no_configuration_no_decision() -> None:
    core = ProvisionerCore(Custody())
    assert core.decide(0.0) == []
    assert core.wake_at() == NEVER
    assert core.check() == []


@pytest.mark.parametrize("departments", [(HPC, WEB), (HPC, WEB, Department(name="bio", kind="batch"))])
def test_check_knows_a_provisioner_that_is_quiet_though_it_has_something_to_say(
    departments: tuple[Department, ...],
) -> None:
    bench = Bench(*departments)
    bench.settle()
    assert bench.decide() == []
    quiet_until = bench.core._quiet_until
    bench.demand("web", 2)
    bench.core._quiet_until = quiet_until
    assert any("it is quiet though it has to say" in problem for problem in bench.core.check())


def test_check_knows_targets_that_are_out_of_date() -> None:
    bench = Bench()
    bench.settle()
    before = bench.core.targets.division
    bench.demand("web", 2)
    bench.core.targets.division = before
    assert any(problem.startswith("targets are") for problem in bench.core.check())


@pytest.mark.parametrize("since", [454.56800000000004, 44.5, 207.79999999999998, 119.64799999999998, 1e9 + 1 / 3])
def test_a_turn_ends_later_than_it_is_looked_at(since: float) -> None:
    """Also where adding and taking away a time do not cancel out: else the core would be woken up without end."""
    bench = Bench(HPC, Department(name="bio", kind="batch"))
    bench.settle()
    bench.now = since
    bench.demand("hpc", 4)
    bench.demand("bio", 4)
    bench.settle()
    for _ in range(40):
        due = bench.core.wake_at()
        assert due > bench.now
        bench.now = due
        bench.settle()


@pytest.mark.parametrize(
    ("turns", "number", "ends"),
    [
        (-0.5, -1, 0),
        (0, 0, 1),
        (0.5, 0, 1),
        (1, 1, 2),
        (2, 2, 4),
        (4, 3, 6),
        (6, 4, 10),
        (126, 12, 190),
        (510, 18, 574),
    ],
)
def test_of_two_who_wait_each_has_a_turn_and_then_turns_are_twice_as_long_up_to_the_longest(
    turns: float, number: int, ends: float
) -> None:
    """In lengths of the first turn: from 126 of them on each is as long as 64."""
    assert turn(1000.0 + turns * TURN_S, 1000.0, 2) == (number, 1000.0 + ends * TURN_S)


def test_turns_grow_until_slow_hosts_can_be_gathered() -> None:
    """Hosts that take longer than a turn to be cleared would go from one to the other for ever."""
    bench = Bench(HPC, Department(name="bio", kind="batch"), hosts=7)
    bench.demand("hpc", 5)
    bench.demand("bio", 5)
    draining: list[tuple[float, str]] = []
    for _ in range(400):
        bench.settle()
        for dept in ("hpc", "bio"):
            spare = bench.custody.held(dept) - bench.custody.quota(dept).hosts
            for host in sorted(bench.custody.index.held.get(dept, ()))[: max(0, spare)]:
                bench.write(f"scheduler.{dept}", f.HostReleased(host=host))
                draining.append((bench.now + 40.0, host))
        if max(bench.held().values(), default=0) >= 5:
            return
        bench.now = min([bench.core.wake_at(), *(at for at, _ in draining)])
        for at, host in [x for x in draining if x[0] <= bench.now]:
            bench.write("executor", f.HostCleared(host=host))
            draining.remove((at, host))
    raise AssertionError(f"nobody ever has enough hosts: {bench.held()}")


def test_a_third_department_joins_the_line_when_it_has_waited_not_when_somebody_looks() -> None:
    """Else a restarted provisioner would decide otherwise than one that has gone on."""
    bench = Bench(HPC, Department(name="bio", kind="batch"), Department(name="art", kind="batch"), hosts=6)
    bench.demand("hpc", 5)
    bench.demand("bio", 5)
    bench.settle()
    bench.now = 115.0  # the first turn
    bench.settle()
    bench.demand("art", 5)
    bench.settle()
    assert bench.core.targets.division.until == 116.0
    for now in (115.5, 116.0, 116.5):
        bench.now = now
        bench.write(
            "admission", f.HostCordoned(host="h9", reason="unknown", user="oscar")
        )  # time passes; `check` looks
        bench.settle()


def test_of_equals_free_hosts_go_to_what_is_guaranteed_first_and_then_by_weight() -> None:
    shop = Department(name="shop", kind="web", web=WebPolicy(), weight=10.0)
    blog = Department(name="blog", kind="web", web=WebPolicy(), guarantee=3)
    config = CloudConfig(name="c", departments=(shop, blog))
    wanted = {"shop": 12, "blog": 4}
    given = [grants(config, {}, wanted, count, 100.0) for count in (3, 5, 16)]
    assert given == [{"blog": 3, "shop": 0}, {"blog": 3, "shop": 2}, {"blog": 4, "shop": 12}]
