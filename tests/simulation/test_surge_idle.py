"""Rolling updates with `surge = "idle"` on the cores of production: no job ends for them."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from services.domain import text as sentences
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.lookahead.why_web import why
from tests.support.releases import deploy
from tests.support.world import World, batch, cloud, web

HOSTS = 6
INSTANCES = 2


def full(run_s: dict[str, float], *, jobs: int = HOSTS, nodes: int = 1, surge: str = "idle", **hpc: Any) -> World:
    """Two instances; a job on each host that is left, and more that wait."""
    policy: dict[str, Any] = {"signal_timeout_s": 1e6, "drain_s": 1.0, "min_ready_s": 0.0, "instances_min": INSTANCES}
    world = World(cloud(batch("hpc", **hpc), web("web", surge=surge, **policy)))
    world.hosts(HOSTS)
    world.seat("provisioner", ProvisionerCore)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests(run_s=run_s)
    world.advance(2.0)
    for _ in range(jobs):
        world.submit(cores=4, nodes=nodes)
    world.advance(2.0)
    assert (world.custody.held("hpc"), world.custody.held("web")) == (HOSTS - INSTANCES, INSTANCES)
    return world


def said(world: World) -> list[str]:
    return [fact.state for fact in world.facts(f.ReleaseChanged)]


def ended(world: World) -> list[f.AttemptClosed]:
    """Attempts of jobs that were ended; those that report their end are closed by that."""
    return [fact for fact in world.facts(f.AttemptClosed) if not fact.unit.startswith("web.")]


def reasons(world: World) -> dict[because.Kind, Any]:
    return {type(reason): reason for reason in why(world.seats["scheduler.web"].core, world.now)}


@pytest.mark.parametrize("jobs", [HOSTS - INSTANCES, 3 * HOSTS], ids=["none waits", "others wait"])
def test_on_a_full_cluster_it_waits_until_a_job_has_ended(jobs: int) -> None:
    run_s: dict[str, float] = {}
    world = full(run_s, jobs=jobs)
    deploy(world)
    world.advance(30.0)
    assert (said(world), ended(world)) == (["rolling"], [])
    stuck = reasons(world)[because.RollStuck]
    assert sentences.sentence(stuck).startswith(
        "release 1 waits for an idle host for its next instance: web holds 2 hosts"
    )
    assert '(surge = "idle")' in sentences.sentence(stuck)
    assert "as soon as a host is idle" in sentences.remedy(stuck)
    assert because.WaitsForHosts not in reasons(world)  # it is no claim that is not met
    run_s |= dict.fromkeys(("1", "2"), 35.0)
    world.advance(60.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])
    assert world.custody.held("web") == INSTANCES  # the host has gone back
    assert world.custody.state.demands["web"] == INSTANCES
    assert not world.facts(f.HostSeized)
    assert world.voids == []


def test_a_claim_ends_a_job_there() -> None:
    world = full({}, surge="claim")
    deploy(world)
    world.advance(30.0)
    assert (said(world), len(ended(world))) == (["rolling", "complete"], 1)


def test_with_max_unavailable_it_goes_on_in_place() -> None:
    world = full({})
    deploy(world, max_unavailable=1)
    world.advance(30.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])
    assert len(world.custody.index.occupied["hpc"]) == HOSTS - INSTANCES


def test_what_it_was_given_stays_while_jobs_come() -> None:
    """One host is taken, once, and carries one successor after the other; none goes to and fro."""
    world = full({}, jobs=HOSTS - INSTANCES - 1)
    before = len(world.facts(f.HostGranted))
    deploy(world)
    while len(world.facts(f.HostGranted)) == before:
        assert world.step()
    for _ in range(4):
        world.submit(cores=4)
    world.settle()
    assert world.custody.held("web") == INSTANCES + 1
    world.advance(30.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])
    granted = [fact.dept for fact in world.facts(f.HostGranted)[before:]]
    assert granted == ["web", "hpc"]
    assert len(world.custody.index.occupied["hpc"]) == HOSTS - INSTANCES
    assert world.voids == []


def test_a_job_that_was_placed_as_its_host_was_asked_for_goes_on() -> None:
    """The batch scheduler had not heard of it: the quota is raised again, on a notice on which no job ends."""
    run_s: dict[str, float] = {}
    world = full(run_s, jobs=HOSTS - INSTANCES - 1)
    (idle,) = [name for name in world.custody.index.held["hpc"] if name not in world.custody.index.occupied["hpc"]]
    world.seats["scheduler.hpc"].paused = True
    deploy(world)
    world.settle()
    assert world.custody.quota("hpc").hosts == HOSTS - INSTANCES - 1
    job = world.submit(cores=4)
    world.seats["provisioner"].paused = True
    placed = f.UnitPlaced(unit=job, attempt=1, hosts=(idle,), cores=4, memory_mb=256, exclusive=False)
    world.write("scheduler.hpc", placed)
    world.seats["scheduler.hpc"].paused = False
    world.settle()  # it hears of both, and the provisioner is slow
    world.advance(60.0)
    world.seats["provisioner"].paused = False
    world.advance(10.0)
    assert world.custody.quota("hpc").hosts == HOSTS - INSTANCES
    assert (said(world), ended(world)) == (["rolling"], [])
    run_s[job] = 90.0
    world.advance(60.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])
    assert world.voids == []


def test_idle_pieces_that_a_wide_job_waits_for_are_idle() -> None:
    world = full({}, jobs=1, nodes=HOSTS - INSTANCES - 1)
    world.submit(cores=4, nodes=2)
    world.advance(1.0)
    deploy(world)
    world.advance(30.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])


def test_a_guarantee_of_batch_is_kept() -> None:
    world = full({}, jobs=1, guarantee=HOSTS - INSTANCES)
    deploy(world)
    world.advance(30.0)
    assert (said(world), world.custody.held("hpc")) == (["rolling"], HOSTS - INSTANCES)


def test_a_restart_changes_nothing() -> None:
    world = full({}, jobs=HOSTS - INSTANCES - 1)
    deploy(world)
    while world.step():
        for name in ("provisioner", "scheduler.hpc", "scheduler.web"):
            world.restart(name)
    world.advance(30.0)
    assert (said(world), ended(world)) == (["rolling", "complete"], [])
