"""Three web departments and a batch one on the cores of production: what is short moves between them, on notice."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from tests.support.world import World, batch, cloud, web

HOSTS = 16
NAMES = ("blog", "news", "shop")


@pytest.fixture
def world() -> World:
    """`news` goes before `blog` and `shop`; `hpc` keeps 4 hosts, and every host has a job until web wants it."""
    departments = [web(name, drain_s=1.0) for name in NAMES]
    departments[1] = msgspec.structs.replace(departments[1], priority=1)
    departments[2] = msgspec.structs.replace(departments[2], weight=2.0)
    made = World(cloud(batch("hpc", guarantee=4), *departments))
    made.strict = False  # what each envelope leads to is verified by the cores' own tests; here, that hosts arrive
    made.hosts(HOSTS)
    made.seat("provisioner", ProvisionerCore)
    made.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    for name in NAMES:
        made.seat(f"scheduler.{name}", lambda custody, name=name: WebCore(custody, name))
    made.executor()
    made.guests()
    for _ in range(HOSTS):
        made.submit(cores=4)
    for name in NAMES:
        wants(made, name, 1)
    return made


def wants(world: World, name: str, instances: int) -> dict[str, int]:
    """A person wants so many, one to a host.  Who holds how many when all have settled."""
    world.write("admission", f.ScaleRequested(dept=name, user="wes", exact=instances))
    world.advance(5.0)
    return {name: len(hosts) for name, hosts in sorted(world.custody.index.held.items()) if hosts}


def test_what_is_short_moves_to_who_has_fewer_for_its_weight(world: World) -> None:
    assert wants(world, "blog", 20) == {"blog": 10, "hpc": 4, "news": 1, "shop": 1}  # batch keeps what is guaranteed
    before = len(world.facts(f.QuotaChanged))
    assert wants(world, "shop", 20) == {"blog": 4, "hpc": 4, "news": 1, "shop": 7}  # of 11: 3 2/3 and 7 1/3
    told = {fact.dept: fact for fact in world.facts(f.QuotaChanged)[before:]}
    assert set(told) == {"blog", "shop"}
    assert (told["blog"].hosts, told["shop"].hosts) == (4, 7)
    assert told["blog"].reason is not None
    assert type(told["blog"].reason) is because.WebShare
    assert because.fields(told["blog"].reason) == {"departments": ["shop"], "demand": 20, "held": 10, "quota": 4}
    assert wants(world, "news", 6) == {"blog": 2, "hpc": 4, "news": 6, "shop": 4}  # it goes before both
    assert wants(world, "shop", 1) == {"blog": 5, "hpc": 4, "news": 6, "shop": 1}
    assert wants(world, "news", 1) == {"blog": 10, "hpc": 4, "news": 1, "shop": 1}
    assert wants(world, "blog", 2) == {"blog": 2, "hpc": 12, "news": 1, "shop": 1}
    assert not world.facts(f.HostSeized)  # everybody gave back in time
    assert not world.voids
    serving = {name: len(world.seats[f"scheduler.{name}"].core.inventory.active) for name in NAMES}
    assert serving == {"blog": 2, "news": 1, "shop": 1}


def test_between_equals_nothing_moves_without_need(world: World) -> None:
    """`blog` and `shop` weigh the same here: of 11 hosts one has 6, and which one it is stays."""
    config = world.custody.state.config
    assert config is not None
    equal = tuple(msgspec.structs.replace(d, weight=1.0) for d in config.departments)
    adopted = world.facts(f.ConfigAdopted)[0]
    config = msgspec.structs.replace(config, departments=equal)
    world.write("provisioner", msgspec.structs.replace(adopted, config=config))
    wants(world, "shop", 20)
    assert wants(world, "blog", 20) == {"blog": 5, "hpc": 4, "news": 1, "shop": 6}  # by name it would be blog's
    granted = len(world.facts(f.HostGranted))
    for demand in (19, 7, 6, 20, 8):
        assert wants(world, "shop", demand) == {"blog": 5, "hpc": 4, "news": 1, "shop": 6}
    for demand in (19, 7, 6, 5, 20):
        assert wants(world, "blog", demand) == {"blog": 5, "hpc": 4, "news": 1, "shop": 6}
    assert len(world.facts(f.HostGranted)) == granted


def test_no_one_waits_for_all_of_anothers_hosts(world: World) -> None:
    """Hosts that come back one by one go to whoever holds fewest for its weight."""
    world.seats["executor"].paused = True  # what is released drains
    wants(world, "blog", 4)
    wants(world, "shop", 8)
    draining = sorted(world.custody.index.by_state["draining"])
    assert len(draining) == 9  # to be 4 and 7
    seen = []
    for host in draining:
        for vm in [vm for vm in world.custody.state.vms.values() if vm.host == host]:
            world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="stopped"))
        world.write("executor", f.HostCleared(host=host))
        world.settle()
        seen.append((world.custody.held("blog"), world.custody.held("shop")))
    assert seen == [(1, 2), (1, 3), (2, 3), (2, 4), (2, 5), (3, 5), (3, 6), (3, 7), (4, 7)]
