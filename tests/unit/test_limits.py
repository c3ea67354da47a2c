"""Limits of users, qualities of service and departments: at the door, in the queue, and how they are told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department, MultiFactor, Quality, UserLimits
from schemas.requests import JobSubmit
from services.admission.commands import compose
from services.domain.custody.rules import RULES
from services.domain.refusal import Refused
from services.domain.text import sentence
from services.domain.usage_limits import limits_of
from services.runtime.config.file import ConfigError, loads
from services.runtime.config.text import diff, dump_toml
from services.scheduler.lookahead.why import queue_view, why
from tests.support.admission import ANN, BOB, Fold
from tests.support.admission import cloud as site
from tests.support.leases import lease
from tests.support.leases import site as leased
from tests.support.scheduling import cluster, core, demand, placed
from tests.support.world import World, batch, cloud

URGENT = Quality(priority=50, users=("ann",), each_user=UserLimits(jobs_running_max=1))
TOGETHER = Quality(together=UserLimits(cores_max=6, jobs_submitted_max=3))


def each(**limits: Any) -> BatchLimits:
    return BatchLimits(**limits)


# ------------------------------------------------------------------------------------------------------------- scheduler


def test_a_user_at_a_limit_waits_and_nobody_behind_does() -> None:
    for order in ("fcfs", "first-fit", "easy", "conservative", "shortest-first", "multi-factor"):
        world = cluster(4, order=order, limits=each(cores_max=4))
        first, over = world.submit(cores=4), world.submit(cores=4)
        other = world.submit(cores=4, user="bob")
        world.settle()
        assert world.states() == {first: "open", over: "pending", other: "open"}, order
        told = why(core(world), over, world.now)[0]
        assert type(told) is because.UserLimit
        assert because.fields(told) == {"limit": "cores_max", "most": 4, "used": 4, "needs": 4, "user": "ann"}
        world.start_vms(first)
        world.begin(first)
        world.report(first)
        world.settle()
        assert world.states()[over] == "open", order


@pytest.mark.parametrize(("name", "most"), [("jobs_running_max", 2), ("hosts_max", 4), ("cores_max", 8)])
def test_each_limit_counts_what_it_says(name: str, most: int) -> None:
    world = cluster(8, limits=each(**{name: most}))
    jobs = [world.submit(nodes=2, cores=2) for _ in range(3)]
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "open", "pending"]


def test_two_sizes_of_one_user_share_one_limit_within_a_pass() -> None:
    world = cluster(4, limits=each(cores_max=3))
    jobs = [world.submit(cores=cores) for cores in (2, 2, 1, 1)]
    assert placed(world) == {jobs[0]: ("h1",), jobs[2]: ("h1",)}  # each size alone could have one more
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "pending", "open", "pending"]


def test_another_number_stands_for_one_user_and_the_rest_stays() -> None:
    policy = BatchPolicy(limits=BatchLimits(cores_max=4, hosts_max=2, users={"bob": UserLimits(cores_max=8)}))
    assert limits_of(policy, "bob") == UserLimits(cores_max=8, hosts_max=2)
    assert limits_of(policy, "ann") == UserLimits(cores_max=4, hosts_max=2)


def test_a_quality_has_limits_of_its_own() -> None:
    world = cluster(8, quality={"urgent": URGENT, "shared": TOGETHER})
    urgent = [world.submit(quality="urgent") for _ in range(2)]
    shared = [world.submit(quality="shared", user=user, cores=2) for user in ("ann", "bob", "cyd", "dan")]
    plain = world.submit()
    world.settle()
    waiting = [name for name, state in world.states().items() if state == "pending"]
    assert waiting == [urgent[1], shared[3]]
    assert world.states()[plain] == "open"
    assert type(why(core(world), urgent[1], world.now)[0]) is because.UserLimit
    assert type(why(core(world), shared[3], world.now)[0]) is because.QualityLimit


def test_the_department_has_a_quota_in_cores() -> None:
    department = msgspec.structs.replace(batch("hpc", order="fcfs"), maximum_cores=6)
    world = cluster(4)
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(department)))
    jobs = [world.submit(cores=4), world.submit(cores=4, user="bob"), world.submit(cores=2)]
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "pending", "open"]
    told = why(core(world), jobs[1], world.now)[0]
    assert type(told) is because.DepartmentLimit
    assert sentence(told) == ("the department may have 6 cores at once (maximum_cores) and has 6; it needs 4 more")
    assert demand(world) == 2  # what waits for the quota is no reason to ask for hosts


def test_a_quality_adds_to_the_priority_in_every_order() -> None:
    for order in ("fcfs", "first-fit", "multi-factor"):
        world = cluster(1, order=order, quality={"urgent": Quality(priority=50)})
        plain, urgent = world.submit(cores=4, priority=1), world.submit(cores=4, quality="urgent")
        assert [row.unit for row in queue_view(core(world)).queue] == [urgent, plain]
        world.settle()
        assert world.states() == {plain: "pending", urgent: "open"}


def test_user_and_department_are_told_in_what_a_priority_is_made_of() -> None:
    factors = MultiFactor(weight_user=100.0, users={"bob": -0.5}, weight_department=40.0, weight_age=0.0)
    world = cluster(1, order="multi-factor", multi_factor=factors)
    other = batch("bio", weight=4.0)
    config = cloud(batch("hpc", order="multi-factor", multi_factor=factors), other)
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    world.submit(cores=4)
    world.settle()
    bob, ann = world.submit(cores=4, user="bob"), world.submit(cores=4)
    assert [row.unit for row in queue_view(core(world)).queue] == [ann, bob]
    told = next(r for r in why(core(world), bob, world.now) if type(r) is because.Priority)
    assert (because.fields(told)["user_points"], because.fields(told)["department"]) == (-50.0, 10.0)
    assert sentence(told).endswith("-50.0 for its user, 10.0 for its department, as of all in it")


def test_limits_that_change_count_what_runs_already() -> None:
    world = cluster(4)
    jobs = [world.submit(cores=4) for _ in range(5)]
    world.settle()

    def adopt(**limits: Any) -> None:
        config = cloud(batch("hpc", limits=each(**limits)))
        world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
        world.settle()

    adopt(jobs_running_max=2)
    world.start_vms(jobs[0])
    world.report(jobs[0])
    world.settle()
    assert world.states()[jobs[4]] == "pending"
    assert because.fields(why(core(world), jobs[4], world.now)[0])["used"] == 3
    adopt(jobs_running_max=4)
    assert world.states()[jobs[4]] == "open"
    adopt()
    assert core(world).view.jobs.queue.budgets is None


def test_a_lease_waits_for_its_slot_whatever_becomes_of_limits() -> None:
    world = leased(2)
    slot = lease(world, 500.0)
    world.settle()
    for most in (None, 8, 7, None):
        limits = BatchLimits(cores_max=most)
        config = cloud(batch("hpc", order="leases", limits=limits))
        world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
        world.settle()
        assert list(core(world).view.jobs.queue.bookings) == [slot]
    world.advance(501.0)
    assert world.states()[slot] == "open"


def test_a_job_of_nobody_counts_for_the_department_and_its_quality_once() -> None:
    quality = {"shared": Quality(each_user=UserLimits(cores_max=1), together=UserLimits(cores_max=4))}
    world = cluster(4)
    department = batch("hpc", limits=each(cores_max=2), quality=quality)
    config = cloud(msgspec.structs.replace(department, maximum_cores=8))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    shared = [world.submit(user="", quality="shared", cores=2) for _ in range(3)]
    plain = [world.submit(user="", cores=2) for _ in range(3)]
    world.settle()
    waiting = [name for name, state in world.states().items() if state == "pending"]
    assert waiting == [shared[2], plain[2]]


def test_a_limit_is_told_with_its_owner() -> None:
    world = cluster(4, limits=each(jobs_running_max=1), quality={"shared": Quality(together=UserLimits(cores_max=1))})
    world.submit()
    waits = world.submit()
    world.submit(quality="shared", user="bob")
    other = world.submit(quality="shared", user="cyd")
    world.settle()
    told = sentence(why(core(world), waits, world.now)[0])
    assert told == "user ann may have 1 running job at once (jobs_running_max) and has 1; it needs 1 more"
    told = sentence(why(core(world), other, world.now)[0])
    assert told == "quality shared, all users together, may have 1 core at once (cores_max) and has 1; it needs 1 more"


# -------------------------------------------------------------------------------------------------------------- the door


def door(department: Department) -> Fold:
    world = Fold()
    config = site()
    world.adopt(msgspec.structs.replace(config, departments=(department, *config.departments[1:])))
    for number in range(6):
        world.host(f"h{number}", 8, 8192)
    return world


def ask(world: Fold, caller: compose.Caller = ANN, *, drafted: tuple[f.Fact, ...] = (), **asked: Any) -> f.JobSubmitted:
    return compose.submit(world.core, caller, "hpc", JobSubmit(script="true", **asked), "job/x", "d", drafted)


def refusal(world: Fold, caller: compose.Caller = ANN, **asked: Any) -> tuple[str, str | None, str]:
    with pytest.raises(Refused) as caught:
        ask(world, caller, **asked)
    return caught.value.code, caught.value.field, caught.value.message


def test_a_user_may_have_so_many_jobs_waiting_or_running() -> None:
    world = door(batch("hpc", limits=each(jobs_submitted_max=3)))
    world.put(ask(world, array="0-1"))
    one = ask(world)
    code, field, told = refusal(world, array="1-2")
    assert (code, field) == ("limit", "array")
    assert told == (
        "ann in hpc may have 3 jobs waiting or running (jobs_submitted_max) and has 2: 2 more would exceed it; "
        "wait, or cancel some"
    )
    assert refusal(world, drafted=(one,))[:2] == ("limit", None)  # another one is in the same envelope
    assert ask(world, BOB, array="0-2").array == (0, 1, 2)
    world.put(f.JobCancelled(job="1_0", user="ann"))
    assert ask(world, array="1-2").array == (1, 2)


def test_a_job_that_its_limits_could_never_hold_is_refused() -> None:
    world = door(msgspec.structs.replace(batch("hpc", limits=each(cores_max=8, hosts_max=2)), maximum_cores=12))
    code, field, told = refusal(world, tasks=9)
    assert (code, field) == ("limit", "tasks")
    assert told == "tasks: the job needs 10 cores, and ann in hpc may have 8 at once (cores_max): it could never start"
    assert refusal(world, tasks=3, nodes=3)[1] == "nodes"
    assert ask(world, tasks=8).cores == 8
    world = door(msgspec.structs.replace(batch("hpc"), maximum_cores=12))
    assert "department hpc may have 12 at once (maximum_cores)" in refusal(world, tasks=16)[2]


def test_a_quality_is_asked_for_by_name() -> None:
    world = door(batch("hpc", quality={"urgent": URGENT, "shared": TOGETHER}))
    assert ask(world, quality="urgent").quality == "urgent"
    assert ask(world).quality == ""
    code, field, told = refusal(world, BOB, quality="urgent")
    assert (code, field, told) == ("denied", "quality", "quality: 'urgent' of hpc is not for bob")
    code, field, told = refusal(world, quality="urgnt")
    assert (code, field) == ("unknown", "quality")
    assert told == "quality: hpc has no quality of service 'urgnt'; it has: shared, urgent"
    world.put(ask(world, quality="shared", array="0-1"))
    assert (
        "quality 'shared' of hpc, all users together, may have 3 jobs"
        in refusal(world, BOB, quality="shared", array="0-1")[2]
    )


def test_a_department_has_a_default_quality() -> None:
    world = door(batch("hpc", quality={"normal": Quality(), "urgent": URGENT}, quality_default="normal"))
    assert ask(world).quality == "normal"
    assert ask(world, quality="urgent").quality == "urgent"


# --------------------------------------------------------------------------------------------------------- configuration

FILE = """
[cloud]
name = "demo"
[[department]]
name = "hpc"
kind = "batch"
maximum_cores = 64
[department.batch]
quality_default = "normal"
min_run_s = 60
[department.batch.limits]
cores_max = 16
[department.batch.limits.users.ann]
cores_max = 32
[department.batch.quality.normal]
[department.batch.quality.urgent]
priority = 50
users = ["ann"]
[department.batch.quality.urgent.each_user]
jobs_running_max = 2
[department.batch.quality.urgent.together]
cores_max = 64
[department.batch.multi_factor]
weight_user = 100
users = { ann = 0.5 }
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, "phoenix.toml")
    return str(caught.value).splitlines()


def policy_of(config: CloudConfig) -> BatchPolicy:
    policy = config.departments[0].batch
    assert policy is not None
    return policy


def test_limits_are_tables_and_survive_the_round_trip() -> None:
    config = loads(FILE)
    policy = policy_of(config.cloud)
    assert policy.limits == BatchLimits(cores_max=16, users={"ann": UserLimits(cores_max=32)})
    assert policy.quality["urgent"] == Quality(
        priority=50, users=("ann",), each_user=UserLimits(jobs_running_max=2), together=UserLimits(cores_max=64)
    )
    assert loads(dump_toml(config)) == config
    other = loads(
        FILE.replace("= 32", "= 33").replace("quality.normal]", "quality.slow]").replace('"normal"', '"slow"')
    )
    assert diff(config.cloud, other.cloud) == [
        "department hpc: batch.limits.users.ann.cores_max 32 → 33",
        "department hpc: batch.quality.normal removed",
        "department hpc: batch.quality.slow added",
        'department hpc: batch.quality_default "normal" → "slow"',
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("cores_max = 32", "cores_max = -1", 'department.batch.limits.users.ann.cores_max (of "hpc"): -1: should be'),
        ("cores_max = 32", "core_max = 1", 'did you mean "cores_max"?'),
        ("users.ann", "users.An", "should be the name of a user"),
        ("maximum_cores = 64", "maximum_cores = 0", "should be at least 1"),
        ('= "normal"', '= "norml"', 'did you mean "normal"?'),
        ("priority = 50", "priority = 5000000", "should be at least -1000000 and at most 1000000"),
        ("quality.urgent", "quality.Urgent", "should be lower-case letters"),
        ("min_run_s = 60", "min_run_s = -1", "should be at least 0"),
        ("min_run_s = 60", 'min_run_s = 60\norder = "leases"', 'should be 0 with order = "leases"'),
        ("{ ann = 0.5 }", "{ ann = 2 }", "should be at least -1 and at most 1"),
        ('kind = "batch"', 'kind = "web"', "should not be here: cores bound what jobs ask for"),
    ],
)
def test_what_makes_no_sense_is_told(old: str, new: str, told: str) -> None:
    assert any(told in line for line in problems(FILE.replace(old, new))), problems(FILE.replace(old, new))


USERS = """[[user]]
name = "ann"
department = "hpc"
[[user]]
name = "bob"
department = "hpc"
"""


def test_who_is_named_and_is_no_user_of_the_cloud_is_told_with_the_nearest_one() -> None:
    loads(FILE + USERS)
    slips = FILE.replace("limits.users.ann", "limits.users.anna").replace('["ann"]', '["ann", "bobby"]') + USERS
    first, second = problems(slips)
    assert (
        'limits.users.anna (of "hpc"): "anna": should be a user of this cloud ([[user]]); did you mean "ann"?' in first
    )
    assert '"bobby": should be a user of this cloud ([[user]]); did you mean "bob"?' in second


def test_a_value_of_the_wrong_type_hides_no_slip_in_a_name() -> None:
    text = FILE.replace("limits.users.ann", "limits.users.anna").replace("cores_max = 16", 'cores_max = "x"') + USERS
    assert len(problems(text)) == 2


def test_nothing_is_counted_where_nothing_is_limited() -> None:
    world: World = cluster(2, limits=BatchLimits(jobs_submitted_max=10), quality={"plain": Quality(priority=1)})
    assert core(world).view.jobs.queue.budgets is None
    world.submit()
    world.submit(user="bob", quality="plain")
    assert len(core(world).view.jobs.queue.lanes) == 1
