"""Properties of limits, whatever the order.

L1  No account ever has more than its limits allow, whoever submits what.
L2  Nobody is kept waiting by another's limit: were those whom limits keep waiting not there, nobody else would start.
L3  Who waits for a limit of their own starts once what they have has ended: in the end everything has run.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.config import BatchLimits, Department, Quality, UserLimits
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.registry import ORDERS
from tests.support.examples import few
from tests.support.scheduling import core
from tests.support.world import World, batch, cloud

NAMES = sorted([*ORDERS, "multi-factor"])
USERS = ("ann", "bob", "cyd")
amount = st.one_of(st.none(), st.integers(4, 12))
LIMITS = st.builds(
    UserLimits, jobs_running_max=st.one_of(st.none(), st.integers(1, 3)), cores_max=amount, hosts_max=amount
)
JOB = st.tuples(
    st.sampled_from(USERS),
    st.sampled_from(("", "q")),
    st.integers(1, 4),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
)
STEPS = st.lists(st.one_of(JOB, st.integers(0, 9)), min_size=3, max_size=30)


@st.composite
def departments(draw: st.DrawFn, order: str) -> Department:
    policy: dict[str, Any] = {"order": order, "walltime_max_s": 1e6, "short_s": 1e6}
    if order == "svmsched":
        policy["services"] = {"a": 1.0}
    own = draw(st.dictionaries(st.sampled_from(USERS), LIMITS, max_size=2))
    every = draw(LIMITS)
    policy["limits"] = BatchLimits(**msgspec.structs.asdict(every), users=own)
    policy["quality"] = {"q": Quality(each_user=draw(LIMITS), together=draw(LIMITS), priority=draw(st.integers(-2, 2)))}
    department = batch("hpc", **policy)
    return msgspec.structs.replace(department, maximum_cores=draw(amount))


def world_of(department: Department) -> World:
    world = World(cloud(department))
    names = world.hosts(4)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def judge(world: World) -> None:
    """L1."""
    budgets = core(world).view.jobs.queue.budgets
    assert budgets is None or budgets.over() == []


def play(world: World, step: Any) -> None:
    service = {"service": "a"} if core(world).view.policy.order == "svmsched" else {}
    if isinstance(step, tuple):
        user, quality, cores, nodes, long, idle = step
        cores = min(cores, 4 // nodes)  # within the least of the limits
        fields: dict[str, Any] = {"walltime_s": 900.0 if long else 60.0, "best_effort": idle, **service}
        world.submit(user=user, quality=quality, cores=cores, nodes=nodes, **fields)
    else:
        end_one(world, step)


def end_one(world: World, number: int) -> bool:
    running = [name for name, state in world.states().items() if state == "open"]
    if not running:
        return False
    name = running[number % len(running)]
    if world.unit(name).began_at is None:
        world.start_vms(name)
        world.begin(name)
    world.report(name)
    return True


def settle(world: World) -> None:
    for _ in range(200):
        if not world.step():
            return
        judge(world)
    raise AssertionError("it never comes to rest")


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(NAMES), STEPS)
def test_no_limit_is_exceeded_and_nobody_waits_for_anothers(data: st.DataObject, order: str, steps: list[Any]) -> None:
    world = world_of(data.draw(departments(order)))
    for step in steps:
        play(world, step)
        settle(world)
    queue = core(world).view.jobs.queue
    lanes, budgets = {unit: lane.key for unit, (lane, _) in queue.where.items()}, queue.budgets
    kept_back = [unit for unit, key in lanes.items() if budgets and budgets.full(key.owner, key.shape)]
    opened = [name for name, state in world.states().items() if state == "open"]
    for unit in kept_back:
        world.cancel(unit)
    settle(world)
    assert [name for name, state in world.states().items() if state == "open"] == opened  # L2
    for _ in range(len(steps) + 1):
        if not end_one(world, 0):
            break
        settle(world)
    assert "pending" not in world.states().values()  # L3, of those that are left


@settings(max_examples=few(30, searching=60), deadline=None)
@given(st.data(), st.sampled_from(NAMES), STEPS)
def test_in_the_end_everything_has_run(data: st.DataObject, order: str, steps: list[Any]) -> None:
    """L3."""
    world = world_of(data.draw(departments(order)))
    for step in steps:
        play(world, step)
    settle(world)
    while end_one(world, 0):
        settle(world)
    assert set(world.states().values()) <= {"completed"}
