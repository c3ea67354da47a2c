"""Suspended, resumed, moved (PROTOCOL X7): a VM is bound to the next attempt in the journal before it is asked to go on."""

from __future__ import annotations

import pytest

from schemas import facts as f
from services.domain.custody.custody import Custody
from services.executor.core.calls import Allocate, Deploy, Migrate, Outcome, Phase, Result, Save, Terminate
from services.executor.core.executor import ExecutorCore
from tests.support.executor_bench import Bench, held, kinds
from tests.support.executor_stage import FAST, WHY

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE


def suspended(*hosts: str) -> tuple[Bench, list[int]]:
    """Job 1 ran on these hosts, or on h0, and is saved."""
    bench = held("h0", "h1", "h2")
    vms = bench.run("1", *(hosts or ("h0",)))
    bench.close("1", disposal=SUSPEND)
    bench.settle()
    return bench, vms


def moving() -> tuple[Bench, int]:
    """Job 1 runs on h0 and is to go on on h1; its VM is bound, and nothing is asked yet."""
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    return bench, vm


def ended(bench: Bench) -> list[str]:
    return [fact.why for fact in bench.written if isinstance(fact, f.VmEnded)]


# --------------------------------------------------------------------------------------------------------------- suspend


def test_x7_what_is_suspended_is_stopped_and_has_ended_when_it_is_saved() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    [save] = bench.calls()
    assert save == Save("1/1/0", vm)
    assert bench.decide() == []
    bench.answer(save)
    bench.poll()
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why=f.SUSPENDED)]
    assert list(bench.custody.state.saved) == [vm]
    assert bench.calls() == []


def test_x7_a_host_whose_vms_are_saved_is_cleared() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.write(
        "scheduler.hpc",
        f.AttemptClosed(unit="1", attempt=1, disposal=SUSPEND, why=WHY),
        f.HostReleased(host="h0"),
    )
    bench.settle()
    assert bench.custody.state.hosts["h0"].state == "free"
    assert len(bench.custody.state.saved) == 1


def test_x7_what_is_not_saved_at_kill_by_is_ended_hard_and_begins_anew() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    [save] = bench.calls()
    bench.answer(save, Outcome.REFUSED, "not now")
    bench.now += FAST.save_s
    assert bench.calls() == [Terminate("1/1/0", vm, True)]
    bench.answer(Terminate("1/1/0", vm, True))
    bench.settle()
    assert ended(bench) == ["terminated"]
    assert not bench.custody.state.units["1"].suspended


@pytest.mark.parametrize("why", ["its time is up", "its host is lost", "its job is cancelled"])
def test_x7_nothing_is_asked_of_a_vm_whose_saving_is_on_its_way_to_the_journal(why: str) -> None:
    """The journal would rely on what is gone."""
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    [save] = bench.calls()
    bench.answer(save)
    bench.poll()
    facts = bench.core.decide(bench.now)
    assert facts == [f.VmEnded(unit="1", attempt=1, rank=0, why=f.SUSPENDED)]
    if why == "its time is up":
        bench.now += 10 * FAST.save_s
    elif why == "its host is lost":
        bench.write("executor", f.HostLost(host="h0", reason="error"))
    else:
        bench.write("admission", f.JobCancelled(job="1", user="a"))
    assert bench.calls() == []
    bench.write("executor", *facts)
    assert list(bench.custody.state.saved) == ([] if why == "its job is cancelled" else [vm])
    bench.audit()
    ends = [call for call in bench.calls() if isinstance(call, Terminate)]
    assert ends == ([Terminate(f"#{vm}", vm, True)] if why == "its job is cancelled" else [])


def test_x7_an_order_to_save_that_had_no_effect_is_given_again() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    for outcome in (Outcome.UNSURE, Outcome.REFUSED, Outcome.DENIED, Outcome.LATER):
        assert bench.calls() == [Save("1/1/0", vm)]
        bench.answer(Save("1/1/0", vm), outcome)
        assert bench.calls() == []
        bench.now = bench.core.wake_at()
        bench.poll()
    assert bench.calls() == [Save("1/1/0", vm)]


def test_x7_a_vm_that_never_ran_has_nothing_to_save() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    bench.close("1", disposal=SUSPEND)
    assert bench.calls() == [Terminate("1/1/0", 0, True)]


def test_x7_a_part_that_is_lost_makes_the_others_worth_nothing() -> None:
    bench = held()
    first, second = bench.run("1", "h0", "h1")
    bench.close("1", disposal=SUSPEND)
    saves = bench.calls()
    assert saves == [Save("1/1/0", first), Save("1/1/1", second)]
    bench.gone(second)
    bench.answer(saves[0])
    bench.core.observe(Result(saves[1], Outcome.GONE), bench.now)
    bench.settle()
    assert sorted(ended(bench)) == [f.SUSPENDED, "terminated"]
    assert bench.custody.state.saved == {}
    bench.audit()  # X6: what nobody knows any more is swept
    assert Terminate(f"#{first}", first, True) in bench.calls()


def test_x7_a_cancelled_job_leaves_no_saved_vm() -> None:
    bench, [vm] = suspended()
    bench.write("admission", f.JobCancelled(job="1", user="a"))
    bench.audit()
    bench.settle()
    assert bench.vms == {}
    assert [x for x in bench.written if isinstance(x, f.VmEnded)][1:] == []
    assert vm not in bench.custody.state.saved


def test_x7_a_job_that_is_cancelled_while_it_is_saved_ends() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    bench.write("admission", f.JobCancelled(job="1", user="a"))
    assert bench.calls() == [Terminate("1/1/0", vm, False)]


# ---------------------------------------------------------------------------------------------------------------- resume


def test_x7_a_resumed_vm_is_bound_in_the_journal_before_it_is_deployed() -> None:
    bench, [vm] = suspended()
    bench.place("1", "h2", attempt=2)
    assert bench.calls() == []
    facts = bench.core.decide(bench.now)
    assert facts == [f.VmAllocated(unit="1", attempt=2, rank=0, vm=vm, host="h2")]
    assert bench.calls() == []  # decided, not folded
    bench.write("executor", *facts)
    bench.poll()
    assert bench.calls() == [Deploy("1/2/0", vm, "h2", 2, resumes=True)]


def test_x7_all_ranks_go_on_where_they_were_and_none_is_made_anew() -> None:
    bench, vms = suspended("h0", "h1")
    bench.place("1", "h1", "h2", attempt=2)
    bench.settle()
    assert [bench.custody.state.vms[f"1/2/{rank}"].vm for rank in (0, 1)] == vms
    assert [bench.on[vm] for vm in vms] == ["h1", "h2"]
    assert bench.custody.state.vms["1/2/1"].started_at is not None


def test_x7_an_attempt_that_resumes_waits_for_what_is_being_saved() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    bench.place("1", "h1", attempt=2)
    assert bench.decide() == []
    [save] = bench.calls()
    assert save == Save("1/1/0", vm)
    bench.answer(save)
    bench.poll()
    bench.settle()
    assert bench.on == {vm: "h1"}
    assert kinds(bench.written)[-3:] == ["vm.ended", "vm.allocated", "vm.started"]


def test_x7_a_rank_without_a_vm_in_this_life_has_a_fresh_one() -> None:
    bench = held("h0", "h1", "h2")
    bench.place("1", "h0", "h1")
    [first, _] = bench.calls()
    assert isinstance(first, Allocate)
    bench.answer(first)
    bench.decide()
    [deploy] = bench.calls()
    bench.answer(deploy)
    bench.poll()
    bench.decide()
    bench.close("1", disposal=SUSPEND)
    bench.settle()
    bench.place("1", "h0", "h1", attempt=2)
    made = [call for call in bench.calls() if isinstance(call, Allocate)]
    assert [call.rank for call in made] == [1]


def test_x7_a_refused_resume_is_tried_again_and_then_given_up() -> None:
    bench, _ = suspended()
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.poll()
    tries = 0
    while not any(isinstance(x, f.VmEnded) and x.attempt == 2 for x in bench.written):
        for call in bench.calls():
            tries += isinstance(call, Deploy)
            bench.answer(call, Outcome.REFUSED if isinstance(call, Deploy) else Outcome.OK, "no room")
        bench.poll()
        bench.decide()
        bench.now += 0.5
    assert tries == 6
    assert ended(bench)[-1] == "deploy refused: no room"


def test_x7_a_resume_in_doubt_is_repeated_but_its_vm_is_not_saved_again() -> None:
    """The first order may arrive when the VM has long been saved once more, and would start it where nobody knows it."""
    bench, [vm] = suspended()
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.poll()
    [deploy] = bench.calls()
    bench.answer(deploy, Outcome.UNSURE)
    bench.poll()
    bench.now += 1.0
    assert bench.calls() == [deploy]
    bench.answer(deploy)
    bench.poll()
    bench.decide()
    bench.close("1", attempt=2, disposal=SUSPEND)
    [save] = bench.calls()
    bench.answer(save)
    bench.poll()
    assert bench.decide() == []
    assert bench.calls() == [Terminate("1/2/0", vm, True)]


def test_x7_a_resume_whose_effect_is_seen_is_in_doubt_no_more() -> None:
    bench, [vm] = suspended()
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.poll()
    [deploy] = bench.calls()
    bench.answer(deploy)  # it happens …
    bench.calls()
    bench.core.vm_reconciler.observed_vms["1/2/0"].busy = True
    bench.core.observe(Result(deploy, Outcome.UNSURE), bench.now)  # … and nobody hears of it
    bench.settle()
    bench.close("1", attempt=2, disposal=SUSPEND)
    bench.settle()
    assert list(bench.custody.state.saved) == [vm]


def test_x7_a_saved_vm_that_runs_though_nobody_asked_is_ended() -> None:
    """A late resume of an earlier leader: the audit finds it."""
    bench, [vm] = suspended()
    early = bench.core.ticket()
    bench.vms[vm], bench.on[vm] = Phase.RUNNING, "h1"
    bench.core.ledger.saved_at[vm] = bench.core.ticket()
    bench.audit(early)  # begun before it was known as saved: it says nothing
    assert bench.calls() == []
    bench.audit()
    assert bench.calls() == [Terminate(f"#{vm}", vm, True)]


def test_x7_a_void_binding_ends_no_saved_vm() -> None:
    bench, [vm] = suspended()
    bench.place("1", "h1", attempt=2)
    facts = bench.core.decide(bench.now)
    bench.close("1", attempt=2, disposal=SUSPEND)
    bench.write("executor", *facts)
    assert bench.calls() == []
    bench.place("1", "h2", attempt=3)
    bench.settle()
    assert bench.on == {vm: "h2"}


# --------------------------------------------------------------------------------------------------------------- migrate


def test_x7_a_vm_migrates_only_when_its_binding_has_come_back() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    assert bench.calls() == []  # it runs until its new place is known
    bench.place("1", "h1", attempt=2)
    facts = bench.core.decide(bench.now)
    assert facts == [f.VmAllocated(unit="1", attempt=2, rank=0, vm=vm, host="h1")]
    assert bench.calls() == []
    bench.write("executor", *facts)
    assert bench.calls() == [Migrate("1/2/0", vm, "h1", 1)]


def test_x7_a_moved_vm_has_started_when_it_was_seen_on_its_new_host() -> None:
    bench, vm = moving()
    [migrate] = bench.calls()
    bench.answer(migrate)
    bench.on[vm] = "h0"
    bench.vms[vm] = Phase.MOVING
    bench.poll()
    assert bench.decide() == []
    bench.vms[vm], bench.on[vm] = Phase.RUNNING, "h1"
    bench.audit()  # a pool in short says that it runs, and not where
    assert bench.decide() == []
    bench.poll()
    assert bench.decide() == [f.VmStarted(unit="1", attempt=2, rank=0)]


def test_x5_a_host_that_a_vm_leaves_is_not_cleared_before_the_vm_was_seen_elsewhere() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.write(
        "scheduler.hpc",
        f.AttemptClosed(unit="1", attempt=1, disposal=MIGRATE, why=WHY),
        f.UnitPlaced(unit="1", attempt=2, hosts=("h1",), cores=1, memory_mb=64),
        f.HostReleased(host="h0"),
    )
    bench.decide()
    [migrate] = [call for call in bench.calls() if isinstance(call, Migrate)]
    bench.see_hosts()
    assert bench.custody.state.hosts["h0"].state == "draining"
    del bench.on[vm]  # OpenNebula shows it nowhere for a moment
    bench.see_hosts()
    assert bench.decide() == []
    bench.on[vm] = "h0"
    bench.answer(migrate)
    bench.poll()
    bench.decide()
    bench.settle()
    assert bench.custody.state.hosts["h0"].state == "free"
    assert bench.on == {vm: "h1"}


def test_x7_what_cannot_migrate_is_stopped_and_deployed_there() -> None:
    bench, vm = moving()
    [migrate] = bench.calls()
    bench.answer(migrate, Outcome.REFUSED, "not supported")
    bench.poll()
    assert bench.calls() == [Save("1/2/0", vm)]
    bench.answer(Save("1/2/0", vm))
    bench.poll()
    assert bench.calls() == [Deploy("1/2/0", vm, "h1", 1, resumes=True)]


def test_x7_a_migration_that_comes_back_is_not_tried_again() -> None:
    bench, vm = moving()
    [migrate] = bench.calls()
    bench.answer(migrate)
    bench.on[vm] = "h0"
    bench.poll()
    assert bench.calls() == [Save("1/2/0", vm)]


def test_x7_without_live_migration_a_vm_is_saved_at_once() -> None:
    bench = held(capabilities=("suspend", "resume_elsewhere"))
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    assert bench.calls() == [Save("1/1/0", vm)]
    bench.answer(Save("1/1/0", vm))
    bench.settle()
    assert bench.on == {vm: "h1"}


def test_x7_who_waits_too_long_for_a_place_is_saved() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert bench.calls() == []
    assert bench.core.wake_at() <= bench.now + FAST.save_s / 2
    bench.now = bench.core.wake_at()
    assert bench.calls() == [Save("1/1/0", vm)]


def test_x7_what_has_not_moved_in_time_is_ended_hard() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.place("1", "h1", attempt=2)
    bench.decide()
    [migrate] = [call for call in bench.calls() if isinstance(call, Migrate)]
    bench.answer(migrate)
    bench.vms[vm], bench.on[vm] = Phase.MOVING, "h0"
    bench.poll()
    bench.now += FAST.save_s
    assert bench.calls() == [Terminate("1/2/0", vm, True)]
    bench.answer(Terminate("1/2/0", vm, True))
    bench.settle()
    assert "not moved in time" in ended(bench)
    assert bench.custody.state.hosts["h0"].state == "free"


def test_x3_a_migration_waits_for_room() -> None:
    bench = held()
    [vm] = bench.run("1", "h0", cores=3)
    bench.run("2", "h1", cores=3)
    bench.close("2", disposal=f.Disposal.KILL)
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2, cores=3)
    bench.decide()
    [terminate] = bench.calls()
    assert isinstance(terminate, Terminate)
    bench.answer(terminate)
    bench.poll()
    bench.decide()
    assert bench.calls() == [Migrate("1/2/0", vm, "h1", 1)]


def test_x3_no_rank_moves_before_all_are_bound() -> None:
    bench = held("h0", "h1", "h2", count=3)
    first, second = bench.run("1", "h0", "h1")
    bench.vms[second] = Phase.MOVING
    bench.core.vm_reconciler.observed_vms["1/1/1"].phase = Phase.MOVING
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", "h2", attempt=2)
    [bound] = bench.decide()
    assert isinstance(bound, f.VmAllocated)
    assert bound.vm == first
    assert bench.calls() == []
    bench.vms[second] = Phase.RUNNING
    bench.poll()
    bench.decide()
    assert [type(call) for call in bench.calls()] == [Migrate, Migrate]


def test_x7_an_answer_about_the_attempt_before_is_not_lost() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.now += FAST.save_s / 2
    [save] = bench.calls()
    bench.place("1", "h1", attempt=2)
    bench.answer(save)
    bench.settle()
    assert bench.on == {vm: "h1"}


# ------------------------------------------------------------------------------------------------------- a new leader


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SAVED])
def test_a_new_leader_goes_on_with_a_move(phase: Phase) -> None:
    bench, vm = moving()
    bench.vms[vm] = phase
    if phase is Phase.SAVED:
        del bench.on[vm]
    other = Custody()
    other.load(bench.custody.dump())
    core = ExecutorCore(other)
    core.load(bench.core.dump())
    assert core.dump() == bench.core.dump()
    assert core.ledger.leavers == bench.core.ledger.leavers
    assert core.ledger.weight.keys() == bench.core.ledger.weight.keys()
    bench.custody, bench.core = other, core
    core.take_over(bench.now)
    bench.see_hosts()
    bench.audit()
    bench.settle()
    assert bench.on == {vm: "h1"}
    assert bench.custody.state.vms["1/2/0"].started_at is not None


def test_a_snapshot_keeps_what_is_being_saved() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    other = Custody()
    other.load(bench.custody.dump())
    core = ExecutorCore(other)
    core.load(bench.core.dump())
    assert core.ledger.aim("1/1/0", bench.now) is bench.core.ledger.aim("1/1/0", bench.now)
    assert core.check() == []
