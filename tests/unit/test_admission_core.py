"""Admission's own state: requests answered once, jobs while they matter, departments closed; replay and snapshots."""

from __future__ import annotations

import random

import pytest

from schemas import facts as f
from services.admission.core import admission as core_module
from services.admission.core.admission import AdmissionCore
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta, Void
from tests.support.admission import ANN, LEO, WIM, Fold, cloud, fold


def test_a_request_is_remembered_by_user_with_its_digest_and_answer() -> None:
    world = fold()
    job = world.submit(ANN, request="nightly@1", array="1-3")
    found = world.core.answered("ann", "nightly@1")
    assert found is not None
    assert (found.job, found.units, found.digest) == (job, 3, "digest")
    assert world.core.answered("bob", "nightly@1") is None
    assert world.core.answered("ann", "") is None
    world.put(f.ScaleRequested(dept="web", user="wim", exact=2, request="s@abc"))
    assert world.core.answered("wim", "s") is not None


def test_the_newest_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "REQUESTS_MAX", 3)
    world = fold()
    for n in range(5):
        world.submit(request=f"r{n}")
    kept = [n for n in range(5) if world.core.answered("ann", f"r{n}") is not None]
    assert kept == [2, 3, 4]


def test_finished_jobs_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "FINISHED_MAX", 2)
    world = fold()
    running = world.submit()
    ended = [world.submit() for _ in range(4)]
    for job in ended:
        world.put(f.JobCancelled(job=job, user="ann"))
    assert [world.core.job(job) is not None for job in (running, *ended)] == [True, False, False, True, True]


def test_unfinished_units_are_counted_through_every_ending() -> None:
    world = fold()
    count = lambda: world.core.unfinished("hpc")  # noqa: E731
    array, job, retried = world.submit(array="1-3"), world.submit(), world.submit(retries=1)
    assert count() == 5
    world.put(f.JobCancelled(job=f"{array}_1", user="ann"))
    assert count() == 4
    world.place(f"{array}_2", "h1")
    world.put(f.JobCancelled(job=f"{array}_2", user="ann"))
    assert count() == 4  # asked for; the scheduler closes it
    world.close(f"{array}_2", f.Disposal.CANCELLED)
    assert count() == 3
    world.place(job, "h1")
    world.close(job, f.Disposal.REQUEUE)
    assert count() == 3
    world.put(f.AttemptReported(unit=job, attempt=1, exit=0))  # the late success of a killed attempt
    assert count() == 2
    world.place(retried, "h1")
    world.put(f.AttemptReported(unit=retried, attempt=1, exit=1))
    assert count() == 2
    world.place(retried, "h1", attempt=2)
    world.put(f.AttemptReported(unit=retried, attempt=2, exit=1))
    assert count() == 1
    assert world.put(f.AttemptReported(unit=retried, attempt=2, exit=1)) is not None  # void: counted once
    assert count() == 1
    assert world.core.job(array) is not None


def test_a_removed_department_is_closed_once_and_can_come_back() -> None:
    world = fold()
    job = world.submit(LEO)
    mine = world.submit(ANN)
    assert world.core.decide(1.0) == []
    world.adopt(cloud("bio"))
    closed = world.core.decide(1.0)
    assert closed == [f.DepartmentClosed(dept="bio")]
    assert world.core.decide(2.0) == closed  # level-triggered: until it has come back
    world.put(*closed)
    assert world.core.decide(3.0) == []
    assert world.custody.state.units[job].final == "cancelled"
    assert world.custody.state.units[mine].state == "pending"
    assert world.core.unfinished("bio") == 0
    world.adopt(cloud())
    assert world.core.decide(4.0) == []
    again = world.submit(LEO)
    assert world.core.unfinished("bio") == 1
    world.adopt(cloud("bio", "hpc"))
    world.put(*world.core.decide(5.0))
    assert world.custody.state.units[again].final == "cancelled"


def test_a_department_that_is_there_again_before_it_was_closed_goes_on() -> None:
    """Closing was decided on a configuration without it; the next one, with it, is first in the journal."""
    world = fold()
    job = world.submit(LEO)
    world.adopt(cloud("bio"))
    late = world.core.decide(1.0)
    world.adopt(cloud())
    assert [world.put(fact) for fact in late] == [Void.DEPARTMENT_NAMED]
    assert world.core.decide(2.0) == [], "what came back void is not said again"
    again = world.submit(LEO)
    assert [world.custody.state.units[name].state for name in (job, again)] == ["pending", "pending"]
    assert (world.core.unfinished("bio"), list(world.custody.state.closed)) == (2, [])
    world.adopt(cloud("bio"))
    assert world.core.decide(3.0) == late, "left out once more, it is closed"


def test_it_never_wakes_by_itself() -> None:
    assert fold().core.wake_at() == NEVER


def _replayed(history: list[tuple[str, f.Fact]], restart_at: int) -> bytes:
    custody = Custody()
    core = AdmissionCore(custody)
    for position, (writer, fact) in enumerate(history, start=1):
        if position == restart_at:
            saved, data = custody.dump(), core.dump()
            custody = Custody()
            custody.load(saved)
            core = AdmissionCore(custody)
            core.load(data)
        void = fold_fact(custody, fact, position, 0, writer, float(position))
        core.apply(fact, Meta(position=position, index=0, writer=writer, at=float(position), void=void))
    return core.dump()


def _story(seed: int) -> Fold:
    """A random story of jobs that are submitted, placed, closed, reported and cancelled, with void facts in between."""
    chance = random.Random(seed)
    world = fold()
    for _ in range(150):
        units = list(world.custody.state.units)
        unit = chance.choice(units[-4:]) if units else ""
        known = world.custody.state.units.get(unit)
        what = chance.randrange(11)
        if known is not None and chance.random() < 0.6:  # what comes next in a life, or the story goes nowhere
            vm = world.custody.state.vms.get(f"{unit}/{known.attempt}/0")
            runs = vm is not None and vm.started_at is not None
            what = (5 if runs else 7) if known.state == "open" else 7 if known.vms_open else 4
        if what <= 2 or known is None:
            world.submit(
                chance.choice((ANN, LEO) if world.core.department("bio") else (ANN,)),
                request=chance.choice(("", f"r{chance.randrange(9)}")),
                array=chance.choice((None, "1-3")),
                retries=chance.randrange(2),
            )
        elif what == 3:
            world.put(f.JobCancelled(job=unit, user="ann"))
        elif what == 4:
            world.place(unit, chance.choice(("h1", "h2")), attempt=known.attempt + 1, dept=known.dept)
        elif what == 5:
            goes_on = (f.Disposal.SUSPEND, f.Disposal.SUSPEND, f.Disposal.MIGRATE)
            disposal = chance.choice((f.Disposal.REQUEUE, f.Disposal.KILL, *goes_on))
            world.close(unit, disposal, attempt=max(1, known.attempt), dept=known.dept)
        elif what == 6:
            world.put(f.AttemptReported(unit=unit, attempt=max(1, known.attempt), exit=chance.randrange(2)))
        elif what in (7, 8):
            _steer(world, unit, chance)
            world.put(*world.core.decide(0.0))
        elif chance.random() < 0.2:
            world.adopt(cloud(*chance.choice(((), ("bio",)))))
            world.put(*world.core.decide(0.0))
    return world


def _steer(world: Fold, unit: str, chance: random.Random) -> None:
    """The executor does something about a VM of the unit: allocates or binds, starts, saves, ends."""
    known, state = world.custody.state.units[unit], world.custody.state
    saved = world.custody.index.saved.get(unit, {}).get(0, 1000 + len(world.history))
    attempt = max(1, known.attempt)
    host = known.hosts[0] if known.hosts else "h1"
    vm = state.vms.get(f"{unit}/{attempt}/0")
    fact: f.Fact = f.VmEnded(unit=unit, attempt=attempt, rank=0, why=chance.choice((f.SUSPENDED, "gone")))
    if vm is None:
        fact = f.VmAllocated(unit=unit, attempt=attempt, rank=0, vm=saved, host=host)
    elif vm.started_at is None and known.live:
        fact = f.VmStarted(unit=unit, attempt=attempt, rank=0)
    elif known.suspended:
        fact = f.VmEnded(unit=unit, attempt=attempt, rank=0, why=f.SUSPENDED)
    world.put(fact, writer="executor")


def _begun(world: Fold) -> list[tuple[str, int]]:
    found = [fact for fact in world.core.decide(0.0) if isinstance(fact, f.AttemptBegan)]
    world.put(*found)
    return [(fact.unit, fact.attempt) for fact in found]


def test_what_goes_on_with_its_vms_begins_when_all_of_them_run() -> None:
    world = fold()
    job = world.submit(nodes=2)
    for attempt, hosts in ((1, ("h1", "h2")), (2, ("h2", "h1"))):
        world.place(job, *hosts, attempt=attempt)
        for rank, host in enumerate(hosts):
            world.put(f.VmAllocated(unit=job, attempt=attempt, rank=rank, vm=7 + rank, host=host), writer="executor")
        for rank in (0, 1):
            assert _begun(world) == []
            world.put(f.VmStarted(unit=job, attempt=attempt, rank=rank), writer="executor")
        if attempt == 1:  # the guests of new VMs say it themselves
            assert _begun(world) == []
            world.close(job, f.Disposal.SUSPEND)
            ended = [f.VmEnded(unit=job, attempt=1, rank=rank, why=f.SUSPENDED) for rank in (0, 1)]
            world.put(*ended, writer="executor")
    assert _begun(world) == [(job, 2)]
    assert _begun(world) == []


@pytest.mark.parametrize("seed", range(8))
def test_equal_histories_give_equal_bytes_also_across_a_snapshot(seed: int) -> None:
    world = _story(seed)
    expected = world.core.dump()
    for restart_at in (0, 10, len(world.history) // 2, len(world.history)):
        assert _replayed(world.history, restart_at) == expected


def test_a_web_departments_scale_request_is_no_job() -> None:
    world = fold()
    before = len(world.custody.state.units)
    world.put(f.ScaleRequested(dept="web", user=WIM.user, exact=1, request="a@b"))
    assert len(world.custody.state.units) == before
