"""Which of several equal hosts: where a parked VM waits for just this job, where work was suspended, and what is given back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Warm
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Unit, Vm
from services.scheduler.core.batch.affinity import Unexchanged, settle
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape, Start
from tests.support.scheduling import able, core, decide, placed, released, running
from tests.support.world import World, batch, cloud

KEEP = Warm(idle_s=60.0)


def warm(hosts: int = 4, share: Any = "user", **policy: Any) -> World:
    config = cloud(batch("hpc", warm=Warm(idle_s=60.0, share=share), **policy))
    world = World(msgspec.structs.replace(config, capabilities=ALL))
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *names)
    return world


def park(world: World, host: str, cores: int = 4, **fields: Any) -> str:
    """A job has completed on `host`, and its VM waits there."""
    others = [name for name in world.custody.state.hosts if name != host]
    for name in others:
        world.rest(name)
    job = running(world, cores=cores, **fields)
    assert world.unit(job).hosts == (host,)
    world.report(job)
    world.write("admission", f.VmParked(unit=job, attempt=1, rank=0))
    for name in others:
        world.rest(name, 0.0)
    return job


def hosts_of(world: World, **fields: Any) -> tuple[str, ...]:
    job = world.submit(**{"cores": 4} | fields)
    return placed(world)[job]


def test_a_job_goes_where_a_machine_waits_for_it() -> None:
    world = warm()
    park(world, "h3")
    assert hosts_of(world) == ("h3",)


@pytest.mark.parametrize(
    "other", [{"user": "bob"}, {"cores": 3}, {"memory_mb": 512}, {"nodes": 2}, {"exclusive": True}], ids=str
)
def test_a_machine_that_waits_for_another_is_left_alone(other: dict[str, Any]) -> None:
    world = warm()
    park(world, "h1")
    assert "h1" not in hosts_of(world, **other)


def test_a_department_may_share_its_machines() -> None:
    world = warm(share="department")
    park(world, "h3")
    assert hosts_of(world, user="bob") == ("h3",)


def test_where_nothing_is_parked_hosts_go_by_name() -> None:
    world = warm()
    assert hosts_of(world) == ("h1",)


def test_a_machine_serves_one_of_several_starts() -> None:
    world = warm(3)
    park(world, "h2")
    jobs = [world.submit(cores=4) for _ in range(3)]
    found = placed(world)
    assert found[jobs[0]] == ("h2",)
    assert sorted(found[job][0] for job in jobs) == ["h1", "h2", "h3"]


def test_a_fuller_host_still_comes_before_an_empty_one_with_a_machine() -> None:
    world = warm()
    park(world, "h3", cores=1)
    stays = running(world, cores=3, user="bob")
    assert "h3" not in world.unit(stays).hosts
    assert hosts_of(world, cores=1) == world.unit(stays).hosts  # best fit: they are not equal


def test_a_machine_that_has_found_its_job_waits_for_nobody() -> None:
    world = warm()
    old = park(world, "h3")
    vm = next(iter(world.custody.state.vms.values())).vm
    job = world.submit(cores=4)
    world.settle()
    assert core(world).state.warm == {old: "ann"}
    world.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=vm, host="h3"))
    assert world.voids == []
    assert core(world).state.warm == {}
    world.begin(job)
    world.report(job)
    world.write("admission", f.VmParked(unit=job, attempt=1, rank=0))
    assert core(world).state.warm == {job: "ann"}
    world.end_vm(job)
    assert core(world).state.warm == {}


def test_without_warm_machines_nobody_is_remembered() -> None:
    world = able(1)
    job = running(world)
    world.report(job)
    assert core(world).state.warm == {}


def test_idle_hosts_without_a_parked_machine_go_back_first() -> None:
    world = warm(3)
    park(world, "h1")
    assert core(world).custody.index.parked
    world.quota("hpc", 1)
    assert released(world) == ["h2", "h3"]
    world.quota("hpc", 0)
    assert released(world) == ["h2", "h3", "h1"]


@pytest.mark.parametrize("apart", [False, True], ids=["quick", "by the order of victims"])
def test_parked_machines_go_before_anybody_has_to_end(apart: bool) -> None:
    world = warm(3)
    park(world, "h2")
    others = ("h1", "h2")
    for name in others:
        world.rest(name)
    job = running(world, after_s=1)
    assert world.unit(job).hosts == ("h3",)
    for name in others:
        world.rest(name, 0.0)
    if apart:
        world.write("executor", f.HostQuarantined(host="h1", until=world.now, reason="x"))
    world.quota("hpc", 1)
    assert [fact.host for fact in decide(world) if isinstance(fact, f.HostReleased)] == ["h1", "h2"]
    assert not any(isinstance(fact, f.AttemptClosed) for fact in decide(world))


def suspended(world: World, **fields: Any) -> str:
    """A job that ran on the last host and was suspended; all hosts are back."""
    names = list(world.custody.state.hosts)
    for name in names[:-1]:
        world.rest(name)
    job = running(world, on_reclaim="suspend", after_s=7, **fields)
    for name in names[:-1]:
        world.rest(name, 0.0)
    world.drain(names[-1])
    world.decide(world.seats["scheduler.hpc"])
    for vm in list(world.custody.state.vms.values()):
        world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why=f.SUSPENDED))
    return job


def test_a_suspended_job_goes_on_at_home_if_that_is_as_good_and_elsewhere_if_it_is_taken() -> None:
    world = warm(3)
    job = suspended(world)
    assert placed(world)[job] == ("h1",)  # its own has been given back
    world.write("admission", f.HostUncordoned(host="h3", reason="", user="root"))
    world.write("executor", f.HostCleared(host="h3"))
    world.grant("hpc", "h3")
    assert placed(world)[job] == ("h3",)


# ------------------------------------------------------------------------------------------------------ for all plans


@given(data=st.data())
def test_a_plan_is_exchanged_within_classes_and_stays_the_same_plan(data: st.DataObject) -> None:
    custody, count = Custody(), data.draw(st.integers(2, 7))
    for number in range(count):
        cores = data.draw(st.sampled_from((2, 4)))
        host = Host(name=f"h{number}", size=Size(cores, 4096), state="held", dept="hpc")
        custody.state.hosts[host.name] = host
        custody.index.add_host(host)
    names = list(custody.state.hosts)
    for number, host in enumerate(data.draw(st.lists(st.sampled_from(names), max_size=6)), start=100):
        size = Size(data.draw(st.sampled_from((1, 2))), 256)
        custody.state.units[str(number)] = Unit(id=str(number), dept="hpc", state="final", attempt=1, size=size)
        vm = Vm(unit=str(number), attempt=1, rank=0, vm=number, host=host, allocated_at=0.0, parked_at=1.0)
        custody.state.vms[f"{number}/1/0"] = vm
        custody.index.add_vm(f"{number}/1/0", vm)
    was = {unit: data.draw(st.sampled_from(("ann", "bob"))) for unit in custody.state.units}
    room, origins = Room.of(custody, "hpc"), {}
    plan, starts = room.copy(), []
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        shape = Shape(
            data.draw(st.integers(1, 3)), Size(data.draw(st.sampled_from((1, 2))), 256), data.draw(st.booleans())
        )
        hosts = plan.take(shape)
        if hosts is not None:
            starts.append(Start(str(number), shape, hosts, because.FirstFit()))
            origins[str(number)] = tuple(data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
    failed = {unit: tuple(data.draw(st.lists(st.sampled_from(names), max_size=2))) for unit in origins}
    given_ = Unexchanged(
        *(custody, "hpc", KEEP, lambda _: "ann", was),
        *(origins.__getitem__, failed.__getitem__, data.draw(st.booleans())),
    )
    found = settle(starts, room, given_)
    assert [(s.unit, s.shape, len(s.hosts)) for s in found] == [(s.unit, s.shape, len(s.hosts)) for s in starts]
    exchanged: dict[str, str] = {}
    for before, after in zip(starts, found, strict=True):
        for old, new in zip(before.hosts, after.hosts, strict=True):
            assert room.free[old] == room.free[new]
            assert exchanged.setdefault(old, new) == new
    assert len(dict.fromkeys(exchanged.values())) == len(exchanged)  # nobody shares what nobody shared
    fits = room.copy()
    for start in found:
        assert len(dict.fromkeys(start.hosts)) == start.shape.nodes
        assert all(fits.free[host].fits(start.shape) for host in start.hosts)
        fits.use(start.hosts, start.shape)
