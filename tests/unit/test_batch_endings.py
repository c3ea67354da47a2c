"""The batch core: attempts that end early, hosts that are asked back, and what is demanded."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from tests.support.scheduling import closed, cluster, core, decide, demand, placed, released, running, wait_for

# ------------------------------------------------------------------------------------------------ cancelled, broken, failed


def test_a_running_job_that_is_cancelled_is_closed_so() -> None:
    world = cluster()
    job = world.submit()
    world.settle()
    world.cancel(job)
    assert closed(world) == {job: (Disposal.CANCELLED, because.Cancelled)}
    world.settle()
    assert world.states() == {job: "cancelled"}


def test_an_attempt_is_closed_for_one_reason_only() -> None:
    world = cluster()
    job = world.submit(walltime_s=10)
    world.settle()
    world.begin(job)
    world.now += 10
    world.cancel(job)
    assert [type(fact) for fact in decide(world)] == [f.AttemptClosed]
    assert closed(world) == {job: (Disposal.CANCELLED, because.Cancelled)}


def test_a_retried_job_enters_again_at_the_end() -> None:
    world = cluster(1, cores=1)
    first, second = world.submit(retries=1), world.submit()
    world.settle()
    world.report(first, exit=1)
    world.settle()
    assert world.states() == {first: "pending", second: "open"}


def test_a_lost_host_requeues_its_jobs_whatever_they_wish() -> None:
    world = cluster(1)
    job = world.submit(on_reclaim="kill")
    world.settle()
    world.lose("h1")
    assert closed(world) == {job: (Disposal.REQUEUE, because.LostHost)}


@pytest.mark.parametrize(
    ("wish", "disposal"),
    [
        ("kill", Disposal.KILL),
        ("requeue", Disposal.REQUEUE),
        ("suspend", Disposal.REQUEUE),
        ("migrate", Disposal.REQUEUE),
    ],
)
def test_a_seized_host_ends_its_jobs_as_they_wish(wish: str, disposal: Disposal) -> None:
    world = cluster(2)
    job = world.submit(nodes=2, on_reclaim=wish)
    world.settle()
    world.seats["scheduler.hpc"].paused = True
    world.quota("hpc", 1)
    world.write("provisioner", f.HostSeized(host="h1", dept="hpc"))
    world.seats["scheduler.hpc"].paused = False
    world.seats["scheduler.hpc"].fold(world.journal)
    (fact,) = [fact for fact in decide(world) if isinstance(fact, f.AttemptClosed)]
    assert (fact.unit, fact.disposal, type(fact.why)) == (job, disposal, because.HostTaken)
    assert because.fields(fact.why) == ({"asked": wish, "instead": "requeue"} if wish in ("suspend", "migrate") else {})


def test_preemption_never_spends_a_retry_and_is_bounded_by_requeues_max() -> None:
    world = cluster(1, requeues_max=2)
    world.executor()
    job = world.submit(retries=1)
    for _ in range(3):
        world.settle()
        world.quota("hpc", 0)
        world.settle()
        world.grant("hpc", "h1")
    assert world.states() == {job: "killed"}
    assert world.unit(job).failures == 0


def test_a_late_success_of_a_requeued_attempt_counts() -> None:
    world = cluster(1)
    job = world.submit()
    world.settle()
    world.quota("hpc", 0)
    world.settle()
    assert world.states() == {job: "pending"}
    world.report(job)
    world.settle()
    assert world.states() == {job: "completed"}
    assert len(core(world).view.jobs.queue) == 0


# ------------------------------------------------------------------------------------------------------------------ notice


def test_idle_hosts_go_first_and_nobody_is_closed() -> None:
    world = cluster(3)
    running(world)
    world.quota("hpc", 1)
    assert released(world) == ["h2", "h3"]
    assert closed(world) == {}


def test_the_smallest_then_shortest_job_is_the_victim_and_all_is_one_envelope() -> None:
    world = cluster(4)
    wide = running(world, nodes=2, after_s=1)
    long = running(world, after_s=50)
    short = running(world, after_s=1)
    world.quota("hpc", 3)
    facts = decide(world)
    assert [type(fact) for fact in facts] == [f.AttemptClosed, f.HostReleased]
    assert closed(world) == {short: (Disposal.REQUEUE, because.Reclaimed)}
    world.quota("hpc", 2)
    assert set(closed(world)) == {short, long}
    world.quota("hpc", 1)
    assert set(closed(world)) == {short, wide}  # three hosts: with the wide one, the long one need not go
    assert len(released(world)) == 3


def test_the_papers_order_ends_whom_it_has_named_even_if_their_hosts_stay() -> None:
    world = cluster(3, victims="smallest-shortest")
    wide = running(world, nodes=2, after_s=1)
    narrow = running(world, after_s=9)
    world.quota("hpc", 1)
    assert released(world) == ["h1", "h2"]
    assert set(closed(world)) == {narrow, wide}
    world.settle()
    assert world.voids == []


def test_a_narrow_job_goes_before_a_wide_one_however_long_it_has_run() -> None:
    world = cluster(3)
    narrow = running(world, after_s=500)
    running(world, nodes=2, after_s=1)
    world.quota("hpc", 2)
    assert list(closed(world)) == [narrow]


def test_who_is_alone_on_a_host_goes_rather_than_two_that_share_one() -> None:
    world = cluster(2)
    running(world, cores=2, after_s=1)
    running(world, cores=2, after_s=1)
    alone = running(world, cores=4, after_s=100)
    world.quota("hpc", 1)
    assert list(closed(world)) == [alone]


def test_nothing_is_placed_while_hosts_are_asked_back() -> None:
    world = cluster(3)
    world.quota("hpc", 2)
    job = world.submit()
    assert placed(world) == {}
    world.settle()
    assert world.states() == {job: "open"}
    assert world.custody.held("hpc") == 2


def test_a_victim_whose_disposal_is_kill_is_final() -> None:
    world = cluster(1, on_reclaim="kill")
    job = running(world)
    world.quota("hpc", 0)
    world.settle()
    assert world.states() == {job: "killed"}


# ------------------------------------------------------------------------------------------------------------------ demand


def test_demand_is_what_the_queue_could_use_up_to_all_usable_hosts() -> None:
    world = cluster(4, held=1)
    assert demand(world) == 0
    world.submit(cores=4)
    assert demand(world) == 1
    world.submit(cores=4)
    assert demand(world) == 2
    for _ in range(9):
        world.submit(cores=4)
    assert demand(world) == 4
    world.lose("h4")
    assert demand(world) == 3


def test_demand_counts_ranks_on_a_host_and_the_width_of_a_job() -> None:
    world = cluster(5, held=0)
    for _ in range(6):
        world.submit(cores=2)
    assert demand(world) == 3
    world.submit(nodes=2, cores=1)
    assert demand(world) == 5


def test_what_may_not_start_is_no_demand() -> None:
    world = cluster(4, held=0)
    first = world.submit(held=True)
    world.submit(after=wait_for(first))
    world.submit(cores=99)
    assert demand(world) == 0
    world.submit(array=(1, 2, 3), cores=4, throttle=2)
    assert demand(world) == 2


def test_a_job_that_starts_beside_another_changes_no_demand() -> None:
    world = cluster(2)
    for _ in range(4):
        world.submit(cores=1)
        world.settle()
    assert [fact.hosts for fact in world.facts(f.DemandChanged)] == [1]
