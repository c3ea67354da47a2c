"""GPUs: who is placed and granted where they are, what the door refuses, and what cannot be moved with them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from lxml import etree

from schemas import facts as f
from schemas.config import Capability, Department, WebPolicy
from schemas.facts import Disposal
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.refusal import Refused
from services.executor.opennebula.client import host_sight
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import registry
from services.scheduler.core.web.core import WebCore
from tests.support.admission import fold
from tests.support.scheduling import closed, core, demand, released
from tests.support.world import World, batch, cloud, web

KEEPS: tuple[Capability, ...] = (*ALL, "keep_devices")


def describe(world: World, name: str, gpus: int, cores: int = 4) -> None:
    described = f.HostDescribed(host=name, one_id=int(name[1:]), cores=cores, memory_mb=8192, gpus=gpus)
    world.write("executor", described, f.HostCleared(host=name))


def site(
    *gpus: int, capabilities: tuple[Capability, ...] = (), others: tuple[Department, ...] = (), **policy: Any
) -> World:
    """Hosts h1, h2, … of hpc, of 4 cores, with these numbers of GPUs.  `others`: departments beside hpc."""
    world = World(msgspec.structs.replace(cloud(batch("hpc", **policy), *others), capabilities=capabilities))
    for number, count in enumerate(gpus, start=1):
        describe(world, f"h{number}", count)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *(f"h{number}" for number in range(1, len(gpus) + 1)))
    return world


def hosts_of(world: World, job: str) -> tuple[str, ...]:
    world.settle()
    return world.unit(job).hosts


# ------------------------------------------------------------------------------------------------------------- placement


@pytest.mark.parametrize("order", [name for name in registry.ORDERS if name != "svmsched"])
def test_a_job_that_needs_none_has_a_host_with_gpus_last(order: str) -> None:
    world = site(2, 0, 0, order=order)
    jobs = [world.submit(cores=4) for _ in range(3)]
    assert [hosts_of(world, job) for job in jobs] == [("h2",), ("h3",), ("h1",)]


def test_nor_beside_a_job_that_has_some_of_them() -> None:
    world = site(2, 0)
    first, second = world.submit(gpus=1), world.submit()
    assert (hosts_of(world, first), hosts_of(world, second)) == (("h1",), ("h2",))


def test_gpus_run_out_as_cores_do() -> None:
    world = site(2)
    jobs = [world.submit(gpus=1) for _ in range(3)]
    assert [hosts_of(world, job) for job in jobs] == [("h1",), ("h1",), ()]
    world.report(jobs[0])
    assert hosts_of(world, jobs[2]) == ("h1",)
    assert world.custody.state.hosts["h1"].used == Size(2, 512, 2)


def test_of_two_hosts_with_gpus_the_one_with_fewer_is_taken() -> None:
    world = site(4, 2)
    assert hosts_of(world, world.submit(gpus=2)) == ("h2",)


def test_instances_stand_on_hosts_without_gpus_first() -> None:
    world = World(cloud(web("web", instances_min=2, instances_per_host=1)))
    for name, gpus in (("h1", 1), ("h2", 0), ("h3", 0)):
        describe(world, name, gpus)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.grant("web", "h1", "h2", "h3")
    world.settle()
    assert sorted(unit.hosts for unit in world.custody.state.units.values()) == [("h2",), ("h3",)]


def test_an_instance_may_have_gpus() -> None:
    world = World(cloud(web("web", instances_min=1, instance_gpus=2)))
    for name, gpus in (("h1", 1), ("h2", 2)):
        describe(world, name, gpus)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.grant("web", "h1", "h2")
    world.settle()
    assert [(unit.hosts, unit.size.gpus) for unit in world.custody.state.units.values()] == [(("h2",), 2)]


# ------------------------------------------------------------------------------------------------------ demand and grants


def arbitrated(*departments: Department) -> World:
    """h1 and h2 without GPUs, h3 with one: free."""
    world = World(cloud(*departments))
    for name, gpus in (("h1", 0), ("h2", 0), ("h3", 1)):
        describe(world, name, gpus)
    world.seat("provisioner", ProvisionerCore)
    for department in departments:
        if department.kind == "batch":
            name = department.name
            world.seat(f"scheduler.{name}", lambda custody, name=name: BatchCore(custody, name))  # type: ignore[misc]
    return world


def holders(world: World) -> dict[str, str | None]:
    return {host.name: host.dept for host in world.custody.state.hosts.values()}


def test_demand_names_what_is_needed_of_what_is_scarce() -> None:
    world = site(0)
    describe(world, "h9", 1)  # free
    world.submit(cores=2, gpus=1)
    world.submit(cores=1)
    world.settle()
    *_, told = world.facts(f.DemandChanged)
    assert told.sizes == (Size(2, 256, 1).fields(),)
    assert core(world).state.sizes == told.sizes


def test_a_free_host_with_a_gpu_goes_to_who_needs_it_also_if_another_comes_first() -> None:
    world = arbitrated(batch("aaa"), batch("hpc"))
    world.submit("aaa", cores=4)
    job = world.submit("hpc", cores=1, gpus=1)
    world.settle()
    assert holders(world)["h3"] == "hpc"
    assert (world.unit(job).hosts, holders(world)["h1"]) == (("h3",), "aaa")


def test_and_not_to_web_that_needs_none_while_another_host_is_free() -> None:
    shop = Department(name="shop", kind="web", web=WebPolicy())
    world = arbitrated(batch("hpc"), shop)
    world.write("scheduler.shop", f.DemandChanged(dept="shop", hosts=1))
    world.submit("hpc", gpus=1)
    world.settle()
    assert {name for name, dept in holders(world).items() if dept == "shop"} < {"h1", "h2"}
    assert holders(world)["h3"] == "hpc"


def test_idle_hosts_without_gpus_are_wanted_beside_the_one_that_is_needed() -> None:
    world = site(0, 0)
    describe(world, "h9", 1)  # free
    assert demand(world) == 0
    world.submit(gpus=1)
    assert demand(world) == 3


@pytest.mark.parametrize(
    ("others", "needed", "goes"),
    [
        ((), False, "h1"),
        ((web("web"),), False, "h1"),  # its instances need none
        ((web("web", instance_gpus=1),), False, "h2"),
        ((batch("lab"),), False, "h2"),
        ((batch("lab"),), True, "h1"),
    ],
)
def test_an_idle_host_with_gpus_is_given_back_last_unless_another_department_alone_may_need_them(
    others: tuple[Department, ...], needed: bool, goes: str
) -> None:
    world = site(0, 1, 0, others=others)
    if needed:
        world.submit(nodes=2, gpus=1)  # there is one such host: it waits
        world.settle()
    world.quota("hpc", 2)
    assert released(world) == [goes]


# ------------------------------------------------------------------------------------------------------------------ door


def asks(gpus_of_hosts: tuple[int, ...], **asked: Any) -> Size:
    world = fold()
    for number, count in enumerate(gpus_of_hosts):
        described = f.HostDescribed(host=f"g{number}", one_id=number, cores=8, memory_mb=16_000, gpus=count)
        world.put(described, writer="executor")
    job = world.core.job(world.submit(**asked))
    assert job is not None
    return job.size.times(job.nodes)._replace(cores=job.nodes)  # GPUs in all, and in the place of cores the nodes


@pytest.mark.parametrize(
    ("asked", "nodes", "gpus"),
    [
        ({"gpus": 2}, 1, 2),
        ({"gpus_per_node": 2, "nodes": 2}, 2, 4),
        ({"gpus": 4, "nodes": 2}, 2, 4),
        ({"gpus": 2, "nodes": 2}, 2, 2),
        ({"gpus": 0}, 1, 0),
        ({"tasks": 16, "gpus": 4}, 2, 4),
        ({"gpus_per_task": 2}, 1, 2),
        ({"tasks": 2, "gpus_per_task": 1}, 1, 2),
        ({"tasks": 3, "gpus_per_task": 1}, 2, 4),  # no host has three: two nodes of two tasks each at most
        ({"tasks": 4, "nodes": 2, "gpus_per_task": 1}, 2, 4),
        ({"tasks": 2, "gpus_per_task": 2}, 2, 4),
        ({"tasks": 2, "gpus_per_task": 0}, 1, 0),
    ],
)
def test_gpus_are_in_all_or_on_each_node(asked: dict[str, Any], nodes: int, gpus: int) -> None:
    found = asks((2, 2), **asked)
    assert (found.cores, found.gpus) == (nodes, gpus)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"gpus": 3}, "gpus"),
        ({"gpus_per_node": 3}, "gpus_per_node"),
        ({"gpus": 3, "nodes": 2}, "gpus"),
        ({"gpus_per_node": 1, "nodes": 3}, "nodes"),
        ({"gpus_per_task": 3}, "gpus_per_task"),
        ({"gpus_per_task": 1, "tasks": 3, "nodes": 1}, "gpus_per_task"),
        ({"gpus_per_task": 2, "tasks": 3}, "tasks"),
    ],
)
def test_what_no_hosts_have_is_refused_with_its_field(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as error:
        asks((2, 2), **asked)
    assert (error.value.code, error.value.field) == ("invalid", field)
    assert "GPU" in str(error.value)


# ----------------------------------------------------------------------------------------------------------- what is fixed


@pytest.mark.parametrize(
    ("capabilities", "gpus", "disposal"),
    [
        (ALL, 0, Disposal.SUSPEND),
        (ALL, 1, Disposal.REQUEUE),
        (KEEPS, 1, Disposal.SUSPEND),
    ],
)
def test_with_gpus_a_job_is_suspended_only_where_the_hypervisor_can(
    capabilities: tuple[Capability, ...], gpus: int, disposal: Disposal
) -> None:
    world = site(1, capabilities=capabilities, on_reclaim="suspend")
    job = world.submit(gpus=gpus)
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += 5.0
    world.quota("hpc", 0)
    assert {unit: how for unit, (how, _) in closed(world).items()} == {job: disposal}


@pytest.mark.parametrize("wish", ["suspend", "migrate"])
def test_and_who_asks_for_it_is_refused_at_the_door(wish: str) -> None:
    world = fold()
    world.put(f.HostDescribed(host="g", one_id=1, cores=8, memory_mb=16_000, gpus=1), writer="executor")
    config = world.custody.state.config
    assert config is not None
    world.adopt(msgspec.structs.replace(config, capabilities=ALL))
    assert world.submit(on_reclaim=wish)
    with pytest.raises(Refused, match="devices of its host") as error:
        world.submit(on_reclaim=wish, gpus=1)
    assert (error.value.code, error.value.field) == ("invalid", "on_reclaim")
    world.adopt(msgspec.structs.replace(config, capabilities=KEEPS))
    assert world.submit(on_reclaim=wish, gpus=1)


# ------------------------------------------------------------------------------------------------------ rules and limits


def test_under_older_rules_gpus_are_not_counted() -> None:
    for rules, gpus in ((4, 0), (5, 2)):
        world = World()
        world.write("provisioner", f.ConfigAdopted(cloud="c", custody_rules=rules, config=cloud(batch("hpc"))))
        describe(world, "h1", 2)
        custody: Custody = world.custody
        assert custody.state.hosts["h1"].size == Size(4, 8192, gpus)


def test_a_limit_of_gpus_keeps_a_job_waiting() -> None:
    world = site(4, maximum=1)
    config = world.custody.state.config
    assert config is not None
    limited = msgspec.structs.replace(config.departments[0], maximum_gpus=2)
    adopted = msgspec.structs.replace(config, departments=(limited,))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=5, config=adopted))
    jobs = [world.submit(gpus=2), world.submit(gpus=1), world.submit()]
    assert [hosts_of(world, job) for job in jobs] == [("h1",), (), ("h1",)]


# -------------------------------------------------------------------------------------------------------------- OpenNebula


def test_a_hosts_gpus_are_its_devices_of_that_class_and_those_that_vms_have_are_in_use() -> None:
    devices = "".join(
        f"<PCI><CLASS>{kind}</CLASS><VMID>{vm}</VMID></PCI>" for kind, vm in (("0302", -1), ("0302", 7), ("0200", -1))
    )
    share = "<MAX_CPU>800</MAX_CPU><TOTAL_CPU>800</TOTAL_CPU><MAX_MEM>1048576</MAX_MEM><CPU_USAGE>0</CPU_USAGE>"
    found = f"<HOST_SHARE>{share}<PCI_DEVICES>{devices}</PCI_DEVICES></HOST_SHARE>"
    sight = host_sight(etree.fromstring(f"<HOST><ID>1</ID><NAME>h</NAME><STATE>2</STATE>{found}</HOST>"))
    assert (sight.size, sight.asked) == (Size(8, 1024, 2), Size(0, 0, 1))
