"""What has a web department look again, and what it remembers of facts at the edges of what they may say (`web.fold`)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Answers, Disposal
from services.domain.custody.meta import Meta
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.release import Roll
from tests.support.world import World, web
from tests.unit.test_web_fold import WHY, adopt, core, fail, site


def looks(world: World, fact: Any, writer: str = "scheduler.web") -> bool:
    """Whether it looks again after the fact, which custody does not see."""
    core(world)._rests = True
    core(world).apply(fact, Meta(position=1, index=0, writer=writer, at=world.now))
    return not core(world)._rests


def test_what_concerns_nobody_here_is_nothing() -> None:
    world = site()
    before = core(world).dump()
    assert not looks(world, object())
    load = f.LoadObserved(dept="shop", start=1.0, end=2.0, samples=1, utilisation=0.5)
    assert not looks(world, load)
    assert not looks(world, f.VmAllocated(unit="shop.1", attempt=1, rank=0, vm=9, host="h6"))
    assert core(world).dump() == before
    assert core(world).check() == []


def test_what_may_change_a_decision_is_looked_at() -> None:
    world = site()
    assert looks(world, f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=9, host="h1"))
    assert looks(world, f.StartsPaused(since=world.now, failed=3, tried=3, why="x"))
    assert looks(world, f.StartsResumed(why="x"))


@pytest.mark.parametrize(
    ("word", "by", "looked_at"),
    [("drained", "guest", False), ("unready", "guest", True), ("ended", "guest", True), ("ready", "guest", True)],
)
def test_who_does_not_drain_has_not_drained_and_nobody_looks(word: Any, by: str, looked_at: bool) -> None:
    world = site()
    said = f.InstanceReported(unit="web.1", attempt=1, state=word, by=by, why="x")  # type: ignore[arg-type]
    assert looks(world, said) is looked_at
    assert core(world).state.ready_at == {}, "it was never not ready"


def test_a_number_that_is_none_is_as_far_as_zero_and_a_change_has_a_direction() -> None:
    world = site()
    before = core(world).state.target
    assert before == 2
    assert looks(world, f.DemandChanged(dept="web", hosts=0, instances=None, reason=WHY))
    state = core(world).state
    assert [change.by for change in state.changes] == [-2]
    assert (state.course.heading, state.target) == (-1, None)


def test_when_answers_were_heard_is_remembered_though_nobody_watches() -> None:
    world = site()
    told = (Answers(release=0, answered=5, errors=0),)
    load = f.LoadObserved(dept="web", start=1.0, end=2.0, samples=1, utilisation=0.5)
    assert looks(world, load)
    assert core(world).state.answers_at == 0.0
    assert looks(world, f.LoadObserved(dept="web", start=1.0, end=2.0, samples=1, answers=told, answers_s=1.0))
    assert (core(world).state.answers_at, core(world).state.answers) == (world.now, {})


def test_an_instance_that_drains_for_a_roll_which_says_no_release_is_followed_by_the_first() -> None:
    world = site()
    rolling = f.InstanceDraining(unit="web.1", attempt=1, until=world.now + 5.0, reason=because.Rolling())
    world.write("scheduler.web", rolling)
    assert core(world).state.followed == {"web.1": 0}


def test_who_wants_nothing_is_short_of_nobody() -> None:
    world = site(held=1)
    state = core(world).state
    state.to_replace, state.target = 0, None
    fail(world, "web.1", because.NotReady)
    assert state.to_replace == 0


@pytest.mark.parametrize("began", [True, False])
def test_what_has_begun_fails_its_release_whether_starts_are_paused_or_not(began: bool) -> None:
    world = site()
    if not began:
        world.seats["guests"].paused = True
        world.grant("web", "h3")
        world.write("scheduler.web", f.UnitPlaced(unit="web.3", attempt=1, hosts=("h3",), cores=1, memory_mb=64))
    world.write("executor", f.StartsPaused(since=world.now, failed=3, tried=3, why="x"))
    core(world).state.roll = Roll(stage="rolling")
    fail(world, "web.1" if began else "web.3", because.ProgramEnded)
    assert core(world).state.roll.failures == int(began)


def test_vms_that_are_taken_with_their_host_prove_nothing_of_it() -> None:
    world = site(held=1, instances_min=2, instances_per_host=2)
    world.lose("h1")
    assert world.unit("web.1").broken is not None
    state = core(world).state
    assert (state.taken, state.together) == ({}, {})


def test_nothing_is_kept_of_an_attempt_that_is_closed() -> None:
    world = site()
    assert "web.1" in core(world).limits.started
    world.write("scheduler.web", f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=WHY))
    assert "web.1" not in core(world).limits.started


def test_the_window_begins_anew_when_others_serve() -> None:
    world = site()
    state = core(world).state
    state.samples = [Sample(0.0, 1.0, 0.5)]
    core(world)._count()
    assert len(state.samples) == 1
    world.write("scheduler.web", f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=WHY))
    assert state.samples == []


def test_a_department_that_never_had_an_instance_or_a_release_counts_from_none() -> None:
    world = site(held=0, instances_min=0)
    adopt(world, web("web", instances_min=0, image="other"), web("shop"))
    assert core(world).state.roll.first == 0
    assert core(world).autoscaler.usual == ()
    adopt(world, web("web", instances_min=0, image="other", balancers=("lb",)), web("shop"))
    assert core(world).autoscaler.usual == ("lb",)
    world.write("admission", f.DepartmentClosed(dept="web"))
    assert core(world).state.roll == Roll()


def test_samples_may_touch_as_far_as_rounding_goes() -> None:
    world = site()
    core(world).state.samples = [Sample(0.0, 1.0 + 1e-5, 0.5), Sample(1.0, 2.0, 0.5)]
    assert core(world).check() == []
