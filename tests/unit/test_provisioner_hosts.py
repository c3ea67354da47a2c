"""Which hosts the arbiter gives to whom, which it takes, and what it says of both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, Policy, WebPolicy
from services.domain.core import NEVER
from services.domain.custody.rules import RULES
from services.provisioner.core.grants import grants
from tests.unit.test_provisioner_core import CANCELLED, HPC, WEB, Bench, cordon, kinds, occupy, seized, why

BIO = Department(name="bio", kind="batch")
SHOP = Department(name="shop", kind="web", priority=5, web=WebPolicy())


def adopt(bench: Bench, *departments: Department, notice_s: float = 0.3) -> None:
    config = CloudConfig(name="c", departments=departments, policy=Policy(notice_s=notice_s))
    bench.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))


def wish(bench: Bench, dept: str, hosts: int, **more: Any) -> None:
    bench.write(f"scheduler.{dept}", f.DemandChanged(dept=dept, hosts=hosts, **more))


def granted(facts: list[f.Fact]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fact in facts:
        if isinstance(fact, f.HostGranted):
            found.setdefault(fact.dept, []).append(fact.host)
    return found


def quotas(bench: Bench) -> dict[str, int]:
    return {name: quota.hosts for name, quota in bench.custody.state.quotas.items()}


def due(bench: Bench, dept: str) -> list[tuple[int, float]]:
    return [(hosts, pytest.approx(by)) for hosts, by in bench.custody.quota(dept).lowerings]


# ---------------------------------------------------------------------------------------------------------- which are given


def labelled(*departments: Department) -> Bench:
    """h0 has nothing, h1 a GPU, h2 a disk, h3 both."""
    bench = Bench(*departments, hosts=0)
    for number, names in enumerate(((), ("GPU",), ("DISK",), ("GPU", "DISK"))):
        labels = dict.fromkeys(names, "yes")
        described = f.HostDescribed(host=f"h{number}", one_id=number, cores=2, memory_mb=1000, labels=labels)
        bench.write("executor", described)
        bench.write("executor", f.HostCleared(host=f"h{number}"))
    return bench


@pytest.mark.parametrize(
    ("bio", "hpc", "expected"),
    [
        ((), (), "h0 h1"),  # by name
        ((), ("gpu",), "h0 h2"),  # what no other's jobs need
        (("disk",), (), "h2 h3"),  # what its own need
        (("disk",), ("gpu",), "h2 h3"),
        (("gpu",), ("disk",), "h1 h3"),
        (("disk", "gpu"), (), "h1 h2"),  # either will do
        (("disk", "gpu"), ("gpu",), "h2 h1"),
        (("host=h3",), ("disk",), "h3 h0"),  # its own need goes before another's
    ],
)
def test_of_free_hosts_a_department_has_those_first_that_its_jobs_need_and_others_do_not(
    bio: tuple[str, ...], hpc: tuple[str, ...], expected: str
) -> None:
    bench = labelled(HPC, BIO)
    wish(bench, "hpc", 2, prefer=hpc)
    wish(bench, "bio", 2, prefer=bio)
    assert granted(bench.decide())["bio"] == expected.split()


def test_what_jobs_needed_is_forgotten_with_the_next_demand() -> None:
    bench = labelled(HPC, BIO)
    wish(bench, "bio", 2, prefer=("disk",))
    wish(bench, "hpc", 2)
    wish(bench, "bio", 2)
    assert granted(bench.decide()) == {"bio": ["h0", "h1"], "hpc": ["h2", "h3"]}


def test_web_is_granted_before_batch_and_each_host_once() -> None:
    bench = Bench(HPC, BIO, WEB)
    wish(bench, "web", 1)
    wish(bench, "hpc", 2)
    wish(bench, "bio", 1)
    assert granted(bench.decide()) == {"web": ["h0"], "bio": ["h1"], "hpc": ["h2", "h3"]}


@pytest.mark.parametrize(
    ("departments", "held", "wanted", "count", "expected"),
    [
        ((HPC, BIO), {}, {"hpc": 2, "bio": 3}, 4, {"bio": 3, "hpc": 1}),  # batch by name, one after the other
        ((HPC, BIO), {"bio": 2}, {"hpc": 2, "bio": 3}, 4, {"bio": 1, "hpc": 2}),  # what it lacks
        (
            (HPC, BIO),
            {"bio": 5},
            {"hpc": 2, "bio": 3},
            4,
            {"bio": 0, "hpc": 2},
        ),  # who holds too much gives nothing here
        ((HPC, Department(name="art", kind="batch", priority=-1)), {}, {"hpc": 3, "art": 3}, 4, {"hpc": 3, "art": 1}),
        ((HPC, BIO), {}, {}, 4, {"bio": 0, "hpc": 0}),  # nobody's target is known
        ((HPC, WEB, SHOP), {}, {"hpc": 3, "web": 3, "shop": 3}, 4, {"shop": 3, "web": 1, "hpc": 0}),
        ((HPC, WEB), {"web": 1}, {"hpc": 3, "web": 3}, 0, {"web": 0, "hpc": 0}),
    ],
)
def test_free_hosts_go_by_kind_priority_and_name(
    departments: tuple[Department, ...],
    held: dict[str, int],
    wanted: dict[str, int],
    count: int,
    expected: dict[str, int],
) -> None:
    found = grants(CloudConfig(name="c", departments=departments), held, wanted, count, 100.0)
    assert list(found.items()) == list(expected.items())


EQUAL = tuple(Department(name=name, kind="web", web=WebPolicy(), guarantee=n) for name, n in (("blog", 0), ("shop", 2)))


@pytest.mark.parametrize(
    ("held", "wanted", "count", "expected"),
    [
        ({}, {"blog": 4, "shop": 4}, 2, {"blog": 0, "shop": 2}),  # what is guaranteed
        ({}, {"blog": 4, "shop": 4}, 6, {"blog": 3, "shop": 3}),
        ({"blog": 3}, {"blog": 4, "shop": 4}, 3, {"blog": 0, "shop": 3}),  # what is held counts
        ({"shop": 2}, {"blog": 4, "shop": 4}, 2, {"blog": 2, "shop": 0}),  # … for the guarantee, too
        ({}, {"blog": 4, "shop": 1}, 3, {"blog": 2, "shop": 1}),  # no more than its target, whatever is guaranteed
        ({}, {"blog": 1}, 3, {"blog": 1, "shop": 0}),
    ],
)
def test_among_equal_web_departments_free_hosts_are_divided(
    held: dict[str, int], wanted: dict[str, int], count: int, expected: dict[str, int]
) -> None:
    config = CloudConfig(name="c", departments=(HPC, *EQUAL, msgspec.structs.replace(WEB, priority=-1)))
    found = grants(config, held, wanted | {"web": 9, "hpc": 9}, count, 100.0)
    left = count - sum(expected.values())
    assert found == {**expected, "web": left, "hpc": 0}  # and what they leave goes on to the next


# ------------------------------------------------------------------------------------------------------------ which are taken


def test_of_busy_hosts_those_with_the_fewest_jobs_are_taken_first_then_those_left_soonest() -> None:
    bench = Bench(hosts=7)
    bench.settle()
    graces_s: dict[str, tuple[float | None, ...]] = {
        "h0": (5.0, 60.0), "h1": (30.0, 30.0), "h2": (60.0,), "h3": (0.5,), "h4": (None,), "h5": (0.5,), "h6": (5.0,)
    }  # fmt: skip
    for host, graces in graces_s.items():
        for grace_s in graces:
            job = str(bench.custody.state.job_last + 1)
            submitted = f.JobSubmitted(
                job=job, dept="hpc", user="a", name="j", payload="p", walltime_s=9.0, grace_s=grace_s
            )
            bench.write("admission", submitted)
            bench.write("scheduler.hpc", f.UnitPlaced(unit=job, attempt=1, hosts=(host,), cores=1, memory_mb=1))
    bench.demand("web", 7)
    bench.decide()
    bench.now += 1
    assert seized(bench) == ["h4", "h3", "h5", "h6", "h2", "h1", "h0"]


def test_of_instances_that_drain_the_host_with_the_fewest_is_taken() -> None:
    bench = Bench(hosts=3)
    bench.demand("web", 3)
    bench.settle()
    for number, host in enumerate(("h0", "h0", "h1", "h2"), 1):
        bench.write("scheduler.web", f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=(host,), cores=1, memory_mb=1))
        if host != "h2":
            draining = f.InstanceDraining(
                unit=f"web.{number}", attempt=1, until=bench.now + 99, reason=because.Rolling()
            )
            bench.write("scheduler.web", draining)
    bench.demand("web", 1)
    bench.decide()
    bench.now += 1
    assert seized(bench) == ["h1", "h0"]


def test_no_more_is_seized_than_is_due_and_the_rest_when_it_is() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0", "h1", "h2", "h3")
    bench.demand("web", 1)
    bench.decide()
    bench.now += 0.2
    bench.demand("web", 3)
    bench.decide()
    assert due(bench, "hpc") == [(3, 100.3), (1, 100.5)]
    assert bench.core.wake_at() == pytest.approx(100.3)
    bench.now = 100.31
    assert seized(bench) == ["h0"]
    assert bench.core.wake_at() == pytest.approx(100.5)
    bench.now = 100.51
    assert seized(bench) == ["h1", "h2"]
    assert bench.core.wake_at() == NEVER


def test_a_seizure_says_what_was_held_and_what_may_be() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 1)
    bench.decide()
    bench.now += 1
    (fact,) = (x for x in bench.decide() if isinstance(x, f.HostSeized))
    assert fact.reason == because.NoticeExpired(department="hpc", held=4, quota=3)


def test_nothing_is_seized_in_the_envelope_that_changes_the_quota() -> None:
    """The holder is told first: the next decision sees what it has released."""
    bench = Bench()
    bench.settle()
    bench.demand("web", 1)
    bench.decide()
    bench.now += 1
    bench.demand("web", 2)
    assert kinds(bench.decide()) == ["quota.changed", "quota.changed"]
    assert kinds(bench.decide()) == ["host.seized"]


# --------------------------------------------------------------------------------------------------------- what it says of it


def test_a_grant_says_for_what() -> None:
    bench = Bench(msgspec.structs.replace(HPC, guarantee=2), WEB)
    reasons = [x.reason for x in bench.decide() if isinstance(x, f.HostGranted)]
    assert reasons == [because.Guarantee(guarantee=2, held=0)] * 4
    bench.write("executor", f.HostDescribed(host="h9", one_id=9, cores=2, memory_mb=1000))
    bench.write("executor", f.HostCleared(host="h9"))
    reasons = [x.reason for x in bench.settle() if isinstance(x, f.HostGranted)]
    assert reasons == [because.IdleToBatch(department="hpc", held=4)]


def test_a_batch_department_that_holds_its_guarantee_has_more_since_it_is_idle() -> None:
    bench = Bench(msgspec.structs.replace(HPC, guarantee=2), WEB, hosts=2)
    bench.settle()
    bench.write("executor", f.HostDescribed(host="h9", one_id=9, cores=2, memory_mb=1000))
    bench.write("executor", f.HostCleared(host="h9"))
    reasons = [x.reason for x in bench.settle() if isinstance(x, f.HostGranted)]
    assert reasons == [because.IdleToBatch(department="hpc", held=2)]


def test_a_grant_to_web_says_its_demand_with_what_it_wants_if_it_is_idle() -> None:
    bench = Bench()
    wish(bench, "web", 1, if_idle=2)
    reasons = [x.reason for x in bench.decide() if isinstance(x, f.HostGranted) and x.dept == "web"]
    assert reasons == [because.WebDemand(department="web", demand=3, held=0)] * 3


def test_a_quota_that_is_raised_again_says_that_the_hosts_are_idle() -> None:
    bench = Bench()
    bench.settle()
    bench.demand("web", 2)
    bench.decide()
    bench.demand("web", 0)
    assert why(bench.decide())["hpc"] == (because.IdleToBatch, {"department": "hpc", "held": 4})


@pytest.mark.parametrize("demand", [2, 3])
def test_a_quota_of_web_that_falls_by_its_own_demand_says_so_though_another_claims(demand: int) -> None:
    bench = Bench(HPC, WEB, SHOP)
    bench.demand("web", 4)
    bench.settle()
    bench.demand("shop", 1)
    bench.demand("web", demand)
    assert why(bench.decide())["web"] == (because.WebDemand, {"department": "web", "demand": demand, "held": 4})


def test_a_quota_of_web_that_falls_to_a_new_maximum_names_nobody() -> None:
    bench = Bench()
    bench.demand("web", 4)
    bench.settle()
    adopt(bench, HPC, msgspec.structs.replace(WEB, maximum=3))
    assert why(bench.decide())["web"] == (because.WebDemand, {"department": "web", "demand": 4, "held": 4})


# ------------------------------------------------------------------------------------------------- what is wanted if it is idle


def test_idle_hosts_are_wanted_back_on_a_long_notice_and_on_the_usual_one_once_they_are_needed() -> None:
    bench = Bench()
    bench.settle()
    wish(bench, "web", 1, if_idle=2)
    bench.decide()
    assert due(bench, "hpc") == [(3, 100.3), (1, 700.3)]
    wish(bench, "web", 3)
    bench.decide()
    assert due(bench, "hpc") == [(1, 100.3)]


def test_a_job_that_is_placed_on_what_was_wanted_if_it_is_idle_keeps_it() -> None:
    bench = Bench()
    bench.settle()
    wish(bench, "web", 0, if_idle=2)
    bench.decide()
    assert quotas(bench) == {"hpc": 2, "web": 2}
    occupy(bench, "h0", "h1", "h2")
    bench.settle()
    assert quotas(bench) == {"hpc": 3, "web": 1}
    bench.write("admission", f.JobCancelled(job="1", user="a"))
    bench.write("scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=CANCELLED, why=because.Cancelled()))
    bench.settle()
    assert quotas(bench) == {"hpc": 2, "web": 2}
    wish(bench, "web", 0)
    bench.settle()
    assert quotas(bench) == {"hpc": 4, "web": 0}


def test_what_web_holds_of_it_is_demand_as_any_other() -> None:
    bench = Bench()
    bench.settle()
    wish(bench, "web", 1, if_idle=2)
    bench.decide()
    for host in ("h0", "h1"):
        bench.write("scheduler.hpc", f.HostReleased(host=host))
        bench.write("executor", f.HostCleared(host=host))
    bench.settle()
    assert (bench.held(), due(bench, "hpc")) == ({"hpc": 2, "web": 2}, [(1, 700.3)])
    occupy(bench, "h2", "h3")
    bench.settle()
    assert quotas(bench) == {"hpc": 2, "web": 2}  # the third has a job; the second stays


# -------------------------------------------------------------------------------------------------------------------- cordons


def test_a_cordoned_host_with_a_vm_that_ends_is_used_by_web_and_not_by_batch() -> None:
    """What ends on a web department's host is still in its demand."""
    for dept, expected in (("web", 2), ("hpc", 3)):
        bench = Bench(msgspec.structs.replace(HPC, maximum=2), WEB, hosts=5)
        wish(bench, "web", 2)
        wish(bench, "hpc", 2)
        bench.settle()
        (mine, _) = sorted(bench.custody.index.held[dept])
        unit = "web.1"
        if dept == "hpc":
            occupy(bench, mine)
            unit = "1"
            bench.write("admission", f.JobCancelled(job="1", user="a"))
        else:
            placed = f.UnitPlaced(unit=unit, attempt=1, hosts=(mine,), cores=1, memory_mb=1)
            bench.write("scheduler.web", placed)
        bench.write("executor", f.VmAllocated(unit=unit, attempt=1, rank=0, vm=7, host=mine))
        closed = f.AttemptClosed(unit=unit, attempt=1, disposal=CANCELLED, why=because.Cancelled())
        bench.write(f"scheduler.{dept}", closed)
        cordon(bench, mine)
        bench.settle()
        assert quotas(bench)[dept] == expected


def test_who_loses_a_cordoned_host_that_it_does_not_use_may_have_another() -> None:
    bench = Bench(msgspec.structs.replace(HPC, maximum=2), WEB, hosts=4)
    wish(bench, "hpc", 2)
    bench.settle()
    cordon(bench, sorted(bench.custody.index.held["hpc"])[0])
    bench.settle()
    assert (quotas(bench)["hpc"], bench.custody.held("hpc")) == (3, 3)  # two beside the cordoned one


def test_a_drained_host_says_why_it_is_seized() -> None:
    bench = Bench()
    bench.settle()
    occupy(bench, "h0", "h1")
    cordon(bench, "h1", 10.0)
    cordon(bench, "h0", 10.0)
    bench.settle()
    bench.now = 111.0
    facts = bench.decide()
    assert [(x.host, x.dept) for x in facts if isinstance(x, f.HostSeized)] == [("h0", "hpc"), ("h1", "hpc")]
    assert [x.reason for x in facts if isinstance(x, f.HostSeized)] == [
        because.HostDrained(host=host) for host in ("h0", "h1")
    ]


def test_a_shorter_notice_of_the_policy_is_told_to_who_has_been_told_a_longer_one() -> None:
    bench = Bench()
    adopt(bench, HPC, WEB, notice_s=60.0)
    bench.settle()
    wish(bench, "web", 2)
    bench.decide()
    assert due(bench, "hpc") == [(2, 160.0)]
    adopt(bench, HPC, WEB, notice_s=10.0)
    bench.decide()
    assert due(bench, "hpc") == [(2, 110.0)]
    adopt(bench, HPC, WEB, notice_s=90.0)
    assert bench.decide() == []
    assert due(bench, "hpc") == [(2, 110.0)]
