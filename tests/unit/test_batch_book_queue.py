"""The book of a batch department, told by hand: who waits for whom, and what limits do to the queue."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, UserLimits
from schemas.facts import Dependency
from schemas.size import Size
from services.domain.core import NEVER
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.state.budgets import NOBODY, Owner
from services.scheduler.core.state.room import Free, Room
from tests.support.book import AT, Desk, desk
from tests.support.world import batch, cloud

# ----------------------------------------------------------------------------------------------------------- dependencies


def after(condition: Any, *jobs: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(condition=condition, job=job) for job in jobs)


def test_a_job_waits_for_all_and_grows_older_from_then_on() -> None:
    found = desk("1", "2")
    found.submit("3", after=after("afterok", "1", "2"), array=(0, 1))
    assert found.jobs.dependents == {"1": {"3": None}, "2": {"3": None}}
    assert Jobs(found.custody, "hpc", found.state).dependents == found.jobs.dependents
    found.ran("1", 10.0, final="completed")
    assert found.waiting() == ["2"]
    found.ran("2", 10.0, final="completed")
    assert found.waiting() == ["3_0", "3_1"]
    assert (found.state.jobs["3"].after, found.state.jobs["3"].since) == ((), AT + 20.0)
    assert found.jobs.dependents == {}
    found.submit("4", after=after("afterany", "1"))
    assert found.waiting() == ["3_0", "3_1", "4"], "met already"


def test_who_is_gone_waits_for_nobody() -> None:
    found = desk("1")
    for name in ("2", "3"):
        found.submit(name, after=after("afterok", "1", "1"))
    found.close("2", final="cancelled")
    assert found.jobs.dependents == {"1": {"3": None}}
    found.close("3", final="cancelled")
    assert found.jobs.dependents == {}


def test_who_waits_for_one_element_looks_when_that_one_changes_and_for_all_when_all_have() -> None:
    found = Desk()
    found.submit("1", array=(0, 1))
    for name, on in (("2", "1_0"), ("3", "1")):
        found.submit(name, after=after("after", on))
        found.submit(f"{name}0", after=after("afterok", on))
    found.place("1_0")
    found.begin("1_0")
    assert found.waiting() == ["1_1", "2"]
    found.place("1_1")
    found.begin("1_1")
    assert found.waiting() == ["2", "3"]
    found.close("1_0", final="completed")
    assert found.waiting() == ["2", "20", "3"]
    found.close("1_1", final="completed")
    assert found.waiting() == ["2", "20", "3", "30"]


def test_who_began_before_the_last_element_ended_counts_as_begun() -> None:
    found = Desk()
    found.submit("1", array=(0, 1))
    found.submit("2", after=after("after", "1"))
    found.place("1_0")
    found.begin("1_0")
    found.close("1_0", because.EndedVm)
    found.close("1_1", final="cancelled")
    assert found.waiting() == ["2", "1_0"]


# ------------------------------------------------------------------------------------------------------- order and limits


def test_the_queue_is_ranked_anew_only_where_somebody_fits() -> None:
    found = desk("1", "2", order="multi-factor")
    found.submit("3", cores=9)
    room = Room(())

    def ranked(at: float, room: Room | None) -> list[str]:
        return [place.unit for place in found.jobs.ranked(at, room).in_order()]

    found.state.jobs["2"].priority = 50
    assert ranked(AT + 300.0, room)[-1] == "2", "nothing fits"
    room.offer("a", Free.of(True, Size(2, 10_000)))
    assert ranked(AT + 300.0, room)[0] == "2"
    found.state.jobs["1"].priority = 90
    assert ranked(AT + 600.0, None)[0] == "1"
    version = found.jobs.queue.ranked.version
    found.jobs.ranked(AT + 600.0)
    assert found.jobs.queue.ranked.version == version
    assert found.jobs.next_moment(AT + 600.0) < NEVER
    assert desk("1").jobs.next_moment(AT) == NEVER


@pytest.mark.parametrize("order", ["fcfs", "multi-factor"])
def test_a_book_that_is_made_anew_has_the_same_queue(order: str) -> None:
    found = Desk(order=order)
    for name, priority in (("1", 5), ("2", 90), ("3", -5)):
        found.submit(name, priority=priority)
    found.place("2")
    found.close("2", because.LostHost)
    anew = Jobs(found.custody, "hpc", found.state)
    assert anew.queue.in_order() == found.jobs.ranked(AT).in_order()
    assert (len(anew.queue), anew.launches.failing) == (3, {"2": None})


def test_who_has_held_cores_is_credited_once_that_is_over() -> None:
    found = desk("1", limits=BatchLimits(cores_max=9))
    found.place("1")
    found.jobs.opened("1", 1)
    found.custody.state.at += 10.0
    found.jobs.queue.grew = False
    found.jobs.opened("1", -1, ("a",))
    assert found.jobs.queue.grew
    assert found.state.usage.accounts["ann"].core_s == pytest.approx(20.0, rel=1e-3)


def test_open_attempts_count_for_throttles_and_limits() -> None:
    found = Desk(limits=BatchLimits(cores_max=9))
    found.submit("1", array=(0, 1), throttle=1)
    found.submit("2", user="bob")
    budgets = found.jobs.queue.budgets
    assert budgets is not None
    assert (found.jobs.owner("1_0"), found.jobs.owner("2")) == (Owner("ann"), Owner("bob"))
    assert desk("1").jobs.owner("1") == NOBODY
    found.jobs.queue.grew = False
    found.jobs.opened("1_0", 1)
    found.jobs.opened("2", 1)
    assert found.jobs.queue.grew
    assert (found.jobs.queue.running, {a.user: much.size.cores for a, much in budgets.used.items()}) == (
        {"1": 1},
        {"ann": 2, "bob": 2},
    )
    found.jobs.opened("1_0", -1, ("a",))
    assert (found.jobs.queue.running, [a.user for a in budgets.used]) == ({}, ["bob"])


def test_another_configuration_counts_what_is_open_and_puts_everybody_in_again() -> None:
    found = Desk()
    found.submit("1", best_effort=True)
    found.submit("2", lease=f.Lease(kind="advance", start_at=AT + 50.0))
    found.submit("3")
    found.submit("4", user="bob")
    found.ran("1", 5.0, because.Preempted, suspended=True)
    found.place("3")
    found.place("4")
    before = found.jobs.queue
    before.running = {"9": 1}
    found.jobs.configured(["3", "4"])
    assert found.jobs.queue is before
    config = cloud(batch("hpc", limits=BatchLimits(users={"bob": UserLimits(cores_max=3)})))
    found.custody.state.config = config
    found.jobs.configured(["3", "4"])
    queue = found.jobs.queue
    assert queue.budgets is not None
    assert [(a.user, much.jobs) for a, much in queue.budgets.used.items()] == [("bob", 1)]
    assert (found.waiting(), [*queue.bookings], queue.suspended, queue.running) == (
        ["1"],
        ["2"],
        {"1": ("a",)},
        {"9": 1},
    )
    found.custody.state.config = cloud(batch("hpc"))
    found.jobs.configured(["3"])
    assert found.jobs.queue.budgets is None
    assert found.waiting() == ["1"]
