"""What is asked next for each VM, where answers are late, lost, or about another attempt (`executor.core.vm_reconciler`)."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import Warm
from services.executor.core.call_errors import Failure
from services.executor.core.calls import (
    Allocate,
    Call,
    Deploy,
    Look,
    Migrate,
    Outcome,
    Phase,
    Result,
    Save,
    Sight,
    Terminate,
    VmsSeen,
)
from services.executor.core.ledger_state import LINGER_S
from services.executor.core.observed_vm import RETRY_S, ObservedVm
from services.executor.core.vm_reconciler import AGAIN_MAX_S, AGAIN_S, RESUMES_MAX, WATCHED_MAX
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import CLOUD, FAST

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE


def observed_vm(bench: Bench, key: str = "1/1/0") -> ObservedVm:
    return bench.core.vm_reconciler.observed_vms[key]


def tell(bench: Bench, call: Call, outcome: Outcome, why: str = "") -> None:
    """What is told of a call; OpenNebula's VMs are as the test has them."""
    bench.core.observe(Result(call, outcome, why=why), bench.now)


def see(bench: Bench, vm: int, phase: Phase, one_host: int = -1, why: str = "") -> None:
    bench.core.observe(VmsSeen(bench.core.ticket(), [vm], [Sight(vm, phase, one_host=one_host, why=why)]), bench.now)


def journaled(unit: str = "1", host: str = "h0") -> tuple[Bench, Deploy]:
    """A VM that is journaled; its deploy is asked for, and not answered."""
    bench = held("h0", "h1", "h2")
    bench.place(unit, host)
    [allocate] = bench.calls()
    bench.answer(allocate)
    bench.decide()
    [deploy] = bench.calls()
    assert isinstance(deploy, Deploy)
    return bench, deploy


def moving() -> tuple[Bench, Migrate]:
    bench = held()
    bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    [migrate] = bench.calls()
    assert isinstance(migrate, Migrate)
    return bench, migrate


# ------------------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 7])
def test_no_more_calls_than_allowed_are_begun_looks_and_ends_first(limit: int) -> None:
    bench = Bench(12)
    bench.grant(*bench.hosts)
    for n in range(6):
        bench.run(str(n + 1), f"h{n}")
    for n in (6, 7):
        bench.place(str(n + 1), f"h{n}")
    for call in bench.calls():
        bench.answer(call)
    bench.decide()  # two are to be deployed
    for n in (1, 2):
        bench.close(str(n))
    for n in (3, 4):
        bench.close(str(n), disposal=SUSPEND)
    bench.place("9", "h8")
    bench.place("10", "h9")
    bench.write("scheduler.hpc", f.HostReleased(host="h10"), f.HostReleased(host="h11"))
    order = [Look, Look, Terminate, Terminate, Save, Save, Deploy, Deploy, Allocate, Allocate]
    made: list[Call] = []
    while len(made) < len(order):
        now = bench.calls(limit)
        assert len(now) == min(limit, len(order) - len(made))
        made += now
        if not limit:
            return
    assert [type(call) for call in made] == order
    assert bench.calls() == []


def test_what_is_watched_comes_by_turns_and_no_more_than_one_poll_can_show() -> None:
    fleet = Bench(1).core.vm_reconciler
    fleet.watched = {vm: f"{vm}/1/0" for vm in range(WATCHED_MAX)}
    assert fleet.watch_list() == fleet.watch_list() == list(range(WATCHED_MAX))
    fleet.watched[WATCHED_MAX] = "x"
    assert fleet.watch_list() == list(range(WATCHED_MAX))
    assert fleet.watch_list() == [WATCHED_MAX, *range(WATCHED_MAX - 1)]
    assert fleet.watched[5] == "5/1/0"


# ----------------------------------------------------------------------------------------------------------- starts (X1 to X3)


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.LATER])
def test_a_deploy_that_is_refused_of_everybody_is_tried_again_a_little_later(outcome: Outcome) -> None:
    bench, deploy = journaled()
    for n in range(3):
        tell(bench, deploy, outcome)
        assert bench.calls() == []
        assert bench.core.wake_at() == pytest.approx(bench.now + RETRY_S * 2**n)
        bench.now = bench.core.wake_at()
        assert bench.calls() == [deploy]
    tell(bench, deploy, Outcome.OK)
    assert observed_vm(bench).phase is Phase.MOVING
    assert bench.core.watch_list() == []
    assert bench.calls() == []
    assert bench.core.watch_list() == [deploy.vm]


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.LATER, Outcome.UNSURE])
def test_a_deploy_of_which_nothing_came_is_no_start_that_is_under_way(outcome: Outcome) -> None:
    bench, deploy = journaled()
    assert list(bench.core.host_reconciler.site.begun) == ["1/1/0"]
    tell(bench, deploy, outcome)
    assert bench.core.host_reconciler.site.begun == {}


def test_a_migration_that_is_refused_says_nothing_of_starts() -> None:
    bench, migrate = moving()
    assert bench.core.host_reconciler.site.begun == {}
    tell(bench, migrate, Outcome.UNSURE)
    assert not observed_vm(bench, "1/2/0").deployed
    assert not observed_vm(bench, "1/2/0").cold
    bench.poll()
    bench.now += 0.1
    assert bench.calls() == [migrate], "of unknown outcome: tried again, while it runs where it was"


def test_a_vm_on_hold_that_was_refused_ends_and_its_host_rests_in_opennebulas_words() -> None:
    bench, deploy = journaled()
    tell(bench, deploy, Outcome.REFUSED, "no such datastore")
    assert observed_vm(bench).phase is Phase.HELD
    see(bench, deploy.vm, Phase.HELD)
    assert observed_vm(bench).condemned == "deploy refused: no such datastore"
    assert bench.core.host_reconciler.probation.resting_until("h0") > bench.now


def test_what_is_saved_and_refused_is_given_up_after_so_many_in_a_row() -> None:
    bench = held("h0", "h1", "h2")
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    bench.settle()
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.poll()
    tries = 0
    while not observed_vm(bench, "1/2/0").condemned:
        bench.now += 10.0
        [resume] = bench.calls()
        assert resume == Deploy("1/2/0", vm, "h1", 1, resumes=True)
        tries += 1
        tell(bench, resume, Outcome.REFUSED, "no")
        see(bench, vm, Phase.SAVED)
    assert tries == RESUMES_MAX + 1


@pytest.mark.parametrize(("phase", "blamed"), [(Phase.FAILED, True), (Phase.OFF, False)])
def test_a_host_is_blamed_for_a_vm_that_failed_before_it_ran_and_not_for_one_that_is_off(
    phase: Phase, blamed: bool
) -> None:
    bench, deploy = journaled()
    tell(bench, deploy, Outcome.OK)
    see(bench, deploy.vm, phase, why="no space")
    bench.calls()
    assert (bench.core.host_reconciler.probation.resting_until("h0") > 0.0) is blamed
    assert observed_vm(bench).condemned == ("failed: no space" if blamed else "powered off")


def test_nor_for_one_that_failed_after_it_ran() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    see(bench, vm, Phase.FAILED)
    bench.calls()
    assert bench.core.host_reconciler.probation.resting_until("h0") == 0.0
    assert observed_vm(bench).condemned == "failed"


def test_how_long_nobody_can_tell_of_a_vm_is_counted_anew_each_time() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    for seconds in (FAST.stuck_s - 0.1, FAST.stuck_s - 0.1):
        see(bench, vm, Phase.UNKNOWN)
        bench.calls()
        bench.now += seconds
        assert bench.calls() == []
        see(bench, vm, Phase.RUNNING)
        assert bench.calls() == []
    see(bench, vm, Phase.UNKNOWN)
    bench.calls()
    assert bench.core.wake_at() <= bench.now + FAST.stuck_s
    bench.now += FAST.stuck_s
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


@pytest.mark.parametrize("at", ["its own host", "another host"])
def test_a_vm_that_runs_already_moves_to_a_host_that_was_set_apart_meanwhile_but_none_starts_there(at: str) -> None:
    bench, deploy = journaled(host="h1") if at == "its own host" else (held(), None)
    if deploy is None:
        [vm] = bench.run("1", "h0")
        bench.close("1", disposal=MIGRATE)
        bench.place("1", "h1", attempt=2)
        bench.decide()
    else:
        tell(bench, deploy, Outcome.LATER)
        bench.now += 1.0
    bench.write("executor", f.HostQuarantined(host="h1", reason="starts failed", until=bench.now + 100.0))
    made = [*bench.calls(), *bench.calls()]
    assert made == ([Migrate("1/2/0", vm, "h1", 1)] if deploy is None else [Terminate("1/1/0", deploy.vm, True)])


# ---------------------------------------------------------------------------------------------------------------- ends (X4, X7)


def test_a_graceful_end_is_asked_for_once() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    [soft] = bench.calls()
    tell(bench, soft, Outcome.OK)
    see(bench, vm, Phase.RUNNING)
    bench.core.ledger.dirty["1/1/0"] = None
    assert bench.calls() == []
    assert bench.core.wake_at() == bench.now + FAST.kill_s


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNSURE, Outcome.DENIED, Outcome.LATER])
def test_one_that_was_not_taken_is_asked_for_again_later_each_time(outcome: Outcome) -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1")
    for n in range(3):
        [soft] = bench.calls()
        tell(bench, soft, outcome)
        assert bench.calls() == []
        assert bench.core.wake_at() == pytest.approx(bench.now + RETRY_S * 2**n)
        bench.now = bench.core.wake_at()
    [soft] = bench.calls()
    tell(bench, soft, Outcome.OK)
    assert observed_vm(bench).failures == 0
    assert observed_vm(bench).soft_at == bench.now


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.REFUSED])
def test_a_hard_one_is_asked_for_again_and_again_and_then_its_host_is_lost(outcome: Outcome) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    bench.now += FAST.kill_s
    began = bench.now
    while bench.now < began + FAST.stuck_s:
        for call in bench.calls():
            assert call == Terminate("1/1/0", vm, True)
            tell(bench, call, outcome)
        assert bench.decide() == []
        bench.now = min(bench.core.wake_at(), began + FAST.stuck_s)
    assert [fact for fact in bench.decide() if isinstance(fact, f.HostLost)] == [f.HostLost(host="h0", reason="stuck")]
    assert observed_vm(bench).hard_first == began


def test_a_hard_one_of_which_nothing_was_heard_does_not_begin_that_time() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1")
    bench.now += FAST.kill_s
    [hard] = bench.calls()
    tell(bench, hard, Outcome.UNSURE)
    assert (observed_vm(bench).hard_first, observed_vm(bench).hard_at) == (None, None)
    bench.now += RETRY_S
    assert bench.calls() == [hard]


def test_one_that_opennebula_does_not_know_is_over() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    [soft] = bench.calls()
    bench.gone(vm)
    tell(bench, soft, Outcome.GONE)
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why="terminated")]


def test_an_order_to_save_is_given_again_after_a_while() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.write("provisioner", *[f.QuotaChanged(dept="hpc", hosts=9, by=bench.now)])
    bench.close("1", disposal=SUSPEND)
    bench.core.ledger.state.doomed["1/1/0"] = 1e9
    [save] = bench.calls()
    assert save == Save("1/1/0", vm)
    tell(bench, save, Outcome.REFUSED)
    bench.now += RETRY_S
    assert bench.calls() == [save]
    tell(bench, save, Outcome.OK)
    assert observed_vm(bench).failures == 0
    see(bench, vm, Phase.RUNNING)
    bench.now += AGAIN_S - 0.01
    assert bench.calls() == []
    bench.now += 0.01
    assert bench.calls() == [save]


def ordered() -> tuple[Bench, int, Terminate]:
    """A VM whose hard end was ordered, and not answered yet."""
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    [soft] = bench.calls()
    tell(bench, soft, Outcome.OK)
    bench.now = bench.core.ledger.kill_by("1/1/0", bench.now)
    [hard] = bench.calls()
    assert hard == Terminate("1/1/0", vm, True)
    return bench, vm, hard


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.REFUSED])
def test_a_hard_end_that_is_under_way_is_ordered_again_when_its_driver_has_given_up_and_no_sooner(
    outcome: Outcome,
) -> None:
    bench, vm, hard = ordered()
    see(bench, vm, Phase.MOVING)
    tell(bench, hard, outcome)
    until = bench.now + bench.core.ledger.end_again_s
    for _ in range(100):
        see(bench, vm, Phase.MOVING)
        assert bench.calls() == []
        bench.now = min(bench.now + 7.0, until - 0.01)
    bench.now = until
    assert bench.calls() == [hard]


def test_a_hard_end_that_came_to_nothing_is_ordered_again_once_a_look_has_shown_that() -> None:
    bench, vm, hard = ordered()
    tell(bench, hard, Outcome.OK)
    see(bench, vm, Phase.RUNNING)  # OpenNebula answers before it changes the state
    bench.now += AGAIN_S - 0.01
    early = bench.core.ticket()
    assert bench.calls() == []
    bench.now += 0.01
    assert bench.calls() == []
    bench.core.observe(VmsSeen(early, [vm], [Sight(vm, Phase.RUNNING)]), bench.now)
    assert bench.calls() == []
    see(bench, vm, Phase.RUNNING)
    assert bench.calls() == [hard]


def test_a_hard_end_that_waits_in_opennebulas_queue_is_not_ordered_again_before_a_look() -> None:
    bench, vm, hard = ordered()
    bench.core.observe(Result(hard, Outcome.UNSURE, failure=Failure.TIMEOUT), bench.now)
    bench.now += AGAIN_S
    assert bench.calls() == []
    see(bench, vm, Phase.MOVING)
    bench.now += AGAIN_S
    assert bench.calls() == []
    see(bench, vm, Phase.RUNNING)
    assert bench.calls() == [hard]


def test_a_hard_end_that_is_refused_of_a_vm_that_rests_is_ordered_more_and_more_rarely() -> None:
    bench, vm, hard = ordered()
    times = []
    for _ in range(8):
        tell(bench, hard, Outcome.REFUSED, "VM is locked")
        see(bench, vm, Phase.RUNNING)
        assert bench.calls() == []
        before, bench.now = bench.now, bench.now + AGAIN_MAX_S
        while bench.now - before > AGAIN_S and bench.core.wake_at() < bench.now:
            bench.now = max(before + AGAIN_S, bench.core.wake_at())
            if bench.calls():
                break
        times.append(bench.now - before)
    assert times[0] == pytest.approx(AGAIN_S)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(AGAIN_MAX_S)


def test_what_is_saved_on_its_way_has_left_its_host_unless_a_late_call_may_take_it_back() -> None:
    for doubted in (False, True):
        bench, migrate = moving()
        tell(bench, migrate, Outcome.UNSURE if doubted else Outcome.REFUSED)
        see(bench, migrate.vm, Phase.SAVED)
        bench.calls()
        assert list(bench.core.ledger.away) == ([] if doubted else ["1/2/0"])
        assert bench.core.ledger.is_left("h0") is not doubted


def test_a_new_leader_looks_for_itself_whether_it_has_left() -> None:
    bench, migrate = moving()
    tell(bench, migrate, Outcome.REFUSED)
    see(bench, migrate.vm, Phase.SAVED)
    bench.calls()
    assert bench.core.ledger.is_left("h0")
    bench.core.take_over(bench.now)
    assert not bench.core.ledger.is_left("h0")
    assert bench.core.ledger.away == {}
    assert bench.core.watch_list() == [migrate.vm], "at once"


def test_what_it_has_left_is_not_where_it_is_stuck() -> None:
    bench, migrate = moving()
    tell(bench, migrate, Outcome.REFUSED)
    see(bench, migrate.vm, Phase.SAVED)
    bench.calls()
    assert bench.core.vm_reconciler._not_left(observed_vm(bench, "1/2/0")) == []
    bench.core.ledger.away.clear()
    assert bench.core.vm_reconciler._not_left(observed_vm(bench, "1/2/0")) == ["h0"]


def test_the_end_of_a_stray_makes_no_host_lost() -> None:
    bench = Bench(1)
    bench.vms[9], bench.tags[9] = Phase.RUNNING, f"{CLOUD}/5/1/0"
    bench.audit()
    until = bench.now + 3 * FAST.stuck_s
    while bench.now < until:
        for call in bench.calls():
            tell(bench, call, Outcome.OK)
        assert bench.decide() == []
        bench.now += 0.5


def test_only_what_is_told_to_be_saved_is_left_alone_from_then_on() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.gone(vm)
    bench.audit()
    [ended] = bench.core.decide(bench.now)
    assert ended == f.VmEnded(unit="1", attempt=1, rank=0, why="vanished")
    assert not observed_vm(bench).said_saved


def test_what_moves_is_left_alone_while_its_binding_is_on_its_way_to_the_journal() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    [bound] = bench.core.decide(bench.now)
    assert isinstance(bound, f.VmAllocated)
    see(bench, vm, Phase.UNKNOWN)
    assert bench.calls() == []


def test_what_has_arrived_has_moved_however_late() -> None:
    bench, migrate = moving()
    tell(bench, migrate, Outcome.OK)
    see(bench, migrate.vm, Phase.RUNNING, one_host=1)
    bench.now += FAST.save_s
    assert bench.decide() == [f.VmStarted(unit="1", attempt=2, rank=0)]


def test_a_vm_of_which_its_host_does_not_say_is_watched() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    see(bench, vm, Phase.UNKNOWN)
    bench.calls()
    assert bench.core.watch_list() == [vm]


def test_a_new_leader_finds_that_a_host_does_not_let_go_of_a_vm() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1")
    bench.now += FAST.kill_s
    bench.core.take_over(bench.now)
    bench.see_hosts()
    bench.audit()
    began = bench.now
    while bench.now < began + FAST.stuck_s:
        for call in bench.calls():
            tell(bench, call, Outcome.OK)
        see(bench, vm, Phase.RUNNING)
        assert bench.decide() == []
        bench.now += 0.1
    bench.now += 0.1
    assert f.HostLost(host="h0", reason="stuck") in bench.decide()


def test_a_host_that_is_gone_is_not_lost_for_what_was_stuck_there() -> None:
    bench = Bench(1)
    bench.core.vm_reconciler.stuck = {"h9": None, "h0": None}
    assert bench.decide() == [f.HostLost(host="h0", reason="stuck")]
    assert bench.core.vm_reconciler.stuck == {"h0": None}
    bench.decide()
    assert bench.core.vm_reconciler.stuck == {}


def test_what_lingers_and_shuts_down_is_ended_hard_when_its_time_is_over() -> None:
    bench = held(warm=Warm(idle_s=10.0))
    [vm] = bench.run("1", "h0")
    bench.report("1")
    see(bench, vm, Phase.MOVING)
    bench.now += LINGER_S
    assert bench.calls() == []
    assert bench.core.wake_at() == bench.now + FAST.kill_s
    bench.now = bench.core.wake_at()
    assert bench.calls() == [Terminate("1/1/0", vm, True)]


def test_while_starts_are_paused_what_runs_moves_all_the_same() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.write("executor", f.StartsPaused(since=bench.now, failed=3, tried=3, why="x"))
    assert [type(call) for call in bench.calls()] == [Migrate]


def test_a_vm_that_an_earlier_leader_gave_the_rank_is_not_taken_for_the_one_that_was_made_now() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate)
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=9, host="h0"))
    assert bench.calls() == []
    assert observed_vm(bench).phase is None


def test_a_vm_is_looked_at_again_only_when_something_concerns_it() -> None:
    bench = held()
    bench.run("1", "h0")
    assert bench.calls() == []
    assert (bench.core.ledger.dirty, bench.core.ledger.freed, bench.core.ledger.rebound) == ({}, {}, {})
