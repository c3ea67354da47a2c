"""Warm VMs: parked after a completed job, bound to the department's next one on that host, ended when they are in the way."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Warm
from services.domain.custody.custody import Custody
from services.executor.core.calls import Allocate, Deploy, Outcome, Phase, Terminate
from services.executor.core.executor import ExecutorCore
from services.executor.core.ledger_state import LINGER_S
from tests.support.closing import close
from tests.support.executor_bench import Bench, held, host_sight, kinds
from tests.support.executor_stage import FAST, config_adopted

WARM = Warm(idle_s=10.0)


def parked(warm: Warm = WARM, **shape: int) -> tuple[Bench, int]:
    """The VM of job 1 waits for another job on h0."""
    bench = held(warm=warm)
    [vm] = bench.run("1", "h0", **shape)
    bench.report("1")
    bench.park("1")
    bench.settle()
    return bench, vm


def test_a_completed_jobs_vm_is_left_alone_for_the_moment_in_which_its_guest_may_park_it() -> None:
    bench = held(warm=WARM)
    [vm] = bench.run("1", "h0")
    bench.report("1")
    assert bench.calls() == []
    bench.now += LINGER_S
    assert bench.core.wake_at() <= bench.now
    assert bench.calls() == [Terminate("1/1/0", vm, False)]
    bench.now += FAST.kill_s
    bench.core.vm_reconciler.observed_vms["1/1/0"].busy = False
    bench.core.ledger.dirty["1/1/0"] = None
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_without_warm_vms_it_is_ended_at_once() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.report("1")
    assert bench.calls() == [Terminate("1/1/0", vm, False)]


def test_nor_does_the_vm_of_a_job_that_failed_or_had_several_nodes_linger() -> None:
    bench = held(warm=WARM)
    [vm] = bench.run("1", "h0")
    bench.write("admission", f.AttemptReported(unit="1", attempt=1, exit=1))
    assert bench.calls() == [Terminate("1/1/0", vm, False)]
    bench = held(warm=WARM)
    bench.run("1", "h0", "h1")
    bench.report("1")
    assert len(bench.calls()) == 2


def test_a_parked_vm_waits_for_idle_s_and_is_ended_hard() -> None:
    bench, vm = parked()
    bench.now += 9.0
    assert bench.calls() == []
    bench.now = bench.core.wake_at()
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_the_next_job_takes_it_over_without_a_call() -> None:
    bench, vm = parked()
    bench.place("2", "h0")
    assert bench.calls() == []
    assert bench.decide() == [f.VmAllocated(unit="2", attempt=1, rank=0, vm=vm, host="h0")]
    assert bench.decide() == [f.VmStarted(unit="2", attempt=1, rank=0)]
    assert bench.calls() == []
    bench.now += 100.0
    assert bench.calls() == []


def test_and_the_one_after_that() -> None:
    bench, vm = parked()
    for unit in ("2", "3", "4"):
        bench.place(unit, "h0")
        bench.settle()
        bench.report(unit)
        bench.park(unit)
        bench.settle()
        assert bench.custody.state.vms[f"{unit}/1/0"].vm == vm
    assert bench.next_vm == 1


def test_a_job_that_comes_before_the_guest_has_asked_waits_for_it() -> None:
    bench = held(warm=WARM)
    [vm] = bench.run("1", "h0")
    bench.report("1")
    bench.place("2", "h0")
    assert bench.decide() == []
    assert bench.calls() == []
    bench.park("1")
    assert bench.decide() == [f.VmAllocated(unit="2", attempt=1, rank=0, vm=vm, host="h0")]


def test_but_not_for_ever() -> None:
    bench = held(warm=WARM)
    bench.run("1", "h0")
    bench.report("1")
    bench.place("2", "h0")
    assert bench.calls() == []
    bench.now += LINGER_S
    assert bench.core.wake_at() <= bench.now
    assert Allocate in [type(call) for call in bench.calls()]


@pytest.mark.parametrize(
    ("share", "user", "cores", "host", "takes"),
    [
        ("user", "a", 1, "h0", True),
        ("user", "b", 1, "h0", False),
        ("department", "b", 1, "h0", True),
        ("department", "a", 2, "h0", False),
        ("department", "a", 1, "h1", False),
    ],
)
def test_it_is_taken_over_by_its_like_only(share: str, user: str, cores: int, host: str, takes: bool) -> None:
    bench, _ = parked(Warm(idle_s=10.0, share=share))  # type: ignore[arg-type]
    bench.place("2", host, cores=cores, user=user)
    made = [type(call) for call in bench.calls()]
    assert made == ([] if takes else [Allocate])


def test_two_jobs_do_not_take_the_same_one() -> None:
    bench, vm = parked()
    bench.place("2", "h0")
    bench.place("3", "h0")
    assert [type(call) for call in bench.calls()] == [Allocate]
    assert [fact.vm for fact in bench.decide() if isinstance(fact, f.VmAllocated)] == [vm]


def test_a_job_of_several_nodes_and_an_instance_have_fresh_ones() -> None:
    bench, _ = parked()
    bench.place("2", "h0", "h1")
    assert [type(call) for call in bench.calls()] == [Allocate, Allocate]


def test_a_parked_vm_ends_hard_when_its_host_goes_and_the_host_is_cleared() -> None:
    bench, vm = parked()
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert bench.calls() == [Terminate("1/1/0", vm, True)]
    bench.answer(Terminate("1/1/0", vm, True))
    bench.settle()
    assert bench.custody.state.hosts["h0"].state == "free"


def test_parked_vms_make_room_for_a_job_that_does_not_fit_them_and_no_more_than_needed() -> None:
    bench = held(warm=WARM)
    first, second = bench.run("1", "h0") + bench.run("2", "h0")
    for unit in ("1", "2"):
        bench.report(unit)
        bench.park(unit)
        bench.now += 0.1
    bench.place("3", "h0", cores=3)
    bench.answer(bench.calls()[0])
    bench.decide()
    bench.calls()
    assert bench.calls() == [Terminate("1/1/0", first, True)]
    bench.answer(Terminate("1/1/0", first, True))
    bench.poll()
    bench.decide()
    assert [type(call) for call in bench.calls()] == [Deploy]
    assert second in bench.vms


def full(*users: str) -> tuple[Bench, list[int]]:
    """VMs of one core each wait on h0, which has four, for another job of these users; longest waiting first."""
    bench, units = held(warm=WARM), [str(n) for n in range(1, len(users) + 1)]
    for unit, user in zip(units, users, strict=True):
        bench.place(unit, "h0", user=user)
    bench.settle()
    vms = [bench.custody.state.vms[f"{unit}/1/0"].vm for unit in units]
    for unit in units:
        bench.now += 0.1
        bench.report(unit)
        bench.park(unit)
    bench.settle()
    return bench, vms


def place_together(bench: Bench, **users: str) -> None:
    for unit, user in users.items():
        unit = unit.removeprefix("j")
        job = f.JobSubmitted(job=unit, dept="hpc", user=user, name="j", payload="p", walltime_s=9.0)
        bench.write("admission", job)
    units = [unit.removeprefix("j") for unit in users]
    placed = [f.UnitPlaced(unit=unit, attempt=1, hosts=("h0",), cores=1, memory_mb=64) for unit in units]
    bench.write("scheduler.hpc", *placed)


def test_jobs_that_are_placed_together_on_a_full_host_take_over_all_the_vms_that_wait_there() -> None:
    bench, vms = full("a", "a", "a", "a")
    place_together(bench, j5="a", j6="a", j7="a", j8="a")
    assert bench.calls() == []
    bench.settle()
    assert [bench.custody.state.vms[f"{unit}/1/0"].vm for unit in "5678"] == vms
    assert bench.next_vm == 4


def test_only_those_that_are_left_over_make_room_and_who_waited_longest_goes_first() -> None:
    bench, vms = full("a", "b", "b", "a")
    place_together(bench, j5="c", j6="a", j7="b", j8="a")
    [allocate] = bench.calls()
    assert isinstance(allocate, Allocate)
    assert allocate.unit == "5"
    bench.answer(allocate)
    bench.decide()
    ends = bench.calls()
    if not ends:
        ends = bench.calls()
    assert ends == [Terminate("3/1/0", vms[2], True)]
    assert [bench.custody.state.vms[f"{unit}/1/0"].vm for unit in "678"] == [vms[0], vms[1], vms[3]]
    assert [type(call) for call in bench.calls()] == []
    bench.answer(ends[0])
    bench.settle()
    assert sorted(bench.vms) == [vms[0], vms[1], vms[3], bench.next_vm - 1]


def test_what_is_to_be_taken_over_as_soon_as_it_is_parked_does_not_make_room_either() -> None:
    bench = held(warm=WARM)
    vms = bench.run("1", "h0") + bench.run("2", "h0", cores=3)
    bench.report("2")
    bench.park("2")
    bench.report("1")
    place_together(bench, j3="a", j4="b", j5="b", j6="b")
    for allocate in bench.calls():
        assert isinstance(allocate, Allocate)
        bench.answer(allocate)
    bench.decide()
    assert [*bench.calls(), *bench.calls()] == [Terminate("2/1/0", vms[1], True)]
    bench.park("1")
    bench.answer(Terminate("2/1/0", vms[1], True))
    bench.settle()
    assert bench.custody.state.vms["3/1/0"].vm == vms[0]
    assert bench.next_vm == 5


def test_a_host_that_has_become_smaller_is_not_filled_with_what_waits_there() -> None:
    bench, vms = full("a", "a", "a", "a")
    bench.hosts["h0"] = host_sight("h0", 0, cores=2)
    bench.see_hosts()
    bench.decide()
    place_together(bench, j5="a")
    assert bench.decide() == []
    ends = bench.calls()
    assert ends == [Terminate(f"{n + 1}/1/0", vms[n], True) for n in (1, 2)]
    for end in ends:
        bench.answer(end)
    bench.settle()
    assert bench.custody.state.vms["5/1/0"].vm == vms[0]
    assert sorted(bench.vms) == [vms[0], vms[3]]


@pytest.mark.parametrize("why", ["idle", "its room was needed", "its host was given back", "terminated"])
def test_the_journal_says_why_one_does_not_go_on_waiting(why: str) -> None:
    bench, _ = full("a", "b", "b", "b")
    if why == "idle":
        bench.now += WARM.idle_s
    elif why == "its room was needed":
        place_together(bench, j5="c", j6="b", j7="b", j8="b")
    elif why == "its host was given back":
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    else:
        close(bench, "hpc")
    bench.settle()
    ends = {fact.unit: fact.why for fact in bench.written if isinstance(fact, f.VmEnded)}
    assert ends == dict.fromkeys(["1"] if why == "its room was needed" else ["1", "2", "3", "4"], why)


def test_no_more_than_vms_max_wait_and_who_waited_longest_ends() -> None:
    bench = held(warm=Warm(idle_s=10.0, vms_max=2))
    vms = [bench.run(unit, "h0")[0] for unit in ("1", "2", "3")]
    for unit in ("2", "1", "3"):
        bench.report(unit)
        bench.now += 0.1
        bench.park(unit)
    assert bench.calls() == [Terminate("2/1/0", vms[1], True)]


@pytest.mark.parametrize("shorter", [False, True])
def test_a_snapshot_keeps_the_order_in_which_they_wait(shorter: bool) -> None:
    """By when each is to end it may be another: at one instant, or when less has been configured meanwhile."""
    bench = held(warm=WARM)
    for unit in ("1", "2"):
        bench.run(unit, "h0")
    for unit in ("1", "2"):
        bench.report(unit)
    bench.park("2")
    if shorter:
        bench.now += 1.0
        bench.write("provisioner", config_adopted(FAST, Warm(idle_s=1.0)))
    bench.park("1")
    core = ExecutorCore(bench.custody)
    core.load(bench.core.dump())
    waiting = [list(ledger.parked["hpc"]) for ledger in (bench.core.ledger, core.ledger)]
    assert waiting == [["2/1/0", "1/1/0"]] * 2


def test_one_whose_end_was_asked_is_not_taken_over() -> None:
    bench, vm = parked()
    bench.now += 10.0
    [terminate] = bench.calls()
    bench.place("2", "h0")
    assert bench.decide() == []
    assert [type(call) for call in bench.calls()] == [Allocate]
    assert terminate == Terminate("1/1/0", vm, True)


@pytest.mark.parametrize("phase", [Phase.UNKNOWN, Phase.OFF, Phase.FAILED])
def test_one_that_does_not_run_is_ended(phase: Phase) -> None:
    bench, vm = parked()
    bench.vms[vm] = phase
    bench.audit()
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_a_new_leader_looks_before_it_gives_a_waiting_vm_away() -> None:
    bench, vm = parked()
    other = Custody()
    other.load(bench.custody.dump())
    core = ExecutorCore(other)
    core.load(bench.core.dump())
    assert core.dump() == bench.core.dump()
    assert core.ledger.parked == bench.core.ledger.parked
    bench.custody, bench.core = other, core
    core.take_over(bench.now)
    bench.see_hosts()
    bench.place("2", "h0")
    assert bench.decide() == []
    bench.audit()
    assert bench.decide() == [f.VmAllocated(unit="2", attempt=1, rank=0, vm=vm, host="h0")]


def test_a_parked_vm_that_is_gone_ends_and_nobody_is_harmed() -> None:
    bench, vm = parked()
    bench.gone(vm)
    bench.audit()
    assert kinds(bench.decide()) == ["vm.ended"]
    assert bench.core.check() == []


@pytest.mark.parametrize("why", ["its room is wanted", "its time is up"])
def test_what_a_job_is_to_take_over_is_not_ended_before_the_journal_has_that(why: str) -> None:
    bench, vm = parked()
    if why == "its room is wanted":
        bench.place("2", "h0", cores=3)
        [allocate] = bench.calls()
        bench.answer(allocate)
        bench.decide()
    bench.place("3", "h0")
    facts = bench.core.decide(bench.now)
    assert facts == [f.VmAllocated(unit="3", attempt=1, rank=0, vm=vm, host="h0")]
    if why == "its time is up":
        bench.now += WARM.idle_s
    for call in bench.calls():  # the other job starts beside it: the room of the two is one job's
        assert isinstance(call, Deploy)
        bench.answer(call)
    bench.write("executor", *facts)
    bench.settle()
    assert bench.vms[vm] is Phase.RUNNING
    assert len(bench.vms) == (2 if why == "its room is wanted" else 1)


def test_what_a_job_was_to_take_over_that_is_cancelled_meanwhile_ends_in_its_time() -> None:
    bench, vm = parked()
    bench.place("2", "h0")
    facts = bench.core.decide(bench.now)
    bench.close("2")
    bench.now += WARM.idle_s
    bench.write("executor", *facts)  # void
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_who_is_to_make_room_is_taken_over_by_nobody_any_more() -> None:
    bench, vm = parked()
    bench.place("2", "h0", cores=4)
    bench.answer(bench.calls()[0])
    bench.decide()
    assert bench.calls() == []
    [end] = bench.calls()
    assert end == Terminate("1/1/0", vm, True)
    bench.answer(end, Outcome.UNSURE)
    bench.close("2")
    [other] = bench.calls()
    assert isinstance(other, Terminate)
    assert other.key == "2/1/0"
    bench.answer(other)
    bench.poll()
    assert kinds(bench.decide()) == ["vm.ended"]
    bench.place("3", "h0")
    assert [fact for fact in bench.decide() if isinstance(fact, f.VmAllocated)] == []
    assert "1/1/0" in bench.core.vm_reconciler.evicted
    bench.now += 0.1
    bench.settle()
    assert bench.core.vm_reconciler.evicted == {}
    assert bench.custody.state.vms["3/1/0"].vm != vm


@pytest.mark.parametrize("hindrance", ["its host is set apart", "an older attempt is open", "nothing"])
def test_a_warm_vm_is_given_to_a_rank_as_x3_allows(hindrance: str) -> None:
    bench, vm = parked()
    if hindrance == "an older attempt is open":
        bench.run("2", "h1", cores=1)
        bench.close("2")
        bench.place("2", "h0", attempt=2)
    else:
        bench.place("2", "h0")
    if hindrance == "its host is set apart":
        bench.hosts["h0"] = msgspec.structs.replace(bench.hosts["h0"], usable=False, apart="disabled")
        bench.see_hosts()
    bound = [fact.vm for fact in bench.core.decide(bench.now) if isinstance(fact, f.VmAllocated)]
    assert bound == ([vm] if hindrance == "nothing" else [])


def test_what_was_promised_to_a_job_is_forgotten_with_the_binding_and_ends_if_that_was_void() -> None:
    bench, vm = parked()
    bench.place("2", "h0")
    facts = bench.core.decide(bench.now)
    bench.close("2")
    bench.now += WARM.idle_s
    assert bench.calls() == []
    bench.write("executor", *facts)  # void
    assert bench.calls() == [Terminate("1/1/0", vm, True)]
    bench, vm = parked()
    bench.place("2", "h0")
    bench.settle()
    assert not bench.core.vm_reconciler.allocations.is_promised(vm)
    assert bench.core.vm_reconciler.allocations.promised == {}


def test_several_that_wait_for_one_that_lingers_are_each_woken_when_that_is_over() -> None:
    bench = held(warm=WARM)
    bench.run("1", "h0")
    bench.report("1")
    for unit in ("2", "3"):
        bench.place(unit, "h0")
        assert bench.calls() == []
    waking = bench.core.vm_reconciler.allocations.waking
    assert sorted(waking) == ["2/1/0", "3/1/0"]
    bench.now = bench.core.wake_at()
    assert [type(call) for call in bench.calls()] == [Terminate, Allocate, Allocate]
    assert waking == {}


def test_only_what_belongs_to_the_present_life_goes_on() -> None:
    bench = held("h0", "h1", "h2")
    [first] = bench.run("1", "h0")
    bench.close("1")  # its VM takes long to end
    bench.vms[first] = Phase.MOVING
    bench.poll()
    bench.write("executor", f.HostLost(host="h0", reason="x"))
    [second] = bench.run("1", "h1", attempt=2)
    assert first != second
    bench.close("1", attempt=2, disposal=f.Disposal.MIGRATE)
    bench.place("1", "h2", attempt=3)
    assert [fact.vm for fact in bench.decide() if isinstance(fact, f.VmAllocated)] == [second]
