"""The life of a VM, pair by pair: every aim with every event, every aim with every phase (`services.executor.lifecycle`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import facts as f
from services.executor import diagram
from services.executor.calls import Call, Deploy, Phase, Terminate
from services.executor.lifecycle import ASKED, TOLD, Act, Aim, Told, after
from tests.support.executor_bench import Bench, held, kinds
from tests.support.executor_stage import FAST, WHY

KEY = "1/1/0"
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
    assert {aim for (aim, _), act in ASKED.items() if act is Act.DEPLOY} == {Aim.RUN}


# ------------------------------------------------------------------------------------------------------- aims and events


def running() -> Bench:
    bench = held()
    bench.run("1", "h0")
    return bench


def ending() -> Bench:
    bench = running()
    bench.close("1")
    return bench


def late() -> Bench:
    bench = ending()
    bench.now += FAST.kill_s
    return bench


AIMED: dict[Aim, Callable[[], Bench]] = {Aim.RUN: running, Aim.END: ending, Aim.KILL: late}


def _time(bench: Bench) -> None:
    bench.now = max(bench.now, *bench.core.ledger.state.doomed.values(), 0.0)


def _off(bench: Bench) -> None:
    bench.vms[0] = Phase.OFF
    bench.audit()
    bench.calls(0)


HAPPENS: dict[Told, Callable[[Bench], None]] = {
    Told.CLOSED: lambda bench: bench.close("1"),
    Told.HOST_TAKEN: lambda bench: bench.write("scheduler.hpc", f.HostReleased(host="h0")),
    Told.HOST_LOST: lambda bench: bench.write("executor", f.HostLost(host="h0", reason="error")),
    Told.TIME_UP: _time,
    Told.CONDEMNED: _off,
}


def aim_of(bench: Bench) -> Aim:
    fleet = bench.core.fleet
    bench.calls(0)
    return fleet.aim(fleet.tracks[KEY], bench.now)


@pytest.mark.parametrize("told", Told)
@pytest.mark.parametrize("aim", Aim)
def test_every_aim_and_event(aim: Aim, told: Told) -> None:
    bench = AIMED[aim]()
    assert aim_of(bench) is aim
    HAPPENS[told](bench)
    assert aim_of(bench) is after(aim, told)


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

WAITS = (Act.WATCH, Act.DOUBT, Act.CONDEMN)


def follows(bench: Bench) -> list[str]:
    """Calls and facts about the VM."""
    asked = [_named(call) for call in bench.calls()]
    return asked + [kind for kind in kinds(bench.core.decide(bench.now)) if kind.startswith("vm.")]


def _named(call: Call) -> str:
    if isinstance(call, Terminate):
        return "terminate hard" if call.hard else "terminate"
    return type(call).__name__.lower()


def unstarted() -> Bench:
    """The attempt is live, its VM is journaled, and nobody has asked anything of it yet."""
    bench = held()
    bench.place("1", "h0")
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=0, host="h0"))
    bench.vms[0] = Phase.HELD
    return bench


def seen(aim: Aim, phase: Phase | None) -> Bench:
    bench = unstarted()
    if aim is not Aim.RUN:
        bench.close("1")
    if aim is Aim.KILL:
        bench.now += FAST.kill_s
    if phase is None:
        return bench
    bench.vms[0] = phase
    if phase is Phase.OVER:
        bench.gone(0)
    bench.calls(0)
    bench.audit()
    return bench


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("aim", Aim)
def test_every_aim_and_phase(aim: Aim, phase: Phase | None) -> None:
    """… by a leader that has asked nothing before."""
    bench, act = seen(aim, phase), ASKED[aim, phase]
    if act is Act.CONDEMN:
        assert follows(bench) == ["terminate hard"]
        assert bench.core.fleet.tracks[KEY].condemned
    elif act is Act.DOUBT:
        assert follows(bench) == []
        bench.now += FAST.stuck_s
        assert follows(bench) == ["terminate hard"]
    elif act in WAITS:
        assert follows(bench) == []
        assert bench.core.watch_list() == [0]
    else:
        assert follows(bench) == [act.lower()]


def test_deploy_is_asked_of_the_host_that_was_chosen() -> None:
    assert seen(Aim.RUN, Phase.HELD).calls() == [Deploy(KEY, 0, "h0", 0)]
