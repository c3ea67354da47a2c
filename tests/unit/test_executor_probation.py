"""Hosts on which starts fail: quarantine, probation, and the way out (`executor.core.probation`)."""

from __future__ import annotations

from schemas import facts as f
from services.executor.core.calls import Allocate, Deploy, Outcome, Phase
from services.executor.core.host_reconciler import HostReconciler
from tests.support.executor_bench import Bench, held


def fail_start(bench: Bench, attempt: int, unit: str = "1", host: str = "h0") -> None:
    """One attempt whose VM fails to boot."""
    bench.place(unit, host, attempt=attempt)
    bench.answer(bench.calls()[0])
    bench.decide()
    bench.now += 20.0
    [deploy] = bench.calls()
    bench.answer(deploy)
    assert isinstance(deploy, Deploy)
    bench.vms[deploy.vm] = Phase.FAILED
    bench.settle()
    bench.close(unit, attempt)


def quarantined(bench: Bench) -> list[tuple[str, float]]:
    """Reason and length of each quarantine so far."""
    found = [x for x in bench.written if isinstance(x, f.HostQuarantined)]
    bench.written.clear()
    return [(x.reason, round(x.until - bench.now) if x.until else 0.0) for x in found]


def broken(**rules: float) -> Bench:
    bench = held()
    bench.configure(**{"quarantine_after": 2, "quarantine_s": 100.0, "quarantine_max_s": 300.0, **rules})
    for attempt in (1, 2):
        fail_start(bench, attempt)
    assert quarantined(bench) == [("starts failed", 100)]
    return bench


def desk(bench: Bench) -> HostReconciler:
    return bench.core.host_reconciler


def test_the_number_of_failures_is_the_configurations() -> None:
    bench = held()
    bench.configure(quarantine_after=3)
    for attempt in (1, 2):
        fail_start(bench, attempt)
    assert quarantined(bench) == []


def test_a_success_in_between_begins_the_count_anew() -> None:
    bench = held()
    bench.configure(quarantine_after=2)
    fail_start(bench, 1)
    bench.now += 20.0
    bench.run("2", "h0")
    fail_start(bench, 2)
    assert quarantined(bench) == []


def test_a_start_that_fails_on_probation_is_a_quarantine_twice_as_long_up_to_a_bound() -> None:
    bench = broken()
    lengths = []
    for attempt in (3, 4, 5):
        bench.now = bench.custody.state.hosts["h0"].quarantine_until + 1.0
        fail_start(bench, attempt)
        lengths += quarantined(bench)
    assert lengths == [("starts failed", 200), ("starts failed", 300), ("starts failed", 300)]


def test_a_start_that_succeeds_on_probation_frees_the_host() -> None:
    bench = broken()
    bench.now += 200.0
    bench.run("1", "h0", attempt=3)
    assert quarantined(bench) == [("a start succeeded", 0.0)]
    assert bench.custody.state.hosts["h0"].quarantine_until == 0.0
    for attempt in (1, 2):
        fail_start(bench, attempt, "2")
    assert quarantined(bench) == [("starts failed", 100)]  # and all is forgotten


def on_probation_with_two() -> tuple[Bench, Deploy]:
    """Two jobs are placed on a host on probation; one is tried."""
    bench = broken()
    bench.now += 200.0
    bench.place("2", "h0")
    bench.place("3", "h0")
    for call in bench.calls():
        assert isinstance(call, Allocate)
        bench.answer(call)
    bench.decide()
    [tried] = bench.calls()
    assert isinstance(tried, Deploy)
    return bench, tried


def test_on_probation_one_start_is_tried_and_the_others_wait_for_it() -> None:
    bench, tried = on_probation_with_two()
    bench.decide()
    assert bench.calls() == []
    bench.answer(tried)
    bench.settle()
    assert [bench.custody.live(unit, 1) for unit in ("2", "3")] == [True, True]
    assert sum(1 for vm in bench.custody.state.vms.values() if vm.started_at is not None) == 2


def test_if_the_one_start_fails_those_that_waited_are_ended_for_another_host() -> None:
    bench, tried = on_probation_with_two()
    bench.answer(tried)
    bench.vms[tried.vm] = Phase.FAILED
    bench.settle()
    assert [x.why for x in bench.written if isinstance(x, f.VmEnded)] == [
        "failed",
        "its host is set apart: starts failed",
    ]
    assert len(quarantined(bench)) == 1


def test_if_the_one_that_was_tried_is_taken_back_the_next_one_is_tried() -> None:
    bench, tried = on_probation_with_two()
    bench.answer(tried)
    bench.vms[tried.vm] = Phase.MOVING
    unit = bench.custody.state.vms[tried.key].unit
    bench.close(unit)
    bench.now += 10.0  # later than its kill_by
    bench.settle()
    assert bench.custody.live("3" if unit == "2" else "2", 1)
    assert quarantined(bench) == [("a start succeeded", 0.0)]


def test_a_new_leader_knows_from_the_journal_who_is_on_probation() -> None:
    bench = broken()
    bench.now += 200.0
    bench.core.take_over(bench.now)
    bench.see_hosts()
    bench.audit()
    bench.settle()
    fail_start(bench, 3)
    assert quarantined(bench) == [("starts failed", 200)]


def test_a_host_is_not_to_blame_for_a_vm_that_does_not_fit() -> None:
    bench = held()
    bench.configure(quarantine_after=1)
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    bench.decide()
    [deploy] = bench.calls()
    bench.answer(
        deploy, Outcome.REFUSED, "[one.vm.deploy] virtual machine [0] does not fit in host [0]. Not enough CPU: 100/50"
    )
    bench.settle()
    assert quarantined(bench) == []
    assert desk(bench).probation.resting_until("h0") > bench.now
