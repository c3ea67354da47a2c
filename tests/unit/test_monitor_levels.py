"""What the read model's parts promise: levels of hosts, losses, readiness, releases, loads, limits, steps of hosts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.facts import Dependency, Disposal
from schemas.facts_instances import Answers
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.monitor.core import loads
from services.monitor.core.attempt import Attempt, cpu_s, note, own_cpu_s
from services.monitor.core.counters import CAUSES
from services.monitor.core.releases import current
from services.monitor.core.releases import fresh as no_release
from tests.support.closing import close, closing
from tests.unit.test_custody_rules import QUOTA_0, Step, allocated, closed, granted, heard, host, job, placed, release
from tests.unit.test_monitor_core import ADOPTED, BEGAN, Desk
from tests.unit.test_usage import Office, running

CLEARED: Step = ("executor", f.HostCleared(host="h1"))
GIVEN_BACK: Step = ("scheduler.hpc", f.HostReleased(host="h1"))


def level(desk: Desk, dept: str = "hpc") -> dict[str, int]:
    """What the department has now, by name; noughts left out."""
    found = msgspec.structs.asdict(desk.core.accounting.state.levels[dept])
    return {name: value for name, value in (found | found.pop("size").fields()).items() if value and name != "since"}


def site(desk: Desk) -> dict[str, int]:
    return {name: value for name, value in msgspec.structs.asdict(desk.core.accounting.state.site).items() if value}


# ------------------------------------------------------------------------------------------------------- levels of hosts


def test_what_a_department_has_follows_its_hosts() -> None:
    desk = Desk().play(ADOPTED, *granted(), *granted("h2", cores=8), *host("h3"))
    assert level(desk) == {"held": 2, "own": 3, "cores": 12, "memory_mb": 2000}
    assert site(desk) == {"hosts": 3, "free": 1, "cores": 16}
    desk.play(job(), placed(), allocated())
    assert level(desk)["occupied"] == 1
    desk.play(("executor", f.VmEnded(unit="1", attempt=1, rank=0, why="gone")))
    assert "occupied" not in level(desk)  # broken: it runs no more
    desk.play(closed(), GIVEN_BACK)
    assert level(desk) == {"held": 1, "own": 3, "draining": 1, "cores": 8, "memory_mb": 1000}
    desk.play(CLEARED, ("executor", f.HostLost(host="h2", reason="x")))
    assert (level(desk), site(desk)) == ({"own": 2}, {"hosts": 3, "free": 2, "lost": 1, "cores": 8})
    desk.play(("executor", f.HostRemoved(host="h2")), CLEARED)
    assert site(desk) == {"hosts": 2, "free": 2, "cores": 8}
    assert sorted(desk.core.accounting.state.hosts) == ["h1", "h3"]


def test_hosts_above_the_quota_are_those_that_are_asked_for() -> None:
    desk = Desk().play(ADOPTED, *granted(), *granted("h2"), *granted("h3"))
    assert "noticed" not in level(desk)
    for hosts, noticed in ((5, 0), (3, 0), (1, 2), (0, 3)):
        desk.play(("provisioner", f.QuotaChanged(dept="hpc", hosts=hosts, by=1.0)))
        assert level(desk).get("noticed", 0) == noticed
    desk.play(GIVEN_BACK)
    assert level(desk)["noticed"] == 2


def test_of_cordoned_hosts_those_that_it_holds_are_apart() -> None:
    def cordoned(name: str) -> Step:
        return "admission", f.HostCordoned(host=name, reason="fan", user="o")

    desk = Desk().play(ADOPTED, *granted(), *granted("h2"), *granted("h3", dept="web"), *granted("h4"), *granted("h5"))
    desk.play(
        cordoned("h1"), cordoned("h2"), cordoned("h3"), ("scheduler.hpc", f.HostReleased(host="h4")), cordoned("h4")
    )
    assert (level(desk)["apart"], level(desk, "web")["apart"]) == (2, 1)
    assert sum(level(desk, dept).get("own", 0) for dept in ("hpc", "web")) == 1  # four are divided among nobody
    assert "" not in desk.core.accounting.state.levels  # what nobody holds is no department's


def test_what_it_had_is_levels_times_time() -> None:
    office = Office(hosts=2)
    office.world.grant("hpc", "h1", "h2")
    name = office.world.submit()
    office.place(name, "h1", cores=2)
    office.world.now += 10
    office.notice(1)
    office.world.now += 5
    one = office.of()
    assert (one["held_s"], one["occupied_s"], one["held_on_notice_s"]) == (30.0, 15.0, 5.0)
    assert (one["own_s"], one["borrowed_s"], one["lent_s"]) == (30.0, 0.0, 0.0)


@pytest.mark.parametrize(("hosts", "by_notice"), [(0, 1), (1, 1), (2, 0), (3, 0)])
def test_a_host_is_given_back_by_notice_if_more_were_held_than_the_quota(hosts: int, by_notice: int) -> None:
    office = Office()
    office.world.grant("hpc", "h1", "h2")
    office.notice(hosts)
    office.world.write("scheduler.hpc", f.HostReleased(host="h1"))
    assert office.of()["hosts_given_back"] == by_notice


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_quota_that_leaves_what_is_held_names_no_claimant(hosts: int) -> None:
    office = Office()
    name = running(office)
    office.notice(0, claimants=("web",))
    office.notice(hosts)
    office.close(name, Disposal.REQUEUE)
    assert office.of()["lost_to"] == {"web": 40.0}


# ------------------------------------------------------------------------------------------------------------- accounting


@pytest.mark.parametrize(
    ("disposal", "code", "preempted"),
    [
        (Disposal.REQUEUE, because.Reclaimed, 1),
        (Disposal.SUSPEND, because.HostTaken, 1),
        (Disposal.KILL, because.Preempted, 1),
        (Disposal.MIGRATE, because.HostDrained, 1),
        (Disposal.MIGRATE, because.Balanced, 0),
        (Disposal.TIMEOUT, because.Reclaimed, 0),
        (Disposal.REQUEUE, because.EndedVm, 0),
    ],
)
def test_preempted_is_who_was_taken_and_goes_on_or_was_killed(
    disposal: Disposal, code: because.Kind, preempted: int
) -> None:
    office = Office()
    office.close(running(office), disposal, code)
    assert office.of()["preempted"] == preempted


@pytest.mark.parametrize("disposal", [Disposal.TIMEOUT, Disposal.CANCELLED, Disposal.FAILED, Disposal.STOPPED])
def test_what_is_not_run_again_loses_nothing(disposal: Disposal) -> None:
    office = Office()
    office.close(running(office), disposal)
    assert (office.of()["lost_core_s"], office.of()["failed_core_s"]) == (0.0, 0.0)


def test_what_is_cancelled_and_closed_to_be_run_again_loses_nothing() -> None:
    office = Office()
    name = running(office)
    office.world.cancel(name)
    office.close(name, Disposal.REQUEUE)
    assert (office.of()["lost_core_s"], office.of()["ended"]) == (0.0, {"cancelled": 1})


def test_units_are_counted_where_they_were_submitted() -> None:
    office = Office()
    for array in ((), (1,), (1, 2, 3)):
        office.world.submit(array=array)
    assert office.of()["submitted"] == 5


def test_an_attempt_begins_once() -> None:
    office = Office()
    name = running(office)
    office.world.begin(name)  # its guests call again
    office.close(name, Disposal.REQUEUE)
    assert office.of()["lost_core_s"] == 40.0


def test_a_department_that_closes_cancels_what_was_not_over_and_forgets_what_could_be_lost() -> None:
    office = Office(hosts=3)
    office.world.grant("hpc", "h1")
    office.world.grant("web", "h2")
    names = [office.world.submit() for _ in range(3)]
    office.place(names[0], "h1")
    office.world.now += 10
    office.world.report(names[0])
    office.place(names[1], "h1")
    office.world.now += 10
    office.close(names[1], Disposal.REQUEUE)
    close(office.world, "web")
    assert office.of()["ended"] == {"completed": 1}
    assert list(office.world.seats["monitor"].core.accounting.state.losses) == [names[1]]
    close(office.world, "hpc")
    assert office.of()["ended"] == {"cancelled": 2, "completed": 1}
    state = office.world.seats["monitor"].core.accounting.state
    assert (state.losses, state.work, state.runs, state.goodput.open) == ({}, {}, {}, {})


def test_what_ended_leaves_nothing_that_could_be_taken_back() -> None:
    office = Office()
    name = running(office)
    office.close(name, Disposal.SUSPEND)
    assert list(office.world.seats["monitor"].core.accounting.state.work) == [name]
    office.world.cancel(name)
    assert office.world.seats["monitor"].core.accounting.state.work == {}
    other = running(office)
    office.close(other, Disposal.REQUEUE)
    office.world.cancel(other)
    assert office.world.seats["monitor"].core.accounting.state.losses == {}


def test_best_effort_is_a_part_of_what_was_used() -> None:
    office = Office()
    office.world.grant("hpc", "h1")
    for best_effort in (True, False):
        office.place(office.world.submit(best_effort=best_effort), "h1", cores=2)
    office.world.now += 10
    fresh = office.world.seats["monitor"].core.accounting.as_of(round(office.world.now * 1000))
    [row] = [row for bucket in fresh.kept.values() for row in bucket.rows.values() if row.used]
    assert (row.used, row.memory) == (40_000, 2 * 64 * 10_000)
    assert (row.best_effort, row.best_effort_memory) == (20_000, 64 * 10_000)


def test_the_check_of_accounting_tells_what_does_not_add_up() -> None:
    office = Office()
    name = running(office)
    accounting = office.world.seats["monitor"].core.accounting
    office.world.strict = False
    run = accounting.state.runs.pop(name)
    assert office.world.seats["monitor"].core.check() == [f"open attempts ['{name}'] are counted as []"]
    accounting.state.runs[name] = run
    run.settled += 7
    assert office.world.seats["monitor"].core.check() == ["hpc used -7 and good, bad and open are 0"]


# ------------------------------------------------------------------------------------------------------------ what was used


def attempt(number: int, cpu: float | None, life: int = 1) -> Attempt:
    return Attempt(attempt=number, hosts=(), placed_at=0.0, cpu_seconds=cpu, life=life)


def test_an_attempts_own_is_what_came_since_the_most_that_was_known_of_its_life() -> None:
    attempts = [attempt(1, 10.0), attempt(2, None), attempt(3, 4.0), attempt(4, 12.5004), attempt(5, 3.0, life=5)]
    assert [own_cpu_s(attempts, one) for one in attempts] == [10.0, None, 0.0, 2.5, 3.0]
    assert cpu_s(attempts) == 15.5
    assert cpu_s(attempts[1:2]) is None


def test_of_two_words_the_greater_counts() -> None:
    one = attempt(1, 5.0)
    for cpu, peak in ((3.0, 100.0), (None, None), (6.0, 50.0)):
        note(one, cpu, peak)
    assert (one.cpu_seconds, one.max_rss_mb) == (6.0, 100.0)


# --------------------------------------------------------------------------------------------------------- service levels


WEB: tuple[Step, ...] = (
    ADOPTED,
    *granted(dept="web"),
    placed("web.1"),
    ("admission", f.AttemptBegan(unit="web.1", attempt=1)),
)


def serving(desk: Desk) -> int:
    return desk.core.levels.state.short["web"].serving


def test_who_is_said_to_be_unready_does_not_serve_until_it_is_or_begins_anew() -> None:
    unready, ready = (
        ("admission", f.InstanceReported(unit="web.1", attempt=1, state=state, user="lb"))
        for state in ("unready", "ready")
    )
    desk = Desk().play(*WEB)
    assert serving(desk) == 1
    desk.play(unready)
    assert (serving(desk), list(desk.core.levels.state.unready)) == (0, ["web.1"])
    desk.play(ready)
    assert serving(desk) == 1
    stopped: Step = (
        "scheduler.web",
        f.AttemptClosed(unit="web.1", attempt=1, disposal=Disposal.STOPPED, why=because.Reclaimed()),
    )
    desk.play(unready, stopped)
    assert (serving(desk), desk.core.levels.state.unready) == (0, {})


def test_what_an_old_journal_calls_unreachable_was_so_for_a_while() -> None:
    config = CloudConfig(name="c", departments=(Department(name="web", kind="web", web=WebPolicy(unreachable_s=7.0)),))
    adopted: Step = ("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    desk = Desk().play(adopted, *WEB[1:], heard(state="unreachable"))
    assert [one.at for one in desk.core.levels.state.unready["web.1"].values()] == [desk.position - 7.0]
    unknown = Desk().play(*WEB[1:], heard(state="unreachable"))
    assert [one.at for one in unknown.core.levels.state.unready["web.1"].values()] == [float(unknown.position)]


def test_a_department_that_closes_takes_its_unready_with_it() -> None:
    desk = Desk().play(*WEB, heard(state="unreachable"))
    desk.play(*closing(desk.core.custody, "hpc"))
    assert list(desk.core.levels.state.unready) == ["web.1"]
    desk.play(*closing(desk.core.custody, "web"))
    assert desk.core.levels.state.unready == {}


def test_a_demand_for_hosts_alone_says_nothing_of_instances() -> None:
    desk = Desk().play(ADOPTED, ("scheduler.hpc", f.DemandChanged(dept="hpc", hosts=3)))
    assert desk.core.levels.state.short == {}
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=2)))
    desk.play(("scheduler.web", f.DemandChanged(dept="web", hosts=0, instances=0)))
    short = desk.core.levels.state.short["web"]
    assert (short.wanted, short.seconds, short.short_at) == (0, 2.0, None)


# --------------------------------------------------------------------------------------------------------------- releases


def changed(number: int, state: Any, back_to: int = 0) -> Step:
    why = because.Reclaimed()
    return "scheduler.web", f.ReleaseChanged(dept="web", release=number, state=state, back_to=back_to, reason=why)


def stages(*steps: Step) -> tuple[int, dict[int, str]]:
    found = Desk().play(ADOPTED, *steps).core.state.releases["web"]
    return found.wanted, {record.release: record.state for record in found.records}


def test_how_far_releases_are() -> None:
    assert stages(release(1)) == (1, {0: "complete", 1: "requested"})
    assert stages(release(1), changed(1, "rolling")) == (1, {0: "complete", 1: "rolling"})
    one = [release(1), changed(1, "rolling"), changed(1, "complete")]
    assert stages(*one) == (1, {0: "replaced", 1: "complete"})
    two = [*one, release(2), release(3), changed(2, "rolling")]
    assert stages(*two) == (3, {0: "replaced", 1: "complete", 2: "rolling", 3: "requested"})
    assert stages(*two, changed(3, "rolling")) == (3, {0: "replaced", 1: "complete", 2: "replaced", 3: "rolling"})
    assert stages(*one, release(2), release(3), changed(3, "rolling")) == (
        3,
        {0: "replaced", 1: "complete", 2: "replaced", 3: "rolling"},
    )
    assert stages(*one, release(2), changed(2, "rolling"), changed(2, "rolled_back", 1)) == (
        1,
        {0: "replaced", 1: "rolling", 2: "rolled_back"},
    )
    assert stages(*one, release(2), changed(2, "rolling"), changed(2, "stopped")) == (
        2,
        {0: "replaced", 1: "complete", 2: "stopped"},
    )


def test_the_release_of_the_configuration_is_there_from_the_beginning() -> None:
    first = current(no_release())
    assert first is not None
    assert (first.release, first.state, first.since, first.at) == (0, "complete", 0.0, None)


# ------------------------------------------------------------------------------------------------------------------ loads


def observed(**given: Any) -> f.LoadObserved:
    return f.LoadObserved(dept="web", start=1.0, end=2.0, samples=1, **given)


META = Meta(position=1, index=0, writer="scheduler.web", at=9.0)


@pytest.mark.parametrize(
    ("given", "target", "tells"),
    [
        ({"utilisation": 0.0}, 0.0, True),
        ({}, 5.0, False),
        ({"requests_per_s": 3.0}, 0.0, False),
        ({"requests_per_s": 3.0}, 1.0, True),
        ({"requests_per_s": 3.0}, 0.5, True),
        ({"requests_per_s": 3.0, "requests_per_instance": 0.5}, 0.0, True),
    ],
)
def test_what_is_a_word_of_the_load(given: dict[str, Any], target: float, tells: bool) -> None:
    policy = WebPolicy(requests_per_instance=target)
    config = CloudConfig(name="c", departments=(Department(name="web", kind="web", web=policy),))
    for known in (config, None):
        state = loads.State()
        loads.observed(state, observed(**given), META, known)
        own = given.get("requests_per_instance") or given.get("utilisation") is not None
        assert (state.last["web"].told_at is not None) == (tells if known is not None else bool(own))


def test_who_was_never_heard_is_missed_since_then_until_a_word_comes() -> None:
    state = loads.State(unheard={"web": 4.0})
    loads.observed(state, observed(utilisation=0.5), META, None)
    assert state.unheard == {}


def test_the_share_of_errors_is_of_all_answers() -> None:
    state = loads.State()
    answers = (Answers(release=1, answered=2, errors=1), Answers(release=2, answered=4, errors=1))
    loads.observed(state, observed(answers=answers), META, None)
    assert state.last["web"].errors == 0.3333
    loads.observed(state, observed(), META, None)
    assert state.last["web"].errors == 0.0


# ----------------------------------------------------------------------------------------------------- steps and tallies


def test_a_step_of_a_host_names_whose_it_was_or_became() -> None:
    desk = Desk().play(ADOPTED, *granted(), GIVEN_BACK, CLEARED, ("provisioner", f.HostGranted(host="h1", dept="web")))
    steps = desk.core.state.moves.hosts["h1"]
    assert [(type(step.fact).__name__, step.department) for step in steps] == [
        ("HostGranted", "hpc"),
        ("HostReleased", "hpc"),
        ("HostGranted", "web"),
    ]


@pytest.mark.parametrize(("cpu", "told"), [(-1.0, {}), (0.0, {}), (0.5, {"hpc": 0.5}), (2.0, {"hpc": 2.0})])
def test_cpu_is_only_ever_added(cpu: float, told: dict[str, float]) -> None:
    desk = Desk().play(ADOPTED)
    desk.core.tallies.used("hpc", cpu)
    assert desk.core.state.tallies.cpu_s == told


def test_what_ends_on_its_own_terms_made_no_way() -> None:
    desk = Desk().play(ADOPTED, *granted(), job(), placed(), BEGAN, QUOTA_0, closed(disposal=Disposal.TIMEOUT))
    assert desk.core.state.tallies.preempted == {}
    assert "reclaimed" in CAUSES


def test_the_check_of_tallies_names_hosts_that_nobody_knows() -> None:
    desk = Desk().play(ADOPTED, *granted())
    known = desk.core.state.tallies.hosts
    known["h9"] = known["h8"] = known["h1"]
    assert desk.core.check() == [f"{name} is remembered, and custody knows no such host" for name in ("h8", "h9")]


def test_the_check_of_empty_hosts_tells_both_sides() -> None:
    desk = Desk().play(ADOPTED, *granted("h2"), *granted("h1"))
    assert sorted(desk.core.state.idle) == ["h1", "h2"]
    del desk.core.state.idle["h1"]
    assert desk.core.check() == ["empty are ['h1', 'h2'], not ['h2']"]


# ------------------------------------------------------------------------------------------------------ causes and limits


def limited(**given: Any) -> Desk:
    policy = BatchPolicy(**given)
    config = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=policy),))
    adopted: Step = ("provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=config))
    return Desk().play(adopted, *granted(), *granted("h2"))


def why(desk: Desk, unit: str) -> Any:
    return next(row["reason"] for row in desk.queue() if row["unit"] == unit)


def test_a_job_has_its_nodes_times_its_cores() -> None:
    desk = limited(limits=BatchLimits(cores_max=6))
    desk.play(job("1", nodes=2, cores=2), job("2", nodes=1, cores=3), job("3", cores=2))
    desk.play(placed("1", hosts=("h1", "h2"), cores=2))
    assert [why(desk, unit)["code"] for unit in ("2", "3")] == ["user_limit", "queue"]
    desk.play(closed())
    assert why(desk, "2")["code"] == "queue"


@pytest.mark.parametrize("begins", [True, False])
def test_an_element_is_waited_for_until_it_has_begun_or_ended(begins: bool) -> None:
    after = (Dependency(job="1_2", condition="after"),)
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1, 2)), job("2", after=after))
    assert why(desk, "2")["code"] == "dependency"
    desk.play(placed("1_2"))
    assert why(desk, "2")["code"] == "dependency"
    over = ("admission", f.AttemptBegan(unit="1_2", attempt=1)), ("admission", f.JobCancelled(job="1_2", user="a"))
    desk.play(*over[:1]) if begins else desk.play(closed("1_2"), over[1])
    assert why(desk, "2")["code"] == "queue"


def test_a_departments_own_limit_is_told_as_such() -> None:
    department = Department(name="hpc", kind="batch", batch=BatchPolicy(), maximum_cores=1)
    adopted = f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CloudConfig(name="c", departments=(department,)))
    desk = Desk().play(("provisioner", adopted), *granted(), job("1"), job("2"), placed("1"))
    assert why(desk, "2")["code"] == "department_limit"


def test_what_moved_is_told_once() -> None:
    desk = Desk().play(ADOPTED, *granted(), job("1", array=(1, 2), throttle=1), placed("1_1"), allocated(unit="1_1"))
    assert desk.core.causes.restated() == ["1_1", "1_2"]
    assert desk.core.causes.restated() == []
