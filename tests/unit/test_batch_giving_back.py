"""How attempts end when their hosts are wanted: disposal, counts, and who moves where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig
from schemas.facts import Disposal
from schemas.ids import job_of
from schemas.reasons import Reason
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.custody.state import Broken, Host, Unit, Vm
from services.scheduler.core.batch import dispositions, reclaim
from services.scheduler.core.batch.dispositions import Dispositions, close_preempted, requeue, start_again
from services.scheduler.core.batch.faults import is_fault
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.preemption import candidates
from services.scheduler.core.batch.reclaim import moves
from services.scheduler.core.batch.state import Again, Job, Paused, Refused, State
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad
from services.scheduler.core.state.limits import Limit
from services.scheduler.core.state.room import Room
from services.scheduler.core.state.shape import Shape
from tests.support.sizes import sized
from tests.support.world import batch, cloud

AT = 10_000.0
WHY, LOST = because.Reclaimed(hosts=1), because.LostHost()
POLICY = BatchPolicy(requeues_max=3)


def unit(name: str = "1", **fields: Any) -> Unit:
    given: dict[str, Any] = {"state": "open", "attempt": 2, "hosts": ("a",)}
    return Unit(id=name, dept="hpc", **sized(given | fields))


def job(**fields: Any) -> Job:
    given: dict[str, Any] = {"nodes": 1, "cores": 1, "memory_mb": 1, "exclusive": False, "walltime_s": 100.0}
    given |= {"priority": 0, "on_reclaim": None, "array": (), "throttle": 0, "after": (), "entered": 0, "left": 1}
    return Job(**sized(given | fields))


def host(name: str, **fields: Any) -> Host:
    given: dict[str, Any] = {"cores": 4, "memory_mb": 400, "state": "held", "dept": "hpc"}
    return Host(name=name, **sized(given | fields))


def fold(*units: Unit, hosts: tuple[Host, ...] = (), config: CloudConfig | None = None) -> Custody:
    custody = Custody()
    custody.state.at, custody.state.config = AT, config
    custody.state.units = {one.id: one for one in units}
    custody.state.hosts = {one.name: one for one in hosts}
    custody.index.held = {"hpc": {one.name: None for one in hosts if one.dept == "hpc"}}
    custody.index.apart = {one.name: None for one in hosts if one.cordoned is not None}
    return custody


# ---------------------------------------------------------------------------------------------------------------- reclaim


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (because.Reclaimed, False),
        (because.Preempted, False),
        (because.HostTaken, False),
        (because.HostDrained, False),
        (because.LostHost, False),
        (because.NotSaved, False),
        (because.EndedVm, True),
        (because.BootTimeout, True),
    ],
)
def test_what_was_wanted_by_somebody_or_lost_is_no_fault(code: because.Kind, fault: bool) -> None:
    assert is_fault(code().ended_by) is fault


@pytest.mark.parametrize(
    ("wish", "saved", "disposal", "told"),
    [
        ("requeue", False, Disposal.REQUEUE, {}),
        ("kill", False, Disposal.KILL, {}),
        ("suspend", True, Disposal.SUSPEND, {}),
        ("suspend", False, Disposal.REQUEUE, {"asked": "suspend", "instead": "requeue"}),
        ("migrate", True, Disposal.SUSPEND, {"asked": "migrate", "instead": "suspend"}),
        ("migrate", False, Disposal.REQUEUE, {"asked": "migrate", "instead": "requeue"}),
    ],
)
def test_an_attempt_ends_as_its_job_wishes_or_is_told_what_was_done_instead(
    wish: Any, saved: bool, disposal: Disposal, told: dict[str, str]
) -> None:
    closing = close_preempted("1", 2, wish, None, POLICY, WHY, saved=saved)
    why = because.Reclaimed(hosts=1, **told)
    assert closing == f.AttemptClosed(unit="1", attempt=2, disposal=disposal, why=why)


@pytest.mark.parametrize(
    ("wish", "began_at", "used_s", "saves"),
    [
        ("suspend", 5.0, 0.0, True),
        ("migrate", 0.0, 0.0, True),
        ("suspend", None, 0.5, True),
        ("suspend", None, 0.0, False),
        ("requeue", 5.0, 1.0, False),
        ("kill", 5.0, 1.0, False),
    ],
)
def test_work_is_saved_if_it_is_wished_and_there_is_some(
    wish: Any, began_at: float | None, used_s: float, saves: bool
) -> None:
    assert dispositions.saves(unit(began_at=began_at), wish, used_s) is saves


@pytest.mark.parametrize(
    ("code", "again", "most", "killed"),
    [
        (because.Reclaimed, None, 3, None),
        (because.Reclaimed, Again(entered=0, requeues=2, faults=9), 3, None),
        (because.Reclaimed, Again(entered=0, requeues=3), 3, (3, 3)),
        (because.Reclaimed, None, 0, (0, 0)),
        (because.EndedVm, Again(entered=0, requeues=9, faults=2), 3, None),
        (because.EndedVm, Again(entered=0, faults=3), 3, (3, 3)),
        (because.EndedVm, None, 0, (0, 0)),
        (because.EndedVm, Again(entered=0, faults=9), 100, None),
        (because.EndedVm, Again(entered=0, faults=10), 100, (10, 10)),
    ],
)
def test_who_was_requeued_too_often_is_killed_and_told_how_often(
    code: because.Kind, again: Again | None, most: int, killed: tuple[int, int] | None
) -> None:
    closing = requeue("1", 2, again, BatchPolicy(requeues_max=most), code.CAUSE, code(vm="x"))
    if killed is None:
        assert (closing.disposal, closing.why) == (Disposal.REQUEUE, code(vm="x"))
    else:
        told = code(vm="x", requeues=killed[0], requeues_max=killed[1])
        assert (closing.disposal, closing.why, closing.attempt) == (Disposal.KILL, told, 2)


PROVEN = {str(n): True for n in range(3)}


@pytest.mark.parametrize(
    ("again", "counted", "failed"),
    [
        (None, True, None),
        (Again(entered=0, launches=3, failed_on=PROVEN), True, None),
        (Again(entered=0, launches=4, failed_on=PROVEN), True, 5),
        (Again(entered=0, launches=4, failed_on=PROVEN), False, None),
    ],
)
def test_what_did_not_begin_starts_again_or_is_held(again: Again | None, counted: bool, failed: int | None) -> None:
    closing = start_again("1", 2, again, because.EndedVm(vm="x"), {"vm": "x"}, counted=counted)
    told = {"failed": failed} if failed else {}
    assert closing.why == because.EndedVm(vm="x", began=False, **told)
    assert (closing.disposal, closing.hold) == (Disposal.REQUEUE, failed is not None)
    assert closing.hold_reason == (because.Held(failed=failed, vm="x") if failed else None)


def test_loads_are_hosts_by_name_with_who_lives_there_and_without_the_cordoned() -> None:
    hosts = (
        host("b", units=dict.fromkeys(["10", "9", "2"])),
        host("a"),
        host("c", cordoned="x", units={"3": None}),
        host("d", dept="bio"),
    )
    custody = fold(hosts=hosts, config=cloud(batch("hpc")))
    custody.index.parked = {"a": {"k": None}}
    assert reclaim.loads(custody, "hpc", {"2": None}) == [
        HostLoad("a", False, (), True),
        HostLoad("b", False, ("9", "10"), False),
    ]
    custody.state.config = cloud(batch("bio"))
    assert [(load.name, load.cordoned) for load in reclaim.loads(custody, "hpc", {})] == [
        ("a", False),
        ("b", False),
        ("c", True),
    ]


@pytest.mark.parametrize(
    ("began_at", "used_s", "saved", "kept_s", "running_s", "lost_s"),
    [
        (None, 0.0, False, 0.0, 0.0, 0.0),
        (AT - 50.0, 0.0, False, 0.0, 50.0, 50.0),
        (AT + 50.0, 0.0, False, 0.0, 0.0, 0.0),
        (AT - 50.0, 30.0, False, 20.0, 80.0, 60.0),
        (AT - 50.0, 30.0, True, 20.0, 80.0, 0.0),
        (AT - 50.0, 0.0, False, 70.0, 50.0, 0.0),
        (None, 30.0, False, 0.0, 30.0, 30.0),
    ],
)
def test_a_candidate_loses_what_it_ran_and_has_not_saved(
    began_at: float | None, used_s: float, saved: bool, kept_s: float, running_s: float, lost_s: float
) -> None:
    custody = fold(unit(began_at=began_at, nodes=2, cores=3), unit("2"))
    loads = [HostLoad("a", False, ("1", "2")), HostLoad("b", False, ("1",))]
    found = candidates(
        *(
            custody,
            loads,
            AT,
            lambda u: used_s if u == "1" else 0.0,
            lambda _: saved,
            lambda u: u == "1",
            lambda _: kept_s,
        )
    )
    assert found["1"] == Candidate("1", 2, running_s, lost_s, True, cores=6)
    assert ([*found], found["2"].best_effort) == (["1", "2"], False)


def test_a_victim_is_told_what_it_ran_and_with_a_checkpoint_what_it_loses() -> None:
    victim = Candidate("1", 1, 12.34567, 3.45678)
    told = {"hosts": 2, "running_s": 12.346, "victims": "youngest-first"}
    assert reclaim.why_victim(victim, 2, 0.0, "youngest-first") == because.Reclaimed(**told)  # type: ignore[arg-type]
    told["lost_s"] = 3.457
    assert reclaim.why_victim(victim, 2, 5.0, "youngest-first") == because.Reclaimed(**told)  # type: ignore[arg-type]


def test_each_host_is_released_once_the_last_on_it_is_closed_and_idle_ones_before() -> None:
    custody = fold(unit("1", hosts=("a", "b")), unit("2", hosts=("b",)), unit("3", hosts=("x", "b")))
    closings = {
        name: f.AttemptClosed(unit=name, attempt=2, disposal=Disposal.REQUEUE, why=WHY) for name in ("1", "2", "3")
    }
    placement = f.UnitPlaced(unit="2", attempt=3, hosts=("z",), cores=1, memory_mb=1, exclusive=False, reason=WHY)
    found = reclaim.interleave(custody, Choice(["2", "1", "3"], ["b", "a", "c"]), closings, {"2": placement}, LOST)
    released = {name: f.HostReleased(host=name, reason=LOST) for name in "abc"}
    assert found == [
        *(released["c"], closings["2"], placement),
        *(closings["1"], released["a"], closings["3"], released["b"]),
    ]


# ---------------------------------------------------------------------------------------------------------------- endings


def endings(
    one: Unit, its: Job | None = None, *, able: bool = True, again: Again | None = None, **policy: Any
) -> Dispositions:
    config = msgspec.structs.replace(cloud(batch("hpc", **policy)), capabilities=ALL if able else ())
    state = State(jobs={job_of(one.id): its or job()}, again={one.id: again} if again else {})
    settings = config.departments[0].batch
    assert settings is not None
    return Dispositions(fold(one, config=config), Jobs(fold(one, config=config), "hpc", state), lambda: settings)


BEGAN: dict[str, Any] = {"began_at": AT - 50.0}


@pytest.mark.parametrize(
    ("broken", "fields", "disposal", "why"),
    [
        (Broken.HOST_RELEASED, BEGAN, Disposal.KILL, because.Reclaimed()),
        (Broken.HOST_SEIZED, BEGAN, Disposal.KILL, because.HostTaken()),
        (Broken.HOST_LOST, BEGAN, Disposal.REQUEUE, LOST),
        (Broken.HOST_LOST, {}, Disposal.REQUEUE, because.LostHost(began=0)),
        (Broken.NOT_SAVED, {}, Disposal.REQUEUE, because.NotSaved()),
        (Broken.VM_ENDED, BEGAN, Disposal.REQUEUE, because.EndedVm()),
        (Broken.HOST_LOST, {"cancelled": True}, Disposal.CANCELLED, because.Cancelled()),
        (Broken.HOST_SEIZED, {"cancelled": True}, Disposal.CANCELLED, because.Cancelled()),
    ],
)
def test_a_broken_attempt_ends_by_what_broke_it(
    broken: Broken, fields: dict[str, Any], disposal: Disposal, why: Reason
) -> None:
    found = endings(unit(broken=broken, **fields), on_reclaim="kill").broken("1")
    assert (found.unit, found.attempt, found.disposal, found.why) == ("1", 2, disposal, why)


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (None, {}),
        (Refused(attempt=1, failure="quota", why="no"), {}),
        (Refused(attempt=2, failure="quota", why="no"), {"refused": "quota", "refused_why": "no"}),
        (Refused(attempt=2, failure="", why="no"), {"vm": "no"}),
    ],
)
def test_what_opennebula_said_of_this_attempt_is_told(refused: Refused | None, told: dict[str, str]) -> None:
    found = endings(unit(broken=Broken.VM_ENDED, **BEGAN))
    if refused:
        found.jobs.state.refused["1"] = refused
    assert found.broken("1").why == because.EndedVm(**told)
    late = found.overdue(Limit(AT, "1", 2, "boot"))
    assert late.why == because.BootTimeout(limit="boot", boot_timeout_s=60.0, **told)


LEASE = f.Lease(kind="advance", start_at=AT)


@pytest.mark.parametrize(
    ("kind", "lease", "disposal", "why"),
    [
        ("walltime", None, Disposal.TIMEOUT, because.Walltime(walltime_s=100.0)),
        ("walltime", LEASE, Disposal.STOPPED, because.LeaseEnded(walltime_s=100.0)),
        ("slot", LEASE, Disposal.STOPPED, because.LeaseEnded(walltime_s=100.0)),
        ("boot", LEASE, Disposal.REQUEUE, because.BootTimeout(limit="boot", boot_timeout_s=60.0, began=0)),
        ("start", None, Disposal.REQUEUE, because.BootTimeout(limit="start", boot_timeout_s=60.0, began=0)),
    ],
)
def test_what_is_over_its_limit_ends_by_that_limit(
    kind: Any, lease: f.Lease | None, disposal: Disposal, why: Reason
) -> None:
    found = endings(unit(), job(lease=lease)).overdue(Limit(AT, "1", 2, kind))
    assert (found.unit, found.attempt, found.disposal, found.why) == ("1", 2, disposal, why)


def test_a_failed_start_while_starts_are_paused_is_held_against_nobody() -> None:
    again = Again(entered=0, launches=4, failed_on=PROVEN)
    found = endings(unit(), again=again)
    assert found.overdue(Limit(AT, "1", 2, "boot")).hold
    assert not found.overdue(Limit(AT, "1", 2, "start")).hold
    found.jobs.state.paused = Paused(since=0.0, why="x")
    assert not found.overdue(Limit(AT, "1", 2, "boot")).hold


@pytest.mark.parametrize(
    ("its", "able", "department", "requeues", "saved"),
    [
        ({"on_reclaim": "suspend"}, True, "requeue", 0, True),
        ({"on_reclaim": "suspend"}, False, "requeue", 0, False),
        ({"on_reclaim": "requeue"}, True, "suspend", 0, False),
        ({}, True, "suspend", 0, True),
        ({}, True, "requeue", 0, False),
        ({"best_effort": True}, True, "requeue", 0, True),
        ({"best_effort": True}, False, "requeue", 0, False),
        ({"best_effort": True, "on_reclaim": "kill"}, True, "requeue", 0, False),
        ({}, True, "suspend", 3, True),
        ({}, True, "suspend", 4, False),
    ],
)
def test_who_wishes_it_is_suspended_where_that_can_be_done_and_has_not_failed_too_often(
    its: dict[str, Any], able: bool, department: str, requeues: int, saved: bool
) -> None:
    again = Again(entered=0, requeues=requeues) if requeues else None
    policy: dict[str, Any] = {"on_reclaim": department, "requeues_max": 3}
    found = endings(unit(**BEGAN), job(**its), able=able, again=again, **policy)
    assert found.saved("1") is saved
    assert not found.saves_later("1")
    waits = endings(unit(), job(**its), able=able, again=again, **policy)
    assert not waits.saved("1")
    assert waits.saves_later("1") is (saved or requeues == 4)


@pytest.mark.parametrize(
    ("wish", "capabilities", "began", "moves"),
    [
        ("migrate", ("live_migration",), True, True),
        ("migrate", (), True, False),
        ("migrate", ("live_migration",), False, False),
        ("suspend", ("live_migration",), True, False),
    ],
)
def test_who_wishes_to_move_and_has_begun_moves_where_the_cloud_can(
    wish: str, capabilities: tuple[str, ...], began: bool, moves: bool
) -> None:
    found = endings(unit(**(BEGAN if began else {})), on_reclaim=wish)
    config = found.custody.state.config
    assert config is not None
    found.custody.state.config = msgspec.structs.replace(config, capabilities=capabilities)
    assert found.wishes_to_move("1") is moves
    found.custody.state.config = None
    assert not found.wishes_to_move("1")
    assert not found.saved("1")


@pytest.mark.parametrize(
    ("requeues", "wish", "kept"), [(0, None, 30.0), (2, None, 30.0), (3, None, 0.0), (0, "kill", 0.0)]
)
def test_who_would_be_killed_keeps_nothing(requeues: int, wish: Any, kept: float) -> None:
    found = endings(unit(**BEGAN), job(on_reclaim=wish), again=Again(entered=0, requeues=requeues), requeues_max=3)
    found.jobs.checkpoints.kept_s = lambda _: 30.0  # type: ignore[method-assign, assignment]
    assert found.kept_s("1") == kept


def test_at_the_boundary_of_what_a_job_and_its_cloud_allow() -> None:
    spare = endings(unit(**BEGAN), job(best_effort=True), able=False, on_reclaim="kill")
    assert spare.preempted("1", WHY).disposal is Disposal.KILL
    assert endings(unit(**BEGAN), job(on_reclaim="suspend"), requeues_max=0).saved("1")


def test_whose_room_is_needed_makes_way_unless_it_ends_anyway() -> None:
    found = endings(unit(**BEGAN), job(best_effort=True))
    (closing,) = found.made_way(["1", "2"], "7", {"2": None})
    assert (closing.unit, closing.disposal, closing.why) == ("1", Disposal.SUSPEND, because.Preempted(job="7"))
    assert found.moved("1", WHY) == f.AttemptClosed(unit="1", attempt=2, disposal=Disposal.MIGRATE, why=WHY)


# ----------------------------------------------------------------------------------------------------------------- moving


def movable(*units: Unit, hosts: tuple[Host, ...]) -> tuple[Custody, Room]:
    for one in units:
        for name in one.hosts:
            here = next(each for each in hosts if each.name == name)
            here.units[one.id], here.used = None, here.used.plus(one.size)
    custody = fold(*units, hosts=hosts, config=cloud(batch("hpc")))
    return custody, Room.of(custody, "hpc")


def test_ranks_that_leave_go_to_the_best_hosts_that_stay_and_the_others_keep_theirs() -> None:
    one = unit(hosts=("a", "b", "c"), nodes=3, cores=2, **BEGAN)
    other = unit("2", hosts=("e",), cores=1)
    custody, room = movable(one, other, hosts=tuple(host(name) for name in "abcdef"))
    assert moves(custody, room, ["1"], ["a", "c"]) == {"1": ("e", "b", "d")}
    assert moves(custody, room, ["1"], ["a", "b", "c", "d"]) == {}, "not all ranks find room"
    assert moves(custody, room, ["1"], ["a", "c", "d", "e", "f"]) == {}, "nowhere beside itself"
    leaving = Vm(unit="9", attempt=1, rank=0, vm=1, host="e", allocated_at=0.0)
    custody.state.vms["k"], custody.state.hosts["e"].vms = leaving, {"k": None}
    assert moves(custody, room, ["1"], ["a"]) == {"1": ("d", "b", "c")}, "one on its way out is still there"
    custody.state.units["9"] = unit("9", attempt=1)
    assert moves(custody, room, ["1"], ["a"]) == {"1": ("e", "b", "c")}


def test_who_finds_no_room_keeps_nobody_else_from_moving() -> None:
    custody, room = movable(unit("1", cores=2), unit("2", cores=2), hosts=(host("a"), host("b"), host("c", cores=8)))
    sizes = {"1": Shape(1, Size(9, 1), False), "2": Shape(1, Size(1, 1), False)}
    assert moves(custody, room, ["1", "2"], ["a"], sizes.__getitem__) == {"2": ("b",)}
    whole = {"1": Shape(1, Size(1, 1), False), "2": Shape(1, Size(1, 1), True)}
    assert moves(custody, room, ["1", "2"], ["a"], whole.__getitem__) == {"1": ("b",), "2": ("c",)}


@pytest.mark.parametrize("fields", [{"held": True}, {"cancelled": True}])
def test_who_is_held_or_cancelled_does_not_move(fields: dict[str, Any]) -> None:
    custody, room = movable(unit(cores=2, **fields), unit("2", cores=2), hosts=(host("a"), host("b")))
    assert moves(custody, room, ["1", "2"], ["a"]) == {"2": ("b",)}


@pytest.mark.parametrize(
    ("exclusive", "expected"), [(False, {"1": ("b",), "2": ("b",)}), (True, {"1": ("b",), "2": ("c",)})]
)
def test_each_has_the_room_that_those_before_leave(exclusive: bool, expected: dict[str, tuple[str, ...]]) -> None:
    units = [unit(name, cores=1, memory_mb=150, exclusive=exclusive) for name in ("1", "2", "3")]
    custody, room = movable(*units, hosts=(host("a"), host("b"), host("c", cores=8)))
    assert moves(custody, room, ["1", "2"], ["a"]) == expected
    third = moves(custody, room, ["1", "2", "3"], ["a"]).get("3")
    assert third == (None if exclusive else ("c",)), "memory runs out as cores do"
    asked = moves(custody, room, ["1", "2"], ["a"], lambda _: Shape(1, Size(3, 1), False))
    assert asked == {"1": ("b",), "2": ("c",)}
