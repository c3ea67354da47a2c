"""Limits of open attempts in time: which one counts, from when, and when it is enforced."""

from __future__ import annotations

from typing import Any

import pytest

from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Broken, Unit, Vm, vm_key
from services.scheduler.core.state.limits import PATIENCE_S, REPORT_S, START_PATIENCE, Limit, Limits

WALLTIME_S, BOOT_S, SAVE_S, GRACE_S = 1000.0, 60.0, 20.0, 7.0
PLACED, STARTED, BEGAN = 100.0, (110.0, 115.0), 130.0
SLOT = 5000.0
START_DUE = PLACED + START_PATIENCE * BOOT_S + GRACE_S


def unit(name: str = "1", **fields: Any) -> Unit:
    given: dict[str, Any] = {"dept": "hpc", "nodes": 2, "state": "open", "attempt": 3, "placed_at": PLACED}
    return Unit(id=name, **(given | fields))


def limits(*units: Unit, slots: dict[str, float] | None = None, walltimes: dict[str, float] | None = None) -> Limits:
    custody, slots, walltimes = Custody(), slots or {}, walltimes or {}
    custody.state.units = {one.id: one for one in units}
    return Limits(
        *(custody, lambda name: walltimes.get(name, WALLTIME_S), lambda: BOOT_S, lambda name: slots.get(name, NEVER)),
        save_s=lambda: SAVE_S,
        grace_s=lambda: GRACE_S,
    )


def has_vms(found: Limits, name: str, *started: float | None, attempt: int = 3) -> None:
    for rank, at in enumerate(started):
        vm = Vm(unit=name, attempt=attempt, rank=rank, vm=rank, host="h", allocated_at=0.0, started_at=at)
        found.custody.state.vms[vm_key(name, attempt, rank)] = vm


def start_vm(found: Limits, name: str, at: float, attempt: int = 3) -> None:
    found.custody.state.at = at
    found.vm_started(name, attempt)


def expect(found: Limits, *expected: Limit) -> None:
    """These pass, each in its moment."""
    at = sorted(each.due for each in expected)
    assert found.next_due() == at[0]
    for due in at:
        passed = [each for each in expected if each.due <= due]
        assert found.any_due(due)
        assert sorted(found.overdue(due)) == sorted(passed)
        assert sorted(found.overdue(due - 0.25)) == sorted(each for each in expected if each.due <= due - 0.25)
    assert not found.any_due(at[0] - 0.25)


@pytest.mark.parametrize("how", ["followed", "rebuilt"])
def test_each_stage_of_an_attempt_has_its_limit(how: str) -> None:
    one = unit()
    found = limits(one)

    def looks(*expected: Limit) -> None:
        if how == "rebuilt":
            found.rebuild(["1"])
        expect(found, *expected)

    found.placed("1")
    has_vms(found, "1", None, None)
    looks(Limit(START_DUE, "1", 3, "start"))
    has_vms(found, "1", STARTED[0], None)
    start_vm(found, "1", STARTED[0])
    looks(Limit(START_DUE, "1", 3, "start"))
    has_vms(found, "1", *STARTED)
    start_vm(found, "1", STARTED[1])
    looks(Limit(STARTED[1] + BOOT_S, "1", 3, "boot"))
    one.began_at = found.custody.state.at = BEGAN
    found.began("1")
    assert found.began_at == BEGAN
    looks(Limit(BEGAN + WALLTIME_S, "1", 3, "walltime"))
    one.state = "pending"
    found.closed("1")
    assert found.next_due() == NEVER
    assert (found.heap, found.started) == ([], {})


def test_the_last_machine_counts_whichever_rank_it_is() -> None:
    found = limits(unit())
    has_vms(found, "1", STARTED[1], STARTED[0])
    found.rebuild(["1"])
    expect(found, Limit(STARTED[1] + BOOT_S, "1", 3, "boot"))
    assert found.started == {"1": 2}


def test_machines_of_an_attempt_before_count_for_nothing() -> None:
    found = limits(unit())
    has_vms(found, "1", *STARTED, attempt=2)
    found.rebuild(["1"])
    start_vm(found, "1", STARTED[1], attempt=2)
    start_vm(found, "1", STARTED[1], attempt=2)
    assert found.started == {}
    expect(found, Limit(START_DUE, "1", 3, "start"))


def test_the_next_attempt_counts_its_own_machines() -> None:
    one = unit(nodes=1)
    found = limits(one)
    found.placed("1")
    start_vm(found, "1", STARTED[0])
    one.broken = Broken.VM_ENDED
    found.closed("1")
    one.broken, one.attempt, one.placed_at = None, 4, 200.0
    found.placed("1")
    expect(found, Limit(200.0 + START_PATIENCE * BOOT_S + GRACE_S, "1", 4, "start"))


def test_who_is_not_live_has_no_limit() -> None:
    one, other = unit("1"), unit("2", broken=Broken.HOST_LOST)
    found = limits(one, other)
    has_vms(found, "2", *STARTED)
    found.rebuild(["2", "1"])
    assert (found.started, [each.unit for each in found.heap]) == ({}, ["1"])
    start_vm(found, "2", STARTED[0])
    assert found.started == {}
    one.broken = Broken.HOST_LOST
    assert found.overdue(NEVER) == []
    found.placed("1")
    del found.custody.state.units["1"]
    assert found.overdue(NEVER) == []


def test_who_goes_on_with_saved_machines_has_twice_the_time_of_saving_beside() -> None:
    found = limits(unit(resumes=True))
    found.placed("1")
    expect(found, Limit(START_DUE + 2 * SAVE_S, "1", 3, "start"))


def test_without_saving_and_grace_nothing_is_beside() -> None:
    custody = Custody()
    custody.state.units = {"1": unit(resumes=True, placed_at=None)}
    found = Limits(custody, lambda _: WALLTIME_S, lambda: BOOT_S)
    found.placed("1")
    assert found.next_due() == START_PATIENCE * BOOT_S
    custody.state.units["1"].began_at = BEGAN
    found.began("1")
    assert found.next_due() == BEGAN + WALLTIME_S


def test_a_slot_ends_its_lease_whatever_stage_it_is_in_and_instead_of_a_walltime() -> None:
    one = unit()
    slots = {"1": SLOT}
    found = limits(one, slots=slots)
    found.placed("1")
    expect(found, Limit(START_DUE, "1", 3, "start"), Limit(SLOT, "1", 3, "slot"))
    one.began_at = BEGAN
    found.began("1")
    expect(found, Limit(SLOT, "1", 3, "slot"))
    found.rebuild(["1"])
    expect(found, Limit(SLOT, "1", 3, "slot"))
    slots["1"] = SLOT + 10.0
    found.changed("1")
    expect(found, Limit(SLOT + 10.0, "1", 3, "slot"))


@pytest.mark.parametrize("longer", [500.0, 2000.0])
def test_a_walltime_that_changes_counts_as_it_is_now(longer: float) -> None:
    one, walltimes = unit(began_at=BEGAN), {"1": WALLTIME_S}
    found = limits(one, walltimes=walltimes)
    found.rebuild(["1"])
    walltimes["1"] = longer
    found.changed("1")
    expect(found, Limit(BEGAN + longer, "1", 3, "walltime"))


def test_a_walltime_that_changes_before_the_attempt_begins_changes_none_of_its_limits() -> None:
    one = unit()
    found = limits(one)
    found.placed("1")
    found.changed("1")
    assert found.heap == [Limit(START_DUE, "1", 3, "start")]
    one.broken = Broken.VM_ENDED
    found.changed("1")
    assert len(found.heap) == 1


def test_who_has_no_walltime_is_never_overdue() -> None:
    found = limits(unit(began_at=BEGAN), walltimes={"1": NEVER})
    found.rebuild(["1"])
    assert found.heap == []


def test_several_are_told_in_the_order_of_submission_and_count_until_they_are_closed() -> None:
    found = limits(*(unit(name) for name in ("2", "10", "9")), slots={"2": 50.0})
    for name in ("10", "9", "2"):
        found.placed(name)
    units = [(each.unit, each.kind) for each in found.overdue(START_DUE)]
    assert units == [("2", "slot"), ("2", "start"), ("9", "start"), ("10", "start")]
    assert [(each.unit, each.kind) for each in found.overdue(START_DUE)] == units


DUE = BEGAN + WALLTIME_S


@pytest.mark.parametrize(
    ("since", "until", "enforced"),
    [
        (0.0, NEVER, DUE),  # nobody looks
        (BEGAN, DUE, DUE),  # alive since the attempt began, and heard until then
        (BEGAN + 1.0, DUE, DUE),  # … or for long enough
        (BEGAN + 1.0, DUE - 1.0, DUE + PATIENCE_S),  # not heard lately
        (DUE - REPORT_S, DUE, DUE),
        (DUE - 1.0, DUE, DUE - 1.0 + REPORT_S),  # a report may be held up
        (DUE + 50.0, DUE + 60.0, DUE + 50.0 + REPORT_S),
        (DUE + 400.0, DUE + 400.0, DUE + PATIENCE_S),  # but not for ever
    ],
)
def test_a_walltime_is_enforced_when_no_report_can_be_held_up(since: float, until: float, enforced: float) -> None:
    found = limits(unit(began_at=BEGAN))
    found.rebuild(["1"])
    found.heard_since, found.heard_until = since, until
    assert found.next_moment(DUE) == enforced
    assert found.next_moment(DUE - 1.0) == DUE
    assert (found.overdue(enforced - 0.25), len(found.overdue(enforced))) == ([], 1)
    assert found.awaits_reports(DUE) is (enforced > DUE)
    assert not found.awaits_reports(enforced)
    assert not found.awaits_reports(DUE - 0.25)


def test_other_limits_wait_for_no_report_and_one_that_waits_holds_up_nobody() -> None:
    found = limits(unit("1", began_at=BEGAN), unit("2"))
    found.rebuild(["1", "2"])
    found.heard_until = 0.0
    assert [each.unit for each in found.overdue(DUE + 1.0)] == ["2"]
    assert found.awaits_reports(DUE + 1.0)
    assert found.next_moment(DUE + 1.0) == START_DUE, "it is due until its closing has come back"
    del found.custody.state.units["2"]
    assert found.next_moment(DUE + 1.0) == DUE + PATIENCE_S


@pytest.mark.parametrize(("since", "enforced"), [(BEGAN, BEGAN + 1.0), (BEGAN + 0.25, BEGAN + 0.25 + REPORT_S)])
def test_who_began_before_admission_did_may_have_reported_to_nobody(since: float, enforced: float) -> None:
    found = limits(unit(began_at=BEGAN), walltimes={"1": 1.0})
    found.rebuild(["1"])
    found.heard_since = since
    assert found.next_moment(BEGAN + 1.0) == enforced


def test_until_somebody_is_heard_nothing_waits_for_a_report() -> None:
    found = limits()
    assert (found.heard_since, found.heard_until, found.began_at) == (0.0, NEVER, 0.0)
    assert not found.any_due(NEVER)


def test_the_next_moment_is_that_of_whoever_comes_first() -> None:
    found = limits(unit("1", began_at=BEGAN), unit("2", began_at=BEGAN), walltimes={"2": WALLTIME_S + 30.0})
    found.rebuild(["1", "2"])
    found.heard_until = 0.0
    assert found.next_moment(DUE + 10.0) == DUE + 30.0
    assert found.next_moment(DUE + 30.0) == DUE + PATIENCE_S
    assert limits().next_moment(0.0) == NEVER


def test_that_walltimes_end_by_a_moment_is_told_of_walltimes_alone() -> None:
    found = limits(unit("1"), slots={"1": SLOT})
    found.placed("1")
    assert not found.ends_by(SLOT)
    found = limits(unit("1", began_at=BEGAN), unit("2"))
    found.rebuild(["1", "2"])
    assert (found.ends_by(DUE - 0.25), found.ends_by(DUE)) == (False, True)
