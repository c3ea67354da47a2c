"""Left behind (PROTOCOL): a VM that was to leave a host that is lost before it has left it is ended in the journal.

And what the journal does not show of where a VM is: it has yet to leave a host, or a late call may take it to one.
"""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from services.executor.core.calls import Deploy, Migrate, Outcome, Phase, Result, Save, Terminate
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import FAST

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE


def host_dies(bench: Bench, host: str, vm: int) -> None:
    """OpenNebula does not know what became of its VM."""
    bench.hosts[host] = msgspec.structs.replace(bench.hosts[host], usable=False, bad="error")
    bench.vms[vm] = Phase.UNKNOWN
    bench.see_hosts()
    bench.decide()
    assert bench.custody.state.hosts[host].state == "lost"


def wait_in_vain(bench: Bench, host: str, seconds: float) -> None:
    """OpenNebula takes every order about what is on `host`, and nothing happens."""
    until = bench.now + seconds
    while bench.now < until:
        for call in bench.calls():
            if isinstance(call, Terminate | Save | Migrate) and bench.on.get(call.vm) == host:
                taken = Outcome.OK if isinstance(call, Terminate) else Outcome.REFUSED
                bench.core.observe(Result(call, taken), bench.now)
            else:
                bench.answer(call)
        bench.poll()
        bench.decide()
        bench.now += 0.4


@pytest.mark.parametrize("doubted", [False, True])
@pytest.mark.parametrize("saved_again", [False, True])
def test_left_behind_on_the_way_to_another_host_which_can_be_cleared(saved_again: bool, doubted: bool) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    [migrate] = bench.calls()
    bench.core.observe(Result(migrate, Outcome.UNSURE if doubted else Outcome.OK), bench.now)
    host_dies(bench, "h0", vm)
    if saved_again:
        bench.close("1", attempt=2, disposal=SUSPEND)
    bench.write("scheduler.hpc", f.HostReleased(host="h1"))
    wait_in_vain(bench, "h0", FAST.save_s + 2 * FAST.stuck_s)
    assert [x.why for x in bench.written if isinstance(x, f.VmEnded)] == ["left behind"]
    lost = [x.host for x in bench.written if isinstance(x, f.HostLost)]
    assert lost == (["h0", "h1"] if doubted else ["h0"])  # in doubt it may yet come up there
    assert bench.custody.state.hosts["h1"].state == "free"
    assert not bench.custody.state.units["1"].suspended


@pytest.mark.parametrize("closed_first", [False, True])
def test_left_behind_while_it_is_saved_its_job_begins_anew_at_once(closed_first: bool) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    if closed_first:
        bench.close("1", disposal=SUSPEND)
        host_dies(bench, "h0", vm)
    else:
        host_dies(bench, "h0", vm)
        bench.close("1", disposal=SUSPEND)
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why="left behind")]
    assert not bench.custody.state.units["1"].suspended
    bench.place("1", "h1", attempt=2)
    wait_in_vain(bench, "h0", 2.0)
    fresh = bench.custody.state.vms["1/2/0"]
    assert fresh.vm != vm
    assert fresh.started_at is not None


def test_left_behind_the_attempt_that_was_to_go_on_with_it_is_broken() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    bench.place("1", "h1", attempt=2)
    host_dies(bench, "h0", vm)
    assert bench.decide() == [f.VmEnded(unit="1", attempt=1, rank=0, why="left behind")]
    assert bench.custody.state.units["1"].broken == "not_saved"


def test_left_behind_what_runs_on_is_found_when_its_host_is_back_and_the_host_waits_for_that() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    host_dies(bench, "h0", vm)
    bench.decide()
    bench.hosts["h0"] = msgspec.structs.replace(bench.hosts["h0"], usable=True, bad="")
    bench.vms[vm] = Phase.RUNNING
    bench.see_hosts()
    assert bench.decide() == []
    assert bench.core.audit_wanted
    bench.audit()
    assert Terminate(f"#{vm}", vm, True) in bench.calls()


def test_not_left_behind_where_the_host_that_it_leaves_is_well() -> None:
    """It runs there still: its job must not begin anew before it has ended."""
    bench = held("h0", "h1", "h2")
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    bench.write("executor", f.HostLost(host="h1", reason="error"))
    bench.close("1", attempt=2, disposal=SUSPEND)
    assert bench.decide() == []
    bench.place("1", "h2", attempt=3)
    assert [x for x in bench.decide() if isinstance(x, f.VmAllocated)] == []
    assert bench.vms[vm] is Phase.RUNNING
    bench.settle()
    assert [vm] != list(bench.vms)


def test_x3_a_vm_that_has_not_left_its_host_holds_the_next_attempt_up_though_the_host_it_was_to_go_to_is_lost() -> None:
    """It is journaled for the lost host, and runs on another one."""
    bench = held("h0", "h1", "h2")
    [vm] = bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()  # bound, and nothing asked of it yet
    bench.close("1", attempt=2)
    bench.place("1", "h2", attempt=3)
    host_dies(bench, "h1", 99)
    bench.vms.pop(99)
    wait_in_vain(bench, "h0", FAST.stuck_s / 2)
    assert bench.vms[vm] is Phase.RUNNING
    assert bench.custody.state.vms["1/3/0"].started_at is None
    wait_in_vain(bench, "h0", FAST.kill_s + 2 * FAST.stuck_s)
    assert bench.custody.state.hosts["h0"].state == "lost"  # it will not die
    assert bench.custody.state.vms["1/3/0"].started_at is not None


@pytest.mark.parametrize("repeated", [False, True])
def test_x7_a_first_deploy_in_doubt_that_was_repeated_leaves_nothing_to_save(repeated: bool) -> None:
    """Once its VM is saved, a late first deploy is a resume for OpenNebula, of which nobody knows."""
    bench = held()
    bench.place("1", "h0")
    bench.decide()
    bench.answer(*bench.calls())
    bench.decide()
    [deploy] = bench.calls()
    assert isinstance(deploy, Deploy)
    if not repeated:
        bench.answer(deploy)  # it happens, and nobody hears of it
        bench.core.vm_reconciler.observed_vms["1/1/0"].busy = True
    bench.core.observe(Result(deploy, Outcome.UNSURE), bench.now)
    bench.poll()
    bench.now += 1.0
    if repeated:
        assert bench.calls() == [deploy]
        bench.answer(deploy)
    bench.settle()
    bench.close("1", disposal=SUSPEND)
    bench.settle()
    assert len(bench.custody.state.saved) == (0 if repeated else 1)
    assert [x.why for x in bench.written if isinstance(x, f.VmEnded)] == (
        ["a late call may resume it"] if repeated else ["suspended"]
    )
