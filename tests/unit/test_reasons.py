"""Why everybody in the queue waits, and when each has its turn, told by the scheduler beside its own work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, Leases, UserLimits
from schemas.queries import QueueExplained
from services.domain.custody.rules import RULES
from services.domain.text import remedy, sentence
from services.scheduler.core.policies import registry
from services.scheduler.core.policies.order import Plan, Reserved, Situation
from services.scheduler.edge import batch as edge_batch
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.lookahead import last_pass, reasons
from services.scheduler.lookahead.last_pass import LastPass
from services.scheduler.lookahead.reasons import Look, Reasons
from services.scheduler.lookahead.start_estimate import Sure, foresee
from services.scheduler.lookahead.why import why
from tests.support.leases import lease
from tests.support.scheduling import cluster, core, running, wait_for
from tests.support.world import World, batch, cloud


def edge_of(world: World, now: list[float]) -> BatchEdge:
    edge = BatchEdge("hpc")
    edge.service = SimpleNamespace(core=core(world), now=lambda: now[0])  # type: ignore[assignment]
    return edge


async def told(world: World) -> QueueExplained:
    return msgspec.json.decode(await Reasons().answer(core(world), world.now), type=QueueExplained)


def full(**policy: Any) -> World:
    """One host, and a job on it."""
    world = cluster(1, **policy)
    running(world, walltime_s=60)
    return world


# -------------------------------------------------------------------------------------------------------------- reasons


async def test_why_everybody_waits_is_told_and_kept_for_a_moment() -> None:
    world = full()
    large, behind = world.submit(cores=4, nodes=1), world.submit(cores=4)
    world.settle()
    now = [world.now]
    edge = edge_of(world, now)

    async def ask() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await edge.answered("reasons", b""))
        return dict(answer["reasons"])

    found = await ask()
    assert list(found) == [large, behind]
    assert found[large]["code"] == "waits_for_hosts"
    assert found[large] == msgspec.to_builtins(why(core(world), large, world.now)[0])
    world.cancel(large)
    assert list(await ask()) == [large, behind], "one answer serves all for a moment"
    now[0] += 2.0
    assert list(await ask()) == [behind]


async def test_behind_the_first_ones_the_code_is_told_lane_by_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "FIRST", 1)
    world = full()
    first, *same = [world.submit(cores=4) for _ in range(4)]
    array, wide = world.submit(cores=4, array=(1, 2), throttle=1), world.submit(cores=4, nodes=2)
    world.settle()
    found = await told(world)
    assert list(found.reasons) == [first]
    assert found.rest == {
        "waits_for_hosts": [*same, f"{array}_1", f"{array}_2"],
        "too_large_now": [wide],
    }
    monkeypatch.setattr(reasons, "REST_MAX", 4)
    assert (await told(world)).rest == {"waits_for_hosts": [*same, f"{array}_1"]}


async def test_where_slots_keep_room_each_length_is_asked_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "FIRST", 0)
    world = cluster(2, order="leases", leases=Leases(margin_s=0.0))
    running(world, walltime_s=20)
    lease(world, 30, cores=4, nodes=2, walltime_s=10.0)
    head = world.submit(cores=4, nodes=2, walltime_s=5)
    delays_head, meets_slot = [world.submit(cores=4, walltime_s=length_s) for length_s in (25, 400)]
    world.settle()
    assert (await told(world)).rest == {
        "waits_for_hosts": [head],
        "waits_behind": [delays_head],
        "lease_keeps_room": [meets_slot],
    }


async def test_a_lease_whose_slot_has_begun_or_passed_without_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full(order="leases", leases=Leases())
    late = lease(world, 10, cores=4, walltime_s=20.0)
    assert (await told(world)).rest == {}, "until then the journal says what it waits for"
    world.now += 10.0
    assert (await told(world)).rest == {"lease_late": [late]}
    world.now += 20.0
    assert (await told(world)).rest == {"lease_over": [late]}


async def test_a_look_gives_others_their_turn_and_ends_with_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full()
    units = [world.submit(cores=4) for _ in range(5)]
    world.settle()
    monkeypatch.setattr(reasons, "SLICE_S", -1.0)
    ours = asyncio.create_task(Look(core(world), world.now).told())
    turns_had = 0
    while not ours.done():
        await asyncio.sleep(0)
        turns_had += 1
    assert list((await ours).reasons) == units
    assert turns_had > len(units)
    clock = iter(range(100))
    monkeypatch.setattr(reasons, "time", SimpleNamespace(thread_time=lambda: next(clock), perf_counter=lambda: 1.0))
    monkeypatch.setattr(reasons, "BUDGET_S", 1.5)
    assert len((await told(world)).reasons) == 2, "a second each"


async def test_the_longer_a_look_took_the_longer_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full()
    world.submit(cores=4)
    world.settle()
    clock = iter(range(100))
    monkeypatch.setattr(reasons, "time", SimpleNamespace(thread_time=lambda: next(clock), perf_counter=lambda: 0.0))
    monkeypatch.setattr(reasons, "BUDGET_S", 9.0)
    kept, at = Reasons(), world.now
    first = await kept.answer(core(world), at)
    world.submit(cores=4)
    world.settle()
    assert await kept.answer(core(world), at + reasons.PAUSE - 1.0) == first
    assert await kept.answer(core(world), at + reasons.PAUSE) != first


async def test_facts_that_come_during_a_look_do_it_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "SLICE_S", -1.0)
    monkeypatch.setattr(reasons, "FIRST", 1)
    world = full(limits=BatchLimits(jobs_running_max=5))
    units = [world.submit(cores=4, memory_mb=100 + n) for n in range(6)]
    world.settle()
    ours = asyncio.create_task(Look(core(world), world.now).told())
    await asyncio.sleep(0)
    world.cancel(units[0])
    world.cancel(units[3])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    limits = BatchLimits(jobs_running_max=1)
    world.write(
        "provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(batch("hpc", limits=limits)))
    )
    world.cancel(units[4])
    found = await ours
    assert found.rest == {"waits_for_hosts": [units[1], units[2]], "user_limit": [units[5]]}
    assert (await told(world)).rest.keys() == {"user_limit"}


# ---------------------------------------------------------------------------------------------------------------- turns


class Passes:
    """`conservative`, how often somebody asked for the rest of its passes, and how many units these looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = self.looked_at = 0
        order = registry.ORDERS["conservative"]
        monkeypatch.setitem(registry.ORDERS, "conservative", order._replace(plan=self.plan))
        self.order = order

    def plan(self, situation: Situation) -> Plan:
        plan = self.order.plan(situation)
        return plan._replace(rest=lambda now: self.rest(plan, now))

    def rest(self, plan: Plan, now: float) -> Plan:
        self.begun += 1
        assert plan.rest is not None
        whole = plan.rest(now)
        return whole._replace(reservations=self.each(whole))

    def each(self, whole: Plan) -> Iterator[Reserved]:
        for each in whole.reservations:
            self.looked_at += 1
            yield each


async def turn(asked: LastPass, world: World, unit: str, now: float) -> float | None:
    await asked.reach(core(world), unit, now)
    found = asked.reserved(unit)
    return None if found is None else found.at


async def test_one_pass_serves_all_and_goes_as_far_as_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    monkeypatch.setattr(last_pass, "SLICE_S", 60.0)
    world = full(order="conservative")
    units = [world.submit(cores=4, walltime_s=10) for _ in range(4)]
    world.settle()
    asked, now = LastPass(), world.now
    assert await turn(asked, world, units[1], now) == now + 70.0
    assert (passes.begun, passes.looked_at) == (1, 2)
    monkeypatch.setattr(last_pass, "SLICE_S", -1.0)
    found = await asyncio.gather(*(turn(asked, world, unit, now + 1.0) for unit in reversed(units)))
    assert found == [now + 90.0, now + 80.0, now + 70.0, now + 60.0]
    assert (passes.begun, passes.looked_at) == (1, 4)
    await turn(asked, world, units[0], now + last_pass.FRESH_S)
    assert passes.begun == 2
    assert await turn(asked, world, "77", now + last_pass.FRESH_S) is None
    assert asked.complete


async def test_a_pass_is_of_the_moment_at_which_it_began() -> None:
    world = full(order="conservative")
    units = [world.submit(cores=4, walltime_s=10) for _ in range(4)]
    world.settle()
    asked = LastPass()
    assert await turn(asked, world, units[0], world.now) == world.now + 60.0
    world.cancel(units[1])
    world.cancel(units[2])
    assert await turn(asked, world, units[3], world.now) == world.now + 90.0


async def test_a_turn_that_takes_too_long_is_not_told_and_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full(order="conservative")
    first, second = world.submit(cores=4, walltime_s=10), world.submit(cores=4, walltime_s=10)
    world.settle()
    edge = edge_of(world, [world.now])

    async def params(unit: str) -> dict[str, Any]:
        answer = json.loads(await edge.answered("why", json.dumps({"job": unit}).encode()))
        return dict(answer["reasons"][0])

    assert (await params(second))["reserved_in_s"] == 70
    edge.last_pass = LastPass()
    monkeypatch.setattr(last_pass, "WAIT_S", -1.0)
    monkeypatch.setattr(last_pass, "SLICE_S", -1.0)
    late = await params(second)
    assert "reserved_in_s" not in late
    assert (late["short"], late["ahead"]) == (1, 1)
    assert first in world.states()


async def test_more_than_a_bounded_number_of_questions_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full()
    edge = edge_of(world, [world.now])
    edge.service.is_leader = True
    heard: list[dict[str, Any]] = []

    async def answer(_msg: object, _department: str, body: bytes) -> bool:
        heard.append(json.loads(body))
        return True

    monkeypatch.setattr(edge_batch, "answer_query", answer)
    monkeypatch.setattr(edge_batch, "ASKING_MAX", 2)
    query = SimpleNamespace(subject="phoenix.query.scheduler.hpc.why", data=b'{"job": "1"}')
    for _ in range(3):
        await edge._on_query(query)  # type: ignore[arg-type]
    await asyncio.gather(*edge._tasks)
    assert ["type" in each for each in heard] == [True, False, False]
    assert heard[0]["code"] == "limit"


# ------------------------------------------------------------------------------------------------------ what is told is so


def test_for_best_effort_no_room_is_kept() -> None:
    for order in ("easy", "conservative"):
        world = full(order=order)
        best = world.submit(cores=4, best_effort=True)
        world.settle()
        (reason,) = why(core(world), best, world.now)
        assert type(reason) is because.WaitsForHosts
        assert "reserved_in_s" not in because.fields(reason)
        assert foresee(core(world), world.now, [best])[best].sure is Sure.BY_WALLTIMES


def test_best_effort_waits_behind_nobody() -> None:
    world = cluster(2, order="fcfs")
    running(world)
    world.submit(cores=4, nodes=2)
    world.settle()
    best = world.submit(cores=4, best_effort=True)
    reason = why(core(world), best, world.now)[0]
    assert (type(reason), because.fields(reason)["short"]) == (because.WaitsForHosts, 0), (
        "it takes what is left, with the next decision"
    )
    world.settle()
    assert world.states()[best] == "open"


def test_where_best_effort_would_make_way_it_is_the_order_that_keeps_it_waiting() -> None:
    world = cluster(2, order="fcfs")
    running(world, best_effort=True)
    running(world)
    wide, behind = world.submit(cores=4, nodes=2), world.submit(cores=4)
    world.settle()
    (reason,) = why(core(world), behind, world.now)
    assert type(reason) is because.WaitsBehind
    assert because.fields(reason) == {"ahead": 1, "job": wide, "way": True}
    needs = why(core(world), wide, world.now)[0]
    assert (type(needs), because.fields(needs)["free"], because.fields(needs)["short"]) == (because.WaitsForHosts, 0, 1)
    assert (
        "0 of the 2 hosts that the department holds have free capacity for it, and 1 would have it if best-effort jobs were "
        "preempted" in (sentence(needs))
    )
    assert (
        remedy(needs)
        == "free capacity on 1 more host with 4 cores and 256 MiB; it comes when a running job of the department ends"
    )


def test_who_waits_for_its_array_or_a_limit_does_not_go_first() -> None:
    world = full(limits=BatchLimits(users={"bob": UserLimits(cores_max=1)}))
    world.submit(cores=4, array=(1, 2, 3, 4), throttle=2)
    world.submit(cores=2, user="bob")
    last = world.submit(cores=4)
    world.settle()
    assert because.fields(why(core(world), last, world.now)[0])["ahead"] == 2


def test_a_turn_under_backfill_for_all_is_told_as_things_are() -> None:
    for order, sure in (("easy", "at the latest"), ("conservative", "as things are")):
        world = full(order=order)
        waits = world.submit(cores=4)
        world.settle()
        assert f"room is kept for it, so it starts in 1m00s {sure}" in sentence(why(core(world), waits, world.now)[0])


def test_room_that_is_planned_for_others_is_told_as_such() -> None:
    world = cluster(2, order="conservative")
    running(world, walltime_s=50)
    large, wide, long = world.submit(nodes=3), world.submit(cores=4, nodes=2), world.submit(cores=4, walltime_s=999)
    world.settle()
    told = why(core(world), long, world.now, LastPass())[0]
    assert because.fields(told) == {"ahead": 2, "job": wide, "backfill": True}, (
        f"{large} is passed, as more than the hosts could hold"
    )
    assert sentence(told) == (
        f"there is room for it, but it must not delay jobs for which room is reserved, job {wide} first of all; 2 jobs go first"
    )
    assert remedy(told) == "a shorter time limit may let it start sooner"


def test_who_has_room_while_hosts_go_back_is_told_so() -> None:
    world = cluster(2)
    running(world, cores=2)
    running(world, cores=3)
    world.quota("hpc", 1, by_s=600.0)
    _, small = world.submit(cores=1), world.submit(cores=1)
    reason = why(core(world), small, world.now)[0]
    assert (type(reason), because.fields(reason)["short"], because.fields(reason)["on_notice"]) == (
        because.WaitsForHosts,
        0,
        1,
    )
    assert sentence(reason) == (
        "there is room for it (1 host with 1 core and 256 MiB), but the department has to give 1 host back: it starts when "
        "that is done"
    )


def test_what_would_help_who_waits_for_another_job_is_told() -> None:
    world = cluster()
    held, ends = world.submit(held=True), world.submit()
    told = {}
    for job, condition in ((held, "afterok"), (ends, "afterany"), (held, "after")):
        waits = world.submit(after=wait_for(job, condition))
        reason = why(core(world), waits, world.now)[0]
        told[job, condition] = sentence(reason), remedy(reason)
    assert told[held, "afterok"] == (f"it waits for afterok of job {held}, which is held", f"phoenix release {held}")
    assert told[ends, "afterany"][1] == "it starts when that job has ended as asked"
    world.write("admission", f.JobResumed(job=held, user="ann"))
    assert remedy(why(core(world), waits, world.now)[0]) == "it starts when that job has begun"


def test_in_a_department_that_is_removed_nothing_starts() -> None:
    world = full()
    waits = world.submit(cores=4)
    world.settle()
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(batch("other"))))
    assert [type(reason) for reason in why(core(world), waits, world.now)] == [because.DepartmentRemoved]
