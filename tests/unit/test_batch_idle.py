"""The short ways: idle hosts answer a notice as every order of victims would; a core that rests has nothing to say."""

from __future__ import annotations

from functools import partial

import pytest

from schemas import facts as f
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.reclaim import idle_hosts, loads
from services.scheduler.core.policies.registry import VICTIMS
from tests.support.world import World, batch, cloud


def _department(*, kinds: int) -> tuple[World, BatchCore]:
    """Twelve hosts of so many kinds, some of them at work."""
    world = World(cloud(batch("hpc")))
    seat = world.seat("scheduler.hpc", partial(BatchCore, dept="hpc"))
    names = [name for kind in range(kinds) for name in world.hosts(12 // kinds, cores=2 + kind, first=1 + 12 * kind)]
    world.grant("hpc", *names)
    for nodes, cores in ((3, 2), (1, 1), (2, 2)):
        world.submit("hpc", nodes=nodes, cores=cores)
    world.settle()
    core: BatchCore = seat.core
    return world, core


@pytest.mark.parametrize("kinds", [1, 2, 3])
@pytest.mark.parametrize("victims", VICTIMS)
def test_idle_hosts_go_back_as_every_order_of_victims_says(kinds: int, victims: str) -> None:
    world, core = _department(kinds=kinds)
    hosts = loads(core.custody, "hpc", {})
    idle = sum(1 for host in hosts if not host.units)
    assert 0 < idle < len(hosts)
    for count in range(1, idle + 1):
        choice = VICTIMS[victims](hosts, {}, count)
        assert (choice.victims, choice.hosts) == ([], idle_hosts(core.view, count))
    assert idle_hosts(core.view, idle + 1) is None
    world.cordon(hosts[0].name)
    assert idle_hosts(core.view, 1) is None


def test_check_knows_a_core_that_rests_though_it_has_something_to_say() -> None:
    world, core = _department(kinds=1)
    assert core._rests
    assert core.check() == []
    core._on[f.JobSubmitted] = core.view.jobs.submitted  # forgets to wake up
    with pytest.raises(AssertionError):  # the world asks `check` after each fact
        world.submit("hpc", nodes=1, cores=1)
    assert any("it rests though it has to say" in problem for problem in core.check())


def test_an_idle_host_that_is_set_apart_for_long_goes_back_and_another_one_comes_for_it() -> None:
    world = World(cloud(batch("bio", maximum=1), batch("hpc", maximum=1)))
    for dept in ("bio", "hpc"):
        world.seat(f"scheduler.{dept}", partial(BatchCore, dept=dept))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    world.hosts(3)
    world.settle()
    [held] = world.custody.index.held["hpc"]
    job = world.submit("hpc", cores=2)
    world.settle()
    world.write("executor", f.HostQuarantined(host=held, reason="disabled", until=world.now + 1e8))
    world.settle()
    assert world.unit(job).hosts == (held,)  # it goes on
    waits = world.submit("hpc")
    world.settle()
    assert world.unit(waits).state == "pending"  # hpc may hold one host, and that one has a job
    world.report(job)
    world.settle()
    assert world.custody.state.hosts[held].state == "free"
    assert world.unit(waits).hosts == ("h3",)


def test_an_idle_host_that_is_soon_tried_again_stays_where_it_is() -> None:
    world, core = _department(kinds=1)
    idle = next(name for name in sorted(core.custody.index.held["hpc"]) if not core.custody.state.hosts[name].units)
    world.write("executor", f.HostQuarantined(host=idle, reason="starts failed", until=world.now + 60))
    world.settle()
    assert world.custody.state.hosts[idle].state == "held"
