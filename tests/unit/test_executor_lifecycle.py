"""The life of a VM, pair by pair: every aim with every event, every aim with every phase (`executor.core.lifecycle`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import facts as f
from schemas.config import Warm
from services.executor import diagram
from services.executor.core.calls import Allocate, Call, Deploy, Phase, Terminate
from services.executor.core.lifecycle import ASKED, TOLD, Act, Aim, Told, after
from tests.support.closing import close as close_department
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import FAST, WHY

KEY = "1/1/0"
WARM = Warm(idle_s=10.0)
PHASES = (None, *Phase)


def test_the_page_says_what_the_tables_say() -> None:
    assert diagram.main(["--check"]) == 0


def test_check_tells_of_a_difference_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert diagram.main(["--check", "--file", str(page)]) == 1
    assert "services.executor.diagram" in capsys.readouterr().err
    assert not page.exists()
    assert diagram.main(["--file", str(page)]) == 0
    assert diagram.main(["--check", "--file", str(page)]) == 0


def test_the_tables_are_whole_and_nothing_leads_back() -> None:
    assert set(ASKED) == {(aim, phase) for aim in Aim for phase in PHASES}
    assert all(to in (Aim.END, Aim.KILL) for (aim, _), to in TOLD.items() if aim in (Aim.END, Aim.KILL))
    assert {aim for (aim, _), act in ASKED.items() if act in (Act.DEPLOY, Act.MIGRATE)} == {Aim.RUN}
    assert {aim for aim, _ in TOLD} == {*Aim} - {Aim.KILL}
    assert {told for _, told in TOLD} == {*Told}


# ------------------------------------------------------------------------------------------------------- aims and events


def running() -> Bench:
    bench = held(warm=WARM)
    bench.run("1", "h0")
    return bench


def closed(disposal: f.Disposal) -> Bench:
    bench = running()
    bench.close("1", disposal=disposal)
    return bench


def lingering() -> Bench:
    bench = running()
    bench.report("1")
    return bench


def parked() -> Bench:
    bench = lingering()
    bench.park("1")
    return bench


def late() -> Bench:
    bench = closed(f.Disposal.KILL)
    bench.now += FAST.kill_s
    return bench


AIMED: dict[Aim, Callable[[], Bench]] = {
    Aim.RUN: running,
    Aim.MOVE: lambda: closed(f.Disposal.MIGRATE),
    Aim.SAVE: lambda: closed(f.Disposal.SUSPEND),
    Aim.LINGER: lingering,
    Aim.PARK: parked,
    Aim.END: lambda: closed(f.Disposal.REQUEUE),
    Aim.KILL: late,
}


def _close(bench: Bench, disposal: f.Disposal) -> None:
    """Void if the attempt is closed already."""
    bench.close("1", disposal=disposal)


def _department_closes(bench: Bench) -> None:
    """Its attempt is over, and nobody will ask for it."""
    close_department(bench, "hpc")


def _part_is_lost(bench: Bench) -> None:
    bench.write("admission", f.JobCancelled(job="1", user="a"))


def _evict(bench: Bench) -> None:
    """A job that finds no room beside it, and that it does not fit."""
    bench.place("2", "h0", cores=4)
    for call in bench.calls():
        if isinstance(call, Allocate):
            bench.answer(call)
    bench.decide()
    bench.calls()
    bench.calls(0)


def _bind(bench: Bench) -> None:
    """The attempt goes on elsewhere, or the next job comes."""
    if bench.custody.state.units["1"].state == "pending":
        bench.place("1", "h1", attempt=2)
    else:
        bench.place("2", "h0")
    bench.decide()


def _time(bench: Bench) -> None:
    """The next time of its aim comes."""
    state = bench.core.ledger.state
    times = [kept.until for kept in state.kept.values()] + list(state.doomed.values())
    bench.now = max(bench.now, min(times, default=0.0))


def _off(bench: Bench) -> None:
    bench.vms[0] = Phase.OFF
    bench.audit()
    bench.calls(0)


HAPPENS: dict[Told, Callable[[Bench], None]] = {
    Told.CLOSED: _department_closes,
    Told.SUSPENDED: lambda bench: _close(bench, f.Disposal.SUSPEND),
    Told.MIGRATED: lambda bench: _close(bench, f.Disposal.MIGRATE),
    Told.COMPLETED: lambda bench: bench.report("1"),
    Told.PARKED: lambda bench: bench.park("1"),
    Told.BOUND: _bind,
    Told.UNSAVED: _part_is_lost,
    Told.EVICTED: _evict,
    Told.HOST_TAKEN: lambda bench: bench.write("scheduler.hpc", f.HostReleased(host="h0")),
    Told.HOST_LOST: lambda bench: bench.write("executor", f.HostLost(host="h0", reason="error")),
    Told.TIME_UP: _time,
    Told.CONDEMNED: _off,
}
# What comes with more than its name says: the department's end unsaves; a report of what is being saved counts (it completes).
COMES_AS: dict[tuple[Aim, Told], Told] = {
    (Aim.MOVE, Told.CLOSED): Told.UNSAVED,
    (Aim.SAVE, Told.CLOSED): Told.UNSAVED,
    (Aim.MOVE, Told.COMPLETED): Told.UNSAVED,
    (Aim.SAVE, Told.COMPLETED): Told.UNSAVED,
}


def aim_of(bench: Bench) -> Aim:
    """Of the first VM, whichever attempt it is bound to."""
    bench.calls(0)
    track = bench.core.vm_reconciler.observed_vm(0)
    assert track is not None
    return bench.core.vm_reconciler.aim(track, bench.now)


@pytest.mark.parametrize("told", Told)
@pytest.mark.parametrize("aim", Aim)
def test_every_aim_and_event(aim: Aim, told: Told) -> None:
    bench = AIMED[aim]()
    assert aim_of(bench) is aim
    HAPPENS[told](bench)
    assert aim_of(bench) is after(aim, COMES_AS.get((aim, told), told))


@pytest.mark.parametrize("aim", Aim)
@pytest.mark.parametrize(
    ("writer", "fact"),
    [
        ("scheduler.hpc", f.AttemptClosed(unit="1", attempt=7, disposal=f.Disposal.KILL, why=WHY)),
        ("admission", f.AttemptReported(unit="1", attempt=7, exit=0)),
        ("provisioner", f.HostSeized(host="h0", dept="web")),
        ("scheduler.hpc", f.HostReleased(host="h2")),
        ("executor", f.VmEnded(unit="1", attempt=7, rank=0, why="x")),
        ("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=0, host="h0")),
    ],
    ids=lambda value: value if isinstance(value, str) else f.kind_of(value),
)
def test_what_is_void_changes_no_aim(aim: Aim, writer: str, fact: f.Fact) -> None:
    bench = AIMED[aim]()
    before = bench.core.dump()
    bench.write(writer, fact)
    assert bench.core.dump() == before
    assert aim_of(bench) is aim


# ------------------------------------------------------------------------------------------------------- aims and phases

WORDS = {
    Act.DEPLOY: "deploy",
    Act.MIGRATE: "migrate",
    Act.SAVE: "save",
    Act.STARTED: "vm.started",
    Act.SAVED: "vm.ended suspended",
    Act.SOFT: "terminate",
    Act.HARD: "terminate hard",
    Act.ENDED: "vm.ended",
}


def follows(bench: Bench) -> list[str]:
    """Calls and facts about the VM."""
    asked = [_named(call) for call in bench.calls()]
    return asked + [_told(fact) for fact in bench.core.decide(bench.now) if f.kind_of(fact).startswith("vm.")]


def _named(call: Call) -> str:
    if isinstance(call, Terminate):
        return "terminate hard" if call.hard else "terminate"
    return type(call).__name__.lower()


def _told(fact: f.Fact) -> str:
    suspended = isinstance(fact, f.VmEnded) and fact.why == f.SUSPENDED
    return f.kind_of(fact) + (" suspended" if suspended else "")


def seen(aim: Aim, phase: Phase | None) -> Bench:
    """A leader that has asked nothing yet sees the VM so.  Where it runs elsewhere, its attempt's host is h1."""
    bench = AIMED[aim]()
    where = "h0"
    if phase is Phase.ELSEWHERE and aim is not Aim.RUN:
        bench.core.vm_reconciler.observed_vms[
            KEY
        ].phase = phase  # it was bound, and its next attempt has come to this aim
        return bench
    if phase is Phase.ELSEWHERE:
        bench.close("1", disposal=f.Disposal.MIGRATE)
        bench.place("1", "h1", attempt=2)
        bench.decide()
    bench.core.take_over(bench.now)
    bench.custody.state.vms[bench.custody.index.vm_ids[0]].started_at = None
    bench.see_hosts()
    if phase is None:  # its tag is known, and no more
        bench.core.vm_reconciler.observed_vms[bench.custody.index.vm_ids[0]].tagged = True
        return bench
    bench.vms[0], bench.on[0] = Phase.RUNNING if phase is Phase.ELSEWHERE else phase, where
    if phase is Phase.OVER:
        bench.gone(0)
    bench.calls(0)
    bench.audit()
    bench.poll()
    return bench


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("aim", Aim)
def test_every_aim_and_phase(aim: Aim, phase: Phase | None) -> None:
    """… by a leader that has asked nothing before."""
    bench, act = seen(aim, phase), ASKED[aim, phase]
    bench.core.ledger.dirty[bench.custody.index.vm_ids[0]] = None
    if act is Act.CONDEMN:
        assert follows(bench) == ["terminate hard"]
        track = bench.core.vm_reconciler.observed_vm(0)
        assert track is not None
        assert track.condemned
    elif act is Act.DOUBT:
        assert follows(bench) == []
        bench.now += FAST.stuck_s
        assert follows(bench) == ["terminate hard"]
    elif act in WORDS:
        assert follows(bench) == [WORDS[act]]
    else:
        assert follows(bench) == []
        assert (0 in bench.core.watch_list()) == (act is Act.WATCH)


def test_deploy_is_asked_of_the_host_that_was_chosen() -> None:
    assert seen(Aim.RUN, Phase.HELD).calls() == [Deploy(KEY, 0, "h0", 0)]
