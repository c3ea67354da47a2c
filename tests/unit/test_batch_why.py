"""Why a job waits: the explanation agrees with the decision, and says what would unblock it."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Dependency
from schemas.problems import URN
from schemas.queries import JobQueue, QueuePlace
from schemas.size import Size
from schemas.times import exact
from services.domain.text import remedy, sentence
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.demand import hosts_wanted
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.queue import Queue
from services.scheduler.core.state.shape import Place, Shape
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.lookahead.looks import WAITING_MAX
from services.scheduler.lookahead.why import queue_view, why
from tests.support.world import World, batch, cloud, web


def cluster(hosts: int = 2, **policy: Any) -> World:
    world = World(cloud(batch("hpc", **policy)))
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def explain(world: World, job: str) -> list[tuple[because.Kind, dict[str, Any]]]:
    world.settle()
    core: BatchCore = world.seats["scheduler.hpc"].core
    before = core.dump()
    found = [(type(reason), dict(because.fields(reason))) for reason in why(core, job, world.now)]
    assert core.dump() == before
    return found


def test_with_backfill_the_head_is_told_when_it_starts_and_the_next_one_what_gap_there_is() -> None:
    world = cluster(order="easy")
    world.submit(cores=4, walltime_s=100)
    world.settle()
    head, long = world.submit(nodes=2, cores=4), world.submit(cores=4, walltime_s=999)
    behind = world.submit(nodes=2, cores=4)
    world.now += 30
    assert explain(world, head)[0][1]["reserved_in_s"] == 70
    assert explain(world, long) == [(because.WaitsBehind, {"ahead": 1, "job": head, "gap_s": 70})]
    assert "reserved_in_s" not in explain(world, behind)[0][1]


def codes(world: World, job: str) -> list[because.Kind]:
    return [code for code, _ in explain(world, job)]


def test_a_job_that_waits_for_hosts_is_told_how_many_of_what() -> None:
    world = cluster()
    first, wide = world.submit(), world.submit(nodes=2, cores=4, memory_mb=100)
    world.settle()
    ((code, params),) = explain(world, wide)
    assert code is because.WaitsForHosts
    assert {key: params[key] for key in ("nodes", "cores", "memory_mb", "free", "short", "ahead", "held")} == {
        "nodes": 2,
        "cores": 4,
        "memory_mb": 100,
        "free": 1,
        "short": 1,
        "ahead": 0,
        "held": 2,
    }
    behind = world.submit(cores=4, nodes=2)
    assert explain(world, behind)[0][1]["ahead"] == 1
    assert codes(world, first) == [because.Starting]


def test_strict_order_names_the_job_that_goes_first() -> None:
    world = cluster(order="fcfs")
    world.submit()
    world.settle()
    wide, narrow = world.submit(nodes=2, cores=4), world.submit()
    assert explain(world, narrow) == [(because.WaitsBehind, {"ahead": 1, "job": wide})]


def test_held_and_dependency_stand_before_what_hosts_there_are() -> None:
    world = cluster()
    first = world.submit(held=True)
    failed = world.submit()
    after = world.submit(
        held=True,
        after=(Dependency(condition="afterok", job=first), Dependency(condition="afterok", job=failed)),
    )
    world.settle()
    assert codes(world, after)[:3] == [because.Held, because.Dependency, because.Dependency]
    world.report(failed, exit=1)
    found = explain(world, after)
    assert found[0] == (because.DependencyFailed, {"condition": "afterok", "job": failed})
    assert found[1:3] == [
        (because.Held, {"unit": after}),
        (because.Dependency, {"condition": "afterok", "job": first, "held": True}),
    ]


def test_that_there_is_room_is_not_told_to_who_would_not_start() -> None:
    world = cluster()
    first = world.submit(held=True)
    assert codes(world, first) == [because.Held]
    assert codes(world, world.submit(after=(Dependency(condition="afterok", job=first),))) == [because.Dependency]
    array = world.submit(array=(1, 2), throttle=1)
    assert codes(world, f"{array}_2") == [because.ArrayThrottle]
    wide = world.submit(nodes=2, cores=4, held=True)
    assert codes(world, wide) == [because.Held, because.WaitsForHosts]  # releasing it alone would not do
    failed = world.submit(after=(Dependency(condition="afterok", job=wide),), nodes=2, cores=4)
    world.cancel(wide)
    assert codes(world, failed) == [because.DependencyFailed]


def test_a_unit_that_was_preempted_is_told_how_often_and_why_and_that_web_has_the_hosts() -> None:
    world = World(cloud(batch("hpc"), web("web")))
    world.hosts(3)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", "h1")
    world.grant("web", "h2", "h3")
    job = world.submit(cores=4)
    world.settle()
    world.quota("hpc", 0)
    first, last = explain(world, job)
    assert first[0] is because.NoHostsHeld
    assert (first[1]["web"], first[1]["held_by_web"]) == (["web"], 1)  # one of two is its minimum
    assert last == (because.Reclaimed, {"unit": job, "preempted": 1, "failed": 0})


def test_a_dependency_is_known_to_be_lost_before_the_array_has_ended() -> None:
    world = cluster()
    array = world.submit(array=(1, 2))
    after = world.submit(after=(Dependency(condition="afterok", job=array),))
    world.settle()
    assert codes(world, after)[0] is because.Dependency
    world.report(f"{array}_1", exit=1)
    assert codes(world, after)[0] is because.DependencyFailed


def test_an_array_is_explained_by_its_first_waiting_element() -> None:
    world = cluster()
    array = world.submit(array=(1, 2, 3), throttle=1)
    assert explain(world, array)[0] == (because.ArrayThrottle, {"limit": 1, "running": 1})
    assert explain(world, f"{array}_1")[0][0] is because.Starting


def test_no_host_held_and_too_large_are_told_apart() -> None:
    world = cluster()
    world.quota("hpc", 0)
    assert codes(world, world.submit()) == [because.NoHostsHeld]
    ((code, params),) = explain(world, world.submit(nodes=3))
    assert (code, params["able"], params["nodes"]) == (because.TooLargeNow, 2, 3)


def test_what_vms_of_others_take_is_told_to_jobs_that_lack_it_alone() -> None:
    world = cluster()
    world.write("executor", f.HostDescribed(host="h1", one_id=1, cores=1, memory_mb=4096, others={"cores": 3}))
    runs, large = world.submit(cores=4), world.submit(nodes=2, cores=2)
    assert codes(world, runs) == [because.Starting]
    assert explain(world, large)[1] == (because.UsedByOthers, {"hosts": ["h1"], "shared": 1, "cores": 3})
    assert codes(world, world.submit(cores=2)) == [because.WaitsForHosts, because.UsedByOthers]
    world.write("executor", f.HostDescribed(host="h1", one_id=1, cores=4, memory_mb=4096))
    assert codes(world, large) == [because.WaitsForHosts]


def test_running_and_finished_jobs_are_told_as_such() -> None:
    world = cluster()
    job = world.submit()
    world.settle()
    world.begin(job)
    world.now += 7
    ((code, params),) = explain(world, job)
    assert (code, params["seconds"], params["hosts"]) == (because.Running, 7.0, ["h1"])
    world.report(job)
    assert explain(world, job) == [(because.Finished, {"unit": job, "end": "completed"})]
    assert explain(world, "99") == []
    assert explain(world, "nonsense") == []


def test_the_queue_is_shown_in_its_order() -> None:
    world = cluster(hosts=0)
    low, high = world.submit(), world.submit(priority=3)
    core = world.seats["scheduler.hpc"].core
    assert [entry.unit for entry in queue_view(core).queue] == [high, low]
    row = QueuePlace(place=1, unit=high, priority=3, nodes=1, **Size(1, 256).fields(), exclusive=False, constraint="")
    assert queue_view(core, 1) == JobQueue(pending=2, queue=(row,))


@pytest.mark.parametrize(
    ("what", "data", "code"),
    [
        ("why", b'{"job": "1"}', ""),
        ("queue", b"", ""),
        ("why", b'{"job": "77"}', "unknown"),
        ("why", b"{}", "invalid"),
        ("why", b"\xff", "invalid"),
        ("other", b"{}", "unknown"),
        ("why", b" " * 5000, "limit"),
    ],
)
async def test_queries_are_answered_as_json(what: str, data: bytes, code: str) -> None:
    world = cluster(hosts=0)
    world.submit()
    edge = BatchEdge("hpc")
    core = world.seats["scheduler.hpc"].core
    edge.service = SimpleNamespace(core=core, now=lambda: world.now)  # type: ignore[assignment]
    answer = json.loads(await edge.answered(what, data))
    assert answer.get("code", "") == code
    assert answer.get("type", "").startswith(URN) is (code != "")


async def test_when_jobs_start_is_answered_beside_and_one_look_serves_all_who_look() -> None:
    world = cluster(hosts=1)
    world.submit(cores=4, walltime_s=60)
    waits = world.submit(cores=4)
    world.settle()
    edge = BatchEdge("hpc")
    core = world.seats["scheduler.hpc"].core
    edge.service = SimpleNamespace(core=core, now=lambda: world.now)  # type: ignore[assignment]

    async def ask(data: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await edge.answered("start", data))
        return answer

    one = await ask(b'{"jobs": ["%s"]}' % waits.encode())
    assert ("type" in one, one["at"]) == (False, exact(world.now))
    assert one["starts"][waits]["start_at"] == exact(world.now + 60)
    first = await ask(b"")
    assert list(first["starts"]) == [waits]
    world.cancel(waits)
    assert (await ask(b""))["starts"] == {}, "who does not wait any more is not told"
    assert (await ask(b'{"jobs": 1}'))["code"] == "invalid"
    assert (await ask(b" " * 5000))["code"] == "limit"
    many = await asyncio.gather(*(edge.answered("start", b'{"jobs": []}') for _ in range(WAITING_MAX + 1)))
    assert ["type" in json.loads(answer) for answer in many] == [False] * WAITING_MAX + [True]


def test_what_others_keep_in_any_case_is_told_to_who_needs_it() -> None:
    world = World(cloud(batch("hpc"), web("web", instances_min=3, instances_per_host=2)))
    world.hosts(4)
    core = world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc")).core
    assert isinstance(core, BatchCore)
    world.grant("web", "h3", "h4")
    world.grant("hpc", "h1", "h2")
    fits, large = world.submit(nodes=3, cores=4), world.submit(nodes=4)
    world.settle()
    reason = why(core, large, world.now)[0]
    assert (type(reason), because.fields(reason)["can_have"], because.fields(reason)["kept_by"]) == (
        because.WaitsForHosts,
        2,
        ["web"],
    )
    assert "it can have 2 hosts at most while web keeps what is its own by guarantee or minimum" in sentence(reason)
    assert remedy(reason).startswith("at most 2 nodes")
    assert "can_have" in because.fields(why(core, fits, world.now)[0])
    one = world.submit(nodes=2, cores=4)
    assert "can_have" not in because.fields(why(core, one, world.now)[0])


# ------------------------------------------------------------------------------------------------------------------ demand


def wanted(kinds: dict[Size, int], *units: Shape, busy: int = 0) -> int:
    capacities, queue = Capacities(), Queue(lambda _unit: 60.0)
    for size, count in kinds.items():
        capacities.counts[size] = count
        capacities.of_host |= {f"{size}-{n}": size for n in range(count)}
    for number, shape in enumerate(units):
        queue.add(Place(0, number, str(number + 1)), shape, 0)
    return hosts_wanted(queue, capacities, busy, {})


ONE = Shape(1, Size(1, 100), False)


@pytest.mark.parametrize(
    ("kinds", "units", "expected"),
    [
        ({Size(4, 1000): 9}, [ONE] * 4, 1),
        ({Size(4, 1000): 9}, [ONE] * 5, 2),
        ({Size(4, 200): 9}, [ONE] * 5, 3),  # memory is what is short
        ({Size(4, 1000): 9}, [Shape(1, Size(1, 100), True)] * 5, 5),
        ({Size(4, 1000): 9}, [Shape(3, Size(1, 100), False)], 3),
        ({Size(4, 1000): 9}, [Shape(3, Size(1, 100), False)] * 4, 3),
        ({Size(4, 1000): 2}, [ONE] * 99, 2),
        ({Size(2, 1000): 5, Size(8, 1000): 1}, [Shape(1, Size(8, 100), False)] * 4, 1),  # only one host could hold it
        ({Size(2, 1000): 5, Size(8, 1000): 5}, [Shape(1, Size(2, 100), False)] * 3, 3),  # counted on the smallest kind
        ({Size(2, 1000): 5}, [Shape(1, Size(3, 100), False)], 0),
        ({}, [ONE], 0),
    ],
)
def test_hosts_wanted(kinds: dict[Size, int], units: list[Shape], expected: int) -> None:
    assert wanted(kinds, *units) == expected
    assert wanted(kinds, *units, busy=1) == min(expected + 1, sum(kinds.values()))


def test_capacities_leave_out_lost_and_cordoned_hosts() -> None:
    world = World(cloud(batch("hpc")))
    world.hosts(3)
    world.lose("h1")
    world.write("admission", f.HostCordoned(host="h2", reason="x", user="root"))
    assert Capacities.of(world.custody).of_host == {"h3": Size(4, 8192)}


def test_a_job_that_hours_or_contracts_keep_waiting_is_told_so() -> None:
    day = msgspec.structs.replace(batch("hpc"), windows=("daily 00:00-24:00 maximum 2",))
    world = World(cloud(day))
    names = world.hosts(4)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names[:2])
    wide = world.submit(nodes=3, cores=4)
    ((code, params),) = explain(world, wide)
    assert (code, params["at_most"]) == (because.WaitsForHosts, 2)
    assert 0 < params["changes_in_s"] <= 86_400
    told = sentence(code(**params))
    assert "the department may have at most 2 hosts now, by its maximum, hours and contracts" in told
    assert "at_most" not in explain(world, world.submit(nodes=2, cores=4))[0][1]


def test_what_opennebula_refuses_is_told_while_the_attempt_waits_and_after_it() -> None:
    world = cluster(1)
    job = world.submit(nodes=1)
    world.settle()
    words = "user [3] limit of 2 reached for VMS quota in VM."
    world.write("executor", f.VmRefused(unit=job, attempt=1, rank=0, failure="quota", why=words))
    ((code, params),) = explain(world, job)
    assert (code, params["refused"], params["refused_why"]) == (because.Starting, "quota", words)
    told = sentence(code(**params))
    assert told.startswith("its VMs are being started on h1 (0 of 1 are up)")
    assert f"OpenNebula refused it a VM (quota): {words}" in told
    world.restart("scheduler.hpc")
    assert explain(world, job)[0][1]["refused_why"] == words
    world.cordon("h1")
    world.advance(5 * world.custody.state.config.departments[0].batch.boot_timeout_s + 1)
    last = explain(world, job)[-1]
    assert (last[0], last[1]["refused_why"]) == (because.BootTimeout, words)
    assert words in sentence({"code": last[0], "params": last[1]})
    world.cancel(job)
    world.settle()
    assert not world.seats["scheduler.hpc"].core.state.refused


def test_a_refusal_is_forgotten_when_there_is_a_vm_after_all() -> None:
    world = cluster(1)
    job = world.submit()
    world.settle()
    world.write("executor", f.VmRefused(unit=job, attempt=1, rank=0, failure="quota", why="full"))
    world.start_vms(job)
    assert "refused" not in explain(world, job)[0][1]
    world.begin(job)
    world.settle()
    assert not world.seats["scheduler.hpc"].core.state.refused


def test_hosts_in_quarantine_are_told_as_such_and_not_as_a_matter_of_contracts() -> None:
    world = World(cloud(batch("hpc")))
    world.hosts(1)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.write("executor", f.HostQuarantined(host="h1", reason="disabled", until=world.now + 1e8))
    ((code, params),) = explain(world, world.submit())
    assert (code, params["quarantined"], params["free_hosts"]) == (because.NoHostsHeld, 1, 0)
    assert sentence(code(**params)).endswith("holds no host at all (elsewhere: 1 in quarantine)")
