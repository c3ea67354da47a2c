"""What room each VM takes, who is in whose way, and what must always hold (`executor.core.ledger`), at each boundary."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Warm
from schemas.facts import Fact
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.executor.core.calls import Allocate, Call, Deploy, Migrate, Outcome, Terminate
from services.executor.core.ledger import Ledger
from services.executor.core.ledger_state import Kept, Leaving, Room
from services.executor.core.lifecycle import Aim
from tests.support.executor_bench import Bench, held
from tests.support.executor_stage import FAST
from tests.unit.test_executor_ledger import ledger, lost, place, waiting

SUSPEND, MIGRATE = f.Disposal.SUSPEND, f.Disposal.MIGRATE
WARM = Warm(idle_s=10.0)


def doomed_for(bench: Bench, key: str) -> float:
    """How long it has from now on."""
    return round(ledger(bench).state.doomed[key] - bench.now, 6)


# ------------------------------------------------------------------------------------------------------------- room (X3)


def allocated(bench: Bench, unit: str, rest: list[Call] | None = None) -> str:
    """Its VM is journaled; what else is asked is in `rest`, unanswered."""
    for call in bench.calls():
        if isinstance(call, Allocate):
            bench.answer(call)
        elif rest is not None:
            rest.append(call)
    bench.decide()
    return f"{unit}/{bench.custody.state.units[unit].attempt}/0"


@pytest.mark.parametrize(
    ("cores", "memory_mb", "fits"),
    [(2, 2048, True), (3, 2048, False), (2, 2049, False), (4, 4096, False), (1, 1, True)],
)
def test_a_vm_has_room_beside_those_that_must_end_to_the_last_core_and_mebibyte(
    cores: int, memory_mb: int, fits: bool
) -> None:
    bench = held()
    place(bench, "1", "h0", cores=2, memory_mb=2048)
    bench.settle()
    bench.close("1")
    place(bench, "2", "h0", cores=cores, memory_mb=memory_mb)
    assert ledger(bench).has_room(allocated(bench, "2"), bench.now) is fits


@pytest.mark.parametrize("who", ["the one that ends", "the one that starts", "nobody"])
def test_who_has_the_whole_host_has_nobody_beside_it(who: str) -> None:
    bench = held()
    place(bench, "1", "h0", exclusive=who == "the one that ends")
    bench.settle()
    bench.close("1")
    place(bench, "2", "h0", exclusive=who == "the one that starts")
    calls = list[Call]()
    key = allocated(bench, "2", calls)
    assert ledger(bench).has_room(key, bench.now) is (who == "nobody")
    for call in calls:
        bench.answer(call)
    bench.settle()
    assert bench.custody.state.vms[key].started_at is not None


def test_who_leaves_takes_its_room_until_it_was_seen_to_have_left() -> None:
    bench = held()
    place(bench, "1", "h0", cores=2, memory_mb=2048)
    bench.settle()
    bench.close("1", disposal=MIGRATE)
    place(bench, "1", "h1", attempt=2, cores=2, memory_mb=2048)
    bench.decide()
    place(bench, "2", "h0", cores=2, memory_mb=2049)
    place(bench, "3", "h1", cores=2, memory_mb=2048)
    rest = list[Call]()
    assert [ledger(bench).has_room(allocated(bench, unit, rest), bench.now) for unit in "23"] == [False, True]
    [migrate] = [call for call in rest if isinstance(call, Migrate)]
    bench.answer(migrate)
    bench.poll()
    bench.decide()
    assert ledger(bench).has_room("2/1/0", bench.now)


def test_a_whole_host_is_not_given_while_somebody_leaves_it_nor_beside_who_had_it() -> None:
    bench = held()
    place(bench, "1", "h0", exclusive=True)
    bench.settle()
    bench.close("1", disposal=MIGRATE)
    place(bench, "1", "h1", attempt=2)
    bench.decide()
    place(bench, "2", "h0")
    assert not ledger(bench).has_room(allocated(bench, "2"), bench.now)
    place(bench, "3", "h1")
    assert ledger(bench).has_room(allocated(bench, "3"), bench.now)


def test_a_host_that_offers_less_since_they_were_placed_keeps_nobody_waiting() -> None:
    bench = held()
    place(bench, "1", "h0", cores=4, memory_mb=4096)
    key = allocated(bench, "1")
    host = bench.custody.state.hosts["h0"]
    host.size = Size(1, 1)
    assert ledger(bench).has_room(key, bench.now)


def test_a_waiting_vm_of_another_size_makes_room_by_memory_too() -> None:
    bench = held(warm=WARM)
    for unit, memory_mb in (("1", 1024), ("2", 2048)):
        place(bench, unit, "h0", memory_mb=memory_mb)
    bench.settle()
    for unit in ("1", "2"):
        bench.report(unit)
        bench.park(unit)
    place(bench, "3", "h0", memory_mb=1024 + 2048)
    key = allocated(bench, "3")
    assert not ledger(bench).has_room(key, bench.now)
    assert ledger(bench).in_the_way(key, bench.now) == ["1/1/0", "2/1/0"]


@pytest.mark.parametrize("cores", [2, 3, 4])
def test_who_waits_on_makes_room_in_the_order_in_which_their_time_ends_and_then_of_submission(cores: int) -> None:
    bench = held(warm=WARM)
    for unit in ("9", "10", "11"):
        place(bench, unit, "h0")
    bench.settle()
    for unit in ("11", "10", "9"):
        bench.report(unit)
        bench.park(unit)
        bench.now += 0.1 if unit == "11" else 0.0
    place(bench, "12", "h0", cores=cores)
    order = ["11/1/0", "9/1/0", "10/1/0"]
    assert ledger(bench).in_the_way(allocated(bench, "12"), bench.now) == order[: cores - 1]


# ------------------------------------------------------------------------------------------------- hosts that are lost or gone


def test_what_is_journaled_for_a_host_that_is_gone_meanwhile_is_ended() -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate)
    [fact] = bench.core.decide(bench.now)
    del bench.hosts["h0"]
    bench.see_hosts()
    lost(bench, "h0")
    bench.write("executor", f.HostRemoved(host="h0"))
    bench.write("executor", fact)
    assert doomed_for(bench, "1/1/0") == FAST.grace_s
    assert bench.calls() == [Terminate("1/1/0", 0, True)]
    bench.answer(Terminate("1/1/0", 0, True), Outcome.REFUSED)
    bench.now += FAST.stuck_s
    assert bench.decide() == []
    bench.close("1")
    bench.place("1", "h1", attempt=2)
    allocated(bench, "1")
    assert Deploy not in [type(call) for call in bench.calls()], "the VM of attempt 1 is open somewhere"
    bench.gone(0)
    bench.settle()
    assert bench.custody.state.vms["1/2/0"].started_at is not None


@pytest.mark.parametrize("host", ["lost", "held elsewhere"])
def test_what_is_journaled_too_late_has_no_reason_to_run(host: str) -> None:
    bench = held()
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate)
    [fact] = bench.core.decide(bench.now)
    if host == "lost":
        lost(bench, "h0")
    else:
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.write("executor", fact)
    assert list(ledger(bench).state.doomed) == ["1/1/0"]


@pytest.mark.parametrize("told", ["lost", "released"])
def test_who_moves_away_from_a_host_that_is_taken_has_save_s_and_from_a_lost_one_nothing(told: str) -> None:
    bench = held()
    bench.run("1", "h0")
    bench.close("1", disposal=MIGRATE)
    bench.place("1", "h1", attempt=2)
    bench.decide()
    by = ledger(bench).state.leaving["1/2/0"].by
    bench.now += 0.1
    if told == "lost":
        lost(bench, "h0")
    else:
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    assert ledger(bench).state.leaving["1/2/0"].by == (bench.now if told == "lost" else by)
    ledger(bench).state.leaving["1/2/0"].by = 1e9
    bench.write("executor", f.HostLost(host="h0", reason="again"))
    assert ledger(bench).state.leaving["1/2/0"].by == bench.now


def test_a_vm_whose_attempt_is_forgotten_is_taken_to_fill_its_host() -> None:
    bench = held()
    bench.place("1", "h0", cores=2)
    [allocate] = bench.calls()
    bench.answer(allocate)
    [fact] = bench.core.decide(bench.now)
    assert isinstance(fact, f.VmAllocated)
    bench.close("1")
    bench.place("1", "h1", attempt=2, cores=1)
    bench.write("executor", fact)
    assert ledger(bench).state.rooms["1/1/0"] == Room(Size(4, 4096), True, "h0", 0)
    gone = msgspec.structs.replace(fact, attempt=9, rank=1, host="h9", vm=77)
    assert ledger(bench)._room(gone) == Room(Size(0, 0), True, "h9", 77)


@pytest.mark.parametrize("state", ["lost", "held"])
def test_left_behind_is_only_what_is_on_lost_hosts_alone_and_of_its_present_life(state: str) -> None:
    bench = held("h0", "h1", "h2")
    bench.run("1", "h0")
    bench.close("1", disposal=SUSPEND)
    found, vm, unit = ledger(bench).is_left_behind, bench.custody.state.vms["1/1/0"], bench.custody.state.units["1"]
    assert not found("1/1/0")
    assert not found("9/1/0")
    lost(bench, "h0")
    assert found("1/1/0")
    ledger(bench).state.leaving["1/1/0"] = Leaving([Room(Size(1, 64), host="h9"), Room(Size(1, 64), host="h1")], 0.0)
    assert not found("1/1/0")
    bench.custody.state.hosts["h1"].state = state  # type: ignore[assignment]
    assert found("1/1/0") is (state == "lost")
    del ledger(bench).state.leaving["1/1/0"]
    unit.life = vm.attempt + 1
    assert not found("1/1/0")
    unit.life, unit.suspended, unit.resumes = vm.attempt, False, True
    assert not found("1/1/0"), "it is the attempt that resumed"
    unit.attempt = 2
    assert found("1/1/0")
    unit.resumes = False
    assert not found("1/1/0")


def test_an_older_attempts_vm_is_in_the_way_wherever_it_may_be_but_for_lost_hosts() -> None:
    bench = held("h0", "h1", "h2")
    bench.run("1", "h0")
    older = ledger(bench).older_open
    assert [older("1", attempt) for attempt in (1, 2)] == [False, True]
    assert not older("9", 2)
    lost(bench, "h0")
    assert not older("1", 2)
    ledger(bench).state.leaving["1/1/0"] = Leaving([Room(Size(1, 64), host="h1")], 0.0)
    assert older("1", 2)
    ledger(bench).away["1/1/0"] = None
    assert not older("1", 2)
    bench.custody.state.hosts.pop("h0")
    assert older("1", 2), "nobody said that it is lost"


# ----------------------------------------------------------------------------------------------------- what others may wait for


@pytest.mark.parametrize(
    ("fact", "freed"),
    [
        (f.HostReleased(host="h1"), {"h:h1"}),
        (f.HostSeized(host="h1", dept="hpc"), {"h:h1"}),
        (f.HostLost(host="h1", reason="x"), {"h:h1", "u:1"}),
        (f.HostQuarantined(host="h1", reason="x", until=1e9), {"h:h1"}),
        (f.HostDescribed(host="h1", one_id=1, cores=9, memory_mb=1, cluster="default"), {"h:h1"}),
        (f.StartsPaused(since=1.0, failed=3, tried=3, why="x"), {"%starts"}),
    ],
)
def test_a_fact_about_a_host_is_news_for_who_waits_for_it(fact: Fact, freed: set[str]) -> None:
    bench = held()
    bench.run("1", "h1") if isinstance(fact, f.HostLost) else None
    ledger(bench).freed.clear()
    before = dict(ledger(bench).touched)
    writer = {"HostReleased": "scheduler.hpc", "HostSeized": "provisioner"}.get(type(fact).__name__, "executor")
    if isinstance(fact, f.HostSeized):
        bench.write("provisioner", f.QuotaChanged(dept="hpc", hosts=0, by=bench.now))
        ledger(bench).freed.clear()
    bench.write(writer, fact)
    assert set(ledger(bench).freed) >= freed
    if not isinstance(fact, f.StartsPaused):
        assert ledger(bench).touched["h1"] > before["h1"]


def test_other_rules_are_news_for_who_waits_for_any_host() -> None:
    bench = held()
    ledger(bench).freed.clear()
    bench.configure(quarantine_after=9)
    assert set(ledger(bench).freed) == {"h:h0", "h:h1", "h:h2"}


def test_a_vm_that_is_allocated_parked_or_gone_touches_its_host_and_who_is_freed_by_it_is_told() -> None:
    bench = held(warm=WARM)
    ticks = []

    def touched(freed: set[str]) -> None:
        ticks.append(ledger(bench).touched["h0"])
        assert set(ledger(bench).freed) >= freed
        ledger(bench).freed.clear()

    touched(set())
    bench.place("1", "h0")
    [allocate] = bench.calls()
    bench.answer(allocate)
    facts = bench.core.decide(bench.now)
    ledger(bench).freed.clear()
    bench.write("executor", *facts)
    touched({"h:h0"})
    bench.settle()
    bench.report("1")
    bench.park("1")
    touched({"h:h0", "u:1"})
    bench.write("executor", f.VmEnded(unit="1", attempt=1, rank=0, why="x"))
    touched({"h:h0", "u:1"})
    assert ticks == sorted(set(ticks))


# ------------------------------------------------------------------------------------------------------------- invariants

Harm = Callable[[Ledger, Custody], object]


def _host(custody: Custody, name: str, state: str) -> None:
    custody.state.hosts[name].state = state  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda ledger, _: ledger.state.rooms.update({"9/1/0": Room(Size(1, 1))}), "room is kept for 9/1/0, which is not open"),
        (lambda ledger, _: ledger.state.doomed.update({"9/1/0": 1.0}), "9/1/0 is doomed and not open"),
        (lambda ledger, _: ledger.state.kept.update({"9/1/0": Kept(Aim.PARK, 1.0)}), "9/1/0 is kept and not open"),
        (lambda ledger, _: ledger.state.leaving.update({"9/1/0": Leaving([], 1.0)}), "9/1/0 is leaving and not open"),
        (lambda _, custody: _host(custody, "h0", "draining"), "1/1/0 is open on h0 and should be doomed"),
        (lambda _, custody: custody.state.hosts.pop("h0"), "1/1/0 is open on h0 and should be doomed"),
        (
            lambda ledger, _: ledger.state.doomed.pop("3/1/0"),
            "3/1/0 is kept for a later attempt, and should be doomed and not live",
        ),
        (
            lambda ledger, _: ledger.state.kept.update({"1/1/0": Kept(Aim.MOVE, 1.0)}),
            "1/1/0 is kept for a later attempt, and should be doomed and not live",
        ),
        (
            lambda ledger, _: (
                ledger.state.doomed.update({"1/1/0": 1.0}), ledger.state.kept.update({"1/1/0": Kept(Aim.SAVE, 1.0)})
            ),
            "1/1/0 is kept for a later attempt, and should be doomed and not live",
        ),
        (lambda ledger, _: ledger.state.rooms.pop("1/1/0"), "1/1/0 is open and not indexed"),
        (lambda ledger, _: ledger.by_host["h0"].pop("1/1/0"), "1/1/0 is open and not indexed"),
        (lambda ledger, _: ledger.by_unit["1"].pop("1/1/0"), "1/1/0 is open and not indexed"),
        (lambda ledger, _: ledger.by_host.pop("h2"), "1/1/0 is open and not indexed"),
        (
            lambda ledger, _: ledger.weight["h1"].__setattr__("size", Size(3, 64)),
            "doomed VMs on h1 take 1 core and 64 MiB, counted 3 cores and 64 MiB",
        ),
        (lambda ledger, _: ledger.by_host.pop("h1"), "doomed VMs on h1 take 0 cores and 0 MiB, counted 1 core and 64 MiB"),
        (
            lambda ledger, _: ledger.leavers.update({"h1": {"5/1/0": None}})
            or ledger.state.leaving.update({"5/1/0": Leaving([Room(Size(7, 1), host="h1"), Room(Size(9, 1), host="h0")], 1.0)}),
            "doomed VMs on h1 take 8 cores and 65 MiB, counted 1 core and 64 MiB",
        ),
    ],
)  # fmt: skip
def test_what_must_hold_is_checked(harm: Harm, found: str) -> None:
    bench = held("h0", "h1", "h2")
    for unit, host in (("1", "h0"), ("2", "h1"), ("3", "h2")):
        bench.run(unit, host)
    bench.close("2")
    bench.close("3", disposal=SUSPEND)
    assert bench.core.check() == []
    ledger(bench).by_host["h2"] = ledger(bench).by_host["h2"]
    harm(ledger(bench), bench.custody)
    if found.startswith("1/1/0 is open and not") and "h2" not in ledger(bench).by_host:
        found = found.replace("1/1/0", "3/1/0")
    assert found in bench.core.check()


def test_who_waits_for_a_job_is_neither_doomed_nor_live() -> None:
    bench = waiting("1")
    assert bench.core.check() == []
    _host(bench.custody, "h0", "lost")
    assert bench.core.check() == ["1/1/0 is open on h0 and should be doomed"]


def test_nothing_is_deployed_that_is_not_journaled_nor_allocated_that_is() -> None:
    bench = held()
    bench.run("1", "h0")
    fleet = bench.core.vm_reconciler
    fleet.deploys["1/1/0"] = None
    assert bench.core.check() == []
    fleet.deploys["9/1/0"] = None
    fleet.allocations.allocating = {key: Allocate("1", 1, 0, "h0", Size(1, 64), key) for key in ("1/1/0", "9/1/0")}
    assert bench.core.check() == [
        "9/1/0 is to be deployed and not journaled (X1)",
        "1/1/0 is allocated again (X2)",
    ]


@pytest.mark.parametrize("host", ["h2", "h9"])
def test_what_is_journaled_for_a_host_that_is_not_held_has_no_reason_to_run(host: str) -> None:
    bench = held()
    bench.place("1", "h0")
    bench.write("executor", f.VmAllocated(unit="1", attempt=1, rank=0, vm=7, host=host))
    assert list(ledger(bench).state.doomed) == ["1/1/0"]


def test_what_has_a_whole_host_is_taken_over_by_a_job_that_wants_one() -> None:
    bench = held(warm=WARM)
    place(bench, "1", "h0", exclusive=True)
    bench.settle()
    vm = bench.custody.state.vms["1/1/0"].vm
    bench.report("1")
    bench.park("1")
    bench.settle()
    place(bench, "2", "h0", exclusive=True)
    bench.settle()
    assert bench.custody.state.vms["2/1/0"].vm == vm


def test_of_an_attempt_that_is_broken_nothing_is_wanted_after_a_snapshot() -> None:
    bench = held()
    bench.place("1", "h0")
    lost(bench, "h0")
    loaded = Ledger(bench.custody)
    loaded.load(ledger(bench).state)
    assert (loaded.wants, loaded.binding) == ({}, {})
