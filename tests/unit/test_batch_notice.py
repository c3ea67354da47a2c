"""A contract's notice: idle hosts go back at once, jobs have time to end, and nobody is late."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from services.domain.custody.state import Quota
from services.scheduler.core.batch import reclaim
from tests.support.scheduling import closed, cluster, core, demand, placed, released, running


@pytest.mark.parametrize("by_s", [0.3, 0.1, -5.0])
def test_the_policys_notice_is_answered_at_once(by_s: float) -> None:
    world = cluster(2)
    running(world)
    running(world)
    world.quota("hpc", 1, by_s=by_s)
    assert len(closed(world)) == 1
    assert len(released(world)) == 1


def test_on_a_longer_notice_idle_hosts_go_and_jobs_have_until_the_policys_is_left() -> None:
    world = cluster(3)
    first, second = running(world), running(world)
    world.quota("hpc", 0, by_s=60.0)
    assert (released(world), closed(world)) == (["h3"], {})
    world.settle()
    assert world.custody.held("hpc") == 2
    due = core(world).wake_at()
    assert due == pytest.approx(world.now + 59.7)
    world.report(first)  # it ends in time: its host goes back at once, and nobody is killed for it
    assert (len(released(world)), closed(world)) == (1, {})
    world.settle()
    world.now = due
    assert list(closed(world)) == [second]
    world.settle()
    assert world.custody.held("hpc") == 0


def test_nothing_is_placed_meanwhile_and_demand_is_still_told() -> None:
    world = cluster(2, cores=4)
    running(world, cores=2)
    running(world, cores=4)
    world.quota("hpc", 1, by_s=60.0)
    world.settle()
    world.hosts(1, first=3)
    world.submit(cores=1)  # there is room for it
    assert placed(world) == {}
    world.submit(cores=4)
    assert placed(world) == {}
    assert demand(world) == 3


def test_of_two_notices_each_has_its_time() -> None:
    world = cluster(3)
    for _ in range(3):
        running(world)
    world.quota("hpc", 2, by_s=20.0)
    world.quota("hpc", 0, by_s=60.0)
    first = core(world).wake_at()
    assert first == pytest.approx(world.now + 19.7)
    world.now = first
    assert len(closed(world)) == 1
    world.settle()
    assert core(world).wake_at() == pytest.approx(first + 40.0)


@pytest.mark.parametrize("notice_s", [0.1, 0.3, 1 / 3, 7.7])
@pytest.mark.parametrize("now", [0.1, 454.56800000000004, 1.7e9 + 1 / 3])
def test_a_wake_up_finds_its_time_come_however_sums_are_rounded(now: float, notice_s: float) -> None:
    world = cluster(1)
    running(world, walltime_s=1e10)
    config = world.custody.state.config
    assert config is not None
    config = msgspec.structs.replace(config, policy=msgspec.structs.replace(config.policy, notice_s=notice_s))
    world.write("provisioner", f.ConfigAdopted(cloud="x", custody_rules=1, config=config))
    world.now += now
    world.quota("hpc", 0, by_s=notice_s)
    assert len(closed(world)) == 1  # the policy's own notice, in the same instant
    world = cluster(1)
    running(world, walltime_s=1e10)
    world.now += now
    world.quota("hpc", 0, by_s=60.0 + notice_s)
    assert closed(world) == {}
    world.now = core(world).wake_at()
    assert len(closed(world)) == 1


@pytest.mark.parametrize(
    ("now", "notice_s", "by_s"),
    [
        (2097151.4, 0.7, 0.7),  # by - notice is later than now
        (786432.0, 0.5 + 2**-34, 5.0 + 2**-33),  # (by - notice) + notice is earlier than by
    ],
)
def test_its_time_has_come_if_one_of_the_two_sums_says_so(now: float, notice_s: float, by_s: float) -> None:
    world = cluster(1)
    running(world, walltime_s=1e10)
    config = world.custody.state.config
    assert config is not None
    policy = msgspec.structs.replace(config.policy, notice_s=notice_s)
    world.write(
        "provisioner",
        f.ConfigAdopted(cloud="x", custody_rules=1, config=msgspec.structs.replace(config, policy=policy)),
    )
    level, by = 0, now + by_s
    world.custody.state.quotas["hpc"] = Quota(hosts=0, lowerings=[(level, by)])
    at = now if by_s == notice_s else by - notice_s
    assert (by - notice_s > at) is not (by > at + notice_s)
    assert reclaim.due(world.custody, "hpc", at) == 1
    assert reclaim.due(world.custody, "hpc", at - 0.01) == 0


def test_idle_hosts_answer_the_policys_notice_and_jobs_have_the_longer_one() -> None:
    world = cluster(2)
    running(world)
    world.quota("hpc", 1, by_s=0.3)
    world.quota("hpc", 0, by_s=1.2)
    assert (released(world), closed(world)) == (["h2"], {})


def test_a_host_whose_attempt_is_closed_anyway_goes_back_as_an_idle_one() -> None:
    world = cluster(3)
    world.strict = False
    job = running(world)
    world.cancel(job)
    world.quota("hpc", 2)
    assert (released(world), [*closed(world)]) == (["h1"], [job])
