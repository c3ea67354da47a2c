"""The life of a unit across attempts: what is saved, moves or is lost, and the VMs that one attempt takes over from another.

Rules that are tested here (`custody.fold`)
  1. A unit goes on only if nothing of its present life is lost: each rank that had a VM in it has one that is open or saved.
  2. What is lost while it waits makes it begin anew; what is lost while it runs breaks it.
  3. VMs of an earlier life, and of a unit that is over, are worth nothing.
"""

from __future__ import annotations

import pytest

from schemas import facts as f
from services.domain.custody.custody import Custody
from tests.unit.test_custody_rules import (
    COMPLETED,
    MOVES,
    NEXT,
    PARK,
    RESUMES,
    RULES_2,
    RUNNING,
    S_1,
    SAVED,
    WIDE,
    E,
    Step,
    allocated,
    bound,
    closed,
    ended,
    granted,
    job,
    placed,
    play,
    reported,
)

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE
GANG = [*RULES_2, *granted(), *granted("h2"), *WIDE]
AGAIN = [
    *RUNNING,
    closed(),
    *granted("h2"),
    placed(attempt=2, hosts=("h2",)),
]  # a second life; the VM of the first is open


def gone(attempt: int = 1, rank: int = 0, why: str = f.SUSPENDED) -> Step:
    return E, f.VmEnded(unit="1", attempt=attempt, rank=rank, why=why)


def unit_after(*steps: Step) -> tuple[str, bool, bool, str | None]:
    """State, whether it waits to go on, whether it goes on, what broke it."""
    unit = play(list(steps))[0].state.units["1"]
    return unit.state, unit.suspended, unit.resumes, unit.broken


def saved(custody: Custody) -> dict[int, tuple[str, int, int]]:
    return {number: (one.unit, one.attempt, one.rank) for number, one in custody.state.saved.items()}


WAITS, ANEW = ("pending", True, False, None), ("pending", False, False, None)


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        ([*RULES_2, *RUNNING, S_1], WAITS),
        ([*RULES_2, *RUNNING, ended(), S_1], ANEW),  # its VM is lost
        ([*RUNNING, ended(), S_1], WAITS),  # under rules 1 nobody asked
        ([*RULES_2, *granted(), job(), placed(), S_1], WAITS),  # it had none yet
        ([*GANG, S_1], WAITS),
        ([*GANG, gone(rank=0, why="gone"), S_1], ANEW),
        ([*GANG, gone(rank=1, why="gone"), S_1], ANEW),
        ([*GANG[:-2], allocated(rank=1, vm=8), S_1], WAITS),  # rank 0 had none yet
        ([*RULES_2, *AGAIN, ended(), closed(attempt=2, disposal=SUSPEND)], WAITS),  # what is lost is of an earlier life
        ([*RULES_2, *AGAIN, bound(vm=8), gone(2, why="gone"), closed(attempt=2, disposal=SUSPEND)], ANEW),
        ([*RESUMES, closed(attempt=2, disposal=SUSPEND)], WAITS),  # what is saved has not been bound yet
        ([*MOVES, closed(attempt=2, disposal=MIGRATE)], WAITS),
        ([*RESUMES, bound(), closed(attempt=2, disposal=SUSPEND)], WAITS),
        ([*RESUMES, closed(attempt=2)], ANEW),
        ([*GANG, S_1, gone(rank=0), gone(rank=1, why="gone")], ANEW),
        ([*GANG, S_1, gone(rank=0, why="gone"), gone(rank=1)], ANEW),
        ([*RUNNING, S_1, ended()], WAITS),  # under rules 1
        ([*RULES_2, *AGAIN, bound(vm=8), closed(attempt=2, disposal=SUSPEND), gone(why="gone")], WAITS),
    ],
)
def test_it_waits_to_go_on_if_nothing_of_its_present_life_is_lost(
    steps: list[Step], after: tuple[str, bool, bool, str | None]
) -> None:
    assert unit_after(*steps) == after


@pytest.mark.parametrize(
    ("steps", "broken"),
    [
        (RESUMES, None),
        ([*MOVES, gone(why="gone")], "not_saved"),
        ([*MOVES, gone()], None),  # it is saved on the way
        ([*MOVES, bound(), gone(2)], "not_saved"),  # its own VM has not gone on
        ([*MOVES, bound(), (E, f.VmStarted(unit="1", attempt=2, rank=0)), gone(2)], "vm_ended"),
        ([*RESUMES, bound(vm=8), gone(2)], "vm_ended"),  # a fresh one
        ([*RULES_2, *AGAIN, ended()], None),
        ([*RULES_2, *AGAIN, gone()], None),
        ([*RULES_2, *RUNNING, gone()], "vm_ended"),
    ],
)
def test_what_is_lost_while_it_runs_breaks_it(steps: list[Step], broken: str | None) -> None:
    custody, _ = play(steps)
    assert (custody.state.units["1"].state, custody.state.units["1"].broken) == ("open", broken)
    assert custody.newly_broken == (["1"] if broken else [])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (SAVED, {7: ("1", 1, 0)}),
        ([*GANG, S_1, gone(), gone(rank=1)], {7: ("1", 1, 0), 8: ("1", 1, 1)}),
        ([*GANG, S_1, gone(), gone(rank=1, why="gone")], {}),
        (RESUMES, {7: ("1", 1, 0)}),
        ([*RESUMES, bound()], {}),
        ([*RESUMES, bound(vm=8)], {}),  # it begins anew all the same
        ([*RESUMES, closed(attempt=2)], {}),
        ([*RESUMES, closed(attempt=2, disposal=SUSPEND)], {7: ("1", 1, 0)}),
        ([*RESUMES, reported(2)], {}),
        ([*RESUMES, reported(2, exit=1)], {}),
        ([*MOVES, gone()], {7: ("1", 1, 0)}),
        ([*MOVES, gone(why="gone")], {}),
        ([*MOVES, bound(), gone(2)], {}),  # of an open attempt
        ([*RUNNING, S_1, gone()], {}),  # under rules 1 nothing is
        ([*RULES_2, *RUNNING, closed(), gone()], {}),  # it does not go on
        ([*RULES_2, *AGAIN, bound(vm=8), closed(attempt=2, disposal=SUSPEND), gone()], {}),  # of an earlier life
        ([*MOVES, reported(2), gone()], {}),  # it is over
    ],
)
def test_what_is_saved(steps: list[Step], expected: dict[int, tuple[str, int, int]]) -> None:
    assert saved(play(steps)[0]) == expected


def test_a_failure_that_may_be_retried_begins_anew_too() -> None:
    steps = [*RULES_2, *granted(), job(retries=1), placed(), allocated(), S_1, gone(), placed(attempt=2)]
    custody, _ = play([*steps, reported(2, exit=1)])
    assert (custody.state.units["1"].state, custody.state.units["1"].resumes, saved(custody)) == ("pending", False, {})


def test_who_waited_to_go_on_and_cannot_is_named_once() -> None:
    steps = [*RULES_2, *RUNNING, S_1, gone(why="gone")]
    custody, _ = play(steps)
    assert custody.newly_unsaved == ["1"]
    assert play([*steps, job("2")])[0].newly_unsaved == []
    assert play(SAVED)[0].newly_unsaved == []


def test_a_resumed_unit_is_one_life_and_one_that_begins_anew_another() -> None:
    lives = [play(steps)[0].state.units["1"].life for steps in (RUNNING, RESUMES, MOVES, AGAIN)]
    assert lives == [1, 1, 1, 2]


def test_the_guest_of_a_vm_that_goes_on_keeps_its_name() -> None:
    for steps, known_as, was in (
        ([*RESUMES, bound()], "1/1/0", ""),
        ([*MOVES, bound()], "1/1/0", ""),
        ([*MOVES, gone(), bound()], "1/1/0", ""),
        ([*RESUMES, bound(vm=8)], "1/2/0", ""),
        ([*MOVES, bound(), closed(attempt=2, disposal=MIGRATE), placed(attempt=3), bound(attempt=3, host="h1")], "1/1/0", ""),
        ([*NEXT, bound("2", 1, "h1")], "2/1/0", "1/1/0"),
    ):  # fmt: skip
        vm = list(play(steps)[0].state.vms.values())[-1]
        assert (vm.known_as, vm.was) == (known_as, was)


def test_a_completed_job_is_over_once_its_vm_has_gone_to_another() -> None:
    before, after = play(NEXT)[0], play([*NEXT, bound("2", 1, "h1")])[0]
    assert (list(before.state.finals), list(after.state.finals)) == ([], ["1"])
    assert (after.state.units["1"].vms_open, after.state.units["2"].vms_open) == (0, 1)
    assert play([*COMPLETED, PARK, ended()])[0].state.finals == {"1": None}


def test_a_final_unit_with_a_late_vm_is_not_over_until_that_has_ended() -> None:
    late = [*granted(), job(), placed(), closed(disposal=f.Disposal.KILL)]
    assert [list(play(steps)[0].state.finals) for steps in (late, [*late, allocated()], [*late, allocated(), ended()])] == [
        ["1"], [], ["1"],
    ]  # fmt: skip
