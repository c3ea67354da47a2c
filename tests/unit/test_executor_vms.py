"""The executor's decisions about VMs on folded states: allocate, deploy, terminate (PROTOCOL X1 to X4)."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import CloudConfig, Department, WebPolicy
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.rules import RULES
from services.executor.core.calls import Allocate, Deploy, Outcome, Phase, Result, Terminate, phase_of
from services.executor.core.executor import ExecutorCore
from tests.support.closing import left_out
from tests.support.executor_bench import Bench, held, kinds
from tests.support.executor_stage import CLOUD, FAST, WHY

# ------------------------------------------------------------------------------------------------------------------ X1


def test_x1_nothing_is_deployed_before_its_id_has_come_back_through_the_journal() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    assert isinstance(allocate, Allocate)
    assert (allocate.unit, allocate.attempt, allocate.rank, allocate.host) == ("1", 1, 0, "h0")
    bench.answer(allocate)
    facts = bench.core.decide(bench.now)
    assert facts == [f.VmAllocated(unit="1", attempt=1, rank=0, vm=0, host="h0")]
    assert bench.calls() == []  # decided, not folded
    bench.write("executor", *facts)
    assert bench.calls() == [Deploy("1/1/0", 0, "h0", 0)]


def test_x1_what_was_allocated_for_an_attempt_that_is_dead_by_now_is_deleted_unjournaled() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.close("1")
    bench.answer(allocate)
    assert bench.decide() == []
    assert bench.calls() == [Terminate("#0", 0, True)]


def test_x1_a_void_allocation_leaves_a_vm_that_is_deleted() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate)
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=77, host="h0"))  # an earlier leader's
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=0, host="h0"))
    calls = bench.calls()
    assert Terminate("#0", 0, True) in calls
    assert not any(isinstance(c, Deploy) and c.vm == 0 for c in calls)


# ------------------------------------------------------------------------------------------------------------------ X2


def test_x2_a_vm_that_is_gone_is_never_replaced() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.gone(vm)
    bench.audit()
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why="vanished")]
    assert [c for c in bench.calls() if isinstance(c, Allocate)] == []
    bench.close("1")
    bench.place("1", "h0", attempt=2)
    assert [(c.attempt, c.rank) for c in bench.calls() if isinstance(c, Allocate)] == [(2, 0)]


def test_x2_an_allocation_whose_outcome_is_unknown_waits_for_a_poll_begun_after_it() -> None:
    bench = held()
    bench.place("1", "h0")
    early = bench.core.ticket()
    [allocate] = bench.calls()
    bench.answer(allocate, Outcome.UNSURE)
    assert bench.core.audit_wanted
    bench.audit(early)
    assert bench.calls() == []
    bench.audit()
    assert bench.calls() == [allocate]


def test_x2_an_allocation_that_did_happen_is_adopted_and_not_repeated() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.vms[9], bench.tags[9] = Phase.HELD, f"{CLOUD}/1/1/0"
    bench.answer(allocate, Outcome.UNSURE)
    bench.audit()
    assert bench.decide() == [f.VmAllocated(unit="1", attempt=1, rank=0, vm=9, host="h0")]
    assert bench.calls() == [Deploy("1/1/0", 9, "h0", 0)]


def test_a_refused_allocation_is_tried_again_later_and_later() -> None:
    bench = held()
    bench.place("1", "h0")
    waits = []
    for _ in range(9):
        [allocate] = bench.calls()
        bench.answer(allocate, Outcome.REFUSED, "limit of 2 reached for VMS quota")
        assert bench.calls() == []
        waits.append(bench.core.wake_at() - bench.now)
        bench.now = bench.core.wake_at()
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(0.05)
    assert waits[-1] == pytest.approx(5.0)


# ------------------------------------------------------------------------------------------------------------------ X3


def test_x3_deploy_waits_for_the_vm_of_the_attempt_before() -> None:
    bench = held()
    [old] = bench.run("1", "h0")
    bench.close("1")
    bench.place("1", "h1", attempt=2)
    terminate, allocate = bench.calls()
    assert terminate == Terminate("1/1/0", old, False)
    bench.answer(allocate)
    bench.decide()
    assert bench.calls() == []
    bench.answer(terminate)
    bench.poll()
    assert kinds(bench.decide()) == ["vm.ended"]
    assert [c for c in bench.calls() if isinstance(c, Deploy)] == [Deploy("1/2/0", old + 1, "h1", 1)]


def test_x3_deploy_does_not_wait_for_a_vm_on_a_lost_host() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.hosts["h0"] = bench.hosts["h0"].__class__("h0", 0, False, "error", Size(4, 4096), "default", {}, ())
    bench.see_hosts()
    assert kinds(bench.decide()) == ["host.lost"]
    bench.close("1")
    bench.place("1", "h1", attempt=2)
    for call in bench.calls():
        if isinstance(call, Allocate):
            bench.answer(call)
    bench.decide()
    assert [c.host for c in bench.calls() if isinstance(c, Deploy)] == ["h1"]


def test_x3_deploy_waits_for_room_that_a_dead_attempts_vm_still_takes() -> None:
    bench = held()
    bench.run("1", "h0", cores=3)
    bench.close("1", disposal=f.Disposal.KILL)
    bench.place("2", "h0", cores=2)  # custody: the room is free, nobody live is there
    terminate, allocate = bench.calls()
    bench.answer(allocate)
    bench.decide()
    assert bench.calls() == []
    bench.answer(terminate)
    bench.poll()
    bench.decide()
    assert [c.key for c in bench.calls() if isinstance(c, Deploy)] == ["2/1/0"]


def test_x3_beside_a_dying_vm_there_may_be_room() -> None:
    bench = held()
    bench.run("1", "h0", cores=2)
    bench.close("1", disposal=f.Disposal.KILL)
    bench.place("2", "h0", cores=2)
    _, allocate = bench.calls()
    bench.answer(allocate)
    bench.decide()
    assert [c.key for c in bench.calls() if isinstance(c, Deploy)] == ["2/1/0"]


def test_x3_a_whole_host_unit_waits_until_the_host_is_empty() -> None:
    bench = held()
    bench.run("1", "h0", cores=1)
    bench.close("1", disposal=f.Disposal.KILL)
    bench.place("2", "h0", cores=1, exclusive=True)
    _, allocate = bench.calls()
    bench.answer(allocate)
    bench.decide()
    assert bench.calls() == []


def test_x3_an_attempt_that_died_meanwhile_is_not_deployed() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    bench.close("1")
    assert bench.calls() == [Terminate("1/1/0", 0, True)]  # on HOLD: nothing to be graceful about


def test_x3_what_waits_for_room_may_be_gone_before_there_is_room() -> None:
    bench = held()
    bench.run("1", "h0", cores=3)
    bench.close("1", disposal=f.Disposal.KILL)
    bench.place("2", "h0", cores=2)
    slow, allocate = bench.calls()
    bench.answer(allocate)
    bench.decide()
    assert bench.calls() == []  # it waits
    bench.close("2")
    [quick] = bench.calls()
    bench.answer(quick)
    bench.poll()
    assert bench.decide() == [f.VmEnded(unit="2", attempt=1, rank=0, why="terminated")]
    bench.answer(slow)
    bench.poll()
    bench.decide()
    assert bench.calls() == []


# ------------------------------------------------------------------------------------------------------------------ X4


def killed_by(bench: Bench, key: str = "1/1/0") -> float:
    return bench.core.ledger.state.doomed[key] - bench.now


def test_x4_every_way_to_die_dooms_the_vm() -> None:
    for writer, fact in (
        ("scheduler.hpc", f.AttemptClosed(unit="1", attempt=1, disposal=f.Disposal.REQUEUE, why=WHY)),
        ("admission", f.AttemptReported(unit="1", attempt=1, exit=0)),
        ("admission", f.AttemptReported(unit="1", attempt=1, exit=3)),
        ("admission", f.DepartmentClosed(dept="hpc")),
    ):
        bench = held()
        [vm] = bench.run("1", "h0")
        if isinstance(fact, f.DepartmentClosed):
            bench.write("provisioner", left_out(bench.custody, fact.dept))
        bench.write(writer, fact)
        assert killed_by(bench) == pytest.approx(FAST.kill_s)
        assert bench.calls() == [Terminate("1/1/0", vm, False)]


def test_x4_a_host_that_is_waited_for_is_given_the_short_grace() -> None:
    for fact, writer in (
        (f.HostReleased(host="h0"), "scheduler.hpc"),
        (f.HostSeized(host="h0", dept="hpc"), "provisioner"),
        (f.HostLost(host="h0", reason="x"), "executor"),
    ):
        bench = held()
        [vm] = bench.run("1", "h0")
        bench.write(writer, fact)
        assert killed_by(bench) == pytest.approx(FAST.grace_s)
        assert bench.calls() == [Terminate("1/1/0", vm, False)]


def test_x4_a_drain_shortens_the_time_of_a_vm_that_is_dying_already() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1", disposal=f.Disposal.KILL)
    bench.now += 0.1
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert killed_by(bench) == pytest.approx(FAST.grace_s)


def test_x4_an_instance_has_drained_before_so_it_has_no_more_time_than_a_job() -> None:
    bench = Bench()
    web = Department(name="web", kind="web", web=WebPolicy(drain_s=30.0))
    config = CloudConfig(name="test", policy=FAST, departments=(web,))
    bench.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    bench.write("provisioner", f.HostGranted(host="h0", dept="web"))
    bench.write("scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h0",), cores=1, memory_mb=64))
    bench.write("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=77, host="h0"))
    bench.write("scheduler.web", f.AttemptClosed(unit="web.1", attempt=1, disposal=f.Disposal.STOPPED, why=WHY))
    assert killed_by(bench, "web.1/1/0") == pytest.approx(FAST.kill_s)
    bench.write("scheduler.web", f.HostReleased(host="h0"))
    assert killed_by(bench, "web.1/1/0") == pytest.approx(FAST.grace_s)


def test_x4_the_other_ranks_of_a_broken_gang_are_doomed_too() -> None:
    bench = held()
    vms = bench.run("1", "h0", "h1")
    bench.gone(vms[0])
    bench.audit()
    bench.decide()
    assert bench.calls() == [Terminate("1/1/1", vms[1], False)]


def test_x4_graceful_then_hard_at_kill_by_then_again() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    [soft] = bench.calls()
    assert soft == Terminate("1/1/0", vm, False)
    bench.vms[vm] = Phase.MOVING
    bench.core.observe(_ok(soft), bench.now)
    bench.poll()
    assert bench.calls() == []
    bench.now += FAST.kill_s
    assert bench.core.wake_at() <= bench.now
    [hard] = bench.calls()
    assert hard == Terminate("1/1/0", vm, True)
    bench.core.observe(_ok(hard), bench.now)
    assert bench.calls() == []
    bench.now += bench.core.ledger.end_again_s - 0.01
    assert bench.calls() == []
    bench.now += 0.01
    assert bench.calls() == [hard]


def test_x4_a_vm_that_boots_is_terminated_as_soon_as_it_runs() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    [deploy] = bench.calls()
    bench.answer(deploy)
    bench.vms[0] = Phase.MOVING
    bench.poll()
    bench.close("1")
    assert bench.calls() == []  # BOOT refuses every end
    bench.vms[0] = Phase.RUNNING
    bench.poll()
    assert bench.calls() == [Terminate("1/1/0", 0, False)]


def test_x4_a_vm_that_will_not_die_makes_its_host_lost() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    began = bench.now
    while bench.now < began + FAST.grace_s + FAST.stuck_s - 0.01:
        for call in bench.calls():
            assert isinstance(call, Terminate)
            bench.core.observe(_ok(call), bench.now)
        bench.vms[vm] = Phase.MOVING
        bench.poll()
        assert bench.decide() == []
        bench.now += 0.05
    bench.now += 0.1
    assert bench.decide() == [f.HostLost(host="h0", reason="stuck")]
    assert bench.decide() == []


def test_x4_a_new_leader_gives_a_vm_time_to_die_before_its_host_is_lost() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1")
    bench.now += 1000.0  # nobody led
    bench.core.take_over(bench.now)
    assert bench.decide() == []
    assert bench.calls() == [], "whose VM that is by now is for its tag to say (X6)"
    assert bench.core.audit_wanted
    bench.audit()
    assert [c for c in bench.calls() if isinstance(c, Terminate)] == [Terminate("1/1/0", 0, True)]


def test_x4_ends_come_before_starts() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.place("2", "h1")
    bench.close("1")
    assert bench.calls(1) == [Terminate("1/1/0", 0, False)]
    assert [type(c) for c in bench.calls(1)] == [Allocate]


def _ok(call: Terminate) -> Result:
    return Result(call, Outcome.OK)


# ------------------------------------------------------------------------------------- VMs that do not run as they should


@pytest.mark.parametrize(
    ("phase", "why"), [(Phase.OFF, "powered off"), (Phase.FAILED, "failed")], ids=["powered off", "failed"]
)
def test_a_vm_that_stopped_by_itself_is_terminated_and_ended_only_when_it_is_gone(phase: Phase, why: str) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.vms[vm] = phase
    bench.audit()
    assert bench.decide() == []
    [terminate] = bench.calls()
    assert terminate == Terminate("1/1/0", vm, True)
    bench.answer(terminate)
    bench.poll()
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why=why)]


def test_a_vm_that_nobody_can_tell_of_is_ended_after_a_while() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.vms[vm] = Phase.UNKNOWN
    bench.audit()
    assert bench.calls() == []
    bench.now += FAST.stuck_s
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_a_refused_deploy_ends_the_vm_and_lets_the_host_rest() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    [deploy] = bench.calls()
    bench.answer(deploy, Outcome.REFUSED, "does not fit in host [0]. Not enough CPU")
    assert bench.calls() == []  # the state tells: an earlier deploy may have been the reason
    bench.poll()
    bench.settle()
    [ended] = [x for x in bench.written if isinstance(x, f.VmEnded)]
    assert ended.why == "deploy refused: does not fit in host [0]. Not enough CPU"
    bench.close("1")
    bench.place("1", "h0", attempt=2)
    bench.answer(bench.calls()[0])
    bench.decide()
    assert bench.calls() == []
    bench.now += 0.5
    assert [type(c) for c in bench.calls()] == [Deploy]


def test_a_deploy_whose_answer_was_lost_is_believed_to_the_state() -> None:
    for phase, again in ((Phase.RUNNING, 0), (Phase.HELD, 1)):
        bench = held()
        bench.place("1", "h0")
        bench.answer(bench.calls()[0])
        bench.decide()
        [deploy] = bench.calls()
        bench.answer(deploy, Outcome.UNSURE)
        assert bench.calls() == []
        bench.vms[0] = phase
        bench.poll()
        bench.now += 1.0
        assert len([c for c in bench.calls() if isinstance(c, Deploy)]) == again


def test_a_sight_from_before_the_last_answer_says_nothing() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    early = bench.core.ticket()
    [deploy] = bench.calls()
    bench.answer(deploy)
    bench.vms[0] = Phase.HELD  # as the poll saw it
    bench.poll(early)
    assert bench.calls() == []
    bench.vms[0] = Phase.RUNNING
    bench.poll()
    assert kinds(bench.decide()) == ["vm.started"]


def test_a_wrong_login_is_no_reason_to_give_a_vm_up() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    [deploy] = bench.calls()
    bench.answer(deploy, Outcome.DENIED)
    bench.now += 1.0
    assert bench.calls() == [deploy]


# -------------------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    ("state", "lcm", "phase"),
    [
        (1, 0, Phase.HELD),
        (2, 0, Phase.HELD),
        (3, 0, Phase.MOVING),
        (3, 2, Phase.MOVING),
        (3, 3, Phase.RUNNING),
        (3, 12, Phase.MOVING),
        (3, 16, Phase.UNKNOWN),
        (3, 36, Phase.FAILED),
        (3, 39, Phase.FAILED),
        (3, 40, Phase.FAILED),
        (3, 43, Phase.MOVING),
        (3, 60, Phase.MOVING),
        (3, 61, Phase.FAILED),
        (4, 10, Phase.SAVED),
        (5, 0, Phase.OFF),
        (6, 0, Phase.OVER),
        (8, 0, Phase.OFF),
        (9, 0, Phase.OFF),
        (11, 0, Phase.FAILED),
    ],
)
def test_phases(state: int, lcm: int, phase: Phase) -> None:
    assert phase_of(state, lcm) is phase


def test_a_snapshot_has_the_bytes_of_the_history_and_goes_on_alike() -> None:
    bench = held()
    bench.run("1", "h0", "h1")
    bench.run("2", "h0")
    bench.close("1")
    bench.place("3", "h1")
    other = Custody()
    other.load(bench.custody.dump())
    core = ExecutorCore(other)
    core.load(bench.core.dump())
    assert core.dump() == bench.core.dump()
    assert core.check() == []
    assert core.ledger.wants == bench.core.ledger.wants
    assert core.ledger.by_host == bench.core.ledger.by_host
    assert core.ledger.weight == {h: w for h, w in bench.core.ledger.weight.items() if w.size.cores}


def test_deciding_twice_gives_the_same_and_changes_nothing() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    before = bench.core.dump()
    assert bench.core.decide(bench.now) == bench.core.decide(bench.now)
    assert bench.core.dump() == before
