"""VMs of ours that the journal does not know are adopted if a rank waits for one, else ended; others are left alone (X6)."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from services.executor.core.allocations import WORKED_OFF_S
from services.executor.core.call_errors import Failure
from services.executor.core.calls import Allocate, Broken, Deploy, Outcome, Phase, PoolSeen, Result, Sight, Terminate
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import CLOUD


def left_behind(phase: Phase, tag: str) -> Bench:
    """A new leader finds VM 9, which the journal does not know, while 1/1/0 waits for a VM."""
    bench = Bench(audited=False)
    for name, sight in bench.hosts.items():
        described = f.HostDescribed(host=name, one_id=sight.one_id, cores=4, memory_mb=4096, cluster="default")
        bench.write("executor", described, f.HostCleared(host=name))
    bench.grant("h0")
    bench.place("1", "h0")
    bench.vms[9], bench.tags[9] = phase, tag
    bench.core.take_over(bench.now)
    bench.see_hosts()
    return bench


def test_x6_nothing_is_allocated_before_the_first_audit() -> None:
    bench = left_behind(Phase.HELD, "")
    assert [c for c in bench.calls() if isinstance(c, Allocate)] == []
    bench.audit()
    assert [type(c) for c in bench.calls()] == [Allocate]


def test_x6_a_vm_on_hold_for_a_rank_that_has_none_is_adopted() -> None:
    bench = left_behind(Phase.HELD, f"{CLOUD}/1/1/0")
    bench.audit()
    assert bench.decide() == [f.VmAllocated(unit="1", attempt=1, rank=0, vm=9, host="h0")]
    assert bench.calls() == [Deploy("1/1/0", 9, "h0", 0)]


def test_x6_of_two_with_one_tag_the_older_is_adopted_and_the_other_deleted() -> None:
    bench = left_behind(Phase.HELD, f"{CLOUD}/1/1/0")
    bench.vms[8], bench.tags[8] = Phase.HELD, f"{CLOUD}/1/1/0"
    bench.audit()
    assert [x.vm for x in bench.decide() if isinstance(x, f.VmAllocated)] == [8]
    assert Terminate("#9", 9, True) in bench.calls()


@pytest.mark.parametrize(
    ("phase", "tag"),
    [
        (Phase.RUNNING, f"{CLOUD}/1/1/0"),  # it runs, and nobody journaled it: a stray resume (X7)
        (Phase.HELD, f"{CLOUD}/1/2/0"),  # no such attempt
        (Phase.HELD, f"{CLOUD}/1/1/1"),  # no such rank
        (Phase.HELD, f"{CLOUD}/77/1/0"),  # no such unit
        (Phase.OFF, f"{CLOUD}/77/1/0"),
    ],
)
def test_x6_what_is_ours_and_unknown_is_ended(phase: Phase, tag: str) -> None:
    bench = left_behind(phase, tag)
    bench.audit()
    calls = bench.calls()
    assert [c for c in calls if isinstance(c, Terminate)] == [Terminate("#9", 9, True)]
    bench.answer(Terminate("#9", 9, True))
    bench.audit()
    bench.settle()
    assert bench.core.vm_reconciler.strays == {}
    assert bench.vms.keys().isdisjoint([9])


@pytest.mark.parametrize("tag", ["", "other/1/1/0", "nonsense", f"{CLOUD}2/1/1/0", f"{CLOUD}/1/1/x"])
def test_x6_what_is_not_ours_is_never_touched(tag: str) -> None:
    bench = left_behind(Phase.RUNNING, tag)
    bench.audit()
    assert not any(isinstance(c, Terminate) for c in bench.calls())
    assert not any(isinstance(x, f.VmAllocated) for x in bench.decide())
    assert bench.core.strangers([]) == []


def test_x6_a_vm_whose_allocation_is_in_flight_is_left_alone() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.vms[0], bench.tags[0] = Phase.HELD, f"{CLOUD}/1/1/0"
    bench.audit()
    assert bench.decide() == []
    bench.answer(allocate)
    assert [x.vm for x in bench.decide() if isinstance(x, f.VmAllocated)] == [0]
    assert not any(isinstance(c, Terminate) for c in bench.calls())


def pool(bench: Bench, ticket: int, *sights: Sight) -> None:
    plain = [msgspec.structs.replace(sight, tag="") for sight in sights]
    bench.core.observe(PoolSeen(ticket, plain, list(sights)), bench.now)


def test_a_saved_vm_that_a_pool_shows_running_from_before_it_was_saved_is_left_alone() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=f.Disposal.SUSPEND)
    [save] = bench.calls()
    bench.answer(save)
    bench.poll()
    early = bench.core.ticket()
    bench.decide()
    assert list(bench.custody.state.saved) == [vm]
    sight = Sight(vm, Phase.RUNNING, tag=f"{CLOUD}/1/1/0")
    pool(bench, early, sight)
    assert bench.calls() == []
    pool(bench, bench.core.ticket(), sight)
    assert bench.calls() == [Terminate(f"#{vm}", vm, True)]


def test_what_is_known_by_now_is_no_stranger_and_those_after_it_are_looked_at_all_the_same() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.core.ledger.dirty.clear()
    pool(
        bench,
        bench.core.ticket(),
        Sight(vm, Phase.RUNNING, tag=f"{CLOUD}/1/1/0"),
        Sight(vm + 1, Phase.OVER, tag=f"{CLOUD}/5/1/0"),
        Sight(vm + 2, Phase.RUNNING, tag=f"{CLOUD}/6/1/0"),
    )
    assert [call for call in bench.calls() if isinstance(call, Terminate)] == [Terminate(f"#{vm + 2}", vm + 2, True)]
    assert list(bench.core.vm_reconciler.strays) == [vm + 2]


def test_the_tick_of_a_lost_answer_is_before_any_poll_that_can_tell_of_it() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate, Outcome.UNSURE)
    [tick] = [one.tick for one in bench.core.vm_reconciler.allocations.unsure.values()]
    bench.audit(tick)
    assert bench.calls() == []
    bench.audit(tick + 1)
    assert bench.calls() == [allocate]


def timed_out() -> tuple[Bench, Allocate]:
    """An allocation had no answer in time; a job beside it is to be ended."""
    bench = held()
    bench.run("1", "h1")
    bench.place("2", "h0")
    [allocate] = bench.calls()
    assert isinstance(allocate, Allocate)
    bench.core.observe(Result(allocate, Outcome.UNSURE, failure=Failure.TIMEOUT), bench.now)
    return bench, allocate


def test_an_allocation_that_may_be_queued_is_repeated_after_an_audit_begun_when_it_was_worked_off() -> None:
    bench, allocate = timed_out()
    bench.audit()
    assert not bench.core.audit_wanted
    assert bench.calls() == []
    bench.close("1")
    [end] = bench.calls()
    early = bench.core.ticket()
    bench.answer(end)
    assert bench.core.audit_wanted
    bench.audit(early)
    assert bench.calls() == []
    bench.audit()
    assert allocate in bench.calls()


def test_a_call_that_was_sent_before_the_time_out_or_has_no_answer_says_nothing_of_the_queue() -> None:
    bench = held()
    bench.run("1", "h1")
    bench.place("2", "h0")
    bench.close("1")
    calls = bench.calls()
    [allocate] = [call for call in calls if isinstance(call, Allocate)]
    [end] = [call for call in calls if isinstance(call, Terminate)]
    bench.core.observe(Result(allocate, Outcome.UNSURE, failure=Failure.TIMEOUT), bench.now)
    bench.core.observe(Result(end, Outcome.OK), bench.now)
    bench.now += 1.0
    for call in bench.calls():
        bench.core.observe(Result(call, Outcome.UNSURE, failure=Failure.TIMEOUT), bench.now)
    bench.audit()
    assert not any(isinstance(call, Allocate) for call in bench.calls())


def test_an_allocation_that_may_be_queued_is_repeated_when_nothing_is_begun_so_late_any_more() -> None:
    bench, allocate = timed_out()
    bench.now += WORKED_OFF_S - 0.01
    assert bench.calls() == []
    bench.audit()
    bench.now += 0.01
    assert bench.calls() == []
    bench.audit()
    assert bench.calls() == [allocate]


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.LATER, Outcome.UNSURE])
def test_a_rank_for_which_a_vm_was_found_is_asked_for_no_more(outcome: Outcome) -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.core.observe(Result(allocate, outcome, failure=Failure.QUOTA if outcome is Outcome.LATER else ""), bench.now)
    bench.vms[9], bench.tags[9] = Phase.HELD, f"{CLOUD}/1/1/0"
    bench.audit()
    launches = bench.core.vm_reconciler.allocations
    assert [list(found) for found in (launches.later, launches.unsure, bench.core.ledger.wants)] == [[], [], []]
    assert [fact.vm for fact in bench.decide() if isinstance(fact, f.VmAllocated)] == [9]
    bench.now += 60.0
    assert [call for call in bench.calls() if isinstance(call, Allocate)] == []


def test_a_new_leader_does_not_act_on_what_came_back_void_before() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.close("1")
    bench.write("executor", f.VmAllocated(unit="99", attempt=1, rank=0, vm=7, host="h0"))
    assert len(bench.core.ledger.refused) == 1
    bench.core.take_over(bench.now)
    assert bench.core.ledger.refused == []
    bench.see_hosts()
    assert bench.calls() == []


def test_an_audit_is_wanted_before_the_first_one_and_when_something_is_not_known() -> None:
    bench = Bench(1, audited=False)
    bench.core.take_over(bench.now)
    assert bench.core.audit_wanted
    bench.audit()
    assert not bench.core.audit_wanted
    bench.core.host_reconciler.suspicious = True
    assert bench.core.audit_wanted
    bench.audit()
    assert not bench.core.audit_wanted


def test_x6_no_order_is_given_by_an_id_alone_once_connections_broke() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.core.observe(Broken(), bench.now)
    bench.close("1")
    assert bench.calls() == []
    assert bench.core.audit_wanted
    bench.audit()
    assert bench.calls() == [Terminate("1/1/0", vm, False)]


def test_x6_a_tag_that_was_read_before_connections_broke_proves_nothing() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.core.observe(Broken(), bench.now)
    bench.close("1")
    assert bench.calls() == []
    early = bench.core.ticket()
    bench.core.observe(Broken(), bench.now)
    bench.audit(early)
    assert bench.calls() == []
    bench.audit()
    assert bench.calls() == [Terminate("1/1/0", vm, False)]


@pytest.mark.parametrize("tag", ["", "other/1/1/0", f"{CLOUD}/2/1/0", f"{CLOUD}/1/2/0"])
def test_x6_what_the_journal_has_by_an_id_that_is_another_vms_is_gone(tag: str) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.core.observe(Broken(), bench.now)
    bench.tags[vm] = tag
    bench.audit()
    assert bench.calls() == []
    bench.poll()
    assert [fact for fact in bench.decide() if isinstance(fact, f.VmEnded)] == [
        f.VmEnded(unit="1", attempt=1, rank=0, why="vanished")
    ]
    bench.audit()
    assert [call for call in bench.calls() if isinstance(call, Terminate)] == (
        [Terminate(f"#{vm}", vm, True)] if tag.startswith(f"{CLOUD}/") else []
    )


def test_x6_a_stray_that_was_found_before_connections_broke_is_found_again_before_it_is_ended() -> None:
    bench = left_behind(Phase.RUNNING, f"{CLOUD}/77/1/0")
    bench.audit()
    bench.core.observe(Broken(), bench.now)
    assert not any(isinstance(call, Terminate) for call in bench.calls())
    bench.tags[9] = "another's"
    bench.audit()
    assert not any(isinstance(call, Terminate) for call in bench.calls())
    bench.core.observe(Broken(), bench.now)
    bench.tags[9] = f"{CLOUD}/77/1/0"
    bench.audit()
    assert Terminate("#9", 9, True) in bench.calls()


def test_an_allocation_that_came_back_void_is_ended_and_the_rank_is_asked_for_again() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.place("2", "h1")
    [allocate] = bench.calls()
    assert isinstance(allocate, Allocate)
    void = f.VmAllocated(unit="2", attempt=1, rank=0, vm=vm, host="h1")
    bench.core.vm_reconciler.allocations.allocating.pop(allocate.key)
    bench.write("executor", void)
    assert "2/1/0" not in bench.custody.state.vms
    assert bench.calls() == [allocate]


def test_an_id_that_the_journal_has_for_another_vm_is_asked_for_again_at_once() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.place("2", "h1")
    [allocate] = bench.calls()
    assert isinstance(allocate, Allocate)
    bench.tags[vm], bench.vms[vm] = f"{CLOUD}/{allocate.key}", Phase.HELD
    bench.core.observe(Result(allocate, Outcome.OK, vm=vm), bench.now)
    assert bench.calls() == [allocate]
    bench.answer(allocate)
    assert f.VmEnded(unit="1", attempt=1, rank=0, why="vanished") in bench.decide()
    bench.audit()
    assert Terminate(f"#{vm}", vm, True) in bench.calls()
    bench.settle()
    assert bench.custody.state.vms["2/1/0"].vm != vm
