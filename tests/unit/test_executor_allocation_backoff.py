"""A used-up quota: allocations are tried one at a time and rarely, end with their attempt, and go on with the first success."""

from __future__ import annotations

import pytest

from schemas import facts as f
from services.executor.core.allocation_backoff import AllocationBackoff
from services.executor.core.call_errors import RULES, Failure
from services.executor.core.calls import Allocate, Outcome, Result
from tests.support.executor_bench import Bench, held

QUOTA = RULES[Failure.QUOTA]
WORDS = "[one.vm.allocate] User [3] : user [3] limit of 2 reached for VMS quota in VM."
UNITS = 4  # a host has four cores


def refuse(bench: Bench, call: Allocate, failure: Failure = Failure.QUOTA) -> None:
    bench.core.observe(Result(call, RULES[failure].outcome, why=WORDS, failure=failure), bench.now)


def asked(bench: Bench) -> list[Allocate]:
    return [call for call in bench.calls() if isinstance(call, Allocate)]


@pytest.fixture
def bench() -> Bench:
    made = held()
    for number in range(UNITS):
        made.place(str(number + 1), "h0")
    return made


def test_the_first_refusal_stops_all_and_one_is_tried_after_the_pause(bench: Bench) -> None:
    first = asked(bench)
    assert len(first) == UNITS
    for call in first:
        refuse(bench, call)
    assert asked(bench) == []
    bench.now = bench.core.wake_at()
    bench.now += QUOTA.most_s
    assert len(asked(bench)) == 1
    assert asked(bench) == [], "one is in flight"


def test_an_hour_of_refusals_is_two_calls_a_minute_and_everyone_has_a_turn(bench: Bench) -> None:
    tried: list[str] = []
    end = bench.now + 3600.0
    while bench.now < end:
        for call in asked(bench):
            tried.append(call.unit)
            refuse(bench, call)
        bench.now = max(bench.now + 0.001, bench.core.wake_at())
    assert len(tried) <= 3600 / QUOTA.most_s + 20
    assert {tried.count(str(n + 1)) for n in range(UNITS)} <= set(
        range(len(tried) // UNITS - 1, len(tried) // UNITS + 3)
    )


def test_a_vm_that_is_gone_ends_a_pause_and_the_first_success_lets_all_go(bench: Bench) -> None:
    calls = asked(bench)
    bench.answer(calls[0])
    bench.settle()
    for call in calls[1:]:
        refuse(bench, call)
    assert asked(bench) == []
    bench.close("1", disposal=f.Disposal.CANCELLED)
    bench.settle()  # its VM ends, one of the others is allocated, then the rest
    assert sorted(vm.unit for vm in bench.custody.state.vms.values()) == ["2", "3", "4"]
    assert bench.core.vm_reconciler.allocations.backoff.refusals == 0


def test_an_attempt_that_its_scheduler_gives_up_is_asked_for_no_more(bench: Bench) -> None:
    for call in asked(bench):
        refuse(bench, call)
    for number in range(UNITS):
        bench.close(str(number + 1))
    bench.now += QUOTA.most_s
    assert asked(bench) == []
    assert bench.core.ledger.wants == {}
    assert bench.decide() == [], "nor told of: it is over"


def test_people_are_told_once_an_attempt_in_opennebulas_words(bench: Bench) -> None:
    for _ in range(3):
        for call in asked(bench):
            refuse(bench, call)
        bench.decide()
        bench.now += QUOTA.most_s
    told = [fact for fact in bench.written if isinstance(fact, f.VmRefused)]
    assert sorted(fact.unit for fact in told) == [str(n + 1) for n in range(UNITS)]
    assert {(fact.failure, fact.why) for fact in told} == {("quota", WORDS)}
    bench.close("1")
    bench.place("1", "h0", attempt=2)
    for _ in range(UNITS + 1):
        for call in asked(bench):
            refuse(bench, call)
        bench.decide()
        bench.now += QUOTA.most_s
    told = [fact for fact in bench.written if isinstance(fact, f.VmRefused)]
    assert [(fact.unit, fact.attempt) for fact in told[UNITS:]] == [("1", 2)]


def test_a_refused_login_keeps_no_rank_waiting_once_there_is_another(bench: Bench) -> None:
    for call in asked(bench):
        refuse(bench, call, Failure.LOGIN)  # the edge pauses all calls meanwhile
    assert len(asked(bench)) == UNITS


def test_what_only_this_vm_meets_stops_nobody_else(bench: Bench) -> None:
    calls = asked(bench)
    refuse(bench, calls[0], Failure.OTHER)
    assert RULES[Failure.OTHER].outcome is Outcome.REFUSED
    bench.place("9", "h1")
    assert [call.unit for call in asked(bench)] == ["9"]


def test_the_brake_itself() -> None:
    brake = AllocationBackoff()
    assert brake.room(6, 3, 100.0) == 6
    until = brake.refused(Failure.QUOTA, 100.0)
    assert until == 100.0 + QUOTA.first_s
    assert brake.room(6, 0, 100.0) == 0
    assert brake.room(6, 1, until) == 0
    assert brake.room(6, 0, until) == 1
    assert brake.room(0, 0, until) == 0
    brake.eased()
    assert brake.room(6, 0, 100.0) == 1
    brake.succeeded()
    assert brake.room(6, 3, 100.0) == 6
