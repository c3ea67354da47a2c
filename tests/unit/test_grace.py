"""A job's own grace: who may ask for it, that the job has it, when its host is left, and what that costs a claim."""

from __future__ import annotations

import msgspec
import pytest

from phoenix.simulate.cluster import Cluster
from phoenix.simulate.workload import Latencies
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Leases, Lending, Policy
from schemas.facts import Disposal
from schemas.requests import JobSubmit
from services.admission.commands import compose
from services.admission.core.admission import Job
from services.admission.guests.boot import boot_of
from services.admission.storage.payloads import Payload
from services.domain import grace
from services.domain.custody.meta import Meta
from services.domain.refusal import Refused
from services.domain.text import sentence
from services.provisioner.core.provisioner import ProvisionerCore
from services.runtime.config.checks import check_cloud
from services.scheduler.core.batch import lease_times
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.preemption_costs import Cost, cheapest_first
from services.scheduler.core.state.limits import START_PATIENCE
from services.scheduler.core.web.core import WebCore
from services.scheduler.lookahead import why as batch_why
from services.scheduler.lookahead import why_web as web_why
from services.scheduler.lookahead.start_estimate import foresee
from tests.support.admission import ANN, Fold, cloud, fold
from tests.support.executor_bench import Bench
from tests.support.executor_stage import FAST
from tests.support.scheduling import closed, cluster, core, released, running
from tests.support.world import World, batch, web
from tests.support.world import cloud as small

USUAL_S = Policy().grace_s
SAVES_S = 30.0


def patient(world: Fold, most_s: float | None = SAVES_S) -> Fold:
    """`hpc` allows its jobs that much."""
    asked = cloud()
    policy = BatchPolicy(grace_max_s=most_s)
    given = tuple(msgspec.structs.replace(d, batch=policy) if d.name == "hpc" else d for d in asked.departments)
    world.adopt(msgspec.structs.replace(asked, departments=given))
    return world


def ask(world: Fold, grace_s: float | None) -> f.JobSubmitted:
    request = JobSubmit(script="#!/bin/sh\n", grace_s=grace_s)
    return compose.submit(world.core, ANN, "hpc", request, "job/x", "d", ())


# ----------------------------------------------------------------------------------------------------------- who may ask


def test_a_job_may_ask_for_as_much_as_its_department_allows() -> None:
    world = patient(fold())
    assert [ask(world, seconds).grace_s for seconds in (None, 0.0, SAVES_S)] == [None, 0.0, SAVES_S]
    with pytest.raises(Refused) as error:
        ask(world, 30.5)
    assert (error.value.code, error.value.field) == ("invalid", "grace_s")
    assert error.value.message == "grace_s: 30.5 s is more than hpc allows: grace_max_s is 30 s"


def test_where_nobody_has_set_it_a_job_may_ask_for_what_it_has_anyway() -> None:
    world = fold()
    assert ask(world, USUAL_S).grace_s == USUAL_S
    with pytest.raises(Refused, match=r"more than hpc allows: 0\.3 s, as grace_max_s is not set"):
        ask(world, 0.5)


@pytest.mark.parametrize(
    ("most", "contract", "right"),
    [
        (0.2, None, "at least 0.3, which its jobs have without asking (policy.grace_s)"),
        (1.0, 2.0, "at least 2, which its jobs have without asking (grace_s of a contract that lends to it)"),
        (1501.0, None, "at most 1500"),
    ],
)
def test_a_maximum_below_what_jobs_have_anyway_is_refused(most: float, contract: float | None, right: str) -> None:
    departments = (Department(name="bio", kind="batch", batch=BatchPolicy()), batch("hpc", grace_max_s=most))
    lends = () if contract is None else (Lending(lender="bio", borrower="hpc", grace_s=contract),)
    (problem,) = check_cloud(CloudConfig(name="site", departments=departments, lending=lends))
    assert problem.path == ("department", 1, "batch", "grace_max_s")
    assert right in problem.right


def test_what_is_between_is_taken() -> None:
    assert not list(check_cloud(CloudConfig(name="site", departments=(batch("hpc", grace_max_s=1500.0),))))


# ------------------------------------------------------------------------------------------------------- that it has it


@pytest.mark.parametrize(("own_s", "expected"), [(None, USUAL_S), (SAVES_S, SAVES_S), (0.0, 0.0)])
def test_its_guest_is_told_its_own(own_s: float | None, expected: float) -> None:
    world = patient(fold())
    job = world.submit(grace_s=own_s)
    world.place(job, "h1")
    known, config = world.core.job(job), world.custody.state.config
    assert isinstance(known, Job)
    assert config is not None
    payload = Payload(script="true", argv=(), environment={}, directory=None, stdout=None, stderr=None, stdin=None)
    boot = boot_of(config, world.custody.state.units[job], 0, known, payload)
    assert boot is not None
    assert boot.grace_s == expected


def dying(grace_s: float | None, *, waited_for: bool) -> float:
    """After how many seconds its VM is ended hard."""
    bench = Bench()
    bench.grant("h0")
    job = f.JobSubmitted(job="1", dept="hpc", user="a", name="j", payload="p", walltime_s=9.0, grace_s=grace_s)
    bench.write("admission", job)
    bench.run("1", "h0")
    bench.close("1")
    if waited_for:
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    return bench.core.ledger.kill_by("1/1/0", bench.now) - bench.now


def test_a_job_has_its_grace_whoever_waits_and_without_one_what_it_had() -> None:
    assert dying(None, waited_for=True) == pytest.approx(FAST.grace_s)
    assert dying(None, waited_for=False) == pytest.approx(FAST.kill_s)
    for waited_for in (True, False):  # the guest counts from the signal: it has all of it
        assert dying(SAVES_S, waited_for=waited_for) == pytest.approx(SAVES_S + grace.HEARD_S)
    assert dying(0.0, waited_for=True) == pytest.approx(0.0)
    assert dying(0.0, waited_for=False) == pytest.approx(FAST.kill_s)


def test_who_gets_its_room_is_not_taken_for_one_that_does_not_start() -> None:
    world = cluster(1, grace_max_s=SAVES_S, boot_timeout_s=10.0)
    job = world.submit(cores=4)
    world.settle()
    assert core(world).wake_at() == pytest.approx(world.now + START_PATIENCE * 10.0 + SAVES_S + grace.HEARD_S)
    assert list(closed(world)) == []
    assert world.unit(job).state == "open"


# ---------------------------------------------------------------------------------------------------------------- notice


def test_its_host_is_given_up_as_soon_as_any_other() -> None:
    world = cluster(1, grace_max_s=SAVES_S)
    job = running(world, grace_s=SAVES_S)
    world.quota("hpc", 0)
    assert (released(world), closed(world)) == (["h1"], {job: (Disposal.REQUEUE, because.Reclaimed)})


def test_a_contracts_notice_is_long_enough_for_its_grace() -> None:
    """Its host is left when the others' are, since it is told sooner."""
    world = cluster(2, grace_max_s=SAVES_S)
    saves, plain = running(world, grace_s=SAVES_S, nodes=1), running(world)
    begun = world.now
    world.quota("hpc", 1, by_s=600.0)
    assert (released(world), closed(world)) == ([], {})
    late_s = SAVES_S + grace.HEARD_S - USUAL_S
    assert core(world).wake_at() == pytest.approx(begun + 600.0 - 0.3 - late_s)
    world.now = core(world).wake_at()
    assert closed(world) == {}  # the other one is the victim, and needs no more than the policy's notice
    world.report(plain)
    world.settle()
    assert world.custody.held("hpc") == 1  # nobody had to end
    world.quota("hpc", 0, by_s=600.0)
    world.now = core(world).wake_at()
    assert list(closed(world)) == [saves]


def test_of_those_who_go_together_the_one_that_asked_for_most_says_when() -> None:
    world = cluster(2, grace_max_s=SAVES_S)
    begun = world.now
    jobs = [running(world, grace_s=grace_s) for grace_s in (SAVES_S / 2, SAVES_S)]
    world.quota("hpc", 0, by_s=600.0)
    world.settle()
    assert core(world).wake_at() == pytest.approx(begun + 600.0 - 0.3 - (SAVES_S + grace.HEARD_S - USUAL_S))
    world.now = core(world).wake_at()
    assert [*closed(world)] == jobs


# --------------------------------------------------------------------------------------------------------- what it costs


def claimed(*, grace_s: float | None = SAVES_S, hosts: int = 2) -> World:
    """`hpc` has a job on each of its hosts and web none; a person has asked for two instances; nobody ends VMs yet."""
    world = World(small(batch("hpc", grace_max_s=SAVES_S), web("web", instances_min=0, signal_timeout_s=1e6)))
    names = world.hosts(hosts)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.seat("provisioner", ProvisionerCore)
    world.settle()
    assert world.custody.held("hpc") == len(names)
    for number in range(hosts):
        running(world, grace_s=grace_s if number == 0 else None)
    world.write("admission", f.ScaleRequested(dept="web", user="wim", exact=hosts))
    world.settle()
    return world


def test_web_is_told_for_whom_it_waits_and_until_when() -> None:
    world = claimed()
    web_core = world.seats["scheduler.web"].core
    assert isinstance(web_core, WebCore)
    (told,) = [one for one in web_why.why(web_core, world.now) if type(one) is because.HostsLeft]
    assert (because.fields(told)["hosts"], because.fields(told)["jobs"]) == (1, ["1"])
    assert because.fields(told)["in_s"] == pytest.approx(SAVES_S + grace.HEARD_S)
    assert sentence(told) == ("1 host on the way is clear in 31s at the latest: job 1 has until then to save (--grace)")
    several = because.HostsLeft(hosts=7, jobs=[str(n) for n in range(1, 8)], in_s=5.0)
    assert sentence(several) == (
        "7 hosts on the way are clear in 5s at the latest: jobs 1, 2, 3, 4, 5 and 2 more have until then to save (--grace)"
    )
    (late,) = [one for one in web_why.why(web_core, world.now + 40) if type(one) is because.HostsLeft]
    assert sentence(late).startswith("1 host on the way is clear now")


def test_who_has_enough_hosts_without_it_does_not_wait_for_it() -> None:
    world = claimed()
    assert [one.job for one in grace.waited_for(world.custody, 2)] == ["1"]
    assert grace.waited_for(world.custody, 1) == []
    assert grace.leavers(claimed(grace_s=None).custody) == []


def test_the_job_itself_says_what_it_costs_and_until_when_it_may_save() -> None:
    world = cluster(1, grace_max_s=SAVES_S)
    job = running(world, grace_s=SAVES_S)
    (runs,) = batch_why.why(core(world), job, world.now)
    assert sentence(runs).endswith("; a claim that takes its hosts may wait up to 31s for it")
    world.quota("hpc", 0)
    world.settle()
    waits, saves, before = batch_why.why(core(world), job, world.now + 1)
    assert (type(waits), type(before)) == (
        because.NoHostsHeld,
        because.Reclaimed,
    )  # what keeps it from starting goes first
    assert sentence(saves) == "it received SIGTERM on h1, and has another 30s at most to save (--grace 30s)"
    world.end_vm(job)
    assert [one for one in batch_why.why(core(world), job, world.now) if type(one) is because.Saves] == []


@pytest.mark.parametrize(("grace_s", "wait_s"), [(None, 0.0), (SAVES_S, SAVES_S + grace.HEARD_S)])
def test_a_job_for_which_somebody_makes_way_starts_when_that_one_has_left(grace_s: float | None, wait_s: float) -> None:
    world = cluster(1, grace_max_s=SAVES_S)
    running(world, best_effort=True, grace_s=grace_s, on_reclaim="requeue")
    job, behind = world.submit(cores=4, walltime_s=100.0), world.submit(cores=4, walltime_s=100.0)
    found = foresee(core(world), world.now, [job, behind])
    assert found[job].start_at == pytest.approx(world.now + wait_s)
    assert found[behind].start_at == pytest.approx(world.now + wait_s + 100.0)


def test_who_is_seized_is_the_one_that_leaves_soonest() -> None:
    """The scheduler of `hpc` is dead: the provisioner chooses."""
    world = World(small(batch("hpc", grace_max_s=SAVES_S), web("web", instances_min=0)))
    names = world.hosts(2)
    world.seat("provisioner", ProvisionerCore)
    world.settle()
    for host, grace_s in zip(names, (SAVES_S, None), strict=True):
        job = world.submit(cores=4, grace_s=grace_s)
        world.write("scheduler.hpc", f.UnitPlaced(unit=job, attempt=1, hosts=(host,), cores=4, memory_mb=256))
    world.write("scheduler.web", f.DemandChanged(dept="web", hosts=1))
    world.advance(1.0)
    assert [fact.host for fact in world.facts(f.HostSeized)] == ["h2"]


# --------------------------------------------------------------------------------------------------- who makes way last


@pytest.mark.parametrize("order", ["first-fit", "svmsched"])
def test_of_best_effort_that_began_together_the_one_that_leaves_soonest_makes_way(order: str) -> None:
    """Else it would be the one that was submitted last."""
    shared = {"services": {"a": 1.0}, "short_s": 1e6, "boot_timeout_s": 1e6} if order == "svmsched" else {}
    service = "a" if shared else ""
    victims = []
    for asked in (None, SAVES_S):
        world = cluster(2, order=order, grace_max_s=SAVES_S, **shared)
        mine = {"best_effort": True, "on_reclaim": "requeue", "service": service}
        jobs = [world.submit(cores=4, **mine), world.submit(cores=4, grace_s=asked, **mine)]
        world.settle()
        for job in jobs:
            world.start_vms(job)
            world.begin(job)
        world.submit(cores=4, service=service)
        victims.append([jobs.index(unit) for unit in closed(world)])
    assert victims == [[1], [0]]


@pytest.mark.parametrize("policy", ["minimum-waiting-time", "minimum-overhead", "combined"])
def test_so_it_is_for_the_time_slots_of_leases(policy: str) -> None:
    settings = Leases(victims=policy)  # type: ignore[arg-type]
    last_asks = [Cost("1", 5.0, 5.0), Cost("2", 5.0, 5.0, grace_s=SAVES_S)]
    assert cheapest_first(last_asks, settings) == ["1", "2"]
    assert cheapest_first([one._replace(grace_s=0.0) for one in last_asks], settings) == ["2", "1"]


@pytest.mark.parametrize(("grace_s", "expected"), [(None, 5.0), (1.0, 5.0), (SAVES_S, SAVES_S + grace.HEARD_S)])
def test_who_has_to_be_away_before_a_slot_is_told_as_long_before(grace_s: float | None, expected: float) -> None:
    world = cluster(1, grace_max_s=SAVES_S)
    unit = world.unit(running(world, grace_s=grace_s))
    seconds = lease_times.clearing_s(world.custody, unit, Leases(margin_s=0.0), saved=False, saves_later=False)
    assert seconds == pytest.approx(expected)


@pytest.mark.parametrize(("grace_s", "expected"), [(None, 2.0), (1.0, 2.0), (SAVES_S, SAVES_S)])
def test_in_the_simulator_a_job_takes_all_of_it(grace_s: float | None, expected: float) -> None:
    world = cluster(1, grace_max_s=SAVES_S)
    model = Cluster(world.custody, Latencies(end_s=2.0), {"1": 1000.0})
    job = world.submit(cores=4, grace_s=grace_s)
    world.settle()
    for fact in world.facts(f.UnitPlaced):
        model.hear(fact, Meta(position=1, index=0, writer="scheduler.hpc", at=world.now))
    world.begin(job)
    world.now += 10.0
    world.quota("hpc", 0)
    told = world.seats["scheduler.hpc"].core.decide(world.now)
    for fact in told:
        model.hear(fact, Meta(position=2, index=0, writer="scheduler.hpc", at=world.now))
    begun = world.now
    world.settle()
    assert model.next_due() - begun == pytest.approx(expected)
    assert model.answers(begun + expected) == ([f.HostCleared(host="h1")], [])
