"""The book of a batch department, told of one fact after the other by hand: places, ages, what is gone on with, ends."""

from __future__ import annotations

from typing import Any

import pytest

import services.scheduler.core.batch.jobs as book_
from schemas import facts as f
from schemas import reasons as because
from schemas.config import Leases
from schemas.facts import Dependency
from services.domain.core import NEVER
from services.domain.custody.state import Unit
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.launches import SLOT_WAIT_MAX_S, WAIT_MAX_S
from services.scheduler.core.batch.state import WHOLE, Again, Checkpoint, Refused, State
from services.scheduler.core.state.shape import Booking, Kind
from tests.support.book import AT, Desk, desk
from tests.support.world import batch, cloud

CLOSINGS = (because.Reclaimed, because.Preempted, because.HostTaken, because.HostDrained)


# ----------------------------------------------------------------------------------------------------------------- places


def test_jobs_and_elements_enter_one_after_the_other() -> None:
    found = desk("1")
    found.submit("2", array=(1, 5))
    found.submit("3")
    assert [found.jobs.place(unit).entered for unit in ("1", "2_1", "2_5", "3")] == [0, 2, 6, 7]
    assert found.state.entries == 8
    assert found.waiting() == ["1", "2_1", "2_5", "3"]
    assert found.jobs.has("2_5")
    assert found.jobs.has("2")
    assert not found.jobs.has("4")
    assert found.state.jobs["2"].left == 2


@pytest.mark.parametrize("code", [*CLOSINGS, because.LostHost])
@pytest.mark.parametrize("place", ["keep", "end"])
def test_who_was_taken_from_keeps_its_place_unless_the_department_says_otherwise(
    code: because.Kind, place: Any
) -> None:
    found = desk("1", "2", requeue_place=place)
    found.ran("1", 10.0, code)
    assert found.waiting() == (["1", "2"] if place == "keep" else ["2", "1"])
    again = found.again()
    assert (again.requeues, again.faults, again.suspends, again.moved) == (1, 0, 0, 0)
    assert again.preempted == (code in CLOSINGS)
    assert (again.why, again.shuns, again.ran_s, again.used_s) == (code(), (), 10.0, 0.0)


@pytest.mark.parametrize("code", [None, because.EndedVm, because.BootTimeout])
def test_who_failed_enters_again_at_the_end(code: because.Kind | None) -> None:
    found = desk("1", "2")
    found.place("1", "a", "b")
    found.begin("1")
    found.close("1", code)
    assert found.waiting() == ["2", "1"]
    again = found.again()
    assert (again.requeues, again.faults, again.preempted) == (0, int(code is not None), 0)
    assert again.shuns == (("a", "b") if code else ())
    assert found.jobs.shuns("1") == again.shuns
    assert (again.entered, found.state.entries) == (2, 3)


def test_who_failed_before_it_began_and_by_no_closing_of_ours_enters_at_the_end() -> None:
    found = desk("1", "2")
    found.place("1")
    found.close("1")
    assert found.waiting() == ["2", "1"]


def test_whoever_is_looked_at_again_is_in_the_queue_once_and_only_if_it_may_start() -> None:
    found = desk("1")
    found.submit("2", after=(Dependency(condition="afterok", job="1"),))
    for name in ("1", "2"):
        found.jobs.refresh(name)
        found.jobs.resumed(name)
    assert found.waiting() == ["1"]
    found.custody.state.config = cloud(batch("bio"))
    found.ran("1", 5.0, because.Reclaimed)
    assert found.waiting() == ["1"]
    found.submit("7", array=(0,))
    found.jobs.resumed("7")
    assert found.waiting() == ["1", "7_0"]


def test_a_reason_stays_told_until_there_is_another() -> None:
    found = desk("1")
    found.ran("1", 1.0, because.Reclaimed)
    found.ran("1", 1.0)
    assert found.again().why == because.Reclaimed()


def test_who_did_not_begin_keeps_its_place_and_waits_and_shuns_where_that_was() -> None:
    found = desk("1", "2")
    for hosts in (("a",), ("b",), ("a",)):
        found.place("1", *hosts)
        found.close("1", because.EndedVm)
    again = found.again()
    assert (again.launches, again.requeues, again.faults, again.entered) == (3, 0, 0, 0)
    assert found.jobs.shuns("1") == ("b", "a")
    assert found.waiting() == ["2"]
    assert found.jobs.launches.next_due() == AT + 2.0
    assert not found.jobs.look(AT + 1.0)
    assert found.jobs.look(AT + 2.0)
    assert found.waiting() == ["1", "2"]
    assert not found.jobs.look(AT), "time does not go back"
    assert found.jobs.at == AT + 2.0


@pytest.mark.parametrize(("lease", "most_s"), [(False, WAIT_MAX_S), (True, SLOT_WAIT_MAX_S)])
def test_a_lease_whose_time_runs_waits_for_seconds_at_most(lease: bool, most_s: float) -> None:
    found = Desk()
    found.submit("1", lease=f.Lease(kind="advance", start_at=AT) if lease else None, walltime_s=1e6)
    for _ in range(12):
        found.place("1")
        found.close("1", because.LostHost)
    assert found.jobs.launches.next_due() == AT + most_s
    found.jobs.starts_resumed()
    assert found.jobs.launches.next_due() == NEVER
    assert (found.waiting(), [*found.jobs.queue.bookings]) == (([], ["1"]) if lease else (["1"], []))


def test_a_held_job_is_not_eligible_and_a_persons_word_lets_it_try_anew() -> None:
    found = desk("1", "2")
    found.unit("1").held = True
    found.jobs.held("1")
    assert found.waiting() == ["2"]
    found.custody.state.at += 50.0
    found.unit("1").held = False
    found.jobs.resumed("1")
    assert found.waiting() == ["1", "2"]
    assert found.state.jobs["1"].since == AT + 50.0
    for _ in range(3):
        found.place("2")
        found.close("2", because.LostHost)
    assert found.waiting() == ["1"]
    found.jobs.resumed("2")
    assert found.waiting() == ["1", "2"]
    assert found.again("2").launches == 0


def test_who_begins_begins_a_new_life_and_ends_its_count_of_failed_starts() -> None:
    found = desk("1")
    found.place("1")
    found.close("1", because.LostHost)
    found.ran("1", 10.0, because.Reclaimed)
    assert (found.again().launches, found.again().failed_on, found.jobs.launches.failing) == (0, {}, {})
    found.place("1")
    found.begin("1")
    found.custody.state.at += 7.0
    found.jobs.checkpointed(f.CheckpointReported(unit="1", attempt=3, percent=None))
    assert found.jobs.checkpoints.kept_s("1") == 7.0
    found.close("1", because.Reclaimed)
    found.place("1")
    found.begin("1")
    assert found.jobs.checkpoints.kept_s("1") == 0.0


@pytest.mark.parametrize("state", ["in the queue", "running", "of an array", "held again"])
def test_only_who_was_kept_waiting_is_as_young_as_its_release(state: str) -> None:
    found = Desk()
    found.submit("1", array=(0,) if state == "of an array" else ())
    if state == "running":
        found.place("1")
    if state == "of an array":
        found.jobs.queue.remove("1_0")
    found.custody.state.at += 50.0
    if state == "held again":
        found.jobs.queue.remove("1")
        found.jobs.held("1")
    else:
        found.jobs.resumed("1_0" if state == "of an array" else "1")
    assert found.state.jobs["1"].since == AT


# ------------------------------------------------------------------------------------------------------- time that is left


def test_a_suspended_unit_goes_on_with_what_is_left_and_where_it_was() -> None:
    found = desk("1", "2")
    found.ran("1", 30.0, because.Reclaimed, suspended=True)
    again = found.again()
    assert (again.suspends, again.origin, again.used_s, again.ran_s) == (1, ("a",), 30.0, 0.0)
    assert (again.requeues, again.preempted) == (0, 1)
    assert found.waiting() == ["1", "2"]
    assert (found.jobs.length_s("1"), found.jobs.used_s("1"), found.jobs.origin("1")) == (70.0, 30.0, ("a",))
    assert found.jobs.waited_s("1", AT + 45.0) == 15.0
    assert found.jobs.waited_s("1", AT + 5.0) == 0.0
    assert found.jobs.waited_s("2", AT + 45.0) == 45.0
    found.ran("1", 90.0, because.Reclaimed, suspended=True)
    assert (found.jobs.length_s("1"), found.again().used_s) == (0.0, 120.0)
    found.ran("1", 5.0, because.Reclaimed)
    assert (found.jobs.length_s("1"), found.again().ran_s, found.jobs.origin("1")) == (100.0, 125.0, ())
    assert (found.jobs.used_s("2"), found.jobs.origin("2"), found.jobs.shuns("2")) == (0.0, (), ())


def test_who_was_suspended_before_it_began_has_used_nothing() -> None:
    found = desk("1")
    found.place("1")
    found.custody.state.at += 30.0
    found.close("1", because.Reclaimed, suspended=True)
    assert (found.again().used_s, found.again().suspends) == (0.0, 1)


def test_whose_next_attempt_does_not_start_has_nothing_left_of_what_it_saved() -> None:
    found = desk("1", "2")
    found.ran("1", 30.0, because.Reclaimed, suspended=True)
    found.place("1")
    found.close("1", because.LostHost)
    found.jobs.look(found.custody.state.at)
    assert (found.again().used_s, found.again().ran_s, found.waiting()) == (0.0, 30.0, ["1", "2"])


def test_what_it_saved_is_lost_and_it_begins_anew() -> None:
    found = desk("1", "2", requeue_place="end")
    found.ran("1", 30.0, because.Reclaimed, suspended=True)
    found.unit("1").suspended = False
    found.jobs.unsaved("1")
    again = found.again()
    assert (again.suspends, again.requeues, again.used_s, again.ran_s) == (0, 1, 0.0, 30.0)
    assert again.why == because.NotSaved()
    assert found.waiting() == ["2", "1"]


@pytest.mark.parametrize(("before", "suspends"), [(None, -1), (because.Reclaimed, -1), (because.Balanced, 0)])
def test_a_suspension_that_came_to_nothing_is_told_as_a_requeue(before: because.Kind | None, suspends: int) -> None:
    found = desk("1")
    if before:
        found.state.again["1"] = Again(entered=0, why=before(), cause=before.CAUSE)
    found.ran("1", 30.0, because.NotSaved)
    assert (found.again().suspends, found.again().requeues) == (suspends, 1)


def test_a_move_counts_as_one_and_as_no_preemption() -> None:
    found = desk("1")
    found.ran("1", 30.0, because.Balanced, suspended=True)
    assert (found.again().moved, found.again().preempted, found.again().suspends) == (1, 0, 1)


@pytest.mark.parametrize(
    ("order", "used_s", "began", "expected"),
    [
        ("leases", 30.0, False, 70.0 + 40.0),
        ("leases", 30.0, True, 70.0),
        ("leases", 0.0, False, 100.0),
        ("fcfs", 30.0, False, 70.0),
    ],
)
def test_an_end_counts_the_resuming_where_the_order_does(
    order: str, used_s: float, began: bool, expected: float
) -> None:
    found = Desk(order=order, leases=Leases(resume_mb_per_s=10.0))
    found.submit("1", nodes=2, memory_mb=200)
    found.state.again["1"] = Again(entered=0, used_s=used_s)
    found.place("1", "a", "b")
    if began:
        found.begin("1")
    assert found.jobs.ends_at("1", AT) == AT + expected
    assert found.jobs.slot_ends_at("1") == NEVER


def test_a_slot_ends_when_it_was_agreed_and_its_lease_is_in_no_lane() -> None:
    found = Desk()
    found.submit("1", lease=f.Lease(kind="advance", start_at=AT + 50.0))
    found.submit("2", lease=f.Lease(kind="best-effort"), best_effort=True)
    assert found.jobs.queue.bookings == {"1": Booking(AT + 50.0, 0, "1", AT + 150.0, found.jobs.shape("1"))}
    assert (found.waiting(), found.jobs.slot_ends_at("2")) == (["2"], NEVER)
    assert found.jobs.ends_at("1", AT) == found.jobs.slot_ends_at("1") == AT + 150.0
    found.jobs.extended("1", 200.0)
    assert found.jobs.queue.bookings["1"].ends_at == AT + 250.0
    found.place("1")
    assert found.jobs.queue.bookings == {}
    found.jobs.extended("1", 300.0)
    assert (found.jobs.slot_ends_at("1"), found.jobs.queue.bookings) == (AT + 350.0, {})
    found.jobs.extended("2", 40.0)
    assert (found.waiting(), found.jobs.length_s("2")) == (["2"], 40.0)


def test_best_effort_that_was_suspended_is_known_by_where_it_was() -> None:
    found = Desk()
    found.submit("1", best_effort=True)
    found.submit("2")
    for name in ("1", "2"):
        found.ran(name, 30.0, because.Preempted, suspended=True)
    assert found.jobs.queue.suspended == {"1": ("a",)}


# --------------------------------------------------------------------------------------------------------- short, by word


@pytest.mark.parametrize(("seconds", "declared"), [(60.0, True), (60.5, False)])
def test_who_runs_longer_than_is_short_is_short_no_more(seconds: float, declared: bool) -> None:
    found = Desk(order="svmsched", services={"a": 1.0}, short_s=60.0)
    found.submit("1", short=True, service="a", array=(0, 1))
    found.submit("2", short=True, service="a")
    found.place("1_0")
    found.begin("1_0")
    found.custody.state.at += seconds
    found.close("1_0", because.Reclaimed)
    kinds = {place.unit: lane.key.kind for lane in found.jobs.queue.lanes.values() for place in lane.places}
    assert kinds == {
        "1_0": Kind("a", declared=declared),
        "1_1": Kind("a", declared=declared),
        "2": Kind("a", declared=True),
    }
    assert found.jobs.said("1_0") == Kind("a", declared=True), "by its submitter's word"
    assert found.waiting() == ["1_0", "1_1", "2"]
    found.submit("3", lease=f.Lease(kind="best-effort"))
    found.ran("3", 100.0, because.Reclaimed)
    assert (found.state.jobs["3"].kind, found.state.jobs["3"].overran) == (Kind(), False)


@pytest.mark.parametrize("fields", [{"began_at": None}, {"ended_at": None}])
def test_what_has_not_run_or_not_ended_breaks_no_word(fields: dict[str, Any]) -> None:
    found = Desk(short_s=60.0)
    found.submit("1", short=True)
    one = Unit(id="1", dept="hpc", **({"began_at": AT - 100.0, "ended_at": AT} | fields))
    found.jobs._hold_to_its_word("1", one)
    assert not found.state.jobs["1"].overran


def test_whose_turn_it_was_is_remembered_of_production_and_of_best_effort() -> None:
    found = Desk()
    found.submit("1", service="a")
    found.submit("2", service="b", best_effort=True)
    found.place("1")
    found.place("2")
    assert (found.state.turn, found.state.turn_best_effort) == ("a", "b")


# ----------------------------------------------------------------------------------------------------------------- the end


def test_with_its_last_unit_a_job_is_remembered_by_how_it_ended_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_, "ENDED_MAX", 2)
    found = Desk()
    found.submit("1", array=(3, 4, 9))
    found.state.checkpoints["1_4"] = Checkpoint(attempt=1, at=0.0, saved_s=1.0)
    found.state.refused["1_4"] = Refused(attempt=1, failure="", why="x")
    assert found.jobs.user("1_9") == "ann"
    found.ran("1_9", 1.0, because.Reclaimed)
    found.place("1_9")
    found.close("1_9", because.LostHost)
    found.ran("1_9", 1.0, final="failed")
    found.ran("1_4", 1.0, final="failed")
    assert (found.state.checkpoints, found.state.refused, found.state.again) == ({}, {}, {})
    assert (found.state.jobs["1"].left, found.state.jobs["1"].begun) == (1, {})
    found.ran("1_3", 1.0, final="completed")
    assert (found.state.jobs, found.state.ended) == ({}, {"1": [4, 9]})
    for name, final in (("2", "completed"), ("3", "stopped"), ("4", "timeout")):
        found.submit(name)
        found.ran(name, 1.0, final=final)
    assert found.state.ended == {"3": [], "4": [WHOLE]}
    assert found.waiting() == []


def test_who_is_over_waits_for_no_start_any_more() -> None:
    found = desk("1")
    for _ in range(3):
        found.place("1")
        found.close("1", because.LostHost)
    assert found.jobs.launches.waiting
    found.close("1", final="cancelled")
    assert (found.jobs.launches.waiting, found.jobs.launches.failing, found.state.again) == ({}, {}, {})


def test_a_pending_unit_that_is_over_leaves_the_queue() -> None:
    found = desk("1", "2")
    found.close("1", final="cancelled")
    assert found.waiting() == ["2"]
    assert found.state.ended == {"1": [WHOLE]}


def test_a_closed_department_remembers_who_had_not_completed_and_nothing_else() -> None:
    found = desk("1")
    found.submit("2", array=(0, 1, 2))
    found.submit("3", after=(Dependency(condition="afterok", job="1"),), constraint="fast")
    found.ran("2_0", 1.0, final="completed")
    found.ran("2_1", 1.0, because.EndedVm)
    found.place("1")
    found.close("1", because.LostHost)
    found.state.checkpoints["1"] = Checkpoint(attempt=1, at=0.0, saved_s=1.0)
    found.state.refused["1"] = Refused(attempt=1, failure="", why="x")
    found.submit("4", array=(0, 1))
    del found.custody.state.units["4_0"]  # it ended so long ago that custody has forgotten it
    for one in found.custody.state.units.values():
        one.final, one.state = one.final or "cancelled", "final"
    found.jobs.closed()
    assert found.state.ended == {"1": [WHOLE], "2": [1, 2], "3": [WHOLE], "4": [1]}
    assert found.state == State(
        ended=found.state.ended, entries=found.state.entries, usage=found.state.usage, turn=found.state.turn
    )
    assert (found.waiting(), found.jobs.dependents, found.jobs.constraints) == ([], {}, {})
    assert (found.jobs.launches.waiting, found.jobs.launches.failing) == ({}, {})


def test_constraints_are_counted_and_the_flag_says_when_there_are_others() -> None:
    found = desk("1")
    assert not found.jobs.constrained_anew

    def anew() -> bool:
        was, found.jobs.constrained_anew = found.jobs.constrained_anew, False
        return was

    for name, expected in (("2", True), ("3", False)):
        found.submit(name, constraint="fast")
        assert anew() is expected
    assert found.jobs.constraints == {"fast": 2}
    found.close("2", final="cancelled")
    assert (anew(), found.jobs.constraints) == (False, {"fast": 1})
    found.close("3", final="cancelled")
    assert (anew(), found.jobs.constraints) == (True, {})
    found.submit("4", constraint="fast")
    found.submit("5", constraint="fast")
    assert found.jobs.constrained_anew, "until somebody has looked"
    found.close("5", final="cancelled")
    assert Jobs(found.custody, "hpc", found.state).constraints == {"fast": 1}
