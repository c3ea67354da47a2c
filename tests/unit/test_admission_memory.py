"""What admission's core remembers, and for how long: holds, output, releases, departments; and that its check can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.releases import Release
from services.admission.core import admission as core_module
from services.admission.core.admission import AdmissionCore, Answered
from services.domain.core import NEVER
from services.domain.custody import effects
from services.domain.custody.custody import Custody
from services.domain.usage_limits import Account
from tests.support.admission import LEO, MIA, Fold, cloud, fold
from tests.support.closing import left_out

STUCK = because.EndedVm(vm="no boot disk", failed=5, began=False)
NEVER_STARTS = because.Held(vm="no boot disk", failed=5)


def hands_back(world: Fold, unit: str, hold: bool = True, attempt: int = 1, dept: str = "hpc") -> None:
    """Its scheduler asks that it is held."""
    reason = NEVER_STARTS if hold else None
    fact = f.AttemptClosed(
        unit=unit, attempt=attempt, disposal=f.Disposal.REQUEUE, why=STUCK, hold=hold, hold_reason=reason
    )
    assert world.put(fact, writer=f"scheduler.{dept}") is None


def handed_back(hold: bool = True) -> tuple[Fold, str]:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    hands_back(world, job, hold)
    return world, job


def held(job: str) -> f.JobHeld:
    return f.JobHeld(job=job, user="", reason=NEVER_STARTS)


# ------------------------------------------------------------------------------------------------------------------ holds


def test_what_its_scheduler_hands_back_to_be_held_is_held_by_nobody_until_it_is() -> None:
    world, job = handed_back()
    assert world.core.decide(0.0) == [held(job)] == world.core.decide(1.0)
    world.put(held(job))
    assert world.core.decide(2.0) == []
    world.put(f.JobResumed(job=job, user="ann"))
    assert world.core.decide(3.0) == []  # a person has let it go


def test_without_that_nothing_is_held() -> None:
    assert handed_back(hold=False)[0].core.decide(0.0) == []


@pytest.mark.parametrize(
    "then",
    [
        f.JobHeld(job="1", user="ann"),
        f.JobResumed(job="1", user="ann"),
        f.JobCancelled(job="1", user="ann"),
        f.UnitPlaced(unit="1", attempt=2, hosts=("h1",), cores=1, memory_mb=1),
        f.DepartmentClosed(dept="hpc"),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_what_somebody_else_decides_comes_before_a_hold(then: f.Fact) -> None:
    world, _ = handed_back()
    if isinstance(then, f.DepartmentClosed):
        world.put(left_out(world.custody, then.dept), writer="provisioner")
    assert world.put(then, writer="scheduler.hpc" if isinstance(then, f.UnitPlaced) else "admission") is None
    assert [fact for fact in world.core.decide(0.0) if isinstance(fact, f.JobHeld)] == []
    assert msgspec.msgpack.decode(world.core.dump())["holds"] == {}


def test_a_job_that_is_held_already_needs_no_other_fact() -> None:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    world.put(f.JobHeld(job=job, user="ann"))
    hands_back(world, job)
    assert world.core.decide(0.0) == []


def test_one_that_is_over_is_not_held() -> None:
    world, job = handed_back()
    world.put(f.AttemptReported(unit=job, attempt=1, exit=0))  # too late to be held
    cancelled = world.submit()
    world.place(cancelled, "h1")
    world.put(f.JobCancelled(job=cancelled, user="ann"))
    hands_back(world, cancelled)
    assert world.core.decide(0.0) == []
    assert msgspec.msgpack.decode(world.core.dump())["holds"] == {}


def test_a_hold_of_a_unit_that_is_over_or_not_known_is_none() -> None:
    """Snapshots of older versions may have one."""
    world = fold()
    over = world.submit()
    world.put(f.JobCancelled(job=over, user="ann"))
    world.core._state.holds |= {over: STUCK, "99": STUCK}
    assert world.core.decide(0.0) == []


# -------------------------------------------------------------------------------------- what goes on with the VMs it had


def vm(world: Fold, unit: str, attempt: int, number: int, host: str, *then: str) -> None:
    world.put(f.VmAllocated(unit=unit, attempt=attempt, rank=0, vm=number, host=host), writer="executor")
    for word in then:
        started = f.VmStarted(unit=unit, attempt=attempt, rank=0)
        world.put(
            started if word == "starts" else f.VmEnded(unit=unit, attempt=attempt, rank=0, why=word), writer="executor"
        )


def suspended(world: Fold, *hosts: str) -> list[str]:
    """A job on each host, whose VM (1, 2, …) is saved."""
    jobs = [world.submit() for _ in hosts]
    for number, (job, host) in enumerate(zip(jobs, hosts, strict=True), 1):
        world.place(job, host)
        vm(world, job, 1, number, host, "starts")
        world.close(job, f.Disposal.SUSPEND)
        world.put(f.VmEnded(unit=job, attempt=1, rank=0, why=f.SUSPENDED), writer="executor")
    return jobs


def test_units_begin_again_in_the_order_of_their_names() -> None:
    world = fold()
    jobs = suspended(world, "h1", "h2")
    for number, job, host in ((2, jobs[1], "h1"), (1, jobs[0], "h2")):
        world.place(job, host, attempt=2)
        vm(world, job, 2, number, host, "starts")
    assert world.core.decide(0.0) == [f.AttemptBegan(unit=job, attempt=2) for job in jobs]


def test_one_that_got_a_fresh_vm_says_itself_that_it_has_begun() -> None:
    world = fold()
    (job,) = suspended(world, "h1")
    world.place(job, "h2", attempt=2)
    vm(world, job, 2, 9, "h2", "starts")
    assert world.core.decide(0.0) == []


def test_who_goes_on_no_more_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 0)  # custody forgets it at once
    world = fold()
    first, second = suspended(world, "h1", "h2")
    world.place(first, "h1", attempt=2)
    world.place(second, "h2", attempt=2)
    assert list(world.core._resuming) == [first, second]
    world.close(first, f.Disposal.REQUEUE, attempt=2)
    assert list(world.core._resuming) == [second]
    world.put(left_out(world.custody, "hpc"), f.DepartmentClosed(dept="hpc"))
    assert (list(world.core._resuming), world.core.unit(second)) == ([], None)


def test_one_that_is_broken_does_not_begin() -> None:
    world = fold()
    (job,) = suspended(world, "h1")
    world.place(job, "h2", attempt=2)
    vm(world, job, 2, 1, "h2", "starts")
    assert len(world.core.decide(0.0)) == 1
    world.put(f.HostLost(host="h2", reason="r"), writer="executor")
    assert world.core.decide(0.0) == []


# ------------------------------------------------------------------------------------------------------------- departments


def test_departments_are_closed_in_the_order_of_their_names_and_forgotten() -> None:
    world = fold()
    (job, bio) = world.submit(), world.submit(LEO)
    world.put(f.CheckpointReported(unit=job, attempt=1))  # void of nothing: it is not placed
    world.place(job, "h1")
    world.put(f.CheckpointReported(unit=job, attempt=1, payload="p"))
    world.put(f.ReleaseRequested(dept="web", release=1, user="wim", content=Release(image="i")))
    world.adopt(cloud("hpc", "web", "bio"))
    closed = [f.DepartmentClosed(dept=dept) for dept in ("bio", "hpc", "web")]
    assert world.core.decide(0.0) == closed
    assert (world.core.checkpointed(), world.core.submitted("hpc", Account("", "ann"))) == ([job], 1)
    world.put(*closed)
    assert world.core.decide(0.0) == []
    assert (world.core.checkpointed(), world.core.checkpoint(job), world.core.submitted("hpc", Account("", "ann"))) == (
        [],
        None,
        0,
    )
    assert (world.core.unfinished("hpc"), world.core.unfinished("bio"), world.core.wanted("web").release) == (0, 0, 0)
    assert [world.core.job(name) is not None for name in (job, bio)] == [True, True]  # as finished


def test_of_a_closed_web_department_nothing_is_remembered_but_of_the_others() -> None:
    shop = Department(name="shop", kind="web", web=WebPolicy(health_path="/a"))
    world = fold()
    both = msgspec.structs.replace(cloud(), departments=(*cloud().departments, shop))
    world.adopt(both)
    world.host("s1", 2, 4000, "shop")
    for unit, host in (("web.1", "w1"), ("shop.1", "s1")):
        dept = unit.partition(".")[0]
        world.place(unit, host, dept=dept)
        world.put(f.AttemptBegan(unit=unit, attempt=1))
        world.put(f.InstanceReported(unit=unit, attempt=1, state="unready", user="lb"))
    new = WebPolicy(health_path="/b", instances_max=10)
    changed = tuple(msgspec.structs.replace(d, web=new) if d.kind == "web" else d for d in both.departments)
    world.adopt(msgspec.structs.replace(both, departments=changed))
    assert [bool(world.core.reported(unit)) for unit in ("web.1", "shop.1")] == [True, True]
    assert [world.core.begun_with(unit) for unit in ("web.1", "shop.1")] == [Release(), Release(health_path="/a")]
    world.put(left_out(world.custody, "shop"), f.DepartmentClosed(dept="shop"))
    assert [bool(world.core.reported(unit)) for unit in ("web.1", "shop.1")] == [True, False]
    assert [world.core.begun_with(unit) for unit in ("web.1", "shop.1")] == [Release(), None]
    assert list(msgspec.msgpack.decode(world.core.dump())["configured"]) == ["web"]


def test_who_is_known_is_read_from_the_configuration_in_force() -> None:
    nobody = AdmissionCore(Custody())
    assert (nobody.user("ann"), nobody.department("hpc"), nobody.decide(0.0), nobody.wake_at()) == (
        None,
        None,
        [],
        NEVER,
    )
    world = fold()
    ann, hpc = world.core.user("ann"), world.core.department("hpc")
    assert (ann is not None and ann.department, hpc is not None and hpc.kind) == ("hpc", "batch")
    users = tuple(user for user in cloud().users if user.name != "ann")
    world.adopt(msgspec.structs.replace(cloud("bio"), users=users))
    assert (world.core.user("ann"), world.core.department("bio")) == (None, None)
    assert world.core.user("bob") is not None


# ---------------------------------------------------------------------------------------------------------- web departments


def serving(*releases: int) -> Fold:
    """web.1, web.2, … of these releases, on one large host: all have begun but the last one."""
    world = fold()
    world.host("w9", 64, 64_000, "web")
    for number, release in enumerate(releases, 1):
        fact = f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=("w9",), cores=1, memory_mb=1, release=release)
        world.put(fact, writer="scheduler.web")
        if number < len(releases):
            world.put(f.AttemptBegan(unit=f"web.{number}", attempt=1))
    return world


def reconfigure(world: Fold, **policy: Any) -> None:
    config = cloud()
    web = Department(name="web", kind="web", web=WebPolicy(instances_max=10, **policy))
    world.adopt(msgspec.structs.replace(config, departments=(*config.departments[:2], web)))


def test_instances_that_began_with_another_configuration_are_as_they_were() -> None:
    """Of release 0, and once they have begun; of two changes the first is what they began with."""
    world = serving(0, 7, 0)
    reconfigure(world, image="another")  # nothing of it lasts
    assert world.core.begun_with("web.1") is None
    reconfigure(world, health_path="/b")
    reconfigure(world, health_path="/c")
    assert [world.core.begun_with(f"web.{n}") for n in (1, 2, 3)] == [Release(), None, None]
    world.put(f.AttemptBegan(unit="web.3", attempt=1))
    reconfigure(world, health_path="/d")
    assert world.core.begun_with("web.3") == Release(health_path="/c")
    world.close("web.1", f.Disposal.STOPPED, dept="web")
    assert world.core.begun_with("web.1") is None


def test_a_web_department_without_settings_has_the_default_ones() -> None:
    world = fold()
    bare = CloudConfig(name="c", departments=(Department(name="web", kind="web"),))
    world.adopt(bare)
    assert msgspec.msgpack.decode(world.core.dump())["configured"]["web"]["health_path"] == Release().health_path


def test_what_the_newest_ended_instances_wrote_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond that is due to be removed, and in the end forgotten."""
    monkeypatch.setattr(core_module, "LOGS_KEPT", 2)
    monkeypatch.setattr(core_module, "LOGS_DUE_MAX", 2)
    world = serving(*[0] * 7)
    assert (world.core.logged(), world.core.logs_due("web")) == ([], [])
    due = []
    for number in range(1, 7):
        world.close(f"web.{number}", f.Disposal.STOPPED, dept="web")
        due.append([int(unit.partition(".")[2]) for unit in world.core.logs_due("web")])
    assert due == [[], [], [1], [1, 2], [2, 3], [3, 4]]
    assert (world.core.logged(), world.core.logs_due("shop")) == (["web"], [])
    job = world.submit()
    world.place(job, "h1")
    world.close(job, f.Disposal.KILL)
    assert world.core.logged() == ["web"]  # a job's is kept with the job


# --------------------------------------------------------------------------------------------------- jobs, leases, requests


def test_what_a_request_was_answered() -> None:
    world = fold()
    lease = f.Lease(kind="advance", start_at=100.0)
    given: dict[str, Any] = {"dept": "hpc", "user": "mia", "name": "n", "payload": "p", "walltime_s": 50.0}
    world.put(f.JobSubmitted(job="1", lease=lease, request="a@1", **given))
    world.put(f.LeaseExtended(job="1", walltime_s=80.0, user="mia", request="b@2"))
    world.put(f.ScaleRequested(dept="web", user="wim", exact=2, request="c@3"))
    world.put(f.ReleaseRequested(dept="web", release=4, user="wim", content=Release(), request="d@x@4"))
    asked = [("mia", "a"), ("mia", "b"), ("wim", "c"), ("wim", "d@x")]
    assert [world.core.answered(user, name) for user, name in asked] == [
        Answered(digest="1", job="1", units=1),
        Answered(digest="2", job="1", units=1),
        Answered(digest="3", job="", units=0),
        Answered(digest="4", job="4", units=1),
    ]
    job = world.core.job("1")
    assert (job is not None and job.walltime_s, world.core.wake_at()) == (80.0, 180.0)
    assert (world.core.decide(179.9), world.core.decide(180.0)) == ([], [f.JobCancelled(job="1", user="")])
    world.put(f.LeaseExtended(job="99", walltime_s=80.0, user="mia", request="e@5"))  # of a job that is forgotten
    assert world.core.answered("mia", "e") == Answered(digest="5", job="99", units=1)


def test_a_job_that_custody_forgets_at_once_is_counted_as_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 0)
    world = fold()
    job = world.submit()
    world.put(f.JobCancelled(job=job, user="ann"))
    assert (world.core.unfinished("hpc"), world.core.unit(job)) == (0, None)


def test_payloads_are_needed_while_a_unit_is_left() -> None:
    world = fold()
    array, over = world.submit(array="1-2"), world.submit()
    for unit in (f"{array}_1", over):
        world.put(f.JobCancelled(job=unit, user="ann"))
    assert list(world.core.open_payloads()) == [(array, "job/x")]


def test_what_fits_is_asked_of_the_hosts_known_now() -> None:
    world = fold()
    before = world.core.capacity()
    assert (before.most.cores, world.core.capacity() is before) == (8, True)
    world.host("h9", 32, 1000)
    assert world.core.capacity().most.cores == 32
    assert world.core.capacity("host=h2").most.cores == 4
    world.put(f.HostLost(host="h9", reason="r"), f.HostRemoved(host="h9"), writer="executor")
    assert world.core.capacity().most.cores == 8
    assert AdmissionCore(Custody()).capacity().empty


# ------------------------------------------------------------------------------------------------------------- its own check


def busy() -> Fold:
    """An array with one element over, a job that is over, a lease that waits, a checkpoint, an instance of which was told."""
    world = fold()
    array = world.submit(array="1-3")
    world.put(f.JobCancelled(job=f"{array}_1", user="ann"))
    over = world.submit(MIA)
    world.put(f.JobCancelled(job=over, user="mia"))
    lease = f.Lease(kind="advance", start_at=100.0)
    given: dict[str, Any] = {"dept": "hpc", "user": "mia", "name": "n", "payload": "p", "walltime_s": 50.0}
    world.put(f.JobSubmitted(job="3", lease=lease, **given))
    world.place("1_2", "h1")
    world.put(f.CheckpointReported(unit="1_2", attempt=1, payload="p"))
    world.place("web.1", "w1", dept="web")
    world.put(f.AttemptBegan(unit="web.1", attempt=1))
    world.put(f.InstanceReported(unit="web.1", attempt=1, state="unready", user="lb"))
    reconfigure(world, health_path="/b")
    return world


def _left(core: AdmissionCore) -> None:
    """One more, wherever it is counted."""
    core._state.jobs["1"].left = 3
    core._state.unfinished["hpc"] += 1
    core._count_submitted(core._state.jobs["1"], 1)


def _finished(core: AdmissionCore) -> None:
    del core._state.finished["2"]


def _not_finished(core: AdmissionCore) -> None:
    core._state.finished["1"] = None


def _unfinished(core: AdmissionCore) -> None:
    core._state.unfinished["hpc"] += 1


def _unfinished_of_nobody(core: AdmissionCore) -> None:
    core._state.unfinished["bio"] = 1


def _reserved(core: AdmissionCore) -> None:
    core._state.reserved["2"] = None


def _reserved_unknown(core: AdmissionCore) -> None:
    core._state.reserved["9"] = None


def _checkpoint(name: str) -> Callable[[AdmissionCore], None]:
    def breaks(core: AdmissionCore) -> None:
        core._state.checkpoints[name] = core._state.checkpoints["1_2"]

    return breaks


def _reported(name: str) -> Callable[[AdmissionCore], None]:
    def breaks(core: AdmissionCore) -> None:
        core._state.reported[name] = core._state.reported["web.1"]

    return breaks


def _begun_with(core: AdmissionCore) -> None:
    core._state.begun_with["3"] = Release()


def _submitted(core: AdmissionCore) -> None:
    core._submitted.clear()


def _resuming(core: AdmissionCore) -> None:
    core.custody.state.units["1_2"].resumes = True


def _requests(core: AdmissionCore) -> None:
    core._state.requests = {str(n): Answered(digest="") for n in range(core_module.REQUESTS_MAX + 1)}


def _too_many_finished(core: AdmissionCore) -> None:
    core._state.finished |= {str(n): None for n in range(10, core_module.FINISHED_MAX + 10)}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_left, "job 1 has 2 units that are not final, counted as 3"),
        (_finished, "job 2 has 0 units left and is not kept as finished"),
        (_not_finished, "job 1 has 2 units left and is kept as finished"),
        (_unfinished, "department hpc has 3 unfinished units, counted as 4"),
        (_unfinished_of_nobody, "department bio has 0 unfinished units, counted as 1"),
        (_reserved, "lease 2 is over and keeps its time"),
        (_reserved_unknown, "lease 9 is over and keeps its time"),
        (_checkpoint("2"), "unit 2 is over and its checkpoint is remembered"),
        (_checkpoint("9"), "unit 9 is over and its checkpoint is remembered"),
        (_reported("3"), "instance 3 is over, and what was reported of it or it began with is remembered"),
        (_reported("web.9"), "instance web.9 is over, and what was reported of it or it began with is remembered"),
        (_begun_with, "instance 3 is over, and what was reported of it or it began with is remembered"),
        (_submitted, "the jobs of users and qualities of service are counted wrongly"),
        (_resuming, "units that continue with their VMs are not those that are watched"),
        (_requests, "more requests or finished jobs are remembered than the limits allow"),
        (_too_many_finished, "more requests or finished jobs are remembered than the limits allow"),
    ],
)
def test_what_does_not_hold_is_named(broken: Callable[[AdmissionCore], None], said: str) -> None:
    core = busy().core
    core._state.unfinished["bio"] = 0
    assert core.check() == []
    broken(core)
    assert core.check() == [said]
