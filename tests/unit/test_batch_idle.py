"""The short ways: idle hosts answer a notice as every order of victims would; a core that rests has nothing to say."""

from __future__ import annotations

from functools import partial

import pytest

from schemas import facts as f
from services.scheduler import reclaim
from services.scheduler.batch import BatchCore
from services.scheduler.policies.known import VICTIMS
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
    hosts = reclaim.loads(core.custody, "hpc", {})
    idle = sum(1 for host in hosts if not host.units)
    assert 0 < idle < len(hosts)
    for count in range(1, idle + 1):
        choice = VICTIMS[victims](hosts, {}, count)
        assert (choice.victims, choice.hosts) == ([], core._idle(count))
    assert core._idle(idle + 1) is None
    world.cordon(hosts[0].name)
    assert core._idle(1) is None


def test_check_knows_a_core_that_rests_though_it_has_something_to_say() -> None:
    world, core = _department(kinds=1)
    assert core._rests
    assert core.check() == []
    core._on[f.JobSubmitted] = core.book.submitted  # forgets to wake up
    with pytest.raises(AssertionError):  # the world asks `check` after each fact
        world.submit("hpc", nodes=1, cores=1)
    assert any("it rests though it has to say" in problem for problem in core.check())
