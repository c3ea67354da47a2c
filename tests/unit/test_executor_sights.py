"""What answers and sights say of a VM: whose they are, whether they count, and where it runs (`executor.core.observed_vms`)."""

from __future__ import annotations

import pytest

from schemas import facts as f
from services.executor.core.calls import (
    Migrate,
    Outcome,
    Phase,
    Sight,
    Terminate,
    VmsSeen,
)
from services.executor.core.observed_vm import ObservedVm
from tests.support.executor_bench import held
from tests.support.executor_stage import FAST
from tests.unit.test_executor_vm_reconciler import journaled, moving, observed_vm, see, tell

MIGRATE = f.Disposal.MIGRATE


@pytest.mark.parametrize("settled", [False, True])
def test_an_answer_is_its_vms_though_it_is_another_attempts_by_then(settled: bool) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.now += FAST.save_s / 2
    [save] = bench.calls()
    bench.place("1", "h1", attempt=2)
    bench.write("executor", f.VmAllocated(unit="1", attempt=2, rank=0, vm=vm, host="h1"))
    if settled:
        assert bench.calls() == []
    tell(bench, save, Outcome.REFUSED)
    bench.now += 0.1
    assert bench.calls() == [Migrate("1/2/0", vm, "h1", 1)]


def test_an_answer_about_a_vm_that_is_gone_is_nobodys() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1")
    [terminate] = bench.calls()
    bench.write("executor", f.VmEnded(unit="1", attempt=1, rank=0, why="x"))
    tell(bench, terminate, Outcome.OK)
    assert [call for call in bench.calls() if isinstance(call, Terminate)] == []
    tell(bench, terminate, Outcome.OK)


def test_while_a_call_is_in_flight_sights_of_its_vm_say_nothing_and_then_those_begun_after_it() -> None:
    bench, deploy = journaled()
    see(bench, deploy.vm, Phase.FAILED)
    assert observed_vm(bench).phase is Phase.HELD
    early = bench.core.ticket()
    tell(bench, deploy, Outcome.OK)
    heard = observed_vm(bench).heard
    assert early < heard
    for ticket, phase in ((early, Phase.MOVING), (heard, Phase.RUNNING)):
        bench.core.observe(VmsSeen(ticket, [deploy.vm], [Sight(deploy.vm, Phase.RUNNING)]), bench.now)
        assert observed_vm(bench).phase is phase
    assert bench.decide() == [f.VmStarted(unit="1", attempt=1, rank=0)]


def test_where_it_runs_is_known_again_only_when_it_was_seen_since_the_last_call() -> None:
    bench, deploy = journaled()
    tell(bench, deploy, Outcome.OK)
    see(bench, deploy.vm, Phase.RUNNING, one_host=0)
    assert observed_vm(bench).one_host == 0
    see(bench, deploy.vm, Phase.RUNNING)
    assert observed_vm(bench).one_host == 0
    bench.decide()
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    [migrate] = bench.calls()
    tell(bench, migrate, Outcome.OK)
    assert observed_vm(bench, "1/2/0").one_host == -1


@pytest.mark.parametrize(
    ("one_host", "doubted", "deployed", "phase", "so"),
    [
        (-1, False, False, Phase.RUNNING, False),
        (-1, False, True, Phase.RUNNING, True),
        (-1, False, False, Phase.MOVING, True),
        (1, False, True, Phase.RUNNING, True),
        (0, False, True, Phase.MOVING, False),
        (0, True, False, Phase.RUNNING, True),
    ],
)
def test_it_may_yet_arrive_if_its_newest_record_is_there_or_a_call_is_in_doubt(
    one_host: int, doubted: bool, deployed: bool, phase: Phase, so: bool
) -> None:
    bench = held()
    found = ObservedVm("1/1/0", 7, "h1", phase, deployed=deployed, one_host=one_host)
    if doubted:
        bench.core.vm_reconciler.doubted[7] = False
    assert bench.core.vm_reconciler._may_arrive(found) is so
    bench.custody.state.hosts.pop("h1")
    assert bench.core.vm_reconciler._may_arrive(found) is (so and one_host != 1)


def test_a_sight_that_shows_nothing_new_leaves_it_as_it_is() -> None:
    bench, deploy = journaled()
    tell(bench, deploy, Outcome.OK)
    see(bench, deploy.vm, Phase.RUNNING)
    bench.decide()
    bench.core.ledger.dirty.clear()
    see(bench, deploy.vm, Phase.RUNNING, why="words")
    assert not bench.core.ledger.dirty
    assert observed_vm(bench).why == ""


def test_a_sight_that_does_not_say_where_a_moving_vm_runs_is_none() -> None:
    bench, migrate = moving()
    tell(bench, migrate, Outcome.OK)
    see(bench, migrate.vm, Phase.RUNNING)
    assert observed_vm(bench, "1/2/0").phase is Phase.MOVING
    assert bench.decide() == []
    see(bench, migrate.vm, Phase.RUNNING, one_host=1)
    assert bench.decide() == [f.VmStarted(unit="1", attempt=2, rank=0)]
