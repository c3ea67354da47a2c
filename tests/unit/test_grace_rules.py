"""How long a job has, by its own wish, the contracts of its department and the policy; and who leaves which host when."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Lending, Policy
from services.domain import grace
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.grace import HEARD_S, Leaver
from tests.unit.test_custody_rules import Step, bound, closed, granted, job, placed

USUAL_S, BORROWS_S = 2.0, 5.0
CONFIG = CloudConfig(
    name="c",
    policy=Policy(grace_s=USUAL_S),
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy(grace_max_s=30.0)),
        Department(name="bio", kind="batch", batch=BatchPolicy()),
        Department(name="asks-nothing", kind="batch", batch=BatchPolicy(grace_max_s=0.0)),
        Department(name="bare", kind="batch"),
        Department(name="web", kind="web"),
    ),
)
LENDS = (Lending(lender="web", borrower="bio", grace_s=BORROWS_S),)
LENT = CloudConfig(name="c", policy=CONFIG.policy, departments=CONFIG.departments, lending=LENDS)


@pytest.mark.parametrize(
    ("config", "department", "own_s", "leaves_s"),
    [
        (None, "hpc", None, Policy().grace_s),
        (None, "hpc", 9.0, 9.0 + HEARD_S),
        (CONFIG, "hpc", None, USUAL_S),
        (CONFIG, "hpc", 0.0, 0.0),
        (CONFIG, "hpc", USUAL_S, USUAL_S),  # no more than it has anyway: no time on top
        (CONFIG, "hpc", 2.1, 2.1 + HEARD_S),
        (LENT, "hpc", None, USUAL_S),
        (LENT, "bio", None, BORROWS_S),
        (LENT, "bio", 3.0, 3.0),  # also a shorter one
        (LENT, "bio", BORROWS_S, BORROWS_S),
        (LENT, "bio", 5.5, 5.5 + HEARD_S),
    ],
)
def test_how_long_its_host_waits(
    config: CloudConfig | None, department: str, own_s: float | None, leaves_s: float
) -> None:
    assert grace.leaves_s(config, department, own_s) == leaves_s


@pytest.mark.parametrize(
    ("department", "most_s", "longest_s"),
    [
        ("hpc", 30.0, 30.0 + HEARD_S),
        ("bio", BORROWS_S, 0.0),
        ("asks-nothing", 0.0, 0.0),
        ("bare", USUAL_S, 0.0),
        ("web", USUAL_S, 0.0),
        ("nobody", USUAL_S, 0.0),
    ],
)
def test_how_much_a_job_may_ask_for(department: str, most_s: float, longest_s: float) -> None:
    assert (grace.most_s(LENT, department), grace.longest_s(LENT, department)) == (most_s, longest_s)
    assert grace.longest_s(None, department) == 0.0


def folded(*steps: Step, at: float = 100.0) -> Custody:
    """All at one time."""
    custody = Custody()
    fold_fact(custody, f.ConfigAdopted(cloud="c", custody_rules=3, config=CONFIG), 1, 0, "provisioner", at)
    for position, (writer, fact) in enumerate(steps, 2):
        assert fold_fact(custody, fact, position, 0, writer, at) is None
    return custody


def runs(number: str, *hosts: str, grace_s: float | None = None) -> list[Step]:
    """With a VM on each, which is still there when its attempt is closed."""
    vms = [bound(number, 1, host, rank, int(number) * 10 + rank) for rank, host in enumerate(hosts)]
    return [job(number, nodes=len(hosts), grace_s=grace_s), placed(number, hosts=hosts), *vms]


def given_up(*names: str) -> list[Step]:
    return [("scheduler.hpc", f.HostReleased(host=name)) for name in names]


def test_how_much_longer_a_unit_is_waited_for_than_others() -> None:
    custody = folded(*granted(), *runs("1", "h1", grace_s=10.0), job("2"))
    assert [grace.of_unit(custody, custody.state.units[unit]) for unit in ("1", "2")] == [10.0 + HEARD_S, USUAL_S]
    assert [grace.late_s(custody, custody.state.units[unit]) for unit in ("1", "2")] == [8.0 + HEARD_S, 0.0]


def test_a_host_is_left_by_the_last_one_that_asked() -> None:
    """Who asked for most; of equals the job that came last; who has asked for nothing is none."""
    jobs = [
        *runs("1", "h1", grace_s=10.0),
        *runs("2", "h1", grace_s=20.0),
        *runs("3", "h1", grace_s=5.0),
        *runs("4", "h1"),
    ]
    custody = folded(*granted(), *jobs, *given_up("h1"))
    assert grace.leavers(custody) == [Leaver(120.0 + HEARD_S, "2", "h1", 20.0)]
    custody = folded(*granted(), *runs("9", "h1", grace_s=7.0), *runs("10", "h1", grace_s=7.0), *given_up("h1"))
    assert [one.job for one in grace.leavers(custody)] == ["10"]
    assert grace.leavers(folded(*granted(), *runs("1", "h1"), *given_up("h1"))) == []
    assert grace.leavers(folded(*granted(), *runs("1", "h1", grace_s=10.0))) == []  # nobody wants it
    assert grace.leavers(folded(*granted(), *runs("1", "h1", grace_s=10.0), closed("1"))) == []


def hosts_left(*graces: float) -> Custody:
    """h1, h2, … are given up, the last one first, by jobs in the opposite order; h9 is given up and empty."""
    names = [f"h{n}" for n in range(1, len(graces) + 1)]
    jobs = [
        step
        for n, (name, asked) in enumerate(zip(reversed(names), reversed(graces), strict=True), 1)
        for step in runs(str(n), name, grace_s=asked)
    ]
    return folded(
        *(step for name in (*names, "h9") for step in granted(name)), *jobs, *given_up(*reversed(names), "h9")
    )


def test_hosts_are_left_soonest_first_then_by_name() -> None:
    assert [one.host for one in grace.leavers(hosts_left(20.0, 10.0, 10.0))] == ["h2", "h3", "h1"]


def test_who_lacks_hosts_waits_for_those_that_are_not_clear_at_once() -> None:
    custody = hosts_left(20.0, 10.0)
    waited = [[one.host for one in grace.waited_for(custody, hosts)] for hosts in (0, 1, 2, 3, 4)]
    assert waited == [[], [], ["h2"], ["h2", "h1"], ["h2", "h1"]]


def test_what_is_told_of_them() -> None:
    assert grace.told([], 0.0) == []
    gang = folded(*granted(), *granted("h2"), *runs("7", "h1", "h2", grace_s=10.0), *given_up("h1", "h2"))
    leaving = grace.leavers(gang)
    assert grace.told(leaving, 100.00049) == [because.HostsLeft(hosts=2, jobs=["7"], in_s=11.0)]
    assert because.fields(grace.told(leaving, 100.0006)[0])["in_s"] == 10.999
    assert [because.fields(grace.told(leaving, now)[0])["in_s"] for now in (110.5, 111.0, 200.0)] == [0.5, 0.0, 0.0]
    assert because.fields(grace.told(leaving[:1], 100.0)[0])["hosts"] == 1
    two = grace.leavers(hosts_left(20.0, 10.0))
    assert (because.fields(grace.told(two, 100.0)[0])["jobs"], because.fields(grace.told(two, 100.0)[0])["in_s"]) == (
        ["1", "2"],
        21.0,
    )
