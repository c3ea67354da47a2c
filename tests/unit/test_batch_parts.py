"""Parts of the batch core at their boundaries: bounds on preemption, failed starts, notices, checkpoints, dependencies."""

from __future__ import annotations

from typing import Any

import pytest

import services.scheduler.core.batch.preemption as guards_
from schemas import facts as f
from schemas import reasons as because
from schemas.causes import Cause
from schemas.config import BatchPolicy, CloudConfig, Policy
from schemas.facts import Dependency
from schemas.reasons import Reason
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Quota, Unit
from services.scheduler.core.batch import reclaim
from services.scheduler.core.batch.checkpoints import Checkpoints, ran_for
from services.scheduler.core.batch.dependencies import verdict
from services.scheduler.core.batch.launches import (
    DOUBLED_MAX,
    FAILURES_MAX,
    HOSTS_MAX,
    PROVEN_MIN,
    WAIT_FIRST_S,
    WAIT_MAX_S,
    Launches,
    is_counted,
    is_its_own,
    is_launch_failure,
)
from services.scheduler.core.batch.preemption import HOUR_S, Guards
from services.scheduler.core.batch.state import WHOLE, Again, Checkpoint, Job, Paused, State
from services.scheduler.core.policies.victims import Candidate
from services.scheduler.core.state.shape import Kind
from tests.support.sizes import sized
from tests.support.world import batch

AT = 10_000.0
LOST, ENDED, NOT_UP = because.LostHost(), because.EndedVm(), because.BootTimeout(limit="boot")


def fold(*units: Unit, config: CloudConfig | None = None, hosts: tuple[Host, ...] = (), at: float = AT) -> Custody:
    custody = Custody()
    custody.state.at, custody.state.config = at, config
    custody.state.units = {one.id: one for one in units}
    custody.state.hosts = {one.name: one for one in hosts}
    custody.index.held = {"hpc": {one.name: None for one in hosts if one.dept == "hpc"}}
    custody.index.apart = {one.name: None for one in hosts if one.cordoned is not None}
    custody.index.open = {"hpc": {one.id: None for one in units if one.state == "open"}}
    return custody


def unit(name: str = "1", **fields: Any) -> Unit:
    given: dict[str, Any] = {"state": "open", "attempt": 1, "hosts": ("a",)}
    return Unit(id=name, dept="hpc", **sized(given | fields))


def job(**fields: Any) -> Job:
    given: dict[str, Any] = {"nodes": 1, "cores": 1, "memory_mb": 1, "exclusive": False, "walltime_s": 10.0}
    given |= {"priority": 0, "on_reclaim": None, "array": (), "throttle": 0, "after": (), "entered": 0, "left": 1}
    return Job(**sized(given | fields))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, Kind()),
        ({"service": "web"}, Kind(service="web")),
        ({"best_effort": True}, Kind(best_effort=True)),
        ({"short": True}, Kind(declared=True)),
        ({"short": True, "overran": True}, Kind()),
        ({"lease": f.Lease(kind="best-effort")}, Kind()),
        ({"lease": f.Lease(kind="advance", start_at=1.0)}, Kind(local=True)),
    ],
)
def test_the_kind_of_a_job_is_what_it_was_declared_to_be(fields: dict[str, Any], kind: Kind) -> None:
    assert job(**fields).kind == kind


# ----------------------------------------------------------------------------------------------------------------- guards


def guards(
    *units: Unit, made_way: list[float] | None = None, again: dict[str, Again] | None = None, **policy: Any
) -> Guards:
    state, settings = State(made_way=made_way or [], again=again or {}), BatchPolicy(**policy)
    return Guards(fold(*units), state, lambda: settings)


@pytest.mark.parametrize(
    ("policy", "began_at", "preempted", "guarded"),
    [
        ({}, None, 9, False),
        ({"min_run_s": 60.0}, None, 0, True),
        ({"min_run_s": 60.0}, AT - 59.0, 0, True),
        ({"min_run_s": 60.0}, AT - 60.0, 0, False),
        ({"preemptions_max": 2}, None, 0, False),
        ({"preemptions_max": 2}, None, 1, False),
        ({"preemptions_max": 2}, None, 2, True),
        ({"preemptions_max": 1}, None, 2, True),
        ({"preemptions_max": 2, "min_run_s": 60.0}, AT - 60.0, 1, False),
        ({"preemptions_max": 2, "min_run_s": 60.0}, AT - 60.0, 2, True),
    ],
)
def test_who_has_not_run_long_enough_or_made_way_too_often_is_guarded(
    policy: dict[str, Any], began_at: float | None, preempted: int, guarded: bool
) -> None:
    again = {"1": Again(entered=0, preempted=preempted)} if preempted else {}
    found = guards(unit(began_at=began_at), again=again, **policy)
    assert found.guarded("1", AT) is guarded
    marked = found.marked({"1": Candidate("1", 1, 0.0, 0.0)}, AT)
    assert marked["1"].guarded is guarded


def test_an_hour_has_so_many_and_each_is_an_hour_old_in_its_moment() -> None:
    times = [AT - HOUR_S, AT - HOUR_S + 1.0, AT - 5.0]
    assert guards(made_way=times).left(AT) is None
    found = guards(made_way=times, preemptions_per_hour_max=3)
    assert (found.left(AT - 1.0), found.left(AT), found.left(AT + 1.0)) == (0, 1, 2)
    assert guards(made_way=times, preemptions_per_hour_max=1).left(AT) == 0
    assert found.next_moment([], AT) == AT + 1.0
    assert found.next_moment([], AT + 1.0) == AT - 5.0 + HOUR_S
    assert found.next_moment([], AT + HOUR_S) == NEVER
    assert guards(made_way=times).next_moment([], AT) == NEVER


def test_time_lifts_the_guard_of_each_that_runs_and_the_first_moment_counts() -> None:
    found = guards(unit("1", began_at=AT - 10.0), unit("2", began_at=AT - 30.0), unit("3"), min_run_s=60.0)
    assert found.next_moment(["1", "2", "3"], AT) == AT + 30.0
    assert found.next_moment(["1", "2", "3"], AT + 30.0) == AT + 50.0
    assert found.next_moment(["1", "2", "3"], AT + 50.0) == NEVER
    both = guards(unit(began_at=AT), made_way=[AT - HOUR_S + 70.0], min_run_s=60.0, preemptions_per_hour_max=1)
    assert both.next_moment(["1"], AT) == AT + 60.0
    assert both.next_moment(["1"], AT + 60.0) == AT + 70.0


def test_who_ended_for_a_job_is_remembered_for_an_hour_and_never_more_than_can_be_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards_, "REMEMBERED_MAX", 3)
    found = guards(made_way=[AT - HOUR_S, AT - HOUR_S + 1.0])
    found.ended(Cause.RECLAIMED)
    assert len(found.state.made_way) == 2
    found.ended(Cause.PREEMPTED)
    assert found.state.made_way == [AT - HOUR_S + 1.0, AT]
    found.ended(Cause.PREEMPTED)
    found.ended(Cause.PREEMPTED)
    assert found.state.made_way == [AT, AT, AT]


# --------------------------------------------------------------------------------------------------------------- launches


def launches(*names: str, paused: bool = False) -> Launches:
    state = State(again={name: Again(entered=0) for name in names})
    state.paused = Paused(since=0.0, why="x") if paused else None
    return Launches(fold(), state)


@pytest.mark.parametrize(
    ("began_at", "why", "expected"),
    [(None, LOST, True), (None, ENDED, True), (None, NOT_UP, True), (5.0, LOST, False), (0.0, LOST, False)]
    + [(None, code(), False) for code in (because.Reclaimed, because.Preempted, because.HostTaken, because.NotSaved)],
)
def test_what_ended_before_it_began_by_no_wish_is_a_failed_start(
    began_at: float | None, why: Reason, expected: bool
) -> None:
    assert is_launch_failure(unit(began_at=began_at), why.ended_by) is expected


def test_a_failed_start_counts_unless_starts_are_paused_or_its_machines_never_started() -> None:
    assert is_counted(State(), NOT_UP.ended_by)
    assert is_counted(State(), LOST.ended_by)
    assert not is_counted(State(), because.BootTimeout(limit="start").ended_by)
    assert not is_counted(State(paused=Paused(since=0.0, why="x")), NOT_UP.ended_by)


def test_the_first_wait_is_none_and_each_next_one_twice_as_long_up_to_the_longest() -> None:
    found = launches("1")
    waits = []
    for _ in range(DOUBLED_MAX + 5):
        found.failed("1", ("a",), LOST)
        waits.append(found.state.again["1"].not_before - AT)
    assert waits[:5] == [0.0, WAIT_FIRST_S, 2 * WAIT_FIRST_S, 4 * WAIT_FIRST_S, 8 * WAIT_FIRST_S]
    assert waits[10:] == [WAIT_MAX_S] * (len(waits) - 10)
    found.failed("1", ("a",), LOST, 5.0)
    assert found.state.again["1"].not_before == AT + 5.0
    found.failed("1", ("a",), LOST, 1e9)
    assert found.state.again["1"].not_before == AT + WAIT_FIRST_S * 2**DOUBLED_MAX
    again = launches("2", paused=True)
    again.failed("2", ("a",), LOST)
    assert (again.state.again["2"].launches, again.state.again["2"].not_before) == (0, 0.0)
    assert again.failing == {"2": None}, "where it failed is remembered all the same"


def test_hosts_where_it_failed_are_remembered_longest_ago_first_and_so_many() -> None:
    found = launches("1")
    found.failed("1", ("a", "b"), LOST)
    found.state.again["1"].failed_on["a"] = True
    found.failed("1", ("a",), LOST)
    assert list(found.state.again["1"].failed_on.items()) == [("b", False), ("a", True)]
    found.failed("1", tuple(f"h{n}" for n in range(HOSTS_MAX - 1)), LOST)
    assert [*found.state.again["1"].failed_on][:2] == ["a", "h0"]
    assert len(found.state.again["1"].failed_on) == HOSTS_MAX


@pytest.mark.parametrize(
    ("launches", "failed_on", "own"),
    [
        (FAILURES_MAX - 1, [True] * PROVEN_MIN, True),
        (FAILURES_MAX - 2, [True] * PROVEN_MIN, False),
        (FAILURES_MAX - 1, [True] * (PROVEN_MIN - 1) + [False], False),
        (FAILURES_MAX - 1, [True] * PROVEN_MIN + [False], True),
        (FAILURES_MAX - 1, [True] * (PROVEN_MIN - 1), True),
        (FAILURES_MAX - 1, [True], True),
        (FAILURES_MAX - 1, [True, False], False),
        (FAILURES_MAX - 1, [False], False),
        (FAILURES_MAX - 1, [], False),
    ],
)
def test_it_is_its_own_trouble_when_others_begin_where_it_does_not(
    launches: int, failed_on: list[bool], own: bool
) -> None:
    again = Again(entered=0, launches=launches, failed_on={str(n): proven for n, proven in enumerate(failed_on)})
    assert is_its_own(again) is own
    assert not is_its_own(None)


def test_whoever_begins_proves_its_hosts_to_others_and_ends_its_own_count() -> None:
    found = launches("1", "2", "3")
    for name, hosts in (("1", ("a", "b")), ("2", ("b", "c"))):
        found.failed(name, hosts, LOST)
        found.failed(name, hosts, LOST)
    assert found.must_wait("1", AT, eligible=True)
    found.began("1", ("b", "x"))
    mine, other = found.state.again["1"], found.state.again["2"]
    assert (mine.launches, mine.not_before, mine.failed_on) == (0, 0.0, {})
    assert other.failed_on == {"b": True, "c": False}
    assert (found.failing, found.waiting) == ({"2": None}, {})
    found.forget("nobody")
    assert Launches(found.custody, found.state).failing == {"2": None}


def test_who_waits_may_start_in_its_moment_and_only_if_nothing_else_keeps_it() -> None:
    found = launches("1", "2")
    assert (found.next_due(), found.due(AT)) == (NEVER, [])
    found.state.again["1"].not_before, found.state.again["2"].not_before = AT + 5.0, AT + 9.0
    assert not found.must_wait("1", AT, eligible=False)
    assert not found.must_wait("nobody", AT, eligible=True)
    assert found.waiting == {}
    assert found.must_wait("1", AT, eligible=True)
    assert found.must_wait("2", AT, eligible=True)
    assert (found.next_due(), found.waiting) == (AT + 5.0, {"1": AT + 5.0, "2": AT + 9.0})
    assert (found.due(AT + 4.0), found.due(AT + 5.0)) == ([], ["1"])
    assert not found.must_wait("1", AT + 5.0, eligible=True)
    assert found.waiting == {"2": AT + 9.0}
    assert not found.must_wait("2", AT, eligible=False)
    assert found.waiting == {}


def test_when_starts_go_on_nobody_who_failed_waits() -> None:
    found = launches("1", "2")
    found.failed("1", ("a",), LOST)
    found.failed("1", ("a",), LOST)
    assert found.resumed() == ["1"]
    again = found.state.again["1"]
    assert (again.launches, again.not_before, again.failed_on) == (0, 0.0, {"a": False})


# ----------------------------------------------------------------------------------------------------------------- notice

NOTICE_S = 2.0
CLOUD = CloudConfig(name="test", departments=(batch("hpc"),), policy=Policy(notice_s=NOTICE_S))


def noticed(held: int, quota: int, *lowerings: tuple[int, float], config: CloudConfig | None = CLOUD) -> Custody:
    custody = fold(config=config, hosts=tuple(Host(name=f"h{n}", dept="hpc", state="held") for n in range(held)))
    custody.state.quotas["hpc"] = Quota(hosts=quota, lowerings=list(lowerings))
    return custody


@pytest.mark.parametrize(
    ("now", "due"), [(AT - 0.5, 0), (AT, 2), (AT + 5.0, 2), (AT + 9.5, 2), (AT + 10.0, 4), (AT + 99.0, 4)]
)
def test_hosts_are_due_when_the_policys_notice_is_left_of_theirs(now: float, due: int) -> None:
    custody = noticed(6, 2, (4, AT + NOTICE_S), (2, AT + 10.0 + NOTICE_S))
    assert reclaim.due(custody, "hpc", now) == due
    assert reclaim.due(noticed(1, 2, (4, AT), (2, AT)), "hpc", now) == 0


def test_without_a_configuration_all_above_the_quota_is_due() -> None:
    assert reclaim.due(noticed(6, 2, config=None), "hpc", AT) == 4
    assert reclaim.due(noticed(1, 2, config=None), "hpc", AT) == 0
    assert reclaim.next_due(noticed(6, 2, (2, AT), config=None), "hpc", AT) == NEVER


def test_the_next_time_is_that_of_the_next_lowering_while_there_is_more_than_the_quota() -> None:
    times = ((4, AT + NOTICE_S), (2, AT + 10.0 + NOTICE_S))
    assert reclaim.next_due(noticed(6, 2, *times), "hpc", AT - 1.0) == AT
    assert reclaim.next_due(noticed(6, 2, *times), "hpc", AT) == AT + 10.0
    assert reclaim.next_due(noticed(6, 2, *times), "hpc", AT + 10.0) == NEVER
    assert reclaim.next_due(noticed(2, 2, *times), "hpc", AT) == NEVER
    assert reclaim.next_due(noticed(3, 2, *times), "hpc", AT) == AT + 10.0


def test_who_asked_for_a_grace_wakes_so_much_earlier() -> None:
    custody = noticed(6, 2, (2, AT + NOTICE_S))
    custody.state.units = {"1": unit("1", grace_s=9.0), "2": unit("2", grace_s=7.0), "3": unit("3")}
    custody.index.open = {"hpc": dict.fromkeys("123")}
    less_s, more_s = sorted(reclaim.latenesses(custody, "hpc"))
    assert 0.0 < less_s < more_s
    for after, moment in ((AT - 99.0, AT - more_s), (AT - more_s, AT - less_s), (AT - less_s, AT), (AT, NEVER)):
        assert reclaim.next_due(custody, "hpc", after) == moment


# ------------------------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize(
    ("fields", "until", "ran"),
    [
        ({"began_at": None}, AT, 0.0),
        ({"began_at": AT - 10.0}, AT, 10.0),
        ({"began_at": AT + 10.0}, AT, 0.0),
        ({"began_at": AT - 10.0, "ended_at": AT - 4.0}, AT, 10.0),  # of an attempt before
        ({"began_at": AT - 10.0, "ended_at": AT - 4.0, "state": "pending"}, AT, 6.0),
        ({"began_at": AT - 10.0, "ended_at": AT - 4.0, "state": "final"}, AT - 7.0, 3.0),
        ({"began_at": AT - 10.0, "state": "pending"}, AT, 10.0),
    ],
)
def test_an_attempt_has_run_until_its_end(fields: dict[str, Any], until: float, ran: float) -> None:
    assert ran_for(unit(**fields), until) == ran


def saved(one: Unit | None, again: Again | None = None, known: Checkpoint | None = None) -> Checkpoints:
    state = State(again={"1": again} if again else {}, checkpoints={"1": known} if known else {})
    return Checkpoints(fold(*([one] if one else [])), state)


def report(found: Checkpoints, attempt: int = 1) -> Checkpoint | None:
    found.reported(f.CheckpointReported(unit="1", attempt=attempt, percent=5.0))
    return found.state.checkpoints.get("1")


RUNS = unit(began_at=AT - 30.0)


def test_a_checkpoint_saves_what_its_life_has_run() -> None:
    assert report(saved(RUNS)) == Checkpoint(attempt=1, at=AT, saved_s=30.0, base_s=0.0, percent=5.0)
    assert report(saved(None)) is None
    assert report(saved(RUNS), 2) is None
    goes_on = report(saved(RUNS, Again(entered=0, used_s=100.0, ran_s=7.0)))
    assert goes_on is not None
    assert goes_on.saved_s == 130.0
    before = Checkpoint(attempt=1, at=0.0, saved_s=50.0, base_s=40.0)
    found = report(saved(RUNS, known=before))
    assert found is not None
    assert (found.saved_s, found.base_s) == (70.0, 40.0)
    less = report(saved(RUNS, known=Checkpoint(attempt=1, at=0.0, saved_s=90.0, base_s=10.0)))
    assert less is not None
    assert less.saved_s == 90.0, "it never shrinks"


@pytest.mark.parametrize(
    ("again", "saved_s"),
    [
        (None, 0.0),
        (Again(entered=0, ran_s=7.0), 7.0),
        (Again(entered=0, ran_s=7.0, used_s=20.0), 20.0),  # it was suspended, and goes on
    ],
)
def test_in_the_grace_time_all_that_it_ran_is_saved(again: Again | None, saved_s: float) -> None:
    found = report(saved(unit(state="pending", began_at=AT - 30.0, ended_at=AT), again))
    assert found is not None
    assert found.saved_s == saved_s
    placed = report(saved(unit(attempt=2), again))
    assert placed is not None
    assert placed.saved_s == saved_s, "the attempt before, until the latest one begins"


def test_a_new_life_begins_from_what_was_saved() -> None:
    known = Checkpoint(attempt=1, at=0.0, saved_s=50.0, base_s=10.0)
    found = saved(RUNS, Again(entered=0, used_s=5.0), known)
    found.began("1")
    assert found.kept_s("1") == 40.0, "it goes on"
    found.state.again["1"].used_s = 0.0
    found.began("1")
    assert (known.base_s, found.kept_s("1")) == (50.0, 0.0)
    first = saved(RUNS, None, Checkpoint(attempt=1, at=0.0, saved_s=50.0, base_s=10.0))
    first.began("1")
    assert first.kept_s("1") == 40.0
    first.forget("1")
    first.state.again["1"] = Again(entered=0)
    first.began("1")
    first.forget("1")
    assert first.kept_s("1") == 0.0


# ----------------------------------------------------------------------------------------------------------- dependencies

CONDITIONS = ("afterok", "afternotok", "afterany", "after")


def told(on: str, state: State, *units: Unit) -> list[str]:
    return [verdict(Dependency(condition=c, job=on), state, fold(*units)) for c in CONDITIONS]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("on", "ended", "expected"),
    [
        ("7", [], ["met", "never", "met", "met"]),
        ("7", [WHOLE], ["never", "met", "met", "met"]),
        ("7", [0, 3], ["never", "met", "met", "met"]),
        ("7_3", [0, 3], ["never", "met", "met", "met"]),
        ("7_2", [0, 3], ["met", "never", "met", "met"]),
        ("7_0", [0, 3], ["never", "met", "met", "met"]),
        ("8", [0], ["never", "never", "met", "met"]),  # nobody remembers
    ],
)
def test_what_a_job_that_has_ended_lets_start(on: str, ended: list[int], expected: list[str]) -> None:
    assert told(on, State(ended={"7": ended})) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["waits"] * 4),
        ({"left": 2, "begun": {"7_0": None}}, ["waits"] * 4),
        ({"left": 2, "begun": {"7_0": None, "7_1": None}}, ["waits", "waits", "waits", "met"]),
        ({"left": 1, "bad": {"7_1": None}}, ["never", "waits", "waits", "waits"]),
    ],
)
def test_what_a_job_that_has_not_ended_lets_start(fields: dict[str, Any], expected: list[str]) -> None:
    assert told("7", State(jobs={"7": job(array=(0, 1), **fields)})) == expected


@pytest.mark.parametrize(
    ("known", "fields", "expected"),
    [
        (unit("7_0"), {}, ["waits"] * 4),
        (unit("7_0"), {"begun": {"7_0": None}}, ["waits", "waits", "waits", "met"]),
        (unit("7_0"), {"begun": {"7_1": None}}, ["waits"] * 4),
        (unit("7_0", state="final"), {}, ["met", "never", "met", "met"]),
        (None, {}, ["met", "never", "met", "met"]),
        (unit("7_0", state="final"), {"bad": {"7_0": None}}, ["never", "met", "met", "met"]),
        (unit("7_0", state="final"), {"bad": {"7_1": None}}, ["met", "never", "met", "met"]),
    ],
)
def test_what_one_element_lets_start(known: Unit | None, fields: dict[str, Any], expected: list[str]) -> None:
    state = State(jobs={"7": job(array=(0, 1), left=2, **fields)})
    assert told("7_0", state, *([known] if known else [])) == expected


def test_an_element_of_what_is_no_array_stands_for_the_job() -> None:
    assert told("7_0", State(jobs={"7": job(begun={"7": None})})) == ["waits", "waits", "waits", "met"]
