"""What is wanted of each open VM, and which ranks want one (`executor.core.ledger`, `.aims`), at each boundary."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, Department, Lending, Warm, WebPolicy
from schemas.ids import instance_id
from schemas.size import Size
from services.executor.core.calls import Allocate
from services.executor.core.executor import ExecutorCore
from services.executor.core.ledger import Ledger
from services.executor.core.ledger_state import LINGER_S, MOVE_WAIT_S, Kept
from services.executor.core.lifecycle import Aim
from tests.support.closing import close
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import FAST, WHY, config_adopted

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE
WARM = Warm(idle_s=10.0)
BY_ALL = Warm(idle_s=10.0, share="department")


def ledger(bench: Bench) -> Ledger:
    return bench.core.ledger


def lost(bench: Bench, host: str) -> None:
    bench.write("executor", f.HostLost(host=host, reason="error"))


def place(
    bench: Bench, unit: str, *hosts: str, attempt: int = 1, cores: int = 1, memory_mb: int = 64, exclusive: bool = False
) -> None:
    if unit not in bench.custody.state.units:
        bench.write(
            "admission",
            f.JobSubmitted(job=unit, dept="hpc", user="a", name="j", payload="p", walltime_s=9.0, nodes=len(hosts)),
        )
    placed = f.UnitPlaced(
        unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=memory_mb, exclusive=exclusive
    )
    bench.write("scheduler.hpc", placed)


def doomed_for(bench: Bench, key: str) -> float:
    """How long it has from now on."""
    return round(ledger(bench).state.doomed[key] - bench.now, 6)


def waiting(*units: str) -> Bench:
    """VMs of these jobs wait on h0 for another job, in this order, each a moment later."""
    bench = held(warm=WARM)
    for unit in sorted(units):
        place(bench, unit, "h0")
    bench.settle()
    for unit in units:
        bench.now += 0.1
        bench.report(unit)
        bench.park(unit)
    bench.settle()
    bench.written.clear()
    return bench


# --------------------------------------------------------------------------------------------------- rule 1: how long it has


def adopt(bench: Bench, *, own_s: float | None = None, contract_s: float | None = None) -> None:
    """`own_s`: what saving takes in `hpc`; `contract_s`: the grace that `web` grants it as a borrower."""
    adopted = config_adopted(FAST)
    departments = (
        Department(name="hpc", kind="batch", batch=BatchPolicy(save_s=own_s)),
        Department(name="web", kind="web", web=WebPolicy()),
    )
    lending = (Lending(lender="web", borrower="hpc", grace_s=contract_s),) if contract_s is not None else ()
    config = msgspec.structs.replace(adopted.config, departments=departments, lending=lending)
    bench.write("provisioner", msgspec.structs.replace(adopted, config=config))


@pytest.mark.parametrize("how", ["released", "lost", "closed"])
@pytest.mark.parametrize("contract_s", [None, 0.7])
def test_where_its_host_is_waited_for_it_has_the_grace_of_a_contract_or_the_policys_else_kill_s(
    how: str, contract_s: float | None
) -> None:
    bench = held()
    bench.run("1", "h0")
    adopt(bench, contract_s=contract_s)
    if how == "released":
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    elif how == "lost":
        lost(bench, "h0")
    else:
        bench.close("1")
    waited_for_s = FAST.grace_s if contract_s is None else contract_s
    assert doomed_for(bench, "1/1/0") == (FAST.kill_s if how == "closed" else waited_for_s)


def test_it_is_never_moved_later() -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1")
    bench.now += FAST.kill_s - 0.1
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert doomed_for(bench, "1/1/0") == 0.1


@pytest.mark.parametrize("own_s", [None, 5.0])
@pytest.mark.parametrize("disposal", [SUSPEND, MIGRATE])
def test_what_is_saved_or_moves_has_save_s(disposal: f.Disposal, own_s: float | None) -> None:
    bench = held()
    bench.run("1", "h0")
    adopt(bench, own_s=own_s)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench = held()
    bench.run("1", "h0")
    adopt(bench, own_s=own_s)
    bench.close("1", disposal=disposal)
    assert doomed_for(bench, "1/1/0") == (FAST.save_s if own_s is None else own_s)


@pytest.mark.parametrize(
    ("own_s", "waits_s"), [(None, FAST.save_s / 2), (1.0, 0.5), (2.0, MOVE_WAIT_S), (9.0, MOVE_WAIT_S)]
)
def test_who_moves_waits_for_its_place_for_half_of_its_time_and_move_wait_at_most(
    own_s: float | None, waits_s: float
) -> None:
    bench = held(capabilities=("suspend", "resume_elsewhere", "live_migration"))
    bench.run("1", "h0")
    adopt(bench, own_s=own_s)
    bench.close("1", disposal=MIGRATE)
    key, began = "1/1/0", bench.now
    assert ledger(bench).state.kept[key] == Kept(Aim.MOVE, began + waits_s)
    assert ledger(bench).aim(key, began + waits_s - 0.01) is Aim.MOVE
    assert ledger(bench).aim(key, began + waits_s) is Aim.SAVE
    has_s = FAST.save_s if own_s is None else own_s
    assert ledger(bench).aim(key, began + has_s - 0.01) is Aim.SAVE
    assert ledger(bench).aim(key, began + has_s) is Aim.KILL
    bench.now += 0.1
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))  # waited for, and no later than before
    assert ledger(bench).state.kept[key].until <= began + waits_s


def test_what_lingers_is_ended_gracefully_after_its_moment_and_hard_kill_s_later() -> None:
    bench = held(warm=WARM)
    bench.run("1", "h0")
    bench.report("1")
    key, began = "1/1/0", bench.now
    assert ledger(bench).kill_by(key, began) == began + LINGER_S + FAST.kill_s
    aims = [
        ledger(bench).aim(key, began + after) for after in (LINGER_S - 0.01, LINGER_S, LINGER_S + FAST.kill_s - 0.01)
    ]
    assert aims == [Aim.LINGER, Aim.END, Aim.END]
    assert ledger(bench).aim(key, began + LINGER_S + FAST.kill_s) is Aim.KILL
    bench.park("1")
    assert ledger(bench).aim(key, began + WARM.idle_s - 0.01) is Aim.PARK
    assert ledger(bench).aim(key, began + WARM.idle_s) is Aim.KILL


def test_of_a_vm_that_nothing_is_known_of_the_end_is_now() -> None:
    bench = held()
    bench.run("1", "h0")
    assert ledger(bench).kill_by("1/1/0", 7.0) == 7.0
    assert ledger(bench).aim("1/1/0", 7.0) is Aim.RUN


def test_who_parks_when_its_department_keeps_none_warm_any_more_ends_at_once() -> None:
    bench = held(warm=WARM)
    bench.run("1", "h0")
    bench.report("1")
    bench.write("provisioner", config_adopted(FAST))
    bench.park("1")
    assert ledger(bench).aim("1/1/0", bench.now) is Aim.KILL


# ------------------------------------------------------------------------------------------------- which VM an event is about


def test_an_event_of_an_attempt_is_about_its_own_vms() -> None:
    bench = held("h0", "h1", "h2")
    bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.write("scheduler.hpc", f.AttemptClosed(unit="1", attempt=2, disposal=SUSPEND, why=WHY))
    assert ledger(bench).state.kept["1/1/0"].aim is Aim.MOVE, "it is told of when it is bound to the next one"


@pytest.mark.parametrize(("exit_", "nodes", "lingers"), [(0, 1, True), (1, 1, False), (0, 2, False)])
def test_what_lingers_is_the_vm_of_a_job_of_one_node_that_ended_well(exit_: int, nodes: int, lingers: bool) -> None:
    bench = held(warm=WARM)
    bench.run("1", *["h0", "h1"][:nodes])
    bench.write("admission", f.AttemptReported(unit="1", attempt=1, exit=exit_))
    assert set(ledger(bench).state.kept) == ({"1/1/0"} if lingers else set())
    assert set(ledger(bench).state.doomed) == (set() if lingers else {f"1/1/{rank}" for rank in range(nodes)})


def test_when_a_department_closes_all_its_vms_end_and_nobody_elses() -> None:
    bench = held("h0", "h1")
    bench.write("provisioner", f.HostGranted(host="h2", dept="web"))
    bench.run("1", "h0")
    bench.run("2", "h1")
    bench.close("2", disposal=SUSPEND)
    bench.write(
        "scheduler.web", f.UnitPlaced(unit=instance_id("web", 1), attempt=1, hosts=("h2",), cores=1, memory_mb=64)
    )
    bench.settle()
    bench.run("3", "h1")
    bench.close("3", disposal=SUSPEND)
    close(bench, "hpc")
    aims = {key: ledger(bench).aim(key, bench.now) for key in bench.custody.state.vms}
    assert aims == {"1/1/0": Aim.END, "3/1/0": Aim.END, "web.1/1/0": Aim.RUN}


@pytest.mark.parametrize(
    ("warm", "nodes", "array", "known"),
    [
        (WARM, 1, (), {"1": "ann"}),
        (WARM, 1, (3, 7), {"1_3": "ann", "1_7": "ann"}),
        (WARM, 2, (), {}),
        (BY_ALL, 1, (), {}),
        (Warm(), 1, (), {}),
    ],
)
def test_whose_a_job_is_is_kept_only_where_a_warm_vm_may_be_its_users(
    warm: Warm, nodes: int, array: tuple[int, ...], known: dict[str, str]
) -> None:
    bench = held(warm=warm)
    job = f.JobSubmitted(
        job="1", dept="hpc", user="ann", name="j", payload="p", walltime_s=9.0, nodes=nodes, array=array
    )
    bench.write("admission", job)
    assert ledger(bench).state.users == known
    bench.write("admission", f.JobCancelled(job="1", user="ann"))
    assert {unit for unit in known if unit not in bench.custody.state.units}.isdisjoint(ledger(bench).state.users)


# ------------------------------------------------------------------------------------------------------------------- wanted


def test_wanted_are_the_ranks_that_never_had_a_vm() -> None:
    bench = held()
    bench.place("1", "h0", "h1")
    for call in bench.calls(1):
        bench.answer(call)
    bench.decide()
    assert list(bench.custody.state.vms) == ["1/1/0"]
    core = ExecutorCore(bench.custody)
    core.load(bench.core.dump())
    assert list(core.ledger.wants) == ["1/1/1"]
    assert core.ledger.wants["1/1/1"] == Allocate("1", 1, 1, "h1", Size(1, 64), "1/1/1")


def test_what_was_wanted_and_has_a_vm_is_wanted_no_more_whoever_gave_it() -> None:
    bench = Bench(audited=False)
    for name, sight in bench.hosts.items():
        bench.write(
            "executor", f.HostDescribed(host=name, one_id=sight.one_id, cores=4, memory_mb=4096, cluster="default")
        )
        bench.write("executor", f.HostCleared(host=name))
    bench.grant("h0")
    bench.place("1", "h0")
    assert list(ledger(bench).wants) == ["1/1/0"]
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=5, host="h0"))
    assert list(ledger(bench).wants) == []


@pytest.mark.parametrize(
    ("warm", "unit", "hosts", "waits"),
    [
        (BY_ALL, "1", ("h0",), True),
        (BY_ALL, "1", ("h0", "h1"), False),
        (Warm(), "1", ("h0",), False),
        (BY_ALL, "web.1", ("h2",), False),
    ],
)
def test_what_may_be_taken_over_is_looked_for_by_jobs_of_one_node_alone(
    warm: Warm, unit: str, hosts: tuple[str, ...], waits: bool
) -> None:
    bench = held(warm=warm)
    bench.write("provisioner", f.HostGranted(host="h2", dept="web"))
    if unit == "1":
        bench.place(unit, *hosts)
    else:
        bench.write("scheduler.web", f.UnitPlaced(unit=unit, attempt=1, hosts=hosts, cores=1, memory_mb=64))
    assert [len(found) for found in (ledger(bench).binding, ledger(bench).wants)] == (
        [1, 0] if waits else [0, len(hosts)]
    )


# ---------------------------------------------------------------------------------------------------------------- warm VMs


def test_a_parked_vm_is_taken_before_one_that_lingers_and_who_waited_longest_first() -> None:
    bench = waiting("2", "1")
    place(bench, "3", "h0")
    bench.settle()  # takes the one of 2
    place(bench, "4", "h0")
    bench.settle()
    assert [bench.custody.state.vms[f"{unit}/1/0"].vm for unit in "34"] == [1, 0]
    bench.report("3")  # lingers, and until a moment before the other
    bench.report("4")
    bench.park("4")
    want = Allocate("5", 1, 0, "h0", Size(1, 64), "5/1/0")
    place(bench, "5", "h0")
    assert [key for key, _ in ledger(bench).warm_for(want, bench.now)] == ["4/1/0", "3/1/0"]
    assert [key for key, _ in ledger(bench).warm_for(want, bench.now + LINGER_S)] == ["4/1/0"]


@pytest.mark.parametrize("same", ["cores", "memory_mb", "exclusive", "department", "all"])
def test_a_vm_is_taken_over_by_its_like(same: str) -> None:
    bench = held(warm=BY_ALL)
    place(bench, "1", "h0", exclusive=same == "exclusive")
    bench.settle()
    bench.report("1")
    bench.park("1")
    place(bench, "2", "h0", cores=2 if same == "cores" else 1, memory_mb=65 if same == "memory_mb" else 64)
    unit = bench.custody.state.units["2"]
    if same == "department":
        unit.dept = "web"
    want = Allocate("2", 1, 0, "h0", Size(1, 64), "2/1/0")
    found = [key for key, _ in ledger(bench).warm_for(want, bench.now)]
    unit.dept = "hpc"
    assert found == (["1/1/0"] if same == "all" else [])


@pytest.mark.parametrize(("first", "second"), [("a", None), (None, None), (None, "a")])
def test_where_it_is_not_known_whose_a_job_is_no_vm_is_its_users(first: str | None, second: str | None) -> None:
    bench = waiting("1")
    place(bench, "2", "h0")
    for unit, user in (("1", first), ("2", second)):
        ledger(bench).state.users.pop(unit, None)
        if user is not None:
            ledger(bench).state.users[unit] = user
    assert ledger(bench).warm_for(Allocate("2", 1, 0, "h0", Size(1, 64), "2/1/0"), bench.now) == []


def test_who_is_resumed_takes_nothing_over() -> None:
    bench = held("h0", "h1", warm=BY_ALL)
    bench.run("1", "h1")
    bench.close("1", disposal=SUSPEND)
    bench.settle()
    bench.run("2", "h0")
    bench.report("2")
    bench.park("2")
    bench.place("1", "h0", attempt=2)
    assert ledger(bench).taken_over("h0", bench.now) == ()
    bench.place("3", "h0")
    assert ledger(bench).taken_over("h0", bench.now) == ("2/1/0",)


def test_what_is_wanted_after_a_snapshot_is_asked_for_in_the_order_of_submission() -> None:
    bench = held()
    for unit in ("9", "10", "11"):
        bench.place(unit, "h0")
    core = ExecutorCore(bench.custody)
    core.load(bench.core.dump())
    assert list(core.ledger.wants) == ["9/1/0", "10/1/0", "11/1/0"]


def test_however_short_the_time_to_wait_is_a_completed_jobs_vm_may_be_parked() -> None:
    bench = held(warm=Warm(idle_s=0.5))
    bench.run("1", "h0")
    bench.report("1")
    assert ledger(bench).aim("1/1/0", bench.now) is Aim.LINGER
