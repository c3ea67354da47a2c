"""What a web department's scheduler remembers of each fact, and that it looks at what concerns it alone (`web.fold`)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig
from schemas.facts import Disposal
from schemas.releases import Release
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.core import WebCore
from services.scheduler.core.web.failures import BACKOFF_FIRST_S, BACKOFF_MAX_S, TOGETHER_S, backoff_s
from services.scheduler.core.web.release import STABLE_S, Roll
from services.scheduler.core.web.reports import sessions
from tests.support.closing import close, left_out
from tests.support.world import World, batch, cloud, web

WHY = because.ScaleDown(instances=1)


def site(held: int = 2, **policy: Any) -> World:
    """Of six hosts `held` are held by web, and one by shop; both have one instance a host, in service."""
    policy = {"drain_s": 5.0, "signal_timeout_s": 1e6, "instances_min": held, **policy}
    world = World(cloud(web("web", **policy), web("shop"), batch("hpc")))
    names = world.hosts(6)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.settle()
    world.executor()
    world.guests()
    world.grant("web", *names[:held])
    world.grant("shop", names[5])
    world.settle()
    world.write("scheduler.shop", f.UnitPlaced(unit="shop.1", attempt=1, hosts=("h6",), cores=1, memory_mb=64))
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def rests(world: World) -> bool:
    """After a decision that had nothing to say."""
    world.settle()
    assert core(world).decide(world.now) == []
    return core(world)._rests


# -------------------------------------------------------------------------------------------------------- whom a fact concerns


def _load(dept: str, **fields: Any) -> f.LoadObserved:
    return f.LoadObserved(dept=dept, start=1.0, end=2.0, samples=1, utilisation=0.5, **fields)


def _changed(dept: str, state: str = "complete") -> f.ReleaseChanged:
    return f.ReleaseChanged(dept=dept, release=0, state=state, reason=because.ReleaseComplete())  # type: ignore[arg-type]


def _report(unit: str, state: str) -> f.InstanceReported:
    return f.InstanceReported(unit=unit, attempt=1, state=state, by="guest", why="x")  # type: ignore[arg-type]


OF_BOTH: list[tuple[str, Any]] = [
    ("scheduler.{}", lambda dept, unit, host: _load(dept)),
    ("scheduler.{}", lambda dept, unit, host: f.DemandChanged(dept=dept, hosts=2, instances=2, reason=WHY)),
    ("provisioner", lambda dept, unit, host: f.QuotaChanged(dept=dept, hosts=2, by=1e9)),
    ("admission", lambda dept, unit, host: f.ScaleRequested(dept=dept, user="wes", minimum=1)),
    ("admission", lambda dept, unit, host: f.ReleaseRequested(dept=dept, release=1, user="wes", content=Release())),
    ("scheduler.{}", lambda dept, unit, host: _changed(dept)),
    ("admission", lambda dept, unit, host: f.DepartmentClosed(dept=dept)),
    ("scheduler.{}", lambda dept, unit, host: f.UnitPlaced(
        unit=f"{dept}.9", attempt=1, hosts=(host,), cores=1, memory_mb=64)),
    ("admission", lambda dept, unit, host: f.AttemptBegan(unit=unit, attempt=1)),
    ("scheduler.{}", lambda dept, unit, host: f.InstanceDraining(unit=unit, attempt=1, until=1e12, reason=WHY)),
    ("admission", lambda dept, unit, host: _report(unit, "unready")),
    ("scheduler.{}", lambda dept, unit, host: f.AttemptClosed(
        unit=unit, attempt=1, disposal=Disposal.STOPPED, why=WHY)),
    ("executor", lambda dept, unit, host: f.VmAllocated(unit=unit, attempt=2, rank=0, vm=99, host=host)),
    ("executor", lambda dept, unit, host: f.VmStarted(unit=unit, attempt=1, rank=0)),
    ("admission", lambda dept, unit, host: f.HostCordoned(host=host, reason="x", user="root")),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "make"), OF_BOTH, ids=lambda part: "" if callable(part) else part)
def test_a_fact_about_another_department_changes_nothing_and_one_of_its_own_has_it_look_again(
    writer: str, make: Any
) -> None:
    for dept, unit, host in (("shop", "shop.1", "h6"), ("web", "web.1", "h1")):
        world, fact = site(), make(dept, unit, host)
        if isinstance(fact, f.DepartmentClosed):
            world.write("provisioner", left_out(world.custody, dept))
        assert rests(world)
        world.strict = False  # what it decides now is not asked
        before = core(world).dump()
        world.write(writer.format(dept), fact)
        if dept == "shop":
            assert core(world).dump() == before
            assert core(world)._rests or isinstance(fact, f.HostCordoned)
        else:
            assert not core(world)._rests


def test_load_counts_by_the_schedulers_own_word_alone() -> None:
    world = site()
    assert rests(world)
    before = core(world).dump()
    world.write("scheduler.shop", _load("web"))
    assert (core(world).dump(), core(world)._rests) == (before, True)


def test_what_is_void_is_nothing() -> None:
    world = site()
    assert rests(world)
    before = core(world).dump()
    world.write("admission", f.AttemptBegan(unit="web.77", attempt=1))
    assert (core(world).dump(), core(world)._rests) == (before, True)


# ----------------------------------------------------------------------------------------------------------------- demand


@pytest.mark.parametrize(("instances", "by"), [(2, 0), (5, 3), (1, -1), (0, -2)])
def test_how_far_the_number_went_is_remembered_for_limits_and_turns(instances: int, by: int) -> None:
    world = site()
    world.write("scheduler.web", f.DemandChanged(dept="web", hosts=2, instances=instances, reason=WHY))
    state = core(world).state
    assert [change.by for change in state.changes] == ([by] if by else [])
    assert state.target == instances


@pytest.mark.parametrize(
    ("code", "instances", "by_person", "missing"),
    [
        (because.ScaledByPerson, 2, True, False),
        (because.ScaledByPerson, 3, True, False),
        (because.RoomBeside, 3, True, True),  # of hosts alone: the number is still that person's
        (because.AtMinimum, 3, True, False),
        (because.AtMinimum, 2, False, False),
        (because.SignalMissing, 3, True, True),
    ],
)
def test_whose_the_number_is_holds_until_it_is_another_one(
    code: because.Kind, instances: int, by_person: bool, missing: bool
) -> None:
    world = site()
    state = core(world).state
    state.by_person, state.target, state.missing = True, 3, True
    fact = f.DemandChanged(dept="web", hosts=2, instances=instances, if_idle=4, reason=code())
    core(world).apply(fact, _meta(world))
    assert (state.by_person, state.missing, state.if_idle) == (by_person, missing, 4)
    state.by_person = False
    core(world).apply(msgspec.structs.replace(fact, instances=instances), _meta(world))
    assert state.by_person is (code is because.ScaledByPerson)


def _meta(world: World) -> Any:
    return Meta(position=1, index=0, writer="scheduler.web", at=world.now)


# ------------------------------------------------------------------------------------------------------- failures (rule 2)


@pytest.mark.parametrize(
    ("failures", "waits_s"),
    [
        (0, 0.0),
        (1, 0.0),
        (2, BACKOFF_FIRST_S),
        (3, 1.0),
        (4, 2.0),
        (7, 16.0),
        (8, BACKOFF_MAX_S),
        (10**6, BACKOFF_MAX_S),
    ],
)
def test_a_replacement_waits_longer_with_each_failure_in_a_row(failures: int, waits_s: float) -> None:
    assert backoff_s(failures) == waits_s


def fail(world: World, unit: str, code: because.Kind = because.ProgramEnded) -> None:
    closed = f.AttemptClosed(unit=unit, attempt=1, disposal=Disposal.FAILED, why=code())
    world.write("scheduler.web", closed)


@pytest.mark.parametrize(("served_s", "failures"), [(STABLE_S - 0.1, 4), (STABLE_S, 1)])
def test_one_that_has_served_for_so_long_begins_the_row_anew(served_s: float, failures: int) -> None:
    world = site()
    state = core(world).state
    state.failures, state.retry_at, state.to_replace = 3, 0.0, 0
    world.now = world.unit("web.1").began_at + served_s  # type: ignore[operator]
    fail(world, "web.1")
    assert (state.failures, state.to_replace, state.failed) == (failures, 1, "web.1")
    assert state.retry_at == world.now + backoff_s(failures)
    assert state.failed_why == because.ProgramEnded()


@pytest.mark.parametrize(
    ("code", "failures", "to_replace", "replaced"),
    [
        (because.ProgramEnded, 1, 1, False),
        (because.EndedVm, 1, 1, False),
        (because.NotReady, 1, 1, True),
        (because.Unreachable, 1, 1, True),
        (because.ScaleDown, 0, 0, False),
        (because.LostHost, 0, 0, False),
    ],
)
def test_what_counts_as_a_failure_and_who_has_a_successor_already(
    code: because.Kind, failures: int, to_replace: int, replaced: bool
) -> None:
    for target in (2, 1, None):
        world = site()
        state = core(world).state
        state.to_replace, state.target, state.replaced_at = 0, target, 0.0
        fail(world, "web.1", code)
        assert state.failures == failures
        assert state.to_replace == (to_replace if target == 2 or not replaced else 0)
        assert state.replaced_at == (world.now if replaced else 0.0)


def test_one_that_drains_does_not_fail() -> None:
    world = site()
    world.write("scheduler.web", f.InstanceDraining(unit="web.1", attempt=1, until=world.now + 5.0, reason=WHY))
    fail(world, "web.1")
    assert (core(world).state.failures, core(world).state.failed) == (0, "")


@pytest.mark.parametrize("began", [False, True])
def test_what_does_not_start_while_starts_are_paused_is_no_failure(began: bool) -> None:
    world = site()
    if not began:
        world.seats["guests"].paused = True
        world.grant("web", "h3")
        world.write("scheduler.web", f.UnitPlaced(unit="web.3", attempt=1, hosts=("h3",), cores=1, memory_mb=64))
    core(world).state.retry_at = world.now + 60.0
    world.write("executor", f.StartsPaused(since=world.now, failed=3, tried=3, why="x"))
    assert core(world).state.paused
    assert core(world).state.retry_at == world.now
    fail(world, "web.1" if began else "web.3", because.BootTimeout)
    assert core(world).state.failures == int(began)
    world.write("executor", f.StartsResumed(why="x"))
    assert not core(world).state.paused


def test_one_that_is_placed_stands_in_for_one_that_failed() -> None:
    world = site()
    world.seats["guests"].paused = True
    world.grant("web", "h3", "h4")
    core(world).state.to_replace = 1
    for number, left in ((3, 0), (4, 0)):
        placed = f.UnitPlaced(unit=f"web.{number}", attempt=1, hosts=(f"h{number}",), cores=1, memory_mb=64)
        world.write("scheduler.web", placed)
        assert core(world).state.to_replace == left


def several(apart_s: float = 0.0, said: str = "") -> World:
    """Two instances on one host, placed together; their VMs end."""
    world = site(held=1, instances_min=2, instances_per_host=2)
    assert [world.unit(name).hosts for name in ("web.1", "web.2")] == [("h1",), ("h1",)]
    world.now += 10.0
    for name in ("web.1", "web.2"):
        if name == said:
            world.write("admission", _report(name, "ended"))
        world.end_vm(name)
        world.now += apart_s if name == "web.1" else 0.0
    return world


@pytest.mark.parametrize(("apart_s", "together"), [(0.0, True), (TOGETHER_S, True), (TOGETHER_S + 0.1, False)])
def test_vms_that_end_together_on_one_host_are_one_failure(apart_s: float, together: bool) -> None:
    world = several(apart_s)
    state = core(world).state
    assert state.together == ({"web.2": None} if together else {})
    assert list(state.taken) == ["h1"]
    for name in ("web.1", "web.2"):
        fail(world, name, because.EndedVm)
    assert state.failures == (1 if together else 2)
    assert state.together == {}


@pytest.mark.parametrize(
    ("said", "taken", "together"), [("web.1", ["h1"], {}), ("web.2", ["h1"], {}), ("", ["h1"], {"web.2": None})]
)
def test_whose_guest_has_said_so_is_a_failure_of_its_own(
    said: str, taken: list[str], together: dict[str, None]
) -> None:
    state = core(several(said=said)).state
    assert (list(state.taken), state.together) == (taken, together)


def test_one_that_came_after_the_first_had_ended_is_another_failure() -> None:
    world = site(held=1, instances_min=1, instances_per_host=3)
    world.now += 10.0
    world.end_vm("web.1")
    world.write("scheduler.web", f.UnitPlaced(unit="web.2", attempt=1, hosts=("h1",), cores=1, memory_mb=64))
    world.settle()
    world.end_vm("web.2")
    assert core(world).state.together == {}


def test_on_two_hosts_they_are_two() -> None:
    world = site()
    world.end_vm("web.1")
    world.end_vm("web.2")
    assert sorted(core(world).state.taken) == ["h1", "h2"]
    assert core(world).state.together == {}


# ---------------------------------------------------------------------------------------------------------- words (rule 3)


def test_what_was_said_of_an_instance_is_forgotten_with_it() -> None:
    world = site()
    world.strict = False
    world.write("admission", _report("web.1", "unready"))
    world.write("admission", _report("web.1", "ready"))
    assert list(core(world).state.ready_at) == ["web.1"]
    world.write("admission", _report("web.1", "unready"))
    rolling = because.Rolling(release=7)
    world.write("scheduler.web", f.InstanceDraining(unit="web.1", attempt=1, until=world.now + 5.0, reason=rolling))
    world.write("admission", _report("web.1", "drained"))
    world.write("admission", _report("web.1", "ended"))
    state = core(world).state
    assert (state.followed, list(state.drained), list(state.unready), list(state.ended)) == (
        {"web.1": 7}, ["web.1"], ["web.1"], ["web.1"],
    )  # fmt: skip
    world.write("scheduler.web", f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=WHY))
    assert (state.followed, state.drained, state.unready, state.ready_at, state.ended) == ({}, {}, {}, {}, {})


def test_who_does_not_drain_has_not_drained_and_one_that_drains_for_another_reason_is_followed_by_nobody() -> None:
    world = site()
    world.strict = False
    world.write("admission", _report("web.1", "drained"))
    assert core(world).state.drained == {}
    world.write("scheduler.web", f.InstanceDraining(unit="web.1", attempt=1, until=world.now + 5.0, reason=WHY))
    assert core(world).state.followed == {}


@pytest.mark.parametrize(("by", "counts"), [("guest", True), ("", False)])
def test_of_who_is_not_in_service_yet_its_guest_alone_knows(by: str, counts: bool) -> None:
    world = site()
    world.seats["guests"].paused = True
    world.grant("web", "h3")
    world.write("scheduler.web", f.UnitPlaced(unit="web.3", attempt=1, hosts=("h3",), cores=1, memory_mb=64))
    said: dict[str, Any] = {"by": by} if by else {"user": "balancer"}
    world.write("admission", f.InstanceReported(unit="web.3", attempt=1, state="unready", why="x", **said))
    assert ("web.3" in core(world).state.unready) is counts
    world.begin("web.3")
    assert "web.3" not in core(world).state.unready, "what it said before it began is over"


@pytest.mark.parametrize(("after_s", "known"), [(0.0, True), (29.9, True), (30.0, False)])
def test_who_has_the_fewest_sessions_is_known_for_so_long(after_s: float, known: bool) -> None:
    world = site(signal_timeout_s=30.0)
    world.write("scheduler.web", _load("web", quiet=("web.2", "web.1")))
    assert core(world).state.quiet_at == world.now
    assert sessions(core(world).state, 30.0, world.now + after_s) == (("web.2", "web.1") if known else ())
    world.write("scheduler.web", _load("web"))
    assert core(world).state.quiet == ("web.2", "web.1"), "nothing new of it"


# --------------------------------------------------------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("state", "forgets", "complete"),
    [("rolling", True, False), ("rolled_back", True, False), ("complete", False, True), ("stopped", False, False)],
)
def test_another_release_has_not_failed_yet(state: str, forgets: bool, complete: bool) -> None:
    world = site()
    known = core(world).state
    known.failures, known.to_replace, known.retry_at, known.answers_at = 3, 2, world.now + 9.0, 5.0
    known.answers, known.complete_at = {1: []}, 0.0
    core(world).apply(_changed("web", state), _meta(world))
    found = (known.failures, known.to_replace, known.retry_at, known.answers, known.answers_at)
    assert found == ((0, 0, 0.0, {}, 0.0) if forgets else (3, 2, world.now + 9.0, {1: []}, 5.0))
    assert known.complete_at == (world.now if complete else 0.0)


def test_nothing_goes_back_to_a_release_whose_content_nobody_remembers() -> None:
    world = site()
    core(world).state.roll = Roll(good=(0, 7))
    world.write("admission", f.ReleaseRequested(dept="web", release=1, user="wes", content=Release()))
    assert core(world).state.roll.good == (0,)


def test_a_department_that_closes_forgets_what_it_ran() -> None:
    world = site()
    world.write("admission", f.ReleaseRequested(dept="web", release=1, user="wes", content=Release()))
    world.write("admission", _report("web.1", "ended"))
    assert core(world).department is not None
    close(world, "web")
    state = core(world).state
    assert (state.roll, state.ended, core(world).department) == (Roll(asked=1), {}, None)
    assert core(world).desired(world.now)[0] == 0


def adopt(world: World, *departments: Any) -> None:
    config = world.custody.state.config
    assert isinstance(config, CloudConfig)
    adopted = f.ConfigAdopted(
        cloud=world.custody.state.cloud,
        custody_rules=RULES,
        config=msgspec.structs.replace(config, departments=departments),
    )
    world.write("provisioner", adopted)


@pytest.mark.parametrize(
    ("departments", "there"), [((web("web"),), True), ((web("shop"),), False), ((batch("web"),), False)]
)
def test_a_department_that_is_not_configured_or_is_none_of_web_wants_nothing(departments: Any, there: bool) -> None:
    world = site()
    adopt(world, *departments)
    assert (core(world).department is not None) is there
    assert (type(core(world).desired(world.now)[1]) is because.DepartmentRemoved) is not there
    assert core(world).check() == []


def test_another_rule_remembers_nothing_of_the_one_before_and_other_content_is_a_try_anew() -> None:
    world = site()
    world.now += 1.0
    world.write("scheduler.web", msgspec.structs.replace(_load("web"), start=world.now - 1.0, end=world.now))
    state = core(world).state
    assert state.track != Track()
    policy = core(world).policy
    adopt(world, web("web", instances_min=1, rule=policy.rule), web("shop"))
    assert state.track != Track()
    before = state.roll.first
    adopt(world, web("web", instances_min=1, rule="threshold", image="other"), web("shop"))
    assert (state.track, state.samples) == (Track(), [])
    assert before == 0
    assert state.roll.first == 2


def test_when_somebody_came_into_service_after_nobody_is_remembered() -> None:
    world = site(held=1)
    state, began = core(world).state, world.now
    assert (state.serving, state.serves_at, state.since) == (1, state.since, state.since)
    world.now += 50.0
    world.grant("web", "h2")
    world.write("scheduler.web", f.UnitPlaced(unit="web.2", attempt=1, hosts=("h2",), cores=1, memory_mb=64))
    world.start_vms("web.2")
    world.begin("web.2")
    assert (state.serving, state.serves_at <= began, state.since) == (2, True, world.now)


# ------------------------------------------------------------------------------------------------------------- invariants


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda core: setattr(core.state, "serving", 5), "2 instances are in service, 5 are counted"),
        (lambda core: core.inventory.hosts.pop("h1"), "what the department holds differs from custody"),
        (lambda core: setattr(core, "department", None), "the department is configured otherwise"),
        (lambda core: core.packing.capacities.of_host.pop("h1"), "the capacities differ from custody"),
        (lambda core: setattr(core.packing, "_per_host", 77), "a host carries 1 instances, not 77"),
        (lambda core: core.stages.pop(0), "the stages are those of another configuration"),
        (lambda core: core.state.drained.update({"web.1": None}), "web.1 has drained and does not drain"),
        (lambda core: core.state.drained.update({"web.9": None}), "web.9 is gone, and what was said of it is not"),
        (lambda core: core.state.followed.update({"web.9": 1}), "web.9 is gone, and what was said of it is not"),
        (lambda core: core.state.unready.update({"web.9": {}}), "web.9 is gone, and what was said of it is not"),
        (lambda core: core.state.ready_at.update({"web.9": 1.0}), "web.9 is gone, and what was said of it is not"),
        (lambda core: (setattr(core, "_wake_at", 1.0)), "it rests until 1.0 and should until inf"),
        (lambda core: setattr(core.state, "target", 7), "it rests though it has something to say"),
    ],
)  # fmt: skip
def test_what_must_hold_is_checked(harm: Any, found: str) -> None:
    world = site()
    assert rests(world)
    assert core(world).check() == []
    harm(core(world))
    assert any(one.startswith(found.split(" and should")[0]) for one in core(world).check()), core(world).check()


def test_samples_do_not_overlap() -> None:
    world = site()
    core(world).state.samples = [Sample(0.0, 1.0, 0.5), Sample(1.0, 2.0, 0.5)]
    assert core(world).check() == []
    core(world).state.samples = [Sample(0.0, 1.1, 0.5), Sample(1.0, 2.0, 0.5)]
    assert len(core(world).check()) == 1
